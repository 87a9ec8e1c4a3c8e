"""Files from outside that stages read: when their content changes, these stages are made again.

Stages are named as in `hadpsgd.config.keys`, with the set where there is one for each. What a
stage reads of a folder is named here by patterns: what else lies there decides nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

from hadpsgd.checksums import Checksums, digest
from hadpsgd.commands import NamedFiles
from hadpsgd.config import Config
from hadpsgd.config.alignment import KaldiAlignment
from hadpsgd.config.corpus import An4, DataSet, Kaldi
from hadpsgd.config.imports import FeatureImport
from hadpsgd.config.ldc import Ldc
from hadpsgd.config.lhotse import Lhotse, Manifests
from hadpsgd.corpus.ldc import sources as ldc
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped, write_text

Source = Path | str
"""A file whose content counts, or a text that counts itself."""
Reader = Callable[[Config, str], Iterable[Source]]
"""What a stage reads from outside, for a set (empty where the stage has none)."""

TABLES = (
    *("wav.scp", "segments", "text", "utt2spk", "spk2gender", "reco2file_and_channel"),
    *("stm", "glm"),
)
TRANSCRIPTS = ("text", "utt2spk", "segments", "wav.scp")
DICTIONARY = ("*.txt", "*.txt.gz")
LANG = ("*.txt", "*.int", "topo", "L*.fst", "phones/*")
ALIGNMENTS = ("ali.*.gz", "final.*", "tree", "phones.txt", "*_opts")
MODEL = ("final.*", "lda_mllt.mat", "tree", "phones.txt", "*_opts")
TRANSFORMS = ("trans.*",)

_RECORD = "checksums.json"
_OFFSET = re.compile(r"(.+?)(:\d+)?(\[[^\]]*\])?$")


class Digests:
    """One hash for all that a stage reads from outside; made when it is asked for."""

    def __init__(self, config: Config, *, out: Path, handed: Path | None = None) -> None:
        """Of a config.

        Args:
            config: says which files.
            out: the results folder, where checksums are recorded.
            handed: digests that another process made (`write`); they are taken from there.
        """
        self._config = config
        self._record = out / _RECORD
        self._checksums: Checksums | None = None
        self._locked = False
        self._known: dict[str, str] = {}
        if handed is not None:
            with suppress(FileNotFoundError):
                self._known = json.loads(handed.read_text(encoding="utf-8"))

    def __call__(self, stage: str, name: str = "") -> str:
        """Of a stage, and a set where it has them; empty where it reads nothing from outside."""
        key = f"{stage}.{name}" if name else stage
        if key not in self._known:
            found = list(READERS[stage](self._config, name)) if stage in READERS else []
            self._known[key] = self._digest(found) if found else ""
        return self._known[key]

    def record(self) -> None:
        """Keep checksums for the next time, now and as they are made; for who has the lock.

        Raises:
            UserError: they cannot be written there.
        """
        self._locked = True
        if self._checksums is not None:
            self._checksums.write()

    def write(self, path: Path) -> None:
        """Keep what was asked for, for other processes, and the checksums for the next time.

        Raises:
            UserError: they cannot be written there.
        """
        write_text(path, json.dumps(self._known, indent=0) + "\n")
        self.record()

    def _digest(self, found: list[Source]) -> str:
        if self._checksums is None:
            self._checksums = Checksums(self._record)
            if self._locked:
                self._checksums.write()
        files = [source for source in found if isinstance(source, Path)]
        unique = [*dict.fromkeys(files)]  # both channels of a call are one file
        checksums = dict(zip(unique, self._checksums.of(unique), strict=True))
        return digest(
            [str(source), checksums[source]] if isinstance(source, Path) else source
            for source in found
        )


def _corpus(config: Config, name: str) -> Iterator[Source]:
    match config.corpus:
        case Kaldi() as corpus:
            yield from _data(corpus.sets[name])
        case Lhotse() as corpus:
            yield from _manifests(corpus.sets[name], audio=True)
        case Ldc() as corpus:
            yield from ldc.of_set(corpus, name)
        case An4() as corpus:
            yield from _an4(Path(corpus.path), "test" if name == "test" else "train")


def _perturb(config: Config, _: str) -> Iterator[Source]:
    """Your own noise."""
    from hadpsgd.corpus.noise.noises import own_files  # late: it loads the audio library

    for noise in config.corpus.mixed:
        if noise.files:
            with suppress(UserError):  # the stage says what is wrong
                yield from own_files(Path(noise.files))


def _dictionary(config: Config, _: str) -> Iterator[Source]:
    match config.corpus:
        case Kaldi() | Lhotse() as corpus:
            yield from _files(Path(corpus.dict_dir), DICTIONARY)
        case Ldc() as corpus:
            yield from ldc.dictionary(corpus)
        case An4() as corpus:
            yield Path(corpus.path) / "etc" / "an4.dic"


def _lm_text(config: Config, _: str) -> Iterator[Source]:
    match config.corpus:
        case Kaldi() | Lhotse() as corpus if corpus.lm_text:
            yield plain_or_gzipped(Path(corpus.lm_text))
        case Kaldi() as corpus:
            yield from _tables(corpus.train, TRANSCRIPTS)
        case Lhotse() as corpus:
            yield from _manifests(corpus.train)
        case Ldc() as corpus:
            yield from ldc.texts(corpus, "train")
        case An4() as corpus:
            yield from _an4(Path(corpus.path), "train", audio=False)


def _dev_text(config: Config, _: str) -> Iterator[Source]:
    match config.corpus:
        case Kaldi() as corpus:
            yield from _tables(corpus.dev, TRANSCRIPTS)
        case Lhotse() as corpus:
            yield from _manifests(corpus.dev)
        case Ldc() as corpus:
            yield from ldc.texts(corpus, "dev")
        case An4() as corpus:
            yield from _an4(Path(corpus.path), "train", audio=False)


def _lang(config: Config, _: str) -> Iterator[Source]:
    if isinstance(config.alignment, KaldiAlignment):
        yield from _files(Path(config.alignment.lang_dir), LANG)


def _import_alignment(config: Config, name: str) -> Iterator[Source]:
    if isinstance(config.alignment, KaldiAlignment):
        for place in config.alignment.folders(name):
            yield from _files(Path(place), ALIGNMENTS)


def _logmel(config: Config, name: str) -> Iterator[Source]:
    yield from _features(config.features.imports.logmel, name)


def _mfcc(config: Config, name: str) -> Iterator[Source]:
    yield from _features(config.features.imports.mfcc, name)


def _fmllr(config: Config, name: str) -> Iterator[Source]:
    options = config.features.imports.fmllr
    if options is None:
        return
    if options.feats:
        yield from _archives(_in_set(options.feats, name))
    for place in options.trans or ():
        folder = Path(_in_set(place, name))
        yield from _files(folder, TRANSFORMS) if folder.is_dir() else _archives(str(folder))
    if options.model:
        yield from _files(Path(_in_set(options.model, name)), MODEL)


def _fmllr_model(config: Config, name: str) -> Iterator[Source]:
    options = config.features.imports.fmllr
    if options is not None and options.model:
        yield from _files(Path(_in_set(options.model, name)), MODEL)


def _ivector(config: Config, name: str) -> Iterator[Source]:
    options = config.features.imports.ivector
    for place in options.ivectors if options else ():
        yield from _archives(_in_set(place, name))


def _ubm(config: Config, _: str) -> Iterator[Source]:
    if config.features.ivector.transform:
        yield Path(config.features.ivector.transform)


def _lm(config: Config, _: str) -> Iterator[Source]:
    yield from map(Path, config.lm.sources.values())
    yield from (Path(path) for path in (config.lm.arpa, config.lm.first_pass_arpa) if path)


def _scoring(config: Config, _: str) -> Iterator[Source]:
    if config.scoring.acronym_map:
        yield Path(config.scoring.acronym_map)


READERS: dict[str, Reader] = {
    "corpus": _corpus,
    "perturb": _perturb,
    "dictionary": _dictionary,
    "lm_text": _lm_text,
    "dev_text": _dev_text,
    "lang": _lang,
    "import_alignment": _import_alignment,
    "features.logmel": _logmel,
    "features.mfcc": _mfcc,
    "import_fmllr": _fmllr,
    "fmllr_model": _fmllr_model,
    "import_ivector": _ivector,
    "ubm": _ubm,
    "lm": _lm,
    "scoring": _scoring,
}


def _in_set(path: str, name: str) -> str:
    return path.replace("{set}", name)


def _files(place: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """A file, or those of a folder that match."""
    if not place.is_dir():
        yield plain_or_gzipped(place)
        return
    for pattern in patterns:
        yield from sorted(path for path in place.glob(pattern) if path.is_file())


def _data(part: DataSet) -> Iterator[Source]:
    """A data directory or a part of one: its tables, and the audio that wav.scp names."""
    from hadpsgd.corpus.datadir import locate  # late: it loads the audio library

    yield from _tables(part, TABLES)
    folder = Path(part.data)
    named = NamedFiles()  # by commands, whose text counts with the table that has it
    for place in locate(folder, _recordings(part)).values():
        yield from named(place) if place.endswith("|") else [Path(place)]


def _manifests(part: Manifests, *, audio: bool = False) -> Iterator[Source]:
    """Manifests of a set, and the audio that they name."""
    yield from map(Path, part.files)
    if audio:
        from hadpsgd.corpus.manifests import read

        with suppress(UserError):  # the stage says what is wrong
            places = read(part, Path()).data.recordings.values()
            yield from (Path(place) for place in dict.fromkeys(places))


def _tables(part: DataSet, names: Sequence[str]) -> Iterator[Source]:
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


def _archives(place: str) -> Iterator[Source]:
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


def _features(options: FeatureImport | None, name: str) -> Iterator[Source]:
    if options is not None:
        yield from _archives(_in_set(options.feats, name))
        if options.cmvn:
            yield from _archives(_in_set(options.cmvn, name))


def _an4(root: Path, split: str, *, audio: bool = True) -> Iterator[Source]:
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
