"""Gradients averaged piece by piece while the backward pass goes on, as `Reducer` does."""

from __future__ import annotations

from collections.abc import Sequence

from hadpsgd.decentralized.network.reducer import APART_PIECES, BUCKET_BYTES, PIECE_BYTES

FORWARD = 1 / 3
"""Share of a gradient's time before its first piece begins to be made: backward is twice the work
of forward."""

Span = tuple[float, float]
"""Moments at which a gradient begins and is whole."""


def pieces(model_bytes: float) -> int:
    """In how many pieces a gradient goes between hosts (`reducer.bucket_edges`)."""
    wanted = min(BUCKET_BYTES, max(PIECE_BYTES, model_bytes / APART_PIECES))
    return max(1, round(model_bytes / wanted))


def shared_at(spans: Sequence[Span], *, seconds: float, count: int) -> float:
    """Moment at which the mean of gradients is there.

    Each of `count` equal pieces is averaged when all have it, one after the other; all of them
    take `seconds`.
    """
    done = 0.0
    for piece in range(1, count + 1):
        share = FORWARD + (1 - FORWARD) * piece / count
        ready = max(begin + (end - begin) * share for begin, end in spans)
        done = max(done, ready) + seconds / count
    return done
