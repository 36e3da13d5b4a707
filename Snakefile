# q1pipe: a motion file goes in, a trained and judged policy comes out.
#
#   snakemake results/getUp/eval.json --cores 40      one motion
#   snakemake --cores 40                              every motion in config/
#   snakemake --list                                  what each rule does
#
# Settings: config/config.yaml, explained in config/README.md.

from snakemake.utils import min_version

min_version("9.20")


configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/motion.smk"
include: "workflow/rules/device.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/deploy.smk"
include: "workflow/rules/package.smk"


remember(SCANNED)


onsuccess:
    tell_ending(log)


onerror:
    tell_ending(log)


localrules:
    all,
    clean,
    index,


rule all:
    """All stages for every motion in config/: policy, verdict, videos, report, package; no name is needed for it"""
    default_target: True
    input:
        expand("results/{motion}/package.zip", motion=SOURCES),
        "results/index.html",


rule clean:
    """Remove results/, all training runs with it"""
    log:
        ".snakemake/clean.log",
    conda:
        "environment.yml"
    shell:
        "rm -rf results > {log:q} 2>&1"
