"""Training speech at other speeds: audio, data directory, labels, and what falls back to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import RATE, make_data, replace_line, tone, write_lines
from gmm_toy import toy
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd import kaldi_io
from hadpsgd.alignment.archives import read_alignments
from hadpsgd.cli import main
from hadpsgd.config import load, stage_keys
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.names import original
from hadpsgd.corpus.perturb import Source, at_speed, perturb
from hadpsgd.egs.copies import labels_at
from hadpsgd.egs.dataset import Dataset
from hadpsgd.egs.tempo import Tempo
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import read_transforms, transform
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.fusion import Fusion
from hadpsgd.gmm import model
from hadpsgd.gmm.likelihood import log_likelihoods

SPEEDS = [0.9, 1.0, 1.1]


@pytest.mark.parametrize("speed", [0.9, 1.1, 1.25])
def test_a_sound_at_another_speed(speed: float) -> None:
    """x(speed * t) of a sum of sines, which is known without a filter."""
    length, tones = 8000, [(137.0, 3000.0, 0.1), (911.0, 2000.0, 1.0), (2503.0, 900.0, 2.0)]

    def sound(seconds: np.ndarray) -> np.ndarray:
        waves = (level * np.sin(2 * np.pi * hz * seconds + phase) for hz, level, phase in tones)
        return np.sum(list(waves), axis=0)

    found = at_speed(sound(np.arange(length) / RATE).astype(np.float32), speed)
    assert len(found) == int(np.ceil(length / speed)) and found.dtype == np.float32
    wanted = sound(np.arange(len(found)) * speed / RATE)
    inner = slice(300, -300)  # the filter has no sound to see beyond the ends
    assert np.abs(found - wanted)[inner].max() < 1.0  # of levels up to 5900


def test_what_a_faster_sound_cannot_hold_is_gone() -> None:
    """3,900 Hz become 4,290, beyond the Nyquist frequency: silence, no alias at 3,710."""
    tone = 5000 * np.sin(2 * np.pi * 3900 * np.arange(8000) / RATE)
    assert np.abs(at_speed(tone.astype(np.float32), 1.1)[300:-300]).max() < 5


def made(folder: Path) -> tuple[DataDir, DataDir]:
    data = DataDir.read(make_data(folder))
    perturb(Source(data=data, speeds=SPEEDS, rate=RATE), folder / "data/train_perturbed", 1)
    return data, DataDir.read(folder / "data/train_perturbed")


def test_the_data_directory_is_kaldis(tmp_path: Path) -> None:
    """Names, times and channels as perturb_data_dir_speed.sh makes them."""
    _, copies = made(tmp_path)
    assert list(copies.utterances) == [
        f"sp{speed}-{name}" for speed in (0.9, 1.1) for name in ("ann-1", "ann-2", "bob-1", "bob-2")
    ]
    one = copies.utterances["sp0.9-ann-1"]
    assert (one.speaker, one.recording, one.text) == ("sp0.9-ann", "sp0.9-call-A", "hello bob")
    assert (one.start, one.end) == (pytest.approx(0.5 / 0.9), pytest.approx(2.25 / 0.9))
    assert copies.gender["sp1.1-bob"] == "m" and copies.utterances["sp1.1-bob-2"].channel == 1
    assert copies.channels["sp1.1-call-B"] == ("call", "B")
    rows = (copies.path / "utt2uniq").read_text().splitlines()
    assert rows[0] == "sp0.9-ann-1 ann-1" and len(rows) == 8
    # the two sides of a call are one file at each speed
    assert len(list((tmp_path / "audio/train_perturbed").glob("*.wav"))) == 2
    with AudioReader(copies, RATE) as audio:
        for name, hertz, seconds in (
            ("sp0.9-ann-1", 396, 1.75 / 0.9),
            ("sp1.1-bob-1", 968, 1 / 1.1),
        ):
            samples = audio.read(copies.utterances[name])
            assert len(samples) == pytest.approx(seconds * RATE, abs=2)
            peak = np.abs(np.fft.rfft(samples * np.hanning(len(samples)))).argmax()
            assert peak * RATE / len(samples) == pytest.approx(hertz, abs=2)
    assert main(["validate", str(copies.path)]) == 0


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    """Recordings whose names are longer than those of files, and alike for as long."""
    path = make_data(tmp_path)
    soundfile.write(tmp_path / "other.wav", tone(10, 660), RATE)
    replace_line(path / "wav.scp", "call-B audio/call.wav", f"call-B {tmp_path}/other.wav")
    for table in ("wav.scp", "segments", "reco2file_and_channel"):
        text = (path / table).read_text().replace("call-", "call-" + 130 * "\u00e9")
        (path / table).write_text(text.replace("call B", "call A"))
    data = DataDir.read(path)
    perturb(Source(data=data, speeds=SPEEDS, rate=RATE), tmp_path / "data/out", 1)
    places = DataDir.read(tmp_path / "data/out").recordings.values()
    assert len(set(places)) == 4 and all(Path(place).is_file() for place in places)


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    data, _ = made(tmp_path)
    perturb(Source(data=data, speeds=SPEEDS, rate=RATE), tmp_path / "data/again", 2)
    for folder in ("data", "audio"):
        for path in (tmp_path / folder / "train_perturbed").iterdir():
            again = (tmp_path / folder / "again" / path.name).read_bytes()
            assert again.replace(b"/again/", b"/train_perturbed/") == path.read_bytes()


def test_what_cannot_be_perturbed_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_data(tmp_path)
    config, out = tmp_path / "c.yaml", tmp_path / "data/out"

    def refused(speeds: str = "[0.9, 1.0]", rate: int = RATE) -> str:
        corpus = f"{{kind: an4, speeds: {speeds}}}"
        config.write_text(f"{{name: t, corpus: {corpus}, features: {{sample_rate: {rate}}}}}")
        arguments = ["--config", str(config), "--data", str(path), "--out", str(out), "--jobs", "1"]
        assert main(["perturb", *arguments]) == 2 and not out.exists()
        return capsys.readouterr().err

    assert "no speed but 1 and no noisy copies. Set corpus.speeds" in refused("[1.0]")
    assert "1.0 must be among the speeds" in refused("[0.9, 1.1]")
    assert "'corpus.speeds.0'" in refused("[0.3, 1.0]") and "listed twice" in refused("[1.0, 1.0]")
    assert "two decimals at most" in refused("[0.905, 1.0]")
    assert "recording call-A: " in (said := refused(rate=16000)) and "8000 Hz" in said
    replace_line(path / "wav.scp", "call-B audio/call.wav", "call-B audio/gone.wav")
    assert "gone.wav: missing audio file" in refused()
    replace_line(path / "wav.scp", "call-B audio/gone.wav", "call-B audio/call.wav")
    for name in ("utt2spk", "text", "segments"):
        table = (path / name).read_text().replace("bob-2 ", "sp0.9-bob-2 ")
        (path / name).write_text(table)
    replace_line(path / "spk2utt", "bob bob-1 bob-2", "bob bob-1 sp0.9-bob-2")
    assert "'sp0.9-bob-2' is called like a copy already" in refused()


@given(st.integers(5, 300), st.sampled_from([0.5, 0.9, 1.1, 1.37, 2.0]))
def test_labels_are_those_of_the_same_moment(length: int, speed: float) -> None:
    frames = max(1, int((length + 1.5) / speed - 1.5))
    labels = np.arange(length, dtype=np.int32)
    found = labels_at(labels, speed=speed, frames=frames)
    moments = (10 * np.arange(frames) + 12.5) * speed  # ms: where a frame's centre was
    away = np.abs(10 * found + 12.5 - moments)
    inside = (moments >= 12.5) & (moments <= 10 * (length - 1) + 12.5)
    assert away[inside].max(initial=0) <= 5.0 + 1e-6
    assert (np.diff(found) >= 0).all() and 0 <= found[0] <= found[-1] < length
    with pytest.raises(UserError, match=rf"{frames + 5} frames at speed {speed:g}"):
        labels_at(labels, speed=speed, frames=frames + 5)


def examples(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Examples [n, frames, dim] and their labels side by side, in an order of their own."""
    flat = np.concatenate(
        [features.reshape(len(features), -1), labels.reshape(len(features), -1)], 1
    )
    return flat[np.lexsort(flat.T)]


