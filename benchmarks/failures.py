"""Failures of five kinds, one after the other, in a run of super-learners (4 of 2, or others).

    python benchmarks/failures.py --failures 50

The kinds are those that torchft injects: a process is killed, has a segmentation fault, hangs (a
thread keeps Python's lock), is stopped, or loses its connections to all other learners. The run is
one of `hadpsgd launch`, which replaces what has failed; the same run without failures follows. What
is printed is counted in their records; `hadpsgd replay` computes both again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from training_data import write_config, write_egs

from hadpsgd.decentralized.core.events import Event, Join, Mix, blocks_of, ledger_faults
from hadpsgd.decentralized.record.reading import blocks, events_of, read
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.training.saved import newest

KINDS = {
    "killed": signal.SIGKILL,
    "segmentation fault": signal.SIGSEGV,
    "hangs": signal.SIGUSR2,
    "stopped": signal.SIGSTOP,
    "connections lost": signal.SIGRTMIN,
}
INJECTED = """
import ctypes, os, signal, socket, stat

def hang(*_):
    ctypes.PyDLL(None).sleep(10**6)  # PyDLL keeps Python's lock

def lose_connections(*_):
    store = int(os.environ["MASTER_PORT"])
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family == socket.AF_UNIX or found.getpeername()[1] == store:
                    continue
                found.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # no socket, or one that listens

signal.signal(signal.SIGUSR2, hang)
signal.signal(signal.SIGRTMIN, lose_connections)
"""
"""Every Python process of the run reads this at its start (`sitecustomize`)."""
PATIENCE = 300.0
STEPS_PER_EPOCH = 10
PART = 5
"""Subsequences of a learner's minibatch."""


@dataclass
class Race:
    """A run of `hadpsgd launch` in a folder of its own."""

    folder: Path
    epochs: int
    limit: float
    member_death: str
    nodes: int
    """Super-learners."""
    size: int
    """Learners of each."""

    @property
    def learners(self) -> int:
        """Processes."""
        return self.nodes * self.size

    @property
    def name(self) -> str:
        """Of the run."""
        return f"hadpsgd-{self.nodes}x{self.size}"

    def start(self, failures: int) -> subprocess.Popen[bytes]:
        """The launcher."""
        self.configure()
        (self.folder / "sitecustomize.py").write_text(INJECTED)
        command = [*self.command("launch"), "--dev-egs", str(self.folder / "egs/dev")]
        command += ["--out", str(self.folder / "out"), "--restarts", str(2 * failures + 10)]
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        env["PYTHONPATH"] = os.pathsep.join([str(self.folder), env.get("PYTHONPATH", "")])
        with (self.folder / "launch.log").open("wb") as log:
            return subprocess.Popen(command, env=env, stderr=log)

    def configure(self) -> None:
        """Examples and a config."""
        batch = PART * self.learners
        write_egs(self.folder / "egs/train", batch * STEPS_PER_EPOCH, 1)
        write_egs(self.folder / "egs/dev", 100, 2)
        run = {
            "strategy": "hadpsgd",
            "learners": self.learners,
            "super_learner": self.size,
            "name": self.name,
            "injected": {"slow_learners": dict.fromkeys(range(self.learners), 20.0)},
        }
        config = write_config(
            self.folder,
            [run],
            epochs=self.epochs,
            batch=batch,
            learning_rate={"base": 0.1, "base_batch": batch, "anneal_after": self.epochs},
            silence_limit=self.limit,
            member_death=self.member_death,
        )
        config.write_text(config.read_text().replace("every_seconds: 0.2", "uri: none"))

    def command(self, stage: str) -> list[str]:
        """Of a stage, on this run."""
        of_run = ["--config", str(self.folder / "config.yaml"), "--run-id", self.name]
        egs = ["--egs", str(self.folder / "egs/train")]
        return [sys.executable, "-m", "hadpsgd", stage, *of_run, *egs]

    def events(self) -> dict[int, list[Event]]:
        """Of all records, as far as the last checkpoint counts them."""
        schedule = create("ring", learners=self.nodes, seed=3)
        [folder] = (self.folder / "results/checkpoints/tiny").iterdir()
        records = newest(folder).records()
        return {
            node: events_of(read(folder / "record" / found.file, schedule, found.length))
            for node, found in records.items()
        }

    def done(self, node: int) -> int:
        """Blocks in a node's record."""
        schedule = create("ring", learners=self.nodes, seed=3)
        return sum(len(blocks(file, schedule, node=node)) for file in self._record(node))

    def size_of_record(self, node: int) -> int:
        """Bytes of a node's record."""
        return sum(file.stat().st_size for file in self._record(node))

    def _record(self, node: int) -> list[Path]:
        """What the process writes that came last, which goes on from those before; or nothing."""
        place = "results/checkpoints/tiny/*/record"
        names = f"node-{node}.bin", f"node-{node}.*.bin"
        files = [file for name in names for file in self.folder.glob(f"{place}/{name}")]
        return sorted(files, key=lambda file: file.stat().st_size)[-1:]

    def came(self, rank: int) -> int:
        """How often a rank has come after another one that had its place."""
        said = "".join(file.read_text() for file in self.folder.rglob(f"rank-{rank}.log"))
        return len(re.findall("joined at its step|came back at its step", said))

    def said(self) -> str:
        """What the launcher said."""
        return (self.folder / "launch.log").read_text(errors="replace")


