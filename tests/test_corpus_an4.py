"""AN4 against Kaldi's preparation of it; and a small AN4 of noise for other formats and faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import tone, write_lines

from hadpsgd.cli import main
from hadpsgd.config import Config
from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.kinds import prepare
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError


def config(path: Path, dev_speakers: int = 8) -> Config:
    corpus = {"kind": "an4", "path": str(path), "dev_speakers": dev_speakers}
    return Config.model_validate({"name": "an4", "corpus": corpus})


@pytest.fixture(scope="module")
def prepared(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    folder = tmp_path_factory.mktemp("an4")
    prepare(config(shared / "an4"), folder, 2)
    return Layout(folder)


def kaldi_table(shared: Path, split: str, name: str) -> dict[str, str]:
    return read_table(shared / "kaldi_an4" / "data" / split / name)


def test_ids_texts_and_speakers_are_kaldis(shared: Path, prepared: Layout) -> None:
    sets = {name: DataDir.read(prepared.data(name)) for name in ("train", "dev", "test")}
    ours = {
        "train": {**sets["train"].utterances, **sets["dev"].utterances},
        "test": sets["test"].utterances,
    }
    for split, utterances in ours.items():
        assert {u.id: u.text for u in utterances.values()} == kaldi_table(shared, split, "text")
        speakers = {u.id: u.speaker for u in utterances.values()}
        assert speakers == kaldi_table(shared, split, "utt2spk")
    gender = {**sets["train"].gender, **sets["dev"].gender}
    assert gender == kaldi_table(shared, "train", "spk2gender")


def test_held_out_speakers_leave_no_trace_in_training(prepared: Layout) -> None:
    train, dev = DataDir.read(prepared.data("train")), DataDir.read(prepared.data("dev"))
    assert len(dev.speakers) == 8
    assert not set(train.speakers) & set(dev.speakers)
    assert sorted(dev.gender.values()) == ["f"] * 4 + ["m"] * 4
    assert sorted(prepared.lm("train").read_text().splitlines()) == sorted(u.text for u in train)
    assert sorted(prepared.lm("dev").read_text().splitlines()) == sorted(u.text for u in dev)


def test_stm(prepared: Layout) -> None:
    data = DataDir.read(prepared.data("test"))
    lines = [s for s in (prepared.data("test") / "stm").read_text().splitlines() if s[0] != ";"]
    assert len(lines) == len(data)
    file, channel, speaker, start, end, labels, *words = lines[0].split()
    first = data.utterances[file]
    assert (channel, speaker, start, labels) == ("1", first.speaker, "0.00", "<O,female>")
    assert words == first.words
    assert float(end) == pytest.approx(audio.info(data.recordings[file]).seconds, abs=0.005)


def test_lexicon_is_kaldis(shared: Path, prepared: Layout) -> None:
    kaldi = (shared / "kaldi_an4" / "lang" / "lexicon.txt").read_text().splitlines()
    assert sorted(prepared.lexicon.read_text().splitlines()) == sorted(kaldi)


def test_audio_is_that_of_sox(shared: Path, prepared: Layout) -> None:
    theirs = DataDir.read(shared / "kaldi_an4" / "data" / "test")
    ours = DataDir.read(prepared.data("test"))
    error = power = 0.0
    with AudioReader(theirs, 8000) as sox, AudioReader(ours, 8000) as resampled:
        for utterance in list(ours)[::10]:
            expected = sox.read(theirs.utterances[utterance.id]).astype(np.float64)
            found = resampled.read(utterance)
            assert len(found) == len(expected)
            error += np.sum((found - expected) ** 2)
            power += np.sum(expected**2)
    assert 10 * np.log10(power / error) > 55  # dB


def test_lengths_fit_kaldis_alignments(shared: Path, prepared: Layout) -> None:
    """Frames of every aligned utterance: window 200 samples, shift 80, edges snipped."""
    golden = (shared / "kaldi_an4" / "golden" / "ali_pdf_train50.txt").read_text()
    frames = {u: len(pdfs) for u, *pdfs in map(str.split, golden.splitlines())}
    assert len(frames) == 50
    for utterance, expected in frames.items():
        places = [prepared.audio(name) / f"{utterance}.wav" for name in ("train", "dev")]
        samples = next(audio.info(str(p)).frames for p in places if p.is_file())
        assert 1 + (samples - 200) // 80 == expected


def make_an4(folder: Path) -> Path:
    """Four speakers with one utterance each, in raw, Sphere and WAV files at 16 kHz."""
    speakers = {"train": ["fabc", "mdef", "fghi"], "test": ["mjkl"]}
    for split, names in speakers.items():
        group = "an4_clstk" if split == "train" else "an4test_clstk"
        lines = [f"{group}/{s}/cen1-{s}-b" for s in names]
        (folder / "etc").mkdir(parents=True, exist_ok=True)
        write_lines(folder / "etc" / f"an4_{split}.fileids", lines)
        texts = [f"<s> YES NO </s> (cen1-{s}-b)" for s in names]
        write_lines(folder / "etc" / f"an4_{split}.transcription", texts)
        for speaker in names:
            (folder / "wav" / group / speaker).mkdir(parents=True)
    write_lines(folder / "etc" / "an4.dic", ["YES  Y EH S", "NO  N OW", "NO(2)  N AH"])
    train = folder / "wav" / "an4_clstk"
    samples = np.repeat(tone(1, 300), 2)
    samples.astype(">i2").tofile(train / "fabc" / "cen1-fabc-b.raw")
    sphere = train / "mdef" / "cen1-mdef-b.sph"
    soundfile.write(sphere, samples, 16000, format="NIST", subtype="PCM_16")
    soundfile.write(train / "fghi" / "cen1-fghi-b.wav", samples, 16000)
    test = folder / "wav" / "an4test_clstk" / "mjkl" / "cen1-mjkl-b.wav"
    soundfile.write(test, samples, 16000)
    return folder


def test_raw_and_sphere_files(tmp_path: Path) -> None:
    root = make_an4(tmp_path / "an4")
    layout = Layout(tmp_path / "out")
    prepare(config(root, dev_speakers=1), layout.root, 1)
    assert DataDir.read(layout.data("dev")).speakers == {"fghi": ["fghi-cen1-fghi-b"]}
    train = DataDir.read(layout.data("train"))
    with AudioReader(train, 8000) as reader:
        raw, sphere = (reader.read(utterance) for utterance in train)
    np.testing.assert_array_equal(raw, sphere)
    assert "NO N AH" in layout.lexicon.read_text().splitlines()


def test_faults(tmp_path: Path) -> None:
    root = make_an4(tmp_path / "an4")
    with pytest.raises(UserError, match="dev_speakers 3 leaves none"):
        prepare(config(root, dev_speakers=3), tmp_path / "out", 1)
    (root / "wav" / "an4_clstk" / "fghi" / "cen1-fghi-b.wav").unlink()
    with pytest.raises(UserError, match="cen1-fghi-b: missing audio file"):
        prepare(config(root, dev_speakers=1), tmp_path / "out", 1)
    (root / "wav" / "an4_clstk" / "fghi" / "cen1-fghi-b.wav").write_bytes(b"RIFFgarbage")
    with pytest.raises(UserError, match=r"cen1-fghi-b.wav: .* audio"):
        prepare(config(root, dev_speakers=1), tmp_path / "out", 1)
    write_lines(root / "etc" / "an4_train.transcription", ["YES (cen1-fabc-b)", "x", "y"])
    with pytest.raises(UserError, match=r"transcription:2: no transcript of an4_clstk/mdef"):
        prepare(config(root, dev_speakers=1), tmp_path / "out", 1)


def test_command_without_an4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text(f"name: x\ncorpus:\n  kind: an4\n  path: {tmp_path}/none\n")
    assert main(["corpus", "--config", str(settings), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no AN4 here. Set corpus.path" in said
    assert not (tmp_path / "out").exists()
