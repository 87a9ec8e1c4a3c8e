"""First-pass models: entropy pruning against kaldingram's, an implementation of its own."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kaldingram.prune import ArpaParser
from kaldingram.prune import prune as prune_by_kaldingram

from hadpsgd.lm import arpa, backoff, perplexity
from hadpsgd.lm.backoff import Backoff
from hadpsgd.lm.prune import prune, pruned_model
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.lm.whole import add_order
from hadpsgd.progress import Progress


def total_probability(model: Backoff, history: list[str]) -> float:
    before = [model.id(word) for word in ("<s>", *history)]
    asked = np.array([i for i, word in enumerate(model.words) if word != "<s>"])
    return float((10 ** model.log10(np.tile(before, (len(asked), 1)), asked)).sum())


def test_pruning_keeps_probabilities_whole(shared: Path) -> None:
    """And perplexity grows with the threshold, while n-grams get fewer."""
    lang = shared / "kaldi_an4/lang"
    text = list(Vocabulary.of_lang(lang).map(lang / "lm_train.txt"))
    full = backoff.load(lang / "4gram.arpa.gz")
    sizes, ppl = [sum(len(order.keys) for order in full.orders)], [perplexity.score(full, text)]
    for threshold in (1e-5, 1e-4):
        model = pruned_model(full, threshold)
        sizes.append(sum(len(order.keys) for order in model.orders))
        ppl.append(perplexity.score(model, text))
        for history in ([], ["ENTER"], ["ENTER", "SIX"]):
            assert total_probability(model, history) == pytest.approx(1.0, abs=1e-4)
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]
    values = [each.perplexity for each in ppl]
    assert values == sorted(values)


@pytest.mark.parametrize("threshold", [1e-7, 1e-4])
def test_what_kaldingram_prunes(shared: Path, tmp_path: Path, threshold: float) -> None:
    """But for what follows <s> alone, of which it says that it never comes (10^-99)."""
    full = shared / "kaldi_an4/lang/4gram.arpa.gz"
    with arpa.unpacked(full) as file, redirect_stderr(io.StringIO()):
        theirs = ArpaParser().loadf(str(file), encoding="utf-8")[0]
        prune_by_kaldingram(theirs, threshold, 2)
    entries = {e[1]: e for order in range(1, theirs.order() + 1) for e in theirs._entries(order)}
    prune(full, threshold, tmp_path / "pruned.arpa.gz")
    ours = {ngram.words: ngram for ngram in arpa.read(tmp_path / "pruned.arpa.gz")}
    assert entries.keys() <= ours.keys()
    assert {words[:-1] for words in ours.keys() - entries.keys()} <= {("<s>",)}
    for words, entry in entries.items():
        assert ours[words].log_prob == pytest.approx(entry[0], abs=1e-6)
        if words != ("<s>",) and len(entry) > 2:
            assert ours[words].backoff == pytest.approx(entry[2], abs=1e-5)


def test_the_loss_is_that_of_perplexity() -> None:
    """By hand: after <s> come a (0.9) and, by backing off, b; without <s> a both come equally."""
    model = Backoff(["<s>", "</s>", "a", "b"])
    for keys, values in (([0, 1, 2, 3], [0.0, 0.2, 0.4, 0.4]), ([0 * 4 + 2], [0.9])):
        given = partial(lambda values, rows, _: np.array(values)[rows], values)
        add_order(model, np.array(keys), given, Progress("made", 5, "n-grams"))
    # p(</s>) (KL divergence of (0.9, 0.1 / 0.6 ...) from (0.2, 0.4, 0.4)), as a perplexity
    rest = 0.1 / 0.6
    kl = 0.9 * np.log(0.9 / 0.4) + 0.4 * rest * np.log(rest) + 0.2 * rest * np.log(rest)
    loss = np.exp(0.2 * kl) - 1
    for threshold, orders in ((0.999 * loss, 2), (1.001 * loss, 1)):
        assert len(pruned_model(model, threshold).orders) == orders
