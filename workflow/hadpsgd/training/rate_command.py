"""`hadpsgd learning-rate`: the learning rate over the epochs, as a table and as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hadpsgd.config import load, settings_of
from hadpsgd.config.settings import Settings
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file
from hadpsgd.training.rate import rate

POINTS_PER_EPOCH = 50
PICTURES = (".png", ".svg", ".pdf")


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="YAML config")
    parser.add_argument("--run-id", "--run", dest="run", help="of the config; the first without it")
    parser.add_argument("--plot", type=Path, help="picture to write (.png, .svg or .pdf)")


def run(args: argparse.Namespace) -> int:
    """Print the rate at the start of each epoch; draw the curve where --plot asks."""
    config = load(args.config)
    if args.plot and args.plot.suffix not in PICTURES:
        fix = f"Give it a name that ends with {', '.join(PICTURES[:-1])} or {PICTURES[-1]}"
        raise UserError("no picture of this kind", where=args.plot, fix=fix)
    training = settings_of(config, args.run or config.training.members[0].id).training
    print("epoch  learning rate")
    for epoch in range(training.epochs):
        print(
            f"{epoch + 1:5}  {rate(training.learning_rate, batch=training.batch, epoch=epoch):.6g}"
        )
    if args.plot:
        plot(training, args.plot)
    return 0


def plot(training: Settings, path: Path) -> None:
    """The curve over all epochs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    epochs = np.linspace(0, training.epochs, training.epochs * POINTS_PER_EPOCH, endpoint=False)
    rates = [rate(training.learning_rate, batch=training.batch, epoch=epoch) for epoch in epochs]
    figure, axes = pyplot.subplots(figsize=(6, 3), layout="constrained")
    axes.plot(epochs, rates)
    axes.set(xlabel="epoch", ylabel="learning rate", title=f"batch {training.batch}")
    axes.set_ylim(bottom=0)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."), dpi=120)
    pyplot.close(figure)
