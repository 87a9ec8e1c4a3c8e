"""What the transition-ids of a graph mean, kept beside it so that decoding needs no model file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError, reason
from hadpsgd.files import DAMAGED_ARRAYS
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph.arrays import Arrays


@dataclass(frozen=True)
class Transitions:
    """By transition-id; entry 0 is unused.

    pdf: int32, its pdf-id. phone: int32, its phone. final: bool, it ends its phone.
    loop: bool, it is a self-loop.
    """

    pdf: NDArray[np.int32]
    phone: NDArray[np.int32]
    final: NDArray[np.bool_]
    loop: NDArray[np.bool_]

    @classmethod
    def of(cls, model: TransitionModel) -> Transitions:
        """Those of a transition model."""
        return cls(model.pdf, model.phone, model.is_final, model.is_self_loop)

    @property
    def num_pdfs(self) -> int:
        """Number of pdf-ids."""
        return int(self.pdf.max()) + 1

    def write(self, path: Path) -> None:
        """Write them as `transitions.npz`."""
        np.savez(path, **asdict(self))

    @classmethod
    def read(cls, path: Path) -> Transitions:
        """Read `transitions.npz`.

        Raises:
            UserError: it is missing or damaged.
        """
        try:
            with np.load(path) as content:
                read = cls(**{field.name: content[field.name] for field in fields(cls)})
        except FileNotFoundError:
            raise UserError("missing", where=path, fix="`hadpsgd graph` makes it") from None
        except DAMAGED_ARRAYS as error:
            raise UserError(
                f"damaged ({reason(error)})", where=path, fix="Make the graph again"
            ) from None
        kinds = [array.dtype.kind for array in (read.pdf, read.phone, read.final, read.loop)]
        shapes = {array.shape for array in (read.pdf, read.phone, read.final, read.loop)}
        fits = kinds == ["i", "i", "b", "b"] and shapes == {(len(read),)} and len(read) > 1
        if not fits or min(read.pdf[1:].min(), read.phone[1:].min()) < 0:
            what = "damaged (not pdf-id, phone and kind of every transition-id)"
            raise UserError(what, where=path, fix="Make the graph again")
        return read

    def __len__(self) -> int:
        return self.pdf.size

    def check_graph(self, graph: Arrays, where: object) -> None:
        """Refuse a graph that is not over these transition-ids: that of another model, or a part
        of one (L.fst, HCLGa.fst), which is searched for very long and says nothing.

        Self-loops are added to a graph last. So they lead where they come from.

        Raises:
            UserError: it is not; says that `where` and the transitions do not fit.
        """
        ids = graph.arcs["ilabel"]
        self.check(ids, where)
        loops = self.loop[ids].nonzero()[0]
        sources = graph.first.searchsorted(loops, side="right") - 1  # graph.sources is of all arcs
        elsewhere = sources != graph.arcs["next"][loops]
        what = ""
        if elsewhere.any():
            wrong = ids[loops][elsewhere][0]
            what = f"transition-id {wrong} leads to another state, and is a self-loop of the model"
        elif len(ids) and self.loop.any() and not len(loops):
            what = "no arc is one of the model's self-loops"
        if what:
            fix = "Is it HCLG.fst, of the model in transitions.npz? Make the graph again"
            raise UserError(f"not a graph of this model: {what}", where=where, fix=fix)

    def check(self, ids: NDArray[np.integer], where: object) -> None:
        """Refuse transition-ids that these are not of.

        Raises:
            UserError: one is too high; says that `where` and the transitions do not fit.
        """
        highest = int(ids.max(initial=0))
        if highest >= len(self):
            raise UserError(
                f"transition-id {highest}, and transitions.npz ends at {len(self) - 1}",
                where=where,
                fix="Make the graph again, and decode with it",
            )
