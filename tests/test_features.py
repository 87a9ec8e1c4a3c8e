"""Features against Kaldi's golden data, kaldi-native-fbank, and plain loops."""

from __future__ import annotations

from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config.features import Features, Logmel
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.errors import UserError
from hadpsgd.features import cmvn
from hadpsgd.features.deltas import add_deltas, delta_filters
from hadpsgd.features.extract import EXTRACTORS, pieces
from hadpsgd.features.splice import read_splice_opts, splice

RNG = np.random.default_rng(7)


def noise(seconds: float, rate: int = 8000, seed: int = 3) -> np.ndarray:
    """Coloured noise in the range of int16."""
    white = np.random.default_rng(seed).normal(size=int(seconds * rate))
    return (2000 * np.convolve(white, [1, 0.8, 0.3], "same")).astype(np.float32)


def native(kind: str, samples: np.ndarray, config: Features) -> np.ndarray:
    """The same features by kaldi-native-fbank's own pipeline."""
    options = knf.FbankOptions() if kind == "logmel" else knf.MfccOptions()
    options.frame_opts.samp_freq = config.sample_rate
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = config.logmel.bins if kind == "logmel" else config.mfcc.bins
    options.mel_opts.low_freq = config.logmel.low_hz if kind == "logmel" else 20
    options.mel_opts.high_freq = config.logmel.high_hz if kind == "logmel" else 0
    if kind == "mfcc":
        options.use_energy = False
        options.num_ceps = config.mfcc.cepstra
    online = (knf.OnlineFbank if kind == "logmel" else knf.OnlineMfcc)(options)
    online.accept_waveform(config.sample_rate, samples.tolist())
    online.input_finished()
    return np.stack([online.get_frame(i) for i in range(online.num_frames_ready)])


def test_tasks_of_long_recordings_are_short(tmp_path: Path) -> None:
    """What waits to be written goes by seconds, not by utterances."""

    def cut(recording: str, count: int, seconds: float) -> list[Utterance]:
        starts = [seconds * number for number in range(count)]
        names = [f"{recording}-{number:04d}" for number in range(count)]
        return [
            Utterance(id=name, speaker="s", recording=recording, start=start, end=start + seconds)
            for name, start in zip(names, starts, strict=True)
        ]

    whole = [Utterance(id=f"w{number:03d}", speaker="s", recording=f"w{number:03d}")
             for number in range(40)]  # fmt: skip
    every = [*cut("long", 400, 20.0), *cut("short", 300, 0.5), *whole]
    data = DataDir(tmp_path, {utterance.id: utterance for utterance in every}, {})
    found = list(pieces(data))
    assert [utterance for piece in found for utterance in piece] == list(data)
    seconds = [sum((u.end or 0.0) - u.start for u in piece) for piece in found]
    assert max(seconds) < 320 and max(map(len, found)) <= 256
    longest = [piece for piece in found if piece[0].recording == "long"]
    assert len(longest) == 27


