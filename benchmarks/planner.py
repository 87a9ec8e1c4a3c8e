"""Steps a second as `hadpsgd plan`'s model of time predicts them, beside measured ones.

    python benchmarks/planner.py --out docs/benchmarks [--repeat 3] [--steps 12]

Processes train on this host, one thread each. What the model is given is measured as well: a
gradient where as many processes compute without any communication, right before each race, so that
what else the machine does hits both; sockets, and what they cost a gradient, once at the start.
Writes planner.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psutil
import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

from training import cpu  # noqa: E402
from training_contestants import Task  # noqa: E402
from training_race import WARM_UP, Race, run  # noqa: E402

from hadpsgd.files import write_text  # noqa: E402
from hadpsgd.planning import measure  # noqa: E402
from hadpsgd.planning.cluster import Cluster, Compute, Link  # noqa: E402
from hadpsgd.planning.model import Strategy, Team, step  # noqa: E402

ALONE = "no communication"
CONTESTANTS: Mapping[str, tuple[Strategy, int]] = {
    "ssgd": ("ssgd", 1),
    "d1d": ("d1d", 1),
    "dpsgd ring": ("dpsgd", 1),
    "adpsgd ring": ("adpsgd", 1),
    "rand": ("rand", 1),
    "hadpsgd": ("hadpsgd", 2),
}
"""Name in `training_contestants` -> strategy and size of super-learners."""
BYTES = 4
"""Of a parameter on the wire."""
LOOK_SECONDS, BUSY_CORES = 3.0, 0.1
"""So long it is looked for other work; with more than that the page says that there was some."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is compared."""

    name: str
    processes: int
    batch: int
    """Subsequences of a process's step."""


CELLS = (
    Cell(name="ssgd", processes=2, batch=32),
    Cell(name="adpsgd ring", processes=2, batch=32),
    Cell(name="hadpsgd", processes=4, batch=32),
)


@dataclass(frozen=True, kw_only=True)
class Host:
    """What was measured of this machine before the races."""

    compute: Compute
    """Of one process."""
    link: Link
    contention: float


def look_at(task: Task, seconds: float) -> Host:
    """Measure gradients, sockets, and sockets beside gradients."""
    timed = measured_task(task)
    return Host(
        compute=measure.measure_compute(timed, batch=task.batch, seconds=seconds).compute,
        link=measure.measure_loopback(seconds / 4),
        contention=measure.measure_contention(timed, seconds=seconds, batch=task.batch),
    )


def measured_task(task: Task) -> measure.Task:
    """The races' model for `measure`."""
    shape = SimpleNamespace(
        layers=task.layers,
        cells=task.cells,
        projection=task.projection,
        dropout=0.0,
        frames_per_step=1,
    )
    return measure.Task(shape=shape, input_dim=task.dim, num_pdfs=task.pdfs, frames=task.frames)


def predicted(cell: Cell, task: Task, host: Host, alone: float) -> float:
    """Steps a second of a process.

    Args:
        cell: what runs.
        task: what is trained.
        host: what was measured before.
        alone: seconds of a step where as many processes compute and nobody communicates.
    """
    strategy, size = CONTESTANTS[cell.name]
    team = Team(
        strategy=strategy,
        batch=cell.batch * cell.processes,
        learners=cell.processes,
        super_learner=size,
        overlap=False,  # on one host the gradient goes in one piece
    )
    cluster = Cluster(
        nodes=1,
        gpus=cell.processes,
        compute=host.compute.taking(seconds=alone, batch=cell.batch),
        inside=host.link,
        between=host.link,
        contention=host.contention,
    )
    return 1 / step(team, cluster, measured_task(task).parameters * BYTES).seconds


def compare(cell: Cell, host: Host, *, steps: int, repeat: int) -> tuple[list[float], list[float]]:
    """(predicted, measured) steps a second of a process, one of each a repetition."""
    task = Task(batch=cell.batch)
    guesses, found = [], []
    for _ in range(repeat):
        race = Race(cell.processes, steps + WARM_UP)
        alone, own = run(ALONE, task, race), run(cell.name, task, race)
        if isinstance(alone, str) or isinstance(own, str):
            print(f"{cell}: failed: {alone if isinstance(alone, str) else own}", file=sys.stderr)
            continue
        guesses.append(predicted(cell, task, host, 1 / alone.each))
        found.append(own.each)
        print(f"{cell}: {guesses[-1]:.2f} predicted, {found[-1]:.2f}", file=sys.stderr, flush=True)
    return guesses, found


