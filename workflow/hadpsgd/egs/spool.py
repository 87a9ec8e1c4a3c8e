"""Labels of a data set, spooled: alignments are read once, in their order, and found by name.

So a chunk of examples may be made of any utterances, by any process, and again after a kill.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.alignment.archives import Ids
from hadpsgd.egs.shards import ArrayFile

NAME = "pdf-ids.npy"


@dataclass
class Spool:
    """pdf-ids of utterances, one after another in a file."""

    path: Path
    utterances: list[str] = field(default_factory=list)
    """In the order of the alignments."""
    ends: list[int] = field(default_factory=list)
    """Where the labels of each end."""
    unknown: int = 0
    """Alignments of utterances that are not wanted."""
    checksum: str = ""

    @classmethod
    def write(
        cls,
        folder: Path,
        alignments: Iterable[tuple[str, Ids]],
        pdf: NDArray[np.int32],
        wanted: Iterable[str],
    ) -> Spool:
        """Spool the alignments of the utterances that are wanted.

        Args:
            folder: where to write.
            alignments: (utterance, transition-ids [frames]).
            pdf: pdf-id of every transition-id.
            wanted: names; what is there twice counts once.
        """
        spool, missing = cls(folder / NAME), set(wanted)
        file = ArrayFile(spool.path, (), np.dtype(np.int32))
        for utterance, ids in alignments:
            if utterance not in missing:
                spool.unknown += 1
                continue
            missing.remove(utterance)
            file.append(pdf[ids])
            spool.utterances.append(utterance)
            spool.ends.append(file.count)
        spool.checksum = file.close()
        return spool

    def without(self, wanted: Iterable[str]) -> list[str]:
        """Those of the utterances that have no labels, sorted."""
        return sorted(set(wanted) - set(self.utterances))

    @property
    def frames(self) -> int:
        """In all."""
        return self.ends[-1] if self.ends else 0

    def read(self, numbers: Iterable[int]) -> Iterator[tuple[str, NDArray[np.int32]]]:
        """(utterance, pdf-ids [frames]) of utterances by their number."""
        labels = np.load(self.path, mmap_mode="r")
        for number in numbers:
            first = self.ends[number - 1] if number else 0
            yield self.utterances[number], np.array(labels[first : self.ends[number]])
