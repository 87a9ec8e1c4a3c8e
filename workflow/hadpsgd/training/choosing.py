"""Which weights are the final ones: the end's, the best epoch's, or the mean of several epochs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from hadpsgd.training.averaging import Choice, Told, by_epoch, choice_of, load
from hadpsgd.training.evaluation import evaluate, named
from hadpsgd.training.job import Job
from hadpsgd.training.metrics import say
from hadpsgd.training.patience import Patience
from hadpsgd.training.row_file import rows_of


def choose(job: Job, last: Tensor) -> dict[str, float]:
    """Load the final weights into the model; their score on all held-out examples, and what there
    was to choose from.

    `last` is the mean of the learners' weights in which training ended. It is final where the
    config wants nothing else; else the choice is written for a replay.
    """
    wanted, folder = job.settings.training, job.checkpoints.folder
    kept = by_epoch(job.checkpoints.last.epochs())

    def score(choice: Choice) -> dict[str, float]:
        """Of weights that the model has from now on."""
        weights = choice.weights(lambda ended: load(ended, folder), last=last)
        job.engine.load_weights(weights)
        return named(evaluate(job.criterion, job.dev_feed.share(rank=0, learners=1)))

    best = _best_epoch(job) if wanted.early_stop else wanted.epochs
    moment = job.checkpoints.last.folder.name
    choice = Choice(moment=moment, end=best not in kept, kept=_of(kept, [best]))
    found = score(choice)
    told: dict[str, float] = {}
    if wanted.early_stop:
        told["best_epoch"] = best
        say(f"{job.run.id}: epoch {best} was the best: held-out loss {found['heldout_loss']:.4f}")
    if before := _of(kept, range(best - wanted.average_last + 1, best)):
        mean = replace(choice, kept=before | choice.kept)
        of_mean = score(mean)
        one, several = found["heldout_loss"], of_mean["heldout_loss"]
        better = several <= one
        say(
            f"{job.run.id}: held-out loss {several:.4f} of the mean of epochs {min(before)} to "
            f"{best}, {one:.4f} of the last one: the {'mean' if better else 'last one'} is final"
        )
        told |= {"heldout_loss_of_last": one, "heldout_loss_of_mean": several}
        told["averaged_epochs"] = len(before) + 1 if better else 1
        choice, found = (mean, of_mean) if better else (choice, score(choice))
    if kept:
        choice.write(folder)
    return {**found, **told}


def _best_epoch(job: Job) -> int:
    """By the held-out losses while it was trained; where their rows are gone, as chosen then."""
    patience = Patience(job.settings.training.early_stop)
    best = patience.hear(rows_of(job.out / "metrics.jsonl")).best
    last = job.checkpoints.last
    if best or (made := choice_of(job.checkpoints.folder, last.folder.name)) is None:
        return best
    return last.steps() // job.steps_per_epoch if made.end else max(made.kept)


def _of(kept: dict[int, dict[int, Told]], epochs: Iterable[int]) -> dict[int, dict[int, Told]]:
    return {epoch: kept[epoch] for epoch in epochs if epoch in kept}
