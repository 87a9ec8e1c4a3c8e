"""Time to the same held-out loss: 8 learners of which one, or a link, is slow; ours and peers.

    python benchmarks/time_to_loss.py --out docs/benchmarks/time-to-loss.md      # all, hours
    python benchmarks/time_to_loss.py --quick --out ...         # under 12 minutes
    python benchmarks/time_to_loss.py --scenario "one 5x slower" --only "torch DDP" adpsgd

Contestants run one after the other, several times over, so that what else the machine does hits all
alike. Scenarios with links of a given speed need root: each learner is in a network namespace.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP imports it: once here, not in every process

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

import training_links  # noqa: E402
from loss_page import page, picture  # noqa: E402
from loss_race import OURS, PEERS, SLOW, HeldOut, Race, Result, run  # noqa: E402
from loss_task import LossTask  # noqa: E402
from training_contestants import TORCHFT  # noqa: E402
from training_race import cpu  # noqa: E402

from hadpsgd.files import write_text  # noqa: E402

GOAL = 1.5
"""Held-out loss that all are to reach; all do after 64 to 70 of 80 steps."""
EQUAL, LINKED = "equal", "equal links"
MBIT = 40.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is put into a race."""

    injected: dict[str, Any] = field(default_factory=dict)
    """As in the config."""
    links: dict[int, float] | None = None
    """Learner -> how many times slower its link is; None: no namespaces."""
    beside: str = EQUAL
    """The scenario that its times are compared with."""


def one(factor: float) -> Scenario:
    """One learner so many times slower."""
    return Scenario(injected={"slow_learners": {SLOW: factor}})


SCENARIOS: dict[str, Scenario] = {
    EQUAL: Scenario(),
    "one 2x slower": one(2),
    "one 5x slower": one(5),
    "one 10x slower": one(10),
    "one 100x slower": one(100),
    "random slowness": Scenario(injected={"spread": "exponential"}),
    LINKED: Scenario(links={}, beside=LINKED),
    "one link 8x slower": Scenario(links={SLOW: 8}, beside=LINKED),
}
QUICK = (EQUAL, "one 5x slower", LINKED, "one link 8x slower")
"""Scenarios of a short run; those with links are run once less."""
MAIN = ("torch DDP", "dpsgd", "adpsgd", "adpsgd, random partner", "hadpsgd 4x2")
MORE = ("ssgd", "hadpsgd 8x2")
"""Contestants of a short run; of both, where no link is limited."""
Found = dict[str, dict[str, list[Result]]]
"""Scenario -> contestant -> repetitions."""


def races(
    args: argparse.Namespace, names: Sequence[str], scenarios: Mapping[str, Scenario]
) -> Found:
    """All of them, contestants in turn; a repetition that failed is left out and said."""
    found: Found = {title: {} for title in scenarios}
    for number in range(args.repeat):
        for title, scenario in scenarios.items():
            linked = scenario.links is not None
            if linked and args.quick and number and number + 1 == args.repeat:
                continue
            for name in names:
                if linked and (name == TORCHFT or (args.quick and name in MORE)):
                    continue  # torchft's servers listen on one host's loopback
                result = once(args, name, scenario)
                if isinstance(result, str):
                    print(f"{title}: {name} failed: {result}", file=sys.stderr, flush=True)
                    continue
                found[title].setdefault(name, []).append(result)
                print(
                    f"{title}: {name}: {result.reaches(args.goal):.1f} s to the loss, "
                    f"{result.done:.1f} s for the work, load {result.load:.1f}",
                    file=sys.stderr,
                    flush=True,
                )
    return found


def once(args: argparse.Namespace, name: str, scenario: Scenario) -> Result | str:
    """One contestant, one repetition."""
    with tempfile.TemporaryDirectory() as scratch:
        task = LossTask(folder=Path(scratch), epochs=args.epochs)
        race = Race(
            task=task,
            name=name,
            seconds=args.seconds,
            injected=scenario.injected,
            limit=args.limit,
            learners=args.learners,
        )
        task.write([race.run])
        with hosts(race.world, scenario.links) as made:
            return run(replace(race, hosts=made), HeldOut(task))


@contextmanager
def hosts(count: int, slow: dict[int, float] | None) -> Iterator[training_links.Hosts | None]:
    """Namespaces, where a scenario wants them."""
    if slow is None:
        yield None
        return
    with training_links.shaped(count, MBIT, slow=slow, burst="4kb") as made:
        yield made


def main() -> None:
    """Run what the arguments ask for; print it, or write the page and its picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    everybody = [*PEERS, *OURS]
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--only", nargs="+", choices=everybody, default=everybody)
    parser.add_argument("--quick", action="store_true", help="main ones of both; links once less")
    parser.add_argument("--learners", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.06, help="of a gradient")
    parser.add_argument("--epochs", type=int, default=LossTask.epochs, help="of 20 steps")
    parser.add_argument("--goal", type=float, default=GOAL, help="held-out loss")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of one race")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the page here, and a picture beside it")
    args = parser.parse_args()
    names = (*MAIN, *MORE) if args.quick else args.only
    scenarios = {title: SCENARIOS[title] for title in (QUICK if args.quick else args.scenario)}
    if not training_links.possible():
        print("no namespaces here (root, ip, tc): nothing with links", file=sys.stderr)
        scenarios = {title: s for title, s in scenarios.items() if s.links is None}
    begin = time.monotonic()
    found = races(args, names, scenarios)
    text = page(
        found,
        beside={title: scenario.beside for title, scenario in scenarios.items()},
        goal=args.goal,
        limit=args.limit,
        head=head(args, (time.monotonic() - begin) / 60),
        picture=args.out.with_suffix(".png").name if args.out else "",
    )
    print(text)
    if args.out:
        write_text(args.out, text)
        picture(args.out.with_suffix(".png"), found, args.goal)


def head(args: argparse.Namespace, minutes: float) -> str:
    """How the page was made."""
    task = LossTask(epochs=args.epochs)
    return (
        f"Made by `python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}` in "
        f"{minutes:.0f} minutes on {os.cpu_count()} cores ({cpu()}), torch "
        f"{torch.__version__}. A BLSTM of {task.parameters} parameters, {task.steps} steps of "
        f"{task.batch} subsequences; a gradient takes {1000 * args.seconds:.0f} ms. Links of "
        f"{MBIT:g} Mbit/s where they are limited. Medians of {args.repeat} repetitions"
        f"{' (with links one less)' if args.quick and args.repeat > 1 else ''}."
    )


if __name__ == "__main__":
    main()
