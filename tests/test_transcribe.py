"""`hadpsgd transcribe` as its users meet it: the workflow's own words, speakers, formats."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_bundle import RATE, RUN, Signal, transcribe
from small_workflow import Small

from hadpsgd import cli
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.lanes import Lanes
from hadpsgd.decoding.search_graph import Indices
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.formats import read_ctm
from hadpsgd.scoring.hypotheses import Recognised
from hadpsgd.scoring.transcribe.left import Left
from hadpsgd.scoring.transcribe.outputs import write
from hadpsgd.scoring.transcribe.recognise import Done, Recogniser
from hadpsgd.scoring.transcribe.transcript import Transcript


@dataclass
class Searched:
    """What was searched together: utterances, and their frames."""

    utterances: int = 0
    frames: int = 0


def watched(searched: list[Searched]) -> Callable[[Lanes, int], Indices]:
    """`Lanes.enter` that counts what enters every search."""
    enter, searches = Lanes.enter, list[Lanes]()

    def entered(lanes: Lanes, time: int) -> Indices:
        found = enter(lanes, time)
        if not any(lanes is other for other in searches):
            searches.append(lanes)
            searched.append(Searched())
        searched[-1].utterances += len(found)
        searched[-1].frames += int((lanes.until[found] - time).sum())
        return found

    return entered


@pytest.mark.parametrize(("name", "jobs"), [("swb", 2), ("ch", 1)])
def test_words_are_those_of_the_workflow(
    small: Small,
    bundle: Path,
    tmp_path: Path,
    name: str,
    jobs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same utterances say the same, word by word, with the same times and confidences.

    Also where few at a time are searched, which bounds memory.
    """
    searched: list[Searched] = []
    if jobs == 1:
        monkeypatch.setattr("hadpsgd.decoding.decode.FRAMES", 500)
        monkeypatch.setattr(Lanes, "enter", watched(searched))
    scored = small.out / "score" / small.key(RUN) / name
    lines = (scored / "hyp.txt").read_text().splitlines()
    workflow = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    recogniser = Recogniser(bundle=Bundle.open(bundle), jobs=jobs)
    steps: dict[str, float] = {}

    def done(step: str, share: float) -> None:
        steps[step] = steps.get(step, 0.0) + share

    data = small.out / "corpus" / "data" / name
    found = list(recogniser(data, tmp_path, done))
    assert {each.utterance: each.text for each in found} == workflow
    timed = {word.line() for each in found for word in each.words}
    assert timed == set((scored / "ctm").read_text().splitlines()) and len(timed) > 10
    assert steps.keys() == recogniser.steps.keys() and "adaptation" not in steps
    assert list(steps.values()) == pytest.approx([1.0] * len(steps))
    if jobs == 1:
        assert sum(each.utterances for each in searched) == len(DataDir.read(data)) > 4
        assert all(each.frames <= 500 or each.utterances == 1 for each in searched)
        assert len(searched) > 2


