"""Import of Kaldi's alignments: what steps/align_*.sh leaves, checked against our data."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hadpsgd.alignment.archives import copy_model, read_alignments
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder, write_text
from hadpsgd.gmm import event_map
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.kaldi_io import Writer
from hadpsgd.progress import tracked
from hadpsgd.skipped import check_skipped


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import took over."""

    utterances: int
    frames: int
    pdfs: int


def import_alignments(
    *,
    sources: Sequence[Path],
    lang: Path,
    num_frames: Mapping[str, int],
    max_failed: float,
    out: Path,
) -> Imported:
    """Write `ali.1.gz`, `final.mdl`, `tree` and the rest of a Kaldi alignment folder.

    Args:
        sources: Kaldi's folders with ali.*.gz, final.mdl and tree, all of one model. The first
            alignment of an utterance is taken.
        lang: the lang folder, whose phones must be those of the alignments.
        num_frames: frames of every utterance of the data set; others are left out.
        max_failed: share of utterances that may have no alignment.
        out: folder to write.

    Raises:
        UserError: a file is missing or broken; phones, tree or ids do not fit; the folders have
            different models; an alignment and its features differ by more than one frame; too many
            utterances have no alignment.
    """
    first = sources[0]
    opened = [(source, *read_alignments(source)) for source in sources]
    model = opened[0][1]
    for source, own, _ in opened:
        _check_phones(source, lang, own)
        _check_tree(source / "tree", own)
        _check_same(first, model, source, own)
    missing = dict.fromkeys(num_frames)
    frames = 0
    with atomic_folder(out) as folder:
        with Writer(ark=folder / "ali.1.gz") as writer:
            found = ((source, *item) for source, _, items in opened for item in items)
            for source, utterance, ids in tracked(
                found, num_frames, what="import", unit="alignments"
            ):
                if utterance not in missing:
                    continue
                if abs(len(ids) - num_frames[utterance]) > 1:
                    raise UserError(
                        f"{len(ids)} frames of alignment and {num_frames[utterance]} of features",
                        where=f"{source}, utterance {utterance}",
                        fix="Use alignments of the same audio with the same frame shift",
                    )
                del missing[utterance]
                frames += len(ids)
                writer.write(utterance, ids)
        check_skipped(
            missing,
            total=len(num_frames),
            limit=max_failed,
            what="utterances have no alignment",
            where=", ".join(map(str, sources)),
            fix="Is it another data set's? Name a folder that has them (alignment.ali_dir: [A, B]),"
            " align dev here (alignment.align_dev: true), or raise alignment.max_failed",
        )
        copy_model(source=first, folder=folder)
        _mark_adapted(first, folder)
        shutil.copyfile(lang / "phones.txt", folder / "phones.txt")
        write_text(folder / "num_jobs", "1\n")
    return Imported(utterances=len(num_frames) - len(missing), frames=frames, pdfs=model.num_pdfs)


def _check_same(first: Path, model: TransitionModel, other: Path, others: TransitionModel) -> None:
    """Refuse alignments of two models: their pdf-ids mean different things.

    Raises:
        UserError: transition models or trees differ.
    """
    same = np.array_equal(model.tuples, others.tuples)
    if not same or (first / "tree").read_bytes() != (other / "tree").read_bytes():
        raise UserError(
            f"its alignments are of another model than those of {first}",
            where=other,
            fix="Align both data sets with one model (steps/align_fmllr.sh)",
        )


def _mark_adapted(source: Path, folder: Path) -> None:
    """A model whose folder has FMLLR transforms is of adapted features, and aligns what is not
    adapted yet with final.alimdl; without one final.mdl has to (as in steps/align_fmllr.sh)."""
    if any(source.glob("trans.*")) and not (folder / "final.alimdl").is_file():
        shutil.copyfile(source / "final.mdl", folder / "final.alimdl")


def _check_phones(source: Path, lang: Path, model: TransitionModel) -> None:
    """Refuse a model whose phones are not the lang folder's.

    Raises:
        UserError: names the first phone that differs.
    """
    ours = read_symbols(lang / "phones.txt")
    if (source / "phones.txt").is_file():
        theirs = read_symbols(source / "phones.txt")
        for phone in sorted(ours.keys() | theirs.keys()):
            if phone.startswith("#"):  # disambiguation symbols stand in no alignment
                continue
            if ours.get(phone) != theirs.get(phone):
                raise UserError(
                    f"phone {phone} is {theirs.get(phone)} here and {ours.get(phone)} in {lang}",
                    where=source / "phones.txt",
                    fix="Set alignment.lang_dir to the lang folder of these alignments",
                )
    unknown = sorted(set(model.phone[1:].tolist()) - set(ours.values()))
    if unknown:
        raise UserError(
            f"the model has phone {unknown[0]}, and {lang}/phones.txt does not",
            where=source / "final.mdl",
            fix="Set alignment.lang_dir to the lang folder of these alignments",
        )


def _check_tree(path: Path, model: TransitionModel) -> None:
    """Refuse a tree of another model.

    Raises:
        UserError: missing, broken, or with another number of pdf-ids.
    """
    pdfs = event_map.read(path).num_pdfs
    if pdfs != model.num_pdfs:
        raise UserError(
            f"the tree has {pdfs} pdf-ids and final.mdl {model.num_pdfs}",
            where=path,
            fix="Take tree and final.mdl from the same folder",
        )
