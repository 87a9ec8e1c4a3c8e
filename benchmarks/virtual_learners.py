"""Many simulated learners of a BLSTM in one process: updates a second, memory, the clock's share.

    python benchmarks/virtual_learners.py --learners 16 64 128
    python benchmarks/virtual_learners.py --device cuda --layers 6 --cells 512 --projection 256 \\
        --pdfs 32000 --dim 260 --learners 16

Memory is the peak of the process (CPU) or of the device, less what one model and its gradient need.
A process's peak never falls: on a CPU the first line alone is exact. Times are of a clock; on a GPU
all that was asked for is done.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from types import SimpleNamespace

import torch
from torch import nn

from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.models.blstm import BLSTM

FRAMES = 21
COMPUTE = 0.5
"""Simulated seconds of a gradient."""


class Random:
    """Random frames and labels for a BLSTM."""

    def __init__(self, args: argparse.Namespace) -> None:
        shape = SimpleNamespace(
            layers=args.layers,
            cells=args.cells,
            projection=args.projection,
            dropout=0.0,
            frames_per_step=1,
        )
        self.model = BLSTM(shape, input_dim=args.dim, num_pdfs=args.pdfs, seed=1).to(args.device)
        self.module: nn.Module = self.model
        self.seconds = 0.0
        draws = torch.Generator().manual_seed(1)
        self.x = torch.randn(args.batch, FRAMES, args.dim, generator=draws).to(args.device)
        self.y = torch.randint(args.pdfs, (args.batch, FRAMES), generator=draws).to(args.device)

    def gradient(self, learner: int, step: int) -> float:  # noqa: ARG002
        """Backward of the same minibatch for all."""
        begin = time.perf_counter()
        loss = self.model.loss(self.x, self.y)
        loss.backward()
        value = loss.item()
        self.seconds += time.perf_counter() - begin
        return value


def peak_mib(device: str) -> float:
    """Peak memory so far."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def synchronise(device: str) -> None:
    """Until the device has done what it was asked for."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure(args: argparse.Namespace, learners: int) -> str:
    """A line of the table."""
    gc.collect()  # the simulation before
    if args.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    problem = Random(args)
    for step in range(3):
        problem.gradient(0, step)
    before = peak_mib(args.device)
    setting = Setting(
        strategy=strategies.create(strategies.Choice(strategy=args.strategy)),
        schedule=create(args.schedule, learners=learners, seed=1),
        compute=ComputeTimes(seconds=COMPUTE, spread="lognormal", deviation=0.1),
        links=LinkTimes(latency=5e-5, bandwidth=1e9),
        sgd=Sgd(momentum=args.momentum),
    )
    simulation = Simulation(setting, problem)
    model = simulation.gradient.nbytes / 2**20
    problem.seconds = 0.0
    synchronise(args.device)
    begin = time.perf_counter()
    log = simulation.run(seconds=COMPUTE * (args.steps + 0.5))
    synchronise(args.device)
    seconds = time.perf_counter() - begin
    extra = peak_mib(args.device) - before
    return (
        f"| {learners} | {model:.1f} | {len(log) / seconds:.1f} | "
        f"{1 - problem.seconds / seconds:.1%} | {extra:.0f} | {extra / learners / model:.1f} |"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", type=int, nargs="+", default=[16, 64, 128])
    parser.add_argument("--strategy", default="adpsgd")
    parser.add_argument("--schedule", default="ring")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--projection", type=int, default=64)
    parser.add_argument("--pdfs", type=int, default=400)
    parser.add_argument("--dim", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--momentum", type=float, default=0.0)
    args = parser.parse_args()
    print("| learners | model, MiB | updates/s | not in gradients | memory, MiB | models/learner |")
    print("|---|---|---|---|---|---|")
    for learners in sorted(args.learners):
        print(measure(args, learners), flush=True)


if __name__ == "__main__":
    main()
