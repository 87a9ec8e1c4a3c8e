"""`hadpsgd rerun RUN`: make a run again from what it recorded; the same bits, or what differs.

Everything is made anew in a folder of its own, corpus included, by the workflow itself. A
synchronous run is trained again; the weights of an asynchronous one follow from the order of its
gradients and mixes, which its record holds, so it is replayed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hadpsgd
from hadpsgd.config import (
    Config,
    before,
    examples_of,
    run_key,
    settings_of,
    write_resolved,
)
from hadpsgd.config.decoding import OF_ENSEMBLES, Decoding
from hadpsgd.config.stage import StageRun
from hadpsgd.config.tracking import Tracking
from hadpsgd.config.training import Run
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.numeric import whole
from hadpsgd.parallel import MOST
from hadpsgd.rerun import comparison, scores
from hadpsgd.rerun.comparison import Item
from hadpsgd.rerun.linked import link
from hadpsgd.rerun.original import Original, find
from hadpsgd.tracking import provenance
from hadpsgd.tracking.uri import VARIABLE
from hadpsgd.training import arithmetic
from hadpsgd.training.identity import checkpoint_folder, identity

DIFFERENT = 1
NAMED = 3
"""Differing files of data that an error names."""

_ALONE = {key: getattr(Decoding(), key) for key in OF_ENSEMBLES}
"""Of decoding, without what is decoded beside the runs."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "run", metavar="RUN", help="its key (hadpsgd-2x2-1a2b3c4d), folder, or MLflow run id"
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="where keys lie")
    parser.add_argument(
        "--tracking-uri",
        default=os.environ.get(VARIABLE, "sqlite:///mlflow.db"),
        help=f"store of MLflow run ids; {VARIABLE} without it",
    )
    parser.add_argument("--out", type=Path, help="results folder of the rerun; reruns/KEY without")
    parser.add_argument(
        "--cores",
        type=whole("--cores", most=MOST),
        default=os.cpu_count(),
        help="of the workflow (all)",
    )
    parser.add_argument(
        "--anyway", action="store_true", help="go on where code or data are not those of then"
    )
    parser.add_argument(
        "--allow-pipes",
        action="store_true",
        help="run the commands in the data, as the run's own config allows (data that you trust)",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say; 1 if weights or word errors differ."""
    original = find(args.run, args.results, args.tracking_uri)
    _check_pipes(original, allowed=args.allow_pipes)
    chain = _chain(original)
    for each in chain:
        if _asynchronous(each.run):
            _record(each)  # said before hours of work, not after
    out = (args.out or Path("reruns") / original.key).absolute()
    if original.mlflow_run:  # both are to be in one store
        os.environ[VARIABLE] = args.tracking_uri
    config = alone(original.config, original.run).model_copy(update={"results": str(out)})
    config = config.model_copy(update={"tracking": _tracking(config)})
    items = _around(original, config, anyway=args.anyway)
    file = write_resolved(config, out / "rerun.yaml")
    base = out / config.name
    folders = {base / examples_of(config, each.run.id) for each in chain}
    trained_on = [folder / name for folder in sorted(folders) for name in ("train", "dev")]
    trained_on.append(base / "corpus/checked")
    _workflow(file, args.cores, trained_on)  # all of it: what came later would train a replay again
    items += _data(original, config, anyway=args.anyway, differing=_other_bits(original, items))
    for each in chain:
        if _asynchronous(each.run):
            _replay(each, config, file)
        else:
            keep_arithmetic(each, config)
            _workflow(file, args.cores, [base / "runs" / each.key / "final.pt"])
    made = ("dev", *config.tests)
    if chosen := scores.chosen_for_all(original, config):
        _workflow(file, args.cores, scores.inputs(original, config, base, made))
        scores.score(original, chosen, file=file, base=base, sets=made)
    else:
        _workflow(file, args.cores, [base / "score" / original.key / name for name in made])
    items += scores.outcome(original, base, made)
    report = comparison.page(f"Rerun of {original.key}", items)
    if others := comparison.not_compared(original.scores, made):
        report += f"\n{others}"
    write_text(out / "rerun.md", report)
    print(report, end="")
    results = [item for item in items if item.kind in ("weights", "word errors")]
    same = all(item.same for item in results)
    link(original, config, report, same=same)
    return 0 if same else DIFFERENT


def alone(config: Config, run: Run) -> Config:
    """The config with that run alone, the one that it goes on from, and the one whose network
    aligns, if any does."""
    aligner = config.realigner if config.realign.passes else ""
    first = run.after if isinstance(run, StageRun) else run
    runs = [member for member in config.training.members if member.id in (first.id, aligner)]
    stages = config.training.stages if isinstance(run, StageRun) else []
    training = {"runs": runs, "seeds": None, "grids": [], "stages": stages}
    return config.model_copy(
        update={
            "training": config.training.model_copy(update=training),
            "realign": config.realign.model_copy(update={"run": aligner}),
            "decoding": config.decoding.model_copy(update=_ALONE),
        }
    )


def _tracking(config: Config) -> Tracking:
    """A rerun's model is the original's, which is registered, or one to look into first; its
    records wait in its own folder."""
    return config.tracking.model_copy(update={"register_model": False, "spool": ""})


def _check_pipes(original: Original, *, allowed: bool) -> None:
    """Who made the run allowed commands in its data; who runs it again has not yet."""
    corpus, features = original.config.corpus, original.config.features
    if not allowed and (getattr(corpus, "allow_pipes", False) or features.allow_pipes):
        raise UserError(
            f"run {original.key} allows commands in its data (allow_pipes), which would run here",
            fix="Give --allow-pipes if you trust that data",
        )


def _asynchronous(run: Run) -> bool:
    """Whether the order of gradients and mixes is left to chance."""
    return run.kind is not None and not run.kind.synchronous


def _other_bits(original: Original, items: list[Item]) -> list[str]:
    threads = settings_of(original.config, original.run.id).training.threads
    return comparison.other_bits(items, threads=threads)


def _around(original: Original, config: Config, *, anyway: bool) -> list[Item]:
    now = provenance.collect(config)
    items = comparison.surroundings(original.provenance, now)
    if differing := _other_bits(original, items):
        said = "; ".join(differing)
        print(f"warning: the bits of weights will differ here: {said}", file=sys.stderr, flush=True)
    other = [item for item in items if item.kind == "code" and not item.same]
    source = [item for item in other if item.name != "commit"]
    if source and not anyway:
        raise UserError(
            f"not those of run {original.key}: {' and '.join(item.name for item in source)}",
            fix=f"{back(original.provenance['code'], now['code'])}; or --anyway",
        )
    key = run_key(config, original.run.id)
    if key != original.key:
        raise UserError(
            f"this version of the code takes the settings of {original.key} for {key}",
            fix=f"`git checkout {original.provenance['code'].get('commit')}`",
        )
    return items


def back(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What makes the code here that of then."""
    steps = ["`git stash -u`, as files here are not committed"] if now.get("dirty") else []
    if not steps or then.get("commit") != now.get("commit"):
        steps.append(f"`git checkout {then.get('commit') or 'its commit'}`")
    if then.get("dirty"):
        steps.append(f"`git apply` its {provenance.DIFF}")
    return ", then ".join(steps)


def _data(original: Original, config: Config, *, anyway: bool, differing: list[str]) -> list[Item]:
    now = provenance.collect(config)["data"]
    parts = provenance.data_parts(config)
    items = comparison.data(original.provenance["data"], now, parts)
    other = [item.name for item in items if not item.same]
    if other and not anyway:
        named = ", ".join(other[:NAMED]) + (
            f" and {len(other) - NAMED} more" * (len(other) > NAMED)
        )
        raise UserError(
            f"{len(other)} of {len(items)} files are not those of run {original.key}: {named}",
            where=Path(config.results) / config.name,
            fix="This machine computes other bits, or the corpus was changed: --anyway goes on"
            if differing
            else "Was the corpus changed? --anyway trains on what is here",
        )
    return items


def _workflow(file: Path, cores: int, targets: list[Path]) -> None:
    """The workflow up to these outputs."""
    snakefile = Path(hadpsgd.__file__).resolve().parents[1] / "Snakefile"
    if not snakefile.is_file():
        raise UserError("no workflow beside the package", where=snakefile, fix="Use a checkout")
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile)]
    command += ["--cores", str(cores), "--configfile", str(file), "--rerun-incomplete"]
    command += ["--rerun-triggers", "mtime", "params", "input", "--", *map(str, targets)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, env={**os.environ, "PATH": path}, stdout=sys.stderr, check=False)
    if done.returncode:
        raise UserError("the workflow failed; its messages are above", where=file)


