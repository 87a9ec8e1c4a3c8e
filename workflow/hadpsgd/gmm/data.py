"""Utterances of a data set for training: features into the workspace, words by their numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.gmm.phone_graph import Lexicon
from hadpsgd.gmm.stored_frames import Floats, StoredFrames
from hadpsgd.gmm.workspace import Workspace
from hadpsgd.progress import tracked


class Lang:
    """What training needs of a lang folder."""

    def __init__(self, folder: Path) -> None:
        """Read it.

        Raises:
            UserError: a file is missing or damaged.
        """
        self.folder = Path(folder)
        self.words = read_symbols(self.folder / "words.txt")
        self.lexicon = Lexicon(self.folder / "L.fst")
        self.silence = tuple(self.numbers(name="phones/silence.csl", separator=":"))
        self.optional_silence = tuple(
            self.numbers(name="phones/optional_silence.csl", separator=":")
        )
        oov = self.folder / "oov.int"
        self.oov = next(iter(self.numbers(name="oov.int")), None) if oov.is_file() else None

    def numbers(self, *, name: str, separator: str | None = None) -> list[int]:
        """The numbers in a file."""
        return [number for row in self.rows(name=name, separator=separator) for number in row]

    def rows(self, *, name: str, separator: str | None = None) -> list[list[int]]:
        """The numbers in a file, line by line.

        Raises:
            UserError: it is missing or holds something else.
        """
        path = self.folder / name
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [[int(field) for field in line.split(separator)] for line in lines if line]
        except FileNotFoundError:
            raise UserError("no such file", where=path, fix="`hadpsgd lang` makes it") from None
        except ValueError as error:
            raise UserError(f"not a list of numbers: {error}", where=path) from None


def fill(space: Workspace, data: DataDir, feats: Path, frontend: Frontend) -> None:
    """Put normalised features into the workspace.

    Where archives hold them as plain floats, as ours do, they are left there and normalised when
    they are read. `frontend` normalises only.

    Raises:
        UserError: features are missing or broken.
    """
    inputs = Inputs(data, feats, frontend)
    names = inputs.utterances
    speakers = [data.utterances[name].speaker for name in names]
    frames = _plain(inputs)
    if frames is None:
        read = tracked(inputs, inputs, what="features read", unit="utterances")
        space.fill((name, data.utterances[name].speaker, features) for name, features in read)
    else:
        space.attach(names, speakers, frames, _Normal(inputs, speakers))
    where = "archives" if frames else "scratch file"
    print(
        f"frames are read from the {where}; scratch space {space.scratch_bytes / 1e6:.1f} MB "
        f"for {space.num_frames} frames",
        file=sys.stderr,
    )


def _plain(inputs: Inputs) -> StoredFrames | None:
    """Where the features of utterances lie; None where some of them are not plain floats."""
    files: dict[Path, int] = {}
    found: list[tuple[int, int, int]] = []
    columns = 0
    with inputs.places() as places:
        for name in tracked(inputs.utterances, inputs, what="features read", unit="utterances"):
            place = places(name)
            if place is None:
                return None
            columns = inputs[name].shape[1]  # read once, so that what is broken is told now
            found.append((files.setdefault(place.file, len(files)), place.byte, place.rows))
    file, byte, rows = np.array(found, np.int64).reshape(-1, 3).T
    return StoredFrames(files=tuple(files), file=file, byte=byte, rows=rows, dim=columns)


class _Normal:
    """Normalises by the statistics of speakers."""

    def __init__(self, inputs: Inputs, speakers: list[str]) -> None:
        self._frontend = inputs.frontend
        self._stats = {speaker: inputs.statistics(speaker) for speaker in set(speakers)}

    def __call__(self, speaker: str, frames: Floats) -> Floats:
        return self._frontend(frames, self._stats[speaker])


def word_ids(
    data: DataDir, names: list[str], lang: Lang, text: Path | None = None
) -> Iterator[list[int]]:
    """The words of utterances as numbers; words out of the lexicon count as the lang's oov word.

    `text` replaces the transcripts of the data directory; an utterance may have no words there.

    Raises:
        UserError: a word has no pronunciation and the lang folder has no oov word.
    """
    missing: dict[str, int] = {}
    others = None if text is None else read_table(text)
    for name in names:
        ids = []
        words = data.utterances[name].words if others is None else others.get(name, "").split()
        for word in words:
            number = lang.words.get(word, lang.oov)
            if number is None:
                raise UserError(
                    f"word '{word}' is not in the lexicon, and there is no word for unknown ones",
                    where=f"{data.path / 'text'}, utterance {name}",
                    fix="Add it to the lexicon, or name an oov word (lang.oov)",
                )
            if word not in lang.words:
                missing[word] = missing.get(word, 0) + 1
            ids.append(number)
        yield ids
    if missing:
        shown = ", ".join(sorted(missing, key=lambda word: -missing[word])[:5])
        print(
            f"{data.path}: {sum(missing.values())} words ({len(missing)} distinct) are not in the "
            f"lexicon: {shown}",
            file=sys.stderr,
        )
