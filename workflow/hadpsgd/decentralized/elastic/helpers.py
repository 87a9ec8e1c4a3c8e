"""Members of a super-learner that has lost others: they help its first one.

The first member alone mixes and writes the record (`members`). The others let go of their engines
and connect to it. For each gradient it sends them its weights, and they send back the gradients of
their minibatches, and of some of those whose members are missing. It sums all of them in the order
of the members: the update is the one that all members would have made, bit for bit, whoever is
there. What one that is lost was to do, the first member does itself.

When new members have come, the helpers come back with them, as if they were new (`reunion`). If
nobody is missing, connections alone were lost: then the helpers are let go, so that others are
started in their places.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from hadpsgd.decentralized.core.engine import Backward, LostMemberError
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.elastic.membership import OVER, TooLateError
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.network.words import fill, hear, say, to_read

LOOK_SECONDS = 0.05
CONNECT_SECONDS = 3.0


class Takes(Protocol):
    """Adds the gradient of a member's minibatch; its loss, its frames. `of`: which minibatches."""

    def __call__(self, member: int, of: Sequence[int]) -> tuple[float, int]: ...


def may_help(place: Place) -> bool:
    """Whether a member can be of help when it has lost another one: not the first of two alone."""
    return place.size > 2 and place.member > 0


def shared_out(size: int, there: Sequence[int]) -> dict[int, list[int]]:
    """Who takes the gradients of which members: each its own, and those of the missing in turn.

    The first member comes last: it has the sum to make.
    """
    shares = {member: [member] for member in sorted(there)}
    helpers = sorted(there, reverse=True)
    missing = [member for member in range(size) if member not in shares]
    for number, member in enumerate(missing):
        shares[helpers[number % len(helpers)]].append(member)
    return shares


class Helpers:
    """The first member's side; all calls come from its compute thread.

    Args:
        meeting: of all processes.
        learner: of the first member.
    """

    def __init__(self, meeting: Meeting, learner: Learner) -> None:
        self.meeting = meeting
        self.learner = learner
        self._listener: socket.socket | None = None
        self._links: dict[int, socket.socket] = {}

    def open(self, life: int) -> None:
        """The others of this life of the super-learner are lost: let those that live connect."""
        if self._listener is not None or self.meeting.place.size == 2:
            return
        self._listener = socket.create_server((self.meeting.host, 0))
        self._listener.setblocking(False)
        address = self.meeting.host, self._listener.getsockname()[1]
        store = self.meeting.prefixed("helping")
        store.set(_key(self.meeting.place, life), json.dumps(address))

    def look(self) -> set[int]:
        """The members that help: those who have come since the last look, too."""
        while self._listener is not None:
            try:
                link = self._listener.accept()[0]
            except BlockingIOError:
                break
            link.settimeout(CONNECT_SECONDS)
            member = self._who(link)
            if member is None:
                link.close()
                continue
            link.settimeout(self.meeting.timeout.total_seconds())
            self._links[member] = link
        # who has not been asked says nothing: what comes is its end
        ended = to_read(self._links.values())
        for member in [m for m, link in self._links.items() if link.fileno() in ended]:
            self._drop(member)
        if len(self._links) == self.meeting.place.size - 1:
            for member in list(self._links):
                self._drop(member)
        return set(self._links)

    def _who(self, link: socket.socket) -> int | None:
        """Which member has connected, as it says; None: a stranger."""
        try:
            member = hear(link).get("member")
        except (OSError, ValueError):
            return None
        others = range(1, self.meeting.place.size)
        return member if member in others and member not in self._links else None

    def take(self, backward: Backward, of: Sequence[int]) -> tuple[list[Tensor], float, int]:
        """The gradients of all members' minibatches in their order, their mean loss, their frames.

        Args:
            backward: takes one here.
            of: tells the helpers which minibatches.
        """
        size = self.meeting.place.size
        shares = shared_out(size, [0, *self.look()])
        asked = [m for m in shares if m and self._ask(m, shares[m], of)]
        found = {member: self._own(member, backward) for member in shares[0]}
        for helper in asked:
            found |= self._answer(helper, shares[helper])
        found |= {m: self._own(m, backward) for m in range(size) if m not in found}
        rows, losses, frames = zip(*(found[m] for m in range(size)), strict=True)
        return list(rows), sum(losses) / size, sum(frames)

    def call(self, life: int) -> None:
        """New members are there: let the helpers come back with them."""
        for member, link in self._links.items():
            with contextlib.suppress(OSError):
                say(link, {"life": life})
            self._links[member].close()
        self._links.clear()
        self._close()

    def close(self, *, finished: bool | None) -> None:
        """This is the end; `finished`: whether all is done; None: this member fails."""
        self.look()
        for member, link in list(self._links.items()):
            if finished is not None:
                with contextlib.suppress(OSError):
                    say(link, {"life": 0, "finished": finished})
            self._drop(member)
        self._close()

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _drop(self, member: int) -> None:
        self._links.pop(member).close()

    def _own(self, member: int, backward: Backward) -> tuple[Tensor, float, int]:
        return _gradient(self.learner, backward, member)

    def _ask(self, helper: int, members: Sequence[int], of: Sequence[int]) -> bool:
        """Whether it has heard."""
        try:
            say(self._links[helper], {"members": members, "of": list(of)}, self.learner.model)
        except OSError:
            self._drop(helper)
            return False
        return True

    def _answer(self, helper: int, members: Sequence[int]) -> dict[int, tuple[Tensor, float, int]]:
        """Its gradients; none if it is lost."""
        found = {}
        try:
            for member in members:
                told = hear(self._links[helper])
                row = torch.empty_like(self.learner.gradient)
                fill(self._links[helper], row)
                found[member] = row, float(told["loss"]), int(told["frames"])
        except OSError:
            self._drop(helper)
        return found


