"""Kaldi data directories: read, audio of utterances, write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import RATE, make_data, replace_line, tone, write_lines
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.resample import resample, to_int16
from hadpsgd.corpus.tables import raise_fault, read_counts, read_table, write_table
from hadpsgd.corpus.validate import Checks, validate
from hadpsgd.errors import UserError
from hadpsgd.uncounted import Uncounted


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path)


def test_index(data: Path) -> None:
    found = DataDir.read(data)
    assert list(found.utterances) == ["ann-1", "ann-2", "bob-1", "bob-2"]
    first = found.utterances["ann-1"]
    assert (first.speaker, first.recording, first.words) == ("ann", "call-A", ["hello", "bob"])
    assert (first.start, first.end, first.channel) == (0.5, 2.25, 0)
    assert found.utterances["bob-2"].channel == 1
    assert found.speakers == {"ann": ["ann-1", "ann-2"], "bob": ["bob-1", "bob-2"]}
    assert found.gender == {"ann": "f", "bob": "m"}
    assert found.file_and_channel(first) == ("call", "A")


def test_samples_of_segments_and_channels(data: Path) -> None:
    found = DataDir.read(data)
    with AudioReader(found, RATE) as reader:
        samples = {utterance.id: reader.read(utterance) for utterance in found}
    assert samples["ann-1"].dtype == np.float32
    np.testing.assert_array_equal(samples["ann-1"], tone(10, 440)[4000:18000])
    np.testing.assert_array_equal(samples["bob-2"], tone(10, 880)[40000:79920])


def test_fifth_column_of_segments_is_the_channel(data: Path) -> None:
    (data / "reco2file_and_channel").unlink()
    lines = (data / "segments").read_text().splitlines()
    write_lines(data / "segments", [f"{line} {int('call-B' in line)}" for line in lines])
    found = DataDir.read(data)
    assert found.utterances["bob-1"].channel == 1
    found.write(data)
    assert DataDir.read(data) == found


def test_overshoot_is_cut_as_kaldi_does(data: Path) -> None:
    replace_line(data / "segments", "bob-2 call-B 5 9.99", "bob-2 call-B 5 10.4")
    found = DataDir.read(data)
    with AudioReader(found, RATE) as reader:
        assert len(reader.read(found.utterances["bob-2"])) == 5 * RATE


def test_write_then_read(data: Path, tmp_path: Path) -> None:
    found = DataDir.read(data)
    found.write(tmp_path / "copy" / "data" / "set")
    again = DataDir.read(tmp_path / "copy" / "data" / "set")
    assert again.utterances == found.utterances
    assert (again.channels, again.gender) == (found.channels, found.gender)


@pytest.mark.parametrize(
    ("name", "subtype"),
    [("a.sph", "PCM_16"), ("b.sph", "ULAW"), ("c.flac", "PCM_16"), ("d.wav", "ULAW")],
)
def test_formats(tmp_path: Path, name: str, subtype: str) -> None:
    place = tmp_path / name
    kind = {"sph": "NIST", "flac": "FLAC", "wav": "WAV"}[name.split(".")[1]]
    soundfile.write(place, tone(1), RATE, format=kind, subtype=subtype)
    with audio.open_audio(str(place)) as stream:
        samples = audio.read(stream, channel=0)
    tolerance = 0 if subtype == "PCM_16" else 8000 / 32  # a step of mu-law at this level
    assert np.abs(samples - tone(1)).max() <= tolerance


@pytest.mark.parametrize("length", [6, 7])
def test_a_wav_file_with_other_chunks(tmp_path: Path, length: int) -> None:
    """A chunk of odd length is followed by a byte that its length does not count."""
    place = tmp_path / "a.wav"
    soundfile.write(place, tone(1), RATE, format="WAV", subtype="PCM_16")
    content = place.read_bytes()
    data = content.index(b"data")
    note = b"LIST" + length.to_bytes(4, "little") + b"INFOabc"[:length] + b"\0" * (length % 2)
    content = content[:data] + note + content[data:]
    place.write_bytes(b"RIFF" + (len(content) - 8).to_bytes(4, "little") + content[8:])
    with audio.open_audio(str(place)) as stream:
        np.testing.assert_array_equal(audio.read(stream, channel=0), tone(1))
    place.write_bytes(place.read_bytes()[:-100])
    with pytest.raises(UserError, match="100 of 16000 bytes are missing"):
        audio.open_audio(str(place))


@pytest.mark.parametrize("names", ["AB", "ab", "12"])
def test_names_of_channels(data: Path, names: str) -> None:
    lines = [f"call-{side} call {name}" for side, name in zip("AB", names, strict=True)]
    write_lines(data / "reco2file_and_channel", lines)
    found = DataDir.read(data)
    assert [found.utterances[name].channel for name in ("ann-1", "bob-1")] == [0, 1]
    assert found.file_and_channel(found.utterances["bob-1"]) == ("call", names[1])


def test_an_utterance_to_the_end_of_its_recording(data: Path) -> None:
    """Kaldi writes -1."""
    replace_line(data / "segments", "bob-2 call-B 5 9.99", "bob-2 call-B 5 -1")
    found = DataDir.read(data)
    assert found.utterances["bob-2"].end is None
    with AudioReader(found, RATE) as reader:
        assert len(reader.read(found.utterances["bob-2"])) == 5 * RATE
    found.write(data)
    assert DataDir.read(data).utterances == found.utterances


def test_pipes_run_only_where_allowed(data: Path) -> None:
    command = f"cat {data.parents[1] / 'audio' / 'call.wav'} |"
    write_lines(data / "wav.scp", [f"call-A {command}", f"call-B {command}"])
    found = DataDir.read(data)
    utterance = found.utterances["bob-1"]
    with AudioReader(found, RATE) as reader, pytest.raises(UserError, match="is not run"):
        reader.read(utterance)
    with AudioReader(found, RATE, allow_pipes=True) as reader:
        np.testing.assert_array_equal(reader.read(utterance), tone(10, 880)[20000:28000])


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize(
    ("name", "subtype"), [("a.wav", "GSM610"), ("a.au", "G721_32"), ("a.wav", "NMS_ADPCM_16")]
)
def test_audio_in_which_nothing_can_be_sought(
    data: Path, name: str, subtype: str, piped: bool
) -> None:
    """`hadpsgd validate` took it, and `hadpsgd features` said that it were damaged."""
    place = data.parents[1] / "audio" / name
    soundfile.write(place, np.random.default_rng(1).normal(0, 0.1, 10 * RATE), RATE, subtype)
    with soundfile.SoundFile(place) as stream:
        whole = stream.read(stream.frames, dtype="float32") * np.float32(audio.INT16)
    location = f"cat {place} |" if piped else str(place)
    write_lines(data / "wav.scp", [f"call-A {location}", f"call-B {location}"])
    replace_line(data / "segments", "ann-2 call-A 3 4.5", "ann-2 call-A 1 4.5")
    validate(data, Checks(allow_pipes=True, scored=Uncounted()), raise_fault)
    found = DataDir.read(data)
    with AudioReader(found, RATE, allow_pipes=True) as reader:  # forwards, back, and once more
        for utterance in (*found, *reversed(list(found)), found.utterances["bob-1"]):
            begin, end = int(utterance.start * RATE), int((utterance.end or 0) * RATE)
            np.testing.assert_array_equal(reader.read(utterance), whole[begin:end])


def test_failing_pipe_is_named(data: Path) -> None:
    write_lines(data / "wav.scp", ["call-A echo broken >&2; false |", "call-B true |"])
    found = DataDir.read(data)
    with AudioReader(found, RATE, allow_pipes=True) as reader:
        with pytest.raises(UserError, match=r"status 1 .*: broken"):
            reader.read(found.utterances["ann-1"])
        with pytest.raises(UserError, match="0 bytes"):
            reader.read(found.utterances["bob-1"])


def test_wrong_rate_is_refused(data: Path) -> None:
    found = DataDir.read(data)
    with AudioReader(found, 16000) as reader, pytest.raises(UserError, match="8000 Hz instead"):
        reader.read(found.utterances["ann-1"])


def test_reads_kaldis_own_directories(shared: Path) -> None:
    found = DataDir.read(shared / "kaldi_an4" / "data" / "test")
    assert (len(found), len(found.speakers)) == (130, 10)
    with AudioReader(found, RATE) as reader:
        seconds = sum(len(reader.read(utterance)) for utterance in found) / RATE
    assert seconds == pytest.approx(357.0, abs=0.5)
    features_only = DataDir.read(shared / "kaldi_an4" / "data" / "train", audio=False)
    assert (len(features_only), len(features_only.speakers)) == (948, 74)


IDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)


@given(st.dictionaries(IDS, IDS))
def test_tables_sort_as_bytes(tmp_path_factory: pytest.TempPathFactory, table: dict) -> None:
    path = tmp_path_factory.mktemp("table") / "text"
    write_table(path, table)
    assert read_table(path) == table
    done = subprocess.run(["sort", "-c", "-k1,1", path], env={"LC_ALL": "C"}, check=False)
    assert done.returncode == 0


def test_resampling_keeps_the_band_and_removes_aliases() -> None:
    def at(hertz: float) -> np.ndarray:
        return (10000 * np.sin(2 * np.pi * hertz * np.arange(22050) / 22050)).astype(np.float32)

    kept = resample(at(3500), rate=22050, new_rate=8000)
    expected = 10000 * np.sin(2 * np.pi * 3500 * np.arange(8000) / 8000)
    assert len(kept) == 8000
    np.testing.assert_allclose(kept[500:-500], expected[500:-500], atol=1)
    alias = resample(at(5000), rate=22050, new_rate=8000)
    assert np.abs(alias[500:-500]).max() < 0.5
    assert to_int16(np.array([40000.0, -1.6, 0.4])).tolist() == [32767, -2, 0]


@pytest.mark.parametrize("value", ["", "12.5", "-3", "many"])
def test_a_count_that_is_none_is_named(value: str, tmp_path: Path) -> None:
    path = tmp_path / "utt2num_frames"
    write_lines(path, ["a-1 12", f"a-2 {value}"])
    with pytest.raises(UserError, match=f"utt2num_frames: 'a-2 {value}': not a whole number"):
        read_counts(path)
    write_lines(path, ["a-1 12"])
    assert read_counts(path) == {"a-1": 12}
