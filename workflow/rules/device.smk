# Stage 2: one answer for all motions. No host in it, so that a second machine retrains nothing.

from q1pipe.learn.wish import tracked


def asked_device(wildcards):
    """Changes with PRIMEBOT_DEVICE where another device would be chosen."""
    return tracked(SETTINGS.of().device.device, pathlib.Path("results/device.json"), os.environ)


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
