"""What a config puts on the disk, by hours of speech."""

from __future__ import annotations

import json
import math
from pathlib import Path

from hadpsgd.config import Config, settings_of
from hadpsgd.config.alignment import Egs, Ladder, Mono, TreeStage
from hadpsgd.config.corpus import Builtin, DataSet, Kaldi
from hadpsgd.config.settings import Model
from hadpsgd.corpus.durations import speech_seconds
from hadpsgd.corpus.parts import EVERY
from hadpsgd.corpus.tables import raise_fault
from hadpsgd.egs.layout import Layout, Part
from hadpsgd.errors import UserError

MADE = "init.json"
"""What `hadpsgd init` leaves in a folder that it made: source, hours, SHA-256 of the config."""
_SPLIT = {"train": 0.8, "dev": 0.1, "test": 0.1}
_FRAMES_AN_HOUR = 360_000
_FLOAT = 4
_REST = 1.5e9
"""Graph, lattices, pages; what hours hardly change."""
_DIMS = {"fmllr": 40, "ivector": 100}
_MONO_PDFS = 200
"""Of monophones at most, roughly: three states of each phone, five of silence."""
_IMPORTED_PDFS = 32_000
"""Imported alignments are not looked at; the papers have so many (arXiv 2002.01119)."""


def network_parameters(config: Config, run_id: str) -> int:
    """Of a run's network, as far as its outputs are known before alignment."""
    model = settings_of(config, run_id).model
    return sum(_parts(model, inputs=_inputs(config), outputs=_pdfs(config)))


def network_work(config: Config, run_id: str) -> int:
    """Multiplications of a run's network for a frame: one of each parameter, but those that work
    once a step of several frames."""
    model = settings_of(config, run_id).model
    once_a_step, of_frames = _parts(model, inputs=_inputs(config), outputs=_pdfs(config))
    return once_a_step // model.frames_per_step + of_frames


def _inputs(config: Config) -> int:
    return sum(_dims(config)[stream] for stream in config.features.input)


def _dims(config: Config) -> dict[str, int]:
    logmel = config.features.logmel
    return {**_DIMS, "logmel": logmel.bins * (logmel.delta_order + 1)}


def bytes_needed(config: Config | None, hours: float) -> float:
    """Bytes for features, examples and checkpoints, which are most of it.

    Without a config those of the defaults. All speech is counted as if it were trained on.
    """
    frames = hours * _FRAMES_AN_HOUR
    if config is None:
        return _REST + frames * _FLOAT * (40 + 13 + 120)
    logmel, streams, egs = config.features.logmel, config.features.input, config.egs
    dims = _dims(config)
    versions = config.corpus.versions
    stored = logmel.bins + config.features.mfcc.cepstra + dims["fmllr"] * ("fmllr" in streams)
    audio = 2 * config.features.sample_rate * 3600 * hours * (len(config.corpus.speeds) - 1)
    inputs = sum(dims[stream] for stream in streams)
    kinds = [egs, *(stage.examples(egs) for stage in config.training.stages)]
    examples = sum(
        repeats(config, kind) * _layout(config, kind).row.itemsize / kind.frames for kind in kinds
    )
    kept = _checkpoints(config, inputs=inputs)
    return _REST + kept + audio + frames * (stored * _FLOAT * versions + examples)


def repeats(config: Config, egs: Egs) -> float:
    """How often a frame of training speech is in such examples."""
    overlap = egs.frames / (egs.shift or egs.frames)
    return config.corpus.versions * len(egs.tempos) * overlap


def _layout(config: Config, egs: Egs) -> Layout:
    """Of examples, with an i-vector for each speaker."""
    logmel = config.features.logmel
    parts = {
        "fmllr": Part(stream="fmllr", dim=_DIMS["fmllr"]),
        "ivector": Part(stream="ivector", dim=_DIMS["ivector"], table=True, framewise=False),
        "logmel": Part(
            stream="logmel",
            dim=logmel.bins,
            order=logmel.delta_order,
            window=logmel.delta_window,
        ),
    }
    streams = tuple(parts[name] for name in config.features.input)
    return Layout(egs.frames, streams, egs.dtype)


