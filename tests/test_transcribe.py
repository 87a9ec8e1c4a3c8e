"""`hadpsgd transcribe` as its users meet it: files of any kind, and the workflow's own words."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_workflow import Small

from hadpsgd import cli
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.resample import Resampler, resample
from hadpsgd.decoding.lanes import Lanes
from hadpsgd.decoding.search_graph import Indices
from hadpsgd.errors import UserError
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.formats import read_ctm
from hadpsgd.scoring.hypotheses import Recognised
from hadpsgd.scoring.transcribe.channels import take_apart
from hadpsgd.scoring.transcribe.left import Left
from hadpsgd.scoring.transcribe.outputs import write
from hadpsgd.scoring.transcribe.recognise import Done, Recogniser
from hadpsgd.scoring.transcribe.sources import find
from hadpsgd.scoring.transcribe.speech import speech
from hadpsgd.scoring.transcribe.transcript import Transcript

RATE = 8000
RUN = "hadpsgd-2x2-dpsgd"  # the same bits every time, where all else is the same
Signal = np.ndarray


@pytest.fixture(scope="module")
def bundle(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "bundle"
    folder = small.out / "runs" / small.key(RUN)
    assert cli.main(["export", str(folder), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def sides(small: Small) -> tuple[Signal, Signal]:
    """Both sides of a test recording, of 10 s or more, float64 within -1 .. 1."""
    file = next((small.out / "corpus" / "audio" / "swb").glob("*.wav"))
    samples, rate = soundfile.read(file)
    assert rate == RATE and samples.shape[1] == 2
    assert len(samples) >= 10 * RATE
    return samples[:, 0], samples[:, 1]


def said(out: Path, name: str) -> dict[str, str]:
    """Text of each channel of a transcribed recording."""
    found = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    texts: dict[str, list[str]] = {channel: [] for channel in found["channels"]}
    for segment in found["segments"]:
        texts[segment["channel"]] += segment["text"].split()
    return {channel: " ".join(words) for channel, words in texts.items()}


def transcribe(bundle: Path, out: Path, *more: object) -> int:
    return cli.main(["transcribe", str(bundle), "--out", str(out), *map(str, more)])


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


@pytest.mark.parametrize(
    ("rate", "ending", "noise"), [(44100, "flac", 2e-3), (16000, "sph", 2e-3), (8000, "mp3", 0.3)]
)
def test_other_kinds_of_files(
    bundle: Path,
    sides: tuple[Signal, Signal],
    tmp_path: Path,
    rate: int,
    ending: str,
    noise: float,
) -> None:
    """What is heard differs from what was written by little of its power (mp3: by what it loses);
    words are found."""
    other = resample(sides[0].astype(np.float32), rate=RATE, new_rate=rate)
    formats = {"sph": "NIST", "mp3": "MP3", "flac": "FLAC"}
    file = tmp_path / f"OTHER.{ending.upper()}"
    soundfile.write(file, other, rate, format=formats[ending])
    (channel,) = take_apart(file, folder=tmp_path / "apart", rate=RATE).channels
    heard, found_rate = soundfile.read(channel.file)
    assert found_rate == RATE and abs(len(heard) - len(sides[0])) <= 1
    low = resample(other, rate=rate, new_rate=RATE)  # without what no resampling can keep
    both = min(len(heard), len(low))
    difference = heard[:both] - low[:both]
    assert np.square(difference).sum() < noise**2 * np.square(low[:both]).sum()
    assert transcribe(bundle, tmp_path / "out", file, "--format", "json") == 0
    assert len(said(tmp_path / "out", "OTHER")["1"].split()) > 5


def test_ten_minutes_with_a_little_speech(
    bundle: Path, sides: tuple[Signal, Signal], tmp_path: Path
) -> None:
    """The same stretch in three places says the same, at times as far apart."""
    rng = np.random.default_rng(1)
    places = (5.0, 301.25, 590.0)
    # noise that repeats every 3.75 s, so that it is the same around each place
    whole = np.tile(1e-4 * rng.standard_normal(round(3.75 * RATE)), 160)
    stretch = sides[0][: 8 * RATE]
    for place in places:
        whole[int(place * RATE) : int(place * RATE) + len(stretch)] += stretch
    soundfile.write(tmp_path / "long.wav", whole, RATE, subtype="PCM_16")
    assert transcribe(bundle, tmp_path / "out", tmp_path / "long.wav", "--jobs", "2") == 0
    words = read_ctm(tmp_path / "out" / "long.ctm")
    by_place = [[w for w in words if place - 1 < w.begin < place + 9] for place in places]
    assert sum(map(len, by_place)) == len(words) and by_place[0]
    texts = [[word.word for word in some] for some in by_place]
    assert texts[0] == texts[1] == texts[2]
    for first, *others in zip(*by_place, strict=True):
        for place, other in zip(places[1:], others, strict=True):
            assert other.begin - first.begin == pytest.approx(place - places[0], abs=0.06)


def test_nothing_is_heard_in_silence(bundle: Path, tmp_path: Path) -> None:
    noise = 1e-3 * np.random.default_rng(1).standard_normal(3 * RATE)
    soundfile.write(tmp_path / "digital.wav", np.zeros(3 * RATE), RATE)
    soundfile.write(tmp_path / "noise.wav", noise, RATE)
    soundfile.write(tmp_path / "instant.wav", np.full(10, 0.5), RATE)
    assert transcribe(bundle, tmp_path / "out", tmp_path) == 0
    for name in ("digital", "noise", "instant"):
        assert said(tmp_path / "out", name) == {"1": ""}
        assert (tmp_path / "out" / f"{name}.txt").read_text() == ""
        assert (tmp_path / "out" / f"{name}.vtt").read_text() == "WEBVTT\n\n"


def test_a_broken_file_among_good_ones(
    bundle: Path,
    sides: tuple[Signal, Signal],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    audio = tmp_path / "audio"
    (audio / "Über uns").mkdir(parents=True)
    good = audio / "Über uns" / "GESPRÄCH 1.WAV"
    soundfile.write(good, sides[1][: 6 * RATE], RATE)
    content = good.read_bytes()
    (audio / "cut.wav").write_bytes(content[: len(content) // 2])
    (audio / "text.flac").write_text("no audio")
    soundfile.write(audio / "empty.wav", np.zeros(0), RATE)
    soundfile.write(audio / "nan.wav", np.full(RATE, np.nan), RATE, subtype="FLOAT")
    assert transcribe(bundle, tmp_path / "out", audio) == 1
    told = capsys.readouterr().err
    assert "4 of 5 recordings failed: cut, empty, nan, text" in told
    for name in ("cut.wav", "empty.wav", "nan.wav", "text.flac"):
        assert len(re.findall(rf"^failed: .*{name}: ", told, re.MULTILINE)) == 1
    assert said(tmp_path / "out", "Über uns/GESPRÄCH 1")["1"]
    words = read_ctm(tmp_path / "out" / "Über uns" / "GESPRÄCH 1.ctm")
    assert {word.file for word in words} == {"Über_uns/GESPRÄCH_1"}
    assert transcribe(bundle, tmp_path / "out", audio, "--max-failed", "0.8") == 0
    assert transcribe(bundle, tmp_path / "out", audio, "--max-failed", "0.7") == 1
    assert transcribe(bundle, tmp_path / "out", audio, "--max-failed", "7") == 2


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


def test_what_cannot_be_transcribed(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (wav := tmp_path / "x.wav").write_bytes(b"")  # what is wrong beside it is told first
    (other := tmp_path / "other.txt").write_text("y YES\n")
    (stm := tmp_path / "other.stm").write_text("y 1 y 0.00 1.00 YES\n")
    (twice := tmp_path / "twice.txt").write_text("x YES\nX NO\n")
    (right := tmp_path / "right.txt").write_text("x YES\n")
    for arguments, what in (
        ([bundle, tmp_path / "folder"], "no recording"),
        ([bundle, tmp_path / "nowhere.wav"], "no such file or folder"),
        ([tmp_path / "folder", tmp_path], "no bundle.json"),
        ([bundle, bundle, "--format", "txt"], "--format is of the files in OUT"),
        ([bundle, bundle, "--glm", "x"], "--glm is of the words of a reference"),
        ([bundle, wav, "--out", wav], f"{wav}: is a file, where a folder is needed"),
        ([bundle, wav, "--out", wav / "texts"], f"{wav}: is a file, where a folder is needed"),
        ([bundle, wav, "--reference", other], "has none of the recordings (x)"),
        ([bundle, wav, "--reference", stm], f"{stm}: has none of the recordings (x)"),
        ([bundle, wav, "--reference", twice], f"{twice}:2: X is there twice"),
        ([bundle, wav, "--reference", right, "--glm", tmp_path / "g"], "no such file"),
    ):
        assert cli.main(["transcribe", *map(str, arguments)]) == 2
        told = capsys.readouterr().err
        assert what in told and told.count("\n") == 1


def test_every_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    for name in ("a/x.wav", "b/x.wav", "b/x.flac", "b/X 1.wav", "b/x_1.WAV", "c/y.mp3", "c/n.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    def names(*given: str) -> list[str]:
        return [source.name for source in find([tmp_path / name for name in given])]

    assert names("c/y.mp3", "c") == ["y"]
    assert names("c/n.txt") == ["n"]  # named, it is tried
    whole = names(".")
    assert {"a/x", "b/x.wav", "b/x.flac", "c/y"} <= set(whole) and len(whole) == 6
    apart = names("a", "b", "c")
    keys = ["_".join(name.lower().split()) for name in apart]
    assert len(set(keys)) == len(keys) == 6
    assert names("a/x.wav", "b/x.wav") == ["a/x.wav", "b/x.wav"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no recording"):
        find([tmp_path / "empty"])
    (tmp_path / ";;x.wav").touch()
    with pytest.raises(UserError, match=r";;x\.wav: lines of CTM files .* are comments"):
        find([tmp_path / ";;x.wav"])


def test_a_transcript_of_a_long_name(tmp_path: Path) -> None:
    """With an ending more the name would be longer than a file's may be."""
    name = "\u00e9" * 125 + "x"  # 251 bytes
    found = Transcript(name=f"calls/{name}", seconds=1.0, channels=("1",), segments=())
    write(found, tmp_path, ["json", "TextGrid"])
    written = sorted((tmp_path / "calls").iterdir())
    assert [path.suffix for path in written] == [".TextGrid", ".json"]
    assert all(path.name.startswith("\u00e9" * 80) for path in written)