def ranks_of(launcher: int) -> dict[int, int]:
    """Process numbers by rank, found by the logs: who takes another one's place has its log."""
    found = {}
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            log = Path(f"/proc/{pid}/fd/2").readlink()
        except OSError:
            continue
        if name := re.fullmatch(r"rank-(\d+)", log.stem):
            found[int(name[1])] = int(pid)
    return found


def wait_for_blocks(
    race: Race, launcher: subprocess.Popen[bytes], nodes: range | list[int]
) -> None:
    """Until these have done two more: the first one may be older than what it is waited for."""
    before = {node: race.done(node) for node in nodes}
    deadline = time.monotonic() + PATIENCE
    while any(race.done(node) < done + 2 for node, done in before.items()):
        if launcher.poll() is not None:
            raise SystemExit(f"the run is over too soon: more --epochs\n{race.said()}")
        if time.monotonic() > deadline:
            raise SystemExit(f"super-learners {nodes} stand still\n{race.said()}")
        time.sleep(0.05)


@dataclass(frozen=True)
class Seconds:
    """From a failure on."""

    noticed: float
    """Until the launcher says that a rank failed."""
    trains: float
    """Until the super-learner has done two more blocks."""
    whole: float
    """Until the rank's new process is there, and then two more."""


def strike(race: Race, launcher: subprocess.Popen[bytes], kind: str, victim: int) -> Seconds:
    """Do it to a rank, and wait until its super-learner is whole again."""
    node = victim // race.size
    pid = ranks_of(launcher.pid)[victim]
    came = [race.came(rank) for rank in range(race.learners)]
    said = len(race.said())
    begin = time.monotonic()

    def wait(until: Callable[[], bool]) -> float:
        while not until():
            if launcher.poll() is not None or time.monotonic() > begin + PATIENCE:
                raise SystemExit(f"{kind}: super-learner {node} was not replaced\n{race.said()}")
            time.sleep(0.05)
        return time.monotonic() - begin

    os.kill(pid, KINDS[kind])
    noticed = wait(lambda: " failed (" in race.said()[said:])
    wait_for_blocks(race, launcher, [node])
    trains = time.monotonic() - begin
    new = replaced(race.said()[said:])
    wait(lambda: race.came(new) > came[new])
    wait_for_blocks(race, launcher, [node])
    return Seconds(noticed, trains, time.monotonic() - begin)


def replaced(said: str) -> int:
    """The rank that gets a new process, by what the launcher said of a failure.

    Of a first member whose place is taken it is the rank of who took it; of one that has lost its
    connections, and goes on, it is one of the others.
    """
    heir = re.search(r"rank (\d+) takes its place", said)
    failed = heir or re.search(r"rank (\d+) failed \(", said)
    assert failed is not None, said
    return int(failed[1])


