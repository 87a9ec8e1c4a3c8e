# ruff: noqa: RUF001 (the IPA is meant)
"""The built-in synthetic corpus: same bits from the same seed, clean channels, complete lexicon."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml

from hadpsgd.cli import main
from hadpsgd.config import Config
from hadpsgd.corpus.builtin import prepare as builtin
from hadpsgd.corpus.builtin.channel import Line, mu_law, transmit
from hadpsgd.corpus.builtin.conversation import RATE, _Talk
from hadpsgd.corpus.builtin.disfluency import Manner, speak_freely, spelling, transcript
from hadpsgd.corpus.builtin.grammar import Grammar
from hadpsgd.corpus.builtin.phones import PHONES, to_phones
from hadpsgd.corpus.builtin.rules import grammar
from hadpsgd.corpus.builtin.topics import TOPICS
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.dictdir import read_lexicon
from hadpsgd.corpus.kinds import prepare
from hadpsgd.corpus.layout import Layout
from hadpsgd.errors import UserError

SETS = ("train", "dev", "swb", "ch")


def config(seed: int = 1, **more: object) -> Config:
    corpus = {
        "kind": "builtin",
        "train_minutes": 0.5,
        "dev_minutes": 0.2,
        "test_minutes": 0.3,
        "speakers": 8,
        "lm_sentences": 2000,
    }
    return Config.model_validate({"name": "small", "seed": seed, "corpus": corpus | more})


def fingerprints(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
    }


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    folder = tmp_path_factory.mktemp("builtin")
    prepare(config(), folder, 2)
    return Layout(folder)


def test_same_seed_same_bits_with_any_number_of_processes(small: Layout, tmp_path: Path) -> None:
    prepare(config(), tmp_path, 1)
    assert fingerprints(tmp_path) == fingerprints(small.root)


def test_recordings_share_what_is_slow_to_load(tmp_path: Path) -> None:
    """Each is spoken by a fresh process; scipy.signal takes a second or more."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config().model_dump(mode="json", exclude_unset=True)))
    part = ["--only", "data", "--set", "ch", "--out", str(tmp_path / "corpus")]
    ran = subprocess.run(
        [sys.executable, "-m", "hadpsgd", "corpus", "--config", file, *part],
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(list((tmp_path / "corpus/audio/ch").glob("*.wav"))) > 1
    assert len(re.findall(r"\| +scipy\.signal$", ran.stderr, re.MULTILINE)) == 1


def test_other_seed_other_audio_and_text(small: Layout, tmp_path: Path) -> None:
    prepare(config(seed=2), tmp_path, 2)
    here, there = fingerprints(small.root), fingerprints(tmp_path)
    audio = {name for name in here if name.startswith("audio/")}
    assert audio
    assert not {here[name] for name in audio} & set(there.values())
    assert here["lm/train.txt"] != there["lm/train.txt"]


def test_sets(small: Layout) -> None:
    sets = {name: DataDir.read(small.data(name)) for name in SETS}
    speakers = [set(data.speakers) for data in sets.values()]
    assert len(set.union(*speakers)) == sum(map(len, speakers))
    wanted = {"train": 0.5, "dev": 0.2, "swb": 0.3, "ch": 0.3}
    for name, data in sets.items():
        lengths = [u.end - u.start for u in data if u.end is not None]
        assert len(lengths) == len(data)
        assert 1.0 <= min(lengths) <= max(lengths) <= 8.1
        assert wanted[name] <= sum(lengths) / 60 <= wanted[name] + 0.6
        for before, after in pairwise(sorted(data, key=lambda u: (u.recording, u.start))):
            if before.recording == after.recording and before.end is not None:
                assert before.end <= after.start
        assert set(data.gender.values()) == {"f", "m"}
        assert {channel for _, channel in data.channels.values()} == {"A", "B"}


def test_every_word_has_a_pronunciation_in_the_closed_set(small: Layout) -> None:
    lexicon = read_lexicon(small.lexicon)
    assert grammar().vocabulary() <= set(lexicon.words)
    assert len(grammar().vocabulary()) >= 600
    speech = (small.dict_dir / "nonsilence_phones.txt").read_text().split()
    assert len(speech) == 41
    text = small.lm("train").read_text().split()
    assert set(text) <= grammar().vocabulary()


def test_channels_do_not_leak(small: Layout) -> None:
    """While only the other one talks, a channel is as quiet as while nobody does."""
    data = DataDir.read(small.data("swb"))
    for place in sorted(set(data.recordings.values())):
        samples, rate = soundfile.read(place)
        talks = np.zeros(samples.shape, dtype=bool)
        for u in (u for u in data if data.recordings[u.recording] == place):
            talks[int((u.start - 0.05) * rate) : int(((u.end or 0) + 0.05) * rate), u.channel] = 1
        for channel in (0, 1):
            mine, other = talks[:, channel], talks[:, 1 - channel]
            power = np.square(samples[:, channel])
            while_other, while_none = power[~mine & other].mean(), power[~mine & ~other].mean()
            assert abs(10 * np.log10(while_other / while_none)) < 1.0  # dB
            assert 10 * np.log10(power[mine].mean() / while_none) > 8.0


def test_levels_and_band(small: Layout) -> None:
    for name in SETS:
        for place in sorted(small.audio(name).glob("*.wav")):
            samples, rate = soundfile.read(place, dtype="int16")
            assert rate == 8000
            assert np.abs(samples.astype(np.int32)).max() < 32000
            assert set(np.unique(samples)) <= set(np.unique(mu_law(np.arange(-32768, 32768))))
            power = np.square(np.abs(np.fft.rfft(samples[:, 0])))
            hertz = np.fft.rfftfreq(len(samples), 1 / rate)
            outside = power[(hertz < 200) | (hertz > 3600)].sum() / power.sum()
            assert 10 * np.log10(outside) < -15


def test_samples_of_every_utterance(small: Layout) -> None:
    data = DataDir.read(small.data("ch"))
    with AudioReader(data, 8000) as reader:
        for utterance in data:
            assert np.abs(reader.read(utterance)).max() > 500


def test_stm_covers_the_test_set(small: Layout) -> None:
    data = DataDir.read(small.data("ch"))
    lines = (small.data("ch") / "stm").read_text().splitlines()
    body = [line.split() for line in lines if not line.startswith(";;")]
    assert sorted(" ".join(b[6:]) for b in body) == sorted(u.text for u in data)
    order = [(file, channel, float(start)) for file, channel, _, start, *_ in body]
    assert order == sorted(order)
    assert {b[5] for b in body} == {"<O,female>", "<O,male>"}
    assert "[uh] => %HESITATION / [ ] __ [ ]" in (small.data("ch") / "glm").read_text()


def test_other_rates_are_refused(tmp_path: Path) -> None:
    wrong = Config.model_validate(
        {**config().model_dump(mode="json"), "features": {"sample_rate": 16000}}
    )
    with pytest.raises(UserError, match="8000 Hz"):
        prepare(wrong, tmp_path, 1)


@pytest.mark.parametrize(
    ("settings", "arguments", "said"),
    [
        ("features: {sample_rate: 16000}", [], "features.sample_rate: the built-in corpus has"),
        ("corpus: {kind: builtin, speakers: 2}", [], "'corpus.speakers' (2): "),
        ("corpus: {kind: builtin, speaker: 9}", [], "did you mean 'speakers'?"),
        ("seed: 1", ["--jobs", "0"], "--jobs 0: at least one process is needed"),
        ("seed: 1", ["--jobs", "9" * 20], f"--jobs {'9' * 20}: at most 4096 processes"),
    ],
)
def test_command_on_bad_input(
    settings: str,
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ["name: x", settings]
    if "corpus" not in settings:
        lines.append("corpus: {kind: builtin}")
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    files = ["--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out")]
    assert main(["corpus", *files, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_text_of_the_language_model_is_drawn_apart(small: Layout) -> None:
    text = set(small.lm("train").read_text().splitlines())
    spoken = [u.text for name in SETS for u in DataDir.read(small.data(name))]
    assert sum(sentence in text for sentence in spoken) < len(spoken) / 3
    assert builtin.lm_text(sentences=100, seed=1) == builtin.lm_text(sentences=200, seed=1)[:100]


def test_held_out_words_are_in_the_tests_only(tmp_path: Path) -> None:
    summaries = prepare(config(held_out_words=0.2, lm_sentences=500), tmp_path, 2)
    layout = Layout(tmp_path)
    words = set(layout.held_out.read_text().split())
    assert len(words) == round(0.2 * len(grammar().vocabulary()))
    assert not words & set(read_lexicon(layout.lexicon).words)
    assert not words & set(layout.lm("train").read_text().split())
    said = {name: {w for u in DataDir.read(layout.data(name)) for w in u.words} for name in SETS}
    assert not words & said["train"]
    assert words & said["swb"]
    assert summaries["train"].oov == 0
    assert (summaries["swb"].oov or 0) > 0


def test_grammar() -> None:
    small = Grammar(["s: 3* a_ <x> | <$T.y>?", "x: apple | pear", "t.y: yes ."], ["t"])
    draw = random.Random(1).random
    seen = {" ".join(small.expand(name="s", topic="t", draw=draw)) for _ in range(200)}
    assert seen == {"an apple", "a pear", "yes .", ""}
    assert small.vocabulary() == {"a", "an", "apple", "pear", "yes"}
    with pytest.raises(ValueError, match="'y', which is not a rule"):
        Grammar(["x: <y>"], ["t"])
    with pytest.raises(ValueError, match="twice"):
        Grammar(["x: a", "x: b"], ["t"])


def test_disfluencies_only_add_words() -> None:
    source = random.Random(3)
    manner = Manner(filler=0.2, repeat=0.1, restart=0.1)
    for _ in range(100):
        topic = source.choice(list(TOPICS))
        fluent = grammar().expand(name="turn", topic=topic, draw=source.random)
        spoken = speak_freely(fluent, manner, grammar(), topic, source.random)
        rest = iter(transcript(spoken).split())
        assert all(word in rest for word in transcript(fluent).split())  # a subsequence
        unmarked = re.sub("[,.?]", "", spelling(spoken))
        assert transcript(spoken) == " ".join(unmarked.split())


def test_phonemes() -> None:
    assert to_phones(["w", "ˈɔː", "ɾ", "ɚ"]) == ("W", "AO", "DX", "ER")
    assert to_phones(["f", "ˈaɪɚ"]) == ("F", "AY", "ER")
    with pytest.raises(ValueError, match="no phone for"):
        to_phones(["ø"])
    assert len({name for names in PHONES.values() for name in names}) == 41


def test_mu_law_is_that_of_libsndfile(tmp_path: Path) -> None:
    """Every 16-bit value, but where two levels are equally near."""
    values = np.arange(-32768, 32768, dtype=np.int16)
    soundfile.write(tmp_path / "x.wav", values, 8000, subtype="ULAW")
    theirs, _ = soundfile.read(tmp_path / "x.wav", dtype="int16")
    ours = mu_law(values)
    assert set(np.unique(theirs)) == set(np.unique(ours))
    assert np.mean(ours == theirs) > 0.98
    assert np.all(np.abs(ours.astype(int) - values) <= np.abs(theirs.astype(int) - values))


def test_line_has_the_wanted_noise() -> None:
    rng = np.random.default_rng(0)
    active = np.zeros(80000, dtype=bool)
    active[20000:60000] = True
    speech = np.where(active, rng.standard_normal(80000), 0.0)
    for snr in (10.0, 25.0):
        line = Line(
            gain_db=0.0,
            tilt_db=0.0,
            ripple_db=0.0,
            snr_db=snr,
            noise_tilt_db=-3.0,
            room_seconds=0.0,
        )
        heard = transmit(speech, active, line, np.random.default_rng(1)).astype(float)
        noise = np.mean(heard[:19000] ** 2)
        measured = 10 * np.log10(np.mean(heard[21000:59000] ** 2) / noise - 1)
        assert measured == pytest.approx(snr, abs=0.7)


def test_both_sides_of_a_call_have_noise_of_their_own() -> None:
    """The same words on the same line: what is left of the one without the other is noise."""
    line = Line(gain_db=0, tilt_db=0, ripple_db=0, snr_db=20, noise_tilt_db=0, room_seconds=0)
    said = [(RATE, np.sin(np.arange(RATE) / 3) * 3000)]
    side = SimpleNamespace(speaker=SimpleNamespace(line=line), pieces=said)
    talk: Any = SimpleNamespace(sides=[side, side], plan=SimpleNamespace(seed=(1, 2)))
    one, two, again = (_Talk._transmit(talk, channel, 3 * RATE) for channel in (0, 1, 0))
    np.testing.assert_array_equal(one, again)
    silent = slice(0, RATE // 2)
    assert one[silent].std() > 0
    assert abs(np.corrcoef(one[silent], two[silent])[0, 1]) < 0.1
