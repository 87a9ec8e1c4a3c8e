"""`corpus.kind: lhotse`: manifests as lhotse writes them, on a recording of two channels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml
from corpus_data import RATE, tone, write_lines

from hadpsgd.cli import main
from hadpsgd.corpus.datadir import AudioReader, DataDir


class Manifests:
    """Recordings, supervisions and cuts of one call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        audio = folder / "call.wav"
        both = np.stack([tone(5, 440), tone(5, 880)], axis=1)
        soundfile.write(audio, both, RATE, subtype="PCM_16")
        self.recording: dict[str, Any] = {
            "id": "call",
            "sources": [{"type": "file", "channels": [0, 1], "source": str(audio)}],
            "sampling_rate": RATE,
            "num_samples": 5 * RATE,
            "duration": 5.0,
            "channel_ids": [0, 1],
        }
        self.supervisions: list[dict[str, Any]] = [
            self.said("s1", 0.1 + 0.2, 1.2, 0, "HELLO bob", speaker="ann", gender="Female"),
            self.said("s2", 2.0, 1.0, 1, "hi  ann", speaker="bob", gender="M"),
            self.said("s3", 3.5, 1.0, 0, "bye", speaker="ann"),
        ]
        write_lines(
            folder / "lexicon.txt", [f"{w} X" for w in ("ann", "bob", "bye", "hello", "hi")]
        )

    @staticmethod
    def said(
        name: str, start: float, seconds: float, channel: int, text: str, **more: str
    ) -> dict[str, Any]:
        return {
            "id": name, "recording_id": "call", "start": start, "duration": seconds,
            "channel": channel, "text": text, "language": "English", **more,
        }  # fmt: skip

    def write(self) -> tuple[dict[str, str], dict[str, str]]:
        """Recordings and supervisions, the first gzipped; and the same as cuts."""
        recordings, supervisions = self.folder / "r.jsonl.gz", self.folder / "s.jsonl"
        recordings.write_bytes(gzip.compress((json.dumps(self.recording) + "\n").encode()))
        write_lines(supervisions, [json.dumps(item) for item in self.supervisions])
        cuts = [
            {
                "id": f"cut-{item['id']}", "start": item["start"] - 0.25, "duration": 1.5,
                "channel": item["channel"], "recording": self.recording, "type": "MonoCut",
                "supervisions": [{**item, "start": 0.25}],
            }
            for item in self.supervisions
        ]  # fmt: skip
        write_lines(self.folder / "c.jsonl", [json.dumps(cut) for cut in cuts])
        whole = {"recordings": str(recordings), "supervisions": str(supervisions)}
        return whole, {"cuts": str(self.folder / "c.jsonl")}

    def prepare(self, **corpus: Any) -> int:
        """Train and dev of recordings and supervisions, the test set of cuts."""
        whole, cuts = self.write()
        content = {
            "kind": "lhotse",
            "train": whole,
            "dev": whole,
            "tests": {"eval": cuts},
            "dict_dir": str(self.folder / "lexicon.txt"),
            "case": "lower",
        }
        path = self.folder / "c.yaml"
        path.write_text(yaml.safe_dump({"name": "mine", "corpus": content | corpus}))
        return main(["corpus", "--config", str(path), "--out", str(self.folder / "out")])


@pytest.fixture
def manifests(tmp_path: Path) -> Manifests:
    return Manifests(tmp_path)


def test_sets_of_supervisions_and_of_cuts(manifests: Manifests) -> None:
    assert manifests.prepare() == 0
    for name in ("train", "eval"):
        data = DataDir.read(manifests.folder / "out/data" / name)
        assert {u.id: (u.text, u.start, u.end) for u in data} == {
            "ann-s1": ("hello bob", 0.3, 1.5),
            "ann-s3": ("bye", 3.5, 4.5),
            "bob-s2": ("hi ann", 2.0, 3.0),
        }
        assert data.gender == {"ann": "f", "bob": "m"}
        assert data.channels == {"call-A": ("call", "A"), "call-B": ("call", "B")}
        with AudioReader(data, RATE) as reader:
            for utterance in data:
                samples = reader.read(utterance)
                found = np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples)
                assert abs(found - (880 if utterance.speaker == "bob" else 440)) < 2
    said = (manifests.folder / "out/lm/train.txt").read_text().splitlines()
    assert said == ["hello bob", "bye", "hi ann"]


def test_one_file_a_channel(manifests: Manifests) -> None:
    sources = []
    for channel, hertz in enumerate((440, 880)):
        path = manifests.folder / f"{channel}.wav"
        soundfile.write(path, tone(5, hertz), RATE, subtype="PCM_16")
        sources.append({"type": "file", "channels": [channel], "source": str(path)})
    manifests.recording["sources"] = sources
    assert manifests.prepare() == 0
    data = DataDir.read(manifests.folder / "out/data/train")
    assert [Path(place).name for place in data.recordings.values()] == ["0.wav", "1.wav"]


def test_genders_of_some_speakers_are_of_no_use(
    manifests: Manifests, capsys: pytest.CaptureFixture[str]
) -> None:
    del manifests.supervisions[1]["gender"]
    assert manifests.prepare() == 0
    assert "s.jsonl: no gender of 1 of its speakers (bob): genders" in capsys.readouterr().err
    assert not DataDir.read(manifests.folder / "out/data/train").gender


