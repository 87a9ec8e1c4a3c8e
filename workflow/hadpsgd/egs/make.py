"""Cut a data set into examples: static features and pdf-ids in subsequences of fixed length.

Subsequences do not overlap (the papers' way) unless egs.shift says so. What is left at the end
of a training utterance, shorter than a subsequence, is dropped and counted; held-out sets keep
every frame once, their last subsequence padded and masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hadpsgd.alignment.archives import read_alignments, read_fits
from hadpsgd.alignment.views import low_outliers
from hadpsgd.config import Config, fingerprint
from hadpsgd.config.stage import Stage
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.egs import partial, precision
from hadpsgd.egs.chunks import Chunks, Maker
from hadpsgd.egs.counts import Counts
from hadpsgd.egs.layout import Layout, Part
from hadpsgd.egs.shards import FORMAT, describe
from hadpsgd.egs.spool import Spool
from hadpsgd.egs.vectors import write_table
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion
from hadpsgd.features.ivector.stream import IvectorStream
from hadpsgd.graph import denominator
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import Progress
from hadpsgd.skipped import check_skipped


def make(
    config: Config,
    data: DataDir,
    *,
    streams: Path,
    ali: Path,
    out: Path,
    held_out: bool = False,
    copies: DataDir | None = None,
    stage: Stage | None = None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Write shards, pdf_counts.npy and meta.json of a data set into `out`; returns the latter.

    `copies` holds its utterances at the other speeds of `corpus.speeds` and the noisy ones of
    `corpus.noise`; `jobs` processes give the same bytes as one. Each holds two chunks of
    `egs.shard_frames` frames. A process that is killed leaves its finished chunks in a folder
    beside `out`, and the next one goes on with them. Of a stage of sequence training they are as
    long as it says, the last one of an utterance is padded, and beside training examples lies the
    denominator of all paths (`graph/denominator.py`).

    pdf_counts.npy is int64 [pdf-ids]: frames of the alignment with each, dropped ones too (the
    priors are estimated on it).

    Raises:
        UserError: features or alignments are missing, broken, or do not fit one another.
    """
    refuse_other_folder(out)
    if stage is not None:
        config = config.model_copy(update={"egs": stage.examples(config.egs)})
    fusion = Fusion(config, streams, data)
    copied = None if copies is None or held_out else Fusion(config, streams, copies)
    model, alignments = read_alignments(ali)
    fits = {} if held_out else fits_of(config, data, ali)
    misfits = misfitting(config, fits, ali)
    described = fingerprint(
        [config.features, config.egs, str(config.corpus.speeds), *config.corpus.mixed]
    )
    pad = held_out or stage is not None
    paths = None if stage is None or held_out else denominator.from_alignments(ali)
    with partial.partial_folder(out) as folder:
        left_out = set(misfits)
        wanted = [name for name in fusion.utterances if name not in left_out]
        fitting = (pair for pair in alignments if pair[0] not in left_out)
        spool = Spool.write(folder, fitting, model.pdf, wanted)
        total = Counts(unaligned=spool.without(wanted), unknown=spool.unknown, misfits=misfits)
        total.check_alignments(config, data, ali)
        _check_fits(spool, fits, ali)
        inputs = [
            streams / name / s.path.name for name in fusion.names for s in (data, copies) if s
        ]
        partial.keep_only(
            folder,
            partial.key_of(
                *(FORMAT, described, held_out, pad, model.num_pdfs),
                *(spool.checksum, spool.utterances),
                folders=inputs,
            ),
            spare=spool.path,
        )
        layout = layout_of(config, fusion)
        firsts, table = write_table(folder, fusion, copied, layout.table_dtype)
        maker = Maker(
            config=config,
            data=data,
            streams=streams,
            copies=None if held_out else copies,
            held_out=held_out,
            pad=pad,
            spool=spool,
            chunks=_chunks(config, spool, held_out=held_out),
            layout=layout,
            firsts=firsts,
            pdfs=model.num_pdfs,
            folder=folder,
        )
        progress = Progress("egs", len(spool.utterances), "utterances", total.speed)
        shards, scales, pdf_counts = [], [], np.zeros(model.num_pdfs, np.int64)
        errors: precision.OfStreams = {}
        for made in map_in_order(maker, range(maker.chunks.number), jobs):
            shards.append(made.shard)
            if made.scales is not None:
                scales.append(made.scales)
            errors = precision.joined(errors, made.errors)
            pdf_counts += made.pdf_counts
            total.join(made.counts)
            progress.add(made.counts.utterances)
        total.check_frames(config, ali)
        more: dict[str, Any] = {"held_out": held_out, "config": described, "table": table}
        if errors:
            more["errors"] = precision.report(errors, layout.dtype)
        if paths is not None:
            paths.write(folder / denominator.FILE)
            more["beside"] = [denominator.FILE]
        if "logmel" in fusion.dims:
            more["bins"] = config.features.logmel.bins
        more["counts"] = asdict(total)
        meta = describe(folder, layout, shards, pdf_counts, scales=scales, **more)
        spool.path.unlink()
        partial.publish(folder, out=out)
    progress.end()
    return meta


