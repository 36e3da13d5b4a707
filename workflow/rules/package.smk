# Stage 6: what people look at and pass on. Nothing here makes anything before it run again.

# What a report reads; its training run's args.yaml, which Snakemake does not know, goes with train.json.
REPORTED = {
    **{f"{record}_json": f"results/{{motion}}/{record}.json" for record in ("motion", "smoke", "train", "export")},
    **{f"{record}_json": f"results/{{motion}}/{record}.json" for record in ("sim2sim", "eval")},
    "history": "results/{motion}/train.csv",
    "motion": "results/{motion}/motion.npz",
    "policy": "results/{motion}/policy.pt",
    "onnx": "results/{motion}/policy.onnx",
    "videos": [
        f"results/{{motion}}/{which}{end}"
        for which in ("reference", "policy")
        for end in (".mp4", ".png", "_sheet.png", "_video.json")
    ],
    "device": "results/device.json",
}


rule reference_video:
    """Stage 6: draw the clip -> results/{motion}/reference.mp4"""
    input:
        motion="results/{motion}/motion.npz",
    output:
        mp4=report(
            "results/{motion}/reference.mp4",
            caption="../report/reference.rst",
            category="{motion}",
            labels={"what": "reference", "as": "video"},
        ),
        poster="results/{motion}/reference.png",
        sheet=report(
            "results/{motion}/reference_sheet.png",
            caption="../report/reference.rst",
            category="{motion}",
            labels={"what": "reference", "as": "contact sheet"},
        ),
        json="results/{motion}/reference_video.json",
    log:
        "results/{motion}/logs/reference_video.log",
    conda:
        "../../environment.yml"
    params:
        *code("q1pipe.stages.video"),
        **settings("robot", "video"),
        robot=robot_sha,
    shell:
        "exec python -m q1pipe reference-video --motion={input.motion:q}"
        " --mp4={output.mp4:q} --poster={output.poster:q} --sheet={output.sheet:q} --out-json={output.json:q}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"


rule policy_video:
    """Stage 6: draw what sim2sim measured -> results/{motion}/policy.mp4"""
    input:
        trajectory="results/{motion}/trajectory.npz",
        onnx="results/{motion}/policy.onnx",
        motion="results/{motion}/motion.npz",
        train="results/{motion}/train.json",
    output:
        mp4=report(
            "results/{motion}/policy.mp4",
            caption="../report/policy.rst",
            category="{motion}",
            labels={"what": "policy", "as": "video"},
        ),
        poster="results/{motion}/policy.png",
        sheet=report(
            "results/{motion}/policy_sheet.png",
            caption="../report/policy.rst",
            category="{motion}",
            labels={"what": "policy", "as": "contact sheet"},
        ),
        json="results/{motion}/policy_video.json",
    log:
        "results/{motion}/logs/policy_video.log",
    conda:
        "../../environment.yml"
    params:
        *code("q1pipe.stages.video"),
        **settings("robot", "video", "train.reward", "train.termination", "train.control_hz", "train.substeps"),
        robot=robot_sha,
    shell:
        "exec python -m q1pipe policy-video --trajectory={input.trajectory:q} --onnx={input.onnx:q}"
        " --motion={input.motion:q} --train-json={input.train:q}"
        " --mp4={output.mp4:q} --poster={output.poster:q} --sheet={output.sheet:q} --out-json={output.json:q}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"


rule report:
    """Stage 6: write the report, one file that opens anywhere -> results/{motion}/report.html"""
    input:
        **REPORTED,
    output:
        html=report(
            "results/{motion}/report.html",
            caption="../report/report.rst",
            category="{motion}",
            labels={"what": "policy", "as": "report"},
        ),
    log:
        "results/{motion}/logs/report.log",
    conda:
        "../../environment.yml"
    params:
        *code("q1pipe.stages.report"),
        *templates(),
        **settings("report"),
        folder=lambda wildcards, output: os.path.dirname(output.html),
    shell:
        "exec python -m q1pipe report --folder={params.folder:q} --device={input.device:q} --out={output.html:q}"
        " --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"


rule package:
    """Stage 6: put everything into one file, to pass on -> results/{motion}/package.zip"""
    input:
        **REPORTED,
        source=source,
        report="results/{motion}/report.html",
        reference="results/{motion}/policy_with_reference.onnx",
        trajectory="results/{motion}/trajectory.npz",
        deploy=[f"results/{{motion}}/deploy/{name}" for name in DEPLOY_FILES],
    output:
        zip="results/{motion}/package.zip",
    log:
        "results/{motion}/logs/package.log",
    conda:
        "../../environment.yml"
    params:
        *code("q1pipe.stages.package"),
        *templates(),
        **settings("package"),
        sha=motion_sha,
        folder=lambda wildcards, output: os.path.dirname(output.zip),
    shell:
        "exec python -m q1pipe package --folder={params.folder:q} --device={input.device:q} --source={input.source:q}"
        " --out={output.zip:q} --settings={params.cfg:q} --name={wildcards.motion:q} --log={log:q}"


rule index:
    """Stage 6: write the overview of all motions -> results/index.html"""
    input:
        verdicts=expand("results/{motion}/{file}", motion=SOURCES, file=["eval.json", "train.json"]),
        pictures=expand("results/{motion}/policy.png", motion=SOURCES),
    output:
        html="results/index.html",
    log:
        "results/index.log",
    conda:
        "../../environment.yml"
    params:
        *code("q1pipe.stages.report"),
        *templates(),
        **settings("report"),
        motions=list(SOURCES),
    shell:
        "exec python -m q1pipe index --out={output.html:q} --settings={params.cfg:q} --log={log:q} -- {params.motions:q}"