def test_a_recording_called_as_a_channel_of_another(
    manifests: Manifests, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be heard in place of the channel."""
    whole, _ = manifests.write()
    path = manifests.folder / "two.jsonl"
    source = {**manifests.recording["sources"][0], "channels": [0]}
    alone = {**manifests.recording, "id": "call-A", "sources": [source]}
    write_lines(path, [json.dumps(manifests.recording), json.dumps(alone)])
    manifests.supervisions[2]["recording_id"] = "call-A"
    manifests.prepare(train={**whole, "recordings": str(path)})
    error = capsys.readouterr().err
    assert "s.jsonl:3: recordings 'call' and 'call-A' would both be called call-A" in error


def test_silence_is_counted(manifests: Manifests, capsys: pytest.CaptureFixture[str]) -> None:
    manifests.supervisions[2]["text"] = " "
    assert manifests.prepare() == 2
    assert "1 of 3 supervisions have no text: ann-s3" in capsys.readouterr().err
    assert manifests.prepare(max_skipped=0.4) == 0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"recording_id": "other"}, "s.jsonl:2: supervision s2: no recording 'other'"),
        ({"channel": 2}, "s.jsonl:2: supervision s2: no recording 'call' with channel 2"),
        ({"duration": "long"}, "s.jsonl:2: no number `duration` here"),
        ({"id": "s 2"}, "s.jsonl:2: white space in 's 2'. Rename the supervision"),
        ({"id": "s1", "speaker": "ann"}, "s.jsonl:2: a second supervision s1"),
        ({"start": 60.0}, "s.jsonl:2: supervision s2: 60 to 61 s of recording call (5 s)"),
        ({"start": -1.0}, "s.jsonl:2: supervision s2: -1 to 0 s of recording call"),
        ({"duration": 0.0}, "s.jsonl:2: supervision s2: 2 to 2 s of recording call"),
        ({"start": float("nan")}, "s.jsonl:2: no number `start` here"),
        ({"duration": float("inf")}, "s.jsonl:2: no number `duration` here"),
        ({"channel": [0, 1]}, "s.jsonl:2: supervision s2: of 2 channels. Give each channel a"),
        ({"channel": []}, "s.jsonl:2: supervision s2: of 0 channels"),
        ({"channel": {}}, "s.jsonl:2: supervision s2: no recording 'call' with channel {}"),
        ({"text": ["a", "b"]}, "s.jsonl:2: `text` is no text"),
        ({"text": 5}, "s.jsonl:2: `text` is no text"),
        ({"text": "hi you"}, "s.jsonl:2: utterance bob-s2: word 'you' is not in the lexicon"),
        ({"speaker": ["bob"]}, "s.jsonl:2: `speaker` is no text"),
        ({"gender": {}}, "s.jsonl:2: `gender` is no text"),
    ],
)
def test_bad_supervisions_are_named(
    manifests: Manifests, capsys: pytest.CaptureFixture[str], change: dict[str, Any], what: str
) -> None:
    manifests.supervisions[1] |= change
    assert manifests.prepare() == 2
    said = capsys.readouterr().err
    assert what in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"type": "command"}, "recording call is of the kind 'command'"),
        ({"channels": [[0], 1]}, "r.jsonl.gz:1: recording call: a channel that is no number: [0]"),
        ({"source": "nowhere.wav"}, "r.jsonl.gz:1: recording call: missing audio file"),
        ({"source": 300 * "x"}, "r.jsonl.gz:1: recording call: missing audio file"),
    ],
)
def test_audio_that_cannot_be_read(
    manifests: Manifests, capsys: pytest.CaptureFixture[str], source: dict[str, str], what: str
) -> None:
    manifests.recording["sources"][0] |= source
    assert manifests.prepare() == 2
    assert what in capsys.readouterr().err


def test_channels_and_speakers_as_others_write_them(manifests: Manifests) -> None:
    """A list of the one channel, a speaker's number, a text that is null."""
    manifests.supervisions[0] |= {"channel": [0], "speaker": 7, "gender": None}
    manifests.supervisions[1] |= {"text": None, "gender": None}
    assert manifests.prepare(max_skipped=0.4) == 0
    data = DataDir.read(manifests.folder / "out/data/train")
    assert {u.id: u.speaker for u in data} == {"7-s1": "7", "ann-s3": "ann"}


def test_a_source_that_is_none(manifests: Manifests, capsys: pytest.CaptureFixture[str]) -> None:
    manifests.recording["sources"] = ["call.wav"]
    assert manifests.prepare() == 2
    assert "r.jsonl.gz:1: no object in `sources`" in capsys.readouterr().err


def test_recordings_of_another_rate_are_named_by_their_manifest(
    manifests: Manifests, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not by the folder in which the set was being made, which is gone."""
    audio = manifests.recording["sources"][0]["source"]
    soundfile.write(audio, np.zeros((10 * RATE, 2)), 2 * RATE, subtype="PCM_16")
    assert manifests.prepare() == 2
    said = capsys.readouterr().err
    assert f"r.jsonl.gz:1: call-A: {audio}: sample rate 16000 Hz instead of 8000. Re" in said
    assert "wav.scp" not in said and "call-B" not in said
    soundfile.write(audio, np.zeros((RATE, 2)), RATE, subtype="PCM_16")
    assert manifests.prepare() == 2
    assert "r.jsonl.gz:1: utterance ann-s3: segment 3.50-4.50 s is" in capsys.readouterr().err


def test_what_is_no_manifest(manifests: Manifests, capsys: pytest.CaptureFixture[str]) -> None:
    assert manifests.prepare(train={"cuts": str(manifests.folder / "lexicon.txt")}) == 2
    assert "lexicon.txt:1: no JSON object in this line" in capsys.readouterr().err
    assert manifests.prepare(train={"recordings": "r.jsonl"}) == 2
    assert "`recordings` and `supervisions`, or `cuts`" in capsys.readouterr().err
