"""Kaldi's archives: our reading and writing against Kaldi's files and an independent codec."""

from __future__ import annotations

import gzip
import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hadpsgd import kaldi_io
from hadpsgd.errors import UserError
from hadpsgd.kaldi_compressed import read_compressed


@pytest.fixture
def an4(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shared.resolve() / "kaldi_an4"
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("an4")
def test_compressed_matrices_by_scp_equal_those_of_the_archive() -> None:
    archive = kaldi_io.iterate("mfcc/mfcc_train.ark")
    by_scp = kaldi_io.Scp("data/train/feats.scp")
    keys = list(by_scp)
    assert len(keys) == 948
    for (key, matrix), expected_key in zip(archive, keys, strict=True):
        assert key == expected_key
        np.testing.assert_array_equal(matrix, by_scp[key])
    assert by_scp["fash-an251-fash-b"].shape == (98, 13)


@pytest.mark.usefixtures("an4")
def test_compressed_matrix_decodes_as_kaldi_does() -> None:
    # the same features uncompressed: a byte of Kaldi's coding is worth 1/64 of a quartile range
    golden = dict(kaldi_io.iterate("golden/mfcc13_test.ark.gz"))
    for key, matrix in kaldi_io.iterate("data/test/feats.scp"):
        spread = np.ptp(golden[key], axis=0)
        assert (np.abs(matrix - golden[key]) <= 0.02 * spread + 1e-3).all()


def test_scp_is_found_from_another_folder(an4: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = kaldi_io.Scp("data/test/feats.scp")["fcaw-an406-fcaw-b"]
    monkeypatch.chdir("/")
    there = kaldi_io.Scp(an4 / "data/test/feats.scp")["fcaw-an406-fcaw-b"]
    np.testing.assert_array_equal(here, there)


@pytest.mark.usefixtures("an4")
def test_random_access_reads_no_whole_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    scp = kaldi_io.Scp("data/train/feats.scp")
    read: list[int] = []
    original = kaldi_io.Stream.read

    def counted(self: kaldi_io.Stream, size: int) -> bytes | bytearray:
        read.append(size)
        return original(self, size)

    monkeypatch.setattr(kaldi_io.Stream, "read", counted)
    last = scp[list(scp)[-1]]
    assert sum(read) < last.size + 200


def unzipped(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def test_int_vectors_of_gzipped_alignments_are_rewritten_byte_for_byte(
    an4: Path, tmp_path: Path
) -> None:
    source = an4 / "exp/tri3b_ali/ali.1.gz"
    count = kaldi_io.write_archive(tmp_path / "ali.1.gz", kaldi_io.iterate(source, "ints"))
    assert count > 100
    assert unzipped(tmp_path / "ali.1.gz") == unzipped(source)


FORKS = """
import multiprocessing, pickle
from hadpsgd import kaldi_io

scp = kaldi_io.Scp("data/test/feats.scp")

def matrix_sum(key):
    return float(scp[key].sum())

keys = list(scp) * 3
expected = [matrix_sum(key) for key in keys]  # the parent's file is open
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(matrix_sum, keys, chunksize=1) == expected
copied = pickle.loads(pickle.dumps(scp))
assert float(copied[keys[5]].sum()) == expected[5]
"""


@pytest.mark.usefixtures("an4")
def test_forked_readers_do_not_disturb_each_other() -> None:
    """In a process of its own: a fork of one that has other threads may stand still for ever."""
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=120)


@pytest.mark.usefixtures("an4")
def test_matrices_and_double_statistics_are_rewritten_byte_for_byte(tmp_path: Path) -> None:
    for name in ("exp/tri3b_ali/trans.1", "mfcc/cmvn_train.ark"):
        kaldi_io.write_archive(tmp_path / "copy.ark", kaldi_io.iterate(name))
        assert (tmp_path / "copy.ark").read_bytes() == Path(name).read_bytes()
    vectors = kaldi_io.iterate("exp/ivector/ivectors_train.ark", "vector")
    kaldi_io.write_archive(tmp_path / "v.ark", vectors)
    assert (tmp_path / "v.ark").read_bytes() == Path("exp/ivector/ivectors_train.ark").read_bytes()


@pytest.mark.usefixtures("an4")
def test_text_archive(tmp_path: Path) -> None:
    first = next(iter(kaldi_io.iterate("golden/ali_pdf_train50.txt", "ints")))
    assert first[0] == "fash-an251-fash-b" and first[1].dtype == np.int32
    (tmp_path / "m.ark").write_text("a  [\n  1 2.5\n  3 4 ]\nb  [\n 1 2 ]\n")
    found = dict(kaldi_io.iterate(tmp_path / "m.ark"))
    np.testing.assert_array_equal(found["a"], [[1, 2.5], [3, 4]])
    assert found["b"].shape == (1, 2)
    (tmp_path / "v.ark").write_text("a  [ 1 2.5 ]\nb  [ ]\n")
    found = dict(kaldi_io.iterate(tmp_path / "v.ark", "vector"))
    np.testing.assert_array_equal(found["a"], [1, 2.5])
    (tmp_path / "i.ark").write_text("a 1 2 3\nb \nc 4\n")
    assert [v.tolist() for _, v in kaldi_io.iterate(tmp_path / "i.ark", "ints")] == [
        [1, 2, 3],
        [],
        [4],
    ]


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7)),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=1, max_side=9)),
    hnp.arrays(np.int32, st.integers(0, 9)),
)
def test_what_is_written_is_read(matrix: np.ndarray, vector: np.ndarray, ints: np.ndarray) -> None:
    kinds: list[kaldi_io.Kind] = ["matrix", "vector", "ints"]
    for array, kind in zip((matrix, vector, ints), kinds, strict=True):
        stream = kaldi_io.Stream(io.BytesIO(kaldi_io.encode(array)), "memory")
        found = stream.object(kind)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(("token", "steps", "code"), [("CM2", 65535, "H"), ("CM3", 255, "B")])
