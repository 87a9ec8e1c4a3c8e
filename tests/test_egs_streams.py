"""Examples of several streams: deltas and i-vectors put together at reading, kills, processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gmm_toy import toy

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.egs import chunks
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.layout import Layout, Part
from hadpsgd.features import cmvn
from hadpsgd.features.fusion import Fusion
from hadpsgd.gmm import model

FRAMES = 7
BINS = 8


class Killed(BaseException):
    """Nothing catches it."""


class Prepared:
    """Utterances of 3 speakers with three streams and alignments."""

    def __init__(
        self, folder: Path, *, per: str = "speaker", utterances: int = 24, **egs: Any
    ) -> None:
        self.folder, self.per = folder, per
        draws = np.random.default_rng(1)
        self.lengths = {f"s{n % 3}-u{n:03}": int(draws.integers(5, 60)) for n in range(utterances)}
        content = {
            "name": "t",
            "corpus": {"kind": "an4"},
            "alignment": {"kind": "sat"},
            "egs": {"frames": FRAMES, **egs},
            "features": {"input": ["fmllr", "ivector", "logmel"], "logmel": {"bins": BINS}},
        }
        (folder / "c.yaml").write_text(json.dumps(content))
        data = folder / "data/train"
        data.mkdir(parents=True)
        speakers = {name: name[:2] for name in self.lengths}
        for table, value in (("utt2spk", speakers), ("text", dict.fromkeys(speakers, "a"))):
            (data / table).write_text("".join(f"{u} {v}\n" for u, v in sorted(value.items())))
        logmel = {
            u: draws.normal(3, 2, size=(n, BINS)).astype(np.float32)
            for u, n in self.lengths.items()
        }
        sums = cmvn.SpeakerStatistics(speakers)
        for utterance, values in logmel.items():
            sums.add(utterance, values)
        # Kaldi's fMLLR may have a frame more
        fmllr = {
            u: draws.normal(size=(n + n % 2, 2)).astype(np.float32) for u, n in self.lengths.items()
        }
        vectors: dict[str, np.ndarray] = {
            "speaker": {s: draws.normal(size=4) for s in ("s0", "s1", "s2")},
            "utterance": {u: draws.normal(size=4) for u in self.lengths},
            "online": {u: draws.normal(size=(-(-n // 5), 4)) for u, n in self.lengths.items()},
        }[per]
        name = {"speaker": "ivectors_spk", "utterance": "ivectors_utt", "online": "ivector_online"}
        self.write("logmel", "feats", logmel)
        self.write("logmel", "cmvn", dict(sums.items()))
        self.write("fmllr", "feats", fmllr)
        self.write("ivector", name[per], {k: v.astype(np.float32) for k, v in vectors.items()})
        if per == "online":
            (folder / "feats/ivector/train/ivector_period").write_text("5\n")
        small = toy(np.zeros((3, 3, 1)))
        transitions = small.model.transitions
        (folder / "ali").mkdir()
        (folder / "ali/final.mdl").write_bytes(model.content(small.model))
        self.ali = {
            u: draws.integers(1, transitions.num_ids + 1, size=n).astype(np.int32)
            for u, n in self.lengths.items()
        }
        kaldi_io.write_archive(folder / "ali/ali.1.gz", list(self.ali.items()))
        self.pdf = transitions.pdf

    def write(self, stream: str, name: str, arrays: dict[str, np.ndarray]) -> None:
        place = self.folder / "feats" / stream / "train"
        place.mkdir(parents=True, exist_ok=True)
        kaldi_io.write_archive(place / f"{name}.ark", arrays.items(), scp=place / f"{name}.scp")

    def run(self, *more: str, out: str = "egs") -> int:
        folder = self.folder
        return main(
            ["egs", "--config", str(folder / "c.yaml"), "--data", str(folder / "data/train"),
             "--streams", str(folder / "feats"), "--ali", str(folder / "ali"),
             "--out", str(folder / out), *more]
        )  # fmt: skip

    def expected(self, *, pad: bool = False) -> np.ndarray:
        """Inputs of whole utterances, cut by hand; labels in the last column."""
        config = load(self.folder / "c.yaml")
        data = DataDir.read(self.folder / "data/train", audio=False)
        fusion = Fusion(config, self.folder / "feats", data)
        found = []
        for name, ids in self.ali.items():
            whole = np.concatenate([fusion[name], self.pdf[ids][:, None]], axis=1)
            if pad:
                missing = np.zeros((-len(ids) % FRAMES, whole.shape[1]))
                missing[:, -1] = -1
                whole = np.concatenate([whole, missing])
            found += [whole[s : s + FRAMES] for s in range(0, len(whole) - FRAMES + 1, FRAMES)]
        return np.stack(found)

    def found(self, out: str = "egs") -> np.ndarray:
        dataset = Dataset(self.folder / out)
        dataset.verify()
        features, labels = dataset.gather(np.arange(len(dataset)))
        return np.concatenate([features, labels[:, :, None]], axis=2)


def ordered(examples: np.ndarray) -> np.ndarray:
    flat = examples.reshape(len(examples), -1)
    return flat[np.lexsort(flat[:, :20].round(3).T)]


@pytest.mark.parametrize("per", ["speaker", "utterance", "online"])
def test_inputs_are_those_of_whole_utterances(tmp_path: Path, per: str) -> None:
    prepared = Prepared(tmp_path, per=per)
    assert prepared.run() == 0
    dataset = Dataset(tmp_path / "egs")
    assert dataset.streams == {"fmllr": 2, "ivector": 4, "logmel": 24}
    np.testing.assert_allclose(ordered(prepared.found()), ordered(prepared.expected()), atol=2e-5)
    vectors = np.load(tmp_path / "egs/ivectors.npy")
    online = sum(-(-n // 5) for n in prepared.lengths.values())
    assert len(vectors) == {"speaker": 3, "utterance": 24, "online": online}[per]


def test_held_out_sets_keep_their_order_and_every_frame(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path, per="online", utterances=90, shard_frames=1000)
    assert prepared.run("--held-out") == 0
    assert len(list((tmp_path / "egs").glob("examples.*.npy"))) > 1
    np.testing.assert_allclose(prepared.found(), prepared.expected(pad=True), atol=2e-5)


def test_utterances_that_fit_their_transcripts_badly_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of training alone, named, and as if the data had never had them."""
    prepared = Prepared(tmp_path, misfit=4.0)
    names = list(prepared.ali)
    draws = np.random.default_rng(2)
    scores = {name: draws.normal(-7, 0.3) for name in names} | {names[3]: -20.0, names[7]: -30.0}
    (tmp_path / "ali/fits.txt").write_text(
        "".join(f"{n} {s:.4f}\n" for n, s in sorted(scores.items()))
    )
    assert prepared.run() == 0
    said = f"2 of 24 utterances fit their transcripts badly (egs.misfit): {names[7]}, {names[3]}"
    assert said in capsys.readouterr().err
    meta = json.loads((tmp_path / "egs/meta.json").read_text())
    assert meta["counts"]["misfits"] == [names[7], names[3]]
    assert (meta["counts"]["unaligned"], meta["counts"]["unknown"]) == ([], 0)
    for name in (names[3], names[7]):
        del prepared.ali[name]
    np.testing.assert_allclose(ordered(prepared.found()), ordered(prepared.expected()), atol=2e-5)
    assert prepared.run("--held-out", out="dev") == 0
    assert json.loads((tmp_path / "dev/meta.json").read_text())["counts"]["misfits"] == []
    (tmp_path / "ali/fits.txt").unlink()
    assert prepared.run(out="other") == 2
    assert "does not say how well these utterances fit (fits.txt)" in capsys.readouterr().err


