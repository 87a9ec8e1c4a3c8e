"""`hadpsgd watch`: a training run as it goes, learner by learner, in the terminal.

Reads the rows that the ranks write and what they tell of their memory; training knows nothing of
it, so any number may watch, from any host that sees the folder.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hadpsgd.errors import UserError
from hadpsgd.numeric import real
from hadpsgd.tracking import edges, system
from hadpsgd.tracking.metrics_file import GrowingFile
from hadpsgd.tracking.pace import Pace

BARS = 12
"""Of a histogram, at most, that a line has."""
CLEAR = "\x1b[H\x1b[2J"
COLUMNS = (
    ("step", "step", "{:.0f}"),
    ("frames/s", "learner_frames_per_second", "{:,.0f}"),
    ("loss", "loss", "{:.4f}"),
    ("lr", "lr", "{:.3g}"),
    ("|grad|", "gradient_norm", "{:.3g}"),
    ("stale", "staleness", "{:.2f}"),
    ("mix/step", "mixes_per_step", "{:.2f}"),
    ("apart", "consensus_distance", "{:.2%}"),
    ("compute", "share_compute", "{:.0%}"),
    ("comm", "share_communication", "{:.0%}"),
    ("data", "share_data", "{:.0%}"),
    ("MB/step", "megabytes_sent_per_step", "{:.1f}"),
    ("RAM MiB", system.MEMORY, "{:.0f}"),
    ("GPU MB", "gpu_0_memory_usage_megabytes", "{:.0f}"),
    ("GPU use", "gpu_0_utilization_percentage", "{:.0f}%"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--out", type=Path, required=True, help="folder of the run's metrics.jsonl")
    seconds = real("--seconds", least=0.01, most=86_400)
    parser.add_argument("--seconds", type=seconds, default=2.0, help="between two looks")
    parser.add_argument("--once", action="store_true", help="one look, then end")


def run(args: argparse.Namespace) -> int:
    """Show the table again and again until the run is over (or Ctrl-C); once if not a terminal."""
    board = Table(args.out)
    once = args.once or not sys.stdout.isatty()
    try:
        while True:
            board.look()
            print(("" if once else CLEAR) + board.text(), flush=True)
            if once or (args.out / "summary.json").exists():
                return 0
            time.sleep(args.seconds)
    except KeyboardInterrupt:
        return 0


class Table:
    """The last row of every rank, and counts of staleness since the start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[int, dict[str, Any]] = {}
        self.held_out: dict[str, Any] = {}
        self.lags: edges.Edges = {}
        self.pace = Pace()
        self._files: dict[Path, GrowingFile] = {}

    def look(self) -> None:
        """Read what is new.

        Raises:
            UserError: no metrics here.
        """
        found = sorted(self.folder.glob(edges.PATTERN))
        if not found:
            raise UserError("no metrics.jsonl here", where=self.folder, fix="Is the run under way?")
        for path in found:
            rank = edges.rank_of(path)
            for row in self._new(path) if rank is not None else ():
                self._take(rank or 0, row)
        for path in self.folder.glob(system.PATTERN):
            for row in self._new(path):
                shown = {name: row[name] for _, name, _ in COLUMNS if name in row}
                self.rows.setdefault(int(row["rank"]), {}).update(shown)

    def text(self) -> str:
        """The table."""
        shown = [c for c in COLUMNS if any(c[1] in row for row in self.rows.values())]
        lines = [["learner", *(title for title, _, _ in shown)]]
        for rank, row in sorted(self.rows.items()):
            cells = [form.format(row[key]) if key in row else "" for _, key, form in shown]
            lines.append([str(rank), *cells])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self._head(), *text, *self._edges()])

    def _head(self) -> str:
        speed = sum(row.get("learner_frames_per_second", 0.0) for row in self.rows.values())
        head = f"{self.folder}: {speed:,.0f} frames/s"
        first = self.rows.get(0, {})
        if "epoch" in first:
            head += f", epoch {first['epoch']:.2f}"
            head += f" of {self.pace.epochs}" * bool(self.pace.epochs)
            head += f", {left}" if (left := self.pace.text()) else ""
        if self.held_out:
            head += (
                f"; held-out loss {self.held_out['heldout_loss']:.4f} after epoch "
                f"{self.held_out['epoch']:.0f}"
            )
        return head

    def _edges(self) -> list[str]:
        """Histogram of each edge: how many updates a learner was ahead of its partner's weights."""
        if not self.lags:
            return []
        lines = ["", "updates ahead of the partner: number of mixes"]
        for (rank, partner), counts in sorted(self.lags.items()):
            lines.append(f"{rank} <- {partner}   {histogram(counts)}")
        return lines

    def _take(self, rank: int, row: dict[str, Any]) -> None:
        if "heldout_loss" in row:
            self.held_out = row
            return
        self.rows.setdefault(rank, {}).update(row)
        if rank == 0:
            self.pace.add(row)
        edges.add(self.lags, rank, row)

    def _new(self, path: Path) -> list[dict[str, Any]]:
        return list(self._files.setdefault(path, GrowingFile(path)).rows())


def histogram(counts: Mapping[int, int]) -> str:
    """`-1: 4  +0: 20`, or counts of ranges, `-110..-101: 8`, where there are many values."""
    low, high = min(counts), max(counts)
    width = 1 if len(counts) <= BARS else math.ceil((high - low + 1) / BARS)
    bars: dict[int, int] = {}
    for value, count in sorted(counts.items()):
        begin = low + (value - low) // width * width
        bars[begin] = bars.get(begin, 0) + count
    return "  ".join(
        f"{begin:+d}: {count}"
        if width == 1
        else f"{begin:+d}..{min(begin + width - 1, high):+d}: {count}"
        for begin, count in bars.items()
    )
