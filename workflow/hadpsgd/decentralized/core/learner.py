"""A learner's weights and the only things that ever happen to them: update, snapshot, mix.

The engine's threads, the replay of a record and the virtual clock all call these methods; equal
calls in equal order give equal bits. Two threads may call them: each is atomic.

A mix is a sum added to the weights of the moment, delta = sum_j T_j (x_j - x_i) of snapshots x.
It commutes with updates, so gradients that land between a snapshot and its mix are kept whole; the
deltas of all learners sum to zero, so their mean is kept; and the result is W T - a g(Phi) with Phi
older than W (arXiv 2002.01119, Eq. 2). While a gradient is computed its weights must stand still:
a mix waits in `pending`, which belongs to the learner's weights for everybody else, and is folded
in at the next update.

What is long and changes nothing for others is only begun under the lock: a snapshot, and a mix that
is added to one that waits. It is done outside, piece by piece. Whoever would change what it reads
does the pieces that are left first: a snapshot holds one version, whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hadpsgd.decentralized.core.buffers import Flat
from hadpsgd.decentralized.core.events import Event, Join, Mix, Update
from hadpsgd.decentralized.core.optimiser import Optimiser
from hadpsgd.decentralized.core.outer import Outer
from hadpsgd.decentralized.core.pieces import Pieces
from hadpsgd.decentralized.core.threads import Condition, RealClock


class Learner:
    """The state of one learner (a super-learner's members hold equal copies).

    Args:
        flat: the module's buffers.
        sgd: how a gradient becomes an update (any optimiser).
        outer: what a mix makes of the weights; for strategies that mix between gradients.
        late: the model stays at the last average while updates go to the weights (D1D): its
            gradient is exactly one round late.
        record: is told of every event, in order.
        folded: is told when mixes are folded in, or a round without partners is counted, outside of
            an update.
        changed: held by every method and notified by each; wait on it for the counters.
    """

    def __init__(
        self,
        flat: Flat,
        sgd: Optimiser,
        *,
        late: bool = False,
        outer: Outer | None = None,
        record: Callable[[Event], None] | None = None,
        folded: Callable[[], None] | None = None,
        changed: Condition | None = None,
    ) -> None:
        self.flat = flat
        self.sgd = sgd
        self.model = flat.weights
        self.apart = late or (outer is not None and outer.biased)
        """Whether the model holds other weights than `weights`."""
        self.weights = flat.weights.clone() if self.apart else flat.weights
        self.gradient = flat.gradient
        self.velocity = flat.weights.new_zeros(flat.elements if sgd.has_velocity else 0)
        self.pending: Tensor | None = None
        self.late = late
        self.outer = outer
        self.record = record
        self.folded = folded
        self.steps = 0
        """Updates so far."""
        self.rounds = 0
        """Mixes so far: the number of the next round."""
        self.version = 0
        """Updates and mixes so far."""
        self.read = 0
        """Version that the model holds: where the gradient under way is taken."""
        self.changed = changed or RealClock().condition()
        self._averaged = 0
        self._phi: Tensor | None = None  # where the gradient was taken, if the model has moved on
        self._spare: Tensor | None = None
        self._under_way: list[Pieces] = []
        """Begun outside of the lock, and not known to be done."""
        self._fence = torch.cuda.Event() if flat.weights.is_cuda else None
        self._statistics = [slot.parameter.detach().clone() for slot in flat.statistics]
        """As they were when the gradient began."""

    def update(
        self, *, rate: float, norm: float = 0.0, skip: bool = False, block: int | None = None
    ) -> int:
        """Apply the gradient, fold mixes in, zero the gradient; the update's staleness.

        `block` is what it was taken on, where learners share their work. `norm` is the gradient's,
        for clipping. `skip`, or a rate of 0, leaves the gradient out, of the velocity too (recorded
        as an update of rate 0).
        """
        with self._alone():
            skip = skip or rate == 0
            event = Update(step=self.steps, read=self.read, rate=0.0 if skip else rate, block=block)
            staleness = self.version - self.read
            if not skip:
                self._apply(rate, norm)
            self._phi = None
            self._happened(event)
            self.steps += 1
            if self.late:
                self.read = self._averaged
            else:
                self._fold()
            self.flat.clear()
            self._moved()
        return staleness

    def collect(self) -> None:
        """After backward: bring the gradient into the buffer, with what was added to statistics."""
        with self._alone():
            self.flat.collect()
            for slot, before in zip(self.flat.statistics, self._statistics, strict=True):
                slot.of(self.gradient).add_(slot.parameter - before)
                slot.parameter.copy_(before)

    def show(self) -> None:
        """Let the module have the model's weights, after they were filled from outside."""
        with self._alone():
            self._moved()

    def snapshot(self, out: Tensor, part: slice = slice(None)) -> int:
        """Copy the weights (or a part), pending mixes included, into `out`; their version."""
        version, copying = self.begin_snapshot(out, part)
        copying.finish()
        return version

    def begin_snapshot(self, out: Tensor, part: slice = slice(None)) -> tuple[int, Pieces]:
        """As `snapshot`, of the weights of this moment; `out` holds them when the pieces are done.

        Who waits for them need not hold the lock.
        """
        with self._alone():
            first, pending, held = part.indices(len(self.weights))[0], self.pending, self._held()

            def take(weights: Tensor, begin: int, end: int) -> None:
                into, where = out[begin - first : end - first], slice(begin, end)
                if pending is None:
                    into.copy_(weights[where])
                else:
                    torch.add(weights[where], pending[where], out=into)

            def copy(piece: slice) -> None:
                begin, end = first + piece.start, first + piece.stop
                middle = min(max(begin, len(held)), end)
                take(held, begin, middle)
                take(self.weights, middle, end)

            return self.version, self._begin(Pieces(len(out), copy))

    def mix(self, mix: Mix, delta: Tensor) -> Tensor:
        """Add `delta` to the weights; returns a buffer of its shape for the next delta."""
        with self._alone():
            if self.outer is not None:
                self._replace(mix, delta.add_(self.weights))
                return delta
            pending, adding = self.pending, None
            if pending is None:
                self.pending = delta
                delta = self._spare if self._spare is not None else torch.empty_like(delta)
                self._spare = None
            else:
                adding = self._begin(
                    Pieces(len(delta), lambda piece: pending[piece].add_(delta[piece]))
                )
            self._mixed(mix)
        if adding is not None:
            adding.finish()
        return delta

    def sit_out(self, mix: Mix) -> None:
        """A round without partners."""
        with self._alone():
            if self.outer is not None:
                self._replace(mix, self.weights.clone())
            else:
                self._mixed(mix)

    def skip_to(self, round_: int) -> None:
        """Go on with another round: the others have got further."""
        with self._alone():
            self.rounds = round_

    def replace(self, mix: Mix, average: Tensor) -> None:
        """A mix that all learners share: the weights become `average`, or what `outer` makes of it.

        `average` is used up.
        """
        with self._alone():
            self._replace(mix, average)

    def join(self, join: Join, weights: Tensor) -> None:
        """Begin (again) from another learner's weights, momentum at zero."""
        with self._alone():
            self.weights.copy_(weights)
            self.velocity.zero_()
            self.pending = None  # mixes of its former self, in a replay
            self._happened(join)
            self.read = self.version
            self._moved()

    def restore(self, *, steps: int, rounds: int, version: int, read: int) -> None:
        """Counters of a checkpoint; the buffers are filled by the caller."""
        with self._alone():
            self.steps, self.rounds, self.version = steps, rounds, version
            self.read = self._averaged = read
            self._moved()

    def settle(self) -> None:
        """Fold pending mixes in; only between gradients."""
        with self._alone():
            if self.late:
                return
            # without a pending mix, too: a round without partners is read from now on
            if self.folded is not None and self.read != self.version:
                self.folded()
            self._fold()
            self._moved()

    def order_streams(self) -> None:
        """On a GPU: what this thread asks for next comes after all that others asked for before
        their last call of this or another method; and the other way round.

        For what the methods do not see: a delta made on one thread's stream, used on another's.
        """
        if self._fence is not None:
            with self._alone():
                pass

    def _apply(self, rate: float, norm: float) -> None:
        part, phi = self.flat.learnt, self.model if self._phi is None else self._phi
        self.sgd.update(
            self.weights[part],
            self.gradient[part],
            self.velocity[part],
            rate,
            phi=phi[part],
            norm=norm,
        )
        for slot in self.flat.statistics:
            slot.of(self.weights).add_(slot.of(self.gradient))

    def _moved(self) -> None:
        """The model's weights have changed."""
        self.flat.show(self.model)
        for slot, before in zip(self.flat.statistics, self._statistics, strict=True):
            before.copy_(slot.parameter)

    def _replace(self, mix: Mix, mixed: Tensor) -> None:
        if self.outer is not None:
            part = slice(None) if self.outer.of_statistics else self.flat.learnt
            self.outer.step(mix, mixed[part], self.weights[part])
        self.weights.copy_(mixed)
        if self.late:
            if self.sgd.weight_decay:
                self._phi = self.model.clone()
            self.model.copy_(mixed)
        elif self.apart and self.outer is not None:
            self.outer.unbiased(self.weights, self.model)
        self._moved()
        self._mixed(mix)
        self._averaged = self.version
        if not self.late:
            self.read = self.version

    def _held(self) -> Tensor:
        """Statistics as they count: the model's move with the forward passes of a gradient."""
        if self.apart:
            return self.weights[:0]
        held = self.weights[: self.flat.first].clone()
        for slot, before in zip(self.flat.statistics, self._statistics, strict=True):
            if self.flat.is_view(slot):
                slot.of(held).copy_(before)
        return held

    def _begin(self, pieces: Pieces) -> Pieces:
        """Let them be done outside of the lock; on a GPU they are only asked for, at once."""
        if self._fence is None:
            self._under_way.append(pieces)
        else:
            pieces.finish(len(self.weights))  # each piece would only start another kernel
        return pieces

    def _mixed(self, mix: Mix) -> None:
        self._happened(mix)
        self.rounds += 1

    def _happened(self, event: Event) -> None:
        self.version += 1
        if self.record is not None:
            self.record(event)

    def _fold(self) -> None:
        if self.pending is not None:
            self.weights.add_(self.pending)
            self.pending, self._spare = None, self.pending
        self.read = self.version

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One method at a time; on a GPU the threads' streams wait for each other as well."""
        with self.changed, torch.no_grad():
            for pieces in self._under_way:
                pieces.finish()
            self._under_way.clear()
            if self._fence is None:
                yield
            else:  # the stream of the weights' device, whichever is this thread's current one
                stream = torch.cuda.current_stream(self.weights.device)
                self._fence.wait(stream)
                yield
                self._fence.record(stream)
            self.changed.notify_all()
