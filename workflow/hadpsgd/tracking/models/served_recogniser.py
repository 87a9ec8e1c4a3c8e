"""A bundle as MLflow serves it: recordings in, words with times out.

MLflow imports this module from the code that was logged with the model. Nothing else imports it.
"""

from __future__ import annotations

import base64
import binascii
import math
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from mlflow.exceptions import MlflowException

from hadpsgd.errors import UserError
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.transcribe import outputs
from hadpsgd.scoring.transcribe.batch import Outcome, transcribe
from hadpsgd.scoring.transcribe.recognise import Recogniser
from hadpsgd.scoring.transcribe.sources import Source
from hadpsgd.scoring.transcribe.speakers import Speakers

_LOUDEST = 2.0  # of samples from -1 to 1; resampling overshoots by less
_RATES = range(1000, 400_001)


class ServedRecogniser:
    """What a bundle hears in recordings. One request at a time: more take more processes."""

    def __init__(self, folder: Path) -> None:
        """Open a bundle; raises UserError where it is none, or damaged."""
        self._recogniser = Recogniser(bundle=Bundle.open(folder))
        self._alone = threading.Lock()

    def predict(self, recordings: Any) -> list[dict[str, Any]]:
        """Text and words of each recording.

        Args:
            recordings: pandas.DataFrame with a recording in each row: `audio`, the content of a
                file (bytes, or base64), or `samples` (floats from -1 to 1) and `sampling_rate`.

        Returns:
            For each row `seconds`, `text`, `words` with channel, word, begin, end, confidence.

        Raises:
            MlflowException: a row is no recording; the server answers 400 and says which.
        """
        with self._alone, tempfile.TemporaryDirectory(prefix="hadpsgd-") as folder:
            work = Path(folder)
            try:
                sources = [
                    _source(row, work / f"recording {number}")
                    for number, row in enumerate(recordings.to_dict("records"))
                ]
                found = (
                    transcribe(self._recogniser, sources, Speakers(), work, _untold)
                    if sources
                    else []
                )
                return [_answer(each) for each in found]
            except UserError as error:
                line = str(error).replace(f"{work}/", "")
                raise MlflowException.invalid_parameter_value(line) from None


def _load_pyfunc(path: str) -> ServedRecogniser:
    """MLflow's entry point; `path` is the bundle."""
    return ServedRecogniser(Path(path))


def _untold(_step: str, _share: float) -> None:
    """Nobody is told how far it is."""


def _answer(found: Outcome) -> dict[str, Any]:
    if found.transcript is None:
        raise UserError(found.why)
    return {
        "seconds": round(found.transcript.seconds, 3),
        "text": outputs.text(found.transcript),
        "words": [
            {"channel": word.channel, **outputs.entry(word)} for word in found.transcript.words
        ],
    }


def _source(row: Mapping[str, Any], path: Path) -> Source:
    """A row's recording, written to a file."""
    audio, samples = row.get("audio"), row.get("samples")
    if _is_missing(audio) == _is_missing(samples):
        what = "needs `audio`, or `samples` and `sampling_rate`"
        raise UserError(what, where=path)
    if _is_missing(samples):
        path.write_bytes(_decoded(audio, path))
    else:
        _write(samples, row.get("sampling_rate"), path)
    return Source(path=path, name=path.name)


def _decoded(audio: Any, path: Path) -> bytes:
    if isinstance(audio, bytes):
        return audio
    try:
        return base64.b64decode(audio, validate=True)
    except (binascii.Error, TypeError, ValueError):
        what = "`audio` is neither the content of a file nor that in base64"
        raise UserError(what, where=path) from None


def _write(samples: Any, rate: Any, path: Path) -> None:
    if _is_missing(rate) or int(rate) not in _RATES:
        what = f"`sampling_rate` {rate}: {_RATES[0]} to {_RATES[-1]} Hz go with `samples`"
        raise UserError(what, where=path)
    array = np.asarray(samples, dtype=np.float32)
    if array.ndim != 1 or not np.isfinite(array).all() or np.abs(array).max(initial=0) > _LOUDEST:
        raise UserError(
            "`samples` are not a list of floats from -1 to 1",
            where=path,
            fix="Divide 16-bit samples by 32768; send several channels as `audio`",
        )
    soundfile.write(path, array, int(rate), format="WAV", subtype="FLOAT")


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