@dataclass(frozen=True, kw_only=True)
class Word:
    """The first member's last one to a helper."""

    life: int
    """Of the super-learner to which it comes back; 0: the run ends."""
    finished: bool = False
    """Whether all is done then."""


def lets_in(meeting: Meeting) -> bool:
    """Whether the first member of this life of the super-learner waits for helpers."""
    return meeting.prefixed("helping").check([_key(meeting.place, meeting.life)])


def answers(meeting: Meeting) -> bool:
    """Whether somebody listens in the place of the first member of this super-learner."""
    address = meeting.lookup("address")(meeting.place.node * meeting.place.size)
    try:
        if address is not None:
            socket.create_connection(address, CONNECT_SECONDS).close()
    except OSError:
        return False
    return address is not None


class Helper:
    """A helper's side: connects to the first member of its super-learner.

    Args:
        meeting: of all processes.
        called_off: asked while the first member is waited for: whether another one has its place.

    Raises:
        LostMemberError: the first member is lost, too.
        TooLateError: the run is over.
    """

    def __init__(self, meeting: Meeting, called_off: Callable[[], bool] = lambda: False) -> None:
        place = meeting.place
        self.meeting = meeting
        store = meeting.prefixed("helping")
        first = meeting.lookup("address")(place.rank - place.member)
        deadline = time.monotonic() + meeting.timeout.total_seconds()
        key = _key(place, meeting.life)
        try:
            while not store.check([key]):
                if first is None or called_off() or time.monotonic() > deadline:
                    raise TimeoutError
                socket.create_connection(first, CONNECT_SECONDS).close()
                time.sleep(LOOK_SECONDS)
            address = tuple(json.loads(store.get(key)))
            self._link = socket.create_connection(address, CONNECT_SECONDS)
            self._link.settimeout(None)  # it may wait for new members, or pause
            say(self._link, {"member": place.member})
        except OSError:
            raise self._why() from None

    def serve(self, learner: Learner, take: Takes) -> Word:
        """Do as the first member says, until it has no use for this one.

        Args:
            learner: whose weights it fills.
            take: backward of a member's minibatch, of what the first one says.

        Raises:
            LostMemberError: the first member is lost, or lets this one go.
            TooLateError: the run is over.
        """
        try:
            with self._link:
                while "life" not in (told := hear(self._link)):
                    with torch.no_grad():
                        fill(self._link, learner.model)
                    learner.show()
                    for member in told["members"]:
                        row, loss, frames = _gradient(learner, partial(take, of=told["of"]), member)
                        say(self._link, {"loss": loss, "frames": frames}, row)
        except OSError:
            raise self._why() from None
        return Word(**told)

    def _why(self) -> RuntimeError:
        """What it means that there is no connection to the first member."""
        if self.meeting.prefixed("mixing").check([OVER]):
            return TooLateError(f"the run ended without learner {self.meeting.place.rank}")
        return LostMemberError("the first member of the super-learner is lost, or lets this one go")


def _gradient(learner: Learner, backward: Backward, member: int) -> tuple[Tensor, float, int]:
    """Of one minibatch, in a buffer of its own; loss and frames."""
    learner.flat.clear()
    loss, frames = backward(member)
    learner.collect()
    return learner.gradient.clone(), float(loss), frames


def _key(place: Place, life: int) -> str:
    return f"{place.node}/{life}"
