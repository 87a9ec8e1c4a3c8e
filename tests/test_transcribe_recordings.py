"""Recordings that `hadpsgd transcribe` takes: of any kind, length and name, or none at all."""

from __future__ import annotations

import json
import re
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_bundle import RATE, Signal, transcribe

from hadpsgd import cli
from hadpsgd.corpus.resample import Resampler, resample
from hadpsgd.errors import UserError
from hadpsgd.scoring.formats import read_ctm
from hadpsgd.scoring.transcribe.channels import take_apart
from hadpsgd.scoring.transcribe.sources import find
from hadpsgd.scoring.transcribe.speech import speech


def said(out: Path, name: str) -> dict[str, str]:
    """Text of each channel of a transcribed recording."""
    found = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    texts: dict[str, list[str]] = {channel: [] for channel in found["channels"]}
    for segment in found["segments"]:
        texts[segment["channel"]] += segment["text"].split()
    return {channel: " ".join(words) for channel, words in texts.items()}


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
