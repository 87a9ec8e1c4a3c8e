"""`hadpsgd <stage> ...`: every stage of the workflow as a command.

A stage is a module with `configure(parser)` and `run(args)`. It is imported only when it is
called, so that `hadpsgd --help` and small stages start fast.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from hadpsgd.collecting import end_quickly, uncollected
from hadpsgd.errors import UserError

# stage: (module, one line of help), in the order in which data passes them
STAGES: dict[str, tuple[str, str]] = {
    "init": ("hadpsgd.setup.init_command", "a config for recordings, or Kaldi data, of your own"),
    "doctor": ("hadpsgd.setup.doctor_command", "is this machine, or cluster, ready to run"),
    "config": ("hadpsgd.config.command", "check a config, print it resolved, or print its schema"),
    "corpus": ("hadpsgd.corpus.command", "prepare a corpus: data directories, dictionary, texts"),
    "perturb": (
        "hadpsgd.corpus.perturb_command",
        "training speech at other speeds, with noise, in rooms",
    ),
    "validate": ("hadpsgd.corpus.validate_command", "name every fault of Kaldi data directories"),
    "lang": ("hadpsgd.corpus.lang.command", "phones, words, topology and lexicon transducers"),
    "features": ("hadpsgd.features.command", "logmel or MFCC features of a data directory"),
    "import-features": ("hadpsgd.features.import_command", "features or i-vectors from Kaldi"),
    "ubm": ("hadpsgd.features.ivector.ubm_command", "diagonal UBM of the i-vectors"),
    "ivector-train": ("hadpsgd.features.ivector.train_command", "train the i-vector extractor"),
    "ivector-extract": ("hadpsgd.features.ivector.extract_command", "i-vectors of a data set"),
    "fmllr-apply": ("hadpsgd.features.fmllr_command", "features adapted by FMLLR transforms"),
    "adaptation-report": (
        "hadpsgd.features.adaptation_report_command",
        "determinants of FMLLR transforms, i-vectors by speaker and gender",
    ),
    "mono": ("hadpsgd.gmm.mono_command", "a monophone GMM-HMM from a flat start; aligns train"),
    "tri": ("hadpsgd.gmm.tri_command", "triphones on deltas, on the alignments of mono"),
    "lda-mllt": ("hadpsgd.gmm.lda_command", "triphones on LDA+MLLT, on the alignments of tri"),
    "sat": ("hadpsgd.gmm.sat_command", "speaker-adaptive training with FMLLR, on lda-mllt"),
    "import-alignment": (
        "hadpsgd.alignment.import_command",
        "Kaldi's alignments of a data set",
    ),
    "align": ("hadpsgd.gmm.align_command", "align a data set with a trained GMM-HMM"),
    "alignment-report": (
        "hadpsgd.alignment.report_command",
        "durations, silence, outliers, phone times and TextGrids of an alignment",
    ),
    "pronunciations": (
        "hadpsgd.alignment.pronunciations_command",
        "learn from an alignment which pronunciations are said, and where silence stands",
    ),
    "egs": ("hadpsgd.egs.command", "training examples: fused features with their pdf-ids"),
    "check-egs": ("hadpsgd.egs.check_command", "compare training examples with their checksums"),
    "model-info": ("hadpsgd.models.command", "layers and parameters of a model"),
    "learning-rate": ("hadpsgd.training.rate_command", "the learning rate over the epochs"),
    "launch": (
        "hadpsgd.training.launch_command",
        "start the ranks of a training run; with --learners N, those of a script of yours",
    ),
    "train": ("hadpsgd.training.command", "train a run; one rank, started by torchrun"),
    "images": (
        "hadpsgd.images.command",
        "train an image classifier; one rank, as `train`",
    ),
    "watch": ("hadpsgd.training.watch_command", "a training run as it goes, in the terminal"),
    "status": (
        "hadpsgd.status.command",
        "a whole workflow: what runs, what is left and how long, what failed",
    ),
    "clean": ("hadpsgd.clean.command", "list or remove runs that no config names any more"),
    "realign": ("hadpsgd.decoding.realign_command", "align a data set with a trained network"),
    "replay": ("hadpsgd.training.replay_command", "train again from a run's record, bit for bit"),
    "rerun": ("hadpsgd.rerun.command", "make a run again from what it recorded, and compare"),
    "report": ("hadpsgd.reports.command", "table of word error rates, curves, stages, HTML page"),
    "paper": ("hadpsgd.paper.command", "the papers' claims beside runs of grids, as one page"),
    "compare": ("hadpsgd.reports.compare_command", "runs side by side, here and in MLflow"),
    "track": ("hadpsgd.tracking.command", "runs, curves, scores and models to MLflow"),
    "topology": (
        "hadpsgd.decentralized.commands.topology",
        "who mixes with whom: checks, spectral gap, rounds to consensus, bytes",
    ),
    "simulate": (
        "hadpsgd.decentralized.commands.simulate",
        "strategies among many learners in simulated time, stragglers and slow links included",
    ),
    "cost": (
        "hadpsgd.planning.cost_command",
        "hours, memory, disk and money of a whole config, stage by stage",
    ),
    "plan": (
        "hadpsgd.planning.plan_command",
        "hours of training on a cluster; which strategy, sizes, batch and learning rate to take",
    ),
    "pieces": ("hadpsgd.lm.pieces_command", "pieces of words, for an open vocabulary"),
    "lm": ("hadpsgd.lm.command", "train or check the n-gram language model; perplexity report"),
    "neural-lm": ("hadpsgd.lm.neural.command", "train the recurrent model that rescores"),
    "graph": ("hadpsgd.graph.command", "the decoding graph HCLG"),
    "decode": ("hadpsgd.decoding.command", "lattices of a data set from a trained network"),
    "decode-gmm": ("hadpsgd.decoding.gmm_command", "lattices of a data set from a GMM-HMM"),
    "adapt": ("hadpsgd.decoding.adapt_command", "FMLLR transforms of a data set's speakers"),
    "neural-lists": (
        "hadpsgd.decoding.neural_command",
        "n-best lists of a decoded set with what n-gram and neural model say of each word",
    ),
    "tune": (
        "hadpsgd.scoring.tune_command",
        "choose weight of the language model, word penalty and weight of the neural one on dev",
    ),
    "score": ("hadpsgd.scoring.command", "word error rate of a set, as NIST's sclite counts"),
    "score-ctm": ("hadpsgd.scoring.ctm_command", "the same of a CTM file against an STM file"),
    "nbest": ("hadpsgd.scoring.nbest_command", "the best word sequences of every utterance"),
    "phone-ctm": ("hadpsgd.scoring.phones_command", "phones of the best paths with their times"),
    "export": (
        "hadpsgd.scoring.bundle.export_command",
        "one folder with all that recognises speech, from a finished run",
    ),
    "transcribe": (
        "hadpsgd.scoring.transcribe.command",
        "recordings to text with times and confidences, by an exported bundle",
    ),
    "error-analysis": (
        "hadpsgd.reports.errors_command",
        "a page of a run's errors with audio; search errors against model errors",
    ),
    "compare-errors": (
        "hadpsgd.reports.pairs_command",
        "a page of two runs' errors side by side, with audio",
    ),
    "beam-curve": (
        "hadpsgd.reports.beam_command",
        "word error rate against real-time factor over search beams, as a picture",
    ),
    "word-recall": (
        "hadpsgd.scoring.recall_command",
        "how many of some words (held out ones) were recognised, and the WER of the others",
    ),
    "significance": (
        "hadpsgd.scoring.significance_command",
        "do runs differ: matched pairs and bootstrap intervals",
    ),
}

USER_ERROR = 2
INTERRUPTED = 130
SCRIPT = "hadpsgd.decentralized.commands.launch"
"""What `launch --learners` is: it needs the library alone, and has its own way with signals."""
STOPPABLE = ("launch", "train")
"""Stages that SIGTERM and SIGUSR1 ask to stop at a checkpoint, from their first moment on."""


def overview() -> str:
    """The list of stages for `hadpsgd --help`."""
    width = max(map(len, STAGES))
    rows = [f"  {name:<{width}}  {text}" for name, (_, text) in STAGES.items()]
    return "\n".join(
        ["usage: hadpsgd STAGE ...", "", "Stages (hadpsgd STAGE --help says more):", *rows]
    )


def load(stage: str) -> ModuleType:
    """Import the module of a stage.

    Raises:
        UserError: no such stage, or a package that it needs is not installed.
    """
    if stage not in STAGES:
        raise UserError(f"unknown stage '{stage}'", fix="`hadpsgd --help` lists the stages")
    return _imported(STAGES[stage][0])


def _imported(module: str) -> ModuleType:
    """A module of ours; UserError if a package that it needs is not installed."""
    try:
        with uncollected():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "hadpsgd":
            raise  # a fault of our own
        raise UserError(
            f"the package {error.name} is not installed",
            fix="The stages need the extra `pipeline`: pip install 'hadpsgd[pipeline]'",
        ) from None


def main(argv: list[str] | None = None) -> int:
    """Entry point: returns the exit status (0 done, 2 bad input).

    What was printed is out by then, or the status says that it is not.
    """
    arguments = sys.argv[1:] if argv is None else argv
    name = " ".join(["hadpsgd", *arguments[:1]])
    try:
        try:
            return _main(arguments)
        finally:  # --help ends by SystemExit
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # its reader has enough
        _forget_output()
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _forget_output()
        fix = "Free some space and run the same command again"
        print(f"{name}: error: the disk is full. {fix}", file=sys.stderr)
        return USER_ERROR


def _forget_output() -> None:
    """What cannot be written to standard output is not tried again as this process ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return 0 if arguments else USER_ERROR
    if arguments == ["--version"]:
        from importlib import metadata

        print(f"hadpsgd {metadata.version('hadpsgd')}")
        return 0
    end_quickly()
    stage, *rest = arguments
    script = stage == "launch" and "".join(rest[:1]).partition("=")[0] == "--learners"
    if stage in STOPPABLE and not script:
        _imported("hadpsgd.training.interrupt").catch()
    try:
        # a training that is followed ends the follower; no workflow trains images
        if "--follow" not in rest and stage != "images" and not script:
            guard = _imported("hadpsgd.guard")
            guard.watch(guard.stop if stage in STOPPABLE else guard.die)
        if stage == "launch" and "".join(rest[:1]).endswith(".py"):
            fix = f"hadpsgd launch --learners 8 {rest[0]}"
            raise UserError("how many processes of this script?", where=rest[0], fix=fix)
        module = _imported(SCRIPT) if script else load(stage)
        parser = argparse.ArgumentParser(prog=f"hadpsgd {stage}", description=STAGES[stage][1])
        module.configure(parser)
        return module.run(parser.parse_args(rest)) or 0
    except UserError as error:
        print(f"hadpsgd {stage}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except OSError as error:
        if not (_of_a_path(error) and (_is_wrong(error) or _given(error.filename, rest))):
            raise
        print(f"hadpsgd {stage}: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print(f"hadpsgd {stage}: stopped; run it again", file=sys.stderr)
        return INTERRUPTED


def _of_a_path(error: OSError) -> bool:
    """Whether a path is what is wrong."""
    kinds = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
    return isinstance(error, kinds) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP)


def _is_wrong(error: OSError) -> bool:
    """Whether it is a path that no user means, as those of a config may be: below a file, or of
    links that lead in a circle."""
    return isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP


def _given(path: object, arguments: Sequence[str]) -> bool:
    """Whether a path is one of the arguments, or lies in a folder that is."""
    if not isinstance(path, str | os.PathLike):
        return False
    given = {Path(argument.rpartition("=")[2]) for argument in arguments if argument}
    return not given.isdisjoint([Path(path), *Path(path).parents])
