"""`hadpsgd neural-lm`: a recurrent language model of the text that the n-gram is trained on."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from hadpsgd import config
from hadpsgd.config import Config
from hadpsgd.config.neural_lm import NeuralLm
from hadpsgd.decentralized.offered import started
from hadpsgd.errors import UserError
from hadpsgd.files import sha256, write_text
from hadpsgd.lm import backoff, first_pass
from hadpsgd.lm.neural import model
from hadpsgd.lm.neural.mixture import Models
from hadpsgd.lm.neural.numbering import number
from hadpsgd.lm.neural.train import Job, identity_of, weights_of
from hadpsgd.lm.neural.words import Words
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.rank_device import device_of
from hadpsgd.run_folder import alone
from hadpsgd.texts import is_arpa

META, CHECKPOINTS = "meta.json", "checkpoints"
OF_NO_RESULT = {"nbest", "weights", "max_oov"}
"""Settings with which the network is the same."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    add = parser.add_argument
    add("--config", type=Path, required=True, help="config (YAML) with lm.neural")
    add("--text", type=Path, required=True, help="one sentence a line; texts of lm.sources follow")
    add("--dev", type=Path, required=True, help="text whose perplexity chooses the epoch")
    add("--lang", type=Path, required=True, help="folder with words.txt")
    add("--arpa", type=Path, required=True, help="the n-gram, whose words it has (gzipped too)")
    add("--out", type=Path, required=True, help="folder of model.pt, meta.json, checkpoints/")


def run(args: argparse.Namespace) -> int:
    """Write OUT/model.pt, then OUT/meta.json; a killed training goes on from its last epoch."""
    whole = config.load(args.config)
    settings = settings_of(whole, args.config)
    rank, learners = started()
    check_learners(settings, learners)
    torch.set_num_threads(settings.threads)
    texts = [args.text, *(Path(s) for s in whole.lm.sources.values() if not is_arpa(Path(s)))]
    words = Words.of(first_pass.unigrams(args.arpa), Vocabulary.of_lang(args.lang))
    made = settings.model_dump(exclude=OF_NO_RESULT)
    files = [sha256(path) for path in (*texts, args.dev)]
    identity = identity_of(settings=made, seed=whole.seed, words=words.names, texts=files)
    made_before = _made_before(args.out, identity)
    work = args.out / CHECKPOINTS / identity
    job = Job(
        settings=settings,
        seed=whole.seed,
        words=len(words),
        train=work / "train",
        dev=work / "dev",
        checkpoints=work / "epochs",
        rank=rank,
        learners=learners,
        agreed=identity,
    )
    with alone(args.out) if rank == 0 else nullcontext():
        if made_before is None:
            _train(args, job, texts, words)
            return 0
        print(f"{args.out / model.FILE}: of the same settings and texts: done", file=sys.stderr)
        if rank == 0:  # n-gram and weights to try may be others
            network, words = model.load(args.out / model.FILE)
            _report(args, settings, Models(backoff.load(args.arpa), network, words), made_before)
    return 0


def _train(args: argparse.Namespace, job: Job, texts: list[Path], words: Words) -> None:
    """The training; on the first learner, the files it makes."""
    settings = job.settings
    if job.rank == 0:
        most = settings.max_oov
        number(job.train, texts, lang=args.lang, words=words, max_oov=most)
        number(job.dev, [args.dev], lang=args.lang, words=words, max_oov=most)
    network, best = job.run(device_of(settings.device))
    if job.rank == 0:
        network = network.cpu()
        (args.out / META).unlink(missing_ok=True)  # of another model, if this one is killed now
        model.save(args.out / model.FILE, network, words, weights_of(network))
        trained = {"identity": job.agreed, "epochs": best.rows, "best_epoch": best.epoch}
        _report(args, settings, Models(backoff.load(args.arpa), network, words), trained)
        shutil.rmtree(args.out / CHECKPOINTS, ignore_errors=True)


def settings_of(whole: Config, path: Path) -> NeuralLm:
    """The section of the neural model.

    Raises:
        UserError: the config has none.
    """
    if whole.lm.neural is None:
        raise UserError("no lm.neural", where=path, fix="`lm: {neural: {}}` has its defaults")
    return whole.lm.neural


def check_learners(settings: NeuralLm, learners: int) -> None:
    """Refuse another number of processes than the config has."""
    if learners != settings.learners:
        fix = f"hadpsgd launch --learners {settings.learners} -- hadpsgd neural-lm ..."
        what = f"lm.neural.learners is {settings.learners}, and {learners} started"
        raise UserError(what, fix=fix)


def _made_before(out: Path, identity: str) -> dict[str, Any] | None:
    """How a folder's model was trained, as `_report` takes it; None where it is another's."""
    try:
        content = json.loads((out / META).read_text(encoding="utf-8"))
        found = {name: content[name] for name in ("identity", "epochs", "best_epoch")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    there = found["identity"] == identity and (out / model.FILE).is_file()
    return found if there else None


def _report(
    args: argparse.Namespace, settings: NeuralLm, models: Models, trained: dict[str, Any]
) -> None:
    """meta.json, and the perplexities on standard error.

    trained: identity, epochs, best_epoch.
    """
    vocabulary = Vocabulary.of_lang(args.lang)
    weights = sorted({0.0, 1.0, *settings.weights})
    found = models.perplexities(vocabulary.map(args.dev), weights)
    content: dict[str, Any] = {
        "identity": trained["identity"],
        "words": len(models.words),
        "parameters": sum(weight.numel() for weight in models.neural.parameters()),
        "settings": settings.model_dump(exclude=OF_NO_RESULT),
        "epochs": trained["epochs"],
        "best_epoch": trained["best_epoch"],
        "dev": {
            **vocabulary.report(),
            "perplexity": {f"{weight:g}": round(value, 4) for weight, value in found.items()},
        },
    }
    write_text(args.out / META, json.dumps(content, indent=2) + "\n")
    least = min(weights, key=lambda weight: found[weight])
    print(
        f"dev perplexity: n-gram {found[0.0]:.2f}, neural {found[1.0]:.2f}, weight {least:g} of the"
        f" neural one {found[least]:.2f}",
        file=sys.stderr,
    )
    if least == 0.0:
        print(
            "warning: the n-gram alone fits the development text best: leave out lm.neural, or give"
            " it more text, or more lm.neural.epochs where the text is short",
            file=sys.stderr,
        )
