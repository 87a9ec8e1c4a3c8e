"""The BLSTM, its initialisation, saving and loading."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hadpsgd.cli import main
from hadpsgd.config.settings import Model
from hadpsgd.errors import UserError
from hadpsgd.models import fast
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import ModelMeta, SavedShape, load_model, save_model
from hadpsgd.models.long_input import hidden
from hadpsgd.models.loss import IGNORE

SMALL = SimpleNamespace(layers=2, cells=8, projection=6, dropout=0.0, frames_per_step=1)


def small(**changes: float) -> BLSTM:
    shape = SimpleNamespace(**{**vars(SMALL), **changes})
    return BLSTM(shape, input_dim=5, num_pdfs=11)


def test_paper_model_has_the_papers_parameters() -> None:
    model = BLSTM(Model(), input_dim=260, num_pdfs=32_000, device="meta")
    assert sum(p.numel() for p in model.parameters()) == 43_154_944


@pytest.mark.parametrize("dim", [5, 8])
def test_the_lstm_for_cuda_is_pytorchs(dim: int) -> None:
    """Outputs and all gradients, in float64, of the code whose kernels only a GPU runs."""
    torch.manual_seed(0)
    lstm = nn.LSTM(dim, 8, 2, batch_first=True, bidirectional=True).double()
    x = torch.randn(3, 6, dim, dtype=torch.float64, requires_grad=True)
    wanted = lstm(x)[0]
    weights = torch.randn_like(wanted)
    leaves = [x, *lstm.parameters()]
    expected = torch.autograd.grad((wanted * weights).sum(), leaves)
    found = fast.blstm(lstm, x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    gradients = torch.autograd.grad((found * weights).sum(), leaves)
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_logits_by_hand() -> None:
    """One layer against the LSTM's equations written out in float64."""
    model = small(layers=1).double()
    x = torch.randn(1, 7, 5, dtype=torch.float64)

    def direction(suffix: str, frames: torch.Tensor) -> torch.Tensor:
        w_ih, w_hh, b_ih, b_hh = (
            getattr(model.lstm, f"{name}_l0{suffix}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h, c, out = torch.zeros(8).double(), torch.zeros(8).double(), []
        for frame in frames:
            i, f, g, o = (w_ih @ frame + w_hh @ h + b_ih + b_hh).split(8)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return torch.stack(out)

    states = torch.cat([direction("", x[0]), direction("_reverse", x[0].flip(0)).flip(0)], -1)
    expected = model.output(model.projection(states))
    torch.testing.assert_close(model(x)[0], expected)


def test_padded_utterances_come_out_as_alone() -> None:
    model = small()
    lengths = torch.tensor([4, 9, 1])
    x = torch.randn(3, 9, 5)
    together = model(x, lengths)
    assert together.shape == (3, 9, 11)
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length])[0]
        torch.testing.assert_close(together[row, :length], alone)


def test_held_out_examples_with_padding_are_scored_as_alone() -> None:
    """The backward direction began in the padding, which training examples have not."""
    model, lengths = small().double(), (4, 9, 1)
    x = torch.randn(3, 9, 5).double()
    targets = torch.randint(11, (3, 9))
    for row, length in enumerate(lengths):
        targets[row, length:] = IGNORE
    alone = [model.score(x[i : i + 1, :n], targets[i : i + 1, :n]) for i, n in enumerate(lengths)]
    together = model.score(x, targets)
    assert together.frames == 14 and together.correct == sum(each.correct for each in alone)
    assert together.loss == pytest.approx(sum(each.loss for each in alone), rel=1e-6)


def test_initial_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = small()
    torch.manual_seed(2)
    second = small()
    other = BLSTM(SMALL, input_dim=5, num_pdfs=11, seed=1)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
        if value.dim() == 2:
            assert not torch.equal(value, other.state_dict()[name])
            fan = 8 if name.startswith("lstm") else value.shape[1]
            assert value.abs().max() <= 1 / math.sqrt(fan)
            assert value.abs().max() > 0.7 / math.sqrt(fan)
    biases = first.state_dict()
    assert torch.equal(biases["lstm.bias_ih_l1"][8:16], torch.ones(8))
    assert biases["lstm.bias_ih_l1"].sum() == 8
    assert not biases["lstm.bias_hh_l1"].any()


def test_dropout_lies_between_layers_and_ends_with_training() -> None:
    model = small(dropout=0.5)
    x = torch.randn(2, 4, 5)
    model.train()
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))
    one_layer = small(layers=1, dropout=0.5).train()
    assert torch.equal(one_layer(x), one_layer(x))


