# Stages 3 and 4. Run folders are below results/{motion}/runs/, which Snakemake does not know: it deletes the outputs of a
# rule before each run and after a failure, and training must go on where it stopped. $PPID is Snakemake: training leaves
# with it, because the next one would start another trainer.


rule smoke:
    """Stage 3: train for a moment, to see that it can be done -> results/{motion}/smoke.json"""
    input:
        motion="results/{motion}/motion.npz",
        report="results/{motion}/motion.json",
        device="results/device.json",
    output:
        json="results/{motion}/smoke.json",
    log:
        "results/{motion}/logs/smoke.log",
    priority: 1  # before what is small: the accelerator is what all motions wait for
    conda:
        "../../environment.yml"
    threads: num_workers
    resources:
        npu=1,
    params:
        *code("q1pipe.stages.smoke"),
        **settings("robot", "train", "smoke", "device"),
        robot=robot_sha,
    shell:
        "exec python -m q1pipe smoke --motion={input.motion:q} --report={input.report:q} --device={input.device:q}"
        " --out-json={output.json:q} --threads={threads}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"


rule train:
    """Stage 4: train a policy, or go on where training stopped -> results/{motion}/policy.pt"""
    input:
        motion="results/{motion}/motion.npz",
        device="results/device.json",
        smoke="results/{motion}/smoke.json",
    output:
        policy="results/{motion}/policy.pt",
        history="results/{motion}/train.csv",
        json="results/{motion}/train.json",
    log:
        "results/{motion}/logs/train.log",
    priority: 1  # before what is small: the accelerator is what all motions wait for
    conda:
        "../../environment.yml"
    threads: num_workers
    resources:
        npu=1,
    params:
        *code("q1pipe.stages.train"),
        *code("q1pipe.stages.seeds"),
        **settings("robot", "train", "device"),
        robot=robot_sha,
        runs="results/{motion}/runs",
        workers=untracked_workers,
        pinned=pinned_code,
    shell:
        "exec python -m q1pipe train --motion={input.motion:q} --device={input.device:q} --smoke={input.smoke:q}"
        " --runs-dir={params.runs:q} --policy={output.policy:q} --history={output.history:q} --out-json={output.json:q}"
        " --workers={params.workers} --threads={threads} --launcher=$PPID {params.pinned}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"
