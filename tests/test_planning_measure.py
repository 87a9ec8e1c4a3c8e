"""The planner's inputs, measured on this machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from hadpsgd.cli import main
from hadpsgd.config.settings import Model
from hadpsgd.planning import measure
from hadpsgd.planning.cluster import Compute

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Known(measure.Task):
    """A machine whose gradients take a known time of a clock of its own."""

    clock: list[float]

    def gradient(self, batch: int) -> Callable[[], None]:
        def gradient() -> None:
            self.clock[0] += 0.002 * (batch + 30)

        return gradient


@pytest.mark.parametrize(("wanted", "seconds", "largest"), [(64, 100.0, 64), (4096, 10.0, 128)])
def test_measured_is_what_the_machine_does(
    wanted: int, seconds: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The larger batch is halved until it fits the time."""
    clock = [0.0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    task = Known(shape=Model(), clock=clock)
    found = measure.measure_compute(task, batch=wanted, seconds=seconds)
    assert found.batches == (largest // 4, largest)
    assert found.compute.each == pytest.approx(0.002)
    assert found.compute.half_batch == pytest.approx(30)
    assert found.compute.noise == pytest.approx(0, abs=1e-9)
    assert clock[0] < 1.2 * seconds + 10


def test_a_line_that_makes_no_sense_is_none() -> None:
    for few in ([3.0], [0.1]):  # a larger batch is quicker; doubling it takes twenty times as long
        compute = measure.line(few=few, many=[2.0], batches=(4, 8))
        assert compute == Compute(each=0.25, half_batch=0.0, noise=0.0)
    assert measure.line(few=[2.0], many=[2.0], batches=(1, 1)).seconds(1) == 2.0


def test_noise_is_that_of_the_middle_half() -> None:
    draws = random.Random(3)
    times = [draws.gauss(1.0, 0.05) for _ in range(2000)] + [30.0] * 50
    found = measure.line(few=[0.5], many=times, batches=(1, 2))
    assert found.noise == pytest.approx(0.05, rel=0.15)


def test_lost_share_is_that_of_the_speed() -> None:
    assert measure.lost_share(alone=1.0, beside=4.0) == 0.75
    assert measure.lost_share(alone=1.0, beside=0.9) == 0
    assert measure.lost_share(alone=1.0, beside=1e9) == 0.95


def test_a_short_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, on a small model."""
    source = yaml.safe_load((ROOT / "config/tiny.yaml").read_text(encoding="utf-8"))
    source["model"] = {"layers": 1, "cells": 8, "projection": 8}
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(source))
    sizes = ["--num-pdfs", "50", "--input-dim", "10", "--compute-batch", "8"]
    timing = ["--measure", "--measure-seconds", "0.5"]
    arguments = ["plan", "--nodes", "2", "--gpus", "2", "--config", str(path), *sizes, *timing]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("Take ")
    for part in ("gradients on", "which is no network: give --bandwidth", "busy sockets"):
        assert part in out
    assert main([*arguments, "--compute", "0.5", "--contention", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "0.5 (given)" in out and "contention: 0.1 (given)" in out and "gradients on" not in out
