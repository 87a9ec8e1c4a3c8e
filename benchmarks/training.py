"""Steps a second of training with L processes, one thread each: ours beside its peers.

    make bench-training                                        # all scenarios, printed
    python benchmarks/training.py --scenario equal --learners 4 --only "torch DDP" ssgd
    python benchmarks/training.py --scenario links             # as root: network namespaces
    python benchmarks/training.py --scenario lengths           # steps of several lengths

Contestants run one after the other, several times over, so that what else the machine does hits
all alike; shown are medians and the spread from the slowest to the fastest repetition. A
contestant's steps count while all its processes are at work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it: once here, not in every process

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

import training_links  # noqa: E402
from training_contestants import CONTESTANTS, MOMENTUM, Step, Task, plain_sgd, plain_step  # noqa: E402
from training_race import WARM_UP, Race, Score, cpu, run  # noqa: E402

from hadpsgd.decentralized import assembly  # noqa: E402
from hadpsgd.decentralized.core.sgd import Sgd  # noqa: E402
from hadpsgd.decentralized.network import rendezvous  # noqa: E402
from hadpsgd.decentralized.strategies import registry as strategies  # noqa: E402
from hadpsgd.files import write_text  # noqa: E402

DDP = "torch DDP"
SLOW_FACTOR = 5
MBIT = 100.0
SLOWED = (
    "no communication",
    DDP,
    "torch post-local",
    "Decent-DP ring",
    "torchft",
    "ssgd",
    "adpsgd ring",
    "adpsgd pairwise",
    "hadpsgd",
)
"""Contestants beside a slow learner."""
LINKED = (DDP, "torch post-local", "Decent-DP ring", "ssgd", "adpsgd ring", "adpsgd pairwise")
"""Contestants between namespaces; torchft's servers listen on one host's loopback."""
LENGTHS = (32, 64, 128, 256)
"""Subsequences of a learner's step where its length is looked at; with one process a core."""
Scores = dict[str, list[Score]]


