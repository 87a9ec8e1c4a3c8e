"""Pauses that all learners make before the same round, agreed on without a barrier.

Somebody picks a round far enough ahead; the news travels with the weights, and the schedule says
how fast. When a learner reaches that round, every mix before it is done and none after it begun,
anywhere: no message is in flight, and the learners' states together are a consistent checkpoint.
The same way spreads who has finished, until somebody knows that all have and picks the last round.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.topology.mixing import MixingSchedule

NEVER = -1
FAR_ROUNDS = 1


def living(schedule: MixingSchedule) -> Sequence[int]:
    """The nodes that take part."""
    alive: Sequence[int] = getattr(schedule, "alive", range(schedule.learners))
    return alive


def horizon(schedule: MixingSchedule, *, source: int, first: int) -> int:
    """The first round before which everybody knows what `source` says from round `first` on."""
    knows = {source}
    round_ = first
    while len(knows) < len(living(schedule)):
        current = schedule.round(round_)
        knows |= {i for j in knows for i in current.sends(j)}
        round_ += 1
    return round_


class Coordination:
    """What one learner knows of the next pause, of the end and of who has finished.

    Of two pauses, or two ends, picked at once the earlier one counts: everybody hears of it in
    time, since nobody ever tells of a later one instead.
    """

    def __init__(self, schedule: MixingSchedule, node: int) -> None:
        self.schedule = schedule
        self.node = node
        self._lock = threading.Lock()
        self._pause = self._stop = NEVER
        self._finished = 0
        self._spread = 0
        self._reported = (False, False, 0)

    def request_pause(self, round_: int, *, now: bool = False) -> None:
        """Pick a pause; `round_` is the next round that this learner starts.

        `now`: everybody asks at this same moment, so nobody need be told; a later pause that was
        picked before may never come, and gives way.
        """
        with self._lock:
            self._pause = self._pick(self._pause, round_, now)

    def request_stop(self, round_: int, *, now: bool = False) -> None:
        """Pick the last round; arguments as of `request_pause`."""
        with self._lock:
            self._stop = self._pick(self._stop, round_, now)

    def _pick(self, picked: int, round_: int, now: bool) -> int:
        if now:
            return round_ if picked == NEVER else min(picked, round_)
        return horizon(self.schedule, source=self.node, first=round_) if picked == NEVER else picked

    def finish(self, round_: int) -> None:
        """This learner has applied its last gradient."""
        self._learn_of(1 << self.node, round_)

    def heard(self, note: Note, round_: int) -> None:
        """Take in a partner's note; `round_` is the next round that this learner starts."""
        with self._lock:
            self._pause = _earlier(self._pause, note.pause, round_)
            self._stop = _earlier(self._stop, note.stop, round_)
        self._learn_of(note.finished, round_)

    def pauses(self, round_: int) -> bool:
        """Whether all pause (or end) before this round."""
        return round_ in (self._pause, self._stop)

    def stops(self, round_: int) -> bool:
        """Whether they end there."""
        return round_ == self._stop

    def passed(self) -> None:
        """The pause is over."""
        with self._lock:
            self._pause = NEVER

    def note(self, *, version: int, steps: int) -> Note:
        """What there is to tell."""
        with self._lock:
            return Note(
                version=version,
                steps=steps,
                pause=self._pause,
                stop=self._stop,
                finished=self._finished,
            )

    def urgent(self, round_: int) -> bool:
        """Whether round `round_` should not wait: a pause is near, or there is news to tell.

        Those who have finished start rounds for this alone; else nobody might ever tell. Who learns
        of news mixes until everybody could know it of him: some of his next rounds may be idle, or
        with those who know.
        """
        return round_ < max(self._spread, self._pause, self._stop)

    def distant(self, round_: int) -> bool:
        """Whether several rounds are to come before a pause or an end that is picked, or before
        everybody can know who has finished: in a long ring news travel one learner a round.
        """
        return max(self._spread, self._pause, self._stop) > round_ + FAR_ROUNDS

    def state(self) -> tuple[bool, bool, int]:
        """Whether a pause and an end are picked, and who has finished: what this learner reports
        when the membership changes.
        """
        with self._lock:
            self._reported = (self._pause != NEVER, self._stop != NEVER, self._finished)
            return self._reported

    def begin_anew(
        self,
        schedule: MixingSchedule,
        round_: int,
        *,
        pause: bool,
        stop: bool,
        finished: int,
        first: int = 0,
    ) -> None:
        """Other learners, from round `round_` on; all say the same, so what was picked is now.

        `first`: rounds that come before it.

        What this learner has picked since it reported the others do not know: it picks it again.
        """
        with self._lock:
            paused, stopped, known = self._reported
            wants_pause = self._pause != NEVER and not paused
            wants_stop = self._stop != NEVER and not stopped
            news = self._finished & ~known
            self.schedule = schedule
            self._pause = round_ + first if pause else NEVER
            self._finished = finished
            everybody = all(finished >> i & 1 for i in living(schedule))
            self._stop = round_ + first if stop or everybody else NEVER
            self._spread = round_
        self._learn_of(news, round_)
        if wants_pause:
            self.request_pause(round_)
        if wants_stop:
            self.request_stop(round_)

    @property
    def all_finished(self) -> bool:
        """Whether everybody is known to have applied its last gradient."""
        return all(self._finished >> i & 1 for i in living(self.schedule))

    def _learn_of(self, finished: int, round_: int) -> None:
        with self._lock:
            if finished & ~self._finished:
                self._finished |= finished
                self._spread = horizon(self.schedule, source=self.node, first=round_)
        if self.all_finished:
            self.request_stop(round_)


def _earlier(mine: int, theirs: int, next_round: int) -> int:
    """The earlier of two rounds, where one gone by (or NEVER) says nothing."""
    return min((r for r in (mine, theirs) if r >= next_round), default=NEVER)