def test_linear_compressed_formats(token: str, steps: int, code: str) -> None:
    low, span, data = -3.0, 7.5, [0, 1, steps // 2, steps, 5, 9]
    body = struct.pack("<ffii", low, span, 2, 3) + struct.pack(f"<6{code}", *data)
    stream = kaldi_io.Stream(io.BytesIO(b"\0B" + token.encode() + b" " + body), "m")
    expected = [low + span * value / steps for value in data]
    np.testing.assert_allclose(stream.object("matrix").ravel(), expected, rtol=1e-6)


def test_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match="CM9"):
        read_compressed(bytes, "CM9")


def test_ranges_are_inclusive(tmp_path: Path) -> None:
    matrix = np.arange(60, dtype=np.float32).reshape(20, 3)
    kaldi_io.write_archive(tmp_path / "a.ark", [("x", matrix), ("u", matrix)], tmp_path / "a.scp")
    entry = kaldi_io.read_scp(tmp_path / "a.scp")["u"]
    np.testing.assert_array_equal(kaldi_io.read(f"{entry}[0:9]"), matrix[:10])
    np.testing.assert_array_equal(kaldi_io.read(f"{entry}[3:4,1:2]"), matrix[3:5, 1:])
    np.testing.assert_array_equal(kaldi_io.read(f"{entry}[:,0:0]"), matrix[:, :1])
    np.testing.assert_array_equal(kaldi_io.read(f"{entry}[15:21]"), matrix[15:])
    (tmp_path / "r.scp").write_text(f"seg {entry}[2:3]\n")
    np.testing.assert_array_equal(dict(kaldi_io.iterate(tmp_path / "r.scp"))["seg"], matrix[2:4])
    for bad in ("[20:21]", "[0:40]", "[4:3]", "[0:1,0:3]", "[5]"):
        with pytest.raises(UserError, match="range"):
            kaldi_io.read(entry + bad)


