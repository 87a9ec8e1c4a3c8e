# The checked config and the names that all rules share.
from pathlib import Path
from shlex import quote

from snakemake.utils import validate

from hadpsgd import guard, origin
from hadpsgd.collecting import end_quickly
from hadpsgd.config import (
    asked,
    before,
    beside_rows,
    copies_adapted_by,
    examples_of,
    ivector_transform,
    keys_with_gmm,
    label_folder,
    models_together,
    neural_gpus,
    one_gpu,
    run_fingerprint,
    run_key,
    stage_keys,
    stage_folders,
)
from hadpsgd.ending import unfinished
from hadpsgd.paper.wanted import check_asked as check_paper
from hadpsgd.planning.announce import announce as announce_cost
from hadpsgd.planning.resources import StageNeeds
from hadpsgd.sites import check_site, with_site
from hadpsgd.snapshot import snapshot
from hadpsgd.sources import Digests
from hadpsgd.status import journal
from hadpsgd.starting import (
    before_start,
    check_hosts,
    check_inputs,
    expand_parameters,
    hold,
    look_behind_ancient,
    one_line,
    plans,
)

guard.announce()  # stages end with this process
end_quickly()
origin.announce()  # conda environments get the package that runs here
with one_line():  # names the wrong key, which the JSON Schema does not
    SNAPSHOT = snapshot(workflow, with_site(workflow, config))
CONFIG = SNAPSHOT.config
validate(
    CONFIG.model_dump(mode="json"), "../schemas/config.schema.json", set_default=False
)
OUT = f"{CONFIG.results}/{CONFIG.name}"
READERS = [  # of what the config names
    workflow.modifier.modify_rulename(name)
    for name in ("dictionary", "corpus", "words", "lm_text", "dev_text")
]
with one_line():
    plans(Path(OUT))
    check_paper(CONFIG)
    announce_cost(workflow, CONFIG, READERS)
    # What a change makes again: of the settings, and of the files that stages read from outside.
    DEPENDS = stage_keys(CONFIG)
    DIGESTS = Digests(
        CONFIG, out=Path(OUT), handed=SNAPSHOT.sources if SNAPSHOT.handed else None
    )
    NEEDS = StageNeeds(CONFIG)  # what stages ask of a scheduler, by hours of speech
GMM = stage_folders(CONFIG, OUT)  # of our own stages: none with Kaldi's alignments
SETS = ["train", "dev", *CONFIG.tests]
# Copies of training speech (corpus.speeds, corpus.noise) are a set of their own, for egs alone.
PERTURBED = ["train_perturbed"] if CONFIG.corpus.versions > 1 else []
# Names of the runs' folders: two configs of one name keep their runs apart.
RUNS = [run_key(CONFIG, run.id) for run in CONFIG.training.members]
DECODED = [run_key(CONFIG, run.id) for run in CONFIG.training.members if run.decode]
TOGETHER = models_together(CONFIG)  # ensembles by key, and the keys of their runs
WITH_GMM = keys_with_gmm(CONFIG)  # those of them that have the GMM-HMM, too
BESIDE = [*beside_rows(CONFIG).values()]  # scored beside the runs: these, the GMM-HMM
ANALYSED = [*DECODED, *TOGETHER]  # decoded by networks; there are pages of their errors
# What reports of all runs have in rows, in order: another grouping changes neither runs nor keys.
ROWS = [
    [row, [run_key(CONFIG, run.id) for run in runs]]
    for row, runs in CONFIG.training.rows.items()
]
FIRST = 1000  # priority of what takes seconds and shows results
TRAIN = workflow.modifier.modify_rulename("train")  # another workflow may rename it


def config_file(wildcards: object, output: object) -> str:
    """Parameter of rules: the file that jobs read.

    A function of `output`, since Snakemake does not compare such parameters with those of before:
    what a change of the config makes again, DEPENDS says.
    """
    return str(SNAPSHOT.path)


