"""One process of each way of training that `training.py` compares: the same model, the same data.

A contestant is a context that gives `step(x, y)`: forward, backward, update and whatever it does
about the other processes. It ends with what it can say of its mixing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import Tensor

from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.models.blstm import BLSTM
from hadpsgd.training.criterion import CrossEntropy

RATE, MOMENTUM = 0.5, 0.9
USUAL_HEAP = "torch DDP, usual heap"
"""The one whose process leaves the C library's heap as it is."""
TORCHFT = "torchft"
Step = Callable[[Tensor, Tensor, bool], float]
"""(features, pdf-ids, whether it is the last) -> loss."""


@dataclass(frozen=True)
class Task:
    """What is trained."""

    layers: int = 2
    cells: int = 128
    projection: int = 128
    pdfs: int = 500
    dim: int = 120
    frames: int = 21
    batch: int = 32
    """Subsequences of a learner's step."""
    rate: float = RATE

    def model(self) -> CrossEntropy:
        """The same in every process."""
        shape = SimpleNamespace(
            layers=self.layers,
            cells=self.cells,
            projection=self.projection,
            dropout=0.0,
            frames_per_step=1,
        )
        return CrossEntropy(BLSTM(shape, input_dim=self.dim, num_pdfs=self.pdfs, seed=1))

    def batches(self, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless; a pdf-id is the largest of fixed projections, so there is something to learn."""
        draws = torch.Generator().manual_seed(rank)
        fixed = torch.Generator().manual_seed(99)
        projections = torch.randn(self.dim, self.pdfs, generator=fixed)
        while True:
            x = torch.randn(self.batch, self.frames, self.dim, generator=draws)
            yield x, (x @ projections).argmax(-1)


@dataclass
class Running:
    """A contestant under way."""

    step: Step
    module: CrossEntropy
    finish: Callable[[], None] = lambda: None
    rounds: Callable[[], int] = lambda: 0
    sent: Callable[[], int] = lambda: 0
    waited: list[float] = field(default_factory=list)
    """Seconds of exposed communication, step by step, where it is known."""
    arrived: list[float] = field(default_factory=list)
    """Moments at which the gradients were ready and the waiting began."""
    group: int = 1
    """Processes that average their gradients, and so wait for the last of them."""


def plain_sgd(module: torch.nn.Module, task: Task) -> torch.optim.SGD:
    """What a bare PyTorch loop uses."""
    return torch.optim.SGD(module.parameters(), lr=task.rate, momentum=MOMENTUM)


def plain_step(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """A bare PyTorch loop's step."""

    def step(x: Tensor, y: Tensor, last: bool) -> float:  # noqa: ARG001
        optimizer.zero_grad()
        loss = module(x, y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


@contextmanager
def alone(task: Task, rank: int, world: int) -> Iterator[Running]:  # noqa: ARG001
    """No communication at all: the bare loop."""
    module = task.model()
    yield Running(plain_step(module, plain_sgd(module, task)), module)


@contextmanager
def process_group(rank: int, world: int) -> Iterator[None]:
    """torch's default group."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, world, rank == 0, wait_for_workers=False)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    rendezvous.keep(dist.group.WORLD)
    yield
    dist.barrier()
    dist.destroy_process_group()
    leave_together(store, rank, world)


def leave_together(store: dist.Store, rank: int, world: int) -> None:
    """Rank 0 hosts the store that others may still talk to: it leaves last."""
    store.set(f"left/{rank}", "")
    if rank == 0:
        rendezvous.wait_for_keys(store, [f"left/{other}" for other in range(world)], 60)


@contextmanager
def torch_ddp(task: Task, rank: int, world: int) -> Iterator[Running]:
    """DistributedDataParallel as it comes."""
    from torch.nn.parallel import DistributedDataParallel

    with process_group(rank, world):
        module = task.model()
        wrapped = DistributedDataParallel(module)
        yield Running(plain_step(wrapped, plain_sgd(wrapped, task)), module)


@contextmanager
def torch_post_local(task: Task, rank: int, world: int) -> Iterator[Running]:
    """torch's PostLocalSGDOptimizer, weights averaged every 8 steps."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    with process_group(rank, world):
        module = task.model()
        averager = PeriodicModelAverager(period=8, warmup_steps=0)
        optimizer = PostLocalSGDOptimizer(plain_sgd(module, task), averager)
        yield Running(plain_step(module, optimizer), module, rounds=lambda: int(averager.step) // 8)


@contextmanager
def decent_dp(task: Task, rank: int, world: int) -> Iterator[Running]:
    """Decent-DP on its ring, one exchange a step, which it does inside backward."""
    from decent_dp.ddp import DecentralizedDataParallel

    with process_group(rank, world):
        module = task.model()
        wrapped = DecentralizedDataParallel(
            module,
            lambda named: torch.optim.SGD([p for _, p in named], lr=task.rate, momentum=MOMENTUM),
            topology="ring",
            _local_world_size=world,
        )
        done = 0

        def step(x: Tensor, y: Tensor, last: bool) -> float:  # noqa: ARG001
            nonlocal done
            loss = wrapped(x, y)
            loss.backward()
            done += 1
            return float(loss.detach())

        yield Running(step, module, rounds=lambda: done)


@contextmanager
def torchft_ddp(task: Task, rank: int, world: int) -> Iterator[Running]:
    """torchft: gradients averaged by its manager, a quorum every step."""
    from torchft import Manager, Optimizer, ProcessGroupGloo
    from torchft.ddp import DistributedDataParallel

    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_PORT=str(int(os.environ["FT_PORT"]) + rank))
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 1, is_master=True)
    module = task.model()
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
        min_replica_size=world,
        load_state_dict=module.load_state_dict,
        state_dict=module.state_dict,
        replica_id=f"learner_{rank}",
        lighthouse_addr=os.environ["FT_LIGHTHOUSE"],
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=timedelta(seconds=30),
        use_async_quorum=False,
    )
    wrapped = DistributedDataParallel(manager, module)
    yield Running(plain_step(wrapped, Optimizer(manager, plain_sgd(module, task))), module)
    manager.shutdown(wait=False)


