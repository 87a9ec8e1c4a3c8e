"""The page that `benchmarks/scale.py` writes, and the lines that it fits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from training import cpu

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Measured:
    """Of one stage at one length."""

    seconds: float
    """Of processors, all processes together."""
    mib: float
    """Resident, all processes together, as Snakemake sees it now and then; else of the largest."""


@dataclass(frozen=True)
class Line:
    """Fixed part, and what an hour of speech adds."""

    fixed: float
    per_hour: float
    largest_miss: float
    """Of the points from the line, over the point of the longest."""


def fit(hours: Sequence[float], values: Sequence[float]) -> Line:
    """Least squares; a fixed part below 0 is none."""
    x, y = np.asarray(hours), np.asarray(values)
    slope, fixed = np.polyfit(x, y, 1) if len(x) > 1 else (0.0, float(y[0]))
    if fixed < 0:
        slope, fixed = float(x @ y / (x @ x)), 0.0
    miss = float(np.abs(fixed + slope * x - y).max() / max(y[-1], 1e-9))
    return Line(float(fixed), float(max(0.0, slope)), miss)


PAGE = """\
# Time, memory and disk by hours of speech

**From audio to training examples, {per_hour:.0f} processor seconds an hour of speech and
{fixed:.0f} besides; the line misses no point by more than {miss:.1f} %. No job took more than
{most:.0f} MiB, at {shortest:g} hours {least:.0f}.**

Generated speech of {lengths} hours, all three inputs from our own ladder with 1,000 states and
6,000 Gaussians (`benchmarks/scale.py`). Processor seconds of all processes of a stage, as the
kernel counts them: other work beside it, which there was, changes them less than the time that
passes. Miss: of the worst point from the line, over that of the longest. Memory: all processes of
a job as Snakemake saw them now and then, or its largest process. That of `ubm` grows until its
sample of 500,000 frames is full (1.4 hours), and no further: no line through memory is continued.
`hadpsgd cost` takes the largest of each stage.

{machine}.

{stages}

{folders}

{larger} times the Gaussians at {shortest:g} hours add, in processor seconds for an hour of speech
and a thousand Gaussians: {sizes}.

A gradient of the papers' network computes {speed:.0f}e9 multiplications and additions a second on
one core.
"""


def machine() -> str:
    """Cores, processor, torch and commit."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True)
    return (
        f"{os.cpu_count()} cores ({cpu()}), torch {torch.__version__}, at commit {commit.strip()}"
    )


@dataclass(frozen=True, kw_only=True)
class Found:
    """All that was measured."""

    hours: Sequence[float]
    measured: Sequence[Mapping[str, Measured]]
    """Stages by the names of their logs, at each length."""
    disks: Sequence[Mapping[str, float]]
    """MiB of the folders of results, at each length."""

    @property
    def stages(self) -> list[str]:
        """Those of every length."""
        return [name for name in self.measured[-1] if all(name in each for each in self.measured)]

    def seconds(self, stage: str) -> Line:
        """By hours of speech."""
        return fit(self.hours, [each[stage].seconds for each in self.measured])

    @property
    def sums(self) -> list[float]:
        """Seconds of all stages, at each length."""
        return [sum(each[stage].seconds for stage in self.stages) for each in self.measured]

    @property
    def total(self) -> Line:
        """Of all stages by hours of speech."""
        return fit(self.hours, self.sums)

    @property
    def most(self) -> list[float]:
        """MiB of the largest stage, at each length."""
        return [max(each[stage].mib for stage in self.stages) for each in self.measured]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What larger models take."""

    seconds: Mapping[str, float]
    """For an hour of speech that a thousand Gaussians add, by stage."""
    larger: int
    """Times the Gaussians they were measured with."""
    gflops: float


def page(found: Found, sizes: Sizes) -> str:
    """Markdown."""
    return PAGE.format(
        per_hour=found.total.per_hour,
        fixed=found.total.fixed,
        miss=100 * found.total.largest_miss,
        most=max(found.most),
        least=found.most[0],
        lengths=", ".join(f"{hours:g}" for hours in found.hours),
        machine=machine(),
        stages=by_stage(found),
        folders=by_folder(found),
        larger=sizes.larger,
        shortest=found.hours[0],
        sizes=", ".join(f"{name} {seconds:.2f}" for name, seconds in sizes.seconds.items()),
        speed=sizes.gflops,
    )


def by_stage(found: Found) -> str:
    """A table of stages."""
    return "\n".join(_stages(found))


def by_folder(found: Found) -> str:
    """A table of folders."""
    return "\n".join(_folders(found))


def _stages(found: Found) -> Iterator[str]:
    seconds = " | ".join(f"s at {hours:g} h" for hours in found.hours)
    mib = " | ".join(f"MiB at {hours:g} h" for hours in found.hours)
    yield f"| stage | {seconds} | s an hour | fixed s | miss | {mib} |"
    yield "|---|" + "---:|" * (2 * len(found.hours) + 3)
    for stage in sorted(found.stages, key=lambda name: -found.seconds(name).per_hour):
        line = found.seconds(stage)
        cells = [
            *(f"{each[stage].seconds:.1f}" for each in found.measured),
            f"{line.per_hour:.2f}",
            f"{line.fixed:.1f}",
            f"{100 * line.largest_miss:.0f} %",
            *(f"{each[stage].mib:.0f}" for each in found.measured),
        ]
        yield f"| {stage} | {' | '.join(cells)} |"


def _folders(found: Found) -> Iterator[str]:
    yield "| folder | MiB an hour | fixed MiB |"
    yield "|---|---:|---:|"
    for name in found.disks[-1]:
        line = fit(found.hours, [each.get(name, 0.0) for each in found.disks])
        yield f"| {name} | {line.per_hour:.0f} | {line.fixed:.0f} |"
