"""How long others stand still when a member of a super-learner fails, in each of five ways.

    python benchmarks/pauses.py

The failures are those of `failures.py`, once in the last member of a super-learner and once in its
first one. Printed are seconds from the failure on: until the launcher says that a process failed,
and until the next updates, of the other members of that super-learner and of the other
super-learners. The longest time without an update counts until each has made some more after the
launcher knew.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from failures import KINDS, PATIENCE, Race, ranks_of, replaced, wait_for_blocks

MORE = 3
"""Updates after the launcher knew that end what is watched."""
LOOK_SECONDS = 0.02


@dataclass
class Watched:
    """A super-learner's updates since a failure."""

    race: Race
    node: int
    since: float
    """When it made the last one."""
    done: int = field(init=False)
    size: int = 0
    longest: float = 0.0
    """Seconds without an update."""
    more: int = 0
    """Updates after the launcher knew of the failure."""

    def __post_init__(self) -> None:
        self.done = self.race.done(self.node)

    def look(self, *, known: bool) -> None:
        """Once in a while."""
        size = self.race.size_of_record(self.node)
        if size == self.size:
            return
        self.size, done = size, self.race.done(self.node)
        if done > self.done:
            now = time.monotonic()
            self.longest = max(self.longest, now - self.since)
            self.more += known * (done - self.done)
            self.since, self.done = now, done


@dataclass(frozen=True)
class Pauses:
    """Seconds."""

    noticed: float
    """Until the launcher says that a process failed."""
    colleagues: float
    """Of the super-learner that was struck."""
    others: float
    """Of the other super-learners, the longest."""
    whole: float
    """Until a new process takes part."""


def strike(race: Race, launcher: subprocess.Popen[bytes], kind: str, victim: int) -> Pauses:
    """Do it to a rank; wait until its super-learner is whole again."""
    pid, said = ranks_of(launcher.pid)[victim], len(race.said())
    came = [race.came(rank) for rank in range(race.learners)]
    begin, noticed = time.monotonic(), 0.0
    nodes = [Watched(race, node, begin) for node in range(race.nodes)]
    os.kill(pid, KINDS[kind])
    while not noticed or any(node.more < MORE for node in nodes):
        if launcher.poll() is not None or time.monotonic() > begin + PATIENCE:
            raise SystemExit(f"{kind} of rank {victim}: others stand still\n{race.said()}")
        if not noticed and " failed (" in race.said()[said:]:
            noticed = time.monotonic() - begin
        for node in nodes:
            node.look(known=bool(noticed))
        time.sleep(LOOK_SECONDS)
    new = replaced(race.said()[said:])
    while race.came(new) <= came[new]:
        if launcher.poll() is not None or time.monotonic() > begin + PATIENCE:
            raise SystemExit(f"{kind}: rank {new} does not come\n{race.said()}")
        time.sleep(LOOK_SECONDS)
    whole = time.monotonic() - begin
    struck = nodes.pop(victim // race.size)
    return Pauses(noticed, struck.longest, max(node.longest for node in nodes), whole)


def main() -> None:
    """All kinds, one after the other, in one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--super-learners", type=int, default=2, metavar="N")
    parser.add_argument("--size", type=int, default=3, help="learners of a super-learner")
    parser.add_argument("--silence-limit", type=float, default=3.0)
    parser.add_argument("--member-death", choices=("wait", "continue"), default="continue")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        how = args.silence_limit, args.member_death, args.super_learners, args.size
        race = Race(Path(scratch), 10_000, *how)
        launcher = race.start(2 * len(KINDS))
        head = "failure", "member", "noticed", "own super-learner", "others", "whole"
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
        try:
            for number, kind in enumerate(KINDS):
                node = number % race.nodes
                for member, name in ((race.size - 1, "last"), (0, "first")):
                    wait_for_blocks(race, launcher, range(race.nodes))
                    found = strike(race, launcher, kind, node * race.size + member)
                    row = found.noticed, found.colleagues, found.others, found.whole
                    figures = " | ".join(f"{seconds:.1f}" for seconds in row)
                    print(f"| {kind} | {name} | {figures} |", flush=True)
        finally:
            launcher.terminate()
            try:
                launcher.wait(60)
            except subprocess.TimeoutExpired:
                launcher.kill()


if __name__ == "__main__":
    main()
