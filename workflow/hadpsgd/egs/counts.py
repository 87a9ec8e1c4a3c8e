"""What was kept of a data set in examples, and what was not."""

from __future__ import annotations

from dataclasses import dataclass, field

from hadpsgd.config import Config
from hadpsgd.config.alignment import Egs
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.skipped import check_skipped


@dataclass(kw_only=True)
class Counts:
    """Frames and utterances."""

    utterances: int = 0
    """Utterances with features and an alignment."""
    frames: int = 0
    """Frames kept, each as often as it is in a subsequence."""
    dropped_frames: int = 0
    """Frames at the ends of utterances, fewer than a subsequence."""
    padded_frames: int = 0
    """Frames that are only there to fill the last subsequence (held-out sets,
    sequence training)."""
    short_utterances: int = 0
    """Utterances shorter than a subsequence: dropped whole."""
    unaligned: list[str] = field(default_factory=list)
    """Utterances without an alignment."""
    misfits: list[str] = field(default_factory=list)
    """Utterances that are left out because their transcripts fit badly."""
    unknown: int = 0
    """Alignments of utterances that are not in the data."""

    def add(self, length: int, settings: Egs, *, number: int, padded: bool) -> None:
        """Count an utterance of `length` frames at one tempo and speed, cut into `number`."""
        size = number * settings.frames
        if padded:
            self.frames += length
            self.padded_frames += size - length
            return
        step = min(settings.shift or settings.frames, settings.frames)
        self.frames += size
        covered = settings.frames + (number - 1) * step if number else 0
        self.dropped_frames += length - covered
        self.short_utterances += not number

    def join(self, other: Counts) -> None:
        """Add those of other utterances."""
        self.utterances += other.utterances
        self.frames += other.frames
        self.dropped_frames += other.dropped_frames
        self.padded_frames += other.padded_frames
        self.short_utterances += other.short_utterances

    def speed(self, seconds: float) -> str:
        """What was written in so many seconds."""
        return f"{self.frames:,} frames, {self.frames / seconds:,.0f} frames/s"

    def check_alignments(self, config: Config, data: DataDir, where: object) -> None:
        """Name what has no alignment; refuse too much of it.

        Raises:
            UserError: more than `alignment.max_failed` have none.
        """
        check_skipped(
            self.unaligned,
            total=len(data),
            limit=config.alignment.max_failed.of(data.path.name),
            what="utterances have no alignment",
            where=where,
            fix="Alignments of another data set? Or raise max_failed",
        )

    def check_frames(self, config: Config, where: object) -> None:
        """Refuse an empty result.

        Raises:
            UserError: no subsequence is left.
        """
        if not self.frames:
            raise UserError(f"no utterance is as long as {config.egs.frames} frames", where=where)
