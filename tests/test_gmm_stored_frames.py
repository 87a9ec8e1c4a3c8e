"""Frames read where they lie: the same as through Kaldi's archives, whatever is stored there."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hadpsgd import kaldi_io
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.gmm.data import fill
from hadpsgd.gmm.stored_frames import StoredFrames
from hadpsgd.gmm.workspace import Chunk, Workspace
from hadpsgd.kaldi_io import Scp
from hadpsgd.kaldi_place import Places

DIM = 3


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), data=st.data())
def test_any_utterances_from_any_files(tmp_path: Path, seed: int, data: st.DataObject) -> None:
    """Utterances in any order in several files, with gaps that are read and gaps that are not."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 12))
    content, files = [], [tmp_path / f"{n}" for n in range(3)]
    pieces = [bytearray() for _ in files]
    file, byte = np.zeros(count, np.int64), np.zeros(count, np.int64)
    content = [
        random.normal(size=(rows, DIM)).astype(np.float32) for rows in random.integers(0, 9, count)
    ]
    for utterance in random.permutation(count).tolist():
        number = int(random.integers(len(files)))
        pieces[number] += bytes(int(random.choice([0, 5, 70_000])))
        file[utterance], byte[utterance] = number, len(pieces[number])
        pieces[number] += content[utterance].tobytes()
    for path, piece in zip(files, pieces, strict=True):
        path.write_bytes(piece)
    rows = np.array([len(each) for each in content])
    stored = StoredFrames(files=files, file=file, byte=byte, rows=rows, dim=DIM)
    first = data.draw(st.integers(0, count))
    last = data.draw(st.integers(first, count))
    nothing = np.zeros((0, DIM), np.float32)
    wanted = np.concatenate([nothing, *content[first:last]])
    np.testing.assert_array_equal(stored.read(first, last), wanted)
    numbers = np.flatnonzero(random.random(count) < 0.5)
    some = np.concatenate([nothing, *(content[n] for n in numbers)])
    np.testing.assert_array_equal(stored.chosen(numbers).read(0, len(numbers)), some)


def test_a_file_that_has_become_shorter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "feats.ark"
    path.write_bytes(np.zeros((4, DIM), np.float32).tobytes()[:-1])
    one = np.zeros(1, np.int64)
    stored = StoredFrames(files=[path], file=one, byte=one, rows=one + 4, dim=DIM)
    with pytest.raises(UserError, match=r"feats\.ark: the file has become shorter"):
        stored.read(0, 1)
    path.unlink()
    with pytest.raises(UserError, match=r"feats\.ark: cannot be read"):
        stored.read(0, 1)


def test_places_are_those_of_plain_floats_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    plain = random.normal(size=(7, DIM)).astype(np.float32)
    kaldi_io.write_archive(
        tmp_path / "a.ark",
        [("x", plain), ("double", plain.astype(np.float64)), ("y", plain[:2])],
        tmp_path / "a.scp",
    )
    kaldi_io.write(tmp_path / "alone", plain)
    (tmp_path / "packed.gz").write_bytes(gzip.compress((tmp_path / "alone").read_bytes()))
    (tmp_path / "text.ark").write_text("t  [ 1 2 3 ]\n")
    (tmp_path / "short").write_bytes(b"\0BFM ")
    lines = (tmp_path / "a.scp").read_text() + (
        f"alone {tmp_path}/alone\nrange {tmp_path}/alone[0:2]\ngz {tmp_path}/packed.gz\n"
        f"text {tmp_path}/text.ark:2\ncommand cat {tmp_path}/alone |\nshort {tmp_path}/short\n"
        f"missing {tmp_path}/nothing:3\n"
    )
    (tmp_path / "b.scp").write_text(lines)
    scp = Scp(tmp_path / "b.scp")
    with Places(scp) as places:
        found = {key: places(key) for key in scp}
    assert {key for key, place in found.items() if place} == {"x", "y", "alone"}
    for key in ("x", "y", "alone"):
        place = found[key]
        assert place is not None
        values = np.fromfile(place.file, "<f4", place.rows * place.columns, offset=place.byte)
        np.testing.assert_array_equal(values.reshape(place.rows, place.columns), scp[key])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("variances", [False, True])
def test_workspaces_read_what_inputs_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: type, variances: bool
) -> None:
    """Normalised to the bit; doubles are copied, plain floats are not."""
    random = np.random.default_rng(3)
    speakers = {"s-1": "s", "s-2": "s", "t-1": "t", "t-2": "t", "u-1": "u"}
    order = list(speakers)
    feats: dict[str, np.ndarray] = {
        name: (9 * random.normal(size=(5, DIM)) + 4).astype(dtype) for name in speakers
    }
    kaldi_io.write_archive(tmp_path / "feats.ark", feats.items(), tmp_path / "feats.scp")
    stats = random.uniform(1, 2, size=(2, DIM + 1)) * [[1], [9]]
    pairs = [(name, stats * (1 + n)) for n, name in enumerate("stu")]
    kaldi_io.write_archive(tmp_path / "cmvn.ark", pairs, tmp_path / "cmvn.scp")
    (tmp_path / "utt2spk").write_text("".join(f"{u} {s}\n" for u, s in speakers.items()))
    (tmp_path / "wav.scp").write_text("".join(f"{u} {u}.wav\n" for u in speakers))
    data = DataDir.read(tmp_path, audio=False, text=False)
    frontend = Frontend(left=0, right=0, variances=variances)
    inputs = Inputs(data, tmp_path, frontend)
    with Workspace(tmp_path / "work") as space:
        fill(space, data, tmp_path, frontend)
        assert space.names == order and space.speakers == list(speakers.values())
        wanted = np.concatenate([inputs[name] for name in order])
        np.testing.assert_array_equal(space.frames(Chunk(0, 5)), wanted)
        copied = dtype == np.float64
        assert space.scratch_bytes == 25 * 4 * (1 + DIM * copied)
        assert ("scratch file" if copied else "archives") in capsys.readouterr().err
        with space.part(tmp_path / "part", np.array([1, 2, 4])) as part:
            assert part.names == ["s-2", "t-1", "u-1"] and part.num_frames == 15
            some = np.concatenate([inputs[name] for name in part.names])
            np.testing.assert_array_equal(part.frames(Chunk(0, 3)), some)
            assert not (part.folder / "frames").exists()