class TestExamples:
    def prepared(self, folder: Path, tempos: Sequence[float] = (1.0,)) -> list[str]:
        """Data, features at all speeds, an alignment; arguments of `hadpsgd egs`."""
        made(folder)
        (folder / "c.yaml").write_text(
            "{name: t, corpus: {kind: an4, speeds: [0.9, 1.0, 1.1]},"
            f" egs: {{frames: 5, tempos: {list(tempos)}}},"
            " features: {logmel: {bins: 8, delta_order: 0}, normalise: none}}"
        )
        for name in ("train", "train_perturbed"):
            arguments = ["--config", str(folder / "c.yaml"), "--stream", "logmel", "--jobs", "1"]
            arguments += ["--data", str(folder / "data" / name)]
            assert main(["features", *arguments, "--out", str(folder / "feats/logmel" / name)]) == 0
        lengths = (folder / "feats/logmel/train/utt2num_frames").read_text().split()
        small = toy(np.zeros((3, 3, 1)))
        ids = small.model.transitions.num_ids
        (folder / "ali").mkdir()
        (folder / "ali/final.mdl").write_bytes(model.content(small.model))
        self.ali = {
            name: np.arange(int(frames)) % ids + 1
            for name, frames in zip(lengths[::2], lengths[1::2], strict=True)
        }
        items = [(name, ids.astype(np.int32)) for name, ids in self.ali.items()]
        kaldi_io.write_archive(folder / "ali/ali.1.gz", items)
        self.pdf = small.model.transitions.pdf
        return [
            *("egs", "--config", str(folder / "c.yaml"), "--data", str(folder / "data/train")),
            *("--streams", str(folder / "feats"), "--ali", str(folder / "ali")),
            *("--out", str(folder / "egs")),
        ]

    @pytest.mark.parametrize("tempos", [(1.0,), (0.9, 1.0, 1.2)])
    def test_features_of_all_speeds_with_their_labels(
        self, tmp_path: Path, tempos: tuple[float, ...]
    ) -> None:
        """And of the recordings at all tempos, which copies have not."""
        arguments = self.prepared(tmp_path, tempos)
        arguments += ["--perturbed", str(tmp_path / "data/train_perturbed")]
        assert main(arguments) == 0
        contents = [file.read_bytes() for file in sorted((tmp_path / "egs").iterdir())]
        assert main([*arguments, "--jobs", "2"]) == 0
        assert contents == [file.read_bytes() for file in sorted((tmp_path / "egs").iterdir())]
        features, labels = [], []
        config = load(tmp_path / "c.yaml")
        sets = [DataDir.read(tmp_path / "data" / n) for n in ("train", "train_perturbed")]
        own, others = (Fusion(config, tmp_path / "feats", data) for data in sets)
        for name, ids in self.ali.items():
            pdfs = self.pdf[ids]
            versions = []
            for tempo in tempos:
                at = Tempo(frames=len(ids), tempo=tempo)
                versions.append((at.stretched(own[name]), at.nearest(pdfs)))
            for speed in (0.9, 1.1):
                rows = others[f"sp{speed}-{name}"]
                versions.append((rows, labels_at(pdfs, speed=speed, frames=len(rows))))
            for rows, at_rows in versions:
                whole = len(rows) // 5 * 5
                features.append(rows[:whole])
                labels.append(at_rows[:whole])
        found = Dataset(tmp_path / "egs")
        x, y = found.gather(np.arange(len(found)))
        expected = examples(np.concatenate(features).reshape(x.shape), np.concatenate(labels))
        np.testing.assert_array_equal(examples(x, y), expected)
        assert found.pdf_counts.sum() == sum(map(len, self.ali.values()))  # of speed 1 alone

    def test_what_is_missing_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = self.prepared(tmp_path)
        assert main(arguments) == 2
        assert (
            "corpus.speeds or corpus.noise asks for copies, and there is no --perturbed"
            in capsys.readouterr().err
        )
        # held-out examples have none
        assert main([*arguments[:-1], str(tmp_path / "dev"), "--held-out"]) == 0
        copies = tmp_path / "data/train_perturbed"
        for name in ("utt2spk", "text", "segments"):
            lines = (copies / name).read_text().splitlines()
            write_lines(
                copies / name, [line for line in lines if not line.startswith("sp1.1-bob-2")]
            )
        (copies / "spk2utt").unlink()
        assert main([*arguments, "--perturbed", str(copies)]) == 2
        assert "no utterance sp1.1-bob-2" in capsys.readouterr().err


