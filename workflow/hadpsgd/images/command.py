"""`hadpsgd images`: train an image classifier; one learner, started by torchrun or srun."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.decentralized.core.engine import ExcludedError, LostMemberError, NotFiniteError
from hadpsgd.decentralized.network.transport import UnsettledError
from hadpsgd.errors import UserError
from hadpsgd.images.recipe import Recipe
from hadpsgd.images.training import Settings, train
from hadpsgd.numeric import add_real, add_whole, real

RECIPE, SETTINGS = Recipe(), Settings(data=Path(), out=Path())

MOST = 4096
"""Pixels of a side, processes, learners of a super-learner."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="folder with train/CLASS/* and val/CLASS/*")
    add("--out", type=Path, required=True, help="folder for checkpoints, metrics and final.pt")
    add("--model", default=SETTINGS.model, help="a classifier of torchvision (resnet50)")
    add("--strategy", default="adpsgd", help="as the library's: adpsgd, rand, d1d, ..., hadpsgd")
    add_whole(
        parser,
        "--super-learner",
        most=MOST,
        help="learners of a super-learner, for hadpsgd, which needs it",
    )
    add("--among", help="strategy among super-learners, for hadpsgd (adpsgd)")
    add("--schedule", help="who mixes with whom; the strategy's own if not given")
    add_whole(
        parser,
        "--average-every",
        help="steps between rounds, for local, diloco and noloco (8)",
    )
    add_whole(
        parser,
        "--batch",
        default=RECIPE.batch,
        help="images of a learner's step (32)",
    )
    add_whole(
        parser,
        "--epochs",
        default=RECIPE.epochs,
        help="passes over the pictures (90)",
    )
    add_real(
        parser,
        "--base-rate",
        above=True,
        default=RECIPE.base_rate,
        help="for 256 images a step (0.1)",
    )
    add_real(parser, "--warm-up", default=RECIPE.warm_up, help="epochs of warm-up (5)")
    add(
        "--milestones",
        type=real("--milestones"),
        nargs="*",
        default=RECIPE.milestones,
        help="epochs after which the rate is divided by 10 (30 60 80)",
    )
    add_real(parser, "--momentum", most=1.0, default=RECIPE.momentum, help="of SGD (0.9)")
    add("--nesterov", action="store_true", help="Nesterov's form of momentum")
    add_real(parser, "--weight-decay", default=RECIPE.weight_decay, help="of weights (0.0001)")
    add("--decay-all", action="store_true", help="decay biases and BatchNorm's coefficients, too")
    add_whole(
        parser,
        "--size",
        most=MOST,
        default=SETTINGS.size,
        help="pixels of an image's side (224)",
    )
    add_whole(
        parser,
        "--seed",
        least=0,
        default=SETTINGS.seed,
        help="of weights, order and pieces (0)",
    )
    add("--bf16", action="store_true", help="forward and backward in bfloat16 where that is safe")
    add_whole(
        parser,
        "--statistics-batches",
        least=0,
        default=SETTINGS.statistics_batches,
        help="batches for the final network's BatchNorm; 0: the mean of the learners' (200)",
    )
    add_whole(
        parser,
        "--save-every",
        least=0,
        default=0,
        help="steps between checkpoints, for synchronous strategies; 0: an epoch (0)",
    )
    add_whole(
        parser,
        "--workers",
        least=0,
        most=MOST,
        default=SETTINGS.workers,
        help="processes that load images, at most as many as cores (4)",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute (auto)")
    add(
        "--between-gpus",
        choices=("nccl", "host"),
        default="nccl",
        help="nccl, or by the host's memory, which learners that share a GPU need (nccl)",
    )


def run(args: argparse.Namespace) -> None:
    """Do what the arguments say.

    Raises:
        UserError: so, or training diverged, or other learners were lost.
    """
    try:
        train(settings_of(args))
    except NotFiniteError as error:
        fix = "Lower --base-rate, or warm up over more epochs (--warm-up)"
        raise UserError(str(error), where=args.out, fix=fix) from None
    except (LostMemberError, ExcludedError, UnsettledError, TimeoutError) as error:
        said = str(error).strip().partition("\n")[0]
        fix = "See why they ended; the same command goes on from the last checkpoint"
        raise UserError(f"other learners are lost: {said}", where=args.out, fix=fix) from None


def settings_of(args: argparse.Namespace) -> Settings:
    """What was asked for.

    Raises:
        UserError: values that cannot be meant.
    """
    return Settings(
        data=args.data,
        out=args.out,
        model=args.model,
        recipe=Recipe(
            batch=args.batch,
            epochs=args.epochs,
            base_rate=args.base_rate,
            warm_up=args.warm_up,
            milestones=tuple(args.milestones),
            momentum=args.momentum,
            nesterov=args.nesterov,
            weight_decay=args.weight_decay,
            decay_all=args.decay_all,
        ),
        size=args.size,
        engine={
            name: value
            for name in ("strategy", "super_learner", "among", "schedule", "average_every")
            if (value := getattr(args, name)) is not None
        },
        seed=args.seed,
        bf16=args.bf16,
        statistics_batches=args.statistics_batches,
        save_every=args.save_every,
        workers=args.workers,
        device=args.device,
        between_gpus=args.between_gpus,
    )
