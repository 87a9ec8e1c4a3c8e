"""`hadpsgd neural-lm`: training, kills, several learners, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neural_toy
import numpy as np
import pytest
import torch

from hadpsgd.cli import main
from hadpsgd.lm import backoff, perplexity
from hadpsgd.lm.neural import command
from hadpsgd.lm.neural import model as model_file
from hadpsgd.lm.neural.mixture import Models
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.locks import locked
from hadpsgd.rank_checkpoints import Checkpoints
from hadpsgd.run_folder import LAUNCH_LOCK

TINY: dict[str, Any] = {"cells": 16, "epochs": 3, "batch": 4, "learning_rate": 0.02}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' own process is one learner, wherever the tests run, and has its threads back."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Corpus:
    """Texts, an n-gram and a lang folder, and the command on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(1)
        lines = [neural_toy.SENTENCES[i] for i in rng.integers(0, 5, 60)]
        (folder / "train.txt").write_text("\n".join(lines) + "\n")
        (folder / "dev.txt").write_text("a b c\nb c a b\na zzz c\n")
        (folder / "toy.arpa").write_text(neural_toy.ARPA)
        neural_toy.lang(folder / "lang")

    def arguments(self, out: str, **changes: Any) -> list[str]:
        at = self.folder
        given = {"text": at / "train.txt", "dev": at / "dev.txt", "lang": at / "lang"}
        given |= {"arpa": at / "toy.arpa", "out": at / out}
        file = at / f"{out}.yaml"
        given["config"] = neural_toy.config(file, TINY | changes)
        return ["neural-lm", *(part for k, v in given.items() for part in (f"--{k}", str(v)))]

    def weights(self, out: str) -> dict[str, torch.Tensor]:
        model, _ = model_file.load(self.folder / out / "model.pt")
        return model.state_dict()


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_the_command_trains(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(corpus.arguments("out", epochs=6)) == 0
    meta = json.loads((corpus.folder / "out/meta.json").read_text())
    rows = meta["epochs"]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["dev_perplexity"] < 0.6 * len(neural_toy.words())
    best = min(rows, key=lambda row: row["dev_perplexity"])
    assert meta["best_epoch"] == best["epoch"]
    # what is told is what the saved files give, with the word that nobody knows left out
    models = neural_toy.models(corpus.folder)
    net, words = model_file.load(corpus.folder / "out/model.pt")
    found = type(models)(models.ngram, net, words).perplexities(
        Vocabulary.of_lang(corpus.folder / "lang").map(corpus.folder / "dev.txt"), [0.0, 1.0]
    )
    assert meta["dev"]["perplexity"]["1"] == pytest.approx(found[1.0], abs=1e-3)
    ngram = backoff.load(corpus.folder / "toy.arpa")
    vocabulary = Vocabulary.of_lang(corpus.folder / "lang")
    expected = perplexity.score(ngram, vocabulary.map(corpus.folder / "dev.txt"))
    assert meta["dev"]["perplexity"]["0"] == pytest.approx(expected.perplexity, abs=1e-3)
    assert (expected.oov, meta["dev"]["oov"]) == (1, 1)
    said = capsys.readouterr().err
    assert f"dev perplexity: n-gram {expected.perplexity:.2f}, neural {found[1.0]:.2f}" in said
    assert sorted(path.name for path in (corpus.folder / "out").iterdir()) == [
        LAUNCH_LOCK,
        "meta.json",
        "model.pt",
    ]
    # a second time there is nothing to do; with other settings there is
    assert main(corpus.arguments("out", epochs=6)) == 0
    assert "done" in capsys.readouterr().err
    assert main(corpus.arguments("out", epochs=1)) == 0
    assert "epoch 1" in capsys.readouterr().err


@pytest.mark.parametrize("best", [0.0, 0.5])
def test_a_model_that_does_not_help_is_told(
    corpus: Corpus,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    best: float,
) -> None:
    def found(_: Models, __: object, weights: list[float]) -> dict[float, float]:
        return {weight: 10.0 + abs(weight - best) for weight in weights}

    monkeypatch.setattr(Models, "perplexities", found)
    assert main(corpus.arguments("out", epochs=1)) == 0
    told = "warning: the n-gram alone fits the development text best" in capsys.readouterr().err
    assert told is (best == 0.0)


def test_a_killed_training_ends_with_the_same_bits(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(corpus.arguments("whole")) == 0
    assert main(corpus.arguments("again")) == 0
    assert same(corpus.weights("whole"), corpus.weights("again"))

    save = Checkpoints.save

    def killed(files: Checkpoints, number: int, state: dict[str, Any]) -> None:
        save(files, number, state)
        if number == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", killed)
    assert main(corpus.arguments("killed")) == 130
    monkeypatch.undo()
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert not (corpus.folder / "killed/model.pt").exists()
    capsys.readouterr()
    shutil.copytree(corpus.folder / "killed", corpus.folder / "damaged")
    (file,) = (corpus.folder / "damaged/checkpoints").rglob("000000002/node-0.*.pt")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    for name, epoch in (("killed", 2), ("damaged", 1)):
        for variable in ("RANK", "SLURM_PROCID"):
            monkeypatch.delenv(variable, raising=False)
        assert main(corpus.arguments(name)) == 0
        said = capsys.readouterr().err
        assert (f"{file}: damaged checkpoint" in said) == (name == "damaged")
        assert f"goes on from epoch {epoch}" in said
        assert f"epoch {epoch + 1}:" in said and f"epoch {epoch}:" not in said
        assert same(corpus.weights("whole"), corpus.weights(name))
        metas = [json.loads((corpus.folder / o / "meta.json").read_text()) for o in ("whole", name)]
        for meta in metas:
            for row in meta["epochs"]:
                del row["seconds"]
        assert metas[0] == metas[1]


def test_what_is_told_is_of_the_ngram_and_weights_asked_for(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the network is the same, and is not trained again."""
    assert main(corpus.arguments("out")) == 0
    arpa = corpus.folder / "toy.arpa"
    arpa.write_text(arpa.read_text().replace("-0.7 c </s>", "-0.01 c </s>"))
    assert main(corpus.arguments("new", weights=[0.3])) == 0
    capsys.readouterr()
    assert main(corpus.arguments("out", weights=[0.3])) == 0
    said = capsys.readouterr().err
    assert "done" in said and "epoch" not in said
    told = [json.loads((corpus.folder / o / "meta.json").read_text()) for o in ("new", "out")]
    assert set(told[0]["dev"]["perplexity"]) == {"0", "0.3", "1"}
    for meta in told:
        for row in meta["epochs"]:
            del row["seconds"]
    assert told[0] == told[1]


def test_a_model_without_its_report_is_of_no_former_one(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two files, the next training is not taken for the one before."""
    assert main(corpus.arguments("out")) == 0
    first = corpus.weights("out")
    with monkeypatch.context() as patched:
        patched.setattr(command, "_report", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        assert main(corpus.arguments("out", epochs=1)) == 130
    assert not same(corpus.weights("out"), first)
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert main(corpus.arguments("out")) == 0
    assert same(corpus.weights("out"), first)


def test_two_trainings_in_one_folder(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second is refused, whatever its settings, before it writes anything."""
    monkeypatch.setattr("hadpsgd.locks.GRACE_SECONDS", 0.1)
    (corpus.folder / "out").mkdir()
    with locked(corpus.folder / "out" / LAUNCH_LOCK, "process 7 on host"):
        for epochs in (1, 2):
            assert main(corpus.arguments("out", epochs=epochs)) == 2
            said = capsys.readouterr().err.strip().splitlines()[-1]
            assert f"{corpus.folder / 'out'}: process 7 on host trains this model already" in said
        assert [path.name for path in (corpus.folder / "out").iterdir()] == [LAUNCH_LOCK]
    assert main(corpus.arguments("out", epochs=1)) == 0


def test_several_learners_train(corpus: Corpus) -> None:
    """Started as the workflow starts them; one model comes out."""
    own = corpus.arguments("two", learners=2, strategy="ssgd")
    program = [sys.executable, "-m", "hadpsgd"]
    ran = subprocess.run(
        [*program, "launch", "--learners", "2", "--", *program, *own],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    meta = json.loads((corpus.folder / "two/meta.json").read_text())
    assert meta["dev"]["perplexity"]["1"] < len(neural_toy.words())
    assert not (corpus.folder / "two/checkpoints").exists()


def test_what_cannot_be_trained(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(arguments: list[str], *parts: str) -> None:
        assert main(arguments) == 2
        said = capsys.readouterr().err.strip()
        assert len(said.splitlines()) == 1 and all(part in said for part in parts), said

    refused(corpus.arguments("x", learners=2), "lm.neural.learners is 2, and 1 started", "launch")
    refused(corpus.arguments("x", learning_rate=-1), "lm.neural.learning_rate")
    # every step is finite, what dev has of the weights is not
    assert main(corpus.arguments("x", learning_rate=1000.0, cells=256, epochs=1)) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1 and "lm.neural: the training diverged in epoch 1" in said
    arguments = corpus.arguments("x")
    neural_toy.config(corpus.folder / "x.yaml", None)
    refused(arguments, "no lm.neural", "x.yaml")
    for file, what in (("train.txt", "no words"), ("dev.txt", "no words")):
        before = (corpus.folder / file).read_text()
        (corpus.folder / file).write_text("\n")
        refused(corpus.arguments("x"), file, what)
        (corpus.folder / file).write_text(before)
    (corpus.folder / "dev.txt").write_bytes(b"\xff\n")
    refused(corpus.arguments("x"), "dev.txt", "UTF-8")
    assert not (corpus.folder / "x/model.pt").exists()


@pytest.mark.parametrize("file", ["train.txt", "dev.txt"])
def test_a_text_in_another_case(
    file: str, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the unknown word alone nothing is learned: it is refused before the training."""
    path = corpus.folder / file
    path.write_text(path.read_text().upper() + "a b\n")
    words = len(path.read_text().split())
    assert main(corpus.arguments("x")) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{path}: {words - 2} of {words} words are not among those of n-gram and lexicon" in said
    assert "lm.neural.max_oov 0.2)" in said and re.search(r"such as ([ABCZ]+, )+[ABCZ]+\b", said)
    assert not (corpus.folder / "x/model.pt").exists()
    assert main(corpus.arguments("x", max_oov=1.0)) == 0
    capsys.readouterr()
    # the limit is no setting of the network
    assert main(corpus.arguments("x", max_oov=0.0)) == 0
    assert "done" in capsys.readouterr().err


def test_words_that_the_ngram_alone_lacks_count(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    words = corpus.folder / "lang/words.txt"
    words.write_text(words.read_text() + "zzz 7\n")
    assert main(corpus.arguments("x", max_oov=0.05)) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "dev.txt: 1 of 10 words" in said and said.partition("such as ")[2].startswith("zzz")
