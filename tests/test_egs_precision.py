"""Examples in 8 bits: half a step at most, the same bytes by any way, errors as they are said."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_egs_streams import Killed, Prepared, contents, kill_after
from training_data import write_egs, write_examples

from hadpsgd.cli import main
from hadpsgd.egs import chunks
from hadpsgd.egs.dataset import Dataset
from hadpsgd.egs.layout import Layout, Part
from hadpsgd.egs.precision import Errors, pack

SHAPE = (6, 3, 2)
FINITE = st.floats(-1e6, 1e6, width=32)


def packed_of(values: np.ndarray, dtype: str = "int8", parts: int = 2) -> Any:
    """Examples [n, frames, dim] as they are stored, given in so many parts; and their layout."""
    layout = Layout.plain(frames=values.shape[1], dim=values.shape[2], dtype=dtype)
    rows = np.zeros(len(values), layout.exact.row)
    rows["logmel"] = values
    return pack(layout, deque(np.array_split(rows, parts))), layout


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, SHAPE, elements=FINITE), st.integers(1, 6))
def test_what_is_read_differs_by_half_a_step_at_most(values: np.ndarray, parts: int) -> None:
    """A step is a 254th of the feature's range in the shard; ends of the range are read as such."""
    packed, layout = packed_of(values, parts=parts)
    found = layout.static(packed.rows, "logmel", packed.scales[None])
    low, high = (e((0, 1)).astype(np.float64) for e in (values.min, values.max))
    rounding = 2.0**-22 * np.maximum(np.abs(low), np.abs(high)) + 1e-40  # of float32
    error = np.abs(found.astype(np.float64) - values)
    assert (error <= (high - low) / 254 / 2 + rounding).all()
    for end in (low, high):
        at_end = values == end
        assert (error[at_end] <= np.broadcast_to(rounding, SHAPE)[at_end]).all()


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, SHAPE, elements=FINITE), st.integers(1, 5), st.sampled_from(["a", "b"]))
def test_errors_are_those_of_all_values(values: np.ndarray, cut: int, way: str) -> None:
    """Joined by parts, or taken back from JSON: as NumPy says of them all."""
    stored = values + np.float32(0.25) * np.sign(values)
    parts = [Errors.of(values[:cut], stored[:cut]), Errors.of(values[cut:], stored[cut:])]
    if way == "b":
        parts = [Errors.read(json.loads(json.dumps(part.content()))) for part in parts]
    found = parts[0].joined(parts[1]).in_deviations()
    flat, read = (e.reshape(-1, 2).astype(np.float64) for e in (values, stored))
    spread = flat.std(0)
    if (spread > 1e-6 * np.abs(flat).max()).all():  # else what is left of it is rounding
        error = np.abs(read - flat)
        np.testing.assert_allclose(found["max"], error.max(0) / spread, rtol=2e-3)
        np.testing.assert_allclose(found["rms"], np.sqrt((error**2).mean(0)) / spread, rtol=2e-3)


def test_a_feature_that_never_changes_is_kept() -> None:
    values = np.full(SHAPE, 3.7, np.float32)
    packed, layout = packed_of(values)
    np.testing.assert_array_equal(layout.static(packed.rows, "logmel", packed.scales[None]), values)
    assert packed.errors["logmel"].in_deviations() == {"max": [0.0] * 2, "rms": [0.0] * 2}


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return Prepared(tmp_path, per="online", utterances=120, shard_frames=1000, dtype="int8")


