# Stage 2: one answer for all motions. No host in it, so that a second machine retrains nothing.


rule device:
    """Stage 2: find the device that trains, and prove that it computes -> results/device.json"""
    output:
        json="results/device.json",
    log:
        "results/device.log",
    conda:
        "../../environment.yml"
    resources:
        npu=1,
    params:
        *code("q1pipe.stages.device"),
        **settings("device"),
        asked=asked_device,
    shell:
        "exec python -m q1pipe device --out-json={output.json:q} --settings={params.cfg:q} --log={log:q}"