def show_results() -> None:
    """Where a job failed: the table of what is there; runs that failed are told to MLflow.

    Without scores of before that were to be made again.
    """
    missing = unfinished(workflow, Path(OUT))
    if any(Path(OUT, "runs").glob("*/summary.json")):
        shell(
            "hadpsgd report --config {SNAPSHOT.path:q} --show --unfinished {missing:q} >&2"
        )
    for run in RUNS:
        if Path(OUT, "runs", run, "failed.json").is_file():
            shell("hadpsgd track --config {SNAPSHOT.path:q} --run {run:q} >&2")


def starts() -> None:
    check_site(workflow, config)
    hold(Path(OUT))
    check_hosts(workflow, TRAIN)
    check_inputs(workflow, CONFIG, READERS)
    SNAPSHOT.write()
    DIGESTS.record()
    expand_parameters(workflow)
    DIGESTS.write(SNAPSHOT.sources)
    SNAPSHOT.hand_on(workflow)
    journal.record(workflow, out=Path(OUT), snapshot=SNAPSHOT.path)


before_start(workflow, starts)
look_behind_ancient(workflow)


def models_of(wildcards) -> list[str]:
    """The network of a run, or those of an ensemble."""
    runs = TOGETHER.get(wildcards.run, [wildcards.run])
    return [f"{OUT}/runs/{run}/final.pt" for run in runs]


def gmm_of(*sets: str):
    """What an ensemble that has the GMM-HMM needs of it for these sets."""

    def paths(wildcards) -> list[str]:
        if wildcards.run not in WITH_GMM:
            return []
        names = [name.format(**wildcards) for name in sets]
        adapted = names if CONFIG.alignment.kind == "sat" else []
        return [
            f"{OUT}/ali/train",
            *(f"{OUT}/feats/mfcc/{name}" for name in names),
            *(f"{OUT}/fmllr/{name}/trans" for name in adapted),
        ]

    return paths


def gmm_option(wildcards: object, output: object) -> str:
    # a function of `output`, as `config_file`: an ensemble's name says whether it has the GMM-HMM
    if wildcards.run not in WITH_GMM:
        return ""
    trans = ["--gmm-trans", f"{OUT}/fmllr"] if CONFIG.alignment.kind == "sat" else []
    words = ["--gmm", f"{OUT}/ali/train", "--gmm-feats", f"{OUT}/feats/mfcc", *trans]
    return " ".join(map(quote, words))


def models_before(run: str) -> list[str]:
    """The model that a stage of sequence training goes on from."""
    known = before(CONFIG, run)
    return [f"{OUT}/runs/{known}/final.pt"] if known else []


# A rule's threads are the processes of its command (--jobs). Where many of its jobs run side by
# side they share the cores of this machine; on a cluster each is a job of its own.
THREADS = 8


# What the neural language model says of n-best lists; without one there are none.
def chosen_with(path: str):
    """Of a path with {run}: that of a run, then of those for which one choice is made with it."""

    def paths(wildcards) -> list[str]:
        row = next((runs for _, runs in ROWS if wildcards.run in runs), [])
        others = [run for run in row if CONFIG.scoring.one_choice and run in DECODED]
        runs = dict.fromkeys([wildcards.run, *others])
        return [path.replace("{run}", run) for run in runs]

    return paths


def lists_of(name: str) -> str | list[str]:
    return f"{OUT}/lists/{{run}}/{name}.jsonl.gz" if CONFIG.lm.neural else []


def lists_option(wildcards: object, input: object, output: object) -> str:
    # a function of `output`, as `config_file`: where there are no lists nothing is made again
    if not CONFIG.lm.neural:
        return ""
    lists = [input.lists] if isinstance(input.lists, str) else input.lists
    return " ".join(["--lists", *(quote(str(file)) for file in lists)])


def shared_threads(jobs):
    def threads(wildcards):  # called when it is known where jobs run
        cores = workflow.resource_settings.cores
        if workflow.remote_exec or not workflow.local_exec or cores is None:
            return THREADS
        return max(1, min(THREADS, cores // jobs))

    return threads


wildcard_constraints:
    set="|".join([*SETS, *PERTURBED]),
    run="|".join(RUNS),
    stream="logmel|mfcc",
    round="[1-9][0-9]*",
