"""What counts of files from outside, by the digests that rules have as parameters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_reruns import write_corpus

from hadpsgd import outside
from hadpsgd.config import Config, check
from hadpsgd.sources import Digests

ARCHIVES = {"logmel": {"feats": "{set}.scp"}}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a corpus of four sets and what commands name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/conv.sh").write_text("cat $1")
    (tmp_path / "bin/sox").write_bytes(b"\x7fELF\0")
    for name in ("x.wav", "bin/y.wav", "a name.wav", "log", "audio/z.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("speech")
    return tmp_path


def config(place: Path, **changes: object) -> Config:
    corpus = {"allow_pipes": True, **write_corpus(place)}
    return check({"name": "x", "results": "results", "corpus": corpus} | changes, "c")


@pytest.mark.parametrize(
    ("command", "file", "counts"),
    [
        ("sox x.wav -t wav - |", "x.wav", True),
        ("conv.sh x.wav |", "x.wav", True),
        ("bin/conv.sh x.wav |", "bin/conv.sh", True),
        ("./bin/conv.sh x.wav | sox - - |", "bin/conv.sh", True),
        ("bin/sox x.wav -t wav - |", "bin/sox", False),
        ("bin/sox x.wav -t wav - |", "x.wav", True),
        ("sox -t wav - <x.wav -t wav - |", "x.wav", True),
        ("<x.wav sox -t wav - - |", "x.wav", True),
        ("cd bin; cat y.wav |", "bin/y.wav", True),
        ("cd bin && cat y.wav|", "bin/y.wav", True),
        ("(cd bin; cat y.wav) |", "bin/y.wav", True),
        ("LC_ALL=C bin/conv.sh x.wav |", "bin/conv.sh", True),
        ("wav-copy scp:x.wav ark:- |", "x.wav", True),
        ("wav-copy ark,cs:x.wav - |", "x.wav", True),
        ("conv --input=x.wav|", "x.wav", True),
        ("dd if=x.wav|", "x.wav", True),
        ("sh -c 'cat x.wav | sox - -' |", "x.wav", True),
        ("wav-copy 'ark:cat x.wav |' - |", "x.wav", True),
        ("cat 'a name.wav' |", "a name.wav", True),
        (r"cat a\ name.wav |", "a name.wav", True),
        ("cat x.wav 2>log |", "log", False),
        ("cat x.wav 2>> log |", "log", False),
        ("cat x.wav 2>&1 log |", "log", True),
        (f"awk '{'x' * 300}' x.wav |", "x.wav", True),
        ("cat 'x.wav |", "x.wav", True),  # the stage says what is wrong
    ],
)
def test_files_that_commands_name(command: str, file: str, counts: bool, place: Path) -> None:
    settings = config(place)
    (place / "data/train/wav.scp").write_text(f"call {command}\nother echo |\n")
    before = Digests(settings, out=place / "results/x")("corpus", "train")
    with (place / file).open("ab") as stream:
        stream.write(b"2")
    assert (Digests(settings, out=place / "results/x")("corpus", "train") != before) == counts


def test_words_of_many_commands_are_looked_up_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(place)
    lines = (f"call{i} bin/conv.sh -t wav -r 8000 x.wav - |" for i in range(1000))
    (place / "data/train/wav.scp").write_text("\n".join(lines))
    asked: list[str] = []
    is_file = Path.is_file

    def noted(path: Path) -> bool:
        asked.append(str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", noted)
    assert Digests(settings, out=place / "results/x")("corpus", "train")
    assert asked.count("x.wav") == 1 and len(asked) < 100


def test_an_archive_is_looked_for_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(place, features={"imports": ARCHIVES})
    (place / "x.ark").write_text("features")
    lines = [f"utt{i} x.ark:{i}" for i in range(1000)] + ["piped bin/conv.sh x.wav |"]
    (place / "train.scp").write_text("\n".join(lines))
    asked: list[str] = []
    beside = outside._beside

    def noted(scp: Path, file: str) -> Path:
        asked.append(file)
        return beside(scp, file)

    monkeypatch.setattr(outside, "_beside", noted)
    before = Digests(settings, out=place / "results/x")("features.logmel", "train")
    assert asked == ["x.ark"]
    (place / "x.ark").write_text("others")
    os.utime(place / "x.ark", ns=(10**18, 10**18))
    assert Digests(settings, out=place / "results/x")("features.logmel", "train") != before
