"""Noisy copies of training speech: noise, rooms, what a data directory says, examples of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from corpus_data import RATE, make_data, replace_line, tone
from gmm_toy import toy
from scipy.signal import butter, lfilter, welch

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config import load, stage_keys
from hadpsgd.config.noise import Noise
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.names import original
from hadpsgd.corpus.noise import noises, rooms
from hadpsgd.corpus.noise.mixture import Mixture, in_room, with_noise
from hadpsgd.corpus.perturb import Source, perturb
from hadpsgd.corpus.resample import to_int16
from hadpsgd.egs.dataset import Dataset
from hadpsgd.errors import UserError
from hadpsgd.gmm import model
from hadpsgd.sources import Digests


def decay(response: np.ndarray, rate: int) -> float:
    """T60 by Schroeder's integral, from the line through -5 to -35 dB (ISO 3382's T30)."""
    left = np.array([np.sum(response[i:] ** 2) for i in range(len(response))])
    level = 10 * np.log10(left / left[0])
    between = (level < -5) & (level > -35)
    seconds = np.arange(len(level))[between] / rate
    (_, slope), *_ = np.linalg.lstsq(np.stack([seconds**0, seconds], 1), level[between])
    return -60 / slope


class TestRooms:
    def test_images_are_those_of_the_definition(self) -> None:
        """Every image within 25 ms, by Allen & Berkley's equation 10, one at a time."""
        room = rooms.Room(*map(np.array, ([4.0, 3.1, 2.5], [1.2, 1.0, 1.5], [2.5, 2.2, 1.1])))
        samples, rate, reflection = 200, 8000, 0.8
        wanted, first = np.zeros(samples), np.linalg.norm(room.talker - room.microphone)
        for mirrored in product((0, 1), repeat=3):
            for away in product(range(-3, 4), repeat=3):
                p, r = np.array(mirrored), np.array(away)
                image = (1 - 2 * p) * room.talker + 2 * r * room.size
                distance = np.linalg.norm(image - room.microphone)
                delay = round((distance - first) / 343.0 * rate)
                times = int(np.abs(r - p).sum() + np.abs(r).sum())
                if 0 < delay < samples:
                    wanted[delay] += reflection**times * first / distance
        wanted = lfilter(*butter(2, 80 / (rate / 2), "highpass"), wanted)
        wanted[0] += 1
        found = rooms.Images(room, samples=samples, rate=rate).response(reflection)
        np.testing.assert_allclose(found, wanted, atol=1e-9)

    @pytest.mark.parametrize(
        ("t60", "rate"), [(0.2, 8000), (0.35, 16000), (0.5, 8000), (0.8, 8000), (1.0, 8000)]
    )
    def test_energy_decays_in_the_time_asked_for(self, t60: float, rate: int) -> None:
        for seed in range(3):
            room = rooms.drawn(np.random.default_rng([seed, round(100 * t60)]))
            found = rooms.response(room, t60=t60, rate=rate)
            assert decay(found, rate) == pytest.approx(t60, rel=0.2)
            assert found[0] == np.abs(found).max() == 1.0

    def test_talkers_stand_in_the_room(self) -> None:
        for seed in range(50):
            room = rooms.drawn(np.random.default_rng(seed))
            for place in (room.talker, room.microphone):
                assert (place >= 0.5).all() and (place <= room.size - 0.5).all()
            assert 0.3 <= np.linalg.norm(room.talker - room.microphone) <= 2.0

    def test_without_walls_nothing_changes(self) -> None:
        response = rooms.response(rooms.drawn(np.random.default_rng(1)), t60=0.0, rate=RATE)
        np.testing.assert_array_equal(response, [1.0])
        speech = np.random.default_rng(2).normal(size=500)
        np.testing.assert_allclose(in_room(speech, response), speech, atol=1e-12)

    def test_speech_stays_in_its_place_and_as_loud(self) -> None:
        rng = np.random.default_rng(3)
        speech = rng.normal(size=4000)
        heard = in_room(speech, rooms.response(rooms.drawn(rng), t60=0.5, rate=RATE))
        assert heard.shape == speech.shape and heard.var() == pytest.approx(speech.var())
        together = np.correlate(heard, speech, "full")
        assert np.abs(together).argmax() == len(speech) - 1  # no delay


