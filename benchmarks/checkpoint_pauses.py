"""How long learners stand still for checkpoints, beside a learner that is 100 times slower.

    python benchmarks/checkpoint_pauses.py

Four learners of adpsgd in a ring, processes of `hadpsgd launch`; gradients sleep. The same run is
made with a checkpoint every few seconds and with none. Printed are, of the learners that are not
slow, updates and mixes a second and the longest time without an update.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from failures import Race, wait_for_blocks
from training_data import write_config, write_egs

from hadpsgd.decentralized.core.events import Mix

SLOW = 1
"""The learner that is slower."""
SLEEP = 4.0
"""Times its real length that a gradient takes."""
LOOK_SECONDS = 0.02
SETTLE_SECONDS = 30.0
"""Until processes are gone whose launcher was killed."""


@dataclass
class Ring(Race):
    """Of plain learners."""

    factor: float = 1.0
    """How many times slower one of them is."""
    minutes: float = 60.0
    """Between checkpoints."""

    @property
    def name(self) -> str:
        """Of the run."""
        return f"adpsgd-{self.nodes}"

    def configure(self) -> None:
        """Examples and a config."""
        write_egs(self.folder / "egs/train", 4000, 1)
        write_egs(self.folder / "egs/dev", 100, 2)
        sleeps = dict.fromkeys(range(self.nodes), SLEEP) | {SLOW: SLEEP * self.factor}
        run = {
            "strategy": "adpsgd",
            "learners": self.nodes,
            "name": self.name,
            "injected": {"slow_learners": sleeps},
        }
        config = write_config(
            self.folder, [run], epochs=self.epochs, batch=20, checkpoint_minutes=self.minutes
        )
        config.write_text(config.read_text().replace("every_seconds: 0.2", "uri: none"))

    def moments(self) -> int:
        """Checkpoints that are whole or under way; the last few are kept."""
        return max(
            (int(p.name[:9]) for p in self.folder.rglob("checkpoints/tiny/*/0*-*")), default=0
        )


def watch(ring: Ring, seconds: float) -> str:
    """A row of the table."""
    launcher = ring.start(0)
    quick = [node for node in range(ring.nodes) if node != SLOW]
    try:
        wait_for_blocks(ring, launcher, range(ring.nodes))  # the first gradients are longer
        begin = time.monotonic()
        since = dict.fromkeys(quick, begin)
        first = done = {node: ring.done(node) for node in quick}
        mixes = counted(ring, quick)
        sizes = dict.fromkeys(quick, 0)
        longest, checkpoints, moment = 0.0, 0, 0
        while (now := time.monotonic()) < begin + seconds:
            for node in quick:
                if (size := ring.size_of_record(node)) == sizes[node]:
                    continue
                sizes[node] = size
                if (blocks := ring.done(node)) > done[node]:
                    longest = max(longest, now - since[node])
                    done, since[node] = done | {node: blocks}, now
            checkpoints += (at := ring.moments()) > moment
            moment = at
            time.sleep(LOOK_SECONDS)
        each = seconds * len(quick)
        updates = (sum(done.values()) - sum(first.values())) / each
        mixed = (counted(ring, quick) - mixes) / each
    finally:
        launcher.kill()
        launcher.wait()
        time.sleep(SETTLE_SECONDS)
    return f"{checkpoints} | {updates:.1f} | {mixed:.1f} | {longest:.2f}"


def counted(ring: Ring, nodes: list[int]) -> int:
    """Mixes in their records."""
    events = ring.events()
    return sum(isinstance(event, Mix) for node in nodes for event in events[node])


def main() -> None:
    """With and without checkpoints, one learner slow or not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between checkpoints")
    args = parser.parse_args()
    head = "slow learner", "checkpoints", "updates/s", "mixes/s", "longest pause, s"
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
    for factor in (1.0, 100.0):
        for minutes in (60.0, args.every / 60):
            with tempfile.TemporaryDirectory() as scratch:
                ring = Ring(Path(scratch), 10_000, 0.0, "leave", 4, 1, factor, minutes)
                print(f"| {factor:g}x | {watch(ring, args.seconds)} |", flush=True)


if __name__ == "__main__":
    main()
