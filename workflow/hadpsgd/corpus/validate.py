"""The validator of data directories: names every fault, one line each, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.corpus import audio, stm
from hadpsgd.corpus.alike import alike, difference
from hadpsgd.corpus.case import Case, Kind, better_case
from hadpsgd.corpus.datadir import DataDir, Utterance, channel_of, sample_range
from hadpsgd.corpus.dictdir import RESERVED, UNKNOWN
from hadpsgd.corpus.glm import read as read_glm
from hadpsgd.corpus.parts import EVERY, part_of
from hadpsgd.corpus.tables import Report
from hadpsgd.errors import UserError, raise_all
from hadpsgd.files import plain_or_gzipped
from hadpsgd.progress import counted
from hadpsgd.uncounted import Uncounted

SHORTEST = 0.025
"""Seconds: one frame of features."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Counts of one set."""

    utterances: int
    speakers: int
    recordings: int
    seconds: float | None
    """Speech, by segments; None where recordings are not looked at."""
    words: int
    vocabulary: int
    oov: int | None
    """Running words that the lexicon lacks; None where there is none."""

    @property
    def oov_share(self) -> float:
        """OOV words of all running words, 0 to 1."""
        return (self.oov or 0) / max(self.words, 1)


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What a data directory is held against."""

    sample_rate: int = 8000
    other_rate: str = "Resample it or set features.sample_rate: {rate}"
    """What to do about a recording of another rate."""
    lexicon: Container[str] | None = None
    """Words that transcripts may use; None does not look at them."""
    max_oov: float = 0.0
    """Share of running words that the lexicon may lack; more makes each such word a fault."""
    case: Kind = "as-is"
    """How words are taken that the lexicon lacks as they are written."""
    recordings: Sequence[str] = EVERY
    """Which recordings belong to the set, by wildcards of their file names; the stm's too."""
    max_uncovered: float = 0.0
    """Share of the words of the stm that may lie in no utterance."""
    places: Mapping[str, str] = field(default_factory=dict)
    """By recording, the file and line that it comes from, where that is not wav.scp."""
    said: Mapping[str, str] = field(default_factory=dict)
    """By utterance, the file and line that its words come from, where that is not text."""
    audio: bool = True
    """Whether recordings are looked at; without, only tables and words are."""
    scored: Uncounted | None = None
    """Where transcripts are references, for no stm is one: words of them that are not scored."""
    allow_pipes: bool = False
    threads: int = 2
    """Headers read (or commands run) at a time."""


def validate(path: Path | str, checks: Checks, report: Report) -> Summary:
    """Check a data directory; each fault goes to `report`.

    Looks at the text files and how they fit one another, the header and size of every
    recording, every segment, every transcript, and whether the stm is of the same recordings.

    Raises:
        UserError: a file is missing without which nothing can be checked.
    """
    data = part_of(DataDir.read(path, report), checks.recordings)
    if not plain_or_gzipped(data.path / "utt2spk").stat().st_size:  # of the rest there are faults
        report(UserError("no utterances", where=path, fix="Name a Kaldi data directory"))
    seconds = _check_audio(data, checks, report) if checks.audio else None
    try:
        _check_references(data, checks)
    except UserError as error:
        report(error)
    if not plain_or_gzipped(data.path / "stm").is_file():
        _check_transcripts(data, checks, report)
    lexicon = checks.lexicon
    counts = _count_words(data)
    missing: set[str] = set()
    case = Case(kind=checks.case, lexicon=() if lexicon is None else lexicon)
    if lexicon is not None:
        missing = {w for w in counts if case.word(w) not in lexicon} - RESERVED - _NO_WORDS
    summary = Summary(
        utterances=len(data),
        speakers=len(data.speakers),
        recordings=len({u.recording for u in data}),
        seconds=seconds,
        words=counts.total(),
        vocabulary=len(counts),
        oov=None if lexicon is None else sum(counts[word] for word in missing),
    )
    named = missing if summary.oov_share > checks.max_oov else set()
    if lexicon is not None and (fault := _other_case(checks, data, counts, named)):
        report(fault)
        named = set()
    looks = alike(map(case.word, named), case.lexicon)
    shown = {word: looks.get(case.word(word), "") for word in named}
    _check_words(checks, data, counts, shown, report)
    return summary


def validate_or_fail(path: Path | str, checks: Checks) -> Summary:
    """Check a data directory; every fault goes to standard error.

    Raises:
        UserError: there is a fault.
    """
    faults: list[UserError] = []
    summary = validate(path, checks, faults.append)
    raise_all(faults, path)
    return summary


def _check_references(data: DataDir, checks: Checks) -> None:
    """Hold the stm against the data: what it has more would count as deleted; read the GLM.

    Raises:
        UserError: it is damaged, or does not fit.
    """
    path, glm = (plain_or_gzipped(data.path / name) for name in ("stm", "glm"))
    if path.is_file():
        wanted = [s for s in stm.read(path) if stm.matches(s.file, checks.recordings)]
        stm.check_marks(path, wanted, filtered=glm.is_file())
        stm.check(path, wanted, data, checks.max_uncovered)
    if glm.is_file():
        read_glm(glm, "stm")
        read_glm(glm, "ctm")


