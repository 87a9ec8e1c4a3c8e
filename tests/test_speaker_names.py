"""Whatever people call their speakers: the data directories made of it are sorted as Kaldi's."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import soundfile
from corpus_data import RATE, tone, write_lines
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.config.lhotse import Manifests
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.manifests import read
from hadpsgd.errors import UserError

SETS = ("train", "dev", "test")


def _made(name: str) -> str:
    """As names become ids of a table's speakers; those of which two become one are refused."""
    return re.sub(r"[^\w.]+", "_", name)


def _apart(names: list[str]) -> list[str]:
    return list({_made(name): name for name in names}.values())


signs = st.sampled_from("aB1\u00e9-+!,._/:%#'") | st.characters(exclude_categories=["C", "Z"])
parts = st.lists(st.text(signs, min_size=1, max_size=4), min_size=3, max_size=5)
names = parts.map(lambda parts: _apart([*parts, *(f"{part}-{parts[0]}" for part in parts)]))
"""Some begin with others."""


def _valid(folder: Path) -> DataDir:
    """`hadpsgd validate` takes it; sorted bytes are what Kaldi's C locale wants."""
    assert main(["validate", str(folder)]) == 0
    for table in ("utt2spk", "spk2utt", "text", "wav.scp"):
        rows = (folder / table).read_bytes().splitlines()
        keys = [row.split(b" ")[0] for row in rows]
        assert keys == sorted(keys)
    speakers = [row.split()[1] for row in (folder / "utt2spk").read_bytes().splitlines()]
    assert speakers == sorted(speakers)
    return DataDir.read(folder)


@settings(max_examples=12)
@given(names=names)
@example(names=["Ann", "Ann-Marie", "Ann+Bob", "Zoe"])
def test_speakers_of_a_table(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        rows = []
        for number, name in enumerate(names):
            for take in ("Take 1", f"M-{number}"):
                soundfile.write(folder / f"{take}-{number}.wav", tone(0.2), RATE)
                rows.append((f"{take}-{number}.wav", "yes", name))
        with (folder / "t.csv").open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream, quoting=csv.QUOTE_ALL)
            table.writerows([("file", "text", "speaker"), *rows])
        out = ["--out", str(folder / "c.yaml"), "--data", str(folder / "data")]
        assert main(["init", "--csv", str(folder / "t.csv"), "--name", "x", *out]) == 0
        found = [_valid(folder / "data" / part) for part in SETS]
        assert sum(map(len, found)) == 2 * len(names)
        assert {speaker for data in found for speaker in data.speakers} == {*map(_made, names)}


def _manifests(folder: Path, said: list[dict[str, Any]]) -> Manifests:
    """Supervisions of recordings that are all one file."""
    soundfile.write(folder / "a.wav", tone(1.0), RATE)
    source = {"type": "file", "channels": [0], "source": str(folder / "a.wav")}
    recordings = [
        {"id": name, "sources": [source], "duration": 1.0}
        for name in dict.fromkeys(item["recording_id"] for item in said)
    ]
    write_lines(folder / "r.jsonl", [json.dumps(item) for item in recordings])
    defaults = {"start": 0.0, "duration": 0.5, "channel": 0, "text": "yes"}
    write_lines(folder / "s.jsonl", [json.dumps(defaults | item) for item in said])
    return Manifests(recordings=str(folder / "r.jsonl"), supervisions=str(folder / "s.jsonl"))


@given(names=names, form=st.sampled_from(["number", "speaker first", "recording alone"]))
@example(names=[str(number) for number in range(1, 12)], form="number")
@example(names=["Ann", "Ann-Marie", "Ann+Bob"], form="speaker first")
@example(names=["rec", "rec-A", "rec-A-1"], form="recording alone")
def test_speakers_of_manifests(names: list[str], form: str) -> None:
    forms = {"number": "{0}", "speaker first": "{1}-{0}", "recording alone": "Z{0}"}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        said = [
            {"id": forms[form].format(number, name), "recording_id": name}
            | ({} if form == "recording alone" else {"speaker": name})
            for number, name in enumerate(names * 2)
        ]
        found = read(_manifests(folder, said), folder / "data")
        found.data.write(folder / "data")
        data = _valid(folder / "data")
        assert len(data) == len(said) and len(data.speakers) == len(names)
        assert all(f"{u.id}-".startswith(f"{u.speaker}-") for u in data)


def test_an_utterance_begins_with_its_speaker_once(tmp_path: Path) -> None:
    """Where its supervision is called so, and not where it begins with the same signs."""
    said = [
        {"id": "ann-1", "recording_id": "r", "speaker": "ann"},
        {"id": "anna", "recording_id": "r", "speaker": "ann"},
        {"id": "ann", "recording_id": "r", "speaker": "ann"},
        {"id": "Bo-Li-1", "recording_id": "r", "speaker": "Bo-Li"},
    ]
    found = read(_manifests(tmp_path, said), tmp_path / "data").data
    assert list(found.utterances) == ["Bo_Li-1", "ann", "ann-1", "ann-anna"]


def test_speakers_that_become_one_are_told(tmp_path: Path) -> None:
    said = [
        {"id": "1", "recording_id": "r", "speaker": "Ann-Marie"},
        {"id": "2", "recording_id": "r", "speaker": "Ann_Marie"},
    ]
    what = r"s\.jsonl:2: 'Ann-Marie' and 'Ann_Marie' would both be the speaker Ann_Marie\. Rename"
    with pytest.raises(UserError, match=what):
        read(_manifests(tmp_path, said), tmp_path / "data")
