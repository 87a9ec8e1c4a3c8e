"""`hadpsgd alignment-report`: durations, silence, outliers, phone times and TextGrids."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.alignment import pictures, views
from hadpsgd.alignment.archives import read_alignments, read_fits
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import Adapted, read_transforms
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.files import atomic_folder, file_name
from hadpsgd.gmm import model as models
from hadpsgd.gmm.data import Lang
from hadpsgd.gmm.fit import fit
from hadpsgd.gmm.phone_segments import segments
from hadpsgd.kaldi_io import Writer
from hadpsgd.numeric import whole

Scorer = Callable[[str, NDArray[np.int32]], float]


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--ali", type=Path, required=True, help="alignment folder, ours or Kaldi's")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--data", type=Path, help="Kaldi data directory: words of the TextGrids")
    parser.add_argument(
        "--feats",
        type=Path,
        help="folder of MFCC and CMVN: how utterances fit is computed where there is no fits.txt "
        "(needs --data, and final.mat, splice_opts and trans.* of the alignment folder)",
    )
    parser.add_argument(
        "--text-grids",
        type=whole("--text-grids", least=0),
        default=20,
        help="how many to write (20)",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    if args.text_grids < 0:
        raise UserError(f"--text-grids {args.text_grids} is below 0")
    lang = Lang(args.lang)
    names = {number: name for name, number in read_symbols(args.lang / "phones.txt").items()}
    data = DataDir.read(args.data, audio=False) if args.data else None
    scorer = _scorer(args, data)
    model, alignments = read_alignments(args.ali)
    fits = read_fits(args.ali)
    found = views.Durations()
    with atomic_folder(args.out) as out:
        (out / "textgrid").mkdir()
        with (
            (out / "phones.ctm").open("w", encoding="utf-8") as ctm,
            Writer(ark=out / "pdf.ark.gz") as pdfs,
        ):
            for number, (utterance, ids) in enumerate(alignments):
                parts = segments(model, ids)
                unknown = set(parts.phones.tolist()) - names.keys()
                if unknown:
                    raise UserError(
                        f"phone {min(unknown)} of the alignment is not in phones.txt",
                        where=args.lang,
                        fix="Give the lang folder of this alignment",
                    )
                found.add(utterance, parts, names, lang.silence)
                ctm.write(views.phone_ctm(utterance, parts, names))
                pdfs.write(utterance, model.pdf[ids])
                if scorer and len(ids):
                    fits[utterance] = scorer(utterance, model.pdf[ids])
                if number < args.text_grids:
                    entry = data.utterances.get(utterance) if data else None
                    words = entry.words if entry else ()
                    grid = _text_grid(views.phone_intervals(parts, names), words)
                    (out / "textgrid" / f"{file_name(utterance)}.TextGrid").write_text(
                        grid, "utf-8"
                    )
        if not found.silence:
            raise UserError("no alignments", where=args.ali)
        _write_pictures(out, found, fits)
        summary = _summary(found, fits)
        (out / "report.json").write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    print(
        f"alignment-report: {len(found.silence)} utterances, {found.frames:,} frames, "
        f"{100 * found.silence_share:.1f} % silence, {len(summary['outliers'])} outliers, "
        f"{len(found.cut)} cut → {args.out}",
        file=sys.stderr,
    )
    return 0


def _text_grid(phones: list[views.Interval], words: Sequence[str]) -> str:
    tiers = {"words": views.word_intervals(phones, words), "phones": phones}
    return views.text_grid({name: tier for name, tier in tiers.items() if tier})


def _scorer(args: argparse.Namespace, data: DataDir | None) -> Scorer | None:
    """How fits are computed; None where they are there already, or cannot be."""
    if (args.ali / "fits.txt").is_file():
        return None
    if (args.ali / "scores.txt").is_file():
        raise UserError(
            "aligned before utterances' fits were computed (fits.txt)",
            where=args.ali,
            fix="Remove the folder: the next start makes it again",
        )
    if args.feats is None:
        return None
    if data is None:
        raise UserError("--feats needs --data", fix="Give the data directory of the features")
    mixtures = models.read(args.ali / "final.mdl").mixtures
    inputs = Inputs(data, args.feats, Frontend.read(args.ali))
    adapted = any(args.ali.glob("trans.*"))
    source = Adapted(inputs, read_transforms(args.ali)) if adapted else inputs

    def score(utterance: str, pdfs: NDArray[np.int32]) -> float:
        features = source[utterance]
        if features.shape != (len(pdfs), mixtures.dim):
            raise UserError(
                f"features of {len(features)} x {features.shape[1]}, alignment of {len(pdfs)} "
                f"frames, model of {mixtures.dim} dimensions",
                where=f"{args.feats}, utterance {utterance}",
                fix="Give the features that the alignment was made with",
            )
        return fit(mixtures, features, pdfs)

    return score


def _write_pictures(out: Path, found: views.Durations, fits: dict[str, float]) -> None:
    figures = {"durations": pictures.durations(found), "silence": pictures.silence(found)}
    if fits:
        figures["fits"] = pictures.fits(fits)
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=140, facecolor="white")


def _summary(found: views.Durations, fits: dict[str, float]) -> dict:
    outliers, limit = views.low_outliers(fits)
    return {
        "utterances": len(found.silence),
        "frames": found.frames,
        "silence_share": round(found.silence_share, 5),
        "cut_utterances": found.cut,
        "fit_limit": round(limit, 4) if fits else None,
        "outliers": {each.utterance: round(each.score, 4) for each in outliers},
        "phones": {
            name: {"count": int(counts.sum()), "median_seconds": round(found.median(name), 3)}
            for name, counts in sorted(found.counts.items())
        },
    }
