"""Audio of recordings: WAV, FLAC, NIST Sphere and the output of commands, read in pieces.

Samples are float32 in the range of 16-bit integers, as Kaldi's feature programs take them.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile

from hadpsgd.corpus import pipes
from hadpsgd.errors import UserError
from hadpsgd.files import is_file

INT16 = 32768.0
CORRECT_PATH = "Correct wav.scp (docs/corpora.md says where relative paths begin)"
"""What to do about a file that is missing."""
# lengths that a program writing to a pipe leaves in the header
_UNKNOWN_LENGTH = (0, 0x7FFFFFFF, 0x7FFFF000, 0x7FFFF024, 0xFFFFFFFF)
_GUESSED = 0.01, 8192
"""Of the length, or bytes: by so much a header may be wrong that a program writes before the audio.
sox guesses the length of MP3: an encoder's delay too long, 0.07 s of 8 kHz."""
_BLOCK = 1 << 20
"""Samples that are passed over at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioInfo:
    """What a header says."""

    rate: int
    """Samples a second."""
    channels: int
    frames: int
    """Samples of a channel."""

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.frames / self.rate


class _Sound(soundfile.SoundFile):
    """A file that is read from any place, although libsndfile cannot seek in some kinds (GSM 6.10,
    G.721): they are read up to there, if need be from the beginning again."""

    def __init__(self, source: str | io.BytesIO) -> None:
        super().__init__(source)
        self._source = source
        self._passed = 0

    def read(self, frames: int = -1, *args: Any, **settings: Any) -> np.ndarray:
        """The next samples."""
        found: np.ndarray = super().read(frames, *args, **settings)
        self._passed += len(found)
        return found

    def seek(self, frames: int, *whence: int) -> int:
        """Go to a sample; where the file ends before it, to the end."""
        if self.seekable():
            return int(super().seek(frames, *whence))
        if frames < self._passed:
            self._begin_again()
        while self._passed < frames:
            if not len(self.read(min(_BLOCK, frames - self._passed), dtype="float32")):
                break
        return self._passed

    def _begin_again(self) -> None:
        self.close()
        if isinstance(self._source, io.BytesIO):
            self._source.seek(0)
        super().__init__(self._source)
        self._passed = 0


def is_pipe(location: str) -> bool:
    """Whether an entry of wav.scp is a command whose output is the audio."""
    return location.endswith("|")


def open_audio(location: str, *, allow_pipes: bool = False) -> soundfile.SoundFile:
    """Open a file, or run a command `... |` where that is allowed.

    Raises:
        UserError: no such file, not audio, truncated, or a command that failed or is not allowed.
    """
    if is_pipe(location):
        content = _run_pipe(location, allow_pipes)
        cut = _truncation(io.BytesIO(content), len(content), guessed=True)
        if cut:
            raise UserError(f"the output of the command is truncated: {cut}", where=location)
        return _open(io.BytesIO(content), location)
    path = Path(location)
    if not is_file(path):
        raise UserError("missing audio file", where=location, fix=CORRECT_PATH)
    if _is_shortened(path):
        raise UserError(
            "a Sphere file compressed by shorten, which is not read here",
            where=location,
            fix="Unpack it: sph2pipe -f wav NAME.sph NAME.wav; or call sph2pipe in wav.scp",
        )
    with path.open("rb") as stream:
        cut = _truncation(stream, path.stat().st_size)
    if cut:
        raise UserError(f"truncated audio: {cut}", where=location, fix="Copy it again")
    return _open(location, location)


def info(location: str, *, allow_pipes: bool = False) -> AudioInfo:
    """Rate, channels and length.

    Raises:
        UserError: as `open_audio`.
    """
    with open_audio(location, allow_pipes=allow_pipes) as stream:
        if stream.format == "FLAC" and stream.frames:  # only its end tells whether it is whole
            read(stream, channel=0, start=stream.frames - 1)
        return AudioInfo(rate=stream.samplerate, channels=stream.channels, frames=stream.frames)


def read(
    stream: soundfile.SoundFile, *, channel: int, start: int = 0, end: int | None = None
) -> np.ndarray:
    """Samples [start, end) of one channel, float32 [samples] in the range of int16.

    Raises:
        UserError: the file holds fewer samples than its header says, is damaged, or has samples
            that are no finite numbers.
    """
    end = stream.frames if end is None else end
    try:
        stream.seek(start)
        samples = stream.read(end - start, dtype="float32", always_2d=True)[:, channel]
    except soundfile.SoundFileError as error:
        raise UserError(f"damaged audio ({error})", where=stream.name) from None
    if len(samples) != end - start:
        found = f"{start + len(samples)} samples instead of {end}"
        raise UserError(f"truncated audio: {found}", where=stream.name, fix="Copy it again")
    if not np.isfinite(samples).all():
        first = int(np.flatnonzero(~np.isfinite(samples))[0]) + start
        what = f"sample {first} is not a finite number"
        raise UserError(what, where=stream.name, fix="Make the file again")
    return samples * np.float32(INT16)


def write_wav(path: Path, samples: np.ndarray, rate: int, subtype: str = "PCM_16") -> None:
    """Write int16 samples [samples] or [samples, channels] as WAV (PCM_16, or ULAW)."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="WAV", subtype=subtype)
    path.write_bytes(buffer.getbuffer())  # libsndfile does not say that a disk is full