def test_ivectors_of_the_original_speaker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Speakers at another speed have Kaldi's i-vectors of the one they are made from, unless they
    have their own."""
    _, copies = made(tmp_path)
    rng = np.random.default_rng(0)
    vectors = {n: rng.normal(size=4).astype(np.float32) for n in ("ann", "bob", "sp1.1-ann")}
    kaldi_io.write_archive(tmp_path / "vectors.ark", vectors.items())
    imports = {"ivector": {"ivectors": f"{tmp_path}/vectors.ark", "per": "speaker"}}
    features = {"logmel": {"bins": 8, "delta_order": 0}, "imports": imports,
                "input": ["ivector", "logmel"]}  # fmt: skip
    content = {"name": "t", "corpus": {"kind": "an4"}, "features": features}
    (tmp_path / "c.yaml").write_text(json.dumps(content))

    def run(command: str, stream: str, *more: str) -> int:
        return main([command, "--config", f"{tmp_path}/c.yaml", "--stream", stream,
                     "--data", str(copies.path), *more,
                     "--out", f"{tmp_path}/feats/{stream}/train_perturbed"])  # fmt: skip

    assert run("features", "logmel", "--jobs", "1") == 0
    assert run("import-features", "ivector") == 0
    fusion = Fusion(load(tmp_path / "c.yaml"), tmp_path / "feats", copies)
    for name, source in (("sp0.9-ann-1", "ann"), ("sp1.1-ann-1", "sp1.1-ann"),
                         ("sp1.1-bob-2", "bob")):  # fmt: skip
        found = fusion[name]
        np.testing.assert_array_equal(found[:, :4], np.tile(vectors[source], (len(found), 1)))
    # there are none of utterances, and none of what they are made from
    imports["ivector"]["per"] = "utterance"
    (tmp_path / "c.yaml").write_text(json.dumps(content))
    capsys.readouterr()
    assert run("import-features", "ivector") == 2
    assert "8 of 8 utterances are not there" in capsys.readouterr().err


def test_copies_are_adapted_by_kaldis_model(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hadpsgd align` with alignment.kind kaldi: a transform for each copied speaker, which makes
    its features likelier than the original's transform does."""
    kaldi = shared.resolve() / "kaldi_an4"
    monkeypatch.chdir(kaldi)
    ali = kaldi / "exp/tri3b_ali"
    everything = DataDir.read(kaldi / "data/test", audio=False)
    speakers = sorted(everything.speakers)[:2]
    names = [name for speaker in speakers for name in everything.speakers[speaker]]
    some = {name: everything.utterances[name] for name in sorted(names)}
    places = {name: str(kaldi / f"wav8k/{name}.wav") for name in some}
    perturb(
        Source(data=DataDir(tmp_path / "few", some, places), speeds=SPEEDS, rate=RATE),
        tmp_path / "data/x",
        1,
    )
    content = {
        "name": "t",
        "corpus": {"kind": "an4"},
        "alignment": {"kind": "kaldi", "ali_dir": str(ali), "lang_dir": str(kaldi / "lang")},
    }
    (tmp_path / "c.yaml").write_text(json.dumps(content))
    common = ["--config", f"{tmp_path}/c.yaml", "--data", f"{tmp_path}/data/x", "--jobs", "1"]
    mfcc = tmp_path / "feats/mfcc/x"
    assert main(["features", *common, "--stream", "mfcc", "--out", str(mfcc)]) == 0
    aligned = ["--feats", str(mfcc), "--lang", str(kaldi / "lang"), "--out", f"{tmp_path}/ali"]
    assert main(["align", *common, "--model", str(ali), *aligned]) == 0
    own, theirs = (
        read_transforms(tmp_path / "ali"),
        read_transforms(kaldi / "exp/tri3b_decode_test"),
    )
    assert sorted(own) == [f"sp{speed}-{name}" for speed in (0.9, 1.1) for name in speakers]
    copies = DataDir.read(tmp_path / "data/x")
    inputs = Inputs(copies, mfcc, Frontend.read(ali))
    mixtures = model.read(ali / "final.mdl").mixtures
    transitions, items = read_alignments(tmp_path / "ali")
    alignments = dict(items)

    def likelihood(speaker: str, matrix: np.ndarray) -> float:
        """Of all the speaker's frames, transformed."""
        total = 0.0
        for name in copies.speakers[speaker]:
            pdfs = transitions.pdf[alignments[name]]
            scores = log_likelihoods(mixtures, transform(inputs[name], matrix))
            total += scores[np.arange(len(pdfs)), pdfs].sum(dtype=np.float64)
            total += len(pdfs) * np.linalg.slogdet(matrix[:, :-1].astype(np.float64))[1]
        return total

    for speaker in own:
        assert likelihood(speaker, own[speaker]) > likelihood(speaker, theirs[original(speaker)])


def test_only_what_is_trained_on_depends_on_speeds(tmp_path: Path) -> None:
    """Another list of speeds makes no corpus, alignment or language model again."""

    def fingerprints(speeds: str) -> dict[str, str]:
        path = tmp_path / "c.yaml"
        path.write_text(f"{{name: t, corpus: {{kind: an4, speeds: {speeds}}}}}")
        return stage_keys(load(path))

    one, other = fingerprints("[1.0]"), fingerprints("[0.9, 1.0]")
    assert {stage for stage in one if one[stage] != other[stage]} == {"perturb", "egs.train"}


def test_names() -> None:
    assert original("sp0.9-ann-1") == original("sp2-ann-1") == original("ann-1") == "ann-1"
    assert original("spa-1") == "spa-1" and original("sp1") == "sp1"
