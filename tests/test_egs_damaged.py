"""Training examples that are damaged, or left half made: one line, or made anew; never less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_egs_streams import Killed, Prepared, kill_after, ordered
from test_sequence_training import any_order
from training_data import write_egs

from hadpsgd.cli import main
from hadpsgd.egs import chunks
from hadpsgd.graph.denominator import FILE

pytestmark = pytest.mark.usefixtures("unrecorded")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_egs(tmp_path / "egs", 20, 1)


def told(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["check-egs", str(folder)]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"subsequences": 12},  # 8 would be trained on no more
        {"subsequences": "x"},
        {"shards": []},
        {"shards": [1]},
        {"shards": None},
        {"parts": None},
        {"frames": "x"},
        {"dtype": "float8"},
        {"num_pdfs": None},
        {"files": [1]},
    ],
    ids=str,
)
def test_a_description_that_does_not_fit_is_one_line(
    folder: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps(meta | change))
    assert "meta.json: damaged" in told(folder, capsys)
    (without,) = change
    if without != "files":  # older examples have none
        del meta[without]
        path.write_text(json.dumps(meta))
        assert "meta.json: damaged" in told(folder, capsys)


def test_a_table_that_is_not_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared = Prepared(tmp_path)
    assert prepared.run() == 0
    path = tmp_path / "egs/meta.json"
    meta = json.loads(path.read_text())
    for table in (None, {"vectors": 3}, "x"):
        path.write_text(json.dumps(meta | {"table": table}))
        assert "meta.json: damaged" in told(path.parent, capsys)


@pytest.mark.parametrize("content", ["[]", "3", "null", '"a"'])
def test_a_description_of_another_kind(
    folder: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "meta.json").write_text(content)
    assert "meta.json: damaged" in told(folder, capsys)


@pytest.mark.parametrize("name", ["examples.0000.npy", "pdf_counts.npy"])
def test_any_damage_to_a_header_is_one_line(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / name
    content = path.read_bytes()
    for place in range(0, 128, 5):
        for byte in (b"(", b"\xff", b"9"):
            path.write_bytes(content[:place] + byte + content[place + 1 :])
            if main(["check-egs", str(folder)]) == 2:
                assert f"{name}: " in capsys.readouterr().err


def test_counts_of_pdf_ids_have_a_checksum(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They decide the priors."""
    path = folder / "pdf_counts.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-8] + b"\x07" + content[-7:])
    assert "pdf_counts.npy: damaged" in told(folder, capsys)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """A process was killed when it had two chunks."""
    prepared = Prepared(tmp_path, utterances=120, shard_frames=1000)
    with monkeypatch.context() as patch:
        patch.setattr(chunks.Made, "save", kill_after(chunks.Made.save, 2))
        with pytest.raises(Killed):
            prepared.run()
    return prepared


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"shard": {}, "counts": {"x"', "cut", "gone"])
def test_a_finished_chunk_that_is_damaged_is_made_anew(stopped: Prepared, damage: str) -> None:
    partial = stopped.folder / ".egs.partial"
    shard = partial / "examples.0000.npy"
    match damage:
        case "cut":
            shard.write_bytes(shard.read_bytes()[:-100])
        case "gone":
            shard.unlink()
        case _:
            (partial / "chunk.0000.json").write_text(damage)
    assert stopped.run() == 0
    np.testing.assert_allclose(ordered(stopped.found()), ordered(stopped.expected()), atol=2e-5)


def test_a_damaged_key_is_another_key(stopped: Prepared) -> None:
    (stopped.folder / ".egs.partial/key").write_bytes(b"\xff\xfe")
    assert stopped.run() == 0
    np.testing.assert_allclose(ordered(stopped.found()), ordered(stopped.expected()), atol=2e-5)


def test_chunks_without_the_last_frames_are_none_of_a_stage(
    stopped: Prepared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Examples of a stage are padded: those of training, cut alike, lack the ends of utterances."""
    config = stopped.folder / "c.yaml"
    content = json.loads(config.read_text())
    frames = content["egs"]["frames"]
    content["training"] = {"stages": [{"criterion": "lfmmi", "frames": frames}]}
    config.write_text(json.dumps(content))
    # alignments that are drawn are no sequences of phones
    monkeypatch.setattr("hadpsgd.graph.denominator.from_alignments", lambda _: any_order())
    assert stopped.run("--stage", "lfmmi") == 0
    labels = stopped.found()[:, :, -1]
    assert (labels >= 0).sum() == sum(stopped.lengths.values())
    any_order(2).write(stopped.folder / "egs" / FILE)  # of another tree
    assert f"{FILE}: damaged" in told(stopped.folder / "egs", capsys)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("nan", "fits.txt: not a finite number: s0-u003"),
        ("-inf", "fits.txt: not a finite number: s0-u003"),
        ("", "fits.txt: 1 aligned utterances are not there: s0-u003"),
    ],
)
def test_misfits_need_a_fit_of_every_utterance(
    tmp_path: Path, change: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One NaN made the median NaN, and nothing was left out."""
    prepared = Prepared(tmp_path, misfit=4.0)
    lines = [f"{n} {change if n == 's0-u003' else -7}\n" for n in sorted(prepared.ali)]
    (tmp_path / "ali/fits.txt").write_text("".join(e for e in lines if len(e.split()) == 2))
    assert prepared.run() == 2
    assert said in capsys.readouterr().err
