"""Do again what a record says: the same operations on the same bits, so the same weights.

One process holds all learners, or several share them out and send each other the snapshots that
mixes are made of. All walk through the events in one order, which the records alone decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from hadpsgd.decentralized.core.events import Join, Mix, Update
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sums import combine, mean_of
from hadpsgd.decentralized.network.rounding import Rounding, Sender, message_like
from hadpsgd.decentralized.record.entries import Entry, Fold, Forget
from hadpsgd.errors import UserError

Records = Mapping[int, Sequence[Entry]]
Snapshot = tuple[int, int, bool]
"""(node, version, whether as it was sent for a mix: rounded, if weights are)"""


def sources(node: int, entry: Entry) -> list[Snapshot]:
    """The snapshots that an event of `node` is made of."""
    match entry:
        case Mix(takes=takes, own=own) if takes:
            return [(node, own, True), *((j, version, True) for j, _, version in takes)]
        case Join(source=source, version=version):
            return [(source, version, False)]
    return []


def in_order(records: Records) -> Iterator[tuple[int, Entry, int]]:
    """(node, entry, version after it), each after all that it is made of.

    Raises:
        UserError: an event is made of a version that is in no record.
    """
    versions = dict.fromkeys(records, 0)
    places = dict.fromkeys(records, 0)
    waiting = [node for node in records if records[node]]
    while waiting:
        moved = False
        for node in list(waiting):
            entry = records[node][places[node]]
            if any(versions.get(j, -1) < version for j, version, _ in sources(node, entry)):
                continue
            moved = True
            places[node] += 1
            versions[node] += not isinstance(entry, Fold | Forget)
            yield node, entry, versions[node]
            if places[node] == len(records[node]):
                waiting.remove(node)
        if not moved:
            raise UserError(
                f"the record of learner {waiting[0]} needs a version that no record has",
                fix="Are the records of all learners there?",
            )


def forgets(entries: Sequence[Entry]) -> Iterator[int]:
    """Versions from which on a node owes nothing of what it sent before."""
    version = 0
    for entry in entries:
        version += not isinstance(entry, Fold | Forget)
        if isinstance(entry, Forget | Join):
            yield version


class Replay:
    """Replays records.

    Args:
        records: of all nodes.
        learners: those of this process, as they were at version 0.
        gradient: fills a learner's gradient buffer for its step, taken at its model; its norm.
        rounding: of weights on their way.
        average: mixes replace weights by the mean of all nodes (D1D, local).
        owner: which process holds a node.
        process: number of this process.
        kept: (node, version) of weights that are wanted when all is done, of nodes of this process.
    """

    def __init__(
        self,
        records: Records,
        learners: Mapping[int, Learner],
        gradient: Callable[[int, Learner], float],
        *,
        rounding: Rounding | None = None,
        average: bool = False,
        owner: Callable[[int], int] = lambda _: 0,
        process: int = 0,
        kept: Collection[tuple[int, int]] = (),
    ) -> None:
        self.records = records
        self.learners = learners
        self.gradient = gradient
        self.average = average
        self.owner = owner
        self.process = process
        self.kept: dict[tuple[int, int], Tensor] = {}
        """Copies of the weights that are wanted, as far as they have been made."""
        self._wanted = frozenset(kept)
        self._uses = Counter(
            (snapshot, owner(node))
            for node, entries in records.items()
            for entry in entries
            for snapshot in sources(node, entry)
        )
        self._readers: defaultdict[Snapshot, set[int]] = defaultdict(set)
        for snapshot, reader in self._uses:
            self._readers[snapshot].add(reader)
        self._snapshots: dict[Snapshot, Tensor] = {}
        self._senders = {
            node: Sender(rounding, learner.weights)
            for node, learner in learners.items()
            if rounding is not None
        }
        self._forgets = {node: deque(forgets(records[node])) for node in self._senders}
        self._sending: list[tuple[dist.Work, Tensor]] = []
        self._norms: dict[int, float] = {}
        self._steps = {
            node: sum(isinstance(entry, Update) for entry in entries)
            for node, entries in records.items()
        }

    def run(self, told: Callable[[int], None] = lambda _: None) -> None:
        """Do all events; `told` hears how many are done."""
        for node in self.records:
            self._made(node, 0)
            self._read_ahead(node)
        for count, (node, entry, version) in enumerate(in_order(self.records)):
            if node in self.learners:
                self._do(node, entry)
            if not isinstance(entry, Fold | Forget):
                self._made(node, version)
            told(count + 1)
        for work, _ in self._sending:
            work.wait()
        for learner in self.learners.values():
            learner.settle()

    def _do(self, node: int, entry: Entry) -> None:
        learner = self.learners[node]
        match entry:
            case Update():
                self._update(node, learner, entry)
            case Mix():
                self._mix(node, learner, entry)
            case Fold():
                learner.settle()
            case Join():
                learner.join(entry, self._snapshots[entry.source, entry.version, False])
        for snapshot in sources(node, entry):
            self._used(snapshot)

    def _update(self, node: int, learner: Learner, update: Update) -> None:
        norm = self._norms.pop(node) if learner.late else self.gradient(node, learner)
        if update.read != learner.read:
            raise UserError(f"learner {node}, step {update.step}: the record contradicts itself")
        learner.update(rate=update.rate, norm=norm, skip=update.rate == 0.0)
        self._read_ahead(node)

    def _read_ahead(self, node: int) -> None:
        """A late learner's model moves on before its gradient is applied: take it at once."""
        learner = self.learners.get(node)
        if learner is not None and learner.late and learner.steps < self._steps[node]:
            self._norms[node] = self.gradient(node, learner)

    def _mix(self, node: int, learner: Learner, mix: Mix) -> None:
        if not mix.takes:
            learner.sit_out(mix)
            return
        rows = {j: self._snapshots[j, version, True] for j, _, version in mix.takes}
        own = self._snapshots[node, mix.own, True]
        out = torch.empty_like(own)
        if self.average:
            rows[node] = own
            mean_of([rows[j] for j in sorted(rows)], out)
            learner.replace(mix, out)
        else:
            total = sum(share for _, share, _ in mix.takes)
            combine(own, total, ((rows[j], share) for j, share, _ in mix.takes), out)
            learner.mix(mix, out)

    def _made(self, node: int, version: int) -> None:
        """A version of a node: keep it if a mix here needs it, pass it on to those that do."""
        if node in self.learners and (node, version) in self._wanted:
            out = torch.empty_like(self.learners[node].weights)
            self.learners[node].snapshot(out)
            self.kept[node, version] = out.cpu()
        for sent in (False, True):
            snapshot = node, version, sent
            readers = self._readers.get(snapshot, set())
            if node in self.learners and readers:
                out = torch.empty_like(self.learners[node].weights)
                self.learners[node].snapshot(out)
                if sent and node in self._senders:
                    self._round(node, version, out)
                by_host = out.cpu()  # processes may share a GPU
                for reader in sorted(readers - {self.process}):
                    work = dist.isend(by_host, reader)
                    assert work is not None
                    self._sending.append((work, by_host))
            elif self.process in readers:
                like = next(iter(self.learners.values())).weights
                came = torch.empty_like(like, device="cpu")
                dist.recv(came, self.owner(node))
                out = came.to(like.device)
            if self.process in readers:
                self._snapshots[snapshot] = out
        self._sending = [(work, out) for work, out in self._sending if not work.is_completed()]

    def _round(self, node: int, version: int, weights: Tensor) -> None:
        """Make of a version what was sent of it; every message that anybody mixed in counted."""
        sender, forgets_ = self._senders[node], self._forgets[node]
        while forgets_ and forgets_[0] <= version:
            forgets_.popleft()
            sender.forget()
        sender.send(weights, message_like(weights, sender.rounding))
        sender.count()

    def _used(self, snapshot: Snapshot) -> None:
        self._uses[snapshot, self.process] -= 1
        if not self._uses[snapshot, self.process]:
            del self._snapshots[snapshot]
