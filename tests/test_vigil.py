"""Ranks that hang are ended for good, those that are slow are not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_scripts import DIES

from hadpsgd.training import vigil
from hadpsgd.training.pulse import FAR_LONGER, LEAVES, STUCK, WELL, Pulse
from hadpsgd.training.ranks import Ranks
from hadpsgd.training.vigil import OWN_SECONDS, PATIENCE, Vigil

LIMIT = 30.0


class Hands:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A vigil over rank 3, and the end of the pipe on which it gives its signs."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.vigil = Vigil(LIMIT, self.clock)
        self.pipe = self.vigil.open(3)

    def after(self, seconds: float, *, each: bytes = b"") -> dict[int, str]:
        """The verdict when so much time has passed in small steps, with a sign in each."""
        for _ in range(round(2 * seconds)):
            self.clock.now += 0.5
            os.write(self.pipe, each)
            found = self.vigil.silent()
        return found


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Its pipe is closed at the test's end."""
    found = Watched()
    yield found
    os.close(found.pipe)
    found.vigil.close(3)


def test_silence_is_death_once_it_has_begun(watched: Watched) -> None:
    assert watched.after(100 * LIMIT) == {}  # it imports, and waits for others
    assert watched.after(1, each=WELL) == {}
    assert watched.after(LIMIT) == {}
    assert watched.after(1) == {3: "no sign of life for 30 s"}


def test_who_waits_for_others_is_well(watched: Watched) -> None:
    assert watched.after(100 * LIMIT, each=WELL) == {}


def test_a_gradient_that_does_not_end(watched: Watched) -> None:
    watched.after(1, each=WELL)
    assert watched.after(PATIENCE * LIMIT, each=STUCK) == {}
    assert "did not end within 300 s" in watched.after(1, each=STUCK)[3]
    assert watched.after(1, each=WELL) == {}


def test_who_is_about_to_end_may_take_its_time(watched: Watched) -> None:
    """While Python ends no thread gives signs; one that hangs there is ended all the same."""
    watched.after(1, each=WELL)
    watched.after(0.5, each=LEAVES)
    assert watched.after(PATIENCE * LIMIT) == {}
    assert watched.after(1) == {3: "no sign of life for 300 s"}


def test_our_own_sleep_is_not_theirs(watched: Watched) -> None:
    """A job that was suspended as a whole, or a machine."""
    watched.after(1, each=WELL)
    watched.clock.now += 1000 * LIMIT
    assert watched.vigil.silent() == {}
    assert watched.after(LIMIT - OWN_SECONDS) == {}
    assert watched.after(1) != {}


def test_who_has_ended_is_watched_no_more(watched: Watched) -> None:
    watched.after(1, each=WELL)
    watched.vigil.close(3)
    assert watched.after(2 * LIMIT) == {}


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=8), st.floats(0.01, 0.99))
def test_slow_is_not_stuck(gradients: list[float], before: float) -> None:
    """Not even almost ten times slower than ever before, and waiting for others never is."""
    clock = Hands()
    pipe = os.open(os.devnull, os.O_WRONLY)
    pulse = Pulse(pipe, clock)
    pulse.works()
    clock.now += 1e6  # nothing is known of the first one
    assert pulse.sign() == WELL
    pulse = Pulse(pipe, clock)
    for seconds in gradients:
        pulse.works()
        clock.now += seconds
        pulse.waits()
        clock.now += 1e6
        assert pulse.sign() == WELL
    pulse.works()
    clock.now += before * FAR_LONGER * max(gradients)
    assert pulse.sign() == WELL
    clock.now += (1.01 - before) * FAR_LONGER * max(gradients)
    assert pulse.sign() == STUCK
    os.close(pipe)


BEGINS = """
import ctypes, os, signal, time
from hadpsgd.training import pulse
pulse.begin()
pulse.works(); time.sleep(0.1); pulse.waits()
if os.environ['RANK'] == '1': pulse.works()
time.sleep(1)
"""


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", "no sign of life for 4 s"),
        ("ctypes.PyDLL(None).sleep(3600)", "no sign of life for 4 s"),
        ("time.sleep(3600)", "a gradient that did not end within 4 s"),
    ],
    ids=["stopped", "hangs", "stuck"],
)
def test_a_rank_that_hangs_is_ended_for_good_and_replaced(
    end: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The others live until its process is gone and the newcomer lives."""
    monkeypatch.setattr(vigil, "PATIENCE", 1)
    script = BEGINS + DIES.format(folder=str(tmp_path), times=1, end=end)
    command = [sys.executable, "-c", script]
    ranks = Ranks(command, {}, range(3), 3, tmp_path, alone=True, replacements=1, silence=4)
    assert ranks.run() == 0
    assert f"rank 1 failed ({why}): the others go on" in capsys.readouterr().err
    assert "lived" in (tmp_path / "rank-1.log").read_text()


def test_a_rank_says_that_it_is_about_to_end(tmp_path: Path) -> None:
    """Though it takes longer than the limit until it has ended."""
    slow = "class Slow:\n    def __del__(self): time.sleep(6)\nslow = Slow()\n"
    command = [sys.executable, "-c", BEGINS + slow]
    assert Ranks(command, {}, range(2), 2, tmp_path, silence=3).run() == 0


def test_where_all_are_needed_all_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = BEGINS + "if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGSTOP)\n"
    command = [sys.executable, "-c", script + "time.sleep(3600)"]
    ranks = Ranks(command, {}, range(2), 2, tmp_path, needs_all="every step needs all", silence=4)
    assert ranks.run() == 1
    said = "rank 1 failed (no sign of life for 4 s), and so the others end (every step needs all)"
    assert said in capsys.readouterr().err
