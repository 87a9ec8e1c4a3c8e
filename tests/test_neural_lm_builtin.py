"""The neural language model on the built-in corpus, by the commands of the workflow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_workflow import Small

from hadpsgd.cli import main
from hadpsgd.decoding.list_files import read_of
from hadpsgd.scoring import formats
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.transcribe.recognise import Recogniser

TINY = {
    "cells": 24, "epochs": 2, "batch": 16, "learning_rate": 0.01, "nbest": 20,
    "max_oov": 0.5,  # 300 sentences lack words of dev
}  # fmt: skip


class Rescored:
    """A workflow's results with a neural language model, in a folder of its own."""

    def __init__(self, small: Small, folder: Path) -> None:
        self.small, self.out = small, folder / "results/small"
        self.run = next(path.name for path in sorted((small.out / "score").iterdir()))
        (self.out / "lm").mkdir(parents=True)
        shutil.copytree(small.out / "runs" / self.run, self.out / "runs" / self.run)
        for name in ("graph", "corpus", "decode", "lang", "lm/full.arpa.gz"):
            (self.out / name).symlink_to(small.out / name)

    def config(self, weights: list[float], *, risk: bool = False) -> Path:
        content = yaml.safe_load(self.small.config.read_text())
        content["lm"] = {"neural": {**TINY, "weights": weights}}
        content["scoring"] |= {"lm_weights": [10], "word_penalties": [0.0]}
        content["scoring"]["minimum_bayes_risk"] = risk
        file = self.out / f"weights-{'-'.join(map(str, weights))}-{risk}.yaml"
        file.write_text(yaml.safe_dump(content))
        return file

    def command(self, stage: str, **given: Any) -> None:
        assert main([stage, *(p for k, v in given.items() for p in (f"--{k}", str(v)))]) == 0

    def scored(self, weights: list[float], *, risk: bool = False) -> Path:
        """Train (once), list, tune and score; the folder of scores."""
        config, out, lm = self.config(weights, risk=risk), self.out, self.out / "lm"
        text = out / "corpus/lm"
        given = {"config": config, "arpa": lm / "full.arpa.gz"}
        self.command(
            "neural-lm",
            **given,
            text=text / "train.txt",
            dev=text / "dev.txt",
            lang=out / "lang",
            out=lm / "neural",
        )
        score = out / "score" / self.run
        tuned = score / "tuned.json"
        for name in ("dev", "swb"):
            decode, lists = out / "decode" / self.run / name, out / f"lists/{name}.jsonl.gz"
            common = {"config": config, "decode": decode}
            model = lm / "neural/model.pt"
            self.command("neural-lists", **common, model=model, arpa=given["arpa"], out=lists)
            common |= {"data": out / "corpus/data" / name, "lists": lists}
            if name == "dev":
                self.command("tune", **common, out=tuned)
            self.command("score", **common, tuned=tuned, out=score / name)
        return score

    def bundle_says_the_same(self, score: Path, folder: Path) -> Bundle:
        """The bundle, made in a folder, that said the words of scores."""
        made = folder / "bundle"
        assert main(["export", str(self.out / "runs" / self.run), "--out", str(made)]) == 0
        opened, data = Bundle.open(made), self.out / "corpus/data/swb"
        found = [*Recogniser(bundle=opened)(data, folder / "work", lambda *_: None)]
        texts = {line.split()[0]: line.split()[1:] for line in (score / "swb/hyp.txt").open()}
        assert {each.utterance: each.text.split() for each in found} == texts
        timed = {word.line() for each in found for word in each.words}
        assert timed == set((score / "swb/ctm").read_text().splitlines())
        return opened


