"""SpecAugment: masks over parts of training examples."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field

from hadpsgd.config.base import Section


class SpecAugment(Section):
    """SpecAugment's masks, drawn anew for each example in each epoch (docs/small-data.md)."""

    frequency_masks: int = Field(0, ge=0, le=100)
    """Masks over neighbouring mel bins of logmel, with their deltas; 0 makes none."""
    frequency_width: int = Field(8, ge=1)
    """Widest of them, in mel bins; widths are drawn evenly from 0 to it."""
    time_masks: int = Field(0, ge=0, le=1000)
    """Masks over neighbouring frames of logmel and fmllr; 0 makes none."""
    time_width: int = Field(4, ge=1)
    """Widest of them, in frames; widths are drawn evenly from 0 to it."""

    def misfit(
        self,
        streams: Collection[str],
        *,
        bins: int,
        frames: int,
        normalised: bool,
        key: str = "egs.frames",
    ) -> str | None:
        """Why such masks cannot be put on these streams of subsequences of `frames`, which the
        config has by that key, or None."""
        if self.frequency_masks and "logmel" not in streams:
            return "frequency_masks need logmel in features.input"
        if self.frequency_masks and self.frequency_width > bins:
            return f"frequency_width {self.frequency_width} is more than the {bins} mel bins"
        if self.time_masks and self.time_width > frames:
            return f"time_width {self.time_width} is more than the {frames} frames of {key}"
        if (self.frequency_masks or self.time_masks) and "logmel" in streams and not normalised:
            return "masks are zeros, the mean of normalised logmel: features.normalise is none"
        return None
