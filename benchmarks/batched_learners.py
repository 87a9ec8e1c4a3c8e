"""Gradients of many learners, each with its weights: one after the other, or as batched products.

    python benchmarks/batched_learners.py --learners 16 64 --subsequences 2 4 8 16

A layer of a BLSTM, a projection and an output, as in config/paper_quick.yaml. One after the other:
torch's LSTM, learner by learner, as virtual runs do. Batched: the recurrence written out, each
product one `baddbmm` over all learners and both directions. Both give the same losses and
gradients, which is checked. Milliseconds of a learner's gradient, the best of five: of the
processor, or by the clock on a GPU (`--device cuda`), where cuDNN's LSTM is what they compete with.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

FRAMES, DIM, PDFS = 21, 40, 130
Stack = dict[str, Tensor]


def networks(learners: int, cells: int, device: str) -> list[nn.ModuleDict]:
    """One network a learner, each with weights of its own."""
    made = []
    for seed in range(learners):
        torch.manual_seed(seed)
        lstm = nn.LSTM(DIM, cells, batch_first=True, bidirectional=True)
        parts = {"projection": nn.Linear(2 * cells, cells), "output": nn.Linear(cells, PDFS)}
        made.append(nn.ModuleDict({"lstm": lstm, **parts}).to(device))
    return made


def one_by_one(models: list[nn.ModuleDict], x: Tensor, targets: Tensor) -> Tensor:
    """Losses [learners]; adds to the models' gradients. x [learners, b, FRAMES, DIM]."""
    losses = []
    for model, inputs, labels in zip(models, x, targets, strict=True):
        hidden, _ = model["lstm"](inputs)
        scores = model["output"](model["projection"](hidden))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses)


def stacked(models: list[nn.ModuleDict]) -> Stack:
    """Every parameter of all learners as one tensor [learners, ...]."""
    each = [dict(model.named_parameters()) for model in models]
    return {k: torch.stack([p[k].detach() for p in each]).requires_grad_() for k in each[0]}


def batched(weights: Stack, x: Tensor, targets: Tensor) -> Tensor:
    """As `one_by_one`, by products of all learners at once; adds to the stacks' gradients."""
    learners, b = x.shape[:2]
    cells = weights["lstm.weight_hh_l0"].shape[-1]
    rows = x.transpose(1, 2).reshape(learners, FRAMES * b, DIM)
    gates = []
    for suffix in ("", "_reverse"):
        bias = weights[f"lstm.bias_ih_l0{suffix}"] + weights[f"lstm.bias_hh_l0{suffix}"]
        product = torch.baddbmm(bias[:, None], rows, weights[f"lstm.weight_ih_l0{suffix}"].mT)
        ordered = product.view(learners, FRAMES, b, 4 * cells)
        gates.append(ordered.flip(1) if suffix else ordered)
    both = ("lstm.weight_hh_l0", "lstm.weight_hh_l0_reverse")
    recurrent = torch.cat([weights[name] for name in both]).mT.contiguous()
    h = c = x.new_zeros(2 * learners, b, cells)
    found = []
    for frame in torch.cat(gates).transpose(0, 1).contiguous().unbind(0):
        i, f, g, o = torch.baddbmm(frame, h, recurrent).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        found.append(h)
    hidden = torch.stack(found, 1)
    hidden = torch.cat([hidden[:learners], hidden[learners:].flip(1)], -1).flatten(1, 2)
    for layer in ("projection", "output"):
        bias = weights[f"{layer}.bias"][:, None]
        hidden = torch.baddbmm(bias, hidden, weights[f"{layer}.weight"].mT)
    labels = targets.transpose(1, 2).reshape(-1)
    losses = nn.functional.cross_entropy(hidden.flatten(0, 1), labels, reduction="none")
    losses = losses.view(learners, -1).mean(1)
    losses.sum().backward()
    return losses.detach()


def best(work: Callable[[], object], device: str) -> float:
    """Seconds: the processor's own, or until a GPU has done it."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds = []
    for _ in range(5):
        synchronise(device)
        start = clock()
        work()
        synchronise(device)
        seconds.append(clock() - start)
    return min(seconds)


def synchronise(device: str) -> None:
    """Until the device has done what it was asked for."""
    if device != "cpu":
        torch.cuda.synchronize()


def check(models: list[nn.ModuleDict], weights: Stack, x: Tensor, targets: Tensor) -> None:
    """Both ways give the same."""
    rtol, atol = (1e-3, 1e-4) if x.is_cuda else (None, None)  # None: torch's own
    losses = one_by_one(models, x, targets), batched(weights, x, targets)
    torch.testing.assert_close(*losses, rtol=rtol, atol=atol)
    for name, stack in weights.items():
        for model, gradient in zip(models, stack.grad, strict=True):  # type: ignore[arg-type]
            own = dict(model.named_parameters())[name].grad
            torch.testing.assert_close(gradient, own, rtol=rtol, atol=atol)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--subsequences", type=int, nargs="+", default=[2, 4, 8, 16], help="each")
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # the two ways are compared
    print("| learners | subsequences each | one by one | batched |\n|---:|---:|---:|---:|")
    for learners in args.learners:
        for b in args.subsequences:
            models = networks(learners, args.cells, args.device)
            weights = stacked(models)
            x = torch.randn(learners, b, FRAMES, DIM).to(args.device)
            targets = torch.randint(PDFS, (learners, b, FRAMES)).to(args.device)
            check(models, weights, x, targets)
            loop = best(partial(one_by_one, models, x, targets), args.device)
            together = best(partial(batched, weights, x, targets), args.device)
            each = [f"{1000 * seconds / learners:.2f} ms" for seconds in (loop, together)]
            print(f"| {learners} | {b} | {each[0]} | {each[1]} |", flush=True)


if __name__ == "__main__":
    main()
