"""Sizes by the hours of training speech, for the keys that a config leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hadpsgd.config.corpus import Builtin, Corpus, Kaldi
from hadpsgd.config.sizes import REPEATED_FRAMES, Size, size_for
from hadpsgd.corpus.tables import read_table
from hadpsgd.files import plain_or_gzipped

KEY, AUTO = "speech_hours", "auto"
_DURATIONS = ("segments", "utt2dur", "reco2dur")
"""Files of a data directory, the first of which that is there tells seconds."""


def filled(content: dict[str, Any]) -> dict[str, Any]:
    """A config's content with the sizes that its hours of training speech ask for.

    Keys that are there stay as they are. `speech_hours: auto` becomes the number.

    Raises:
        ValueError: nothing tells the hours, or they are no number above 0.
    """
    hours = content.get(KEY)
    if hours is None:
        return content
    if hours == AUTO:
        hours = _measured(content.get("corpus"))
    number = isinstance(hours, int | float) and not isinstance(hours, bool)
    if not (number and 0 < hours < math.inf):
        raise ValueError(f"{KEY}: a number above 0, or {AUTO}; not {hours!r}")
    made = {**content, KEY: hours}
    for path, value in _sizes(size_for(hours), content):
        _put(made, path, value)
    return made


def _measured(corpus: Any) -> float:
    """Hours of the training set, at one speed."""
    try:
        found: Corpus = TypeAdapter(Corpus).validate_python(corpus)
    except ValidationError:  # told with the rest of the config's faults
        return 1.0
    if isinstance(found, Builtin):
        return found.train_minutes / 60
    if isinstance(found, Kaldi) and found.train.recordings == ["*"]:
        folder = Path(found.train.data)
        for name in _DURATIONS:
            if (file := plain_or_gzipped(folder / name)).is_file():
                return round(sum(_seconds(file)) / 3600, 4)
        return round(sum(_of_files(folder / "wav.scp")) / 3600, 4)
    raise ValueError(
        f"{KEY}: {AUTO} is for built-in speech and whole data directories; give the number"
    )


def _seconds(file: Path) -> Iterator[float]:
    for key, told in read_table(file).items():
        try:
            *_, begin, end = map(float, ["0", *told.split()[-2:]])
        except ValueError:
            raise ValueError(f"{KEY}: no seconds of {key} in {file}") from None
        yield end - begin


def _of_files(recordings: Path) -> Iterator[float]:
    from hadpsgd.corpus import audio, datadir  # libraries for sound: no other config needs them

    for name, place in datadir.locate(recordings.parent, read_table(recordings)).items():
        if audio.is_pipe(place):
            raise ValueError(
                f"{KEY}: {name} in {recordings} is a command; make utt2dur or give the number"
            )
        yield audio.info(place).seconds


def _sizes(size: Size, content: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths of keys, and what they are where the config does not have them."""
    if len(size.speeds) > 1:
        yield ("corpus", "speeds"), list(size.speeds)
    yield from _alignment(size, _section(content, "alignment"))
    if size.repeats:
        frames = _section(content, "egs").get("frames", REPEATED_FRAMES)
        yield ("egs", "frames"), frames
        yield ("egs", "shift"), frames // 2 if isinstance(frames, int) else REPEATED_FRAMES // 2
        yield ("egs", "tempos"), list(size.tempos)
    for name in ("layers", "cells", "projection", "dropout"):
        yield ("model", name), getattr(size, name)
    for name in ("epochs", "batch", "weight_decay"):
        yield ("training", name), getattr(size, name)
    epochs = _section(content, "training").get("epochs")
    half = epochs // 2 if isinstance(epochs, int) else size.anneal_after
    rate = {
        "base": size.rate,
        "base_batch": size.batch,
        "anneal_after": min(size.anneal_after, half),
        "anneal_factor": size.anneal_factor,
    }
    yield from ((("training", "learning_rate", name), value) for name, value in rate.items())


def _alignment(size: Size, given: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Of our own GMM-HMMs; Kaldi's alignments have their size."""
    kind = given.get("kind", "tri" if size.leaves else "mono")
    if kind == "kaldi":
        return
    yield ("alignment", "kind"), kind
    yield ("alignment", "retry_beam"), size.retry_beam
    if kind == "mono":
        yield ("alignment", "gaussians"), size.mono
        return
    yield ("alignment", "mono", "gaussians"), size.mono
    if size.leaves:  # else whoever wants triphones of so little speech says how many
        for stage in ("tri", "lda_mllt", "sat"):
            yield ("alignment", stage, "leaves"), size.leaves
            yield ("alignment", stage, "gaussians"), size.gaussians


def _section(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _put(content: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Where the key is not there; the dictionaries on the way are copied, not changed."""
    *way, last = path
    for name in way:
        inner = content.get(name, {})
        if not isinstance(inner, dict):  # no section: told with the rest of the config's faults
            return
        content[name] = inner = dict(inner)
        content = inner
    content.setdefault(last, value)
