"""A super-learner as one of its members sees it: all share each gradient, or one goes on alone.

Members that fail, and those that come in their places, concern this alone: the learner mixes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

from hadpsgd.decentralized.core.engine import Backward, LostMemberError
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.strategies.finite import norm_of
from hadpsgd.decentralized.strategies.mixer import Mixer
from hadpsgd.decentralized.strategies.needs import Reduces, Reunites
from hadpsgd.decentralized.strategies.strategy import Strategy
from hadpsgd.decentralized.strategies.wishes import Wishes
from hadpsgd.errors import UserError


class SuperLearner:
    """Of one learner, or more.

    Args:
        learner: this member's.
        strategy: of all.
        mixer: this member's.
        reducer: adds the members' gradients up.
        place: of this member.
        reunion: how new members come to the first one; None where it does not go on alone.
    """

    def __init__(
        self,
        learner: Learner,
        strategy: Strategy,
        mixer: Mixer,
        reducer: Reduces,
        place: Place,
        reunion: Reunites | None,
    ) -> None:
        self.learner = learner
        self.strategy = strategy
        self.mixer = mixer
        self.reducer = reducer
        self.place = place
        self.wishes = Wishes(learner, mixer, reducer, place)
        """Travel with the gradients."""
        self._reunion = reunion

    def choose_reduction(self) -> None:
        """Whether the next gradient is shared (its hooks must know before backward)."""
        size = self.reducer.group.size
        inside = self.place.size > 1
        shared = inside or self.learner.steps < self.strategy.shared_steps
        self.reducer.active = size > 1 and shared and not self.alone

    @property
    def alone(self) -> bool:
        """Whether this member goes on without the others."""
        return self.mixer.alone

    def take(self, backward: Backward, of: Sequence[int]) -> tuple[SupportsFloat, int]:
        """This member's gradient; its loss, and the frames that were seen.

        A first member that has lost others takes the gradients of all, with those that help it:
        `of` tells them which. They are summed in the order of the members.
        """
        if self._reunion is None or not self.alone:
            return backward(self.place.member)
        if self.reducer.active:  # the others were lost between gradients
            self._leave_others()
        return self._reunion.take(backward, of)

    def collect(self) -> None:
        """After a forward and backward pass: bring into the buffer what they left.

        Raises:
            UserError: somebody changed gradients that are on their way already.
        """
        self.reducer.check()
        self.learner.collect()
        self.reducer.collected()

    def share(self) -> None:
        """What was collected becomes the mean over the members, and their wishes are told.

        Raises:
            LostMemberError: others are gone.
        """
        self.wishes.put()
        self.reducer.finish(self.mixer.decide)

    def norm(self, *, skip_not_finite: bool) -> tuple[float, bool]:
        """Of the gradient that was shared; whether it must be skipped. See `norm_of`."""
        return norm_of(self.learner, self.reducer, self.place, skip_not_finite=skip_not_finite)

    def go_alone(self, lost: LostMemberError) -> None:
        """After `take` or `share` raised that: the gradient is to be taken again.

        Raises:
            LostMemberError: this member cannot go on without the others.
        """
        if self.alone and not self.reducer.active:
            raise lost
        self.mixer.go_alone(lost)
        self._leave_others()

    def begin_alone(self) -> None:
        """As a first member that has come, but whose others are to come later: some may help."""
        if self._reunion is not None and self.alone:
            self._reunion.left()

    def let_in(self) -> int:
        """Alone and between gradients: let new members in, if all are there.

        Which life of the super-learner they are; 0: nobody came. They take the gradient that comes
        next with this one, and have its weights and the optimiser's state.
        """
        if self._reunion is None or not self.alone or self.mixer.finished:
            return 0
        if self.reducer.active:  # the others were lost between gradients
            self._leave_others()
        life = self._reunion.there()
        if life:
            self.mixer.settle()  # what was decided on with those that are lost is done
            life = life if self._reunion.let_in(life) else 0
            self.choose_reduction()
        return life

    def come_back(self) -> None:
        """As a new member of a super-learner whose first one lives.

        Raises:
            UserError: the strategy has no such thing.
            TooLateError: the run is over.
            LostMemberError: the first one, or another new one, died.
        """
        if self._reunion is None:
            raise UserError(f"in {self.strategy.name} members do not go on alone")
        self._reunion.come_back()

    def close(self, error: BaseException | None) -> None:
        """Part with the others at the end; `error`: with which this member fails."""
        if self._reunion is not None:
            if isinstance(error, RuntimeError):  # who waits for this one hears that it goes
                self.reducer.abandon()
            self._reunion.close(finished=self.mixer.finished if error is None else None)
        self.reducer.close()

    def _leave_others(self) -> None:
        """Nothing of the gradient that was begun with them counts."""
        self.reducer.abandon()
        if self._reunion is not None:
            self._reunion.left()
        self.wishes.keep()
        self.learner.collect()
        self.learner.flat.clear()
