"""Checks of what a config reads: its paths exist, and so do recordings of its sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from hadpsgd.config import Config
from hadpsgd.config.alignment import KaldiAlignment
from hadpsgd.config.base import expand
from hadpsgd.config.corpus import Kaldi
from hadpsgd.corpus import audio, overlap
from hadpsgd.corpus.datadir import locate
from hadpsgd.corpus.lang import needed
from hadpsgd.corpus.parts import EVERY
from hadpsgd.corpus.stm import matches
from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError
from hadpsgd.files import is_file, plain_or_gzipped
from hadpsgd.setup.findings import Finding

_WRITTEN = frozenset({"results", "tracking.spool"})
"""Keys of paths that need not be there: a workflow makes them."""
_NEEDED = ("wav.scp", "utt2spk", "text")
"""Files of a data directory."""


def check(config: Config) -> Iterator[Finding]:
    """A line for each path that is missing, by its key; where none is, one for all, and one for
    each set that has speech in common with train."""
    if missing := _missing(config):
        yield from missing
        return
    if isinstance(config.corpus, Kaldi):
        for what in _overlaps(config.corpus):
            fix = "Move them to one set, if they are the same"
            yield Finding(level="warn", what="sets", found=what, fix=fix)
    if paths := _named(config):
        yield Finding(level="ok", what="inputs", found=f"{len(paths)} paths of the config exist")


def faults(config: Config) -> list[UserError]:
    """What `check` finds missing, as errors."""
    return [UserError(found.found, where=found.what, fix=found.fix) for found in _missing(config)]


def _named(config: Config) -> dict[str, str]:
    """Paths that the config names and the workflow reads, by key."""
    return {key: path for key, path in _paths(config, "") if path and key not in _WRITTEN}


def _missing(config: Config) -> list[Finding]:
    """Paths that are not there, and what the folders of sets and alignments lack."""
    found = [
        _fault(key, f"{path}: no such file or folder", "Correct the path in the config")
        for key, path in _named(config).items()
        if "{" not in path and not _is_there(Path(path))
    ]
    lacking, rate = {fault.what for fault in found}, config.features.sample_rate
    if isinstance(config.corpus, Kaldi):
        for name, part in config.corpus.sets.items():
            key = f"corpus.{name}" if name in ("train", "dev") else f"corpus.tests.{name}"
            if key not in lacking:
                try:
                    fault = _of_set(key, Path(part.data), part.recordings, rate)
                except OSError as error:
                    fault = _fault(key, f"{error.filename or part.data}: {error.strerror}", "")
                found += [fault] if fault else []
    if isinstance(config.alignment, KaldiAlignment):
        found += [fault for fault in _of_alignment(config.alignment) if fault.what not in lacking]
    return found


def _paths(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Keys of a section whose texts are paths, and these; a set's data have the set's key."""
    for name, field in type(value).model_fields.items():
        inner = getattr(value, name)
        below = f"{key}.{name}" if key else name
        is_path = _expands(field.metadata) or _is_path(field.annotation)
        for each, item in _items(inner, below):
            if isinstance(item, BaseModel):
                yield from _paths(item, each)
            elif is_path and isinstance(item, str):
                yield each.removesuffix(".data"), item


def _items(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """A value, or those of a list or mapping by their keys."""
    if isinstance(value, dict):
        yield from ((f"{key}.{name}", item) for name, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{key}[{number}]", item) for number, item in enumerate(value))
    else:
        yield key, value


def _is_path(kind: Any) -> bool:
    """Whether a type is `PathText`, or made up of it among others."""
    inner = (_is_path(part) for part in get_args(kind))
    return _expands(getattr(kind, "__metadata__", ())) or any(inner)


def _expands(metadata: Any) -> bool:
    return any(getattr(each, "func", None) is expand for each in metadata)


def _is_there(path: Path) -> bool:
    """As far as it can be told: no for what may not be looked at, or cannot be a name."""
    try:
        return plain_or_gzipped(path).exists()
    except OSError:
        return False


def _of_set(key: str, folder: Path, patterns: Sequence[str], sample_rate: int) -> Finding | None:
    """The first thing that a data directory lacks: a file, or the first or last recording of the
    part of it that the patterns name; or that one of these has another sample rate."""
    for name in _NEEDED:
        if not plain_or_gzipped(folder / name).is_file():
            return _fault(key, f"{folder}: no file {name}", "Name a Kaldi data directory")
    table = folder / "wav.scp"
    try:
        places = locate(folder, read_table(plain_or_gzipped(table), _ignore))
        sides = plain_or_gzipped(folder / "reco2file_and_channel")
        files = read_table(sides, _ignore) if sides.is_file() else {}
    except UserError as error:
        return _fault(key, str(error), "Correct it: hadpsgd validate names all that is wrong")
    names = [n for n in places if matches(files.get(n, n).split()[0], patterns)]
    for name in names[:1] + names[-1:]:
        if not audio.is_pipe(places[name]) and not is_file(Path(places[name])):
            what = f"{table}: {name}: {places[name]}: missing audio file"
            return _fault(key, what, audio.CORRECT_PATH)
        rate = _rate(places[name])
        if rate not in (None, sample_rate):
            what = f"{table}: {name}: sample rate {rate} Hz instead of {sample_rate}"
            return _fault(key, what, f"Resample it or set features.sample_rate: {rate}")
    return None


def _overlaps(corpus: Kaldi) -> list[str]:
    """What whole data directories have in common with that of train; parts of directories are
    told apart where they are read."""
    parts = {name: part for name, part in corpus.sets.items() if tuple(part.recordings) == EVERY}
    if "train" not in parts:
        return []
    tables = {
        name: read_table(plain_or_gzipped(Path(part.data) / "utt2spk"), _ignore)
        for name, part in parts.items()
    }
    return list(overlap.of_tables(tables))


def _of_alignment(alignment: KaldiAlignment) -> Iterator[Finding]:
    """The first file that the lang folder lacks, and each folder of alignments; folders that the
    config names in full are known to be there."""
    lang = Path(alignment.lang_dir)
    lacks = [name for name in needed.FILES if not is_file(lang / name)]
    if lacks:
        fix = "Name the lang folder that the alignments were made with"
        yield _fault("alignment.lang_dir", f"{lang}: no file {lacks[0]}", fix)
    sets = ("train",) if alignment.align_dev else ("train", "dev")
    named = set(map(Path, alignment.ali_dir))
    for folder in dict.fromkeys(Path(each) for name in sets for each in alignment.folders(name)):
        lacks = [name for name in ("final.mdl", "tree") if not is_file(folder / name)]
        if not any(folder.glob("ali.*.gz")):
            lacks = ["ali.1.gz", *lacks]
        if lacks and (folder.is_dir() or folder not in named):
            fix = "Name the folder that steps/align_*.sh wrote"
            yield _fault("alignment.ali_dir", f"{folder}: no file {lacks[0]}", fix)


def _rate(place: str) -> int | None:
    """Of a recording, in Hz; None of a command's output, and of what is no audio."""
    try:
        return None if audio.is_pipe(place) else audio.info(place).rate
    except UserError:  # told where it is read
        return None


def _ignore(fault: UserError) -> None:
    """`hadpsgd validate` names it."""


def _fault(key: str, found: str, fix: str) -> Finding:
    return Finding(level="fail", what=key, found=found, fix=fix)
