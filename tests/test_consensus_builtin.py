"""Minimum Bayes risk decoding of the built-in corpus, by the commands of the workflow."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from small_workflow import Small

from hadpsgd.scoring import formats


def test_the_builtin_corpus_is_scored(small: Small, tmp_path: Path) -> None:
    """Lattices of a workflow, asked for their consensus: all words scored, with confidences."""
    content = yaml.safe_load(small.config.read_text())
    content["scoring"] |= {"minimum_bayes_risk": True, "lm_weights": [10]}
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(content))
    run = next(path.name for path in sorted((small.out / "score").iterdir()))
    rows = {}
    for name in ("dev", "swb"):
        common = ["--config", str(config), "--decode", str(small.out / "decode" / run / name)]
        common += ["--data", str(small.out / "corpus/data" / name)]
        tuned = str(tmp_path / "tuned.json")
        if name == "dev":
            ran = small.command("hadpsgd", "tune", *common, "--out", tuned)
            assert ran.returncode == 0, ran.stderr
        out = tmp_path / name
        ran = small.command("hadpsgd", "score", *common, "--tuned", tuned, "--out", str(out))
        assert ran.returncode == 0, ran.stderr
        rows[name] = json.loads((out / "wer.json").read_text())
        before = json.loads((small.out / "score" / run / name / "wer.json").read_text())
        assert rows[name]["words"] == before["words"]
        assert rows[name]["minimum_bayes_risk"] is True
        said = formats.read_ctm(out / "ctm")
        assert said
        assert all(word.confidence is not None and 0 < word.confidence <= 1 for word in said)
    chosen = json.loads((tmp_path / "tuned.json").read_text())
    assert rows["dev"]["sub"] + rows["dev"]["del"] + rows["dev"]["ins"] == chosen["errors"]
