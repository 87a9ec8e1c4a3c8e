"""Language models in blocks: whatever the size of a block, the same bits and the same errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.errors import UserError
from hadpsgd.lm import arpa, backoff
from hadpsgd.lm.backoff import Backoff
from hadpsgd.lm.memory import LEAST, held_mb, needed_mb
from hadpsgd.lm.mix import merge
from hadpsgd.lm.prune import pruned_model
from hadpsgd.lm.train import train
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.lm.whole import ngrams

WORDS = ["<s>", "</s>", "a", "back\\slash", "ç", "word\u00a0space"]


def table(seed: int, words: list[str] = WORDS) -> list[list[tuple[str, ...]]]:
    """n-grams by order: all contexts are listed, in any order."""
    rng = np.random.default_rng(seed)
    orders: list[list[tuple[str, ...]]] = [[(word,) for word in words]]
    for share in (0.6, 0.3, 0.3):
        made = [(*gram, word) for gram in orders[-1] if gram[-1] != "</s>" for word in words[1:]]
        rng.shuffle(chosen := [gram for gram in made if rng.random() < share])
        orders.append([tuple(gram) for gram in chosen])
    return orders


def text_of(orders: list[list[tuple[str, ...]]], seed: int = 0) -> str:
    """As an ARPA file."""
    rng = np.random.default_rng(seed)
    contexts = {gram[:-1] for order in orders for gram in order}
    lines = ["made by hand", "\\data\\", *(f"ngram {n}={len(o)}" for n, o in enumerate(orders, 1))]
    for number, order in enumerate(orders, 1):
        lines += ["", f"\\{number}-grams:"]
        for gram in order:
            weight = f"\t{-rng.random():.4f}" if gram in contexts else ""
            probability = f"{np.log10(0.9 * rng.random() / len(WORDS)):.6f}"
            lines.append(f"{probability}\t{' '.join(gram)}{weight}")
    return "\n".join([*lines, "", "\\end\\", ""])


def bits(model: Backoff) -> list[bytes]:
    return [getattr(o, n).tobytes() for o in model.orders for n in ("keys", "log_prob", "backoff")]


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_files_are_read_alike_in_blocks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path, orders = tmp_path / "lm.arpa", table(1)
    text = text_of(orders)
    path.write_text(text, "utf-8")
    whole = backoff.load(path)
    monkeypatch.setattr(arpa, "_BYTES", size)
    found = list(arpa.read(path))
    assert [ngram.words for ngram in found] == [gram for order in orders for gram in order]
    lines = text.splitlines()
    assert all(lines[n.line - 1].split("\t")[1].split(" ") == list(n.words) for n in found)
    assert arpa.check(path) == [len(order) for order in orders]
    model = backoff.load(path)
    assert model.words == WORDS and bits(model) == bits(whole)
    for number, order in enumerate(orders, 1):
        listed = [tuple(WORDS[i] for i in gram) for gram in model.grams(number).tolist()]
        assert sorted(listed) == sorted(order)
        by_words = {n.words: n for n in found if len(n.words) == number}
        kept = model.orders[number - 1]
        wanted = [by_words[gram].log_prob for gram in listed]
        assert kept.log_prob.tolist() == np.array(wanted, np.float32).tolist()
        weights = [by_words[gram].backoff or 0.0 for gram in listed]
        assert kept.backoff.tolist() == np.array(weights, np.float32).tolist()


@pytest.mark.parametrize(
    ("words", "line", "message"),
    [
        (3, "-1 a a a a a", "is not a probability, 3 words, a back-off"),
        (4, "-1 a a a a -0.5", "is not a probability, 4 words, a back-off"),
        (2, "-1 a", "is not a probability, 2 words, a back-off"),
        (2, "-1. a a x", ": not a number"),
        (2, "- a a", ": not a number"),
        (2, "-1 a a nan", ": not a number (NaN)"),
        (4, "nan a a a a", ": not a number (NaN)"),
        (3, "0.1 a a a", "a probability above 1"),
        (2, "-1 a lost", "a word or the context of this 2-gram is not listed"),
        (3, "-1 lost a a", "a word or the context of this 3-gram is not listed"),
    ],
)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_bad_line_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    words: int,
    line: str,
    message: str,
) -> None:
    """By the number of the first of them, in loading as in reading one by one."""
    monkeypatch.setattr(arpa, "_BYTES", size)
    lines = text_of(table(2)).splitlines()
    heading = lines.index(f"\\{words}-grams:")
    lines[heading + 3] = lines[heading + 5] = line
    (tmp_path / "lm.arpa").write_text("\n".join(lines), "utf-8")
    with pytest.raises(UserError) as error:
        backoff.load(tmp_path / "lm.arpa")
    assert f"lm.arpa:{heading + 4}: " in str(error.value) and message in str(error.value)
    if "not listed" not in message:
        with pytest.raises(UserError) as same:
            list(arpa.read(tmp_path / "lm.arpa"))
        assert str(same.value) == str(error.value)


@pytest.mark.parametrize("wanted", [3, 10**15])
def test_counts_that_do_not_hold_are_told(tmp_path: Path, wanted: int) -> None:
    """Before memory is taken for as many as there are not."""
    orders = table(3)
    path, count = tmp_path / "lm.arpa", len(orders[3])
    path.write_text(text_of(orders).replace(f"ngram 4={count}", f"ngram 4={wanted}"), "utf-8")
    with pytest.raises(UserError) as error:
        backoff.load(path)
    short = wanted < count
    said = f"{count} 4-grams, \\data\\ says 3" if short else "n-grams take 16000000.0 GB of memory"
    assert said in str(error.value)


@settings(max_examples=20)
@given(st.integers(0, 2**16), st.integers(1, 300), st.sampled_from([1e-4, 1e-2, 1e-1]))
def test_pruned_and_mixed_alike_in_blocks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, seed: int, block: int, threshold: float
) -> None:
    path = tmp_path_factory.mktemp("lm") / "lm.arpa"
    models = []
    for number, words in enumerate((WORDS, [*WORDS[:4], "theirs"])):
        path.write_text(text_of(table(seed + number, words), seed), "utf-8")
        models.append(backoff.load(path))
    pruned = pruned_model(models[0], threshold)
    assert bits(pruned_model(models[0], threshold, block=block)) == bits(pruned)
    mixed = merge(models, [0.6, 0.4])
    assert bits(merge(models, [0.6, 0.4], block)) == bits(mixed)
    assert list(ngrams(mixed, block)) == list(ngrams(mixed))
    # and by definition: all n-grams of both, each with the weighted sum
    for length in range(1, 5):
        spelled = [tuple(mixed.words[i] for i in gram) for gram in mixed.grams(length).tolist()]
        listed = {tuple(m.words[i] for i in g) for m in models for g in m.grams(length).tolist()}
        assert len(spelled) == len(listed) and set(spelled) == listed
        wanted = [
            sum(share * probability(m, g) for m, share in zip(models, (0.6, 0.4), strict=True))
            for g in spelled
        ]
        found = 10.0 ** mixed.orders[length - 1].log_prob.astype(np.float64)
        assert found == pytest.approx(wanted, rel=3e-6, abs=1e-98)


def probability(model: Backoff, gram: tuple[str, ...]) -> float:
    """0 of a word that the model lacks, and of <s>."""
    if gram[-1] not in model.ids or gram[-1] == "<s>":
        return 0.0
    ids = np.array([[model.id(word) for word in gram]])
    return float(10.0 ** model.log10(ids[:, :-1], ids[:, -1])[0])


def test_training_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Before it begins, with what it would take."""
    text, vocabulary = tmp_path / "text", Vocabulary(frozenset("ab"))
    text.write_text("a b a b\n" * 1000)
    assert train(text, vocabulary, 3, tmp_path / "lm.gz", memory=10**7) == 3
    with pytest.raises(UserError, match=r"text: .* its 6,000 words takes 0.00069 GB of memory"):
        train(text, vocabulary, 3, tmp_path / "none.gz", memory=10**5)
    assert not (tmp_path / "none.gz").exists()


def test_jobs_ask_for_memory_by_their_files(tmp_path: Path) -> None:
    """Of a text, of a model in an ARPA file, and of one that a former job has yet to make."""
    text, model = tmp_path / "text", tmp_path / "lm.arpa"
    text.write_text("abcd\n" * 1_000_000)
    model.write_text(text_of(table(1)) + "\n" * 3_000_000)
    assert needed_mb([tmp_path / "missing"], 4) == LEAST
    assert needed_mb([text], 4) == LEAST + 175
    assert needed_mb([text, model, tmp_path / "missing"], 4) == LEAST + 181
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(text.read_bytes(), 1))
    assert needed_mb([packed], 4) == LEAST + int(packed.stat().st_size * 4 * 35 / 1e6)
    assert held_mb([text, model, tmp_path / "missing"]) == 2  # a text is no model
