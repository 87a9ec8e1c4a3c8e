"""`lm.discounts: 3`: modified Kneser-Ney, beside KenLM's lmplz and its definition."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hadpsgd.cli import main
from hadpsgd.lm import arpa, backoff
from hadpsgd.lm.backoff import Backoff
from hadpsgd.lm.kneser_ney import THREE, Text, estimate

GOLDEN = Path(__file__).parent / "golden/kneser_ney"
"""A text, and what lmplz (github.com/kpu/kenlm, commit 4cb443e) makes of it:
-o 3 --discount_fallback, and with --prune 0 0 1."""

Gram = tuple[str, ...]


def ours(lines: list[str], order: int, cutoffs: list[int]) -> Backoff:
    return estimate(Text.of(line.split() for line in lines), order, cutoffs, THREE)


def probability(model: Backoff, gram: Gram) -> float:
    """Of the last word after the others."""
    ids = numbers(model, gram)
    return float(10 ** model.log10(ids[:, :-1], ids[:, -1])[0])


def numbers(model: Backoff, gram: Gram) -> NDArray[np.int64]:
    """[1, length]."""
    return np.array([[model.ids[word] for word in gram]], np.int64)


@pytest.mark.parametrize(("name", "cutoffs"), [("lmplz", [0]), ("lmplz_pruned", [0, 0, 1])])
def test_as_lmplz(name: str, cutoffs: list[int]) -> None:
    """Back-offs are the same. lmplz has an unknown word among those that share what single words
    leave; each has more without it, and longer n-grams have that times their back-offs."""
    lines = (GOLDEN / "text").read_text().splitlines()
    theirs = backoff.load(GOLDEN / f"{name}.arpa")
    grams = [ngram for ngram in arpa.read(GOLDEN / f"{name}.arpa") if ngram.words != ("<unk>",)]
    model = ours(lines, 3, cutoffs)
    assert [len(order.keys) for order in model.orders] == [
        sum(len(ngram.words) == length for ngram in grams) for length in (1, 2, 3)
    ]
    words = len(theirs.words) - 2  # neither <s> nor <unk>
    more = probability(theirs, ("<unk>",)) / words
    for ngram in grams:
        given_ = ngram.words[:-1]
        if ngram.words == ("<s>",):
            continue
        share = more
        for begin in range(len(given_)):
            share *= 10 ** weight(theirs, given_[begin:])
        wanted = 10**ngram.log_prob + share
        assert probability(model, ngram.words) == pytest.approx(wanted, rel=2e-6)
        if len(ngram.words) < 3:
            assert weight(model, ngram.words) == pytest.approx(ngram.backoff or 0.0, abs=1e-6)


def weight(model: Backoff, gram: Gram) -> float:
    """log10 of the back-off of an n-gram; 0 where there is none."""
    row = int(model.rows(numbers(model, gram))[0])
    return 0.0 if row < 0 else float(model.orders[len(gram) - 1].backoff[row])


class Definition:
    """Chen and Goodman's interpolated model of sentences, by dictionaries and recursion."""

    def __init__(self, sentences: list[list[str]], order: int) -> None:
        raw = [Counter[Gram]() for _ in range(order + 1)]
        for words in sentences:
            whole = ["<s>", *words, "</s>"]
            for length in range(1, order + 1):
                for end in range(length, len(whole) + 1):
                    raw[length][tuple(whole[end - length : end])] += 1
        self.counts: list[dict[Gram, int]] = [{} for _ in range(order + 1)]
        self.counts[order] = dict(raw[order])
        for length in range(1, order):
            before: dict[Gram, set[str]] = defaultdict(set)
            for gram in raw[length + 1]:
                before[gram[1:]].add(gram[0])
            for gram, times in raw[length].items():
                if gram != ("<s>",):
                    adjusted = times if gram[0] == "<s>" else len(before[gram])
                    self.counts[length][gram] = adjusted
        self.words = [gram[0] for gram in self.counts[1]]
        self.discounts = [self._discounts(counts) for counts in self.counts]

    @staticmethod
    def _discounts(counts: dict[Gram, int]) -> list[float]:
        n = [sum(times == k for times in counts.values()) for k in range(5)]
        if not (n[1] and n[2] and n[3]):
            return [0.0, 0.5, 1.0, 1.5]
        y = n[1] / (n[1] + 2 * n[2])
        found = [k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
        if not all(0 <= each <= k for k, each in enumerate(found, 1)):
            return [0.0, 0.5, 1.0, 1.5]
        return [0.0, *found]

    def __call__(self, gram: Gram) -> float:
        if not gram:
            return 1.0 / len(self.words)
        counts, discount = self.counts[len(gram)], self.discounts[len(gram)]
        after = {each: times for each, times in counts.items() if each[:-1] == gram[:-1]}
        below = self(gram[1:])
        if not after:
            return below
        total = sum(after.values())
        rest = sum(discount[min(times, 3)] for times in after.values()) / total
        times = counts.get(gram, 0)
        return max(times - discount[min(times, 3)], 0.0) / total + rest * below


SENTENCES = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=8
)


@given(SENTENCES, st.lists(st.sampled_from("abcd"), max_size=3), st.integers(2, 4))
def test_as_its_definition(sentences: list[list[str]], history: list[str], order: int) -> None:
    order = min(order, max(map(len, sentences)) + 2)
    model = ours([" ".join(words) for words in sentences], order, [0])
    exact = Definition(sentences, order)
    kept = [word for word in history if word in model.ids][-(order - 1) :]
    total = 0.0
    for word in exact.words:
        found = probability(model, (*kept, word))
        assert found == pytest.approx(exact((*kept, word)), rel=1e-4, abs=1e-7)
        total += found
    assert total == pytest.approx(1.0, abs=1e-4)


def config(folder: Path, **lm: object) -> Path:
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump({"name": "x", "corpus": {"kind": "builtin"}, "lm": lm}))
    return file


def test_the_command_makes_one(tmp_path: Path) -> None:
    lines = (GOLDEN / "text").read_text().splitlines()
    words = sorted({word for line in lines for word in line.split()})
    (tmp_path / "words.txt").write_text("".join(f"{w} {i}\n" for i, w in enumerate(words)))
    made = []
    for discounts in (1, 3):
        file, out = config(tmp_path, order=3, discounts=discounts), tmp_path / str(discounts)
        command = ["lm", "--config", str(file), "--text", str(GOLDEN / "text")]
        assert main([*command, "--lang", str(tmp_path), "--out", str(out)]) == 0
        made.append(backoff.load(out / "full.arpa.gz"))
    one, three = made
    gram = ("w3", "w55")
    assert probability(three, gram) == pytest.approx(
        probability(ours(lines, 3, [0]), gram), rel=1e-5
    )
    assert probability(one, gram) != pytest.approx(probability(three, gram), rel=1e-2)


def test_what_it_does_not_go_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", str(config(tmp_path, tool="lmplz", discounts=1))]) == 2
    assert "lmplz always has three" in capsys.readouterr().err
    assert main(["config", str(config(tmp_path, discounts=2))]) == 2
    assert "lm.discounts" in capsys.readouterr().err