def fits_of(config: Config, data: DataDir, ali: Path) -> dict[str, float]:
    """How well utterances of the data fit; none where `egs.misfit` does not ask.

    Raises:
        UserError: the alignments do not say.
    """
    if not config.egs.misfit:
        return {}
    fits = {name: fit for name, fit in read_fits(ali).items() if name in data.utterances}
    if not fits:
        raise UserError(
            "does not say how well these utterances fit (fits.txt)",
            where=ali,
            fix="Remove the folder to align again; Kaldi's have none: leave egs.misfit away",
        )
    return fits


def _check_fits(spool: Spool, fits: Mapping[str, float], ali: Path) -> None:
    """Refuse utterances that are aligned and not in fits.txt, where others are."""
    missing = [name for name in spool.utterances if name not in fits] if fits else []
    if missing:
        what = f"{len(missing)} aligned utterances are not there: {missing[0]}"
        raise UserError(what, where=ali / "fits.txt", fix="Align again")


def misfitting(config: Config, fits: Mapping[str, float], ali: Path) -> list[str]:
    """Utterances that `egs.misfit` leaves out, the worst first; named on stderr."""
    outliers, _ = low_outliers(fits, deviations=config.egs.misfit)
    found = [each.utterance for each in outliers]
    what = "utterances fit their transcripts badly (egs.misfit)"
    check_skipped(found, total=len(fits), limit=1.0, what=what, where=ali, fix="")
    return found


def _chunks(config: Config, spool: Spool, *, held_out: bool) -> Chunks:
    """As many as hold `egs.shard_frames` frames each, about."""
    versions = 1 if held_out else len(config.egs.tempos) + config.corpus.versions - 1
    wanted = -(-spool.frames * versions // config.egs.shard_frames)
    utterances = len(spool.utterances)
    return Chunks(utterances=utterances, number=min(wanted, utterances), ordered=held_out)


def layout_of(config: Config, fusion: Fusion) -> Layout:
    """How examples of these streams lie on disk."""
    parts = []
    for name, stream in fusion.streams.items():
        width = fusion.dims[name]
        if isinstance(stream, IvectorStream):
            parts.append(Part(stream=name, dim=width, table=True, framewise=stream.per_frame))
            continue
        order, window = stream.deltas
        parts.append(Part(stream=name, dim=width // (order + 1), order=order, window=window))
    return Layout(config.egs.frames, tuple(parts), config.egs.dtype)


def refuse_other_folder(out: Path) -> None:
    """Refuse to replace a folder that holds something else than examples.

    Raises:
        UserError: it does.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / "meta.json").is_file():
        raise UserError("the folder holds something else", where=out, fix="Choose another --out")
