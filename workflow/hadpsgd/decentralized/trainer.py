"""Decentralised training of any module with any torch.optim optimiser: the library's front door.

    trainer = decentralize(model, optimizer, strategy="hadpsgd", super_learner=8)
    for x, y in trainer.share(loader):
        loss(model(x), y).backward()
        trainer.step()
    trainer.finish()                        # every rank: the mean of the learners' weights

Each process runs the same script, started by torchrun or srun. It is the engine of `assembly`;
nothing is computed here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.agreement import LEAVE_SECONDS, check_alike, hash_of, size_of
from hadpsgd.decentralized.core.buffers import ALIGN
from hadpsgd.decentralized.core.engine import Report
from hadpsgd.decentralized.core.optimiser import TorchOptimiser
from hadpsgd.decentralized.core.supported import check_module
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.network.collectives import Averaging, Group
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.network.rounding import ROUNDINGS
from hadpsgd.decentralized.pool import Pool
from hadpsgd.decentralized.share import Share, sampler_of
from hadpsgd.decentralized.stopping import Stopping
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.registry import Choice, create, find
from hadpsgd.decentralized.strategies.strategy import UNROUNDED
from hadpsgd.errors import UserError

OFFERED = (
    *("adpsgd", "rand", "d1d", "dpsgd", "ssgd", "local", "diloco", "noloco", "sgp"),
    "hadpsgd",
)
"""Strategies that are held against torch with its optimisers."""


def decentralize(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    strategy: str = "adpsgd",
    super_learner: int = 1,
    among: str = "adpsgd",
    schedule: str | None = None,
    average_every: int = 8,
    outer_rate: float = 0.7,
    outer_momentum: float | None = None,
    pace: int = 1,
    max_staleness: int = 64,
    wire: str = UNROUNDED,
    clip_norm: float = 0.0,
    backwards: int = 1,
    seed: int = 0,
    seconds: float = 300.0,
    agree_on: str = "",
) -> Trainer:
    """Meet the other processes and take the model's weights over.

    Args:
        model: on its device, with the same weights on every rank (seed torch before you make it).
        optimizer: of its parameters, with any groups; its state stays with the learner.
        strategy: one of `OFFERED`. One process is always alone.
        super_learner: learners of a super-learner, for hadpsgd.
        among: the strategy among super-learners, for hadpsgd.
        schedule: who mixes with whom; the strategy's own where None.
        average_every: steps between rounds, for local, diloco and noloco.
        outer_rate, outer_momentum: of the outer steps, for diloco and noloco; the momentum is the
            strategy's own where None.
        pace: rounds of mixing for each gradient, for asynchronous strategies.
        max_staleness: versions that a gradient may miss, for asynchronous strategies.
        wire: float32, or bfloat16 or int8: weights are rounded on their way, for asynchronous
            strategies.
        clip_norm: limit to the gradient's norm (of a super-learner's mean; 0: none).
        backwards: backward passes that a step's gradient is made of.
        seed: of random schedules and of the order of shares.
        seconds: how long to wait for the other processes.
        agree_on: whatever else must be the same on all ranks (a script's own settings).

    Raises:
        UserError: what cannot work; or a process did not come or runs something else.
    """
    check_module(model)
    for wanted in (strategy, among):
        if wanted not in OFFERED:
            raise UserError(f"no strategy '{wanted}' here", fix=f"There are: {', '.join(OFFERED)}")
    _, world = started()
    if wire not in ROUNDINGS:
        raise UserError(f"no wire '{wire}'", fix=f"There are: {', '.join(ROUNDINGS)}")
    name = strategy if world > 1 else "single"
    kind = find(name, among=among)
    size = size_of(name, world=world, super_learner=super_learner)
    schedule = schedule or kind.default_schedule
    settings = (name, size, among, schedule, average_every, pace, max_staleness, backwards, seed)
    outer = (outer_rate, outer_momentum)
    agreed = hash_of(repr((*settings, *outer, clip_norm, wire, agree_on)))
    meeting = rendezvous.meet(learners=world, size=size, agree_on=agreed, seconds=seconds)
    if meeting.joining:
        raise UserError("a process that died cannot be replaced here", fix="Start all of them anew")
    check_alike(model, meeting)
    choice = Choice(
        strategy=name,
        among=among,
        pace=pace,
        max_staleness=max_staleness,
        every=average_every,
        outer_rate=outer_rate,
        outer_momentum=outer_momentum,
        wire=wire if world > 1 else UNROUNDED,
    )
    try:
        engine = assembly.build(
            model,
            TorchOptimiser(optimizer, clip_norm=clip_norm),
            create(choice),
            schedule,
            meeting,
            seed=seed,
            backwards=backwards,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    return Trainer(engine, meeting, seed=seed)


def started() -> tuple[int, int]:
    """Rank of this process and number of learners, as it was started; nobody is met yet."""
    env = rendezvous.environment()
    return int(env["RANK"]), int(env["WORLD_SIZE"])


class Trainer:
    """One learner; made by `decentralize`. As a context manager it finishes at the block's end."""

    def __init__(self, engine: DecentralizedEngine, meeting: Meeting, *, seed: int) -> None:
        self.engine = engine
        self.meeting = meeting
        self.seed = seed
        self._shares: list[Share | Pool] = []
        self._begun = self._finished = False
        self._over = False
        """Whether all had stopped when the last step was done."""
        self._signals = Stopping(engine.request_stop)

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish, unless an error came: then let the others see that this learner is gone."""
        if error is None:
            self.finish()
        elif self._begun and not self._finished:
            self._finished = True
            self._signals.leave()
            self.engine.__exit__(kind, error, trace)

    @property
    def rank(self) -> int:
        """Number of this process."""
        return self.engine.place.rank

    @property
    def learners(self) -> int:
        """Number of processes."""
        return self.engine.place.world

    @property
    def steps(self) -> int:
        """Updates of this learner so far."""
        return self.engine.steps

    @property
    def stopped(self) -> bool:
        """Whether all learners have stopped, after a step: save `state_dict()` and leave the loops.

        From the first look on, SIGTERM, SIGUSR1 and Ctrl-C ask for that, at any learner; a second
        Ctrl-C ends the process.
        """
        if self._finished:
            return False
        self._signals.listen()
        return self._begun and self.engine.over

    def distance(self) -> float | None:
        """Estimated distance of a learner from the mean of all, over the norm of its weights.

        From one mix since the last call, which costs no communication; None where there was none.
        """
        return self.engine.observe().distance

    def share(self, loader: Iterable[Any]) -> Share | Pool:
        """This learner's part of a loader's batches. Iterate over it once an epoch.

        With an asynchronous strategy, learners draw from one pool: whoever is free takes the next
        batch, where batches have numbers. Otherwise all get the same number of batches.

        Call it once for each loader, before a checkpoint is loaded, in the same order on every
        rank.
        """
        share: Share | Pool
        engine = self.engine
        free = engine.place.nodes > 1 and not engine.strategy.synchronous
        if free and (isinstance(loader, Sequence) or sampler_of(loader) is not None):
            number = len(self._shares)
            share = Pool(
                loader, engine, self.meeting, number=number, seed=self.seed, begin=self._begin
            )
        else:
            if free and self.rank == 0:
                warnings.warn(
                    "this loader's batches have no numbers: all learners get equally many, and a "
                    "slow one is waited for",
                    stacklevel=2,
                )
            share = Share(loader, rank=self.rank, learners=self.learners, seed=self.seed)
        self._shares.append(share)
        return share

    def step(self) -> Report:
        """Apply the gradient and mix, as the strategy says; in place of `optimizer.step()`.

        The gradient is zero afterwards.

        Raises:
            UserError: the module is not as it was, or all learners have stopped.
            NotFiniteError: the gradient is not finite.
        """
        self._begin()
        if self._over:
            raise UserError(
                "all learners have stopped, and this one goes on",
                fix="Leave the loop when trainer.stopped",
            )
        self._check_places()
        report = self.engine.step(1.0)
        self._over = self.engine.over  # that may come during a gradient, too, which still counts
        return report

    def finish(self) -> None:
        """All ranks call it once, at the end: serve partners until all are done, then average.

        The model then has the mean of the learners' weights, the same bits on every rank, and its
        parameters are free again. With synchronous strategies all must have made the same number
        of steps.
        """
        if self._finished:
            return
        self._begin()
        self._finished = True
        self.engine.finish()
        while not self.engine.over:
            self.engine.serve()
        self.engine.learner.settle()
        alive = list(self.engine.alive)
        self.engine.__exit__(None, None, None)
        self._average(alive)
        self._leave(alive)
        self._signals.leave()

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on: every rank calls it, after the same number of steps where
        the strategy is synchronous, and saves its own. They wait for each other.

        Tensors are copies.
        """
        self._begin()
        self.engine.stand_still()
        state = _copied(self.engine.state_dict())
        buffers = {
            name: value.detach().clone()
            for name, value in self.engine.module.state_dict().items()
            if name not in dict(self.engine.module.named_parameters())
        }
        if not self.engine.over:
            self.engine.go_on()
        places = [share.state() for share in self._shares]
        return {"learner": state, "buffers": buffers, "shares": places}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave this rank, before the first step.

        Raises:
            UserError: it comes too late, the shares are other ones, or another rank loads none.
        """
        if self._begun:
            raise UserError("a checkpoint cannot be loaded after the first step")
        if len(state["shares"]) != len(self._shares):
            raise UserError(
                f"the checkpoint knows {len(state['shares'])} shares, not {len(self._shares)}",
                fix="Call share() as often as before, then load",
            )
        for share, place in zip(self._shares, state["shares"], strict=True):
            if not isinstance(place, dict) or place.keys() != share.state().keys():
                raise UserError(
                    "the checkpoint is of a strategy that shares data otherwise, or of a former "
                    "version",
                    fix="Load it with the strategy that wrote it, or begin anew",
                )
        self.engine.module.load_state_dict(state["buffers"], strict=False)
        self.engine.load_state_dict(state["learner"])
        for share, place in zip(self._shares, state["shares"], strict=True):
            share.restore(place)

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.engine.learner.collect()  # what the first forward pass added to statistics
            self.engine.__enter__()

    def _check_places(self) -> None:
        """Parameters and statistics are where they were put; no others ask for gradients."""
        flat, model = self.engine.learner.flat, self.engine.learner.model
        ours = {id(slot.parameter) for slot in flat.slots}
        for name, p in self.engine.module.named_parameters():
            if p.requires_grad and id(p) not in ours:
                raise UserError(
                    f"parameter {name} requires gradients now, but did not at the start",
                    fix="Freeze and unfreeze before decentralize(), or give it all parameters",
                )
        for slot in (*flat.slots, *flat.statistics):
            if flat.is_view(slot) and slot.parameter.data_ptr() != slot.of(model).data_ptr():
                raise UserError(
                    "the model was moved or changed its type after decentralize()",
                    fix="Call model.to() before",
                )

    def _average(self, alive: list[int]) -> None:
        """The mean over the super-learners that lived, in all their members."""
        place, flat = self.engine.place, self.engine.learner.flat
        count = len(alive) * place.size
        weights = self.engine.weights
        if count > 1:
            rank = alive.index(place.node) * place.size + place.member
            rendezvous.process_group("finish", self.meeting, rank=rank, size=count)
            buffer = weights.new_zeros(-(-flat.elements // (count * ALIGN)) * count * ALIGN)
            buffer[: flat.elements] = weights
            Averaging(Group(dist.group.WORLD), buffer).run()
            weights = buffer[: flat.elements]
            dist.barrier()
            dist.destroy_process_group()
        self.engine.load_weights(weights)

    def _leave(self, alive: list[int]) -> None:
        """Who has the store goes last."""
        if self.meeting.store is None:
            return
        place, store = self.engine.place, self.meeting.prefixed("left")
        store.set(str(place.rank), "")
        if self.meeting.hosts_store:
            ranks = [node * place.size + m for node in alive for m in range(place.size)]
            rendezvous.wait_for_keys(store, [str(rank) for rank in ranks], LEAVE_SECONDS)


def _copied(state: Any) -> Any:
    """With tensors of its own."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(_copied, state))
    return state
