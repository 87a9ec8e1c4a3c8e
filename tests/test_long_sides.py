"""A side without segments, as one utterance: from features to the analysis of its errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_workflow import Small

from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.lm import arpa

RATE, SECONDS = 8000, 40


def side(source: Path, known: set[str], folder: Path) -> int:
    """A data directory of one utterance of known words; how many."""
    data = DataDir.read(source)
    parts: list[np.ndarray] = []
    words: list[str] = []
    with AudioReader(data, RATE) as reader:
        said = [(reader.read(u), u.words) for u in data if known.issuperset(u.words)]
    while sum(map(len, parts)) < SECONDS * RATE:
        audio, text = said[len(parts) % len(said)]
        parts.append(audio)
        words += text
    folder.mkdir(parents=True)
    samples = np.concatenate(parts).astype(np.int16)  # they are read in 16-bit steps
    soundfile.write(folder / "side.wav", samples, RATE, subtype="PCM_16")
    files = {"wav.scp": f"{folder}/side.wav", "utt2spk": "side", "spk2utt": "side"}
    for name, rest in {**files, "text": " ".join(words)}.items():
        (folder / name).write_text(f"side {rest}\n")
    return len(words)


@pytest.mark.slow
def test_a_side_as_one_utterance(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores made a tenth of a second at a time give the same lattice, to the byte."""
    out, config = small.out, ["--config", str(small.config)]
    known = {n.words[0] for n in arpa.read(out / "lm/full.arpa.gz") if len(n.words) == 1}
    data = tmp_path / "data/side"
    count = side(out / "corpus/data/swb", known, data)
    for stream in load(small.config).features.input:
        to = tmp_path / "feats" / stream / "side"
        made = ["features", *config, "--stream", stream, "--data", str(data), "--out", str(to)]
        assert main(made) == 0
    model = next(out.glob("runs/*/final.pt"))
    network = [*config, "--model", str(model), "--graph", str(out / "graph")]
    network += ["--streams", str(tmp_path / "feats")]
    archives = []
    for held in (1 << 30, 4 * 10 * int((out / "graph/num_pdfs").read_text())):
        monkeypatch.setattr("hadpsgd.decoding.scores.WHOLE", held)
        arguments = ["decode", *network, "--data", str(data)]
        assert main([*arguments, "--out", str(tmp_path / "decode/side"), "--jobs", "1"]) == 0
        archives.append((tmp_path / "decode/side/lat.1.gz").read_bytes())
    assert archives[0] == archives[1]
    lattices = [*config, "--decode", str(tmp_path / "decode/side"), "--data", str(data)]
    tuned, score = tmp_path / "score/tuned.json", tmp_path / "score/side"
    assert main(["tune", *lattices, "--out", str(tuned)]) == 0
    lattices += ["--tuned", str(tuned)]
    assert main(["score", *lattices, "--out", str(score)]) == 0
    report = json.loads((score / "wer.json").read_text())
    assert report["words"] == count > 50 and report["unaligned"] == 0
    # of a small network trained for seconds no word need be right, which rounding decides
    assert report["correct"] + report["sub"] + report["del"] == count > report["del"]
    assert main(["nbest", *lattices, "--out", str(tmp_path / "nbest")]) == 0
    assert len((tmp_path / "nbest/text").read_text().splitlines()) == 10
    folders = ["--data", str(data.parent), "--decode", str(tmp_path / "decode")]
    folders += ["--score", str(score.parent), "--out", str(tmp_path / "errors"), "--jobs", "1"]
    assert main(["error-analysis", *network, "--sets", "side", *folders]) == 0
    causes = json.loads((tmp_path / "errors/errors.json").read_text())["side"]["causes"]
    assert causes["model error"]["sentences"] + causes["search error"]["sentences"] == 1
