# The checked config and the names that all rules share.
from pathlib import Path

from snakemake.utils import validate

from hadpsgd.config import asked, check, run_fingerprint, stage_fingerprints

CONFIG = check(config, "config")  # names the wrong key, which the JSON Schema does not
validate(
    CONFIG.model_dump(mode="json"), "../schemas/config.schema.json", set_default=False
)
OUT = f"{CONFIG.results}/{CONFIG.name}"
CONFIG_FILE = f"{OUT}/config.yaml"
DEPENDS = stage_fingerprints(CONFIG)
SETS = ["train", "dev", *CONFIG.tests]
RUNS = [run.id for run in CONFIG.training.runs]


wildcard_constraints:
    set="|".join(SETS),
    run="|".join(RUNS),
    stream="logmel|mfcc",


rule config:
    output:
        CONFIG_FILE,
    log:
        f"{OUT}/logs/config.log",
    localrule: True
    conda:
        "../../envs/hadpsgd.yaml"
    params:
        json=CONFIG.model_dump_json(),
    shell:
        "hadpsgd config --json {params.json:q} --out {output} 2> {log}"
