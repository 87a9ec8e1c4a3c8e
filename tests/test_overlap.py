"""Sets that have speakers, or utterances, in common with train are told of."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from corpus_data import make_data, write_lines
from init_data import init, table

from hadpsgd.cli import main
from hadpsgd.corpus import overlap


def test_a_table_whose_sets_have_the_same_speakers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path)
    head, *rows = path.read_text().splitlines()
    names = ("train", "dev", "test")
    rows = [f"{row},{names[i // 4]}" for i, row in enumerate(rows)]
    path.write_text("\n".join([f"{head},set", *rows]) + "\n")
    assert init(tmp_path, "--csv", str(path)) == 0
    told = capsys.readouterr().out
    assert told.count("4 of 4 speakers in train, too (") == 2
    assert "\ndev: 4 of 4 speakers" in told and ": its error rates are those" in told


def test_doctor_tells_of_data_directories_that_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = {name: make_data(tmp_path / name) for name in ("train", "dev", "test")}
    write_lines(sets["test"] / "utt2spk", ["ann-3 ann", "carl-1 carl"])
    second = "test: 1 of 2 speakers in train, too (ann): its error rates are those of known"
    corpus: dict[str, object] = {
        "kind": "kaldi",
        "train": str(sets["train"]),
        "dev": str(sets["dev"]),
        "tests": {"test": str(sets["test"])},
        "dict_dir": str(tmp_path / "train/lexicon.txt"),
    }

    def warned(**changes: object) -> list[str]:
        file = tmp_path / "x.yaml"
        content = {"name": "x", "results": str(tmp_path / "results"), "corpus": corpus | changes}
        file.write_text(yaml.safe_dump(content))
        main(["doctor", "--config", str(file)])
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if line.startswith("warn  sets")]

    whole, known = warned()
    assert "dev: 4 of 4 utterances in train, too (ann-1, ann-2, bob-1, ...): " in whole
    assert second in known
    part = {"data": str(sets["dev"]), "recordings": ["call-B"]}  # told apart where it is read
    (one,) = warned(dev=part)
    assert second in one


def test_sets_of_other_speakers_are_no_matter() -> None:
    sets = {"train": ["a", "b"], "dev": ["c"], "test": []}
    assert list(overlap.of_speakers(sets)) == []