def errors(guesses: list[float], found: list[float]) -> list[float]:
    """Of the predictions, relative, one a repetition."""
    return [guess / seen - 1 for guess, seen in zip(guesses, found, strict=True)]


def row(cell: Cell, guesses: list[float], found: list[float]) -> str:
    """Medians, spread of what was measured, and the errors of the repetitions."""
    head = f"| {cell.name} | {cell.processes} | {cell.batch} | "
    if not found:
        return head + "failed | | | | |"
    missed = errors(guesses, found)
    return head + (
        f"{statistics.median(guesses):.2f} | {statistics.median(found):.2f} | "
        f"{min(found):.2f}-{max(found):.2f} | {100 * statistics.median(missed):+.0f} % | "
        f"{100 * min(missed):+.0f} to {100 * max(missed):+.0f} % |"
    )


HEADER = (
    "| | processes | batch of each | predicted | measured | spread | error | its spread |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)
PAGE = """\
# Predicted beside measured steps

**Median errors of `hadpsgd plan`'s model on this host: {errors}; of single repetitions
{low:+.0f} to {high:+.0f} %.**{verdict}

Steps a second of a process, medians of {repeat} repetitions of {steps} steps each. Made by
`benchmarks/planner.py` on {cores} cores ({cpu}), torch {torch}, at commit {commit}.
Before the races other work kept {busy:.1f} cores busy.

{table}

- Error: median over the repetitions of predicted / measured - 1; its sign may differ from that of
  the two medians beside it.
- Predicted: the step of [time-model.md](../time-model.md), given the time of a gradient where as
  many processes compute and nobody communicates (raced right before), and what follows here.
- Measured before the races: {gradient:.0f} ms a gradient of {batch} subsequences in one process,
  noise {noise:.0f} %, sockets {bandwidth:.1f} GB/s and {latency:.0f} us, contention
  {contention:.2f}.
- The model knows no cores: with more processes than cores, what a process spends on communication
  is taken from everybody's gradients, and learners wait for colleagues that have no core.
"""
BUSY = """
Other work ran beside the races, and may have changed between a race and the one that its prediction
comes from. The medians may agree by chance: this neither confirms the model nor
refutes it. To judge it, run the benchmark on an idle machine."""


def main() -> None:
    """Measure, race, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="of a process, after the warm-up")
    parser.add_argument("--seconds", type=float, default=5.0, help="of measuring, roughly")
    args = parser.parse_args()
    busy = psutil.cpu_percent(interval=LOOK_SECONDS) * (os.cpu_count() or 1) / 100
    host = look_at(Task(), args.seconds)
    outcomes = [
        (cell, *compare(cell, host, steps=args.steps, repeat=args.repeat)) for cell in CELLS
    ]
    every = [error for _, *pair in outcomes for error in errors(*pair)] or [float("nan")]
    medians = [
        f"{cell.name} {100 * statistics.median(errors(guesses, found)):+.0f} %"
        for cell, guesses, found in outcomes
        if found
    ]
    text = PAGE.format(
        errors=", ".join(medians),
        low=100 * min(every),
        high=100 * max(every),
        verdict=BUSY if busy > BUSY_CORES else "",
        repeat=args.repeat,
        steps=args.steps,
        cores=os.cpu_count(),
        cpu=cpu(),
        torch=torch.__version__,
        commit=subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip(),
        busy=busy,
        table="\n".join([*HEADER, *(row(*outcome) for outcome in outcomes)]),
        gradient=1000 * host.compute.seconds(Task().batch),
        batch=Task().batch,
        noise=100 * host.compute.noise,
        bandwidth=host.link.bandwidth / 1e9,
        latency=1e6 * host.link.latency,
        contention=host.contention,
    )
    write_text(args.out / "planner.md", text)
    print(text)


if __name__ == "__main__":
    main()
