"""Features as Gaussians see them: normalised MFCC, spliced and projected (LDA+MLLT or PCA).

The folder of a model keeps what belongs to it, as Kaldi's do: final.mat, splice_opts, cmvn_opts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features import cmvn, splice
from hadpsgd.features.streams import opened
from hadpsgd.files import write_text
from hadpsgd.kaldi_io import read, write
from hadpsgd.kaldi_place import Places
from hadpsgd.skipped import check_skipped

Matrix = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Frontend:
    """How stored features become the input of the Gaussians."""

    left: int
    """Frames of context before."""
    right: int
    """Frames of context after."""
    means: bool = True
    """Whether the speaker's mean is taken off."""
    variances: bool = False
    """Whether variances are normalised."""
    transform: Matrix | None = None
    """[dim, spliced] or, with an offset in the last column, [dim, spliced + 1]."""

    def __call__(
        self, features: Matrix, stats: NDArray[np.float64], where: object = None
    ) -> Matrix:
        """float32 [frames, dim].

        Raises:
            UserError: the features do not fit the transform or the statistics.
        """
        normal = cmvn.apply(
            features, stats, means=self.means, variances=self.variances, where=where
        )
        spliced = splice.splice(normal, self.left, self.right)
        if self.transform is None:
            return spliced
        width, extra = spliced.shape[1], self.transform.shape[1] - spliced.shape[1]
        if extra not in (0, 1):
            raise UserError(
                f"{width} spliced features, and a transform of {width + extra} columns",
                where=where,
                fix="Use the features and splice_opts that the transform was made with",
            )
        projected = spliced @ self.transform[:, :width].T
        return projected + self.transform[:, width] if extra else projected

    def write(self, folder: Path) -> None:
        """Write final.mat, splice_opts and cmvn_opts."""
        if self.transform is not None:
            write(folder / "final.mat", self.transform)
        context = f"--left-context={self.left} --right-context={self.right}\n"
        write_text(folder / "splice_opts", context)
        means, variances = str(self.means).lower(), str(self.variances).lower()
        write_text(folder / "cmvn_opts", f"--norm-means={means} --norm-vars={variances}\n")

    @classmethod
    def unspliced(cls, folder: Path | None) -> Frontend:
        """Normalisation alone, by the cmvn_opts of a model's folder, where there is one.

        Raises:
            UserError: cmvn_opts is broken.
        """
        means, variances = True, False
        if folder and (folder / "cmvn_opts").is_file():
            means, variances = cmvn.read_cmvn_opts(folder / "cmvn_opts")
        return cls(left=0, right=0, means=means, variances=variances)

    @classmethod
    def read(cls, folder: Path) -> Frontend:
        """Read what `write` wrote, or a folder of Kaldi's (lda_mllt.mat too; cmvn_opts may lack).

        Raises:
            UserError: splice_opts is missing, or something is broken.
        """
        left, right = splice.read_splice_opts(folder / "splice_opts")
        files = [folder / name for name in ("final.mat", "lda_mllt.mat")]
        found = next((path for path in files if path.is_file()), None)
        transform = None if found is None else read(found).astype(np.float32)
        return replace(cls.unspliced(folder), left=left, right=right, transform=transform)


class Inputs:
    """The utterances of a data set through a frontend; read one at a time."""

    def __init__(
        self, data: DataDir, features: Path, frontend: Frontend, max_skipped: float = 0.01
    ) -> None:
        """`features` is the set's folder of MFCC: feats.scp and cmvn.scp.

        Raises:
            UserError: a file is missing, or more than a share `max_skipped` of the utterances
                have no features.
        """
        self.data, self.frontend = data, frontend
        self._features = opened(features / "feats.scp", "features")
        self._stats = opened(features / "cmvn.scp", "features")
        self._last: tuple[str, NDArray[np.float64]] = ("", np.zeros((2, 0)))
        self.utterances = [name for name in data.utterances if name in self._features]
        """Utterances that have features, in the order of the data."""
        check_skipped(
            [name for name in data.utterances if name not in self._features],
            total=len(data),
            limit=max_skipped,
            what="utterances have no features",
            where=features / "feats.scp",
            fix="Run `hadpsgd features` or raise features.max_skipped",
        )

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, utterance: str) -> Matrix:
        """float32 [frames, dim]."""
        speaker = self.data.utterances[utterance].speaker
        if self._last[0] != speaker:
            self._last = (speaker, self.statistics(speaker))
        stored = self._features[utterance].astype(np.float32, copy=False)
        return self.frontend(stored, self._last[1], f"utterance {utterance}")

    def statistics(self, speaker: str) -> NDArray[np.float64]:
        """A speaker's CMVN statistics.

        Raises:
            UserError: there are none, or they are broken.
        """
        if speaker not in self._stats:
            raise UserError(f"no CMVN statistics of speaker {speaker}", where=self._stats.path)
        return self._stats[speaker]

    def places(self) -> Places:
        """Where the stored features of utterances lie."""
        return Places(self._features)

    def __iter__(self) -> Iterator[tuple[str, Matrix]]:
        for utterance in self.utterances:
            yield utterance, self[utterance]