class TestNoise:
    @pytest.mark.parametrize("snr", [-5.0, 0.0, 12.5, 40.0])
    def test_the_ratio_is_that_asked_for(self, snr: float) -> None:
        rng = np.random.default_rng(0)
        speech = rng.normal(50, 700, size=6000)
        noise = with_noise(speech, rng.normal(-9, 31, 6000), snr=snr) - speech
        assert 10 * np.log10(speech.var() / noise.var()) == pytest.approx(snr, abs=1e-6)
        assert abs(noise.mean()) < 1e-6

    def test_silence_has_no_ratio(self) -> None:
        silence, noise = np.zeros(100), np.arange(100.0)
        np.testing.assert_array_equal(with_noise(silence, noise, snr=5.0), silence)
        np.testing.assert_array_equal(with_noise(noise, silence, snr=5.0), noise)

    def speech(self, folder: Path, samples: np.ndarray) -> noises.Speech:
        """Of a recording that holds these."""
        data = make_data(folder)
        both = np.stack([samples, tone(len(samples) / RATE, 880, 2000)], axis=1)
        soundfile.write(folder / "audio/call.wav", both, RATE, subtype="PCM_16")
        return noises.Speech(AudioReader(DataDir.read(data), RATE))

    def test_steady_noise_has_the_spectrum_of_speech_tilted(self, tmp_path: Path) -> None:
        white = np.random.default_rng(1).normal(0, 3000, 10 * RATE)
        speech = self.speech(tmp_path, to_int16(lfilter([1], [1, -1.2, 0.8], white)))
        for name in ("bob-1", "bob-2"):  # tones
            del speech.reader.data.utterances[name]
        seen = []
        for seed in range(4):
            found = noises.shaped(np.random.default_rng(seed), speech)
            assert len(found) == 20 * RATE and found.std() == pytest.approx(1000)
            hertz, power = welch(found, RATE, nperseg=256)
            wanted = -20 * np.log10(
                np.abs(np.polyval([0.8, -1.2, 1], np.exp(-2j * np.pi * hertz / RATE)))
            )
            inner = slice(4, -4)
            octaves = np.log2(hertz[inner])
            more = (10 * np.log10(power) - wanted)[inner]
            line = np.polyfit(octaves, more, 1)
            assert np.std(more - np.polyval(line, octaves)) < 1.0  # dB
            assert abs(line[0]) < 6.3
            seen.append(line[0])
        assert max(seen) - min(seen) > 2

    def test_all_talk_equally_loud_in_babble(self, tmp_path: Path) -> None:
        speech = self.speech(tmp_path, tone(10, 440, 8000))
        found = noises.babble(np.random.default_rng(5), speech)
        hertz, power = welch(found, RATE, nperseg=8000)
        low, high = (power[np.abs(hertz - tone) < 20].sum() for tone in (440, 880))
        assert low == pytest.approx(high, rel=0.05) and low + high > 0.95 * power.sum()


ALONE: dict[str, Any] = {"rooms": 0.0, "volume": [1.0, 1.0]}


def made(folder: Path, jobs: int = 1, **settings: object) -> tuple[DataDir, DataDir]:
    """The original and its noisy copies."""
    data = DataDir.read(folder / "data/train") if (folder / "data").exists() else None
    data = data or DataDir.read(make_data(folder))
    noise, out = Noise.model_validate(settings), folder / "data/train_perturbed"
    perturb(Source(data=data, speeds=[1.0], rate=RATE, noise=noise, seed=7), out, jobs)
    return data, DataDir.read(out)


def heard(data: DataDir) -> dict[str, np.ndarray]:
    with AudioReader(data, RATE) as reader:
        return {utterance.id: reader.read(utterance).astype(np.float64) for utterance in data}