class Bench:
    """What the arguments ask for.

    Args:
        task: what is trained.
        steps: of each of 4 processes after the warm-up; more processes do fewer.
        repeat: repetitions.
        only: contestants.
    """

    def __init__(self, task: Task, steps: int, repeat: int, only: Sequence[str]) -> None:
        self.task = task
        self.steps = steps
        self.repeat = repeat
        self.only = only
        self.found: dict[str, dict[str, list[dict[str, object]]]] = {}

    def race(
        self, title: str, race: Race, names: Sequence[str], twice: Sequence[str] = ()
    ) -> tuple[Scores, dict[str, str]]:
        """All repetitions of a scenario, and why contestants failed; some do twice the steps."""
        scores: Scores = {name: [] for name in names if name in self.only}
        failed: dict[str, list[str]] = {}
        for _ in range(self.repeat):
            for name in scores:
                if len(failed.get(name, [])) > 1:
                    continue
                longer = replace(race, steps=2 * race.steps) if name in twice else race
                result = run(name, self.task, longer)
                if isinstance(result, str):
                    failed.setdefault(name, []).append(result)
                    print(f"{title}: {name} failed: {result}", file=sys.stderr, flush=True)
                else:
                    scores[name].append(result)
                    print(
                        f"{title}: {name}: {result.steps_per_second:.1f} steps/s",
                        file=sys.stderr,
                        flush=True,
                    )
        scores = {name: row for name, row in scores.items() if row}
        self.found[title] = {name: [asdict(s) for s in row] for name, row in scores.items()}
        return scores, {
            f"{name} ({len(why)} of {self.repeat} times)": why[0] for name, why in failed.items()
        }

    def equal(self, world: int) -> str:
        """Nothing injected."""
        title = f"{world} processes, nothing injected"
        race = Race(world, self.steps * 4 // world + WARM_UP)
        scores, failed = self.race(title, race, list(CONTESTANTS))
        return section(title, table(scores), failed)

    def slow(self, world: int) -> str:
        """One learner slower: beside the speed of the others, what they had without it."""
        title = f"{world} processes, learner 1 {SLOW_FACTOR}x slower"
        race = Race(world, self.steps * 2 // world + WARM_UP, slow=SLOW_FACTOR)
        scores, failed = self.race(title, race, SLOWED)
        before = self.found.get(f"{world} processes, nothing injected", {})
        return section(title, slow_table(scores, before), failed)

    def links(self, world: int) -> str:
        """Each process on a host of its own, links shaped."""
        title = f"{world} hosts, links of {MBIT:g} Mbit/s"
        if not training_links.possible():
            return section(title, "Not run: it needs root and `ip`, `tc`.", {})
        with training_links.shaped(world, MBIT) as hosts:
            race = Race(world, 2 * self.steps + WARM_UP, held_out=True, hosts=hosts)
            quick = [name for name in LINKED if name not in (DDP, "ssgd")]
            scores, failed = self.race(title, race, LINKED, twice=quick)
        return section(title, links_table(scores), failed)

    def lengths(self, world: int) -> str:
        """How much of a step is communication, as steps get longer."""
        title = f"{world} processes, steps of several lengths"
        lines = [
            "| subsequences | ms/step | ssgd / DDP | exposed | exchange | skew |",
            "|---|---|---|---|---|---|",
        ]
        usual = self.task
        failed: dict[str, str] = {}
        for batch in LENGTHS:
            self.task = replace(usual, batch=batch)
            race = Race(world, self.steps + WARM_UP)
            scores, missing = self.race(f"{title}: {batch}", race, [DDP, "ssgd"])
            failed |= missing
            if "ssgd" in scores:
                lines.append(length_row(batch, scores))
        self.task = usual
        return section(title, "\n".join(lines), failed)

    def overhead(self, world: int) -> str:  # noqa: ARG002
        """One learner of ours and a bare loop, step by step in turn in one process."""
        module = self.task.model()
        bare, engine = plain_step(module, plain_sgd(module, self.task)), engine_step(self.task)
        ratios = []
        batches = self.task.batches(0)
        for number in range(2 * self.steps + WARM_UP):
            x, y = next(batches)
            pair = [(bare, 0), (engine, 1)]
            seconds = [0.0, 0.0]
            for step, place in pair if number % 2 else reversed(pair):
                begin = time.perf_counter()
                step(x, y, False)
                seconds[place] = time.perf_counter() - begin
            ratios.append(seconds[1] / seconds[0] - 1)
        kept = sorted(ratios[WARM_UP:])
        quarter = len(kept) // 4
        text = (
            f"{100 * statistics.median(kept):+.1f} % (median of {len(kept)} pairs of steps; half "
            f"of them between {100 * kept[quarter]:+.1f} and {100 * kept[-quarter - 1]:+.1f} %)."
        )
        return section("Overhead of one learner over a bare PyTorch loop", text, {})


def engine_step(task: Task) -> Step:
    """The step of an engine with one learner."""
    module = task.model()
    engine = assembly.build(
        module,
        Sgd(momentum=MOMENTUM),
        strategies.create(strategies.Choice(strategy="ssgd")),
        "complete",
        rendezvous.meet(learners=1, size=1, agree_on="bench"),
    )
    engine.__enter__()

    def step(x: torch.Tensor, y: torch.Tensor, last: bool) -> float:
        loss = module(x, y)
        loss.backward()
        engine.step(task.rate, last=last)
        return float(loss.detach())

    return step


def section(title: str, text: str, failed: dict[str, str]) -> str:
    """Markdown."""
    lines = [f"## {title}", "", text, ""]
    lines += [f"- {name} failed: {why}" for name, why in failed.items()]
    return "\n".join([*lines, ""] if failed else lines)


def median(row: Sequence[Score], what: str) -> float:
    """Over the repetitions."""
    return statistics.median(getattr(score, what) for score in row)


def spread(row: Sequence[Score], what: str = "steps_per_second") -> str:
    """Slowest to fastest repetition."""
    values = [getattr(score, what) for score in row]
    return f"{min(values):.1f}-{max(values):.1f}"


def share(value: float) -> str:
    """Per cent, empty where unknown."""
    return "" if value != value else f"{100 * value:.1f} %"


def mixes(row: Sequence[Score]) -> str:
    """Per step; gradient allreduces are none."""
    value = median(row, "mixes_per_step")
    return f"{value:.2f}" if value else ""


def table(scores: Scores) -> str:
    """One row a contestant, beside DDP."""
    base = median(scores[DDP], "steps_per_second") if DDP in scores else float("nan")
    lines = [
        "| | steps/s, all | spread | / DDP | CPU ms/step | mixes/step | exposed | exchange "
        "| MB sent/step | loss |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in scores.items():
        speed, sent = median(row, "steps_per_second"), median(row, "megabytes_per_step")
        lines.append(
            f"| {name} | {speed:.1f} | {spread(row)} | {speed / base:.2f} | "
            f"{1000 * median(row, 'cpu_per_step'):.1f} | {mixes(row)} | "
            f"{share(median(row, 'waited'))} | {share(median(row, 'exchange'))} | "
            f"{f'{sent:.1f}' if sent else ''} | {median(row, 'loss'):.3f} |"
        )
    return "\n".join(lines)


def length_row(batch: int, scores: Scores) -> str:
    """One length of a step; the skew is the rest of what was exposed."""
    row = scores["ssgd"]
    base = median(scores[DDP], "steps_per_second") if DDP in scores else float("nan")
    waited, exchange = median(row, "waited"), median(row, "exchange")
    return (
        f"| {batch} | {1000 / median(row, 'each'):.0f} | "
        f"{median(row, 'steps_per_second') / base:.2f} | {share(waited)} | {share(exchange)} | "
        f"{share(waited - exchange)} |"
    )


def slow_table(scores: Scores, before: dict[str, list[dict[str, object]]]) -> str:
    """Learners 2 and 3 beside their speed without the slow one."""
    lines = [
        "| | learners 2 and 3, steps/s | spread | / without the slow one | mixes/step | loss |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in scores.items():
        speed = median(row, "each")
        usual = [float(score["each"]) for score in before.get(name, [])]  # type: ignore[arg-type]
        kept = share(speed / statistics.median(usual)) if usual else ""
        lines.append(
            f"| {name} | {speed:.2f} | {spread(row, 'each')} | {kept} | {mixes(row)} | "
            f"{median(row, 'loss'):.3f} |"
        )
    return "\n".join(lines)


def links_table(scores: Scores) -> str:
    """Speed, and the time to DDP's last held-out loss."""
    lines = [
        "| | steps/s, all | spread | mixes/step | exposed | s to DDP's loss | DDP's / its |",
        "|---|---|---|---|---|---|---|",
    ]
    ddp = scores.get(DDP, [])
    goal = statistics.median(score.held_out[-1][1] for score in ddp) if ddp else 0.0
    theirs = statistics.median(reaches(score, goal) for score in ddp) if ddp else float("nan")
    for name, row in scores.items():
        seconds = statistics.median(reaches(score, goal) for score in row)
        known = seconds != float("inf")
        lines.append(
            f"| {name} | {median(row, 'steps_per_second'):.1f} | {spread(row)} | {mixes(row)} | "
            f"{share(median(row, 'waited'))} | {f'{seconds:.1f}' if known else 'not reached'} | "
            f"{f'{theirs / seconds:.2f}' if known else ''} |"
        )
    note = (
        f"The held-out loss is {goal:.3f}: DDP's at its last look. Contestants but DDP and ssgd do "
        "twice the steps. Every learner looks with its own weights; shown is their mean."
    )
    return "\n".join([*lines, "", note])


def reaches(score: Score, goal: float) -> float:
    """Seconds until the held-out loss is there, between two looks by a straight line."""
    for (t, high), (u, low) in zip(score.held_out, score.held_out[1:], strict=False):
        if low <= goal:
            return t + (u - t) * min(1.0, (high - goal) / (high - low)) if high > goal else t
    return float("inf")


def main() -> None:
    """Run what the arguments ask for; print it, or write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    scenarios = ["overhead", "equal", "slow", "links", "lengths"]
    parser.add_argument("--scenario", nargs="+", choices=scenarios, default=scenarios)
    parser.add_argument("--learners", type=int, nargs="+", default=[4, 8], help="nothing injected")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--steps", type=int, default=20, help="of each of 4 processes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cells", type=int, default=Task.cells)
    parser.add_argument("--batch", type=int, default=Task.batch)
    parser.add_argument("--json", type=Path, help="write all scores here")
    parser.add_argument("--out", type=Path, help="write the page here")
    args = parser.parse_args()
    task = replace(Task(), cells=args.cells, batch=args.batch)
    bench = Bench(task, args.steps, args.repeat, args.only)
    begin = time.monotonic()
    parts = []
    for scenario in args.scenario:
        for world in {"equal": args.learners, "lengths": [2]}.get(scenario, [4]):
            parts.append(getattr(bench, scenario)(world))
            print(f"\n{parts[-1]}", flush=True)
    parameters = sum(p.numel() for p in task.model().parameters())
    minutes = (time.monotonic() - begin) / 60
    head = (
        f"Made by `make bench-training` (`benchmarks/training.py`) in {minutes:.0f} minutes on "
        f"{os.cpu_count()} cores ({cpu()}), torch {torch.__version__}. "
        f"A BLSTM of {parameters / 1e6:.2f} M parameters ({parameters * 4 / 1e6:.1f} MB), "
        f"{task.batch} subsequences of {task.frames} frames a step and learner, one thread a "
        f"process; medians and spread of {args.repeat} repetitions."
    )
    if args.json:
        args.json.write_text(json.dumps(bench.found, indent=1) + "\n")
    if args.out:
        write_text(args.out, "\n".join([INTRODUCTION, head, "", *parts]))


INTRODUCTION = """\
# Training beside its peers

- steps/s: gradients of all processes together. / DDP: beside torch's DistributedDataParallel.
- CPU ms/step: of one process, all its threads. With more processes than cores it decides.
- mixes/step: rounds of mixing of weights for each gradient of a learner.
- exposed: share of the time that a learner waited for communication (ours alone tells).
- exchange: the part of it after the last learner of a group had its gradient; before that, the
  others wait for a slower colleague (skew). Known where gradients are averaged.
- MB sent/step: by each process, as far as the contestant counts.
- loss: mean training loss of the last 5 steps (of few: it shows that all learn, not who learns
  best).
- All processes keep freed memory (`decentralized/core/heap.py`), which the engine sees to by
  itself; but "usual heap" does not.
- A slow learner computes its gradient, and four more for nothing: it leaves the cores no freer.
  Shown are learners 2 and 3, in hadpsgd the super-learner without the slow one.
"""


if __name__ == "__main__":
    main()
