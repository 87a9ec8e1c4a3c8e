"""`hadpsgd init` of Kaldi's data directories and lhotse's manifests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import RATE, make_data, write_lines
from init_data import corpus, init, said
from test_corpus_lhotse import Manifests

from hadpsgd.corpus.datadir import DataDir


def test_a_kaldi_folder_is_split(tmp_path: Path) -> None:
    data = make_data(tmp_path / "k")
    assert init(tmp_path, "--kaldi", str(data)) == 0
    config, _, out = corpus(tmp_path)
    assert config.features.sample_rate == 8000
    texts = {k: v for name in ("train", "dev", "test") for k, v in said(out, name).items()}
    assert texts == {u.id: u.text for u in DataDir.read(data)}


def test_kaldi_folders_stay_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_data(tmp_path / "k").parent
    for name in ("dev", "test_a"):
        assert init(tmp_path, "--kaldi", str(folder)) == 2
        assert f"{folder}: no" in capsys.readouterr().err
        (folder / name).symlink_to("train")
    (folder / "eval").symlink_to("train")
    assert init(tmp_path, "--kaldi", str(folder)) == 0
    _, section, _ = corpus(tmp_path)
    assert section.train.data == str(folder / "train")
    assert {name: part.data for name, part in section.tests.items()} == {
        name: str(folder / name) for name in ("eval", "test_a")
    }
    spoiled = folder / "train" / "text"
    spoiled.write_text(spoiled.read_text().replace("ann-2 bye\n", ""))
    assert init(tmp_path, "--kaldi", str(folder), "--force") == 2
    assert "no transcript of 'ann-2'" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["supervisions", "cuts"])
def test_lhotses_manifests_are_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """Recordings and supervisions, in any order, or cuts; sides of a call stay sides."""
    manifests = Manifests(tmp_path)
    silent = {**manifests.supervisions[0], "id": "s0", "text": ""}
    manifests.supervisions.append(silent)
    both, cuts = manifests.write()
    files = list(cuts.values()) if form == "cuts" else [both["supervisions"], both["recordings"]]
    assert init(tmp_path, "--lhotse", *files) == 0
    assert "1 of 4 supervisions have no text" in capsys.readouterr().err
    config, _, out = corpus(tmp_path)
    sets = {name: DataDir.read(out / "data" / name) for name in ("train", "dev", "test")}
    texts = sorted(u.text for data in sets.values() for u in data.utterances.values())
    assert texts == ["HELLO bob", "bye", "hi ann"] and config.features.sample_rate == RATE
    sides = {u.recording for data in sets.values() for u in data.utterances.values()}
    assert sides == {"call-A", "call-B"}
    assert not (tmp_path / "data/whole").exists()


def test_manifests_of_several_rates_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a line of their own, once for both channels, with what helps where no config is."""
    manifests = Manifests(tmp_path)
    both, _ = manifests.write()
    other = tmp_path / "other.wav"
    soundfile.write(other, np.zeros((10 * RATE, 2), np.int16), 2 * RATE)
    source = {"type": "file", "channels": [0, 1], "source": str(other)}
    (tmp_path / "r.jsonl").write_text(
        "".join(
            json.dumps(each) + "\n"
            for each in (manifests.recording, {"id": "other", "sources": [source], "duration": 5.0})
        )
    )
    said = [*manifests.supervisions, *(
        {**each, "recording_id": "other", "id": f"o{each['id']}"}
        for each in manifests.supervisions[:2]
    )]  # fmt: skip
    write_lines(tmp_path / "s.jsonl", [json.dumps(each) for each in said])
    assert init(tmp_path, "--lhotse", str(tmp_path / "r.jsonl"), both["supervisions"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert f"{tmp_path}/r.jsonl:2: {other}: sample rate 16000 Hz instead of 8000. " in told[0]
    assert "Bring all to one rate" in told[0] and "features." not in told[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "my call"}, "white space in 'my call'. Rename the recording, in supervisions, too"),
        ({"id": ""}, "an empty `id`. Rename the recording"),
        (
            {"source": "a.wav "},
            "recording call: '{0}/a.wav ' cannot be read by its name. Rename it",
        ),
        ({"source": "a\u00a0b.wav"}, r"recording call: '{0}/a\xa0b.wav' cannot be read"),
        ({"source": "a|"}, "recording call: '{0}/a|' cannot be read by its name. Rename it"),
    ],
)
def test_names_that_tables_cannot_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], message: str
) -> None:
    """Told of the manifest, not of the tables that would be made of it, which are gone."""
    manifests = Manifests(tmp_path)
    (source,) = manifests.recording["sources"]
    if "source" in change:
        place = tmp_path / change["source"]
        (tmp_path / "call.wav").rename(place)
        source["source"] = str(place)
    else:
        manifests.recording |= change
    for each in manifests.supervisions:
        each["recording_id"] = manifests.recording["id"]
    both, _ = manifests.write()
    assert init(tmp_path, "--lhotse", *both.values()) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert f"error: {both['recordings']}:1: " + message.format(tmp_path) in told[0]


def test_words_of_supervisions_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifests = Manifests(tmp_path)
    manifests.supervisions[1]["text"] = "hi <eps> ann"
    both, _ = manifests.write()
    assert init(tmp_path, "--lhotse", *both.values()) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert f"{both['supervisions']}:2: utterance bob-s2: word '<eps>' is reserved" in told[0]


def test_too_few_supervisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifests = Manifests(tmp_path)
    del manifests.supervisions[2]
    both, _ = manifests.write()
    assert init(tmp_path, "--lhotse", *both.values()) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and f"error: {both['recordings']}: " in told[0]
    assert "Record more" in told[0]


def test_genders_of_some_speakers_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifests = Manifests(tmp_path)
    del manifests.supervisions[1]["gender"]
    both, _ = manifests.write()
    assert init(tmp_path, "--lhotse", *both.values()) == 0
    assert "s.jsonl: no gender of 1 of its speakers (bob): genders" in capsys.readouterr().err


def test_a_manifest_whose_first_audio_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both, _ = Manifests(tmp_path).write()
    (tmp_path / "call.wav").write_bytes(b"none")
    assert init(tmp_path, "--lhotse", *both.values()) == 2
    assert f"error: {both['recordings']}:1: call-A: {tmp_path}/call.wav" in capsys.readouterr().err


def test_kaldi_recordings_of_several_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make_data(tmp_path / "k")
    soundfile.write(tmp_path / "other.wav", np.zeros((20 * RATE, 2), np.int16), 2 * RATE)
    wav = data / "wav.scp"
    wav.write_text(wav.read_text().replace("B audio/call.wav", f"B {tmp_path}/other.wav"))
    assert init(tmp_path, "--kaldi", str(data)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and f"{wav}: call-B: {tmp_path}/other.wav: sample rate" in told[0]
    assert "Bring all to one rate" in told[0] and "features." not in told[0]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["s.jsonl"], "s.jsonl: only supervisions. Give recordings and supervisions, or cuts"),
        (["c.jsonl", "s.jsonl"], "only cuts, supervisions"),
        (["s.jsonl", "s.jsonl"], "only supervisions"),
        (["c.jsonl", "c.jsonl"], "two manifests of one kind"),
        (["lexicon.txt"], "lexicon.txt: no manifest of lhotse's"),
    ],
)
def test_other_manifests_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: list[str], message: str
) -> None:
    Manifests(tmp_path).write()
    assert init(tmp_path, "--lhotse", *(str(tmp_path / name) for name in files)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and message in told[0]
    assert not (tmp_path / "data").exists()
