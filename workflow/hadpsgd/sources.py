"""Files from outside that stages read: when their content changes, these stages are made again.

Stages are named as in `hadpsgd.config.keys`, with the set where there is one for each. What a
stage reads of a folder is named here by patterns: what else lies there decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hadpsgd import outside
from hadpsgd.checksums import Checksums, digest
from hadpsgd.config import Config
from hadpsgd.config.alignment import KaldiAlignment
from hadpsgd.config.corpus import An4, Kaldi
from hadpsgd.config.ldc import Ldc
from hadpsgd.config.lhotse import Lhotse
from hadpsgd.corpus.ldc import sources as ldc
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped, write_text
from hadpsgd.outside import Source

Reader = Callable[[Config, str], Iterable[Source]]
"""What a stage reads from outside, for a set (empty where the stage has none)."""

TRANSCRIPTS = ("text", "utt2spk", "segments", "wav.scp")
DICTIONARY = ("*.txt", "*.txt.gz")
LANG = ("*.txt", "*.int", "topo", "L*.fst", "phones/*")
ALIGNMENTS = ("ali.*.gz", "final.*", "tree", "phones.txt", "*_opts")
MODEL = ("final.*", "lda_mllt.mat", "tree", "phones.txt", "*_opts")
TRANSFORMS = ("trans.*",)

_RECORD = "checksums.json"


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
            yield from outside.data_set(corpus.sets[name])
        case Lhotse() as corpus:
            yield from outside.manifests(corpus.sets[name], audio=True)
        case Ldc() as corpus:
            yield from ldc.of_set(corpus, name)
        case An4() as corpus:
            yield from outside.an4(Path(corpus.path), "test" if name == "test" else "train")


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
            yield from outside.files(Path(corpus.dict_dir), DICTIONARY)
        case Ldc() as corpus:
            yield from ldc.dictionary(corpus)
        case An4() as corpus:
            yield Path(corpus.path) / "etc" / "an4.dic"


def _lm_text(config: Config, _: str) -> Iterator[Source]:
    match config.corpus:
        case Kaldi() | Lhotse() as corpus if corpus.lm_text:
            yield plain_or_gzipped(Path(corpus.lm_text))
        case Kaldi() as corpus:
            yield from outside.tables(corpus.train, TRANSCRIPTS)
        case Lhotse() as corpus:
            yield from outside.manifests(corpus.train)
        case Ldc() as corpus:
            yield from ldc.texts(corpus, "train")
        case An4() as corpus:
            yield from outside.an4(Path(corpus.path), "train", audio=False)


def _dev_text(config: Config, _: str) -> Iterator[Source]:
    match config.corpus:
        case Kaldi() as corpus:
            yield from outside.tables(corpus.dev, TRANSCRIPTS)
        case Lhotse() as corpus:
            yield from outside.manifests(corpus.dev)
        case Ldc() as corpus:
            yield from ldc.texts(corpus, "dev")
        case An4() as corpus:
            yield from outside.an4(Path(corpus.path), "train", audio=False)


def _lang(config: Config, _: str) -> Iterator[Source]:
    if isinstance(config.alignment, KaldiAlignment):
        yield from outside.files(Path(config.alignment.lang_dir), LANG)


def _import_alignment(config: Config, name: str) -> Iterator[Source]:
    if isinstance(config.alignment, KaldiAlignment):
        for place in config.alignment.folders(name):
            yield from outside.files(Path(place), ALIGNMENTS)


def _logmel(config: Config, name: str) -> Iterator[Source]:
    yield from outside.features(config.features.imports.logmel, name)


def _mfcc(config: Config, name: str) -> Iterator[Source]:
    yield from outside.features(config.features.imports.mfcc, name)


def _fmllr(config: Config, name: str) -> Iterator[Source]:
    options = config.features.imports.fmllr
    if options is None:
        return
    if options.feats:
        yield from outside.archives(outside.in_set(options.feats, name=name))
    for place in options.trans or ():
        folder = Path(outside.in_set(place, name=name))
        yield from (
            outside.files(folder, TRANSFORMS) if folder.is_dir() else outside.archives(str(folder))
        )
    if options.model:
        yield from outside.files(Path(outside.in_set(options.model, name=name)), MODEL)


def _fmllr_model(config: Config, name: str) -> Iterator[Source]:
    options = config.features.imports.fmllr
    if options is not None and options.model:
        yield from outside.files(Path(outside.in_set(options.model, name=name)), MODEL)


def _ivector(config: Config, name: str) -> Iterator[Source]:
    options = config.features.imports.ivector
    for place in options.ivectors if options else ():
        yield from outside.archives(outside.in_set(place, name=name))


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