class TestCopies:
    def test_what_is_heard_is_what_the_table_says(self, tmp_path: Path) -> None:
        """The noise lies so many dB below the speech, over each utterance."""
        data, copies = made(tmp_path, copies=2, **ALONE, snr=[3, 9])
        clean, noisy = heard(data), heard(copies)
        assert len(noisy) == 8
        for name, samples in noisy.items():
            speech, told = clean[original(name)], copies.mixtures[name]
            ratio = 10 * np.log10(speech.var() / (samples - speech).var())
            assert ratio == pytest.approx(told.snr, abs=0.1) and 3 <= ratio <= 9.01
        assert not np.array_equal(noisy["noise1-ann-1"], noisy["noise2-ann-1"])

    def test_rooms_and_volumes_alone(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"rooms": 1.0, "t60": [0.4, 0.4], "volume": [0.25, 0.5]}
        data, copies = made(tmp_path, copies=1, sources=[], **settings)
        clean, noisy = heard(data), heard(copies)
        for name, samples in noisy.items():
            told = copies.mixtures[name]
            assert told.room and not told.noise and 0.25 <= told.volume <= 0.5
            loudness = samples.std() / clean[original(name)].std()
            assert loudness == pytest.approx(told.volume, rel=1e-3)
            response, rate = soundfile.read(told.room)
            assert decay(response, rate) == pytest.approx(0.4, rel=0.2)
            assert np.abs(response).argmax() == 0

    def test_the_data_directory(self, tmp_path: Path) -> None:
        """Tables as those of other copies; no speech is written again; all may be moved."""
        data, copies = made(tmp_path, copies=1, rooms=0.9)
        assert list(copies.utterances) == [f"noise1-{name}" for name in data.utterances]
        one = copies.utterances["noise1-ann-1"]
        assert (one.speaker, one.recording, one.text) == (
            "noise1-ann",
            "noise1-call-A",
            "hello bob",
        )
        assert (one.start, one.end) == (0.5, 2.25) and copies.gender["noise1-bob"] == "m"
        assert copies.utterances["noise1-bob-2"].channel == 1
        rows = (copies.path / "utt2uniq").read_text().splitlines()
        assert rows[0] == "noise1-ann-1 ann-1" and len(rows) == 4
        assert "noise1-call-A audio/call.wav" in (copies.path / "wav.scp").read_text()
        files = {path.name for path in (tmp_path / "audio/train_perturbed").glob("*.wav")}
        drawn = {(m.room, m.noise) for m in copies.mixtures.values()}
        assert files == {Path(path).name for both in drawn for path in both if path}
        assert {name.split("-")[0] for name in files} <= {"room", "shaped", "babble"}
        assert main(["validate", str(copies.path)]) == 0
        before = heard(copies)
        (tmp_path / "data").rename(tmp_path / "here")
        (tmp_path / "moved").mkdir()
        for name in ("here", "audio"):
            (tmp_path / name).rename(tmp_path / "moved" / name)
        after = heard(DataDir.read(tmp_path / "moved/here/train_perturbed"))
        assert all(np.array_equal(before[name], after[name]) for name in before)

    def test_recordings_may_come_from_commands(self, tmp_path: Path) -> None:
        path, out = make_data(tmp_path), tmp_path / "data/train_perturbed"
        for name in ("call-A", "call-B"):
            piped = f"{name} cat {tmp_path}/audio/call.wav |"
            replace_line(path / "wav.scp", f"{name} audio/call.wav", piped)
        noise = Noise(copies=1, sources=["babble"])
        source = Source(data=DataDir.read(path), speeds=[1.0], rate=RATE, noise=noise)
        with pytest.raises(UserError, match=r"a command in wav\.scp is not run"):
            perturb(source, out, 1)
        perturb(replace(source, allow_pipes=True), out, 1)
        copies = DataDir.read(out)
        with AudioReader(copies, RATE, allow_pipes=True) as reader:
            assert all(reader.read(utterance).any() for utterance in copies)

    def test_seed_and_name_decide_all(self, tmp_path: Path) -> None:
        """Any number of processes; utterances more or less."""
        _, copies = made(tmp_path / "one", copies=2)
        made(tmp_path / "two", jobs=2, copies=2)
        for folder in ("data", "audio"):
            mine, theirs = (
                {
                    path.name: path.read_bytes()
                    for path in (tmp_path / place / folder / "train_perturbed").iterdir()
                }
                for place in ("one", "two")
            )
            assert mine == theirs
        few = tmp_path / "few/data/train"
        make_data(tmp_path / "few")
        for table in ("segments", "text", "utt2spk"):
            lines = (few / table).read_text().splitlines()
            replace_line(few / table, next(x for x in lines if x.startswith("bob-1")), None)
        replace_line(few / "spk2utt", "bob bob-1 bob-2", "bob bob-2")
        _, fewer = made(tmp_path / "few", copies=2)
        drawn = {name: mixture.line() for name, mixture in relative(fewer).items()}
        assert drawn == {name: relative(copies)[name].line() for name in fewer.utterances}

    def test_what_is_no_mixture_is_told(self, tmp_path: Path) -> None:
        _, copies = made(tmp_path, copies=1, sources=["shaped"])
        line = (
            "noise1-ann-1 " + (copies.path / "mixtures").read_text().split(" ", 1)[1].split("\n")[0]
        )
        replace_line(copies.path / "mixtures", line, "noise1-ann-1 room")
        with pytest.raises(UserError, match="noise1-ann-1: bad mixture 'room'"):
            DataDir.read(copies.path)
        replace_line(
            copies.path / "mixtures", "noise1-ann-1 room", "noise1-ann-1 noise=audio/gone.wav"
        )
        with pytest.raises(UserError, match=r"gone\.wav: missing audio file"):
            heard(DataDir.read(copies.path))


