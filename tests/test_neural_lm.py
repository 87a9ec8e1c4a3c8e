"""The neural language model: its probabilities, its training, and the command."""

from __future__ import annotations

import os
import subprocess
import sys
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
from hadpsgd.lm import perplexity
from hadpsgd.lm.neural import model as model_file
from hadpsgd.lm.neural import score, text
from hadpsgd.lm.neural.events import interpolated
from hadpsgd.lm.neural.score import log_probs
from hadpsgd.lm.neural.words import Words
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.models import loss as frame_loss


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


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"lm": {"neural": {}, "pieces": 40}}, "pieces"),
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