@pytest.fixture(scope="module")
def rescored(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Rescored:
    return Rescored(small, tmp_path_factory.mktemp("rescored"))


def test_the_builtin_corpus_is_rescored(rescored: Rescored, tmp_path: Path) -> None:
    """With weight 0 as without; with a weight as the lists say; a bundle says the same."""
    without = json.loads((rescored.small.out / "score" / rescored.run / "tuned.json").read_text())
    score = rescored.scored([0.0])
    chosen = json.loads((score / "tuned.json").read_text())
    tried = {row["lm_weight"]: row["errors"] for row in without["tried"]}
    assert (chosen["neural_weight"], chosen["errors"]) == (0.0, tried[10])
    plain = rescored.config([0.0])
    content = yaml.safe_load(plain.read_text())
    del content["lm"]
    plain.write_text(yaml.safe_dump(content))
    for name in ("dev", "swb"):
        other = tmp_path / name
        rescored.command(
            "score",
            config=plain,
            decode=rescored.out / "decode" / rescored.run / name,
            data=rescored.out / "corpus/data" / name,
            tuned=score / "tuned.json",
            out=other,
        )
        for file in ("ctm", "hyp.txt", "wer.json", "sentences.jsonl"):
            assert (score / name / file).read_bytes() == (other / file).read_bytes()

    score = rescored.scored([1.0])
    chosen = json.loads((score / "tuned.json").read_text())
    assert chosen["neural_weight"] == 1.0
    report = json.loads((score / "dev/wer.json").read_text())
    assert report["neural_weight"] == 1.0
    assert report["sub"] + report["del"] + report["ins"] == chosen["errors"]
    changed = (score / "swb/hyp.txt").read_text() != (tmp_path / "swb/hyp.txt").read_text()
    assert changed  # another model says other words
    said = formats.read_ctm(score / "swb/ctm")
    assert said
    assert all(word.confidence is not None and 0 < word.confidence <= 1 for word in said)
    decode = rescored.out / "decode" / rescored.run / "swb"
    lists = dict(read_of(rescored.out / "lists/swb.jsonl.gz", decode=decode))
    assert 1 < max(len(found.words) for found in lists.values()) <= TINY["nbest"]
    meta = json.loads((rescored.out / "lm/neural/meta.json").read_text())
    assert meta["dev"]["perplexity"]["1"] < meta["words"]

    setting = rescored.bundle_says_the_same(score, tmp_path).setting
    assert (setting.neural_weight, setting.minimum_bayes_risk) == (1.0, False)


def test_the_words_of_least_expected_errors(rescored: Rescored, tmp_path: Path) -> None:
    """Minimum Bayes risk among what the neural model scored."""
    plain = (rescored.scored([1.0]) / "swb/hyp.txt").read_text()
    score = rescored.scored([1.0], risk=True)
    chosen = json.loads((score / "tuned.json").read_text())
    for name in ("dev", "swb"):
        report = json.loads((score / name / "wer.json").read_text())
        assert (report["neural_weight"], report["minimum_bayes_risk"]) == (1.0, True)
        if name == "dev":
            assert report["sub"] + report["del"] + report["ins"] == chosen["errors"]
    with_neural = (score / "swb/hyp.txt").read_text()
    assert with_neural != plain
    setting = rescored.bundle_says_the_same(score, tmp_path).setting
    assert (setting.neural_weight, setting.minimum_bayes_risk) == (1.0, True)

    # with weight 0 among the lists' sequences, too, by the n-gram alone
    score = rescored.scored([0.0], risk=True)
    chosen = json.loads((score / "tuned.json").read_text())
    report = json.loads((score / "dev/wer.json").read_text())
    assert report["sub"] + report["del"] + report["ins"] == chosen["errors"]
    assert (score / "swb/hyp.txt").read_text() != with_neural
    setting = rescored.bundle_says_the_same(score, tmp_path / "none").setting
    assert (setting.neural_weight, setting.needs_lists) == (0.0, True)


def test_what_does_not_fit(
    rescored: Rescored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rescored.scored([1.0])
    capsys.readouterr()
    out = rescored.out
    common = ["--decode", str(out / "decode" / rescored.run / "dev")]
    common += ["--data", str(out / "corpus/data/dev"), "--out", str(tmp_path / "out")]
    neural, plain = str(rescored.config([1.0])), str(rescored.small.config)
    lists, tuned = str(out / "lists/dev.jsonl.gz"), str(out / "score" / rescored.run / "tuned.json")
    other = str(out / "lists/swb.jsonl.gz")
    # the same utterances as another run decoded them
    second = next(path for path in sorted((out / "decode").iterdir()) if path.name != rescored.run)
    lm, runs = out / "lm", str(tmp_path / "second.jsonl.gz")
    model, arpa = lm / "neural/model.pt", lm / "full.arpa.gz"
    given = {"config": neural, "model": model, "arpa": arpa, "decode": second / "dev"}
    rescored.command("neural-lists", **given, out=runs)
    capsys.readouterr()
    risky = tmp_path / "risky.json"  # weight 0, chosen among the lists' sequences
    content = json.loads((out / "score" / rescored.run / "tuned.json").read_text())
    risky.write_text(json.dumps(content | {"neural_weight": 0.0, "minimum_bayes_risk": True}))
    for arguments, said in (
        (["tune", "--config", neural], "lm.neural, and no --lists"),
        (["tune", "--config", plain, "--lists", lists], "no lm.neural, and --lists"),
        (["tune", "--config", neural, "--lists", other], "do not go with the lattices"),
        (["tune", "--config", neural, "--lists", runs], f"{runs}: n-best lists that do not go"),
        (["score", "--config", neural, "--tuned", tuned, "--lists", runs], f"{runs}: n-best"),
        (["score", "--config", neural, "--tuned", tuned], "no n-best lists are given"),
        (["score", "--config", neural, "--tuned", str(risky)], "no n-best lists are given"),
        (["score", "--config", neural, "--tuned", tuned, "--lists", other], "do not go with"),
    ):
        assert main([*arguments, *common]) == 2
        found = capsys.readouterr().err.strip().splitlines()[-1]
        assert said in found
        assert not (tmp_path / "out").exists()
