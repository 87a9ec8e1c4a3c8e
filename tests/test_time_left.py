"""What stages and trainings tell of the time that they still take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hadpsgd import progress
from hadpsgd.cli import main
from hadpsgd.progress import Progress, length, time_left, tracked
from hadpsgd.tracking.pace import Pace


class TestProgress:
    def test_a_line_by_hand(self) -> None:
        """A quarter in a minute: three minutes are left."""
        shown = Progress("decode", 400, "utterances", lambda seconds: f"{seconds:.0f} so far")
        shown.add(100)
        assert shown.line(60.0) == (
            "decode: 100 of 400 utterances in 60 s, 1.7/s, 60 so far, 3 min left"
        )
        shown.add(300)
        assert shown.line(240.0) == "decode: 400 of 400 utterances in 4 min, 1.7/s, 240 so far"

    def test_nothing_is_known_of_a_start(self) -> None:
        assert Progress("x", 10, "files").line(9.0) == "x: 0 of 10 files in 9 s, unknown time left"

    @pytest.mark.parametrize(
        ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (7200, "2.0 h")]
    )
    def test_lengths(self, seconds: float, text: str) -> None:
        assert length(seconds) == text

    def test_shares(self) -> None:
        assert time_left(0.5, seconds=30.0) == "30 s left"
        assert time_left(0.001, seconds=30.0) == "unknown time left"

    def test_items_pass_and_count_by_weight(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
        assert list(tracked(["ab", "c"], 3, what="read", unit="letters", weight=len)) == ["ab", "c"]
        first, second = capsys.readouterr().err.splitlines()
        assert first.startswith("read: 2 of 3 letters in 0 s, ") and first.endswith(" 0 s left")
        assert second.startswith("read: 3 of 3 letters in 0 s, ") and "left" not in second


class TestPace:
    def rows(self, *pairs: tuple[float, float], key: str = "seconds") -> Iterator[dict[str, Any]]:
        """As ranks write them: all have the clock's time, those in real time their own, too."""
        for epoch, seconds in pairs:
            yield {"epoch": epoch, "whole": {"epochs": 10}, "time": 7.0, key: seconds}

    def pace(self, *rows: dict[str, Any]) -> Pace:
        made = Pace()
        for row in rows:
            made.add(row)
        return made

    @pytest.mark.parametrize("key", ["seconds", "time"])
    def test_two_epochs_in_twelve_seconds(self, key: str) -> None:
        found = self.pace(*self.rows((1.0, 100.0), (3.0, 112.0), key=key), {"heldout_loss": 1.0})
        assert found.seconds() == pytest.approx(7 * 6.0)
        assert found.text() == "42 s left"

    def test_nothing_is_known_of_one_row(self) -> None:
        found = self.pace(*self.rows((1.0, 100.0)))
        assert found.seconds() is None and found.text() == ""
        assert self.pace({"epoch": 1.0, "time": 1.0}).epochs == 0

    def test_a_training_that_went_back_to_a_checkpoint(self) -> None:
        """What it did before is not counted twice."""
        rows = self.rows((4.0, 40.0), (5.0, 50.0), (4.5, 45.0), (5.5, 65.0))
        assert self.pace(*rows).seconds() == pytest.approx(4.5 * 20.0)

    def test_the_end(self) -> None:
        assert self.pace(*self.rows((9.0, 9.0), (10.0, 10.0))).text() == ""


def test_watch_tells_when_a_training_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half an epoch in ten seconds, and two and a half to go."""
    row = {"step": 1, "whole": {"epochs": 4}, "learner_frames_per_second": 1.0}
    rows = [row | {"epoch": 1.0, "time": 10.0}, row | {"epoch": 1.5, "time": 20.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["watch", "--out", str(tmp_path), "--once"]) == 0
    assert "epoch 1.50 of 4, 50 s left" in capsys.readouterr().out.splitlines()[0]