def test_recordings_of_a_test_set(
    small: Small, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut by energy, and each side a speaker, they have about the workflow's errors."""
    audio = small.out / "corpus" / "audio" / "swb"
    stm = small.out / "corpus" / "data" / "swb" / "stm"
    assert transcribe(bundle, tmp_path / "out", audio, "--reference", stm) == 0
    assert (
        f"% of {Bundle.open(bundle).manifest.scores['swb'].words} words" in capsys.readouterr().err
    )
    ours = json.loads((tmp_path / "out" / "score" / "wer.json").read_text())
    score = Bundle.open(bundle).manifest.scores["swb"]
    assert ours["words"] == score.words
    assert abs(ours["errors"] - score.errors) <= 0.1 * score.words
    # lines of words instead: of recordings with one channel
    assert transcribe(bundle, tmp_path / "b", audio, "--reference", tmp_path / "none") == 2
    lines = tmp_path / "lines"
    first = next(audio.glob("*.wav"))
    lines.write_text(f"{first.stem} yes\n")
    assert transcribe(bundle, tmp_path / "b", first, "--reference", lines) == 2
    assert "2 channels" in capsys.readouterr().err
    mono = tmp_path / f"{first.stem}.wav"
    soundfile.write(mono, soundfile.read(first)[0][: 5 * RATE, 0], RATE)
    assert transcribe(bundle, tmp_path / "b", mono, "--reference", lines) == 0
    assert "% of 1 words" in capsys.readouterr().err
    lines.write_text("other yes\n")
    assert transcribe(bundle, tmp_path / "b", mono, "--reference", lines) == 2


def test_recordings_of_one_speaker(
    bundle: Path,
    sides: tuple[Signal, Signal],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are adapted to together, in one batch, whatever else stands between them."""
    call, seen = Recogniser.__call__, list[dict[str, set[str]]]()

    def watching(self: Recogniser, data: Path, work: Path, done: Done) -> Iterator[Recognised]:
        found = defaultdict(set)
        for each in DataDir.read(data, text=False):
            found[each.speaker].add(each.recording)
        seen.append(dict(found))
        return call(self, data, work, done)

    monkeypatch.setattr(Recogniser, "__call__", watching)
    monkeypatch.setattr("hadpsgd.scoring.transcribe.batch.SECONDS", 9.0)
    audio, listed = tmp_path / "audio", tmp_path / "speakers"
    audio.mkdir()
    for name, samples in (("a", sides[0][: 4 * RATE]), ("b", sides[1]), ("C 1", sides[0])):
        soundfile.write(audio / f"{name}.wav", samples[: 5 * RATE], RATE)
    soundfile.write(audio / "d.wav", np.stack(sides, 1)[: 4 * RATE], RATE)
    listed.write_text("c_1 jo\na jo\nd-B jo\n")
    assert transcribe(bundle, tmp_path / "out", audio, "--speakers", listed) == 0
    assert "1 of 4 recordings are not in" in capsys.readouterr().err
    together = {"r000000-00", "r000001-00"}
    assert together in seen[0].values()
    assert sum(map(len, seen)) == 4  # jo, b, and both sides of d, whose B is in another batch
    speakers = {
        name: {segment["speaker"] for segment in json.loads(file.read_text())["segments"]}
        for name in ("a", "b", "C 1", "d")
        for file in [tmp_path / "out" / f"{name}.json"]
    }
    assert speakers == {"a": {"jo"}, "b": {"b-1"}, "C 1": {"jo"}, "d": {"d-A", "jo"}}
    for text, what in (
        ("a\n", "speakers:1: not 'NAME SPEAKER'"),
        ("a jo\nA mo\n", "speakers:2: A has two speakers"),
        ("x jo\n", "has none of the recordings (C_1, a, b)"),
    ):
        listed.write_text(text)
        assert transcribe(bundle, tmp_path / "out", audio, "--speakers", listed) == 2
        told = capsys.readouterr().err
        assert what in told and told.count("\n") == 1


def test_speakers_in_any_order(bundle: Path, sides: tuple[Signal, Signal], tmp_path: Path) -> None:
    """Beside recordings that are not named, one speaker's between another's, names of any signs."""
    (audio := tmp_path / "audio").mkdir()
    for name in "abcd":
        soundfile.write(audio / f"{name}.wav", sides[0][: 4 * RATE], RATE)
    (listed := tmp_path / "speakers").write_text("a zoë\nb zoë+\nc zoë\n")
    assert transcribe(bundle, tmp_path / "out", audio, "--speakers", listed) == 0
    found = [json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in "abcd"]
    speakers = [{segment["speaker"] for segment in each["segments"]} for each in found]
    assert speakers == [{"zoë"}, {"zoë+"}, {"zoë"}, {"d-1"}]


def test_every_format_says_the_same(
    bundle: Path, sides: tuple[Signal, Signal], tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "two.wav", np.stack(sides, axis=1), RATE)
    assert transcribe(bundle, tmp_path / "out", tmp_path / "two.wav") == 0
    found = json.loads((tmp_path / "out/two.json").read_text())
    assert found["channels"] == ["A", "B"]
    seconds = round(len(sides[0]) / RATE, 3)
    assert found["seconds"] == seconds
    segments = found["segments"]
    words = [word for segment in segments for word in segment["words"]]
    assert len(words) > 10 and {segment["channel"] for segment in segments} == {"A", "B"}
    for segment in segments:
        inside = [segment["begin"]]
        for word in segment["words"]:
            inside += [word["begin"], word["end"]]
            assert 0 <= word["confidence"] <= 1
        inside.append(segment["end"])
        assert all(a <= b + 1e-6 for a, b in pairwise(inside))
    ctm = read_ctm(tmp_path / "out/two.ctm")
    assert sorted((w.channel, round(w.begin, 2), w.word) for w in ctm) == sorted(
        (s["channel"], round(w["begin"], 2), w["word"]) for s in segments for w in s["words"]
    )
    lines = (tmp_path / "out/two.txt").read_text().splitlines()
    assert lines == [f"{s['channel']}: {s['text']}" for s in segments if s["text"]]
    time = r"(\d\d):(\d\d):(\d\d)[,.](\d\d\d)"
    for ending, mark in (("srt", ","), ("vtt", ".")):
        text = (tmp_path / f"out/two.{ending}").read_text()
        cues = re.findall(rf"^{time} --> {time}\n(.+)\n\n", text, re.MULTILINE)
        spoken = [re.sub(r"^(<v [AB]>|[AB]: )", "", cue[-1]) for cue in cues]
        assert sorted(" ".join(spoken).split()) == sorted(word["word"] for word in words)
        assert mark in text.split(" --> ")[0] and all(len(line) <= 88 for line in spoken)
    assert text.startswith("WEBVTT\n\n")
    grid = (tmp_path / "out/two.TextGrid").read_text()
    for tier in grid.split("item [")[2:]:
        bounds = re.findall(r"xmin = (\S+)\s+xmax = (\S+)\s+text = ", tier)
        assert bounds[0][0] == "0.000" and float(bounds[-1][1]) == seconds
        assert all(a[1] == b[0] for a, b in pairwise(bounds))
    labels = [label for label in re.findall(r'text = "(.*)"', grid) if label]
    assert sorted(labels) == sorted(word["word"] for word in words)


def test_text_is_printed_where_nothing_is_written(
    bundle: Path,
    sides: tuple[Signal, Signal],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    soundfile.write(tmp_path / "a.wav", sides[0][: 6 * RATE], RATE)
    assert cli.main(["transcribe", str(bundle), str(tmp_path / "a.wav"), "--fast"]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() and "1 recording, 6 s, " in printed.err
    assert transcribe(bundle, tmp_path / "out", tmp_path / "a.wav", "--format", "txt") == 0
    assert (tmp_path / "out" / "a.txt").read_text() == printed.out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt"]


def test_a_transcript_of_a_long_name(tmp_path: Path) -> None:
    """With an ending more the name would be longer than a file's may be."""
    name = "\u00e9" * 125 + "x"  # 251 bytes
    found = Transcript(name=f"calls/{name}", seconds=1.0, channels=("1",), segments=())
    write(found, tmp_path, ["json", "TextGrid"])
    written = sorted((tmp_path / "calls").iterdir())
    assert [path.suffix for path in written] == [".TextGrid", ".json"]
    assert all(path.name.startswith("\u00e9" * 80) for path in written)


def test_no_more_is_held_of_a_longer_recording(
    bundle: Path,
    sides: tuple[Signal, Signal],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recording three times as long is searched in three times as many parts, none longer."""
    most = 1500
    monkeypatch.setattr("hadpsgd.decoding.decode.FRAMES", most)
    pair = np.stack(sides, axis=1)[: 9 * RATE]
    parts = {}
    for times in (2, 6):
        searched: list[Searched] = []
        soundfile.write(tmp_path / "two.wav", np.tile(pair, (times, 1)), RATE)
        with monkeypatch.context() as patched:
            patched.setattr(Lanes, "enter", watched(searched))
            assert transcribe(bundle, tmp_path / f"{times}", tmp_path / "two.wav") == 0
        assert all(each.frames <= most or each.utterances == 1 for each in searched)
        parts[times] = searched
    frames = {times: sum(each.frames for each in parts[times]) for times in parts}
    assert frames[6] > 2.5 * frames[2] > 2500
    assert len(parts[6]) > len(parts[2])


def test_time_that_is_left() -> None:
    left = Left(90.0, {"features": 1.0, "search": 3.0})
    assert "starting" in left.line(1.0)
    left.group(45.0)
    left.done("features", 1.0)
    left.done("search", 0.5)
    # 112.5 of 360: 10 s took as much, so 22 s are left
    assert left.line(10.0) == "transcribe: 31 % of 90 s of audio, search; about 22 s left"
    left.group(45.0)
    left.drop(45.0)
    left.done("search", 2.0)
    assert "100 %" in left.line(60.0) and "about 0 s left" in left.line(60.0)
