# Stage 1: is the clip worth training on?


rule motion:
    """Stage 1: check a motion file and normalise it -> results/{motion}/motion.npz"""
    input:
        source=source,
    output:
        npz="results/{motion}/motion.npz",
        json="results/{motion}/motion.json",
        plot="results/{motion}/motion.svg",
    log:
        "results/{motion}/logs/motion.log",
    conda:
        "../../environment.yml"
    params:
        *code("q1pipe.stages.motion"),
        **settings("robot", "motion", "train.control_hz", "train.substeps", "train.termination"),
        sha=motion_sha,
        robot=robot_sha,
    shell:
        "exec python -m q1pipe motion --source={input.source:q} --out-npz={output.npz:q} --out-json={output.json:q}"
        " --out-plot={output.plot:q} --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"
