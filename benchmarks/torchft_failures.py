"""The five failures of `failures.py` in a run of torchft: four replica groups of one process.

    python benchmarks/torchft_failures.py --failures 50

torchft restarts nobody (torchelastic does, per group): here a process that has ended is started
again at once, and one that hangs or is stopped is killed after `--silence-limit` seconds, as
`hadpsgd launch` does. Printed are seconds from a failure: the longest time without a step of any
group but the one that was struck, and until all make steps again, the new process, too; then how
many steps the groups threw away.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from failures import INJECTED, KINDS
from torch import nn
from training_race import lighthouse

GROUPS = 4
GRADIENT_SECONDS = 0.06
PATIENCE = 120.0
LOOK_SECONDS = 0.02


def work(rank: int, address: str, seconds: float, steps: Path) -> None:
    """A replica group: a letter a step, `s` of one that counts and `t` of one thrown away."""
    from torchft import Manager, Optimizer, ProcessGroupGloo

    torch.manual_seed(1)
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_PORT=str(store.port))
    module = nn.Linear(64, 64)
    sgd = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    limit = timedelta(seconds=seconds)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=limit),
        min_replica_size=1,
        load_state_dict=lambda told: (
            module.load_state_dict(told["module"]),
            sgd.load_state_dict(told["sgd"]),
        ),
        state_dict=lambda: {"module": module.state_dict(), "sgd": sgd.state_dict()},
        replica_id=f"group_{rank}",
        lighthouse_addr=address,
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        use_async_quorum=False,
    )
    optimizer = Optimizer(manager, sgd)  # its DistributedDataParallel fails with this torch
    with steps.open("ab", buffering=0) as told:
        while True:
            optimizer.zero_grad()
            time.sleep(GRADIENT_SECONDS)
            module(torch.randn(8, 64)).square().mean().backward()
            averages = [manager.allreduce(p.grad) for p in module.parameters()]
            for average in averages:
                average.wait()
            before = manager.current_step()
            optimizer.step()
            told.write(b"s" if manager.current_step() > before else b"t")


@dataclass
class Group:
    """One process, and what it has told."""

    rank: int
    command: list[str]
    env: dict[str, str]
    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)
    longest: float = 0.0
    """Without a step that counts."""
    counted: int = 0
    counted_at: float = 0.0
    starts: int = 0

    @property
    def steps(self) -> Path:
        """What it tells."""
        return self.folder / f"steps-{self.rank}"

    def start(self) -> None:
        """Anew."""
        with (self.folder / f"group-{self.rank}.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.env, stdout=log, stderr=log)
        self.starts += 1

    def look(self) -> None:
        """Once in a while."""
        now = time.monotonic()
        counted = self.steps.read_bytes().count(b"s") if self.steps.exists() else 0
        if counted > self.counted:
            self.longest = max(self.longest, now - self.counted_at)
            self.counted, self.counted_at = counted, now

    def watch(self) -> None:
        """Start it again if it has ended."""
        if self.process.poll() is not None:
            self.start()


def strike(groups: list[Group], kind: str, victim: int, limit: float) -> tuple[float, float]:
    """Seconds that the others stood still, and until all make steps again."""
    for group in groups:
        group.longest, group.counted_at = 0.0, time.monotonic()
    begin = time.monotonic()
    pid = groups[victim].process.pid
    os.kill(pid, KINDS[kind])
    whole: dict[int, int] = {}
    replaced = 0.0
    while time.monotonic() < begin + PATIENCE:
        if kind in ("hangs", "stopped") and not replaced and time.monotonic() > begin + limit:
            groups[victim].process.kill()
        for group in groups:
            group.look()
            group.watch()
        if not replaced and groups[victim].process.pid != pid:
            replaced = time.monotonic()
            whole = {group.rank: group.counted for group in groups}
        if kind == "connections lost" and not whole and time.monotonic() > begin + 1:
            whole = {group.rank: group.counted for group in groups}
        if whole and all(g.counted > whole[g.rank] + 2 for g in groups):
            others = [group.longest for group in groups if group.rank != victim]
            return max(others), time.monotonic() - begin
        time.sleep(LOOK_SECONDS)
    raise SystemExit(f"{kind}: the groups do not make steps again within {PATIENCE:g} s")


def main() -> None:
    """All kinds, one after the other, in one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failures", type=int, default=50)
    parser.add_argument("--silence-limit", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", type=Path, help="a folder for what the groups said")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        work(args.worker, args.address, args.silence_limit, args.steps)
        return
    draws = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as scratch, lighthouse(1) as address:
        folder = Path(scratch)
        (folder / "sitecustomize.py").write_text(INJECTED)
        env = os.environ | {"PYTHONPATH": os.pathsep.join([scratch, *sys.path]), "MASTER_PORT": "0"}
        groups = []
        for rank in range(GROUPS):
            command = [sys.executable, __file__, "--worker", str(rank), "--address", address]
            command += ["--silence-limit", str(args.silence_limit)]
            command += ["--steps", str(folder / f"steps-{rank}")]
            groups.append(Group(rank, command, env, folder))
            groups[-1].start()
        try:
            while any(group.counted < 10 for group in groups):
                for group in groups:
                    group.look()
                time.sleep(LOOK_SECONDS)
            print("| failure | group | others stood still | whole |\n|---|---|---|---|", flush=True)
            for kind in itertools.islice(itertools.cycle(KINDS), args.failures):
                victim = int(draws.integers(GROUPS))
                still, whole = strike(groups, kind, victim, args.silence_limit)
                print(f"| {kind} | {victim} | {still:.1f} | {whole:.1f} |", flush=True)
            told = b"".join(group.steps.read_bytes() for group in groups)
            print(f"steps that count: {told.count(b's')}, thrown away: {told.count(b't')}")
            print(f"processes started: {sum(group.starts for group in groups)}", flush=True)
        finally:
            for group in groups:
                group.process.send_signal(signal.SIGKILL)
                group.process.wait()
            if args.logs:
                shutil.copytree(folder, args.logs)


if __name__ == "__main__":
    main()