def relative(data: DataDir) -> dict[str, Mixture]:
    """Mixtures as the table has them."""
    rows = (line.split(" ", 1) for line in (data.path / "mixtures").read_text().splitlines())
    return {name: Mixture.parse(line, "") for name, line in rows}


class TestOwnFiles:
    def test_they_are_resampled_and_go_round(self, tmp_path: Path) -> None:
        """Half a second of 1,000 Hz at 16 kHz in two channels, then a long silence, which is
        passed over."""
        seconds = np.arange(8000) / 16000
        wave = np.concatenate([9000 * np.sin(2 * np.pi * 1000 * seconds), np.zeros(160000)])
        (tmp_path / "mine/deeper").mkdir(parents=True)
        both = np.stack([to_int16(wave)] * 2, axis=1)
        soundfile.write(tmp_path / "mine/deeper/hum.flac", both, 16000)
        own: dict[str, Any] = {"sources": [], "files": str(tmp_path / "mine")}
        data, copies = made(tmp_path / "x", copies=3, **ALONE, **own, snr=[0, 0])
        clean, noisy = heard(data), heard(copies)
        for name, samples in noisy.items():
            noise = samples - clean[original(name)]
            assert noise.var() == pytest.approx(clean[original(name)].var(), rel=0.02)
            spectrum = np.abs(np.fft.rfft(noise * np.hanning(len(noise))))
            assert spectrum.argmax() * RATE / len(noise) == pytest.approx(1000, abs=6)

    def test_bad_ones_are_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data, own, config = make_data(tmp_path), tmp_path / "own", tmp_path / "c.yaml"
        out = tmp_path / "data/out"
        config.write_text(
            f"{{name: t, corpus: {{kind: an4, noise: {{copies: 1, sources: [], files: {own}}}}}}}"
        )

        def refused() -> str:
            arguments = ["--config", str(config), "--data", str(data), "--out", str(out)]
            assert main(["perturb", *arguments]) == 2 and not out.exists()
            (line,) = capsys.readouterr().err.splitlines()[-1:]
            return line

        assert f"{own}: no such folder of noise. Correct corpus.noise.files" in refused()
        own.mkdir()
        assert f"{own}: no noise in the folder (.flac, .ogg, .sph, .wav)" in refused()
        (own / "a.wav").write_text("no sound")
        assert f"{own}/a.wav: " in (said := refused()) and "not readable as audio" in said
        soundfile.write(own / "a.wav", np.zeros(8000, np.int16), RATE)
        assert f"{own}/a.wav: a recording of noise in which all is silent" in refused()
        soundfile.write(own / "a.wav", tone(1.0, 300), RATE)
        arguments = ["--config", str(config), "--data", str(data), "--out", str(out)]
        assert main(["perturb", *arguments]) == 0

    def test_their_content_counts(self, tmp_path: Path) -> None:
        """What is made of them is made again when one changes, comes or goes."""
        own, config = tmp_path / "own", tmp_path / "c.yaml"
        config.write_text(f"{{name: t, corpus: {{kind: an4, noise: {{copies: 1, files: {own}}}}}}}")

        def digest() -> str:
            return Digests(load(config), out=tmp_path)("perturb")

        seen = [digest()]
        own.mkdir()
        for name, hertz in (("a.wav", 200), ("b.wav", 300), ("a.wav", 400)):
            soundfile.write(own / name, tone(0.5, hertz), RATE)
            seen.append(digest())
        assert len(set(seen)) == 4


