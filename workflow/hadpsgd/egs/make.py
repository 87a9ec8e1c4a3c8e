"""Cut a data set into examples: fused features and pdf-ids in subsequences of fixed length.

Subsequences do not overlap (the papers' way) unless egs.shift says so. What is left at the end
of a training utterance, shorter than a subsequence, is dropped and counted; held-out sets keep
every frame once, their last subsequence padded and masked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.alignment.archives import read_alignments
from hadpsgd.config import Config, fingerprint
from hadpsgd.config.alignment import Egs
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.egs.shards import FORMAT, PADDING, ShardWriter
from hadpsgd.egs.speed import AtSpeeds
from hadpsgd.egs.tempo import at_tempo
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion
from hadpsgd.files import atomic_folder, write_text
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import Progress
from hadpsgd.skipped import check_skipped

Labels = NDArray[np.int32]
Utterance = tuple[str, Labels]
"""Its name and the transition-ids of its alignment, [frames]."""


@dataclass(kw_only=True)
class Counts:
    """What was kept and what was not."""

    utterances: int = 0
    """Utterances with features and an alignment."""
    frames: int = 0
    """Frames kept, each as often as it is in a subsequence."""
    dropped_frames: int = 0
    """Frames at the ends of utterances, fewer than a subsequence."""
    padded_frames: int = 0
    """Frames that are only there to fill the last subsequence (held-out sets)."""
    short_utterances: int = 0
    """Utterances shorter than a subsequence: dropped whole."""
    unaligned: list[str] = field(default_factory=list)
    """Utterances without an alignment."""
    unknown: int = 0
    """Alignments of utterances that are not in the data."""

    def add(self, pieces: Pieces, settings: Egs, *, held_out: bool) -> None:
        """Count an utterance at one tempo and speed."""
        number, size = len(pieces.labels), pieces.labels.size
        if held_out:
            self.frames += pieces.length
            self.padded_frames += size - pieces.length
            return
        step = min(settings.shift or settings.frames, settings.frames)
        self.frames += size
        covered = settings.frames + (number - 1) * step if number else 0
        self.dropped_frames += pieces.length - covered
        self.short_utterances += not number

    def speed(self, seconds: float) -> str:
        """What was written in so many seconds."""
        return f"{self.frames:,} frames, {self.frames / seconds:,.0f} frames/s"


def cut(
    features: NDArray[np.float32], labels: Labels, frames: int, *, pad: bool, shift: int = 0
) -> tuple[NDArray[np.float32], Labels]:
    """Subsequences [n, frames, dim] and [n, frames] of an utterance, every `shift` frames.

    Without a shift they do not overlap. What does not fill a subsequence is dropped, or padded
    with zeros and masked labels.
    """
    step = shift or frames
    if pad and len(labels) % frames:
        missing = -len(labels) % frames
        features = np.pad(features, ((0, missing), (0, 0)))
        labels = np.pad(labels, (0, missing), constant_values=PADDING)
    starts = np.arange(0, len(labels) - frames + 1, step)
    rows = starts[:, None] + np.arange(frames)
    return features[rows], labels[rows]


def matched(
    features: NDArray[np.float32], labels: Labels, utterance: str
) -> tuple[NDArray[np.float32], Labels]:
    """Features and labels of the same length: a difference of one frame is cut away.

    Raises:
        UserError: they differ by more.
    """
    if abs(len(features) - len(labels)) > 1:
        raise UserError(
            f"{len(features)} frames of features and an alignment of {len(labels)}",
            where=f"utterance {utterance}",
            fix="Use alignments of the same audio with the same frame shift",
        )
    frames = min(len(features), len(labels))
    return features[:frames], labels[:frames]


@dataclass(frozen=True)
class Pieces:
    """An utterance at one tempo and speed, cut."""

    features: NDArray[np.float32]
    """[subsequences, frames, dim]."""
    labels: Labels
    """[subsequences, frames]."""
    length: int
    """Frames before it was cut."""


@dataclass(frozen=True)
class Cutter:
    """Makes, in the process that uses it, what fuses and cuts an utterance."""

    config: Config
    data: DataDir
    streams: Path
    pdf: Labels
    """pdf-id of every transition-id."""
    held_out: bool
    copies: DataDir | None

    def __call__(self) -> Callable[[Utterance], tuple[Labels, list[Pieces]]]:
        """Open the features; the function gives an utterance's labels and its pieces."""
        settings = self.config.egs
        fusion = Fusion(self.config, self.streams, self.data)
        at_speeds = (
            None if self.copies is None else AtSpeeds(self.config, self.streams, self.copies)
        )

        def pieces(utterance: Utterance) -> tuple[Labels, list[Pieces]]:
            name, ids = utterance
            features, labels = matched(fusion[name], self.pdf[ids], name)
            versions = [(features, labels)]
            if not self.held_out:
                versions = [at_tempo(features, labels, tempo) for tempo in settings.tempos]
                versions += at_speeds(name, labels) if at_speeds else ()
            pad, shift = self.held_out, 0 if self.held_out else settings.shift
            return labels, [
                Pieces(*cut(*version, settings.frames, pad=pad, shift=shift), len(version[1]))
                for version in versions
            ]

        return pieces