@pytest.mark.parametrize(("stream", "name"), [("logmel", "fbank40"), ("mfcc", "mfcc13")])
def test_command_equals_kaldi(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str, name: str
) -> None:
    folder = shared.resolve() / "kaldi_an4"
    monkeypatch.chdir(folder)
    (tmp_path / "c.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    out = tmp_path / "feats"
    arguments = ["--config", str(tmp_path / "c.yaml"), "--stream", stream, "--out", str(out)]
    assert main(["features", *arguments, "--data", "data/test"]) == 0
    golden = dict(kaldi_io.iterate(f"golden/{name}_test.ark.gz"))
    found = dict(kaldi_io.iterate(out / "feats.scp"))
    assert list(found) == sorted(golden) and len(found) == 130
    for key, matrix in found.items():
        assert matrix.shape == golden[key].shape
        assert np.abs(matrix - golden[key]).max() <= 1e-3
    frames = dict(line.split() for line in (out / "utt2num_frames").read_text().splitlines())
    assert {key: int(n) for key, n in frames.items()} == {k: len(m) for k, m in golden.items()}
    if stream == "mfcc":  # Kaldi's own statistics, made from compressed features
        kaldi = dict(kaldi_io.iterate("mfcc/cmvn_test.ark"))
        for speaker, stats in kaldi_io.iterate(out / "cmvn.scp"):
            assert stats.dtype == np.float64
            assert stats[0, -1] == kaldi[speaker][0, -1]
            mean, expected = (s[0, :-1] / s[0, -1] for s in (stats, kaldi[speaker]))
            np.testing.assert_allclose(mean, expected, atol=0.2)


@pytest.mark.parametrize("stream", ["logmel", "mfcc"])
@pytest.mark.parametrize(
    "config",
    [
        Features(),
        Features(sample_rate=16000, logmel=Logmel(bins=80, low_hz=40, high_hz=-400)),
        Features(sample_rate=11025),
    ],
)
def test_features_equal_kaldi_native_fbank(stream: str, config: Features) -> None:
    samples = noise(3.0, config.sample_rate)
    found = EXTRACTORS[stream](config)(samples)
    expected = native(stream, samples, config)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (199, 0), (200, 1), (279, 1), (280, 2)])
def test_windows_that_do_not_fit_are_left_out(samples: int, frames: int) -> None:
    assert EXTRACTORS["logmel"](Features())(noise(1)[:samples]).shape == (frames, 40)


@pytest.mark.parametrize("offset", [0.0, 7.0, 4030.464])  # the mean of the last is not exact
@pytest.mark.parametrize("kind", EXTRACTORS)
def test_digital_silence_is_as_if_dithered(kind: str, offset: float) -> None:
    """Windows in which nothing is; all others are as they were."""
    samples = noise(1.0)
    samples[2000:4000] = offset
    extract = EXTRACTORS[kind](Features())
    found, dithered = extract(samples, "a"), EXTRACTORS[kind](Features(dither=1.0))(samples, "a")
    inside = slice(25, 48)
    assert np.isfinite(found).all()
    spread = dithered[inside].std(0)
    assert (np.abs(found[inside].mean(0) - dithered[inside].mean(0)) < 1.5 * spread).all()
    assert len(np.unique(found[inside], axis=0)) == 23
    np.testing.assert_array_equal(found, extract(samples, "a"))
    assert not np.array_equal(found[inside], extract(samples, "b")[inside])
    # the seed is in no key of features without dither
    np.testing.assert_array_equal(found, EXTRACTORS[kind](Features(), seed=5)(samples, "a"))
    np.testing.assert_allclose(found[:23], extract(samples[:2000], "b"), atol=1e-4)
    np.testing.assert_allclose(found[50:], native(kind, samples, Features())[50:], atol=1e-3)


def test_dither_depends_on_seed_and_utterance_alone() -> None:
    config, samples = Features(dither=1.0), noise(0.5)
    first = EXTRACTORS["logmel"](config, seed=1)
    np.testing.assert_array_equal(first(samples, "a"), first(samples, "a"))
    assert not np.array_equal(first(samples, "a"), first(samples, "b"))
    other = EXTRACTORS["logmel"](config, seed=2)
    assert not np.array_equal(first(samples, "a"), other(samples, "a"))
    # dither of one unit under noise of thousands changes little
    np.testing.assert_allclose(first(samples, "a"), native("logmel", samples, config), atol=0.3)


def test_impossible_filterbanks_are_refused() -> None:
    for options in (Logmel(low_hz=3000, high_hz=2000), Logmel(high_hz=5000), Logmel(bins=128)):
        with pytest.raises(UserError, match="mel"):
            EXTRACTORS["logmel"](Features(logmel=options))