@contextmanager
def ours(
    task: Task,
    rank: int,
    world: int,
    strategy: str,
    schedule: str = "ring",
    size: int = 1,
) -> Iterator[Running]:
    """The engine."""
    module = task.model()
    meeting = rendezvous.meet(learners=world, size=size, agree_on="bench", seconds=60)
    choice = strategies.Choice(strategy=strategy, every=8)
    engine = assembly.build(
        module, Sgd(momentum=MOMENTUM), strategies.create(choice), schedule, meeting, seed=1
    )
    waited: list[float] = []
    arrived: list[float] = []

    def step(x: Tensor, y: Tensor, last: bool) -> float:
        loss = module(x, y)
        loss.backward()
        arrived.append(time.monotonic())
        waited.append(engine.step(task.rate, last=last).exposed)
        return float(loss.detach())

    def finish() -> None:
        while not engine.over:  # others may still need this one's mixes
            engine.serve()

    with engine:
        yield Running(
            step,
            module,
            finish,
            rounds=lambda: engine.rounds,
            sent=lambda: engine.bytes_sent,
            waited=waited,
            arrived=arrived,
            group=size,
        )
    if meeting.store is not None:
        leave_together(meeting.store, rank, world)


Contestant = Callable[[Task, int, int], AbstractContextManager[Running]]


def own(strategy: str, schedule: str = "ring", size: int = 1) -> Contestant:
    """A contestant of ours; size 0: one super-learner of all."""
    return lambda task, rank, world: ours(task, rank, world, strategy, schedule, size or world)


CONTESTANTS: Mapping[str, Contestant] = {
    "no communication": alone,
    "torch DDP": torch_ddp,
    USUAL_HEAP: torch_ddp,
    "torch post-local": torch_post_local,
    "Decent-DP ring": decent_dp,
    TORCHFT: torchft_ddp,
    "ssgd": own("ssgd", size=0),
    "dpsgd ring": own("dpsgd"),
    "dpsgd pairwise": own("dpsgd", "pairwise"),
    "adpsgd ring": own("adpsgd"),
    "adpsgd pairwise": own("adpsgd", "pairwise"),
    "adpsgd random partner": own("adpsgd", "random-partner"),
    "rand": own("adpsgd", "random-ring"),
    "d1d": own("d1d", "complete"),
    "hadpsgd": own("adpsgd", size=2),
}
