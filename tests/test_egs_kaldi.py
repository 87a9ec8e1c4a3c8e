"""Examples of AN4's training data with Kaldi's alignments, its MFCC standing for logmel."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.egs.dataset import Dataset
from hadpsgd.egs.make import make
from hadpsgd.features.fusion import Fusion


def all_alignments(an4: Path) -> list[tuple[str, np.ndarray]]:
    files = [an4 / f"exp/tri3b_ali/ali.{number}.gz" for number in (1, 2)]
    return [item for path in files for item in kaldi_io.iterate(path, "ints")]


class TestKaldi:
    @pytest.fixture
    def an4(self, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = shared.resolve() / "kaldi_an4"
        monkeypatch.chdir(folder)
        target = tmp_path / "feats/logmel/train"
        target.mkdir(parents=True)
        for name in ("feats.scp", "cmvn.scp"):
            (target / name).write_text((folder / "data/train" / name).read_text())
        self.configure(tmp_path)
        return folder

    def configure(self, folder: Path, **egs: Any) -> Path:
        config = {"name": "t", "corpus": {"kind": "an4"}, "egs": egs,
                  "features": {"logmel": {"bins": 13}}}  # fmt: skip
        (folder / "c.yaml").write_text(json.dumps(config))
        return folder / "c.yaml"

    def run(self, tmp_path: Path, *more: str, ali: str = "exp/tri3b_ali") -> int:
        return main(
            ["egs", "--config", str(tmp_path / "c.yaml"), "--data", "data/train", "--streams",
             str(tmp_path / "feats"), "--ali", ali, "--out", str(tmp_path / "egs"), *more]
        )  # fmt: skip

    def test_training_examples(self, an4: Path, tmp_path: Path) -> None:
        self.configure(tmp_path, shard_frames=50_000)
        assert self.run(tmp_path) == 0
        dataset = Dataset(tmp_path / "egs")
        dataset.verify()
        counts = dataset.meta["counts"]
        assert (dataset.dim, dataset.num_pdfs, dataset.frames) == (39, 424, 21)
        assert dataset.bins == 13
        assert counts["frames"] == len(dataset) * 21
        alignments = [ids for _, ids in all_alignments(an4)]
        total = sum(map(len, alignments))
        assert len(dataset.meta["shards"]) == -(-total // 50_000)
        assert counts["frames"] + counts["dropped_frames"] == total == dataset.pdf_counts.sum()
        assert counts["dropped_frames"] == sum(len(ids) % 21 for ids in alignments)
        assert counts["utterances"] + len(counts["unaligned"]) == 948
        # Kaldi's own pdf-ids of the first utterances (ali-to-pdf)
        golden = kaldi_io.iterate(an4 / "golden/ali_pdf_train50.txt", "ints")
        expected = np.concatenate([ids[: len(ids) // 21 * 21] for _, ids in golden])
        inputs, found = dataset.gather(np.arange(len(dataset)))
        there = Counter(map(bytes, found))
        assert not Counter(map(bytes, expected.reshape(-1, 21).astype(np.int32))) - there
        # and the inputs that belong to them, deltas made of whole utterances
        fusion = Fusion(
            load(tmp_path / "c.yaml"),
            tmp_path / "feats",
            DataDir.read(Path("data/train"), audio=False),
        )
        whole = {name: fusion[name] for name in fusion.utterances[:50]}
        by_label = {bytes(ids): frames for ids, frames in zip(found, inputs, strict=True)}
        compared = 0
        for name, ids in kaldi_io.iterate(an4 / "golden/ali_pdf_train50.txt", "ints"):
            for first in range(0, len(ids) - 20, 21):
                key = bytes(ids[first : first + 21].astype(np.int32))
                if there[key] == 1:
                    frames = whole[name][first : first + 21]
                    np.testing.assert_allclose(by_label[key], frames, atol=2e-5)
                    compared += 1
        assert compared > 500

    def test_held_out_examples_keep_every_frame(self, an4: Path, tmp_path: Path) -> None:
        assert an4.is_dir() and self.run(tmp_path, "--held-out") == 0
        dataset = Dataset(tmp_path / "egs")
        labels = dataset.gather(np.arange(len(dataset)))[1]
        counts = dataset.meta["counts"]
        assert (labels >= 0).sum() == counts["frames"] == dataset.pdf_counts.sum()
        assert (labels < 0).sum() == counts["padded_frames"] > 0
        np.testing.assert_array_equal(
            np.bincount(labels[labels >= 0], minlength=424), dataset.pdf_counts
        )

    def test_the_same_input_gives_the_same_bytes(self, an4: Path, tmp_path: Path) -> None:
        def digests() -> dict[str, str]:
            assert an4.is_dir() and self.run(tmp_path) == 0
            files = sorted((tmp_path / "egs").iterdir())
            return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

        assert digests() == digests()

    def test_alignments_that_do_not_fit(
        self, an4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ali = tmp_path / "ali"
        ali.mkdir()
        (ali / "final.mdl").write_bytes((an4 / "exp/tri3b_ali/final.mdl").read_bytes())

        def refused(items: list[tuple[str, np.ndarray]]) -> str:
            kaldi_io.write_archive(ali / "ali.1.gz", items)
            assert self.run(tmp_path, ali=str(ali)) == 2
            assert not (tmp_path / "egs").exists()
            return capsys.readouterr().err

        good = all_alignments(an4)
        name, ids = good[3]
        assert f"utterance {name}: {len(ids)} frames" in refused(
            [*good[:3], (name, ids[:-2]), *good[4:]]
        )
        assert "utterances have no alignment" in refused(good[:100])
        assert "Alignments of another data set?" in refused([("x-" + u, v) for u, v in good])
        error = refused([*good[:3], (name, ids + 2000), *good[4:]])
        assert f"utterance {name}: transition-ids from" in error
        (ali / "ali.1.gz").unlink()
        assert self.run(tmp_path, ali=str(ali)) == 2
        assert "no ali.*.gz" in capsys.readouterr().err

    def test_a_folder_of_other_things_is_not_replaced(self, an4: Path, tmp_path: Path) -> None:
        (tmp_path / "egs").mkdir()
        (tmp_path / "egs/thesis.tex").write_text("years of work")
        assert an4.is_dir() and self.run(tmp_path) == 2
        assert (tmp_path / "egs/thesis.tex").exists()

    def test_one_frame_more_is_cut(self, an4: Path, tmp_path: Path) -> None:
        ali = tmp_path / "ali"
        ali.mkdir()
        (ali / "final.mdl").write_bytes((an4 / "exp/tri3b_ali/final.mdl").read_bytes())
        items = [(utterance, ids[:-1]) for utterance, ids in all_alignments(an4)]
        kaldi_io.write_archive(ali / "ali.1.gz", items)
        config = self.configure(tmp_path)
        data = DataDir.read(Path("data/train"), audio=False, text=False)
        meta = make(load(config), data, streams=tmp_path / "feats", ali=ali, out=tmp_path / "egs")
        assert meta["counts"]["frames"] == sum(len(v) // 21 * 21 for _, v in items)
