"""What a bundle takes where features were imported: the models that Kaldi made them with.

A new recording has no imported features: a bundle computes them. That its features are the imported
ones is seen from the audio of a speaker of `dev`, not believed.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config import Config
from hadpsgd.config.ivector import Ivector
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.extract import extract
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.importing import in_set
from hadpsgd.features.ivector import extractor, ubm
from hadpsgd.features.ivector.extract import NAMES
from hadpsgd.features.ivector.extract import extract as extract_ivectors
from hadpsgd.gmm import transition_model
from hadpsgd.graph.transitions import Transitions
from hadpsgd.kaldi_io import Kind, Scp

_LIMIT = 0.05
"""Share of the power of imported values by which computed ones may differ: Kaldi dithers audio and
compresses features."""
_OWN = "Train with features of our own stages to export"

Pairs = Iterable[tuple[NDArray[np.floating], NDArray[np.floating]]]


def gmm_folder(config: Config, out: Path) -> Path:
    """The speaker-adaptively trained model that estimates FMLLR; `out` has the results."""
    options = config.features.imports.fmllr
    model = None if options is None else options.model
    return Path(in_set(model, DataDir(Path("train"), {}))) if model else out / "ali/train"


def ivector_folder(config: Config, out: Path) -> Path:
    """The i-vector extractor with its UBM."""
    options = config.features.imports.ivector
    given = None if options is None else options.extractor
    return Path(given) if given else out / "ivector/extractor"


def ivector_options(config: Config) -> Ivector:
    """How i-vectors are estimated: as the imported ones, where they are imported."""
    options, imported = config.features.ivector, config.features.imports.ivector
    if imported is None:
        return options
    return options.model_copy(update={"per": imported.per, "period": imported.period})


def refuse(config: Config) -> None:
    """See that the config names what computes the imported streams of the network's input.

    Raises:
        UserError: it does not.
    """
    imports, streams = config.features.imports, config.features.input
    if "fmllr" in streams and imports.fmllr is not None and imports.fmllr.model is None:
        what = "a new speaker has no such features, and their model is not in the config"
        raise _refused(config, "fmllr", what, "Import trans and model in place of feats")
    if "ivector" in streams and imports.ivector is not None and imports.ivector.extractor is None:
        what = "a new speaker has no i-vector, and their extractor is not in the config"
        fix = "Name the folder of final.ie (features.imports.ivector.extractor, or --extractor)"
        raise _refused(config, "ivector", what, fix)


def check(config: Config, out: Path) -> None:
    """See that what is computed of a recording is what was imported.

    Raises:
        UserError: the model is not that of the graph; computed and imported values differ; `dev`
            has no audio.
    """
    imports, streams = config.features.imports, set[str](config.features.input)
    if "fmllr" in streams and imports.fmllr is not None:
        _check_gmm(config, out)
    if not streams.isdisjoint({"fmllr", "ivector"}):
        streams.add("mfcc")
    compared = ("logmel", "mfcc", "ivector")
    found = [name for name in compared if name in streams and getattr(imports, name) is not None]
    if found:
        _compare(config, out, found)


def _check_gmm(config: Config, out: Path) -> None:
    """Lattices of the graph must mean the same to the model."""
    path = gmm_folder(config, out) / "final.mdl"
    theirs = Transitions.of(transition_model.read(path))
    ours = Transitions.read(out / "graph/transitions.npz")
    pairs = ((theirs.pdf, ours.pdf), (theirs.phone, ours.phone))
    if not all(np.array_equal(*pair) for pair in pairs):
        what = f"{path} has other states than the graph, so lattices cannot adapt a new speaker"
        fix = "Name the model that the alignments were made with (features.imports.fmllr.model)"
        raise _refused(config, "fmllr", what, fix)


def _compare(config: Config, out: Path, streams: list[str]) -> None:
    """Compute streams of the speaker of `dev` with the fewest utterances, from audio."""
    data = _one_speaker(DataDir.read(out / "corpus/data/dev", text=False))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for stream in streams:
            base = "mfcc" if stream == "ivector" else stream
            with redirect_stderr(io.StringIO()):  # the stages' own reports
                if not (work / base).exists():
                    extract(base, config, data, work / base, 1)
                if stream == "ivector":
                    _extract_ivectors(config, out, data, work)
            if stream == "ivector":
                name, kind = NAMES[ivector_options(config).per], _kind(config)
            else:
                name, kind = "feats", "matrix"
            computed = Scp(work / stream / f"{name}.scp", kind)
            given = Scp(out / "feats" / stream / data.path.name / f"{name}.scp", kind)
            pairs = [(computed[key], given[key]) for key in computed if key in given]
            found = difference(pairs, centred=stream != "ivector")
            if not found <= _LIMIT:
                what = (
                    f"what features.{stream} computes of {data.path.name}'s audio differs from"
                    f" what was imported ({100 * found:.3g} % of its power; {100 * _LIMIT:g} % are"
                    " let pass)"
                )
                fix = f"Set features.{stream} as it was for Kaldi"
                raise _refused(config, stream, what, fix)


def difference(pairs: Pairs, *, centred: bool) -> float:
    """Power of the difference of computed and given values, as a share of the given ones' power.

    Args:
        pairs: of [frames, dim], which may differ by two frames in length, or of [dim].
        centred: without the means over frames, which normalisation takes off.

    Returns:
        Infinity where there are none, or where they do not fit.
    """
    error = power = 0.0
    for computed, given in pairs:
        if computed.shape[-1] != given.shape[-1] or abs(len(computed) - len(given)) > 2:
            return float("inf")
        frames = min(len(computed), len(given))
        ours, theirs = (array[:frames].astype(np.float64) for array in (computed, given))
        if centred:
            ours, theirs = ours - ours.mean(axis=0), theirs - theirs.mean(axis=0)
        error += float(np.square(ours - theirs).sum())
        power += float(np.square(theirs).sum())
    return error / power if power else float("inf")


def _extract_ivectors(config: Config, out: Path, data: DataDir, work: Path) -> None:
    folder = ivector_folder(config, out)
    inputs = Inputs(data, work / "mfcc", Frontend.read(folder), 1.0)
    gaussians, model = ubm.read(folder / "final.dubm"), extractor.read(folder / "final.ie")
    extract_ivectors(inputs, gaussians, model, ivector_options(config), work / "ivector", 1)


def _kind(config: Config) -> Kind:
    return "matrix" if ivector_options(config).per == "online" else "vector"


def _one_speaker(data: DataDir) -> DataDir:
    names = min(data.speakers.values(), key=len)
    chosen = {name: data.utterances[name] for name in names}
    return DataDir(data.path, chosen, data.recordings)


def _refused(config: Config, stream: str, what: str, fix: str) -> UserError:
    where = f"config {config.name}"
    return UserError(f"features.imports.{stream}: {what}", where=where, fix=f"{fix}. {_OWN}")
