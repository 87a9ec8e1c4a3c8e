"""A disk that fills up while features, i-vectors or examples are written."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.egs.layout import Layout
from hadpsgd.egs.shards import ArrayFile, write_shard
from hadpsgd.errors import UserError
from hadpsgd.features.store import store
from hadpsgd.files import atomic_folder


class FullDisk:
    """Takes the place of a function that writes; fails after some calls."""

    def __init__(self, function: Any, after: int) -> None:
        self.function, self.left = function, after

    def __call__(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.function(*arguments)


def test_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kaldi_io, "encode", FullDisk(kaldi_io.encode, after=3))
    items = ((f"u{number}", np.zeros((5, 4), np.float32)) for number in range(9))
    with pytest.raises(UserError, match="the disk is full"):
        store(items, tmp_path / "out", "test")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_last_bytes_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffered data meets the full disk when the file is closed."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    original = Path.open

    def on_full_disk(self: Path, *arguments: Any, **options: Any) -> Any:
        path = full if self.name.startswith(".feats.ark") else self
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", on_full_disk)
    with pytest.raises(UserError, match="the disk is full"):
        store([("u", np.zeros((5, 4), np.float32))], tmp_path / "out", "test")
    assert list((tmp_path / "out").iterdir()) == []


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "egs"
    monkeypatch.setattr(ArrayFile, "append", FullDisk(lambda *_: None, after=1))
    with pytest.raises(UserError, match="the disk is full"), atomic_folder(out) as folder:
        write_shard(
            folder / "examples.0000.npy", np.zeros(200_000, Layout.plain(frames=4, dim=3).row)
        )
    assert list(tmp_path.iterdir()) == []