def test_speech_is_cut_at_silences() -> None:
    """By levels in decibels: quiet at -60 dB, speech that swings between -35 and -15 dB."""
    rng = np.random.default_rng(2)

    def quiet(seconds: float) -> np.ndarray:
        return -60 + rng.standard_normal(round(100 * seconds))

    def spoken(seconds: float) -> np.ndarray:
        time = np.arange(round(100 * seconds))
        return -25 + 10 * np.sin(2 * np.pi * time / 25) + rng.standard_normal(len(time))

    parts = [quiet(2), spoken(3), quiet(0.3), spoken(2), quiet(1.2), spoken(1), quiet(5)]
    levels = np.concatenate(parts).astype(np.float32)
    found = speech(levels)
    assert len(found) == 2  # a short pause is none
    for (begin, end), (first, last) in zip(found, [(200, 730), (850, 950)], strict=True):
        assert 10 <= first - begin <= 35 and 10 <= end - last <= 35
    # 70 s without pause are cut, where it is quiet, and nothing is lost
    long = spoken(70)
    long[1500:1515] = -45
    cut = speech(np.concatenate([quiet(3), long, quiet(3)]).astype(np.float32))
    assert all(end - begin <= 2000 for begin, end in cut) and len(cut) >= 4
    assert all(a[1] == b[0] for a, b in pairwise(cut))
    assert 1800 <= cut[0][1] <= 1815
    for nothing in (np.zeros(0), np.full(500, -100.0), quiet(30), np.full(5, -20.0)):
        assert speech(nothing.astype(np.float32)) == []


