"""What learners that share their work last told each other: one key of the store for each.

Only who knows a learner's last words can put others in their place, so one that was buried, and
goes on, finds that out. No two claims are told in the same words: else others could put theirs in
place of words that they had read before it claimed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from hadpsgd.decentralized.core.stores import Store


@dataclass(frozen=True, kw_only=True)
class State:
    """What a learner last told."""

    generation: int
    """Which of the processes that were this learner."""
    done: int
    """Blocks that it, with its former selves, has done of those that were left at the start."""
    held: tuple[int, ...] = ()
    """Places of the blocks that it has claimed, or is about to, and not done."""
    number: int = 0
    """How often it has told: no two words of a process are alike."""
    buried: bool = False
    """Whether others say so of it, and of those before it: all of them are dead."""
    holder: str = ""
    """Of a buried one: what that process is called in claims, until what it held is offered."""


def owner_of(learner: int, *, generation: int) -> str:
    """What a process is called in claims."""
    return f"{learner}.{generation}"


class Words:
    """Those of all learners, and what one of them says.

    Args:
        store: shared by all.
        learner: this one.
        learners: how many there are.
    """

    def __init__(self, store: Store, *, learner: int, learners: int) -> None:
        self.store = store
        self.learner = learner
        self.learners = learners
        self._last = ""
        self._number = 0

    def former(self) -> State | None:
        """What was said last of this learner; `say` puts its own words in place of that."""
        self._last = self._of(self.learner)
        return _state(self._last)

    def say(self, state: State, *, anew: bool) -> bool:
        """Whether nobody wrote in this learner's place since it said something last.

        `anew`: it is about to claim. If not, and nothing is new, its last words stay as they are:
        who says the same again and again keeps nobody from burying it.
        """
        words = _text(replace(state, number=self._number))
        if anew or words != self._last:
            self._number += 1
            words = _text(replace(state, number=self._number))
        said = self._put(self.learner, self._last, words)
        if said:
            self._last = words
        return said

    def replace(self, learner: int, by: Callable[[State | None], State | None]) -> bool:
        """Put something in place of a learner's last words, None: nothing; whether it stood still.

        If not, it has said something else meanwhile.
        """
        words = self._of(learner)
        new = by(_state(words))
        return new is None or self._put(learner, words, _text(new))

    def all(self) -> list[State | None]:
        """What all learners last told; None for those who never have."""
        keys = [_key(learner) for learner in range(self.learners)]
        if self.store.check(keys):
            return [_state(value.decode()) for value in self.store.multi_get(keys)]
        return [_state(self._of(learner)) for learner in range(self.learners)]

    def _of(self, learner: int) -> str:
        key = _key(learner)
        return self.store.get(key).decode() if self.store.check([key]) else ""

    def _put(self, learner: int, old: str, new: str) -> bool:
        return self.store.compare_set(_key(learner), old, new).decode() == new


def _state(words: str) -> State | None:
    return State(**json.loads(words)) if words else None


def _text(state: State) -> str:
    return json.dumps(asdict(state))


def _key(learner: int) -> str:
    return f"state/{learner}"
