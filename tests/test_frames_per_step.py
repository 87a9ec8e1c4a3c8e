"""Networks whose steps read and label several frames (`model.frames_per_step`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_models import meta_of, small
from torch import Tensor

from hadpsgd.cli import main
from hadpsgd.config import check
from hadpsgd.decoding.network import log_likelihoods
from hadpsgd.decoding.onnx_file import write_onnx
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import load_model, save_model
from hadpsgd.models.long_input import hidden
from hadpsgd.models.loss import IGNORE, cross_entropy
from hadpsgd.setup.need import network_parameters, network_work


def frames_of(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, count, 5, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("count", "frames"), [(1, 4), (2, 4), (2, 5), (3, 7), (3, 1), (4, 9)])
def test_each_step_reads_and_labels_its_frames(count: int, frames: int) -> None:
    """Against the frames written side by side; the last one stands for what is missing."""
    model = small(frames_per_step=count).double()
    x = frames_of(frames)
    steps = []
    for first in range(0, frames, count):
        steps.append(torch.cat([x[0, min(first + n, frames - 1)] for n in range(count)]))
    states, _ = model.lstm(torch.stack(steps)[None])
    expected = []
    for frame in range(frames):
        step, place = divmod(frame, count)
        rows = slice(6 * place, 6 * (place + 1))
        weight, bias = model.projection.weight[rows], model.projection.bias[rows]
        expected.append(model.output(weight @ states[0, step] + bias))
    torch.testing.assert_close(model(x)[0], torch.stack(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [2, 3])
def test_padded_utterances_come_out_as_alone(count: int) -> None:
    """Also where padding lies in an utterance's last step, and their gradients."""
    model = small(frames_per_step=count).double()
    lengths = torch.tensor([4, 9, 1, 6])
    x = torch.cat([frames_of(9, seed) for seed in range(4)])
    x[0, 4:] = x[2, 1:] = x[3, 6:] = torch.nan  # of which nothing may be seen
    targets = torch.randint(11, (4, 9), generator=torch.Generator().manual_seed(1))
    for row, length in enumerate(lengths.tolist()):
        targets[row, length:] = IGNORE
    together = model(x, lengths)
    assert together.shape == (4, 9, 11)
    alone = [model(x[row : row + 1, :length]) for row, length in enumerate(lengths.tolist())]
    for row, (found, length) in enumerate(zip(alone, lengths.tolist(), strict=True)):
        torch.testing.assert_close(together[row, :length], found[0], rtol=0, atol=1e-12)
    parameters = list(model.parameters())
    flat = torch.cat([found[0] for found in alone])
    expected = torch.autograd.grad(cross_entropy(flat, targets[targets != IGNORE]), parameters)
    counted = together[targets != IGNORE]
    found = torch.autograd.grad(cross_entropy(counted, targets[targets != IGNORE]), parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    scored = model.score(x, targets)
    loss = cross_entropy(flat, targets[targets != IGNORE]).item()
    assert scored.frames == 20 and scored.loss == pytest.approx(20 * loss, rel=1e-6)  # in float32


@pytest.mark.parametrize("frames", [1, 63, 190, 500])
def test_long_utterances_are_computed_in_chunks(frames: int) -> None:
    model = small(layers=3, cells=16, frames_per_step=3).double().eval()
    x = frames_of(frames)[0]
    with torch.inference_mode():
        whole = model.hidden(x[None])[0]
    torch.testing.assert_close(hidden(model, x, chunk=64), whole, rtol=0, atol=1e-12)


def test_a_trained_model_keeps_it_and_older_files_have_one_frame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = small(frames_per_step=3).eval(), tmp_path / "final.pt"
    save_model(path, model, meta_of(frames_per_step=3))
    loaded, meta = load_model(path)
    x = frames_of(7).float()
    assert meta.model_config.frames_per_step == 3 and torch.equal(loaded(x), model(x))
    assert main(["model-info", "--model", str(path)]) == 0
    assert "step        3 frames" in capsys.readouterr().out
    model = small().eval()
    save_model(path, model, meta_of())
    content = torch.load(path, weights_only=True)
    del content["model_config"]["frames_per_step"]
    torch.save(content, path)
    assert torch.equal(load_model(path)[0](x), model(x))


def test_the_onnx_file_scores_utterances_of_any_length(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, path = small(frames_per_step=3).eval(), tmp_path / "final.pt"
    save_model(path, model, meta_of(frames_per_step=3))
    write_onnx(path, out=tmp_path / "final.onnx", about={})
    session = runtime.InferenceSession(tmp_path / "final.onnx")
    priors = load_model(path)[1].log_priors
    for frames in (1, 2, 3, 49, 50, 51, 52):
        x = frames_of(frames).float().repeat(2, 1, 1)
        with torch.inference_mode():
            expected = log_likelihoods(model, model.hidden(x), priors)
        (found,) = session.run(["log_likelihoods"], {"features": x.numpy()})
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_what_a_network_costs() -> None:
    """Parameters are the network's; those of LSTM and projection work once in three frames."""

    def config(**model: Any) -> Any:
        content = {"name": "x", "corpus": {"kind": "builtin"}, "model": model}
        return check(content, "test")

    plain, joined = config(layers=2, cells=32), config(layers=2, cells=32, frames_per_step=3)
    run = plain.training.members[0].id
    assert network_work(plain, run) == network_parameters(plain, run)
    pdfs = 133
    built = BLSTM(joined.model, input_dim=120, num_pdfs=pdfs, device="meta")
    softmax = sum(p.numel() for p in built.output.parameters())
    others = sum(p.numel() for p in built.parameters()) - softmax
    per_pdf = softmax // pdfs
    of_config = network_parameters(joined, run) - others
    assert of_config % per_pdf == 0  # an unknown number of pdf-ids, all else as built
    assert network_work(joined, run) == others // 3 + of_config
