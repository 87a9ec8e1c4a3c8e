"""Pauses among learners that share no rounds: each tells all others when it has fallen quiet.

Pauses are numbered. Who wants one begins no exchange any more, brings the one under way to its end
and tells everybody that it is quiet; who hears so does the same. Once a learner has heard it of
everybody, nothing is in flight anywhere and no mix can come before all have gone on: the learners'
states together are a consistent checkpoint. Whoever goes on first is refused by those that have
not, so nobody need wait for the slowest to save.

Each tells when its last gradient is applied; who knows it of all wants the end, which is a pause
that somebody wanted as the last.
"""

from __future__ import annotations

from collections import defaultdict

from typing_extensions import override

from hadpsgd.decentralized.core.coordination import Coordination, living
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.topology.mixing import MixingSchedule


class Quiet(Coordination):
    """A `Coordination` without rounds; numbers of rounds that it is given say nothing."""

    def __init__(self, schedule: MixingSchedule, node: int) -> None:
        super().__init__(schedule, node)
        self.number = 0
        """Of the next pause."""
        self._wants_pause = self._wants_stop = False
        self._notes: defaultdict[int, dict[int, Note]] = defaultdict(dict)
        self._untold = False

    @override
    def request_pause(self, round_: int, *, now: bool = False) -> None:
        """Want a pause."""
        with self._lock:
            self._wants_pause = True

    @override
    def request_stop(self, round_: int, *, now: bool = False) -> None:
        """Want the end."""
        with self._lock:
            self._wants_stop = True

    @property
    def wanted(self) -> bool:
        """Whether this learner, or one that it has heard, wants the next pause."""
        with self._lock:
            return self._wants_pause or self._wants_stop or bool(self._notes[self.number])

    def quiet_note(self, version: int) -> Note:
        """What this learner tells when it falls quiet, at a version of its weights."""
        with self._lock:
            return Note(
                version=version,
                pause=self.number,
                stop=int(self._wants_stop),
                finished=self._finished,
            )

    def fallen_quiet(self, node: int, note: Note) -> None:
        """A learner begins no exchange and has none under way: so it tells, this one included."""
        with self._lock:
            self._notes[note.pause][node] = note
        self._learn_of(note.finished, 0)

    def is_quiet(self, node: int) -> bool:
        """Whether a learner has fallen quiet for this pause, so far as is known here."""
        with self._lock:
            return node in self._notes[self.number]

    @override
    def pauses(self, round_: int) -> bool:
        """Whether all are quiet."""
        with self._lock:
            return self._notes[self.number].keys() >= set(living(self.schedule))

    @override
    def stops(self, round_: int) -> bool:
        """Whether the pause that all have reached is the end: somebody wanted it."""
        with self._lock:
            return any(note.stop > 0 for note in self._notes[self.number].values())

    @property
    def moment(self) -> int:
        """At a pause: the versions of all learners when they fell quiet, added up."""
        with self._lock:
            return sum(note.version for note in self._notes[self.number].values())

    @override
    def passed(self) -> None:
        """The pause is over; a wish for one that came meanwhile is fulfilled."""
        with self._lock:
            del self._notes[self.number]
            self.number += 1
            self._wants_pause = False

    @override
    def heard(self, note: Note, round_: int) -> None:
        """Take in what a partner tells beside its weights."""
        self._learn_of(note.finished, round_)

    @override
    def finish(self, round_: int) -> None:
        """This learner has applied its last gradient."""
        self._untold = True
        self._learn_of(1 << self.node, round_)

    def news(self) -> Note | None:
        """That this learner has finished, if the others have not been told; not while quiet."""
        with self._lock:
            if not self._untold or self.node in self._notes[self.number]:
                return None
            self._untold = False
            return Note(finished=self._finished)

    @property
    @override
    def all_finished(self) -> bool:
        """Whether everybody has; at a pause, as all learners there know it alike."""
        with self._lock:
            finished, notes = self._finished, self._notes[self.number]
            if self.node in notes:
                finished = 0
                for note in notes.values():
                    finished |= note.finished
            return all(finished >> i & 1 for i in living(self.schedule))

    def without(self, node: int) -> None:
        """A learner has died."""
        alive = set(living(self.schedule)) - {node}
        with self._lock:
            self.schedule = getattr(self.schedule, "base", self.schedule).over(alive)
        self._learn_of(0, 0)

    @override
    def _learn_of(self, finished: int, round_: int) -> None:
        with self._lock:
            self._finished |= finished
            if all(self._finished >> i & 1 for i in living(self.schedule)):
                self._wants_stop = True