def _chain(original: Original) -> list[Original]:
    """The run, after the one whose weights it goes on from, if any.

    Raises:
        UserError: that one is not here.
    """
    key = before(original.config, original.run.id)
    if not key:
        return [original]
    if original.results is None:
        raise UserError(
            f"{original.key} goes on from the weights of {key}, which are not here",
            fix="Run this where its results folder lies",
        )
    beside = original.results / original.config.name / "runs" / key  # other results may have it too
    return [find(str(beside) if beside.is_dir() else key, original.results, ""), original]


def _made_from(config: Config, run: Run) -> tuple[Path, Path | None]:
    """Examples of a run, and the model that it goes on from, in the results of its rerun."""
    base, key = Path(config.results) / config.name, before(config, run.id)
    initial = base / "runs" / key / "final.pt" if key else None
    return base / examples_of(config, run.id) / "train", initial


def keep_arithmetic(original: Original, config: Config) -> None:
    """Where bf16's arithmetic was chosen by a measurement, the rerun makes none."""
    run_id = original.run.id
    if settings_of(config, run_id).training.precision != "bf16":
        return
    examples, initial = _made_from(config, original.run)
    hash_ = identity(config, run_id, examples, initial=initial)
    folder = checkpoint_folder(config, run_id=run_id, hash_=hash_)
    if arithmetic.kept(folder) is None:  # else an earlier try at this rerun has it
        choice = original.summary.get("arithmetic", arithmetic.AUTOCAST)
        arithmetic.keep(folder, choice)


def _record(original: Original) -> Path:
    """The folder of an asynchronous run's record.

    Raises:
        UserError: it is not here.
    """
    if original.checkpoints is None:
        raise UserError(
            f"{original.key} is asynchronous: without its record there is no second one like it",
            fix="Run this where its results folder lies, with checkpoints/",
        )
    return original.checkpoints


def _replay(original: Original, config: Config, file: Path) -> None:
    """The weights that follow from the record."""
    folder = _record(original)
    base = Path(config.results) / config.name
    examples, initial = _made_from(config, original.run)
    command = [sys.executable, "-m", "hadpsgd", "replay", "--config", str(file)]
    command += ["--run-id", original.run.id, "--egs", str(examples)]
    command += ["--initial", str(initial)] if initial else []
    command += ["--checkpoints", str(folder), "--out", str(base / "runs" / original.key)]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise UserError("the replay failed or differs; its messages are above", where=folder)
