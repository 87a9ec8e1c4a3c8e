# Speech to word error rate: `make demo`, or `snakemake --profile local --configfile FILE`.
from snakemake.utils import min_version

min_version("9.0")


if "name" not in config:

    configfile: "config/demo.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/features.smk"
include: "workflow/rules/ivector.smk"
include: "workflow/rules/alignment.smk"
include: "workflow/rules/fmllr.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/realign.smk"
include: "workflow/rules/lm.smk"
include: "workflow/rules/decoding.smk"
include: "workflow/rules/reports.smk"
include: "workflow/rules/quality.smk"


rule all:
    default_target: True
    input:
        rules.report.output,
        rules.track.output,
        rules.alignment_report.output,
        rules.adaptation_report.output if "ivector" in ADAPTED or TRANSFORMS else [],