@pytest.mark.parametrize(("rate", "new"), [(44100, 8000), (8000, 16000), (11025, 8000)])
def test_blocks_are_resampled_as_the_whole(rate: int, new: int) -> None:
    rng = np.random.default_rng(3)
    samples = rng.standard_normal((rate * 2 + 17, 2)).astype(np.float32)
    expected = np.stack(
        [resample(samples[:, i], rate=rate, new_rate=new) for i in range(2)], axis=1
    )
    resampler = Resampler(rate=rate, new_rate=new, channels=2)
    bounds = [0, 1, 700, 701, 30_000, 30_000, len(samples)]
    blocks = [resampler.push(samples[a:b]) for a, b in pairwise(bounds)]
    found = np.concatenate([*blocks, resampler.finish()])
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


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


def test_memory_does_not_grow_with_a_recording(tmp_path: Path) -> None:
    """Ten minutes, of which all samples together would take 37 MiB, and twice that at work."""
    file = tmp_path / "long.wav"
    block = np.zeros(60 * 16000, np.int16)
    with soundfile.SoundFile(file, "w", 16000, 1) as sink:
        for _ in range(10):
            sink.write(block)
    tracemalloc.start()
    apart = take_apart(file, folder=tmp_path / "apart", rate=RATE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert apart.seconds == 600 and len(apart.channels[0].levels) == 60_000
    assert peak < 16 * 2**20


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
