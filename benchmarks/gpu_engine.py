"""The engine on one GPU: overhead over a bare loop, learners that share it, mixing beside compute.

    PYTHONPATH=workflow python3 benchmarks/gpu_engine.py --out DIR --budget 150
    python benchmarks/gpu_engine.py --device cpu --small --seconds 1    # do all parts work?

Sections:
    one    a bare PyTorch loop, the engine with one learner, the bare loop again
    two    two processes that share the GPU: bare loops all at once, then strategies
    four   the same with four, super-learners of two among them
    wire   four with weights rounded on their way (not by default)
    little four with a model of 2 layers of 128 cells (not by default)

Steps a second are those of all processes together, while all were at work; `to_bare` is their
relation to the bare loops started the same way. `mix_ms` is what a round took the communication
thread, waits for the partner included, `step_ms` what a step took, `exposed` the share of it that
waited for communication: mixing is hidden where that is near zero. It has not run on a GPU yet.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gpu_engine_learner import BARE, Case, Size, Trial, serve
from gpu_tools import INPUT, PAPER, PDFS, Bench
from ports import free_port

PROCESSES = 4
CASE_SECONDS = 45.0
"""After these a case has failed."""
START_SECONDS = 90.0
FULL = Size(
    layers=PAPER.layers,
    cells=PAPER.cells,
    projection=PAPER.projection,
    pdfs=PDFS,
    dim=INPUT,
    batch=1024,
)
LITTLE = Size(layers=2, cells=128, projection=128, pdfs=2000, dim=INPUT, batch=256)
TINY = Size(layers=2, cells=32, projection=16, pdfs=50, dim=20, batch=8)


class Crew:
    """Processes that wait for cases; started anew after one has failed.

    Args:
        count: processes.
        device: of them all.
        seconds: of the steps that are timed, about.
    """

    def __init__(self, count: int, device: str, seconds: float) -> None:
        self.count = count
        self.device = device
        self.seconds = seconds
        self.folder = tempfile.TemporaryDirectory(prefix="gpu_engine")
        self._cases = 0
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def start(self) -> None:
        """A process of its own each: a GPU's context bears no fork."""
        context = multiprocessing.get_context("spawn")
        for rank in range(self.count):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(rank, self.device, there), daemon=True)
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)
        self._hear(self._pipes, time.monotonic() + START_SECONDS)

    def stop(self) -> None:
        """For good."""
        for process in self._processes:
            process.kill()
            process.join()
        self._processes, self._pipes = [], []

    def run(self, case: Case, limit: float) -> list[Trial]:
        """A case, by as many processes as it wants.

        Raises:
            RuntimeError: a process failed, or `limit` seconds have passed.
        """
        if not self._processes:
            self.start()
        deadline = time.monotonic() + limit
        pipes = self._pipes[: case.world]
        self._cases += 1
        placed = replace(case, port=free_port(), folder=Path(self.folder.name) / str(self._cases))
        try:
            for pipe in pipes:
                pipe.send(placed)
            seconds = max(self._hear(pipes, deadline))
            steps = min(2000, max(6, round(self.seconds / max(seconds, 1e-6))))
            for pipe in pipes:
                pipe.send(steps)
            return self._hear(pipes, deadline)
        except BaseException:
            self.stop()
            raise

    def _hear(self, pipes: Sequence[Connection], deadline: float) -> list[Any]:
        """What each says next."""
        said: dict[Connection, Any] = {}
        while len(said) < len(pipes):
            waiting = [pipe for pipe in pipes if pipe not in said]
            left = deadline - time.monotonic()
            ready = multiprocessing.connection.wait(waiting, max(left, 0.0))
            if not ready:
                self._show_stacks()
                ranks = ", ".join(str(self._pipes.index(pipe)) for pipe in waiting)
                raise RuntimeError(f"time is up, and nothing came from process {ranks}")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    said[pipe] = pipe.recv()
                except EOFError:
                    raise RuntimeError(f"process {self._pipes.index(pipe)} died") from None
                if isinstance(said[pipe], str) and said[pipe] != "here":
                    raise RuntimeError(said[pipe])
        return [said[pipe] for pipe in pipes]

    def _show_stacks(self) -> None:
        """On stderr, where those processes are that hang."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGUSR2)
        time.sleep(0.5)


def steps_per_second(trials: Sequence[Trial]) -> float:
    """Of all processes together, while all were at work."""
    begin = max(trial.moments[0] for trial in trials)
    end = min(trial.moments[-1] for trial in trials)
    count = 0.0
    for trial in trials:
        count += done(trial.moments, end) - done(trial.moments, begin)
    return count / (end - begin)


def done(moments: Sequence[float], when: float) -> float:
    """Steps until then; a step under way counts by its share."""
    if when >= moments[-1]:
        return len(moments) - 1.0
    number = sum(moment <= when for moment in moments) - 1
    first, then = moments[number : number + 2]
    return number + (when - first) / (then - first)


def row(trials: Sequence[Trial], bare: float | None) -> dict[str, Any]:
    """What is told of a case."""
    speed, world = steps_per_second(trials), len(trials)
    step = world / speed
    steps = statistics.mean(len(trial.moments) - 1 for trial in trials)
    rounds = statistics.mean(trial.rounds for trial in trials)
    found: dict[str, Any] = {"steps_s": speed, "step_ms": 1000 * step}
    if bare:
        found["to_bare"] = speed / bare
    if gradients := statistics.mean(trial.gradients for trial in trials):
        found["gradient_ms"] = 1000 * gradients
        found["exposed"] = statistics.mean(trial.exposed for trial in trials) / step
    if rounds:
        found["mixes_step"] = rounds / steps
        found["mix_ms"] = 1000 * statistics.mean(trial.mixing for trial in trials) / rounds
    if sent := statistics.mean(trial.sent for trial in trials):
        found["mb_step"] = sent / steps / 1e6
    found["gib"] = max(trial.gib for trial in trials)
    found["loss"] = statistics.mean(trial.loss for trial in trials)
    return found


def cases(section: str, size: Size, device: str) -> list[Case]:
    """Of a section, the bare loops first."""
    if section == "one":
        return [Case(strategy=name, size=size, device=device) for name in (BARE, "single", BARE)]
    world = 2 if section == "two" else 4
    several = Case(strategy=BARE, size=size, device=device, world=world)
    made = [replace(several, strategy=name) for name in (BARE, "adpsgd", "dpsgd", "rand")]
    supers = replace(several, strategy="hadpsgd", members=2)
    shared = replace(several, strategy="ssgd")
    return {
        "two": [*made[:3], shared],
        "four": [*made, supers, shared],
        "little": [*made, supers, shared],
        "wire": [
            made[0],
            *(replace(made[1], wire=wire) for wire in ("float32", "bfloat16", "int8")),
        ],
    }[section]


def measure(bench: Bench, crew: Crew, section: str, size: Size) -> None:
    """A row for each case; one that fails is a row, too."""
    bares: list[float] = []

    def attempt(case: Case) -> None:
        trials = crew.run(case, min(CASE_SECONDS, bench.left()))
        found = row(trials, statistics.mean(bares) if bares else None)
        found_by[case.strategy] = found["steps_s"]
        if case.strategy == BARE:
            bares.append(found["steps_s"])
        bench.add(section, case.name, **found)

    found_by: dict[str, float] = {}
    for case in cases(section, size, crew.device):
        bench.attempt(section, case.name, lambda case=case: attempt(case))  # type: ignore[misc]
    if section == "one" and bares and "single" in found_by:
        spread = (max(bares) - min(bares)) / statistics.mean(bares)
        overhead = statistics.mean(bares) / found_by["single"] - 1
        bench.add(section, f"overhead {size.batch}", overhead=overhead, bare_spread=spread)


def main() -> None:
    """Print rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model, 8 subsequences")
    parser.add_argument("--only", nargs="+", default=["one", "two", "four"])
    parser.add_argument("--batches", type=int, nargs="+", help="subsequences of a learner's step")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a case, about")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of all")
    parser.add_argument("--out", type=Path, help="folder of results.json and errors.txt")
    args = parser.parse_args()
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.budget, args.out, None)
    crew = Crew(1 if args.only == ["one"] else PROCESSES, args.device, args.seconds)
    bench.attempt("start", f"{crew.count} processes", crew.start)
    bench.add("start", f"{crew.count} processes", seconds=args.budget - bench.left())
    try:
        for section in args.only:
            for batch in args.batches or ([256, 1024] if section == "one" else [0]):
                size = TINY if args.small else LITTLE if section == "little" else FULL
                size = replace(size, batch=batch) if batch and not args.small else size
                measure(bench, crew, section, size)
    finally:
        crew.stop()
        crew.folder.cleanup()


if __name__ == "__main__":
    main()
