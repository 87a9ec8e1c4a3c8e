"""Steps a second of training with L processes, one thread each: ours beside its peers.

    python benchmarks/training.py                       # nothing injected, 4 and 8 processes
    python benchmarks/training.py --slow 5              # learner 1 needs 5 times as long
    python benchmarks/training.py --only "torch DDP" ssgd "adpsgd ring" --learners 4

All contestants run one after the other, several times over, so that what else the machine does
hits all alike; shown are medians and the spread from the slowest to the fastest repetition.
A contestant's steps count while all its processes are at work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import random
import signal
import socket
import statistics
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it: once here, not in every process

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

from training_contestants import CONTESTANTS, Task  # noqa: E402

WARM_UP = 5
TIMEOUT = 300.0


@dataclass(frozen=True)
class Trial:
    """What one process saw."""

    moments: list[float]
    """End of each step, seconds of a clock that all processes share."""
    loss: float
    rounds: int
    sent: int
    waited: float
    """Share of the time spent waiting for communication; NaN where it is not known."""


@dataclass(frozen=True)
class Score:
    """A contestant in one repetition."""

    steps_per_second: float
    """Of all processes together."""
    others: float
    """Of those that are not slow, each."""
    mixes_per_step: float
    waited: float
    megabytes_per_step: float
    loss: float


def process(rank: int, world: int, name: str, task: Task, steps: int, slow: float) -> Trial:
    """One process of a contestant."""
    moments: list[float] = []
    losses: list[float] = []
    with CONTESTANTS[name](task, rank, world) as running:
        batches = task.batches(rank)
        for number in range(steps):
            x, y = next(batches)
            begin = time.perf_counter()
            if slow > 1 and rank == 1:
                running.module(x, y).backward()  # how long a gradient takes, and thrown away
                for p in running.module.parameters():
                    if p.grad is not None:
                        p.grad.zero_()
                time.sleep((slow - 2) * (time.perf_counter() - begin))
            losses.append(running.step(x, y, number + 1 == steps))
            moments.append(time.monotonic())
        running.finish()
        rounds, sent = running.rounds(), running.sent()
    span = moments[-1] - moments[0]
    waited = sum(running.waited[1:]) / span if running.waited else float("nan")
    return Trial(moments, statistics.mean(losses[-5:]), rounds, sent, waited)


def race(name: str, world: int, task: Task, steps: int, slow: float) -> Score | str:
    """Run a contestant once; a line of why if it failed."""
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    env |= {"LOCAL_WORLD_SIZE": str(world), "FT_PORT": str(free_port())}
    lighthouse = None
    if name == "torchft":
        from torchft.coordination import LighthouseServer

        lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=world)
        env["FT_LIGHTHOUSE"] = lighthouse.address()
    pipes = [fork(rank, env, (rank, world, name, task, steps, slow)) for rank in range(world)]
    trials = [collect(pid, pipe) for pid, pipe in pipes]
    if lighthouse is not None:
        lighthouse.shutdown()
    errors = [trial for trial in trials if isinstance(trial, str)]
    return errors[0] if errors else score([t for t in trials if isinstance(t, Trial)], slow)


def score(trials: Sequence[Trial], slow: float) -> Score:
    """Steps that ended while all processes were at work."""
    begin = max(trial.moments[WARM_UP - 1] for trial in trials)
    end = min(trial.moments[-1] for trial in trials)
    counts = [sum(begin < moment <= end for moment in trial.moments) for trial in trials]
    quick = [n for rank, n in enumerate(counts) if slow <= 1 or rank != 1]
    steps = len(trials[0].moments)
    return Score(
        sum(counts) / (end - begin),
        statistics.mean(quick) / (end - begin),
        statistics.mean(trial.rounds for trial in trials) / steps,
        statistics.mean(trial.waited for trial in trials),
        statistics.mean(trial.sent for trial in trials) / steps / 1e6,
        statistics.mean(trial.loss for trial in trials),
    )


def fork(rank: int, env: dict[str, str], arguments: tuple[object, ...]) -> tuple[int, int]:
    """A process with a pipe for its trial."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    os.environ.update(env, RANK=str(rank))
    signal.alarm(int(TIMEOUT))
    if arguments[2] == "torchft":  # it reports every quorum
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    result: Trial | str
    try:
        result = process(*arguments)  # type: ignore[arg-type]
    except BaseException as error:
        result = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    with os.fdopen(writing, "wb") as stream:
        pickle.dump(result, stream)
    os._exit(0)


def collect(pid: int, pipe: int) -> Trial | str:
    """Its trial, or why there is none."""
    with os.fdopen(pipe, "rb") as stream:
        content = stream.read()
    os.waitpid(pid, 0)
    return pickle.loads(content) if content else f"no answer within {TIMEOUT:.0f} s"


def free_port() -> int:
    """A port outside of the range that connections take theirs from."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def table(scores: dict[str, list[Score]], yardstick: str) -> str:
    """Markdown: one row a contestant."""
    base = [s.steps_per_second for s in scores.get(yardstick, [])]
    base_others = [s.others for s in scores.get(yardstick, [])]
    lines = [
        f"| | steps/s | spread | / {yardstick} | others, steps/s | others / {yardstick} | "
        "mixes/step | exposed | MB/step | loss |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in scores.items():
        speeds = [s.steps_per_second for s in row]
        speed, others = statistics.median(speeds), statistics.median(s.others for s in row)
        ratio = f"{speed / statistics.median(base):.2f}" if base else ""
        ratio_others = f"{others / statistics.median(base_others):.2f}" if base else ""
        waited = statistics.median(s.waited for s in row)
        lines.append(
            f"| {name} | {speed:.1f} | {min(speeds):.1f}-{max(speeds):.1f} | {ratio} | "
            f"{others:.2f} | {ratio_others} | "
            f"{statistics.median(s.mixes_per_step for s in row):.2f} | "
            f"{'' if waited != waited else f'{100 * waited:.1f} %'} | "
            f"{statistics.median(s.megabytes_per_step for s in row):.1f} | "
            f"{statistics.median(s.loss for s in row):.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what the arguments ask for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--steps", type=int, default=40, help="of each process")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--slow", type=float, default=1.0, help="factor of learner 1 (2 or more)")
    parser.add_argument("--cells", type=int, default=Task.cells)
    parser.add_argument("--batch", type=int, default=Task.batch)
    parser.add_argument("--json", type=Path, help="write all scores here")
    args = parser.parse_args()
    task = Task(cells=args.cells, batch=args.batch)
    found = {}
    for world in args.learners:
        scores: dict[str, list[Score]] = {name: [] for name in args.only}
        failed: dict[str, str] = {}
        for _ in range(args.repeat):
            for name in args.only:
                if name in failed:
                    continue
                result = race(name, world, task, args.steps, args.slow)
                if isinstance(result, str):
                    failed[name] = result
                else:
                    scores[name].append(result)
                    print(f"{world} {name}: {result.steps_per_second:.1f}", file=sys.stderr)
        done = {name: row for name, row in scores.items() if row}
        parameters = sum(p.numel() for p in task.model().parameters())
        slow = f", learner 1 {args.slow:g}x slower" if args.slow > 1 else ""
        print(f"\n{world} processes, {parameters / 1e6:.2f} M parameters{slow}\n")
        print(table(done, "torch DDP"))
        for name, why in failed.items():
            print(f"\n{name} failed: {why}")
        found[world] = {name: [asdict(s) for s in row] for name, row in done.items()}
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
