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


include: "workflow/rules/common.smk"
include: "workflow/rules/motion.smk"
include: "workflow/rules/device.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/deploy.smk"


localrules:
    all,
    clean,


rule all:
    """Judge a policy for every motion in config/."""
    default_target: True
    input:
        expand("results/{motion}/eval.json", motion=SOURCES),


rule clean:
    """Remove results/ with all training runs."""
    log:
        ".snakemake/clean.log",
    conda:
        "environment.yml"
    shell:
        "rm -rf results > {log:q} 2>&1"
