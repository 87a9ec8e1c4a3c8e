"""The neural language model: its probabilities, its training, and the command."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.ending import unfinished_of
from hadpsgd.errors import UserError
from hadpsgd.lm import backoff, perplexity
from hadpsgd.lm.neural import command, score, text
from hadpsgd.lm.neural import model as model_file
from hadpsgd.lm.neural.events import interpolated
from hadpsgd.lm.neural.score import log_probs
from hadpsgd.lm.neural.words import Words
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.locks import locked
from hadpsgd.models import loss as frame_loss
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


@pytest.mark.parametrize(("layers", "tied"), [(1, True), (2, False)])
def test_probabilities_are_those_of_the_equations(layers: int, tied: bool) -> None:
    """Of sentences of several lengths in one batch; none of them changes another's."""
    model = neural_toy.network(layers=layers, tied=tied)
    rng = np.random.default_rng(2)
    sentences = [rng.integers(2, 6, size).tolist() for size in (3, 0, 7, 1, 3)]
    found = log_probs(model, sentences)
    for sentence, row in zip(sentences, found, strict=True):
        np.testing.assert_allclose(row, neural_toy.dense(model, sentence), atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_a_large_vocabulary_goes_in_pieces(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the loss, gradients and scores of the whole; where one piece suffices, the same bits."""
    model = neural_toy.network(layers=2, tied=tied)
    sentences = [[2, 3, 4, 5, 3], [5], [], [4, 4, 2]]
    inputs, targets = text.padded([torch.tensor([0, *words, 1]) for words in sentences])
    logits = model.output(model.states(inputs)).flatten(0, 1)

    def gradients(loss: torch.Tensor) -> list[torch.Tensor]:
        return [*torch.autograd.grad(loss, [*model.parameters()])]

    wanted = torch.nn.functional.cross_entropy(logits, targets.flatten())
    by_definition, scores = gradients(wanted), log_probs(model, sentences)
    found = model(inputs, targets)
    assert found.item() == wanted.item()
    assert all(map(torch.equal, gradients(found), by_definition))
    monkeypatch.setattr(frame_loss, "CHUNK_VALUES", 5 * len(neural_toy.words()))
    monkeypatch.setattr(score, "_LOGITS", 2 * len(neural_toy.words()))
    found = model(inputs, targets)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-6)
    for one, other in zip(gradients(found), by_definition, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    for one_row, other_row in zip(log_probs(model, sentences), scores, strict=True):
        np.testing.assert_allclose(one_row, other_row, atol=1e-6)


PEAK = """
import resource, torch
from hadpsgd.lm.neural.model import LstmLm, Shape
model = LstmLm(40_000, Shape(layers=1, cells=8, tied=True, dropout=0.0))
words = torch.randint(0, 40_000, (64, 64))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model(words, words).backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_memory_of_a_step_has_a_bound() -> None:
    """The scores of 4,096 words alone would be 625 MiB, with what the gradient needs 1.8 GiB."""
    ran = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert int(ran.stdout) < 800


def test_the_words_of_both_models_are_interpolated(tmp_path: Path) -> None:
    models = neural_toy.models(tmp_path)
    said = [sentence.split() for sentence in neural_toy.SENTENCES]
    ngram = np.concatenate([neural_toy.by_hand(each) for each in said])
    numbers = models.words.numbers
    neural = np.concatenate([neural_toy.dense(models.neural, numbers(each)) for each in said])
    found = models.perplexities(said, [0.0, 0.3, 1.0])
    for weight, value in found.items():
        mixed = np.log((1 - weight) * np.exp(ngram) + weight * np.exp(neural))
        assert value == pytest.approx(np.exp(-mixed.mean()), rel=1e-5)
        events = models.events(said)
        own = interpolated(events.ngram, events.neural, weight)
        np.testing.assert_allclose(own, mixed, atol=1e-4)
    expected = perplexity.score(models.ngram, said)
    assert found[0.0] == pytest.approx(expected.perplexity, rel=1e-9)


def test_words_that_a_model_lacks_are_left_out(tmp_path: Path) -> None:
    """As the n-gram's perplexity leaves out <unk>; the history has it."""
    models = neural_toy.models(tmp_path)
    said = [["a", "<unk>", "b"]]
    found = models.perplexities(said, [0.0, 1.0])
    assert found[0.0] == pytest.approx(perplexity.score(models.ngram, said).perplexity, rel=1e-9)
    row = neural_toy.dense(models.neural, models.words.numbers(said[0]))
    assert found[1.0] == pytest.approx(np.exp(-np.delete(row, 1).mean()), rel=1e-5)


def test_the_vocabulary_is_the_ngrams() -> None:
    known = Vocabulary(frozenset({"a", "b", "no-ngram", "<UNK>"}), "<UNK>")
    words = Words.of(["<s>", "</s>", "<unk>", "a", "b", "no-lexicon", "<UNK>"], known)
    assert words.names == ("<s>", "</s>", "<UNK>", "a", "b")
    assert words.numbers(["b", "other"]) == [4, 2]
    assert Words.of(["<s>", "</s>", "a"], known).names == ("<s>", "</s>", "<unk>", "a")


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_an_epoch_has_every_sentence_once(lengths: list[int], size: int) -> None:
    order = text.ByLength(np.array(lengths), size)
    for _ in range(2):
        batches = list(order)
        assert len(batches) == len(order)
        assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
        for batch in batches:
            assert len(batch) <= size
            longest = max(lengths[number] for number in batch) + 1
            assert len(batch) == 1 or len(batch) * longest <= size * text.USUAL


def test_sentences_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert text.write(tmp_path / "t", [[5, 6], [], [7]]) == 3
    spoken = text.Text(tmp_path / "t")
    assert [spoken[i].tolist() for i in range(3)] == [[0, 5, 6, 1], [0, 1], [0, 7, 1]]
    assert spoken.events == 6
    inputs, targets = text.padded([spoken[0], spoken[1]])
    assert inputs.tolist() == [[0, 5, 6], [0, 1, 0]]
    assert targets.tolist() == [[5, 6, 1], [1, -100, -100]]


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


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"lm": {"neural": {}, "pieces": 40}}, "pieces"),
        ({"lm": {"neural": {}}, "scoring": {"minimum_bayes_risk": True}}, "minimum_bayes_risk"),
        ({"lm": {"neural": {}}, "decoding": {"one_best": True}}, "one_best"),
        ({"lm": {"neural": {"weights": [1.5]}}}, "lm.neural.weights"),
    ],
)
def test_what_does_not_go_with_it(
    sections: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = neural_toy.config(tmp_path / "c.yaml", None, **sections)
    assert main(["config", str(file)]) == 2
    found = capsys.readouterr().err
    assert said in found and len(found.strip().splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"no model", b"PK\x03\x04"])
def test_a_file_that_is_no_model(content: bytes, tmp_path: Path) -> None:

    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.pt: no neural language model"):
        model_file.load(tmp_path / "model.pt")


def test_a_model_with_a_weight_that_is_no_number(tmp_path: Path) -> None:
    network = neural_toy.network()
    with torch.no_grad():
        network.output.bias[3] = float("nan")
    weights = network.state_dict()
    model_file.save(tmp_path / "model.pt", network, neural_toy.words(), weights)
    with pytest.raises(UserError, match=r"model\.pt: weights that are not finite"):
        model_file.load(tmp_path / "model.pt")


def test_what_was_not_made_of_lists_is_told(tmp_path: Path) -> None:
    """Of dev, all scores of a run are former ones; of a test set, its own."""
    outputs = [f"{tmp_path}/lists/one-1/dev.jsonl.gz", f"{tmp_path}/lists/two-2/swb.jsonl.gz"]
    assert unfinished_of(outputs, tmp_path) == ["one-1", "two-2/swb"]
