"""The engine: decentralised training, synchronous and asynchronous, of any torch module.

    from hadpsgd.decentralized import decentralize

`decentralize` (offered.py) makes a `Trainer` (trainer.py; manual: docs/library.md). It needs torch
and numpy.

Its rooms, each importing only from those before it: topology (who mixes with whom, in which round),
core (a learner's weights and what happens to them), network (how they travel), record (what
happened, on disk, and done again), strategies (when to mix), elastic (going on when learners die),
simulated (the same code in virtual time), commands. `assembly` puts the engine of a process
together; `offered`, `trainer` and `share` are what a script of one's own sees of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hadpsgd.decentralized.agreement import MixedCheckpointError
    from hadpsgd.decentralized.offered import decentralize
    from hadpsgd.decentralized.trainer import Trainer

__all__ = ["MixedCheckpointError", "Trainer", "decentralize"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for: a command that reads a config needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hadpsgd.decentralized import agreement, offered, trainer

    places = {"MixedCheckpointError": agreement, "decentralize": offered, "Trainer": trainer}
    return getattr(places[name], name)