def kaldi_deltas(features: np.ndarray, order: int, window: int) -> np.ndarray:
    """DeltaFeatures::Process, one frame and one tap at a time."""
    scales = [np.ones(1)]
    for _ in range(order):
        previous = scales[-1]
        norm = sum(j * j for j in range(-window, window + 1))
        taps = np.zeros(len(previous) + 2 * window)
        for j in range(-window, window + 1):
            for k, value in enumerate(previous):
                taps[j + k + window] += j * value / norm
        scales.append(taps)
    out = np.zeros((len(features), (order + 1) * features.shape[1]))
    for frame in range(len(features)):
        for number, taps in enumerate(scales):
            reach = (len(taps) - 1) // 2
            block = slice(number * features.shape[1], (number + 1) * features.shape[1])
            for j in range(-reach, reach + 1):
                clamped = min(max(frame + j, 0), len(features) - 1)
                out[frame, block] += taps[j + reach] * features[clamped]
    return out


@given(st.integers(1, 14), st.integers(0, 3), st.integers(1, 3))
@settings(max_examples=30)
def test_deltas_are_kaldis(frames: int, order: int, window: int) -> None:
    features = RNG.normal(size=(frames, 3)).astype(np.float32)
    ours: np.ndarray = add_deltas(features, order=order, window=window)
    np.testing.assert_allclose(ours, kaldi_deltas(features, order, window), atol=1e-5)


def test_deltas_of_a_ramp() -> None:
    ramp = np.arange(20, dtype=np.float32)[:, None] * 0.5
    with_deltas = add_deltas(ramp)
    np.testing.assert_allclose(with_deltas[4:-4, 1], 0.5, rtol=1e-6)
    np.testing.assert_allclose(with_deltas[4:-4, 2], 0, atol=1e-6)
    assert [len(taps) for taps in delta_filters(order=2, window=2)] == [1, 5, 9]
    assert add_deltas(ramp[:0]).shape == (0, 3)


@given(st.integers(1, 9), st.integers(0, 4), st.integers(0, 4))
def test_splice_repeats_the_ends(frames: int, left: int, right: int) -> None:
    features = RNG.normal(size=(frames, 2)).astype(np.float32)
    expected = [
        np.concatenate([features[min(max(t + j, 0), frames - 1)] for j in range(-left, right + 1)])
        for t in range(frames)
    ]
    np.testing.assert_array_equal(splice(features, left, right), expected)


def test_options_of_kaldi_are_read(shared: Path, tmp_path: Path) -> None:
    assert read_splice_opts(shared / "kaldi_an4/exp/ivector/splice_opts") == (3, 3)
    assert cmvn.read_cmvn_opts(shared / "kaldi_an4/exp/tri3b_ali/cmvn_opts") == (True, False)
    (tmp_path / "opts").write_text("--norm-vars=true --norm-means=false\n")
    assert cmvn.read_cmvn_opts(tmp_path / "opts") == (False, True)
    with pytest.raises(UserError, match="norm-vars"):
        read_splice_opts(tmp_path / "opts")
    with pytest.raises(UserError, match="no such file"):
        cmvn.read_cmvn_opts(tmp_path / "none")