def examples_mb(config: Config, processes: int) -> int:
    """Megabytes of memory that making examples takes: for each process a chunk in float32, and as
    it is stored."""
    egs, layout = config.egs, _layout(config, config.egs)
    chunk = egs.shard_frames / egs.frames * (layout.exact.row.itemsize + layout.row.itemsize)
    return round(500 + processes * (150 + 1.1 * chunk / 1e6))


def _checkpoints(config: Config, *, inputs: int) -> int:
    """Bytes of weights and momentum of all super-learners of all runs, as often as they are kept,
    and once more while the next is written."""
    total = 0
    for run in config.training.members:
        settings = settings_of(config, run.id)
        number = 8 if settings.training.precision == "fp64" else 4
        one = 2 * number * sum(_parts(settings.model, inputs=inputs, outputs=_pdfs(config)))
        nodes = run.learners // run.shared_gradients
        total += one * nodes * (settings.training.keep_checkpoints + 1)
    return total


def _parts(model: Model, *, inputs: int, outputs: int) -> tuple[int, int]:
    """Parameters of hadpsgd.models.blstm, without loading torch: of LSTM and projection, and of the
    softmax. An LSTM layer has in each direction four gates, each with weights of input and state
    and two biases."""
    cells, units = model.cells, model.projection
    widths = [inputs * model.frames_per_step] + [2 * cells] * (model.layers - 1)
    layers = sum(2 * 4 * cells * (width + cells + 2) for width in widths)
    projection = (2 * cells + 1) * units * model.frames_per_step
    return layers + projection, (units + 1) * outputs


def _pdfs(config: Config) -> int:
    match config.alignment:
        case Ladder() as ladder:
            stage: TreeStage = getattr(ladder, ladder.kind)
            return stage.leaves
        case Mono():
            return _MONO_PDFS
    return _IMPORTED_PDFS


def hours_of_sets(config: Config, *, headers: bool = False) -> dict[str, float] | None:
    """Hours of speech of train, dev and test sets; None where they are not known.

    Args:
        config: the config.
        headers: whether to look into audio files where tables do not tell, and to raise what is
            wrong with data directories.

    Raises:
        UserError: what init recorded of them is damaged; a fault of a data directory.
    """
    match config.corpus:
        case Builtin() as corpus:
            tests = dict.fromkeys(("swb", "ch"), corpus.test_minutes / 60)
            return {"train": corpus.train_minutes / 60, "dev": corpus.dev_minutes / 60, **tests}
        case Kaldi() as corpus:
            found = {
                name: _hours(name, part, headers=headers) for name, part in corpus.sets.items()
            }
            known = {name: hours for name, hours in found.items() if hours is not None}
            return known if len(known) == len(found) else None
    return None


def _hours(name: str, part: DataSet, *, headers: bool) -> float | None:
    """By init's record, if it made this folder for this set; else by the folder's tables."""
    data = Path(part.data)
    made = data.parent / MADE
    if made.is_file() and data.name == name and tuple(part.recordings) == EVERY:
        recorded = _recorded(made)
        if name in recorded:
            return recorded[name]
    try:
        report = raise_fault if headers else _ignored
        seconds = speech_seconds(data, report, headers=headers, recordings=part.recordings)
    except UserError:
        if headers:
            raise
        return None  # `hadpsgd validate` says what is wrong
    return None if seconds is None else seconds / 3600


def _ignored(fault: UserError) -> None:
    """Whatever is wrong with a table."""


def _recorded(made: Path) -> dict[str, float]:
    """What init wrote down; before, one number for all sets, which it had split by tenths."""
    try:
        hours = json.loads(made.read_bytes())["hours"]
        if isinstance(hours, int | float):
            hours = {name: share * hours for name, share in _SPLIT.items()}
        found = {str(name): float(number) for name, number in hours.items()}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        found = {"": math.nan}
    if not all(0 <= number < math.inf for number in found.values()):
        raise UserError("damaged; it tells no hours", where=made)
    return found
