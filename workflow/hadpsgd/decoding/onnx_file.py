"""The network as an ONNX file, for programs without torch: features in, scores for a decoder out.

Input `features` float32 [batch, frames, dim], all utterances of one length; output
`log_likelihoods` float32 [batch, frames, pdfs]: log-posteriors minus log-priors, as our own search
takes them. `batch` and `frames` are free.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from hadpsgd.decoding.network import log_likelihoods
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import load_model

INPUT, OUTPUT = "features", "log_likelihoods"
_OPSET = 17
_FRAMES = 50  # of the example that the exporter follows; any number gives the same file
_MEGABYTES = 2000  # protobuf's limit is 2 GiB


class _Scores(nn.Module):
    """Network and priors."""

    def __init__(self, model: BLSTM, log_priors: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("log_priors", log_priors)

    def forward(self, x: Tensor) -> Tensor:
        return log_likelihoods(self.model, self.model.hidden(x), self.get_buffer("log_priors"))


def write_onnx(model: Path, *, out: Path, about: Mapping[str, str]) -> None:
    """Write OUT from a `final.pt`, with what `about` says as the file's metadata.

    Raises:
        UserError: no model, the package onnx is missing, or the network is too large for a file.
    """
    try:
        import onnx
    except ImportError:
        fix = "pip install onnx"
        raise UserError("an ONNX file needs the package onnx", where=out, fix=fix) from None
    network, meta = load_model(model)
    size = sum(parameter.nbytes for parameter in network.parameters())
    if size > _MEGABYTES * 10**6:
        what = f"a network of {size / 1e6:.0f} MB; one file of ONNX has at most {_MEGABYTES}"
        raise UserError(what, where=model, fix="Export without --onnx")
    free = {0: "batch", 1: "frames"}
    with atomic_file(out) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter that writes LSTM as one operator
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            _Scores(network, meta.log_priors).eval(),
            (torch.zeros(1, _FRAMES, meta.input_dim),),
            str(temporary),
            dynamo=False,
            opset_version=_OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_axes={INPUT: free, OUTPUT: free},
        )
        written = onnx.load(temporary)
        onnx.helper.set_model_props(written, {"streams": " ".join(meta.streams), **about})
        onnx.checker.check_model(written, full_check=True)
        onnx.save(written, temporary)
