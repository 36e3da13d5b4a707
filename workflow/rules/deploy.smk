# Stage 5: the verdict.


rule evaluate:
    """Judge a policy over many episodes."""
    input:
        policy="results/{motion}/policy.pt",
        train="results/{motion}/train.json",
        motion="results/{motion}/motion.npz",
    output:
        json="results/{motion}/eval.json",
    log:
        "results/{motion}/logs/evaluate.log",
    conda:
        "../../environment.yml"
    threads: num_workers
    params:
        *code_of("q1pipe.stages.evaluate"),
        robot=robot_sha,
        cfg=settings("robot", "train", "evaluate"),
    shell:
        "exec python -m q1pipe evaluate --policy={input.policy:q} --train-json={input.train:q} --motion={input.motion:q}"
        " --out-json={output.json:q} --threads={threads}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"