def _check_transcripts(data: DataDir, checks: Checks, report: Report) -> None:
    """Report what an stm made of them could not say: one line a recording or word."""
    files = {data.file_and_channel(utterance)[0] for utterance in data}
    for file in sorted(filter(stm.is_comment, files)):
        report(stm.comment(file, where=data.path))
    if checks.scored is None:
        return
    first: dict[str, str] = {}
    for utterance in data:
        for word in filter(stm.is_mark, utterance.words):
            first.setdefault(word, utterance.id)
    for word in sorted(first):
        if not checks.scored.drop(word):
            report(stm.mark(word, where=_said(checks, data, first[word])))


def _said(checks: Checks, data: DataDir, utterance: str) -> str:
    """Where an utterance's words stand."""
    return f"{checks.said.get(utterance, data.path / 'text')}: utterance {utterance}"


def _check_audio(data: DataDir, checks: Checks, report: Report) -> float:
    """Look at every recording and segment; returns seconds of speech."""

    def place(recording: str) -> str:
        return f"{checks.places.get(recording, str(data.path / 'wav.scp'))}: {recording}"

    def header(recording: str) -> audio.AudioInfo | UserError:
        location = data.recordings[recording]
        try:
            return audio.info(location, allow_pipes=checks.allow_pipes)
        except UserError as error:
            return UserError(str(error), where=place(recording))

    with ThreadPoolExecutor(checks.threads) as pool:
        headers = dict(zip(data.recordings, pool.map(header, data.recordings), strict=True))
    others: dict[int, dict[str, str]] = {}  # by rate: files, and the first recording of each
    for recording, found in headers.items():
        if isinstance(found, UserError):
            report(found)
        elif found.rate != checks.sample_rate:
            files = others.setdefault(found.rate, {})
            files.setdefault(data.recordings[recording], place(recording))
    for rate, files in others.items():
        report(_of_another_rate(rate, files, checks))
    total = 0.0
    for utterance in data:
        known = headers.get(utterance.recording)
        if isinstance(known, audio.AudioInfo) and known.rate == checks.sample_rate:
            try:
                where = checks.places.get(utterance.recording, str(data.path))
                total += _seconds(data, utterance, known, f"{where}: utterance {utterance.id}")
            except UserError as error:
                report(error)
    return total


def _of_another_rate(rate: int, files: Mapping[str, str], checks: Checks) -> UserError:
    """One line for all files of a rate; `files` says where each is named."""
    file, named = next(iter(files.items()))
    besides = f", as have {counted(len(files) - 1, 'more file')}" if len(files) > 1 else ""
    return UserError(
        f"sample rate {rate} Hz instead of {checks.sample_rate}{besides}",
        where=f"{named}: {file}",
        fix=checks.other_rate.format(rate=rate),
    )


def _seconds(data: DataDir, utterance: Utterance, header: audio.AudioInfo, where: str) -> float:
    channel_of(data, utterance, header.channels, where)
    start, end = sample_range(utterance, frames=header.frames, rate=header.rate, where=where)
    seconds = (end - start) / header.rate
    if seconds < SHORTEST:
        raise UserError(f"only {seconds * 1000:.0f} ms of audio", where=where, fix="Remove it")
    return seconds


_NO_WORDS = frozenset({"%HESITATION", "%hesitation"})
"""What NIST's references have for a filled pause; their GLM says which words are one."""


def _count_words(data: DataDir) -> Counter[str]:
    """How often each word is said; where there is an stm, (word) is NIST's mark of an optional
    one."""
    marks = "()" if plain_or_gzipped(data.path / "stm").is_file() else ""
    counts: Counter[str] = Counter()
    for utterance in data:
        words = (word.strip(marks) if marks else word for word in utterance.words)
        counts.update(word for word in words if word)
    return counts


def _other_case(
    checks: Checks, data: DataDir, counts: Counter[str], missing: set[str]
) -> UserError | None:
    """The one fault of a transcript whose case is not the lexicon's."""
    kind, left = better_case({word: counts[word] for word in missing}, checks.lexicon or ())
    if kind is None:
        return None
    words, oov = counts.total(), sum(counts[word] for word in missing)
    now, then = (f"{100 * count / words:.1f} %" for count in (oov, left))
    manifest = next(iter(checks.said.values()), "").rpartition(":")[0]
    return UserError(
        f"{now} of {words} words are not in the lexicon as they are written; in {kind} case {then}",
        where=manifest or data.path / "text",
        fix=f"Set corpus.case: {kind} (--case {kind})",
    )


def _check_words(
    checks: Checks,
    data: DataDir,
    counts: Counter[str],
    missing: Mapping[str, str],
    report: Report,
) -> None:
    """Report reserved and missing words: one line a word, with the first utterance that has it.

    missing: words that the lexicon lacks to the one of it that looks the same; empty where none
    does.
    """
    wrong = RESERVED & set(counts)
    if not wrong and not missing:
        return
    first: dict[str, str] = {}
    for utterance in data:
        for word in utterance.words:
            first.setdefault(word, utterance.id)
            first.setdefault(word.strip("()"), utterance.id)
    for word in sorted(wrong):
        where = _said(checks, data, first[word])
        report(UserError(f"word '{word}' is reserved", where=where, fix="Remove it"))
    for word, entry in sorted(missing.items()):
        what = f"word '{word}' is not in the lexicon ({counted(counts[word], 'time')})"
        fix = f"Add it to lexicon.txt, write {UNKNOWN}, or raise corpus.max_oov (--max-oov)"
        if entry:
            what = f"{what} as it is written: {difference(word, entry=entry)}"
            fix = "Write both alike: in Unicode's form NFC, without zero-width characters"
        report(UserError(what, where=_said(checks, data, first[word]), fix=fix))
