"""`hadpsgd model-info`: layers and parameters of a config's model, or of a trained one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hadpsgd.config import load, settings_of
from hadpsgd.errors import UserError
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import load_model
from hadpsgd.numeric import whole

PAPER_PDFS = 32_000
WIDEST, MOST_PDFS = 100_000, 1_000_000
"""Inputs and outputs that a network may have."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, help="YAML config")
    source.add_argument("--model", type=Path, help="trained model (final.pt)")
    parser.add_argument("--run-id", "--run", dest="run", help="of the config; the first without it")
    parser.add_argument("--egs", type=Path, help="examples that give input and outputs")
    parser.add_argument(
        "--input-dim",
        type=whole("--input-dim", most=WIDEST),
        default=260,
        help="without --egs (default 260)",
    )
    parser.add_argument(
        "--num-pdfs",
        type=whole("--num-pdfs", most=MOST_PDFS),
        default=PAPER_PDFS,
        help=f"without --egs (default {PAPER_PDFS})",
    )


def table(model: BLSTM) -> str:
    """One line a module with its parameters, then the total."""
    lstm = model.lstm
    rows = [
        (
            f"LSTM {layer + 1}",
            f"2 x {lstm.hidden_size} cells",
            sum(p.numel() for n, p in lstm.named_parameters() if _layer(n) == layer),
        )
        for layer in range(lstm.num_layers)
    ]
    for name, module in (("projection", model.projection), ("softmax", model.output)):
        shape = f"{module.in_features} -> {module.out_features}"
        rows.append((name, shape, sum(p.numel() for p in module.parameters())))
    total = sum(count for _, _, count in rows)
    lines = [f"{'input':<12}{model.input_dim}"]
    if model.frames_per_step > 1:
        lines += [f"{'step':<12}{model.frames_per_step} frames"]
    lines += [f"{name:<12}{shape:<20}{count:>12,}" for name, shape, count in rows]
    lines.append(f"{'parameters':<32}{total:>12,}  ({total * 4 / 2**20:.1f} MiB in fp32)")
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    if args.model:
        model, meta = load_model(args.model)
        print(table(model))
        print(f"streams     {' '.join(meta.streams)}")
        return 0
    input_dim, num_pdfs = _dimensions(args.egs) if args.egs else (args.input_dim, args.num_pdfs)
    config = load(args.config)
    settings = settings_of(config, args.run or config.training.members[0].id)
    model = BLSTM(settings.model, input_dim=input_dim, num_pdfs=num_pdfs, device="meta")
    print(table(model))
    return 0


def _layer(name: str) -> int:
    return int(name.split("_l")[1].removesuffix("_reverse"))


def _dimensions(egs: Path) -> tuple[int, int]:
    path = egs / "meta.json"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        return int(meta["input_dim"]), int(meta["num_pdfs"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"not the description of examples ({error})", where=path, fix="`hadpsgd egs` writes it"
        ) from None