def _open(source: str | io.BytesIO, location: str) -> soundfile.SoundFile:
    try:
        return _Sound(source)
    except soundfile.SoundFileError as error:
        reason = str(error).split(": ", 1)[-1].rstrip(".")
        raise UserError(f"not readable as audio ({reason})", where=location) from None


def _run_pipe(location: str, allowed: bool) -> bytes:
    if not allowed:
        raise UserError(
            "a command in wav.scp is not run",
            where=location,
            fix="Set corpus.allow_pipes (--allow-pipes) for data that you trust",
        )
    return pipes.printed(location)


def _is_shortened(path: Path) -> bool:
    """Whether a Sphere header says so (sample_coding ...,embedded-shorten-v2.00)."""
    with path.open("rb") as stream:
        head = stream.read(1024)
    return head.startswith(b"NIST_1A") and b"embedded-shorten" in head.split(b"end_head")[0]


def _truncation(stream: BinaryIO, size: int, *, guessed: bool = False) -> str:
    """What is missing from WAV or Sphere whose header promises more; else ''.

    `guessed`: the header was written before the audio.
    """
    head = stream.read(1024)
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return _wav_truncation(stream, size, guessed=guessed)
    if head[:7] == b"NIST_1A":
        return _sphere_truncation(head, size, guessed=guessed)
    return "empty file" if not size else ""


def _wav_truncation(stream: BinaryIO, size: int, *, guessed: bool) -> str:
    position = 12
    while position + 8 <= size:
        stream.seek(position)
        name, length = struct.unpack("<4sI", stream.read(8))
        position += 8
        if name == b"data":
            missing = position + length - size
            return "" if length in _UNKNOWN_LENGTH else _lack(missing, of=length, guessed=guessed)
        position += length + length % 2
    return "no data chunk"


def _sphere_truncation(head: bytes, size: int, *, guessed: bool) -> str:
    fields = {}
    for line in head.decode("ascii", errors="replace").splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3 and parts[1].startswith("-"):
            fields[parts[0]] = parts[2]
    try:
        header = int(head.splitlines()[1])
        bytes_each = int(fields["sample_n_bytes"]) * int(fields.get("channel_count", 1))
        length = int(fields["sample_count"]) * bytes_each
    except (KeyError, ValueError, IndexError):
        return "no complete Sphere header"
    return _lack(header + length - size, of=length, guessed=guessed)


def _lack(missing: int, *, of: int, guessed: bool) -> str:
    share, least = _GUESSED
    allowed = max(share * of, least) if guessed else 0
    return f"{missing} of {of} bytes are missing" if missing > allowed else ""
