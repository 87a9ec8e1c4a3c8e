"""The folder that every corpus is prepared into.

    data/{train,dev,<tests>}/   Kaldi data directories
    dict/                       Kaldi's data/local/dict
    lm/{train,dev}.txt          language model text, one sentence a line
    words/<set>.json            words of a set that the dictionary lacks, counted
    audio/                      recordings, where they are made or resampled

wav.scp names audio relative to this folder, as Kaldi recipes do, so that it can be moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.files import atomic_file


@dataclass(frozen=True)
class Layout:
    """Paths in a corpus folder."""

    root: Path

    def data(self, name: str) -> Path:
        """Data directory of a set."""
        return self.root / "data" / name

    @property
    def dict_dir(self) -> Path:
        """Lexicon and phone lists."""
        return self.root / "dict"

    @property
    def lexicon(self) -> Path:
        """dict/lexicon.txt."""
        return self.dict_dir / "lexicon.txt"

    @property
    def held_out(self) -> Path:
        """Words left out of lexicon, text and training, one a line; only where there are any."""
        return self.root / "held_out_words.txt"

    def lm(self, name: str) -> Path:
        """Language model text: `train` or `dev`."""
        return self.root / "lm" / f"{name}.txt"

    def words(self, name: str) -> Path:
        """Counts of a set's words, and of those that the dictionary lacks."""
        return self.root / "words" / f"{name}.json"

    def audio(self, name: str) -> Path:
        """Folder of a set's recordings, made if need be."""
        folder = self.root / "audio" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def relative(self, path: Path) -> str:
        """How wav.scp names a file of this folder."""
        return path.relative_to(self.root).as_posix()

    def transcripts(self, name: str) -> Iterator[str]:
        """Of a set that is there, in the order of its utterances."""
        return (u.text for u in DataDir.read(self.data(name)))

    def write_lm(self, name: str, sentences: Iterable[str]) -> None:
        """Write language model text."""
        with atomic_file(self.lm(name)) as path, path.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{sentence}\n" for sentence in sentences)
