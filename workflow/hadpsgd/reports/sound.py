"""Audio that a page carries inside, and how noisy every utterance is."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import soundfile

from hadpsgd.corpus.datadir import AudioReader, Utterance
from hadpsgd.corpus.snr import snr
from hadpsgd.errors import UserError
from hadpsgd.progress import tracked

NO_AUDIO = "the data directory has no wav.scp"


@dataclass(frozen=True)
class Sound:
    """Of a set's utterances, and of what is cut from them, by id.

    clips: FLAC in base64. decibels: signal-to-noise ratios. failed: why audio was not read.
    """

    clips: dict[str, str] = field(default_factory=dict)
    decibels: dict[str, float | None] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why the first one that failed did."""
        return next(iter(self.failed.values()), "")


def chosen(wanted: Iterable[str], seconds: Mapping[str, float | None], limit: float) -> set[str]:
    """Of utterances, those whose audio a page has: in their order while they fit.

    Args:
        wanted: utterances, the most wanted first; they may come again.
        seconds: how long each is.
        limit: seconds of all.
    """
    taken: set[str] = set()
    used = 0.0
    for utterance in dict.fromkeys(wanted):
        length = seconds.get(utterance) or 0.0
        if 0.0 < length <= limit - used:
            taken.add(utterance)
            used += length
    return taken


def listen(reader: AudioReader, pieces: Iterable[Utterance], clips: set[str]) -> Sound:
    """Read utterances, or what is cut from them, once each, one recording after another.

    What cannot be read is told (`failed`), and ends nothing: a page of errors can be read without.

    Args:
        reader: of their data directory.
        pieces: those whose noise is measured.
        clips: those of them whose audio is wanted.
    """
    found, data = Sound(), reader.data
    there = list({each.id: each for each in pieces}.values())
    there.sort(key=lambda each: (each.recording, each.start, each.id))
    if not data.recordings:
        found.failed.update((each.id, NO_AUDIO) for each in there)
        return found
    for each in tracked(there, there, what="audio", unit="utterances"):
        try:
            samples = reader.read(each)
        except UserError as error:
            found.failed[each.id] = str(error)
            continue
        found.decibels[each.id] = snr(samples, reader.sample_rate)
        if each.id in clips:
            found.clips[each.id] = _flac(samples, reader.sample_rate)
    return found


def _flac(samples: np.ndarray, rate: int) -> str:
    whole = np.clip(np.rint(samples), -32768, 32767).astype(np.int16)
    buffer = io.BytesIO()
    soundfile.write(buffer, whole, rate, format="FLAC", subtype="PCM_16")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