def one_sided(events: dict[int, list[Event]]) -> tuple[int, int, int]:
    """How many mixes there are, which of them one side alone counts, and which it should not.

    It may where the partner died after it had acknowledged the exchange, before it wrote it down.
    """
    mixes = {
        (node, event.round, partner): (weight, event.own, version)
        for node, found in events.items()
        for event in found
        if isinstance(event, Mix)
        for partner, weight, version in event.takes
    }
    alone = wrong = 0
    for (node, round_, partner), (weight, own, version) in mixes.items():
        other = mixes.get((partner, round_, node))
        alone += other is None
        if other is None:
            wrong += not died_in(events[partner], round_)
        else:
            wrong += other != (weight, version, own)
    return len(mixes), alone, wrong


def died_in(events: list[Event], round_: int) -> bool:
    """Whether a newcomer came between the mixes of a node before a round and those after it."""
    joined = False
    for event in events:
        if isinstance(event, Mix) and event.round > round_:
            return joined
        joined = isinstance(event, Join) or (joined and not isinstance(event, Mix))
    return joined


def report(race: Race) -> None:
    """Print what the records say, and the held-out loss at the end."""
    events = race.events()
    done = Counter(block for found in events.values() for block in blocks_of(found))
    total = race.epochs * STEPS_PER_EPOCH * race.nodes
    mixes, alone, wrong = one_sided(events)
    joins = sum(isinstance(event, Join) for found in events.values() for event in found)
    loss = json.loads((race.folder / "out/summary.json").read_text())["heldout_loss"]
    replay = subprocess.run(race.command("replay"), capture_output=True, text=True, check=False)
    print(f"  blocks done once: {sum(n == 1 for n in done.values())} of {total}")
    print(f"  blocks done more than once: {sum(n > 1 for n in done.values())}")
    print(f"  mixes: {mixes}; counted by one side alone: {alone}, that should not be: {wrong}")
    print(f"  faults in the ledger: {len(ledger_faults(events))}; joins: {joins}")
    for how, times in Counter(re.findall(r"failed \((.*?)\)", race.said())).items():
        print(f"  the launcher said: {how}, {times} times")
    print(f"  replay: {replay.stderr.strip().splitlines()[-1] if replay.stderr else '-'}")
    print(f"  replay's exit status {replay.returncode}; held-out loss {loss:.4f}", flush=True)


def run(race: Race, failures: int, seed: int) -> None:
    """To its end, with so many failures."""
    launcher = race.start(failures)
    draws = np.random.default_rng(seed)
    try:
        if failures:
            wait_for_blocks(race, launcher, range(race.nodes))
        for number, kind in enumerate(itertools.islice(itertools.cycle(KINDS), failures), 1):
            victim = int(draws.integers(race.learners))
            after = strike(race, launcher, kind, victim)
            print(
                f"  {number:2}: rank {victim} {kind}: noticed after {after.noticed:.1f} s, "
                f"trains after {after.trains:.1f} s, whole after {after.whole:.1f} s",
                flush=True,
            )
        if status := launcher.wait():
            raise SystemExit(f"the run ended with status {status}\n{race.said()}")
    finally:
        launcher.terminate()
        launcher.wait()


def main() -> None:
    """Both runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failures", type=int, default=50)
    parser.add_argument("--epochs", type=int, help="of 10 steps; 15 for each failure if not given")
    parser.add_argument("--super-learners", type=int, default=4, metavar="N")
    parser.add_argument("--size", type=int, default=2, help="learners of a super-learner")
    parser.add_argument("--silence-limit", type=float, default=10.0)
    parser.add_argument("--member-death", choices=("leave", "wait", "continue"), default="leave")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    epochs = args.epochs or 15 * args.failures
    with tempfile.TemporaryDirectory() as scratch:
        for name, failures in ((f"{args.failures} fail", args.failures), ("nothing fails", 0)):
            print(f"{name}:", flush=True)
            folder = Path(scratch, name.replace(" ", "-"))
            how = args.silence_limit, args.member_death, args.super_learners, args.size
            race = Race(folder, epochs, *how)
            run(race, failures, args.seed)
            report(race)


if __name__ == "__main__":
    main()
