"""How new members come to the first member of a super-learner, which went on without others.

1. The new ones say that they are there, and wait. The first one looks for them between gradients,
   and calls them when all are there (`Reunion.there`, `let_in`). Those of the former members that
   help it (`helpers`) are there, and come back with the new ones, as these do.
2. All make a new process group, and wait for each other in it. Nothing has changed by then: if a
   new member dies, the first one stays alone.
3. The first one's communication thread proposes a change of the membership, which says that the
   super-learner is whole again. Its compute thread waits for that.
4. The new ones take its weights, the optimiser's state and its counters. All begin with the round
   that was decided on, and with the gradient that comes next.

So the update after that is the one that the former members would have made, bit for bit, and
nothing of it is in the record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from hadpsgd.decentralized.core.engine import Backward, LostMemberError
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sums import mean_of
from hadpsgd.decentralized.elastic.helpers import Helpers
from hadpsgd.decentralized.elastic.member_mixer import ElasticMemberMixer
from hadpsgd.decentralized.elastic.membership import OVER, TooLateError
from hadpsgd.decentralized.network.collectives import Group, losses
from hadpsgd.decentralized.network.rendezvous import Meeting, process_group

LOOK_SECONDS = 0.05


def group_name(node: int, *, life: int) -> str:
    """Of the process group of a super-learner's members in one of its lives."""
    return f"super-learner/{node}/{life}"


def wait_to_be_called(meeting: Meeting) -> None:
    """As a new member, before anything that others wait for: until the first one calls.

    Raises:
        TooLateError: the run is over.
        TimeoutError: it does not call.
    """
    place, store = meeting.place, meeting.prefixed("reunion")
    store.set(_there(place.rank), str(meeting.life))
    over, called = meeting.prefixed("mixing"), _called(place.node, life=meeting.life)
    deadline = time.monotonic() + meeting.timeout.total_seconds()
    while not store.check([called]):
        if over.check([OVER]):
            raise TooLateError(f"the run ended before learner {place.rank} came back")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the first member of super-learner {place.node} does not call")
        time.sleep(LOOK_SECONDS)


class Reunion:
    """One member's side.

    Args:
        meeting: of all processes.
        learner: of this member.
        mixer: its own.
        group: the members, for the compute thread.
    """

    def __init__(
        self, meeting: Meeting, learner: Learner, mixer: ElasticMemberMixer, group: Group
    ) -> None:
        self.meeting = meeting
        self.learner = learner
        self.mixer = mixer
        self.group = group
        self._life = meeting.life
        self._helpers = Helpers(meeting, learner)

    def left(self) -> None:
        """As the first member: the others are lost; those that live may help."""
        self._helpers.open(self._life)

    def take(self, backward: Backward, of: Sequence[int]) -> tuple[float, int]:
        """As the first member, without others: the mean of all members' gradients.

        See `Helpers.take`.
        """
        rows, loss, frames = self._helpers.take(backward, of)
        mean_of(rows, self.learner.gradient)
        return loss, frames

    def close(self, *, finished: bool | None) -> None:
        """See `Helpers.close`."""
        self._helpers.close(finished=finished)

    def there(self) -> int:
        """As the first member: which life the new members are, if all are there; else 0."""
        store, place = self.meeting.prefixed("reunion"), self.meeting.place
        helping = self._helpers.look()
        keys = [_there(rank) for rank in place.others if rank % place.size not in helping]
        if not store.check(keys):
            return 0
        lives = {int(store.get(key)) for key in keys}
        return lives.pop() if len(lives) == 1 and max(lives) > self._life else 0

    def let_in(self, life: int) -> bool:
        """As the first member, alone and between gradients; False if nothing came of it.

        One of them died meanwhile, or the run ends.
        """
        self._life = life
        self._helpers.call(life)
        learner, mixer, place = self.learner, self.mixer, self.meeting.place
        self.meeting.prefixed("reunion").set(_called(place.node, life=life), "")
        try:
            with losses():
                if dist.is_initialized():
                    dist.destroy_process_group()
                name = group_name(place.node, life=life)
                made = process_group(
                    name,
                    self.meeting,
                    rank=place.member,
                    size=place.size,
                    by_host=not learner.weights.is_cuda,
                )
            self.group.renew(dist.group.WORLD, made)
            self.group.run(dist.barrier)
        except LostMemberError:
            self.group.abandon()
            self.left()
            return False
        if not mixer.reunite():
            return False
        state = {
            "epoch": mixer.exchange.membership.epoch,
            "rests": mixer.rests,
            "steps": learner.steps,
            "rounds": learner.rounds,
            "version": learner.version,
            "optimiser": learner.sgd.state_dict(),
        }
        try:
            self._pass_on(state)
        except LostMemberError as lost:
            mixer.go_alone(lost)
            self.left()
            return False
        return True

    def come_back(self) -> None:
        """As a new member, which was called.

        Raises:
            TooLateError: the run is over.
            LostMemberError: the first member, or another one, died.
        """
        learner = self.learner
        try:
            self.group.run(dist.barrier)
            state = self._pass_on(None)
        except LostMemberError:
            if self.meeting.prefixed("mixing").check([OVER]):
                rank = self.meeting.place.rank
                raise TooLateError(f"the run ended before learner {rank} came back") from None
            raise
        if state["optimiser"]:
            learner.sgd.load_state_dict(state["optimiser"])
        learner.restore(
            steps=state["steps"],
            rounds=state["rounds"],
            version=state["version"],
            read=state["version"],
        )
        self.mixer.enter(state["epoch"], rests=state["rests"])

    def _pass_on(self, state: dict[str, Any] | None) -> dict[str, Any]:
        """From the first member, which has it, to all, with the weights and the momentum.

        Raises:
            LostMemberError: one of them died.
        """
        passed: list[Any] = [state]

        def pass_on() -> None:
            dist.broadcast_object_list(passed, src=0)
            with torch.no_grad():
                dist.broadcast(self.learner.weights, src=0)
                dist.broadcast(self.learner.velocity, src=0)

        self.group.run(pass_on)
        told: dict[str, Any] = passed[0]
        return told


def _there(rank: int) -> str:
    return f"there/{rank}"


def _called(node: int, *, life: int) -> str:
    return f"called/{node}/{life}"
