"""The engine that mixes: a learner, its mixer and its super-learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn

from hadpsgd.decentralized.core.coordination import living
from hadpsgd.decentralized.core.engine import Backward, Counted, LostMemberError, Report
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.observation import Observation
from hadpsgd.decentralized.core.place import Place, ranks_of
from hadpsgd.decentralized.core.threads import Clock
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.strategies.checkpointed import restore, state_of, take_place
from hadpsgd.decentralized.strategies.mixer import Mixer
from hadpsgd.decentralized.strategies.needs import Joins, Reduces, Reunites
from hadpsgd.decentralized.strategies.strategy import Strategy
from hadpsgd.decentralized.strategies.super_learner import SuperLearner
from hadpsgd.errors import UserError


class DecentralizedEngine:
    """All strategies but torch's own DDP.

    Args:
        module: the model whose parameters `learner` holds.
        recorder: writes the node's events; saved and resumed with the rest of the state.
        join: how a newcomer gets in, if it can; see `elastic`.
        reunion: how new members of a super-learner come to its first one.
        skip_not_finite: leave such gradients out instead of raising `NotFiniteError`.
        close: lets go of connections and process groups.
    """

    def __init__(
        self,
        module: nn.Module,
        learner: Learner,
        strategy: Strategy,
        mixer: Mixer,
        reducer: Reduces,
        place: Place,
        clock: Clock,
        *,
        recorder: Recorder | None = None,
        join: Joins | None = None,
        reunion: Reunites | None = None,
        skip_not_finite: bool = False,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.module = module
        self.learner = learner
        self.strategy = strategy
        self.mixer = mixer
        self.members = SuperLearner(learner, strategy, mixer, reducer, place, reunion)
        self.place = place
        self.clock = clock
        self.recorder = recorder
        self._join = join
        self.skip_not_finite = skip_not_finite
        self._close = close
        self._entered = False

    def __enter__(self) -> DecentralizedEngine:
        """Begin to mix."""
        if self.recorder is not None:
            if not self.recorder.begun:
                self.recorder.begin()
            self.recorder.enter(self.living[0])
        self.members.choose_reduction()
        self.mixer.start()
        self._entered = True
        if self.mixer.finished:  # resumed after its last gradient: partners may not be
            self._finish()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.mixer.close()
        self.members.close(error)
        self._close()

    @property
    def steps(self) -> int:
        """Updates so far."""
        return self.learner.steps

    @property
    def rounds(self) -> int:
        """Mixes so far."""
        return self.learner.rounds

    @property
    def weights(self) -> Tensor:
        """The learner's, flat."""
        return self.learner.weights

    def snapshot(self) -> tuple[Tensor, int]:
        """A copy of the weights of this moment, pending mixes included; their version."""
        weights = torch.empty_like(self.learner.weights)
        version = self.learner.snapshot(weights)
        return weights, version

    @property
    def bytes_sent(self) -> int:
        """By this process so far, to super-learners and inside its own."""
        exchange = self.mixer.exchange
        groups = {id(g): g.bytes_sent for g in (self.members.reducer.group, *exchange.groups)}
        return exchange.peer_bytes + int(sum(groups.values()))

    def observe(self) -> Observation:
        """What there was to see of the mixes since the last call."""
        return self.mixer.exchange.observer.collect()

    @property
    def alone(self) -> bool:
        """As of `Engine`."""
        return self.members.alone

    def take(self, backward: Backward, of: Sequence[int] = ()) -> tuple[SupportsFloat, int]:
        """As of `Engine`."""
        return self.members.take(backward, of)

    def go_alone(self, lost: LostMemberError) -> None:
        """As of `Engine`."""
        self.members.go_alone(lost)

    def let_in(self) -> int:
        """As of `Engine`."""
        return self.members.let_in()

    def come_back(self) -> None:
        """As of `Engine`."""
        self.members.come_back()

    def collect(self) -> None:
        """See `SuperLearner`; `step` does it."""
        self.members.collect()

    def step(self, rate: float, *, last: bool = False, block: int | None = None) -> Report:
        """Apply the gradient that `backward` left, as the strategy says; `last`: none follows.

        `block`: what it was taken on, for the record, where learners share their work.

        Raises:
            NotFiniteError: names the learner and the step.
            LostMemberError: others of the super-learner are gone; nothing was applied.
        """
        if self.members.reducer.active and self.weights.is_cuda:
            # what is waited for from here on is communication
            torch.cuda.current_stream(self.weights.device).synchronize()
        begin = self.clock.now()
        self.collect()
        self.members.share()
        waited = self.clock.now() - begin
        norm, skipped = self.members.norm(skip_not_finite=self.skip_not_finite)
        begin = self.clock.now()
        self.members.wishes.take()
        self.mixer.before_update()
        waited += self.clock.now() - begin
        staleness = self.learner.update(rate=rate, norm=norm, skip=skipped, block=block)
        begin = self.clock.now()
        if last:
            self._finish()
        self.mixer.after_update()
        self.members.choose_reduction()
        return Report(
            norm=norm,
            staleness=staleness,
            exposed=waited + self.clock.now() - begin,
            skipped=skipped,
        )

    def no_more_gradients(self) -> None:
        """This learner has applied its last gradient: just now, or before the checkpoint."""
        if self._entered and not self.mixer.finished:
            self._finish()
        else:
            self.mixer.finished = True

    @property
    def complete(self) -> bool:
        """At the end: whether all learners have applied their last gradients."""
        alone = self.strategy.synchronous or self.place.nodes == 1
        everybody = alone or self.mixer.coordination.all_finished
        return self.over and self.mixer.finished and everybody

    def _finish(self) -> None:
        with self.learner.changed:
            self.mixer.finish()

    def rest(self) -> None:
        """Take part in mixing for a while; gradients may follow. Between gradients only.

        The members of a super-learner all do so in the same place among their gradients.
        """
        self.mixer.settle()  # or mixes that wait for an update would count as missed
        self.serve()

    def serve(self) -> None:
        """Take part in mixing for a while, without gradients."""
        self.mixer.serve()
        self.members.wishes.put()
        self.members.wishes.take()

    @property
    def paused(self) -> bool:
        """All rounds before a pause are mixed in, none after it is begun, at all learners."""
        return self.mixer.paused

    @property
    def over(self) -> bool:
        """Whether this pause is the end."""
        return self.paused and self.mixer.coordination.stops(self.learner.rounds)

    def request_pause(self) -> None:
        """Ask for a pause; it comes soon, at all learners. Safe in a signal handler."""
        self.members.wishes.pause = True

    def request_stop(self) -> None:
        """Ask all learners to stop, as `request_pause`."""
        self.members.wishes.stop = True

    def go_on(self) -> None:
        """After a pause; it fulfils all wishes for one that came before."""
        self.members.wishes.pause = False
        self.mixer.passed()
        self.mixer.after_update()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed learner needs; only while paused, when nothing is in flight."""
        with self.learner.changed:  # mixing may go on as soon as others do
            return state_of(self.learner, self.mixer, self.recorder, self.place, self.living)

    @property
    def moment(self) -> str:
        """Names a pause: the same at all learners, and no two pauses alike."""
        steps = self.steps if self.strategy.synchronous or self.place.nodes == 1 else 0
        return f"{self.mixer.moment:09d}-{steps:09d}"

    @property
    def leads(self) -> bool:
        """Whether this rank does what only one should do."""
        return self.place.rank == self.alive[0] * self.place.size

    @property
    def alive(self) -> Sequence[int]:
        """The super-learners that take part."""
        return living(self.mixer.coordination.schedule)

    @property
    def ranks(self) -> Sequence[int]:
        """Those that take part."""
        size, reduced = self.place.size, self.mixer.exchange.reduced
        return [rank for node in self.alive for rank in ranks_of(node, size=size, reduced=reduced)]

    @property
    def living(self) -> tuple[int, Mapping[int, int]]:
        """As of `Engine`."""
        return self.mixer.exchange.living or (0, dict.fromkeys(self.alive, 0))

    def join(self, seconds: float) -> None:
        """Instead of `load_state_dict`: take the place of a learner that died.

        A first member whose others are to come later lets those that live help it.

        Raises:
            UserError: the strategy cannot let newcomers in.
        """
        if self._join is None:
            raise UserError(f"strategy {self.strategy.name} cannot go on with newcomers")
        steps, version = self.recorder.take_over(self.recorder.left()) if self.recorder else (0, 0)
        self._join(seconds=seconds, steps=steps, version=version)
        self.members.begin_alone()

    def take_place(self, state: dict[str, Any], *, source: int, record: Counted | None) -> None:
        """Instead of `load_state_dict`: go on from the checkpoint of another super-learner.

        `record` is what counts of the record of this one, which was dead then.
        """
        take_place(state, self.learner, self.recorder, source=source, record=record)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first step."""
        restore(state, self.learner, self.mixer, self.recorder)

    def load_weights(self, weights: Tensor) -> None:
        """Give the model other weights (after training: the mean of all learners)."""
        with torch.no_grad():
            self.learner.model.copy_(weights)
        self.learner.show()
