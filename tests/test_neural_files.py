"""Files of the neural language model that are damaged: one line that says which, and what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import neural_toy
import pytest
import torch

from hadpsgd.decoding.list_settings import ListSettings
from hadpsgd.errors import UserError
from hadpsgd.lm import stored
from hadpsgd.lm.neural import model as model_file


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"words": ["<s>", "</s>", "<unk>", "a", "b", 7]}, "a word that is no text"),
        ({"words": ["<s>", "</s>", "<unk>", "a", "b", "b"]}, "a word that stands there twice"),
        ({"words": ["a", "</s>", "<unk>", "<s>", "b", "c"]}, "do not begin with <s> and </s>"),
        ({"words": ["<s>", "</s>", "<unk>", "a"]}, r"weights of \(6, 6\) for 4 words and 6 cells"),
        ({"words": 5}, "TypeError"),
        ({"other": "elsewhere"}, "no elsewhere, which stands for other words"),
        ({"other": ["a"]}, "a word that is no text"),
        ({"shape": {"layers": 10**9, "cells": 6, "tied": True, "dropout": 0.0}}, "1 layers for 1"),
        ({"shape": {"layers": 1, "cells": -6, "tied": True, "dropout": 0.0}}, "and -6 cells"),
        ({"weights": {}}, "KeyError"),
        ({"weights": 3}, "TypeError"),
    ],
)
def test_a_model_whose_parts_do_not_fit(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    network, path = neural_toy.network(), tmp_path / "model.pt"
    model_file.save(path, network, neural_toy.words(), network.state_dict())
    torch.save(torch.load(path, weights_only=True) | changed, path)
    with pytest.raises(UserError, match=rf"model\.pt: no neural language model \(.*{said}"):
        model_file.load(path)


@pytest.mark.parametrize(
    "changed",
    [
        *({"nbest": number} for number in (0, 1e300, float("inf"))),
        *({"lm_weights": weights} for weights in ([], [0], [float("nan")], 7)),
        {"word_penalty": float("nan")},
    ],
)
def test_settings_of_lists_that_none_is_made_with(changed: dict[str, Any], tmp_path: Path) -> None:
    settings = {"nbest": 10, "lm_weights": [8.0], "word_penalty": 0.5}
    (tmp_path / "lists.json").write_text(json.dumps(settings | changed))
    with pytest.raises(UserError, match=r"lists\.json: damaged"):
        ListSettings.read(tmp_path / "lists.json")


@pytest.mark.parametrize("words", ["<s>\n", "a\n" * 6, "\udcff", ""])
def test_a_damaged_list_of_an_ngrams_words(words: str, tmp_path: Path) -> None:
    stored.write(neural_toy.models(tmp_path).ngram, tmp_path / "ngram")
    (tmp_path / "ngram/words").write_text(words, errors="surrogateescape")
    with pytest.raises(UserError, match="ngram: a damaged language model"):
        stored.read(tmp_path / "ngram")
