# The checked config and the names that all rules share.
from contextlib import ExitStack
from pathlib import Path

from snakemake.utils import validate

from hadpsgd import guard
from hadpsgd.config import (
    asked,
    check,
    ivector_transform,
    label_folder,
    run_fingerprint,
    run_key,
    stage_fingerprints,
    stage_folders,
    write_resolved,
)
from hadpsgd.locks import locked, myself
from hadpsgd.training.slurm import check_partition

guard.announce()  # stages end with this process
CONFIG = check(config, "config")  # names the wrong key, which the JSON Schema does not
validate(
    CONFIG.model_dump(mode="json"), "../schemas/config.schema.json", set_default=False
)
OUT = f"{CONFIG.results}/{CONFIG.name}"
# Written here, not by a rule: while a rule would write it, Snakemake does not look at the
# params of those that read it, and a changed config would rerun nothing.
CONFIG_FILE = str(
    write_resolved(
        CONFIG, Path(OUT) / "config.yaml", keep=workflow.output_settings.dryrun
    )
)
DEPENDS = stage_fingerprints(CONFIG)
GMM = stage_folders(CONFIG, OUT)  # of our own stages: none with Kaldi's alignments
SETS = ["train", "dev", *CONFIG.tests]
# Names of the runs' folders: two configs of one name keep their runs apart.
RUNS = [run_key(CONFIG, run.id) for run in CONFIG.training.runs]
# One workflow at a time in a results folder. The profiles switch Snakemake's own lock off: it
# outlives a kill -9, this one does not.
LOCK = ExitStack()


onstart:
    LOCK.enter_context(
        locked(Path(OUT) / ".workflow.lock", myself(), does="runs a workflow here")
    )
    if workflow.executor_plugin.name == "slurm":
        for job in workflow.dag.needrun_jobs():
            if job.rule.name in ("train", "train_to_realign"):
                where = job.resources.get("slurm_partition") or ""
                check_partition(job.resources.nodes, where, job.wildcards.run)


wildcard_constraints:
    set="|".join(SETS),
    run="|".join(RUNS),
    stream="logmel|mfcc",
    round="[1-9][0-9]*",
