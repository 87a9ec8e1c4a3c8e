"""32,000 outputs: the first loss, and what training and decoding hold of them at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from allocations import peak_bytes
from torch import Tensor

from hadpsgd.config.settings import Model
from hadpsgd.decoding import network
from hadpsgd.decoding.scores import WHOLE, LongScores
from hadpsgd.models import loss
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import ModelMeta, SavedShape, load_model, save_model

PDFS = 32_000
FLOAT = 4


def drawn(frames: int, width: int) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """An output layer's input, weights and biases, and targets."""
    generator = torch.Generator().manual_seed(frames)
    hidden = torch.randn(frames, width, generator=generator)
    weight = 0.05 * torch.randn(PDFS, width, generator=generator)
    bias = 0.05 * torch.randn(PDFS, generator=generator)
    targets = torch.randint(PDFS, (frames,), generator=generator)
    targets[3] = loss.IGNORE
    return (hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()), targets


@pytest.mark.parametrize("most", [loss.CHUNK_VALUES, 20 * PDFS], ids=["dense", "chunked"])
def test_the_first_loss_is_that_of_a_guess(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The papers' network as it is initialised, on normalised features; some states are common."""
    monkeypatch.setattr(loss, "CHUNK_VALUES", most)
    model = BLSTM(Model(), input_dim=260, num_pdfs=PDFS).eval()
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(size=(2, 21, 260)).astype(np.float32))
    targets = torch.from_numpy(draw.zipf(1.2, (2, 21)) % PDFS)
    with torch.no_grad():
        first = float(model.loss(x, targets))
    held_out = model.score(x, targets)
    assert first == pytest.approx(math.log(PDFS), abs=0.05)
    assert held_out.loss / held_out.frames == pytest.approx(first, rel=1e-6)
    assert 0 <= held_out.correct <= held_out.frames == 42


def test_chunks_equal_all_at_once() -> None:
    """Loss to 1e-6 and gradients to 1e-5 of the dense ones; frames that are right, all."""
    leaves, targets = drawn(60, 64)
    dense = loss.cross_entropy(F.linear(*leaves), targets)
    chunked = loss.linear_cross_entropy(*leaves, targets, chunk=17)
    assert float(chunked.detach()) == pytest.approx(float(dense.detach()), rel=1e-6)
    wanted = torch.autograd.grad(dense, leaves)
    for ours, theirs in zip(torch.autograd.grad(chunked, leaves), wanted, strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


def test_training_holds_the_logits_of_a_chunk() -> None:
    """Beside the gradients: two matrices of a chunk, where all at once takes two of all frames."""
    frames, width, chunk = 600, 8, 50
    leaves, targets = drawn(frames, width)
    gradients = FLOAT * sum(leaf.numel() for leaf in leaves)

    def held(value: Callable[[], Tensor]) -> int:
        return peak_bytes(lambda: torch.autograd.grad(value(), leaves))

    dense = held(lambda: loss.cross_entropy(F.linear(*leaves), targets))
    chunked = held(lambda: loss.linear_cross_entropy(*leaves, targets, chunk=chunk))
    matrix = FLOAT * chunk * PDFS
    assert chunked < 2.1 * matrix + 2.1 * gradients
    assert dense > 2 * FLOAT * frames * PDFS > 5 * chunked


def test_held_out_scores_hold_the_logits_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums and frames that are right are those of all at once."""
    leaves, targets = drawn(600, 8)
    whole = loss.score_frames(*leaves, targets)
    monkeypatch.setattr(loss, "CHUNK_VALUES", 50 * PDFS)
    found: list[loss.FrameScore] = []
    peak = peak_bytes(lambda: found.append(loss.score_frames(*leaves, targets)))
    assert peak < 2.1 * FLOAT * 50 * PDFS
    assert found[0].loss == pytest.approx(whole.loss, rel=1e-6)
    assert (found[0].correct, found[0].frames) == (whole.correct, 599)


class Features:
    """Stands in for fused features: one utterance of so many frames."""

    utterances = ("side",)

    def __init__(self, *_: object) -> None: ...

    def __getitem__(self, _: str) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(2000, 5)).astype(np.float32)


def test_a_side_is_scored_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that decoding holds of 2,000 frames (244 MiB of scores): three blocks of 8 MiB."""
    shape = SavedShape(layers=1, cells=8, projection=6, dropout=0.0)
    model = BLSTM(shape, input_dim=5, num_pdfs=PDFS, seed=3)
    priors = torch.rand(PDFS, generator=torch.Generator().manual_seed(0)).log_softmax(0)
    path = tmp_path / "final.pt"
    save_model(path, model, ModelMeta(shape, 5, ("logmel",), PDFS, priors))
    monkeypatch.setattr(network, "Fusion", Features)
    monkeypatch.setattr(network, "read_data", lambda _: None)
    config = SimpleNamespace(features=SimpleNamespace(input=["logmel"]))
    make: Callable[..., network.NetworkScorer] = network.NetworkScorer
    score = make(config=config, models=(path,), data=tmp_path, streams=tmp_path, device="cpu")()
    best: list[np.ndarray] = []

    def searched() -> None:
        scores = score("side")
        assert isinstance(scores, LongScores) and scores.shape == (2000, PDFS)
        assert scores.nbytes < 1.1 * WHOLE
        best.extend(scores[at : at + 8].argmax(1) for at in range(0, 2000, 8))

    assert peak_bytes(searched) < 3.2 * WHOLE < FLOAT * 2000 * PDFS / 9
    loaded, _ = load_model(path)
    with torch.inference_mode():
        logits = loaded(torch.from_numpy(Features()["side"][None]))[0]
        wanted = (logits.log_softmax(-1) - priors).max(1)
    chosen = torch.from_numpy(np.concatenate(best))
    assert (chosen == wanted.indices).float().mean() > 0.99  # near ties may round either way
