"""Features of a data directory: computed by several processes, written as Kaldi's archives.

Stored are the static features, as Kaldi stores them: deltas are added where features are read
(`hadpsgd.features.fusion`), as Kaldi's add-deltas does in its pipes. So archives made by Kaldi
take the place of ours, and 2000 hours of logmel take 115 GB instead of 346.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.corpus.datadir import AudioReader, DataDir, Utterance
from hadpsgd.errors import UserError
from hadpsgd.features.cmvn import SpeakerStatistics
from hadpsgd.features.logmel import Logmel
from hadpsgd.features.mfcc import Mfcc
from hadpsgd.features.spectrum import LENGTH_SECONDS, Matrix
from hadpsgd.files import atomic_file
from hadpsgd.kaldi_io import Writer, write_archive
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import Progress
from hadpsgd.skipped import check_skipped, named

EXTRACTORS: dict[str, type[Logmel] | type[Mfcc]] = {"logmel": Logmel, "mfcc": Mfcc}

# of a task: utterances, as many times more of a single recording, and seconds of audio, which are
# what memory goes by
_PIECE, _TIMES, _SECONDS = 32, 8, 300.0

Computed = tuple[str, int, bool, Matrix]
"""Utterance, its samples, whether there is any sound in them, its features."""


@dataclass(kw_only=True)
class Summary:
    """What was done."""

    utterances: int = 0
    frames: int = 0
    samples: int = 0
    skipped: list[str] = field(default_factory=list)
    """Utterances shorter than a window."""
    silent: list[str] = field(default_factory=list)
    """Utterances without any sound: all samples are alike."""

    def speed(self, seconds: float, *, sample_rate: int) -> str:
        """How much audio was read in so many seconds."""
        audio = self.samples / sample_rate
        return f"{audio / 3600:.2f} h of audio, {audio / seconds:,.0f}x real time"


def pieces(data: DataDir) -> Iterator[list[Utterance]]:
    """Utterances in tasks; those of a recording stay together, so that it is opened once, unless
    they are many or long."""
    piece: list[Utterance] = []
    seconds = 0.0
    for _, group in groupby(data, lambda utterance: utterance.recording):
        for utterance in group:
            piece.append(utterance)
            seconds += (utterance.end or utterance.start) - utterance.start
            if len(piece) >= _TIMES * _PIECE or seconds >= _SECONDS:
                yield piece
                piece, seconds = [], 0.0
        if len(piece) >= _PIECE:
            yield piece
            piece, seconds = [], 0.0
    if piece:
        yield piece


def read_audio(audio: AudioReader, utterance: Utterance) -> Matrix:
    """Samples of an utterance.

    Raises:
        UserError: whatever is wrong with its audio; names the utterance.
    """
    try:
        return audio.read(utterance)
    except UserError as error:
        if utterance.id in str(error):
            raise
        raise UserError(str(error), where=f"utterance {utterance.id}") from None


def worker(
    stream: str, config: Config, data: DataDir
) -> Callable[[list[Utterance]], list[Computed]]:
    """The function that computes the features of a task."""
    allow_pipes = getattr(config.corpus, "allow_pipes", False)
    audio = AudioReader(data, config.features.sample_rate, allow_pipes=allow_pipes)
    extractor = EXTRACTORS[stream](config.features, config.seed)

    def compute(piece: list[Utterance]) -> list[Computed]:
        found = []
        for utterance in piece:
            samples = read_audio(audio, utterance)
            features = extractor(samples, utterance.id)
            sound = bool((samples[1:] != samples[:-1]).any())
            found.append((utterance.id, len(samples), sound, features))
        return found

    return compute


def extract(stream: str, config: Config, data: DataDir, out: Path, jobs: int) -> Summary:
    """Write feats.{ark,scp}, utt2num_frames and cmvn.{ark,scp} of a data directory into `out`.

    Raises:
        UserError: audio that is missing, truncated or at another rate (names the utterance);
            too many utterances shorter than a window.
    """
    out.mkdir(parents=True, exist_ok=True)
    summary = Summary()
    speakers = SpeakerStatistics({utterance.id: utterance.speaker for utterance in data})
    progress = Progress(
        "features",
        len(data),
        "utterances",
        lambda seconds: summary.speed(seconds, sample_rate=config.features.sample_rate),
    )
    with ExitStack() as stack:
        counts = stack.enter_context(atomic_file(out / "utt2num_frames"))
        lines = stack.enter_context(counts.open("w", encoding="utf-8"))
        writer = stack.enter_context(Writer(ark=out / "feats.ark", scp=out / "feats.scp"))
        tasks = map_in_order(partial(worker, stream, config, data), pieces(data), jobs)
        for piece in tasks:
            for utterance, samples, sound, features in piece:
                summary.samples += samples
                if not sound:
                    summary.silent.append(utterance)
                if not len(features):
                    summary.skipped.append(utterance)
                    continue
                writer.write(utterance, features)
                lines.write(f"{utterance} {len(features)}\n")
                speakers.add(utterance, features)
                summary.frames += len(features)
            summary.utterances = writer.count
            progress.add(len(piece))
        check_skipped(
            summary.skipped,
            total=len(data),
            limit=config.features.max_skipped.of(data.path.name),
            what=f"utterances are shorter than a window of {LENGTH_SECONDS * 1000:.0f} ms",
            where=data.path,
            fix="Remove them or raise features.max_skipped",
        )
        if not summary.utterances:
            raise UserError("no utterance", where=data.path)
    if summary.silent:  # transcripts of theirs fit nothing
        what = f"{len(summary.silent)} of {len(data)} utterances hold no sound"
        print(f"warning: {data.path}: {what}: {named(summary.silent)}", file=sys.stderr)
    write_archive(out / "cmvn.ark", speakers.items(), out / "cmvn.scp")
    progress.end()
    return summary