@pytest.mark.parametrize("where", ["input_dropout", "output_dropout"])
def test_inputs_and_outputs_are_left_out_of_whole_examples(where: str) -> None:
    """What is left out is so in all frames of an example, the rest grows, the mean stays."""
    shape = SimpleNamespace(
        **vars(SMALL), **{"input_dropout": 0.0, "output_dropout": 0.0, where: 0.5}
    )
    model = BLSTM.for_training(shape, input_dim=400, num_pdfs=11, seed=1)
    share = getattr(model, where)
    x = torch.rand(50, 3, 400) + 1
    model.train()
    kept = model._without(x, share) / x
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    assert torch.equal(kept.unique(), torch.tensor([0.0, 2.0]))
    assert abs(kept.mean() - 1) < 0.05
    assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(model(x), model(x))
    model.eval()
    plain = BLSTM(SMALL, input_dim=400, num_pdfs=11, seed=1).eval()
    assert torch.equal(model(x), plain(x))


def meta_of(**changes: float) -> ModelMeta:
    return ModelMeta(
        model_config=SavedShape.of(SimpleNamespace(**{**vars(SMALL), **changes})),
        input_dim=5,
        streams=("ivector", "logmel"),
        num_pdfs=11,
        log_priors=torch.randn(11).log_softmax(0),
    )


def test_saved_model_comes_back(tmp_path: Path) -> None:
    model = small()
    meta = meta_of()
    save_model(tmp_path / "final.pt", model, meta)
    loaded, read = load_model(tmp_path / "final.pt")
    x = torch.randn(2, 3, 5)
    assert torch.equal(loaded(x), model(x))
    assert not loaded.training
    assert read.streams == meta.streams and read.model_config == meta.model_config
    assert torch.equal(read.log_priors, meta.log_priors)


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    model, meta = small(), meta_of()
    for name in ("one.pt", "other.pt"):
        save_model(tmp_path / name, model, meta)
    assert (tmp_path / "one.pt").read_bytes() == (tmp_path / "other.pt").read_bytes()


def test_meta_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = BLSTM(SMALL, input_dim=5, num_pdfs=12)
    with pytest.raises(ValueError, match="dimensions"):
        save_model(tmp_path / "final.pt", model, meta_of())
    fewer = replace(meta_of(), log_priors=meta_of().log_priors[:-1])
    with pytest.raises(ValueError, match="log_priors of shape"):
        save_model(tmp_path / "final.pt", small(), fewer)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, b"", b"text\n", b"cut"])
def test_a_bad_model_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "final.pt"
    if content == b"cut":
        model = small()
        save_model(path, model, meta_of())
        path.write_bytes(path.read_bytes()[:-200])
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"final\.pt"):
        load_model(path)


def test_other_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "final.pt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(UserError, match="not a trained model"):
        load_model(path)
    torch.save(nn.Linear(2, 2), path)
    with pytest.raises(UserError, match="not a trained model"):
        load_model(path)


@pytest.mark.parametrize(
    ("key", "spoil", "told"),
    [
        ("log_priors", lambda priors: priors[:-1], "no log_priors of 11 pdf-ids"),
        ("log_priors", lambda priors: priors.tolist(), "no log_priors of 11 pdf-ids"),
        (
            "log_priors",
            lambda priors: priors - torch.inf,
            "log_priors whose shares do not add up to 1",
        ),
        (
            "state_dict",
            lambda state: {name: value.double() for name, value in state.items()},
            "weights in torch.float64",
        ),
    ],
)
def test_parts_that_do_not_fit_are_named(
    tmp_path: Path, key: str, spoil: Callable[[Any], object], told: str
) -> None:
    """As a model is read, not frames later."""
    path = tmp_path / "final.pt"
    save_model(path, small(), meta_of())
    content = torch.load(path, weights_only=True)
    torch.save(content | {key: spoil(content[key])}, path)
    with pytest.raises(UserError, match=rf"final\.pt: not a trained model \({told}"):
        load_model(path)


def test_model_info_prints_layers_and_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("name: paper\ncorpus: {kind: builtin}\n")
    assert main(["model-info", "--config", str(config)]) == 0
    printed = capsys.readouterr().out
    assert "43,154,944" in printed and "LSTM 6" in printed and "164.6 MiB" in printed
    save_model(tmp_path / "final.pt", small(), meta_of())
    assert main(["model-info", "--model", str(tmp_path / "final.pt")]) == 0
    assert "ivector logmel" in capsys.readouterr().out
    (tmp_path / "meta.json").write_text("{}")
    assert main(["model-info", "--config", str(config), "--egs", str(tmp_path)]) == 2
    assert "meta.json" in capsys.readouterr().err


@pytest.mark.parametrize("frames", [1, 64, 65, 500])
def test_long_utterances_are_computed_in_chunks(frames: int) -> None:
    """Each direction's state is carried on: the same as at once."""
    model = small(layers=3, cells=16).eval()
    x = torch.randn(frames, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        whole = model.hidden(x[None])[0]
    torch.testing.assert_close(hidden(model, x, chunk=64), whole, rtol=0, atol=1e-6)
    assert not hidden(model, x, chunk=64).requires_grad