def test_half_of_the_bits(tmp_path: Path) -> None:
    """float16: a relative error of 2^-11 of what is stored, before deltas."""
    prepared = Prepared(tmp_path, dtype="float16")
    assert prepared.run("--held-out") == 0
    expected = prepared.expected(pad=True)
    error = np.abs(prepared.found() - expected)[:, :, :-1].max()
    assert 1e-5 < error < 4 * 2.0**-11 * np.abs(expected).max()
    said = json.loads((tmp_path / "egs/meta.json").read_text())["errors"]
    spread = expected[expected[:, :, -1] >= 0][:, 6:14].std(0)  # the log mel energies
    largest = np.array(said["logmel"]["max"]) * spread
    assert (largest > 1e-5).all() and (largest < 2.0**-11 * np.abs(expected).max()).all()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class TestChunks:
    @pytest.fixture
    def prepared(self, tmp_path: Path) -> Prepared:
        return Prepared(tmp_path, utterances=120, shard_frames=1000)

    def test_processes_change_no_byte(self, prepared: Prepared) -> None:
        assert prepared.run() == 0 and prepared.run("--jobs", "3", out="again") == 0
        first = contents(prepared.folder / "egs")
        assert first == contents(prepared.folder / "again")
        assert sum(name.startswith("examples.") for name in first) >= 4
        found, expected = ordered(prepared.found()), ordered(prepared.expected())
        np.testing.assert_allclose(found, expected, atol=2e-5)

    def test_finished_chunks_outlive_a_kill(
        self, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert prepared.run(out="whole") == 0
        whole = contents(prepared.folder / "whole")
        shards = sum(name.startswith("examples.") for name in whole)
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "write_shard", kill_after(chunks.write_shard, 2))
            with pytest.raises(Killed):
                prepared.run()
        assert not (prepared.folder / "egs").exists()
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "write_shard", kill_after(chunks.write_shard, shards - 2))
            assert prepared.run() == 0
        assert contents(prepared.folder / "egs") == whole
        assert not list(prepared.folder.glob(".egs*"))

    def test_chunks_of_other_input_are_made_anew(
        self, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was left by a process that was killed counts for the same input alone."""
        stopped = prepared.folder / ".egs.partial"
        with monkeypatch.context() as patch:
            patch.setattr(chunks.Made, "save", kill_after(chunks.Made.save, 2))
            with pytest.raises(Killed):
                prepared.run()
        assert len(list(stopped.glob("chunk.*.json"))) == 2
        scp = kaldi_io.Scp(prepared.folder / "feats/fmllr/train/feats.scp")
        arrays = {k: v + 1 for k, v in scp.items()}
        prepared.write("fmllr", "feats", arrays)
        assert prepared.run() == 0
        np.testing.assert_allclose(
            ordered(prepared.found()), ordered(prepared.expected()), atol=2e-5
        )

    def test_a_failure_may_be_mended(
        self, prepared: Prepared, capsys: pytest.CaptureFixture[str]
    ) -> None:
        name = next(iter(prepared.ali))
        items = [*prepared.ali.items()][1:]
        kaldi_io.write_archive(
            prepared.folder / "ali/ali.1.gz", [(name, np.ones(9999, np.int32)), *items]
        )
        assert prepared.run() == 2
        assert f"utterance {name}: " in capsys.readouterr().err
        kaldi_io.write_archive(prepared.folder / "ali/ali.1.gz", list(prepared.ali.items()))
        assert prepared.run() == 0
        np.testing.assert_allclose(
            ordered(prepared.found()), ordered(prepared.expected()), atol=2e-5
        )
        assert not list(prepared.folder.glob(".egs*"))


def kill_after(function: Any, calls: int) -> Any:
    """The function, until it is called once more than so often."""
    left = iter(range(calls))

    def called(*args: Any) -> Any:
        if next(left, None) is None:
            raise Killed
        return function(*args)

    return called


def test_a_minibatch_of_runs_is_as_mixed_as_one_of_single_examples() -> None:
    """Pairs of examples of one utterance in a minibatch: as many as by chance, not one a run."""
    utterances, each, run, batch = 4000, 20, 16, 256
    order = chunks.Chunks(utterances=utterances, number=4, ordered=False)
    stored = []
    for chunk in range(4):
        said = np.repeat(order.members(chunk), each)
        rows = order.order(chunk, rows=len(said))
        assert rows is not None
        stored.append(said[rows])
    utterance_of = np.concatenate(stored)
    np.testing.assert_array_equal(np.bincount(utterance_of), np.full(utterances, each))

    def pairs(plan: Plan) -> float:
        found = 0
        for step in range(plan.steps):
            counts = np.bincount(utterance_of[plan.part(epoch=1, step=step)])
            found += int((counts * (counts - 1) // 2).sum())
        return found / plan.steps

    size = utterances * each
    single = pairs(Plan(size=size, batch=batch, seed=3))
    assert single == pytest.approx(batch * (batch - 1) / 2 * (each - 1) / (size - 1), rel=0.1)
    assert pairs(Plan(size=size, batch=batch, seed=3, together=run)) < 1.3 * single
    utterance_of = np.sort(utterance_of)  # as they come in the corpus: a run is one utterance
    assert pairs(Plan(size=size, batch=batch, seed=3, together=run)) > 100 * single


def test_a_row_is_small() -> None:
    """The papers' 260 inputs: 21.9 kB a subsequence in float32 as they are."""
    parts = (
        Part(stream="fmllr", dim=40),
        Part(stream="ivector", dim=100, table=True, framewise=False),
        Part(stream="logmel", dim=40, order=2, window=2),
    )
    layout = Layout(21, parts, "float16")
    assert layout.dim == 260 and layout.row.itemsize == 2 * 21 * 40 + 4 + 2 * 29 * 40 + 4 * 21
