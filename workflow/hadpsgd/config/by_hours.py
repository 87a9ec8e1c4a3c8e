"""Sizes by the hours of training speech, for the keys that a config leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hadpsgd.config.corpus import Builtin, Corpus, Kaldi
from hadpsgd.config.sizes import REPEATED_FRAMES, Size, size_for
from hadpsgd.errors import UserError

KEY, AUTO = "speech_hours", "auto"


def filled(content: dict[str, Any]) -> dict[str, Any]:
    """A config's content with the sizes that its hours of training speech ask for.

    Keys that are there stay as they are. `speech_hours: auto` becomes the number.

    Raises:
        ValueError: nothing tells the hours, or they are no number above 0.
    """
    given = content.get(KEY)
    if given is None:
        return content
    hours = _measured(content.get("corpus")) if given == AUTO else _number(given)
    if not hours:
        raise ValueError(f"{KEY}: a number above 0, or {AUTO}; not {given!s:.40}")
    made = {**content, KEY: hours}
    for path, value in _sizes(size_for(hours), content):
        _put(made, path, value)
    return made


def _number(given: Any) -> float | None:
    """A number above 0, also where it is given as text, as pydantic takes it."""
    try:
        number = 0.0 if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 < number < math.inf else None


def _measured(corpus: Any) -> float:
    """Hours of the training set, at one speed."""
    try:
        found: Corpus = TypeAdapter(Corpus).validate_python(corpus)
    except ValidationError:  # told with the rest of the config's faults
        return 1.0
    if isinstance(found, Builtin):
        return found.train_minutes / 60
    if isinstance(found, Kaldi):
        return _of_directory(Path(found.train.data), found.train.recordings)
    what = "built-in speech and data directories"
    raise ValueError(f"{KEY}: {AUTO} is for {what}; give the number")


def _of_directory(folder: Path, recordings: Sequence[str]) -> float:
    from hadpsgd.corpus.durations import speech_seconds  # libraries for sound: seldom needed

    try:
        seconds = speech_seconds(folder, headers=True, recordings=recordings)
    except UserError as error:
        raise ValueError(f"{KEY}: {error}") from None
    except OSError as error:
        raise ValueError(f"{KEY}: {folder}: {error.strerror}") from None
    if seconds is None:
        what = f"wav.scp of {folder} has commands"
        raise ValueError(f"{KEY}: {what}; make utt2dur or reco2dur, or give the number")
    if not seconds:
        raise ValueError(f"{KEY}: no speech in {folder}")
    return round(seconds / 3600, 6)


def _sizes(size: Size, content: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths of keys, and what they are where the config does not have them."""
    copied = "imports" not in _section(content, "features")  # Kaldi's features are of one speed
    if len(size.speeds) > 1 and copied:
        yield ("corpus", "speeds"), list(size.speeds)
    yield from _alignment(size, _section(content, "alignment"))
    if size.repeats:
        frames = _number(_section(content, "egs").get("frames")) or REPEATED_FRAMES
        yield ("egs", "frames"), REPEATED_FRAMES
        yield ("egs", "shift"), int(frames // 2)
        yield ("egs", "tempos"), list(size.tempos)
    for name in ("layers", "cells", "projection", "dropout"):
        yield ("model", name), getattr(size, name)
    for name in ("epochs", "batch", "weight_decay"):
        yield ("training", name), getattr(size, name)
    epochs = _number(_section(content, "training").get("epochs"))
    rate = {
        "base": size.rate,
        "base_batch": size.batch,
        "anneal_after": min(size.anneal_after, epochs // 2) if epochs else size.anneal_after,
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
