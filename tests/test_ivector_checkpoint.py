"""A killed training of the i-vector extractor goes on after its last iteration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ivector_stages as stages
import pytest

from hadpsgd.features.ivector import checkpoint, training


class Killed(BaseException):
    """Nothing catches it."""


def train(folder: Path, out: str, **options: object) -> int:
    return stages.run(folder, "ivector-train", out, "--ubm", f"{folder}/ubm", **options)


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A background model, and an extractor `whole` of three iterations that nothing stopped."""
    folder = stages.write(tmp_path)
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    assert stages.run(folder, "ubm", "ubm") == 0
    assert train(folder, "whole") == 0
    return folder


def counted(
    monkeypatch: pytest.MonkeyPatch, *, last: int | None = None
) -> tuple[list[int], Callable[[], None]]:
    """The iterations that are begun; killed after `last`."""
    begun: list[int] = []
    expect = training.expect

    def watched(*args: object) -> object:
        if len(begun) == last:
            raise Killed
        begun.append(len(begun))
        return expect(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "expect", watched)
    return begun, lambda: monkeypatch.setattr(training, "expect", expect)


def killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """After two iterations; the checkpoint."""
    _, undo = counted(monkeypatch, last=2)
    with pytest.raises(Killed):
        train(folder, "ie")
    undo()
    file = folder / ".ie.checkpoint"
    assert file.is_file() and not (folder / "ie/final.ie").exists()
    return file


def test_it_goes_on_to_the_same_bytes(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = killed(ready, monkeypatch)
    begun, _ = counted(monkeypatch)
    assert train(ready, "ie") == 0
    assert len(begun) == 1 and not file.exists()
    assert (ready / "ie/final.ie").read_bytes() == (ready / "whole/final.ie").read_bytes()


@pytest.mark.parametrize("what", ["settings", "cut", "empty"])
def test_one_that_does_not_belong_is_left(
    what: str, ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = killed(ready, monkeypatch)
    if what != "settings":
        file.write_bytes(file.read_bytes()[: 100 if what == "cut" else 0])
    begun, _ = counted(monkeypatch)
    iterations = 4 if what == "settings" else 3
    assert train(ready, "ie", iterations=iterations) == 0
    assert len(begun) == iterations and not file.exists()
    assert ".ie.checkpoint is not used: " in capsys.readouterr().err


def test_one_that_cannot_be_written_stops_nothing(
    ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ready / ".ie.checkpoint").mkdir()
    (ready / ".ie.checkpoint/kept").touch()
    assert train(ready, "ie") == 0
    assert "no checkpoint could be written" in capsys.readouterr().err
    assert (ready / "ie/final.ie").read_bytes() == (ready / "whole/final.ie").read_bytes()
