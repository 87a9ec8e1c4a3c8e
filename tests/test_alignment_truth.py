"""Words begin where the voice says: the recordings spoken again are those of the corpus."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from small_workflow import Small

from hadpsgd.corpus.datadir import DataDir

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

import alignment_truth


@pytest.mark.slow
def test_a_gmm_finds_most_words_where_the_voice_began_them(
    small: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    data = DataDir.read(small.out / "corpus/data/train", audio=False)
    true = alignment_truth.truth(small.config, 2)
    assert true.keys() == data.utterances.keys()
    same = [
        name for name, begins in true.items() if len(begins) == len(data.utterances[name].words)
    ]
    assert len(same) > 0.8 * len(true)
    assert all(true[name] == sorted(true[name]) for name in true)
    for name, begins in true.items():
        start, end = data.utterances[name].start or 0.0, data.utterances[name].end or 0.0
        assert begins[0] > 0 and begins[-1] < end - start
    arguments = ["--config", str(small.config), "--data", str(data.path)]
    arguments += ["--lang", f"{small.out}/lang", "--ali", f"{small.out}/ali/train", "--jobs", "2"]
    alignment_truth.main(arguments)
    row = capsys.readouterr().out.splitlines()[-1]
    _, folder, words, median, distance, *shares, _ = row.split("|")
    assert folder.strip() == f"{small.out}/ali/train" and int(words.replace(",", "")) > 100
    # two minutes of speech: near, but not exact; the first words begin after 200 ms of margin
    assert abs(float(median)) < 4 and 0 < float(distance) < 8
    assert np.all(np.diff([float(share.strip(" %")) for share in shares]) <= 0)
