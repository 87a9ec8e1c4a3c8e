"""Imported features that do not cover their utterances."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from corpus_data import make_data

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.corpus.datadir import DataDir


def imported(folder: Path, shares: dict[str, float], limit: float) -> int:
    """Import features of such a share of each utterance; 1 where it is not named."""
    place = folder / "data/train"
    data = DataDir.read(place if place.is_dir() else make_data(folder), audio=False)
    with kaldi_io.Writer(ark=folder / "f.ark", scp=folder / "f.scp") as writer:
        for utterance in data:
            assert utterance.end is not None
            frames = 100 * (utterance.end - utterance.start) - 1.5  # windows at the edges
            part = shares.get(utterance.id, 1.0)
            writer.write(utterance.id, np.ones((round(frames * part), 13), np.float32))
    imports = {"mfcc": {"feats": str(folder / "f.scp")}}
    config = {
        "name": "t",
        "corpus": {"kind": "an4"},
        "features": {"imports": imports, "max_skipped": limit},
    }
    (folder / "c.yaml").write_text(json.dumps(config))
    arguments = ["import-features", "--config", str(folder / "c.yaml"), "--stream", "mfcc"]
    return main([*arguments, "--data", str(data.path), "--out", str(folder / "feats")])


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_half_an_utterance_is_named(
    share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(tmp_path, {}, 0.0) == 0
    capsys.readouterr()
    assert imported(tmp_path, {"ann-1": share}, 0.1) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "f.scp: 1 of 4 utterances have features of another length than their segments" in said
    assert ": ann-1 (ann-1: " in said and "features.max_skipped" in said
    assert imported(tmp_path, {"ann-1": share}, 0.4) == 0
    assert "another length than their segments: ann-1" in capsys.readouterr().err
    assert "ann-1 " in (tmp_path / "feats/utt2num_frames").read_text()
