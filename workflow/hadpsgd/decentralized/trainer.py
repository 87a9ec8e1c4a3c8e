"""One learner as a script of one's own sees it; `offered` makes it."""

from __future__ import annotations

import atexit
import os
import sys
import uuid
import warnings
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from torch import Tensor

from hadpsgd.decentralized import ending, pausing
from hadpsgd.decentralized.agreement import all_of, check_drawn, check_moments
from hadpsgd.decentralized.core.engine import Report
from hadpsgd.decentralized.core.optimiser import TorchOptimiser
from hadpsgd.decentralized.drawing import sampler_of
from hadpsgd.decentralized.network.job_store import store_there
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.origin import check_origin, check_shares, origin_of
from hadpsgd.decentralized.pool import Pool
from hadpsgd.decentralized.share import Share
from hadpsgd.decentralized.stopping import Stopping
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.errors import UserError


class Trainer:
    """One learner; made by `decentralize`. As a context manager it finishes at the block's end."""

    def __init__(
        self, engine: DecentralizedEngine, meeting: Meeting, *, seed: int, by_host: bool
    ) -> None:
        self.engine, self.meeting = engine, meeting
        self.seed = seed
        self._by_host = by_host
        self._shares: list[Share | Pool] = []
        self._begun = self._finished = False
        self._over = False
        """Whether all had stopped when the last step was done."""
        self._signals = Stopping(engine.request_stop)
        self._saved = 0
        """Calls of `state_dict`."""
        self._start = ""
        """Of this start of all processes alone, once a checkpoint was made."""
        self._asked = 0
        """How often the ranks told each other what they go on from."""
        self._agreed = False
        """Whether that was the same."""
        self._means = 0
        """Calls of `mean`."""
        self._seen = self._versions()
        """How often each weight was written to, when this trainer last did."""

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
    def finished(self) -> bool:
        """Whether it has finished, or its block ended in an error."""
        return self._finished

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

    @store_there()
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
        self._check_weights()
        report = self.engine.step(1.0)
        self._seen = self._versions()
        self._over = self.engine.over  # that may come during a gradient, too, which still counts
        return report

    @store_there()
    def mean(self, value: float) -> float:
        """The mean of a number over all learners, of a measurement on held-out data, say.

        All ranks call it equally often, and wait for each other. It goes by the store of the
        rendezvous, so torch.distributed is not needed.

        Raises:
            UserError: a rank does not come within `seconds`.
        """
        self._means += 1
        said = all_of(f"means/{self._means}", self.meeting, float(value).hex())
        return sum(map(float.fromhex, said)) / len(said)

    @store_there()
    def finish(self) -> None:
        """All ranks call it once, at the end: serve partners until all are done, then average.

        The model then has the mean of the learners' weights, the same bits on every rank; it and
        its optimizer are free again. With synchronous strategies all must have made the same number
        of steps.
        """
        if self._finished:
            return
        self._begin()
        self._finished = True
        pausing.finish(self.engine)
        alive = list(self.engine.alive)
        self.engine.__exit__(None, None, None)
        _warn_of_lost(alive, self.engine)
        ending.average(alive, self.engine, self.meeting, by_host=self._by_host)
        ending.leave(alive, self.meeting)
        self._signals.leave()
        if isinstance(self.engine.learner.sgd, TorchOptimiser):
            self.engine.learner.sgd.release()

    @store_there()
    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on: every rank calls it, after the same number of steps where
        the strategy is synchronous, and saves its own. They wait for each other.

        Tensors are copies.
        """
        self._begin()
        moment = self._moment()
        pausing.stand_still(self.engine)
        if self.engine.strategy.synchronous and not self.engine.over:
            self._check_together()
        state = _copied(self.engine.state_dict())
        buffers = {
            name: value.detach().clone()
            for name, value in self.engine.module.state_dict().items()
            if name not in dict(self.engine.module.named_parameters())
        }
        if not self.engine.over:
            self.engine.go_on()
        places = [share.state() for share in self._shares]
        of = {**origin_of(self.engine), "moment": moment}
        return {"learner": state, "buffers": buffers, "shares": places, "of": of}

    @store_there()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave this rank, before the first step.

        Raises:
            MixedCheckpointError: ranks load parts of different ones. All are told, nothing is
                loaded, and all may load another one.
            UserError: it comes too late, it is of another model, optimiser, strategy, rank, number
                of learners or of shares, or another rank loads none.
        """
        if self._begun:
            raise UserError("a checkpoint cannot be loaded after the first step")
        self._agree(state.get("of", {}).get("moment", "former"))  # a former version had none
        check_origin(state, self.engine)
        check_shares(state["shares"], self._shares)
        self.engine.module.load_state_dict(state["buffers"], strict=False)
        self.engine.load_state_dict(state["learner"])
        for share, place in zip(self._shares, state["shares"], strict=True):
            share.restore(place)
        self._seen = self._versions()

    def _agree(self, moment: str) -> None:
        """Learn from all ranks whether they load checkpoints of one moment."""
        self._asked += 1
        check_moments(all_of(f"moments/{self._asked}", self.meeting, moment))
        self._agreed = True

    def _check_together(self) -> None:
        """All ranks call `state_dict`, after the same number of steps, or UserError."""
        steps = all_of(f"saved/{self._saved}", self.meeting, str(self.steps))
        if others := [rank for rank, each in enumerate(steps) if each != steps[0]]:
            raise UserError(
                f"rank {others[0]} calls state_dict() after {steps[others[0]]} steps, rank 0 after "
                f"{steps[0]}",
                fix="Call it on all ranks after the same number of steps",
            )

    def _moment(self) -> str:
        """What names this call of `state_dict`, alike on all ranks and in no other start."""
        self._saved += 1
        if not self._start:
            self._start = uuid.uuid4().hex
            if self.meeting.store is not None:
                # whoever comes first: no rank is waited for, as it may be lost
                store = self.meeting.prefixed("saving")
                self._start = store.compare_set("start", "", self._start).decode()
        return f"{self._start}/{self._saved}"

    def _begin(self) -> None:
        if self._finished:
            raise UserError("this trainer has finished", fix="Make another with decentralize()")
        if not self._begun:
            if not self._agreed:
                self._agree("")
            if self._shares:
                check_drawn(all_of("drawn", self.meeting, self._drawn()))
            self._begun = True
            atexit.register(_leave_behind, weakref.ref(self), os.getpid())
            self.engine.collect()  # what the first forward pass added to statistics
            self.engine.__enter__()

    def _drawn(self) -> str:
        """Names the batches of all shares."""
        return " ".join(share.drawn() or "?" for share in self._shares)

    def _versions(self) -> list[int]:
        """Of weights that are shown apart from what learns, or that outer steps started from."""
        learner = self.engine.learner
        if not learner.apart and learner.outer is None:
            return []
        return [slot.parameter._version for slot in learner.flat.slots]

    def _check_weights(self) -> None:
        """Nobody has written to weights that are not the learner's own."""
        if self._versions() != self._seen:
            raise UserError(
                f"weights were changed beside the trainer, and {self.engine.strategy.name} would "
                "not go on from them",
                fix="Load or change weights before decentralize()",
            )

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


def _leave_behind(trainer: weakref.ref[Trainer], process: int) -> None:
    """A script that ends without `finish` lets the others see so; threads of its engine end.

    Not so a process that was forked from the learner's.
    """
    left = trainer()
    if left is not None and os.getpid() == process:
        if not left.finished and not left.engine.over and not hasattr(sys, "last_value"):
            # the interpreter keeps `last_value` of an error that ended the script
            what = "the script ends without trainer.finish(): weights are not the mean of all"
            print(f"warning: rank {left.rank}: {what} learners'", file=sys.stderr)
        left.__exit__(SystemExit, SystemExit(), None)


def _warn_of_lost(alive: Sequence[int], engine: DecentralizedEngine) -> None:
    lost = [str(node) for node in range(engine.place.nodes) if node not in alive]
    if lost and engine.leads:
        what = "super-learner" if engine.place.size > 1 else "learner"
        warnings.warn(
            f"{what} {', '.join(lost)} left before finish(): the mean is that of the others",
            stacklevel=4,
        )


def _copied(state: Any) -> Any:
    """With tensors of its own."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(_copied, state))
    return state
