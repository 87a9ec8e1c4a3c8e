"""How `precision: bf16` is computed: chosen once by a measurement, then kept.

Which way is fastest depends on device and model: products in bf16 are fast where there are
instructions for them. Each way rounds differently, so that a choice decides bits: rank 0 chooses
for all learners, and what it chose lies beside the checkpoints, where a resumed run and a replay
find it. A rerun is given the original's.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hadpsgd.config import RunSettings
from hadpsgd.config.stage import StageRun
from hadpsgd.decentralized.network.rendezvous import Meeting, wait_for_keys
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.models.blstm import BLSTM
from hadpsgd.training.captured import WARM, Captured, Taking
from hadpsgd.training.metrics import say
from hadpsgd.training.saved import complete

FP32 = "fp32"
"""In single precision: bf16 is slower here."""
AUTOCAST = "autocast"
"""PyTorch's autocast, nn.LSTM included."""
BF16_LSTM = "bf16-lstm"
"""PyTorch's autocast, but the layers of hadpsgd.models.bf16_lstm, on GPUs of models.fast."""
CHOICES = (FP32, AUTOCAST, BF16_LSTM)
FILE = "arithmetic.json"
"""In the folder of a run's checkpoints."""
ROUNDS = 5
SECONDS = 5.0
"""No round begins later after the first; the first one is always made."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """One gradient's minibatch."""

    subsequences: int
    frames: int
    """Of a subsequence."""


def mode(choice: str, device: torch.device) -> AbstractContextManager[object]:
    """For the forward pass of a gradient; any other name than those above is no bf16."""
    wanted = choice in (AUTOCAST, BF16_LSTM)
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted)


def prepare(model: BLSTM, choice: str) -> None:
    """Make a model compute as chosen while `mode` holds."""
    model.own_layers = choice == BF16_LSTM


def draws(settings: RunSettings) -> bool:
    """Whether a gradient draws random numbers."""
    model = settings.model
    return any((model.dropout, model.input_dropout, model.output_dropout))


def can_capture(settings: RunSettings, device: torch.device) -> bool:
    """Whether a run's gradients can be CUDA graphs.

    Not with dropout, nor where gradients are sent while they are computed, nor for sequence
    training and virtual learners, whose weights move.
    """
    run = settings.run
    fixed = not (run.simulated or isinstance(run, StageRun) or draws(settings))
    shared = run.shared_gradients > 1 or run.synchronous_epochs > 0 or run.strategy == "ddp"
    return device.type == "cuda" and fixed and not shared


def agree(
    precision: str,
    model: BLSTM,
    size: Size,
    *,
    run_id: str,
    meeting: Meeting,
    folder: Path,
    captured: bool = False,
) -> str:
    """The way all learners of a run take, and the model prepared for it.

    Args:
        precision: of the config; all but bf16 stand for themselves.
        model: on its device, weights as they begin (its gradients stay untouched).
        size: of a learner's minibatch.
        run_id: for the log.
        meeting: all ranks call this.
        folder: of the run's checkpoints.
        captured: gradients are CUDA graphs.

    Raises:
        UserError: rank 0 does not say, the folder's choice cannot be read, or this processor cannot
            compute by it.
    """
    choice = precision
    if precision == "bf16":
        choice = _agreed(
            model, size, run_id=run_id, meeting=meeting, folder=folder, captured=captured
        )
    check(model, size, choice, folder)
    prepare(model, choice)
    return choice


def kept(folder: Path) -> str | None:
    """What was chosen for the run with these checkpoints; None before its first start.

    Raises:
        UserError: the file says nothing that is known here.
    """
    file = folder / FILE
    if not file.is_file():  # versions before there was a choice took autocast
        return AUTOCAST if complete(folder) else None
    try:
        choice = json.loads(file.read_text(encoding="utf-8"))["arithmetic"]
    except (ValueError, KeyError, TypeError):
        choice = None
    if choice not in CHOICES:
        raise UserError(
            f"names none of {', '.join(CHOICES)}",
            where=file,
            fix="Write the `arithmetic` that the run's log or summary.json names",
        )
    return str(choice)


def recorded(precision: str, folder: Path) -> str:
    """How the run with these checkpoints was computed."""
    return precision if precision != "bf16" else kept(folder) or AUTOCAST


