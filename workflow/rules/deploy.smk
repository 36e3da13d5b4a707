# Stage 5: the policy as a file for the robot, the same file in other worlds, and the verdict.

# As q1pipe.deploy.folder.FILES, which is not imported here: it needs numpy (a test compares them).
DEPLOY_FILES = "policy.onnx motion.npz deploy.yaml golden.npz golden.csv run_policy.py check.py README.md".split()


rule export:
    """Stage 5: write a policy as ONNX, and prove that it computes the same -> results/{motion}/policy.onnx"""
    input:
        policy="results/{motion}/policy.pt",
        train="results/{motion}/train.json",
        motion="results/{motion}/motion.npz",
    output:
        onnx="results/{motion}/policy.onnx",
        reference="results/{motion}/policy_with_reference.onnx",
        recording="results/{motion}/recording.npz",
        deploy=[f"results/{{motion}}/deploy/{name}" for name in DEPLOY_FILES],
        json="results/{motion}/export.json",
    log:
        "results/{motion}/logs/export.log",
    conda:
        "../../environment.yml"
    params:
        *code("q1pipe.stages.export"),
        **settings("robot", "train", "export", "evaluate.episodes", "evaluate.seed"),
        robot=robot_sha,
        folder="results/{motion}/deploy",
    shell:
        "exec python -m q1pipe export --policy={input.policy:q} --train-json={input.train:q} --motion={input.motion:q}"
        " --onnx={output.onnx:q} --onnx-with-reference={output.reference:q} --recording={output.recording:q}"
        " --deploy-dir={params.folder:q} --out-json={output.json:q}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"


rule sim2sim:
    """Stage 5: put it into an independent simulation, and into other worlds -> results/{motion}/sim2sim.json"""
    input:
        onnx="results/{motion}/policy.onnx",
        recording="results/{motion}/recording.npz",
        motion="results/{motion}/motion.npz",
    output:
        trajectory="results/{motion}/trajectory.npz",
        json="results/{motion}/sim2sim.json",
    log:
        "results/{motion}/logs/sim2sim.log",
    conda:
        "../../environment.yml"
    threads: JUDGING
    params:
        *code("q1pipe.stages.sim2sim"),
        **settings(
            "robot",
            "sim2sim",
            "export.max_difference",
            "train.termination",
            "evaluate.hold_seconds",
            "evaluate.hold_height",
            "evaluate.hold_tilt",
        ),
        robot=robot_sha,
    shell:
        "exec python -m q1pipe sim2sim --onnx={input.onnx:q} --recording={input.recording:q} --motion={input.motion:q}"
        " --trajectory={output.trajectory:q} --out-json={output.json:q} --threads={threads}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"


rule evaluate:
    """Stage 5: judge it over many episodes, with what export and sim2sim found -> results/{motion}/eval.json"""
    input:
        policy="results/{motion}/policy.pt",
        train="results/{motion}/train.json",
        motion="results/{motion}/motion.npz",
        export="results/{motion}/export.json",
        sim2sim="results/{motion}/sim2sim.json",
    output:
        json="results/{motion}/eval.json",
    log:
        "results/{motion}/logs/evaluate.log",
    conda:
        "../../environment.yml"
    threads: JUDGING
    params:
        *code("q1pipe.stages.evaluate"),
        **settings("robot", "train", "evaluate", "sim2sim.max_gap"),
        robot=robot_sha,
    shell:
        "exec python -m q1pipe evaluate --policy={input.policy:q} --train-json={input.train:q} --motion={input.motion:q}"
        " --export-json={input.export:q} --sim2sim-json={input.sim2sim:q}"
        " --out-json={output.json:q} --threads={threads}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"
