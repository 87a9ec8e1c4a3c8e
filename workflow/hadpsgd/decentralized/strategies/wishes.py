"""Wishes to pause and to stop, which the members of a super-learner must hear of together.

They travel with the gradients: all members see the sum of them at the same update.
"""

from __future__ import annotations

from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.strategies.mixer import Mixer
from hadpsgd.decentralized.strategies.needs import Reduces


class Wishes:
    """Those of one learner.

    Args:
        learner: with whose gradient they travel.
        mixer: passes on what all members have heard.
        reducer: adds the gradients up.
        place: of the learner.
    """

    def __init__(self, learner: Learner, mixer: Mixer, reducer: Reduces, place: Place) -> None:
        self.learner = learner
        self.mixer = mixer
        self.reducer = reducer
        self.place = place
        self.pause = self.stop = False
        """Safe to set in a signal handler."""
        self._everyone = reducer.group.size == place.world
        self._put = False, False
        """Those that travel with the gradient under way."""

    def put(self) -> None:
        """Beside the gradient that is about to be added up."""
        self._put = self.pause, self.stop
        if self.reducer.active:
            control = self.learner.flat.control
            for place, wish in enumerate(self._put):
                control[place : place + 1].fill_(wish)  # a GPU need not be waited for
        self.pause = self.stop = False

    def take(self) -> None:
        """Pass on what came with the sum."""
        pause, stop = self._put
        if self.reducer.active:
            pause, stop = map(bool, self.learner.flat.control[:2].tolist())
        self._put = False, False
        now = self._everyone and (self.reducer.active or self.place.world == 1)
        with self.learner.changed:
            if pause:
                self.mixer.request_pause(now=now)
            if stop:
                self.mixer.request_stop(now=now)

    def keep(self) -> None:
        """The gradient under way came to nothing: they go with the next one."""
        self.pause |= self._put[0]
        self.stop |= self._put[1]