def static_of(prepared: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """fMLLR and log mel energies without deltas, as inputs of all held-out frames have them: what
    is read, and what should be."""
    wanted = prepared.expected(pad=True)
    labels = wanted[:, :, -1] >= 0
    columns = [0, 1, *range(6, 14)]
    return prepared.found()[labels][:, columns], wanted[labels][:, columns]


def test_errors_are_measured_and_said(
    prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepared.run("--held-out") == 0
    said = capsys.readouterr().err
    found, wanted = static_of(prepared)
    shards = np.load(prepared.folder / "egs/scales.npy")
    assert len(shards) == len(list((prepared.folder / "egs").glob("examples.*.npy"))) > 1
    error = np.abs(found - wanted)
    assert (error <= 0.5001 * shards[:, 1].max(0) + 1e-6).all()
    # in meta.json they are of all that is stored, frames beside an example among it
    errors = json.loads((prepared.folder / "egs/meta.json").read_text())["errors"]
    spread = wanted.std(0)
    rms = [*errors["fmllr"]["rms"], *errors["logmel"]["rms"]]
    np.testing.assert_allclose(rms, np.sqrt((error**2).mean(0)) / spread, rtol=0.1)
    largest = [*errors["fmllr"]["max"], *errors["logmel"]["max"]]
    assert (error.max(0) / spread < 1.05 * np.array(largest)).all()
    for name in ("fmllr", "logmel"):
        highest = max(errors[name]["max"])
        assert f"{name} in int8: error at most {highest:.2g} standard deviations" in said
        assert 1e-3 < highest < 0.03


def test_deltas_are_made_of_what_is_read(prepared: Prepared) -> None:
    """So their error is that of the values that they are made of."""
    assert prepared.run("--held-out") == 0
    error = np.abs(prepared.found() - prepared.expected(pad=True))[:, :, 6:-1]
    step = np.load(prepared.folder / "egs/scales.npy")[:, 1, 2:].max()
    of_static, of_deltas = error[:, :, :8].max(), error[:, :, 8:].max()
    assert step / 4 < of_static <= 0.5001 * step and of_deltas <= 0.6 * step  # sum of |taps|: 0.6


def test_any_number_of_processes_and_a_kill_give_the_same_bytes(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepared.run(out="whole") == 0 and prepared.run("--jobs", "3", out="again") == 0
    whole = contents(prepared.folder / "whole")
    assert "scales.npy" in whole and whole == contents(prepared.folder / "again")
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "write_shard", kill_after(chunks.write_shard, 2))
        with pytest.raises(Killed):
            prepared.run()
    finished = prepared.folder / ".egs.partial/chunk.0000.json"
    content = json.loads(finished.read_text())
    finished.write_text(json.dumps(content | {"scales": content["scales"][:1]}))  # damaged
    assert prepared.run() == 0
    assert contents(prepared.folder / "egs") == whole


def eight_bits(folder: Path) -> Path:
    """Examples of noise."""
    folder.mkdir()
    draws = np.random.default_rng(1)
    features = draws.normal(size=(20, 5, 6)).astype(np.float32)
    labels = np.zeros((20, 5), np.int32)
    write_examples(folder, features, labels, pdfs=1, per_shard=10, dtype="int8")
    return folder


def test_damaged_scales_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = eight_bits(tmp_path / "egs")
    assert main(["check-egs", str(folder)]) == 0
    path = folder / "scales.npy"
    content = path.read_bytes()
    changed = content[:-1] + bytes([content[-1] ^ 1])
    infinite = content[:-4] + np.float32(np.inf).tobytes()
    for damage, said in (
        (changed, "damaged: its checksum is not that of meta.json"),
        (infinite, "damaged: a scale is not a finite number"),
        (content[:-4], "truncated shard"),
        (b"", "not a shard"),
        (None, "missing"),
    ):
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        assert main(["check-egs", str(folder)]) == 2
        assert f"scales.npy: {said}" in capsys.readouterr().err
        path.write_bytes(content)


def test_shards_of_another_type_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file in float32 among those in 8 bits, or a description that says so."""
    folder, other = eight_bits(tmp_path / "egs"), write_egs(tmp_path / "other", 20, 1)
    meta = json.loads((folder / "meta.json").read_text())
    shard = folder / "examples.0001.npy"
    content = shard.read_bytes()
    shard.write_bytes((other / "examples.0001.npy").read_bytes())
    assert main(["check-egs", str(folder)]) == 2
    assert "examples.0001.npy: " in capsys.readouterr().err
    shard.write_bytes(content)
    for dtype in ("float32", "float16"):
        (folder / "meta.json").write_text(json.dumps(meta | {"dtype": dtype}))
        assert main(["check-egs", str(folder)]) == 2
        assert "and meta.json says" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        ("int8", np.nan, "that is not a finite number"),
        ("float32", np.inf, "that is not a finite number"),
        ("float16", 1e6, "which float16 does not hold"),
    ],
)
def test_values_without_a_place_are_refused(
    tmp_path: Path, dtype: str, value: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A NaN would become a number, 1e6 infinite."""
    prepared = Prepared(tmp_path, dtype=dtype)
    name, length = list(prepared.lengths.items())[4]
    values = np.zeros((length, 8), np.float32)
    values[0, 0] = value
    others = {u: np.ones((n, 8), np.float32) for u, n in prepared.lengths.items()}
    prepared.write("logmel", "feats", others | {name: values})
    assert prepared.run() == 2
    err = capsys.readouterr().err
    assert f"utterance {name}: logmel has a value" in err and said in err


def test_readers_and_order_change_nothing(tmp_path: Path) -> None:
    folder = eight_bits(tmp_path / "egs")
    one, three = Dataset(folder), Dataset(folder, readers=3)
    places = np.random.default_rng(2).permutation(20)
    features, _ = one.gather(np.arange(20))
    np.testing.assert_array_equal(three.gather(places)[0], features[places])


def test_a_row_of_8_bits_is_small() -> None:
    parts = (
        Part(stream="fmllr", dim=40),
        Part(stream="ivector", dim=100, table=True, framewise=False),
        Part(stream="logmel", dim=40, order=2, window=2),
    )
    layout = Layout(21, parts, "int8")
    assert layout.row.itemsize == 21 * 40 + 4 + 29 * 40 + 4 * 21
    assert layout.columns == {"fmllr": slice(0, 40), "logmel": slice(40, 80)}
    assert layout.table_dtype == np.float16
