"""espeak-ng through ctypes: text to samples and to phonemes.

The library keeps state from one utterance to the next (wave phases, flutter, random breath),
so the same calls give the same samples only from a fresh process: one recording, one process.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from hadpsgd.errors import UserError

# espeak-ng's speak_lib.h
_OUTPUT_SYNCHRONOUS = 2
_CHARS_UTF8 = 1
_RATE, _PITCH, _RANGE = 1, 3, 4
_IPA = 0x02
_SEPARATOR = "_"
_SEED = 1
_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


@dataclass(frozen=True, kw_only=True)
class Voice:
    """How a speaker sounds."""

    name: str
    """Accent and variant, as in `en-us+m3`."""
    rate: int
    """Words a minute."""
    pitch: int
    """0 to 99; 50 is the variant's own."""
    range: int
    """Liveliness of the pitch, 0 to 99."""


class Espeak:
    """The library; at most one in a process."""

    def __init__(self) -> None:
        """Load it.

        Raises:
            UserError: the wheel has no library for this platform.
        """
        try:
            import espeakng_loader

            self._library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
        except (ImportError, OSError) as error:
            raise UserError(
                f"espeak-ng cannot be loaded ({error})",
                where="corpus.kind builtin",
                fix="Its wheels exist for Linux and macOS",
            ) from None
        data = espeakng_loader.get_data_path().encode()
        self.sample_rate: int = self._library.espeak_Initialize(_OUTPUT_SYNCHRONOUS, 0, data, 0)
        if self.sample_rate <= 0:
            raise UserError("espeak-ng does not start", where="corpus.kind builtin")
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(_SEED))
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self._chunks: list[bytes] = []
        self._callback = _CALLBACK(self._receive)  # must outlive the calls
        self._library.espeak_SetSynthCallback(self._callback)

    def _receive(self, samples: Any, count: int, _events: object) -> int:
        if count > 0 and samples:
            self._chunks.append(ctypes.string_at(samples, 2 * count))
        return 0

    def use(self, voice: Voice) -> None:
        """Speak with this voice from now on.

        Raises:
            ValueError: espeak-ng has no such voice.
        """
        self.accent(voice.name)
        settings = {_RATE: voice.rate, _PITCH: voice.pitch, _RANGE: voice.range}
        for parameter, value in settings.items():
            self._library.espeak_SetParameter(parameter, value, 0)

    def accent(self, name: str) -> None:
        """Choose accent (and variant) only.

        Raises:
            ValueError: espeak-ng has no such voice.
        """
        if self._library.espeak_SetVoiceByName(name.encode()):
            raise ValueError(f"espeak-ng has no voice '{name}'")

    def speak(self, text: str) -> np.ndarray:
        """Samples of a text: int16 [samples] at `sample_rate`."""
        self._chunks.clear()
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 0, 0, _CHARS_UTF8, None, None)
        self._library.espeak_Synchronize()
        return np.frombuffer(b"".join(self._chunks), dtype="<i2")

    def phonemes(self, text: str) -> list[list[str]]:
        """Phonemes (IPA with stress marks) of each word group that is spoken as one."""
        data = ctypes.c_char_p(text.encode())
        clauses = []
        while data.value:
            mode = _IPA | ord(_SEPARATOR) << 8
            clauses.append(
                self._library.espeak_TextToPhonemes(ctypes.byref(data), _CHARS_UTF8, mode).decode()
            )
        groups = " ".join(clauses).split()
        return [[p for p in group.split(_SEPARATOR) if p] for group in groups]
