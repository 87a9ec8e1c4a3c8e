"""A small n-gram with a lang folder, a text, and a network in dense NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from hadpsgd.lm import backoff
from hadpsgd.lm.neural.mixture import Models
from hadpsgd.lm.neural.model import LstmLm, Shape
from hadpsgd.lm.neural.words import Words

ARPA = """\\data\\
ngram 1=6
ngram 2=5

\\1-grams:
-99 <s> -0.3
-0.9 </s>
-1.2 <unk>
-0.5 a -0.2
-0.6 b -0.4
-0.8 c -0.1

\\2-grams:
-0.3 <s> a
-0.4 a b
-0.5 b c
-0.7 c </s>
-0.9 b </s>

\\end\\
"""
NAMES = ("a", "b", "c")
"""Words 1, 2 and 3 of a decoding."""
SENTENCES = ["a b c", "a b", "b c a b c", "a b c a b", "c a b"]


def words() -> Words:
    return Words(("<s>", "</s>", "<unk>", *NAMES), "<unk>")


def network(*, layers: int = 1, cells: int = 6, tied: bool = True, seed: int = 1) -> LstmLm:
    """With weights that matter."""
    torch.manual_seed(seed)
    shape = Shape(layers=layers, cells=cells, tied=tied, dropout=0.4)
    made = LstmLm(len(words()), shape).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(0.0, 0.7)
    return made


def models(folder: Path, **changes: Any) -> Models:
    (folder / "toy.arpa").write_text(ARPA)
    return Models(backoff.load(folder / "toy.arpa"), network(**changes), words())


def lang(folder: Path) -> Path:
    """A lang folder as far as language models look into it."""
    folder.mkdir()
    names = ["<eps>", *NAMES, "#0", "<s>", "</s>"]
    (folder / "words.txt").write_text("".join(f"{w} {i}\n" for i, w in enumerate(names)))
    return folder


def config(path: Path, neural: dict[str, Any] | None, **sections: Any) -> Path:
    content = {"name": "toy", "corpus": {"kind": "builtin"}, **sections}
    if neural is not None:
        content["lm"] = {"neural": neural}
    path.write_text(yaml.safe_dump(content))
    return path


def dense(model: LstmLm, sentence: Sequence[int]) -> NDArray[np.float64]:
    """Log probabilities of a sentence's words and its end by the LSTM's equations, in NumPy."""
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    size, found = model.shape.cells, []
    hidden = [np.zeros(size) for _ in range(model.shape.layers)]
    cell = [np.zeros(size) for _ in range(model.shape.layers)]
    for word, after in zip([0, *sentence], [*sentence, 1], strict=True):
        x = weights["embedding.weight"][word]
        for layer in range(model.shape.layers):
            gates = weights[f"lstm.weight_ih_l{layer}"] @ x + weights[f"lstm.bias_ih_l{layer}"]
            gates += weights[f"lstm.weight_hh_l{layer}"] @ hidden[layer]
            gates += weights[f"lstm.bias_hh_l{layer}"]
            i, f, g, o = np.split(gates, 4)
            cell[layer] = sigmoid(f) * cell[layer] + sigmoid(i) * np.tanh(g)
            x = hidden[layer] = sigmoid(o) * np.tanh(cell[layer])
        logits = weights["output.weight"] @ x + weights["output.bias"]
        found.append(logits[after] - np.log(np.exp(logits).sum()))
    return np.array(found)


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-x))


def by_hand(said: Sequence[str]) -> NDArray[np.float64]:
    """Log probabilities of words and the end under ARPA, in nats, by the definition of back-off."""
    ones = {"</s>": -0.9, "<unk>": -1.2, "a": -0.5, "b": -0.6, "c": -0.8}
    backs = {"<s>": -0.3, "a": -0.2, "b": -0.4, "c": -0.1}
    twos = {("<s>", "a"): -0.3, ("a", "b"): -0.4, ("b", "c"): -0.5}
    twos |= {("c", "</s>"): -0.7, ("b", "</s>"): -0.9}
    found = []
    for before, word in zip(["<s>", *said], [*said, "</s>"], strict=True):
        found.append(twos.get((before, word), backs[before] + ones[word]))
    return np.log(10.0) * np.array(found)
