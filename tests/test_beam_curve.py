"""Word error rate against real-time factor over beams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.decoding.decode import Scorer
from hadpsgd.gmm import transition_model
from hadpsgd.graph.transitions import Transitions
from hadpsgd.reports import beam_command


def test_curve_from_one_command(
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kaldi's graph and scores stand for a network's."""
    kaldi, graph, data = shared / "kaldi_an4", tmp_path / "graph", tmp_path / "test"
    graph.mkdir()
    data.mkdir()
    (graph / "HCLG.fst").symlink_to((kaldi / "exp/tri3b/graph/HCLG.fst").resolve())
    for name in ("words.txt", "phones.txt", "phones"):
        (graph / name).symlink_to((kaldi / "lang" / name).resolve())
    model = transition_model.read(kaldi / "exp/tri3b/final.mdl")
    Transitions.of(model).write(graph / "transitions.npz")
    golden = kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz")
    scores = dict(list(golden)[:4])
    for name in ("text", "utt2spk"):
        rows = (kaldi / "data/test" / name).read_text().splitlines()
        chosen = [row for row in rows if row.split()[0] in scores]
        (data / name).write_text("".join(f"{row}\n" for row in chosen))

    class Stored:
        def __init__(self, **_: object) -> None: ...

        def __call__(self) -> Scorer:
            return scores.__getitem__

        def utterances(self) -> list[str]:
            return sorted(scores)

    monkeypatch.setattr(beam_command, "NetworkScorer", Stored)
    (tmp_path / "config.yaml").write_text(
        "name: t\ncorpus: {kind: an4}\ndecoding: {acoustic_scale: 0.0833, lattice_beam: 2}\n"
    )
    (tmp_path / "tuned.json").write_text('{"lm_weight": 12, "word_penalty": 0}')
    out = tmp_path / "curve"
    paths = ["--config", tmp_path / "config.yaml", "--graph", graph, "--data", data, "--out", out]
    paths += ["--tuned", tmp_path / "tuned.json"]
    arguments = ["beam-curve", *map(str, paths), "--model", "x", "--streams", "x", "--beams"]
    of_lists = {"lm_weight": 12, "word_penalty": 0, "minimum_bayes_risk": True, "lists": {}}
    (tmp_path / "listed.json").write_text(json.dumps(of_lists))
    assert main([*arguments, "11", "--tuned", str(tmp_path / "listed.json")]) == 2
    assert "lists are of one search" in capsys.readouterr().err
    assert main([*arguments, "11", "0.5"]) == 0
    narrow, wide = json.loads((out / "curve.json").read_text())
    assert (narrow["beam"], wide["beam"]) == (0.5, 11)
    assert narrow["wer"] > wide["wer"] and narrow["words"] == wide["words"] > 0
    assert 0 < narrow["search_real_time_factor"] <= narrow["real_time_factor"]
    assert wide["low"] <= wide["wer"] <= wide["high"]
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments, "0"]) == 2
