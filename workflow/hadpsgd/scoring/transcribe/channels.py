"""A recording of any kind, taken apart: a file for each channel at one rate, and how loud it is.

It is read block by block, so that hours take no more memory than minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from hadpsgd.corpus import audio
from hadpsgd.corpus.resample import Resampler
from hadpsgd.errors import UserError
from hadpsgd.scoring.transcribe.speech import FRAME, NOTHING, Levels

_BLOCK = 1 << 16  # samples of all channels together that are read at a time
Samples = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A channel: its file at the wanted rate (mono, 32-bit floats), and its levels."""

    file: Path
    levels: Levels


@dataclass(frozen=True, kw_only=True)
class Apart:
    """A recording in channels."""

    seconds: float
    channels: list[Channel]


def take_apart(path: Path, *, folder: Path, rate: int) -> Apart:
    """Write FOLDER/0.wav, 1.wav, ... at `rate` Hz.

    Raises:
        UserError: it is no audio, truncated, damaged, or without samples; the disk is full.
    """
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        source = stack.enter_context(audio.open_audio(str(path)))
        count = source.channels
        files = [folder / f"{number}.wav" for number in range(count)]
        sinks = [
            stack.enter_context(
                soundfile.SoundFile(file, "w", rate, 1, subtype="FLOAT", format="RF64")
            )
            for file in files
        ]
        meters = [_Meter(int(rate * FRAME)) for _ in files]
        written = 0
        for block in _resampled(source, rate):
            written += len(block)
            for number, (sink, meter) in enumerate(zip(sinks, meters, strict=True)):
                sink.write(block[:, number])
                meter.add(block[:, number])
        seconds = source.frames / source.samplerate
    for file in files:  # libsndfile does not say that a disk is full
        if file.stat().st_size < 4 * written:
            raise UserError("the disk is full", where=folder, fix="Set TMPDIR to another disk")
    channels = [
        Channel(file=file, levels=meter.levels()) for file, meter in zip(files, meters, strict=True)
    ]
    return Apart(seconds=seconds, channels=channels)


def _resampled(source: soundfile.SoundFile, rate: int) -> Iterator[Samples]:
    """Blocks [samples, channels] at another rate."""
    resampler = Resampler(rate=source.samplerate, new_rate=rate, channels=source.channels)
    read, size = 0, max(1, _BLOCK // source.channels)
    while len(block := _read(source, size)):
        if not np.isfinite(block).all():
            raise UserError("samples that are not finite", where=source.name)
        read += len(block)
        yield resampler.push(block)
    if read != source.frames or not read:
        found = f"{read} samples instead of {source.frames}" if read else "no samples"
        raise UserError(f"truncated audio: {found}", where=source.name, fix="Copy it again")
    yield resampler.finish()


def _read(source: soundfile.SoundFile, size: int) -> Samples:
    try:
        return source.read(size, dtype="float32", always_2d=True)
    except soundfile.SoundFileError as error:
        raise UserError(f"damaged audio ({error})", where=source.name) from None


class _Meter:
    """Levels of samples that come in blocks."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._left = np.zeros(0, np.float32)
        self._found: list[Levels] = []

    def add(self, samples: Samples) -> None:
        samples = np.concatenate([self._left, samples])
        frames = len(samples) // self._width
        whole = samples[: frames * self._width].reshape(frames, self._width)
        power = np.maximum(whole.astype(np.float64).var(axis=1), 10 ** (NOTHING / 10))
        self._found.append((10 * np.log10(power)).astype(np.float32))
        self._left = samples[frames * self._width :]

    def levels(self) -> Levels:
        return np.concatenate([np.zeros(0, np.float32), *self._found])