def keep(folder: Path, choice: str, seconds: dict[str, float] | None = None) -> None:
    """Let a run compute this way, from its first start on."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"arithmetic": choice, "seconds_of_a_gradient": seconds or {}}
    write_text(folder / FILE, json.dumps(content, indent=2) + "\n")


def _agreed(
    model: BLSTM, size: Size, *, run_id: str, meeting: Meeting, folder: Path, captured: bool
) -> str:
    if meeting.place.rank:
        store = meeting.prefixed("arithmetic")
        if not wait_for_keys(store, ["choice"], meeting.timeout.total_seconds() + 60):
            raise TimeoutError("rank 0 came and then fell silent")
        return store.get("choice").decode()
    choice = kept(folder)
    if choice is None:
        found = measure(model, size, captured=captured)
        choice = fastest(found)
        keep(folder, choice, found)
        frames = size.subsequences * size.frames
        speeds = ", ".join(f"{name} {frames / max(found[name], 1e-9):.0f}" for name in found)
        say(f"{run_id}: computes by {choice}; measured frames/s: {speeds}")
    else:
        say(f"{run_id}: computes by {choice}, as chosen before")
    if meeting.store is not None:
        meeting.prefixed("arithmetic").set("choice", choice)
    return choice


def fastest(seconds: dict[str, float]) -> str:
    """The choice with the least; fp32 among equals."""
    return min(CHOICES, key=lambda name: seconds.get(name, math.inf))


def measure(model: BLSTM, size: Size, *, captured: bool = False) -> dict[str, float]:
    """Seconds of one gradient of a copy of the model, by choice: the least of a few rounds.

    On a processor the choices take turns, so that other load hits all alike; on a GPU each frees
    its memory for the next. Random numbers are drawn as if nothing had happened. What this device
    cannot do, or has no memory for, is left out.

    Raises:
        RuntimeError: it cannot even do fp32.
    """
    copied, x, targets = _trial(model, size)
    on_gpu = x.is_cuda
    groups = [[choice] for choice in CHOICES] if on_gpu else [list(CHOICES)]
    found: dict[str, float] = {}
    with torch.random.fork_rng(devices=[]):
        for group in groups:
            found |= _least(copied, x, targets, group, captured=captured)
            if on_gpu:
                gc.collect()
                torch.cuda.empty_cache()
    if not found:
        raise torch.OutOfMemoryError("no way of computing a gradient fits into the GPU's memory")
    return found


def _least(
    model: BLSTM, x: Tensor, targets: Tensor, choices: Sequence[str], *, captured: bool
) -> dict[str, float]:
    """Of choices that take turns, those that work."""
    gradients = {choice: _Gradient(model, choice, captured=captured) for choice in choices}
    # the first times, libraries make their plans
    able = [choice for choice in choices if _can(gradients[choice], x, targets)]
    least = dict.fromkeys(able, math.inf)
    begin = time.monotonic()
    for number in range(ROUNDS):
        if number and time.monotonic() - begin > SECONDS:
            break
        for choice in able:
            least[choice] = min(least[choice], gradients[choice].seconds(x, targets))
    return least


def check(model: BLSTM, size: Size, choice: str, folder: Path) -> None:
    """What was chosen where a run began may be more than this processor can.

    Raises:
        UserError: it is. Another choice would end in other bits.
    """
    on_processor = next(model.parameters()).device.type == "cpu"
    if not on_processor or choice not in (AUTOCAST, BF16_LSTM):
        return
    copied, x, targets = _trial(model, size)
    with torch.random.fork_rng(devices=[]):
        able = _can(_Gradient(copied, choice), x, targets)
    if not able:
        raise UserError(
            f"this processor cannot compute by {choice}, as this run began",
            where=folder / FILE,
            fix="Go on (or replay) on one that can; or remove the folder: the run begins again",
        )


def _trial(model: BLSTM, size: Size) -> tuple[BLSTM, Tensor, Tensor]:
    """A copy of the model to try gradients with, and a minibatch for it."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(size.subsequences, size.frames, model.input_dim, generator=draws)
    targets = torch.randint(model.num_pdfs, x.shape[:2], generator=draws)
    copied = copy.deepcopy(model).train()
    device = next(copied.parameters()).device
    for parameter in copied.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return copied, x.to(device), targets.to(device)


def _taking(model: BLSTM, choice: str) -> Taking:
    """What takes a gradient of the trial's model by a choice."""

    def take(x: Tensor, targets: Tensor) -> Tensor:
        prepare(model, choice)
        with mode(choice, x.device):
            loss = model.loss(x, targets)
        loss.backward()
        return loss.detach()

    return take


class _Gradient:
    """A gradient of the trial's model by one of the choices."""

    def __init__(self, model: BLSTM, choice: str, *, captured: bool = False) -> None:
        self.choice = choice
        take = _taking(model, choice)
        self._take = Captured(take, model) if captured else take
        self.warm = WARM + 1 if captured else 1

    def seconds(self, x: Tensor, targets: Tensor) -> float:
        """Of a processor with one thread, its own time: who else works here does not count."""
        one = x.device.type == "cpu" and torch.get_num_threads() == 1
        clock = time.process_time if one else time.perf_counter
        begin = clock()
        float(self._take(x, targets))  # a GPU has computed it when it is read
        return clock() - begin


def _can(gradient: _Gradient, x: Tensor, targets: Tensor) -> bool:
    try:
        for _ in range(gradient.warm):
            gradient.seconds(x, targets)
    except torch.OutOfMemoryError:
        return False
    except RuntimeError:  # oneDNN has no bf16 LSTM for processors without AVX512
        if gradient.choice == FP32:
            raise
        return False
    return True
