"""Log-likelihoods of trained networks: log-posteriors minus log-priors, of several their mean."""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadpsgd.config import Config
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.tables import read_counts
from hadpsgd.decoding.decode import Scorer
from hadpsgd.decoding.heap import keep_few_kernels
from hadpsgd.decoding.scores import Scores, scores_of
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion
from hadpsgd.models.backend import allow_tf32
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import ModelMeta, load_model, why_diverged
from hadpsgd.models.long_input import hidden

# a pdf that training hardly saw cannot be judged: it is made unlikely instead
PRIOR_FLOOR = 1e-9
_UNLIKELY = -1e4


@dataclass(frozen=True, kw_only=True)
class NetworkScorer:
    """Makes a scorer of utterances: features fused, whole utterances, one thread."""

    config: Config
    models: tuple[Path, ...]
    """Of several the mean of their log-likelihoods counts."""
    data: Path
    streams: Path
    device: str = ""
    """auto, cpu or cuda; that of the config (decoding.device) where it is empty."""

    @property
    def place(self) -> str:
        """cpu or cuda.

        Raises:
            UserError: CUDA is asked for and missing.
        """
        return device_of(self.device or self.config.decoding.device)

    def __call__(self) -> Scorer:
        """Load the models and open the features, in the process that uses them.

        Raises:
            UserError: models and features, or models among themselves, do not fit, or CUDA is
                asked for and missing.
        """
        device = self.place
        networks = _loaded(self.models, device)
        pdfs = self._check([meta for _, meta in networks])
        fusion = Fusion(self.config, self.streams, read_data(self.data))
        priors = [meta.log_priors.to(device) for _, meta in networks]

        def score(utterance: str) -> Scores:
            features = fusion[utterance]
            for _, meta in networks:
                if features.shape[1] != meta.input_dim:
                    what = f"{features.shape[1]} features a frame, the model takes {meta.input_dim}"
                    raise UserError(what)
            frames = torch.from_numpy(features).to(device)
            states = [hidden(model, frames) for model, _ in networks]

            def make(begin: int, end: int) -> NDArray[np.float32]:
                each = zip(networks, states, priors, strict=True)
                found = (log_likelihoods(net, at[begin:end], prior) for (net, _), at, prior in each)
                return _mean(found, len(networks)).cpu().numpy()

            held = sum(each.nbytes for each in states)
            return scores_of(frames=len(features), pdfs=pdfs, make=make, held=held)

        return score

    def _check(self, metas: Sequence[ModelMeta]) -> int:
        """The number of their pdf-ids; UserError where models and config do not fit."""
        first = metas[0]
        for path, meta in zip(self.models, metas, strict=True):
            if list(meta.streams) != list(self.config.features.input):
                raise UserError(
                    f"trained on {list(meta.streams)}, config has {self.config.features.input}",
                    where=path,
                    fix="Use the features.input that it was trained with",
                )
            if meta.num_pdfs != first.num_pdfs:
                raise UserError(
                    f"{meta.num_pdfs} pdf-ids, and {self.models[0]} has {first.num_pdfs}",
                    where=path,
                    fix="Decode models of the same alignments together",
                )
        return first.num_pdfs

    def share(self) -> None:
        """Load the models before processes fork, which then share their memory; not from a GPU,
        which they cannot share.

        Raises:
            UserError: a model is missing or damaged, or CUDA is asked for and missing.
        """
        if self.place == "cpu":
            torch.set_num_threads(1)  # a fork after threads have run would hang
            _loaded(self.models, "cpu")

    def utterances(self) -> list[str]:
        """Utterances with features; those of like length, searched together, side by side."""
        fusion = Fusion(self.config, self.streams, read_data(self.data))
        return by_length(fusion.utterances, self.streams.glob(f"*/{self.data.name}/utt2num_frames"))


@torch.inference_mode()
def log_likelihoods(model: BLSTM, states: Tensor, priors: Tensor) -> Tensor:
    """float32 [..., pdfs], log-posteriors minus log-priors, of the output layer's input
    [..., projection]; all on one device."""
    scores = torch.log_softmax(model.output(states).float(), dim=-1) - priors
    return scores.masked_fill(priors < math.log(PRIOR_FLOOR), _UNLIKELY)


@torch.inference_mode()
def _mean(each: Iterable[Tensor], count: int) -> Tensor:
    """Of one, its very bits."""
    total = functools.reduce(Tensor.add_, each)
    return total if count == 1 else total / count


def add_models(parser: argparse.ArgumentParser) -> None:
    """The argument --model of a command that runs one network, or several together."""
    parser.add_argument(
        "--model",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        help="final.pt; several: by the mean of their log-likelihoods",
    )


def why_any_diverged(models: Iterable[Path]) -> str:
    """Why the first of them that has no weights has none; empty where all have."""
    return next(filter(None, map(why_diverged, models)), "")


def add_device(parser: argparse.ArgumentParser) -> None:
    """The argument --device of a command that runs the network."""
    what = "where the network runs (default: decoding.device)"
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="", help=what)


def device_of(wanted: str) -> str:
    """cpu or cuda, whichever of them `wanted` (auto, cpu, cuda) means here.

    Raises:
        UserError: CUDA is asked for and missing.
    """
    # not is_available(), which wakes CUDA: a process that did cannot fork others that use it
    if wanted == "cpu" or torch.cuda.device_count():
        return "cpu" if wanted == "cpu" else "cuda"
    if wanted == "auto":
        return "cpu"
    built = "finds no GPU" if torch.backends.cuda.is_built() else "is built without CUDA"
    raise UserError(f"device cuda: torch {built}", fix="Set decoding.device (or --device) to cpu")


@functools.lru_cache(maxsize=1)
def _loaded(paths: tuple[Path, ...], device: str) -> list[tuple[BLSTM, ModelMeta]]:
    keep_few_kernels()
    allow_tf32(False)  # PyTorch allows it to LSTMs
    return [load_model(path, device) for path in paths]


def by_length(utterances: Sequence[str], tables: Iterable[Path]) -> list[str]:
    """Utterances, the longest first, by the first table of frames (utt2num_frames) there is."""
    path = next(iter(sorted(tables)), None)
    if path is None:
        return list(utterances)
    frames = read_counts(path)
    return sorted(utterances, key=lambda name: (-frames.get(name, 0), name))


def read_data(path: Path) -> DataDir:
    """The data directory; neither audio nor texts need be there."""
    return DataDir.read(path, audio=False, text=False)