def test_only_what_is_trained_on_depends_on_noise(tmp_path: Path) -> None:
    """Nor does a config without copies: results made before are not made again."""

    def fingerprints(noise: str) -> dict[str, str]:
        path = tmp_path / "c.yaml"
        path.write_text(f"{{name: t, corpus: {{kind: an4, noise: {noise}}}}}")
        return stage_keys(load(path))

    one, other = fingerprints("{}"), fingerprints("{copies: 1}")
    assert {stage for stage in one if one[stage] != other[stage]} == {"perturb", "egs.train"}
    assert fingerprints("{snr: [0, 3], rooms: 1}") == one


def test_examples_of_noisy_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From audio to examples by the commands: features of the copies with the labels of the
    originals, beside those of another speed."""
    data, copies = make_data(tmp_path), tmp_path / "data/train_perturbed"
    (tmp_path / "c.yaml").write_text(
        "{name: t, corpus: {kind: an4, speeds: [0.9, 1.0], noise: {copies: 2}}, egs: {frames: 5},"
        " features: {logmel: {bins: 8, delta_order: 0}, normalise: none}}"
    )
    common = ["--config", f"{tmp_path}/c.yaml", "--jobs", "1"]
    assert main(["perturb", *common, "--data", str(data), "--out", str(copies)]) == 0
    for part in (data, copies):
        arguments = ["--stream", "logmel", "--data", str(part)]
        out = tmp_path / "feats/logmel" / part.name
        assert main(["features", *common, *arguments, "--out", str(out)]) == 0
    small = toy(np.zeros((3, 3, 1)))
    (tmp_path / "ali").mkdir()
    (tmp_path / "ali/final.mdl").write_bytes(model.content(small.model))
    lengths = (tmp_path / "feats/logmel/train/utt2num_frames").read_text().split()
    number_of_ids = small.model.transitions.num_ids
    items = [
        (name, (np.arange(int(frames)) % number_of_ids + 1).astype(np.int32))
        for name, frames in zip(lengths[::2], lengths[1::2], strict=True)
    ]
    kaldi_io.write_archive(tmp_path / "ali/ali.1.gz", items)
    arguments = [*common, "--data", str(data), "--streams", f"{tmp_path}/feats"]
    arguments += ["--ali", f"{tmp_path}/ali", "--out", f"{tmp_path}/egs"]
    assert main(["egs", *arguments]) == 2
    assert "corpus.speeds or corpus.noise asks for copies" in capsys.readouterr().err
    assert main(["egs", *arguments, "--perturbed", str(copies)]) == 0
    found = Dataset(tmp_path / "egs")
    x, y = found.gather(np.arange(len(found)))
    copied = kaldi_io.Scp(tmp_path / "feats/logmel/train_perturbed/feats.scp")
    there = {(features.tobytes(), labels.tobytes()) for features, labels in zip(x, y, strict=True)}
    pdf = small.model.transitions.pdf
    expected = 0
    for name, ids in items:
        for number in (1, 2):
            rows = copied[f"noise{number}-{name}"]
            for first in range(0, len(ids) - 4, 5):
                frames = slice(first, first + 5)
                assert (
                    rows[frames].tobytes(),
                    pdf[ids[frames]].astype(np.int32).tobytes(),
                ) in there
                expected += 1
    assert expected > 50 and len(found) > 3 * expected // 2
