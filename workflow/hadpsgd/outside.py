"""What lies in folders, tables and archives from outside: of data directories and imports.

Folders are read by patterns: what else lies there is not named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

from hadpsgd.commands import NamedFiles
from hadpsgd.config.corpus import DataSet
from hadpsgd.config.imports import FeatureImport
from hadpsgd.config.lhotse import Manifests
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped

Source = Path | str
"""A file whose content counts, or a text that counts itself."""

TABLES = (
    *("wav.scp", "segments", "text", "utt2spk", "spk2gender", "reco2file_and_channel"),
    *("stm", "glm"),
)

_OFFSET = re.compile(r"(.+?)(:\d+)?(\[[^\]]*\])?$")


def in_set(path: str, *, name: str) -> str:
    """The path of a set: `{set}` becomes its name."""
    return path.replace("{set}", name)


def files(place: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """A file, or those of a folder that match."""
    if not place.is_dir():
        yield plain_or_gzipped(place)
        return
    for pattern in patterns:
        yield from sorted(path for path in place.glob(pattern) if path.is_file())


def data_set(part: DataSet) -> Iterator[Source]:
    """A data directory or a part of one: its tables, and the audio that wav.scp names."""
    from hadpsgd.corpus.datadir import locate  # late: it loads the audio library

    yield from tables(part, TABLES)
    folder = Path(part.data)
    named = NamedFiles()  # by commands, whose text counts with the table that has it
    for place in locate(folder, _recordings(part)).values():
        yield from named(place) if place.endswith("|") else [Path(place)]


def manifests(part: Manifests, *, audio: bool = False) -> Iterator[Source]:
    """Manifests of a set, and the audio that they name."""
    yield from map(Path, part.files)
    if audio:
        from hadpsgd.corpus.manifests import read

        with suppress(UserError):  # the stage says what is wrong
            places = read(part, Path()).data.recordings.values()
            yield from (Path(place) for place in dict.fromkeys(places))


def tables(part: DataSet, names: Sequence[str]) -> Iterator[Source]:
    """Tables of a data directory; of a part, only what belongs to it."""
    paths = (plain_or_gzipped(Path(part.data) / name) for name in names)
    there = [path for path in paths if path.is_file()]
    if part.recordings == ["*"]:
        yield from there
        return
    from hadpsgd.corpus import stm
    from hadpsgd.corpus.datadir import DataDir
    from hadpsgd.corpus.parts import part_of

    try:
        data = part_of(DataDir.read(part.data), part.recordings)
        lines = [
            segment
            for path in there
            if path.name.split(".")[0] == "stm"
            for segment in stm.read(path)
            if stm.matches(segment.file, part.recordings)
        ]
    except UserError:  # the stage says what is wrong
        yield from there
        return
    yield repr(([*data], data.gender, data.channels, lines))
    yield from (path for path in there if path.name.split(".")[0] == "glm")


def _recordings(part: DataSet) -> dict[str, str]:
    """Recording to place, of a part those that belong to it; nothing where that is damaged."""
    if part.recordings != ["*"]:
        from hadpsgd.corpus.datadir import DataDir
        from hadpsgd.corpus.parts import part_of

        with suppress(UserError):
            return part_of(DataDir.read(part.data), part.recordings).recordings
    return _entries(plain_or_gzipped(Path(part.data) / "wav.scp"))


def _entries(table: Path) -> dict[str, str]:
    """Lines of a wav.scp or script file, damaged or not: first word to the rest."""
    from hadpsgd.files import read_whole

    try:
        lines = read_whole(table).decode(errors="replace").splitlines()
    except (OSError, UserError):
        return {}
    pairs = (line.split(maxsplit=1) for line in lines)
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def archives(place: str) -> Iterator[Source]:
    """An archive, or a script file and the archives that it points into."""
    if place.endswith("|"):
        yield place
        yield from NamedFiles()(place)
        return
    path = Path(place)
    yield path
    if path.suffix != ".scp":
        return
    by_command, beside = NamedFiles(), lru_cache(maxsize=None)(partial(_beside, path))
    named: dict[Path, None] = {}
    for entry in _entries(path).values():
        if entry.endswith("|"):
            named |= dict.fromkeys(by_command(entry))
        elif match := _OFFSET.match(entry):
            named[beside(match[1])] = None
    yield from named


def _beside(scp: Path, file: str) -> Path:
    """A file of a script file: from the current folder, or from the nearest one above the scp."""
    places = (Path(), *scp.absolute().parents)
    return next((base / file for base in places if (base / file).is_file()), Path(file))


def features(options: FeatureImport | None, name: str) -> Iterator[Source]:
    """Archives of imported features of a set, and of their CMVN."""
    if options is not None:
        yield from archives(in_set(options.feats, name=name))
        if options.cmvn:
            yield from archives(in_set(options.cmvn, name=name))


def an4(root: Path, split: str, *, audio: bool = True) -> Iterator[Source]:
    """AN4's lists of its training or test speech, and the recordings."""
    ids = root / "etc" / f"an4_{split}.fileids"
    yield from (ids, root / "etc" / f"an4_{split}.transcription")
    with suppress(OSError):
        for name in ids.read_text().split() if audio else ():
            stem = root / "wav" / name
            yield from (
                path
                for suffix in (".wav", ".sph", ".raw")
                if (path := stem.with_name(stem.name + suffix)).is_file()
            )
