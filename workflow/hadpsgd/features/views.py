"""What speaker adaptation looks like: determinants of FMLLR transforms, i-vectors in a plane."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.features.ivector.extract import NAMES
from hadpsgd.kaldi_io import iterate
from hadpsgd.kaldi_stream import Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Matrix = NDArray[np.float32]
Doubles = NDArray[np.float64]

_COLOURS = {"f": "#d1495b", "m": "#2b85d0"}
_OTHER, _INK, _GRID = "#5c6b73", "#22262b", "#c9ced4"
_NAMED = 80


def log_determinants(transforms: Mapping[str, Matrix]) -> dict[str, float]:
    """log |det A| of each transform [dim, dim + 1]: how much it stretches the features.

    Raises:
        UserError: a transform is not affine.
    """
    found = {}
    for speaker, matrix in transforms.items():
        rows, columns = matrix.shape
        if columns != rows + 1:
            raise UserError(f"a transform of {rows} x {columns}", where=f"speaker {speaker}")
        found[speaker] = float(np.linalg.slogdet(matrix[:, :rows].astype(np.float64))[1])
    return found


def read_ivectors(place: Path) -> dict[str, Doubles]:
    """i-vector of each speaker or utterance: float64 [dim]; online ones are averaged over time.

    `place` is an archive or scp of vectors or matrices, or the folder of an ivector stream.

    Raises:
        UserError: nothing there, something else, or i-vectors of different sizes.
    """
    path = place
    if place.is_dir():
        there = [place / f"{name}.scp" for name in NAMES.values()]
        path = next((scp for scp in there if scp.is_file()), place / "ivectors_spk.scp")
    if not path.is_file():
        raise UserError("no such file", where=path, fix="`hadpsgd ivector-extract` makes it")
    found = {
        name: np.atleast_2d(values.astype(np.float64)).mean(axis=0)
        for name, values in iterate(path, _kind(path))
    }
    if len({len(vector) for vector in found.values()}) != 1:
        raise UserError("no i-vectors, or of different sizes", where=path)
    return found


def _kind(path: Path) -> Kind:
    """Whether the first object is a vector or a matrix."""
    try:
        next(iter(iterate(path, "vector")))
    except (UserError, StopIteration):
        return "matrix"
    return "vector"


def plane(vectors: Doubles) -> tuple[Doubles, Doubles]:
    """The two directions of largest variance: [n, 2], and their shares of the variance [2]."""
    centred = vectors - vectors.mean(axis=0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:2]
    largest = np.abs(directions).argmax(axis=1)
    directions *= np.sign(directions[np.arange(len(directions)), largest])[:, None]
    points = np.zeros((len(vectors), 2))
    points[:, : len(directions)] = centred @ directions.T
    power = np.zeros(2)
    power[: len(directions)] = singular[:2] ** 2
    return points, power / max(float((singular**2).sum()), 1e-300)


def spread(vectors: Mapping[str, Doubles], group_of: Mapping[str, str]) -> float | None:
    """Share of the i-vectors' variance that lies between groups.

    None with fewer than two groups, or where each holds one i-vector.
    """
    names = [name for name in vectors if name in group_of]
    groups = sorted({group_of[name] for name in names})
    if len(groups) < 2 or len(groups) == len(names):
        return None
    points = np.array([vectors[name] for name in names])
    labels = np.array([groups.index(group_of[name]) for name in names])
    mean = points.mean(axis=0)
    between = sum(
        (labels == g).sum() * ((points[labels == g].mean(axis=0) - mean) ** 2).sum()
        for g in range(len(groups))
    )
    return float(between / max(((points - mean) ** 2).sum(), 1e-300))


def determinant_picture(values: Mapping[str, float], gender: Mapping[str, str]) -> Figure:
    """A dot a speaker, in order, coloured by gender."""
    names = sorted(values, key=lambda name: values[name])
    figure, axis = _figure((max(5.5, min(0.14 * len(names) + 1.2, 16)), 3.6))
    for kind, chosen in _by_gender(names, gender).items():
        places = [names.index(name) for name in chosen]
        heights = [values[name] for name in chosen]
        axis.plot(places, heights, "o", markersize=4, color=_COLOURS.get(kind, _OTHER),
                  label=kind or "unknown")  # fmt: skip
    if len(names) <= _NAMED:
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
    axis.axhline(0, color=_GRID, linewidth=0.8, zorder=0)
    middle = float(np.median(list(values.values())))
    axis.set_title(f"FMLLR of {len(names)} speakers: log |det A|, median {middle:.2f}",
                   fontsize=10, loc="left", color=_INK)  # fmt: skip
    axis.legend(loc="upper left", frameon=False, fontsize=8, labelcolor=_INK)
    return figure


def ivector_picture(
    vectors: Mapping[str, Doubles], speaker_of: Mapping[str, str], gender: Mapping[str, str]
) -> Figure:
    """i-vectors in their two main directions, coloured by gender, named by speaker."""
    names = list(vectors)
    points, shares = plane(np.array([vectors[name] for name in names]))
    place = dict(zip(names, points, strict=True))
    figure, axis = _figure((6.4, 5.2))
    sexes = {name: gender.get(speaker_of.get(name, name), "") for name in names}
    for kind, chosen in _by_gender(names, sexes).items():
        some = np.array([place[name] for name in chosen])
        axis.plot(some[:, 0], some[:, 1], "o", markersize=4, alpha=0.75,
                  color=_COLOURS.get(kind, _OTHER), label=kind or "unknown")  # fmt: skip
    by_speaker: dict[str, list[Doubles]] = {}
    for name in names:
        by_speaker.setdefault(speaker_of.get(name, name), []).append(place[name])
    if len(by_speaker) <= _NAMED:
        for speaker, own in by_speaker.items():
            x, y = np.mean(own, axis=0)
            axis.annotate(speaker, (x, y), (2, 2), textcoords="offset points", fontsize=6,
                          color=_INK)  # fmt: skip
    axis.set_xlabel(f"first direction ({100 * shares[0]:.0f} % of the variance)", fontsize=9)
    axis.set_ylabel(f"second direction ({100 * shares[1]:.0f} %)", fontsize=9)
    axis.set_title(f"{len(names)} i-vectors of {len(by_speaker)} speakers", fontsize=10,
                   loc="left", color=_INK)  # fmt: skip
    axis.legend(loc="upper left", frameon=False, fontsize=8, labelcolor=_INK)
    return figure


def _by_gender(names: list[str], gender: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(gender.get(name, ""), []).append(name)
    return dict(sorted(groups.items()))


def _figure(size: tuple[float, float]) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # half a second: only where pictures are drawn

    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    axis.tick_params(colors=_INK, labelsize=8, length=2)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_GRID)
    return figure, axis