def test_cmvn_is_per_speaker_and_streams() -> None:
    parts = {name: RNG.normal(3, 2, size=(n, 4)).astype(np.float32) for name, n in
             [("a1", 5), ("a2", 9), ("b1", 7)]}  # fmt: skip
    sums = cmvn.SpeakerStatistics({"a1": "a", "a2": "a", "b1": "b"})
    for name, features in parts.items():
        sums.add(name, features)
    stats = dict(sums.items())
    both = np.concatenate([parts["a1"], parts["a2"]])
    normal = cmvn.apply(both, stats["a"])
    np.testing.assert_allclose(normal, both - both.mean(axis=0), atol=1e-5)
    unit = cmvn.apply(both, stats["a"], variances=True)
    np.testing.assert_allclose(unit.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(unit.std(axis=0), 1, atol=1e-5)
    with pytest.raises(UserError, match="4 dimensions for features of 3"):
        cmvn.apply(both[:, :3], stats["a"])
    with pytest.raises(UserError, match="utterance c1 has no speaker"):
        sums.add("c1", both)


@pytest.mark.parametrize("means", [True, False])
@pytest.mark.parametrize("variances", [True, False])
def test_cmvn_is_its_definition(means: bool, variances: bool) -> None:
    features = RNG.normal([3, -2, 0.5], [2, 0.1, 7], size=(40, 3)).astype(np.float32)
    double = features.astype(np.float64)
    expected = double - double.mean(axis=0) * means
    expected = expected / double.std(axis=0) if variances else expected
    found = cmvn.apply(features, cmvn.statistics(features), means=means, variances=variances)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


class TestBadInput:
    """Every fault is one line that names the utterance, and nothing is left behind."""

    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        data = tmp_path / "data"
        data.mkdir()
        for name in ("s-1", "s-2"):
            soundfile.write(data / f"{name}.wav", noise(1.0) / 32768, 8000, subtype="PCM_16")
        scp = "".join(f"{n} {data / n}.wav\n" for n in ("s-1", "s-2"))
        (data / "wav.scp").write_text(scp)
        (data / "utt2spk").write_text("s-1 s\ns-2 s\n")
        (data / "spk2utt").write_text("s s-1 s-2\n")
        (tmp_path / "c.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
        return data

    def run(self, data: Path, capsys: pytest.CaptureFixture[str], jobs: int = 1) -> str:
        base = data.parent
        arguments = ["--config", f"{base}/c.yaml", "--stream", "logmel", "--jobs", str(jobs)]
        status = main(["features", *arguments, "--data", str(data), "--out", str(base / "out")])
        error = capsys.readouterr().err
        if status:
            assert "Traceback" not in error
            assert not any(base.glob("out/*feats*"))
        return error if status else ""

    def test_good(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(data, capsys) == ""

    def test_missing_wav(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (data / "s-2.wav").unlink()
        for jobs in (1, 2):
            assert "s-2" in self.run(data, capsys, jobs)

    def test_truncated_wav(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        wav = (data / "s-2.wav").read_bytes()
        (data / "s-2.wav").write_bytes(wav[:5000])
        error = self.run(data, capsys)
        assert "s-2" in error and "truncated" in error

    def test_silence_is_named(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Digital silence, and a constant that some recorders write in its place."""
        for value in (0, 7):
            silent = np.full(8000, value, dtype=np.int16)
            soundfile.write(data / "s-2.wav", silent, 8000, subtype="PCM_16")
            assert self.run(data, capsys) == ""
        arguments = ["--config", f"{data.parent}/c.yaml", "--stream", "logmel"]
        main(["features", *arguments, "--data", str(data), "--out", f"{data.parent}/out"])
        told = f"warning: {data}: 1 of 2 utterances hold no sound: s-2"
        assert told in capsys.readouterr().err

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_samples_that_are_no_numbers(
        self, data: Path, capsys: pytest.CaptureFixture[str], value: float
    ) -> None:
        samples = noise(1.0) / 32768
        samples[1234] = value
        soundfile.write(data / "s-2.wav", samples, 8000, subtype="FLOAT")
        error = self.run(data, capsys)
        assert "s-2.wav: sample 1234 is not a finite number" in error

    def test_wrong_rate(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        soundfile.write(data / "s-1.wav", noise(1.0) / 32768, 16000, subtype="PCM_16")
        error = self.run(data, capsys)
        assert "s-1" in error and "16000" in error

    def test_too_short(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        soundfile.write(data / "s-1.wav", noise(0.02) / 32768, 8000, subtype="PCM_16")
        error = self.run(data, capsys)
        assert "s-1" in error and "1 of 2" in error
        (data.parent / "c.yaml").write_text(
            "name: t\ncorpus: {kind: an4}\nfeatures: {max_skipped: 0.5}\n"
        )
        assert self.run(data, capsys) == ""
        assert list(kaldi_io.read_scp(data.parent / "out/feats.scp")) == ["s-2"]
