"""What the transition-ids of a graph mean, kept beside it so that decoding needs no model file."""

from __future__ import annotations

import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.gmm.transition_model import TransitionModel


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
                return cls(**{name: content[name] for name in content.files})
        except FileNotFoundError:
            raise UserError("missing", where=path, fix="`hadpsgd graph` makes it") from None
        except (ValueError, OSError, TypeError, zipfile.BadZipFile) as error:
            raise UserError(f"damaged ({error})", where=path, fix="Make the graph again") from None