def make(
    config: Config,
    data: DataDir,
    *,
    streams: Path,
    ali: Path,
    out: Path,
    held_out: bool = False,
    copies: DataDir | None = None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Write shards, pdf_counts.npy and meta.json of a data set into `out`; returns the latter.

    `copies` holds its utterances at the other speeds of `corpus.speeds`; `jobs` processes give the
    same bytes as one.

    pdf_counts.npy is int64 [pdf-ids]: frames of the alignment with each, dropped ones too (the
    priors are estimated on it).

    Raises:
        UserError: features or alignments are missing, broken, or do not fit one another.
    """
    refuse_other_folder(out)
    fusion = Fusion(config, streams, data)
    model, alignments = read_alignments(ali)
    frames, counts = config.egs.frames, Counts()
    pdf_counts = np.zeros(model.num_pdfs, np.int64)
    unaligned = set(fusion.utterances)
    progress = Progress("egs", len(fusion), "utterances", counts.speed)

    def known() -> Iterator[Utterance]:
        for utterance, ids in alignments:
            if utterance in unaligned:
                unaligned.remove(utterance)
                yield utterance, ids
            else:
                counts.unknown += 1

    cutter = Cutter(config, data, streams, model.pdf, held_out, copies)
    with atomic_folder(out) as folder:
        writer = ShardWriter(
            folder,
            frames=frames,
            dim=fusion.dim,
            per_shard=max(1, config.egs.shard_frames // frames),
            dtype=config.egs.dtype,
        )
        for labels, versions in map_in_order(cutter, known(), jobs):
            pdf_counts += np.bincount(labels, minlength=model.num_pdfs)
            counts.utterances += 1
            for pieces in versions:
                writer.append(pieces.features, pieces.labels)
                counts.add(pieces, config.egs, held_out=held_out)
            progress.add()
        writer.close()
        counts.unaligned = sorted(unaligned)
        check(config, counts, data, ali)
        meta = {
            "format": FORMAT,
            "frames": frames,
            "dim": fusion.dim,
            "streams": fusion.dims,
            **({"bins": config.features.logmel.bins} if "logmel" in fusion.dims else {}),
            "dtype": config.egs.dtype,
            "num_pdfs": model.num_pdfs,
            "subsequences": sum(shard["subsequences"] for shard in writer.shards),
            "held_out": held_out,
            "config": fingerprint([config.features, config.egs, str(config.corpus.speeds)]),
            "counts": asdict(counts),
            "shards": writer.shards,
        }
        np.save(folder / "pdf_counts.npy", pdf_counts)
        write_text(folder / "meta.json", json.dumps(meta, indent=1) + "\n")
    progress.end()
    return meta


def refuse_other_folder(out: Path) -> None:
    """Refuse to replace a folder that holds something else than examples.

    Raises:
        UserError: it does.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / "meta.json").is_file():
        raise UserError("the folder holds something else", where=out, fix="Choose another --out")


def check(config: Config, counts: Counts, data: DataDir, ali: Path) -> None:
    """Name what has no alignment; refuse too much of it, and an empty result.

    Raises:
        UserError: more than `alignment.max_failed` have none, or no subsequence is left.
    """
    check_skipped(
        counts.unaligned,
        total=len(data),
        limit=config.alignment.max_failed.of(data.path.name),
        what="utterances have no alignment",
        where=ali,
        fix="Alignments of another data set? Or raise max_failed",
    )
    if not counts.frames:
        raise UserError(f"no utterance is as long as {config.egs.frames} frames", where=ali)