@pytest.mark.parametrize("name", ["a.ark", "a.ark.gz"])
def test_truncated_archive_names_file_and_utterance(tmp_path: Path, name: str) -> None:
    matrix = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
    path = tmp_path / name
    kaldi_io.write_archive(path, [("utt-1", matrix), ("utt-2", 0.7 * matrix)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(UserError, match=rf"{name}, utterance utt-2: the file ends in the middle"):
        list(kaldi_io.iterate(path))
    if name == "a.ark":  # every cut but the one between utterances is seen
        for size in range(len(whole) // 2 + 1, len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(UserError, match="ends in the middle"):
                list(kaldi_io.iterate(path))


def test_broken_input_is_one_line(tmp_path: Path) -> None:
    def refused(match: str, source: str, kind: kaldi_io.Kind = "matrix") -> None:
        with pytest.raises(UserError, match=match) as caught:
            list(kaldi_io.iterate(source, kind))
        assert "\n" not in str(caught.value)

    kaldi_io.write_archive(tmp_path / "i.ark", [("u", np.arange(3))])
    refused("utterance u: not a float matrix", str(tmp_path / "i.ark"))
    refused("no such file", str(tmp_path / "none.ark"))
    (tmp_path / "noise.ark").write_bytes(np.random.default_rng(2).bytes(5000))
    refused("not an archive", str(tmp_path / "noise.ark"))
    (tmp_path / "t.scp").write_text("u\n")
    refused("t.scp:1: not `utterance file`", str(tmp_path / "t.scp"))
    (tmp_path / "w.scp").write_bytes(b"u a.ark:1\r\n")
    refused("Windows", str(tmp_path / "w.scp"))
    (tmp_path / "d.scp").write_text("u a:1\nu a:2\n")
    refused("d.scp:2: utterance u is there twice", str(tmp_path / "d.scp"))
    (tmp_path / "bad.ark.gz").write_bytes(b"not gzip at all")
    refused("not", str(tmp_path / "bad.ark.gz"))


def test_pipes_only_when_allowed(tmp_path: Path) -> None:
    kaldi_io.write_archive(tmp_path / "i.gz", [("u", np.arange(3))])
    command = f"ark,s,cs:gunzip -c {tmp_path}/i.gz |"
    with pytest.raises(UserError, match="not allowed"):
        list(kaldi_io.iterate(command, "ints"))
    found = dict(kaldi_io.iterate(command, "ints", allow_pipes=True))
    np.testing.assert_array_equal(found["u"], [0, 1, 2])
    with pytest.raises(UserError, match="status 3"):
        list(kaldi_io.iterate("ark:exit 3 |", "ints", allow_pipes=True))


def test_a_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError),
        kaldi_io.Writer(ark=tmp_path / "a.ark", scp=tmp_path / "a.scp") as writer,
    ):
        writer.write("u", np.zeros((2, 2), np.float32))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with kaldi_io.Writer(ark=tmp_path / "a.gz") as writer, pytest.raises(UserError, match="blanks"):
        writer.write("a b", np.zeros(2))


def test_gzip_is_reproducible_and_scp_can_name_the_final_place(tmp_path: Path) -> None:
    for name in ("1.gz", "2.gz"):
        kaldi_io.write_archive(tmp_path / name, [("u", np.arange(9))])
    assert (tmp_path / "1.gz").read_bytes() == (tmp_path / "2.gz").read_bytes()
    with kaldi_io.Writer(
        ark=tmp_path / "a.ark", scp=tmp_path / "a.scp", recorded_as="final/feats.ark"
    ) as writer:
        writer.write("u", np.zeros((2, 2)))
    assert (tmp_path / "a.scp").read_text() == "u final/feats.ark:2\n"


@pytest.mark.usefixtures("an4")
def test_read_arrays_can_be_changed() -> None:
    matrix = kaldi_io.read("exp/ivector/lda_mllt.mat")
    matrix += 1
    assert matrix.shape[0] == 40


def test_the_import_says_nothing_and_leaves_the_environment() -> None:
    """kaldi-io warns where there is no Kaldi, and puts the folders of one into PATH."""
    script = "import os; before = dict(os.environ); import {}; assert dict(os.environ) == before"
    env = {name: value for name, value in os.environ.items() if name != "KALDI_ROOT"}
    for module, quiet in (("kaldi_io", False), ("hadpsgd.kaldi_io", True)):
        command = [sys.executable, "-c", script.format(module)]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (ran.returncode == 0 and not ran.stdout + ran.stderr) == quiet, ran.stderr
