"""`hadpsgd init`: recordings and a table to a config whose corpus can be made."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import make_data, write_lines
from init_data import SPEAKERS, corpus, init, said, spoil, table, tone

from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.config.corpus import Kaldi
from hadpsgd.corpus.datadir import DataDir


def test_a_table_becomes_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path, "--csv", str(table(tmp_path))) == 0
    config, _, out = corpus(tmp_path)
    assert "train: 2 speakers alone; who" in capsys.readouterr().out
    sets = {name: DataDir.read(out / "data" / name) for name in ("train", "dev", "test")}
    speakers = [speaker for data in sets.values() for speaker in data.speakers]
    assert sorted(speakers) == sorted(SPEAKERS)  # each in one set
    assert sum(map(len, sets.values())) == 12
    texts = {text for name in sets for text in said(out, name).values()}
    assert texts == {"turn it on", "turn it off please", "it's on on"}
    lexicon = (out / "dict" / "lexicon.txt").read_text().splitlines()
    assert {"it's i t s", "off o f f", "please p l e a s e"} < set(lexicon)
    assert config.features.sample_rate == 16000
    assert main(["lang", "--config", str(tmp_path / "c.yaml"), "--dict", str(out / "dict"),
                 "--out", str(tmp_path / "lang")]) == 0  # fmt: skip


def test_recordings_of_other_rates_are_copied(tmp_path: Path) -> None:
    path = table(tmp_path, rate=44100)
    soundfile.write(tmp_path / "my takes" / "Ann take 00.wav", tone(16000), 16000)
    assert init(tmp_path, "--csv", str(path)) == 0
    config, _, out = corpus(tmp_path)
    assert config.features.sample_rate == 16000
    places = {r: p for n in ("train", "dev", "test")
              for r, p in DataDir.read(out / "data" / n).recordings.items()}  # fmt: skip
    assert places.pop("Ann-Ann_take_00") == str(tmp_path / "my takes" / "Ann take 00.wav")
    for place in places.values():
        samples, rate = soundfile.read(place)
        assert (rate, len(samples)) == (16000, 16000)
        assert np.argmax(np.abs(np.fft.rfft(samples))) == 440


@pytest.mark.parametrize(
    "name", ["2024", "007", "null", "no", "2026-01-01", "2026-13-45", "1e5", "0x1F"]
)
def test_names_that_yaml_takes_for_something_else(tmp_path: Path, name: str) -> None:
    """As a table's name, as `--name`, and as the folder of a set."""
    path = table(tmp_path).rename(tmp_path / f"{name}.csv")
    assert init(tmp_path, "--csv", str(path)) == 0
    config = load(tmp_path / "c.yaml")
    assert config.name == name
    assert init(tmp_path, "--csv", str(path), "--name", name, "--force") == 0
    assert load(tmp_path / "c.yaml") == config


def test_a_folder_that_yaml_takes_for_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "k").mkdir()
    for name in ("train", "dev", "test"):
        (folder / name).symlink_to(make_data(tmp_path / f"of-{name}"))
    lexicon = tmp_path / "of-train" / "lexicon.txt"
    monkeypatch.chdir(tmp_path)
    lexicon.rename("2026-01-01")
    assert init(tmp_path, "--kaldi", str(folder), "--lexicon", "2026-01-01") == 0
    section = load(tmp_path / "c.yaml").corpus
    assert isinstance(section, Kaldi) and section.dict_dir == "2026-01-01"


def test_names_that_no_file_can_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Copies of recordings are called by speaker and file, which are too long together."""
    (tmp_path / "takes").mkdir()
    rows = ["file,text,speaker"]
    for number, speaker in enumerate(SPEAKERS):
        for take in ("a", "b"):
            name = f"takes/{190 * 'x'}{number}{take}.wav"
            soundfile.write(tmp_path / name, tone(44100), 44100)
            rows.append(f"{name},turn it on,{speaker}{100 * chr(233)}")
    path = tmp_path / f"{248 * 't'}.csv"
    write_lines(path, rows)
    assert init(tmp_path, "--csv", str(path)) == 0
    config, _, out = corpus(tmp_path)
    assert config.name == 200 * "t"
    places = [place for name in ("train", "dev", "test")
              for place in DataDir.read(out / "data" / name).recordings.values()]  # fmt: skip
    assert len(set(places)) == 8 and all(Path(place).is_file() for place in places)
    capsys.readouterr()
    write_lines(path, [*rows, f"takes/{300 * 'x'}.wav,off,{SPEAKERS[0]}"])
    assert init(tmp_path, "--csv", str(path), "--force") == 2
    assert f"{path}:10: " in (told := capsys.readouterr().err) and told.count("\n") == 1
    assert main(["init", "--csv", str(path), "--name", 201 * "n"]) == 2
    assert "cannot be a name. Take at most 200 letters" in capsys.readouterr().err


def test_long_recordings_and_a_lonely_speaker_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path)
    long = tmp_path / "my takes" / "Ann take 00.wav"
    soundfile.write(long, tone(16000, seconds=61.0), 16000)
    head, *rows = path.read_text().splitlines()
    sets = {"Ann": "train", "Bob": "dev", "Cleo": "test", "Dan": "test"}
    rows = [f"{row},{sets[row.rpartition(',')[2]]}" for row in rows]
    path.write_text("\n".join([head + ",set", *rows]) + "\n")
    assert init(tmp_path, "--csv", str(path)) == 0
    told = capsys.readouterr().out
    assert f"train: 1 longer than 60 s, which are hard to align: {long}; cut" in told
    assert "train: one speaker alone" in told
    assert "dev: 1 longer" not in told


def test_sets_of_the_table_are_kept(tmp_path: Path) -> None:
    path = table(tmp_path)
    head, *rows = path.read_text().splitlines()
    names = ["test", "validation", *["Train"] * 5, *["training"] * 5]
    write_lines(
        path, [f"{head},split", *(f"{row},{name}" for row, name in zip(rows, names, strict=True))]
    )
    assert init(tmp_path, "--csv", str(path)) == 0
    _, _, out = corpus(tmp_path)
    assert list(said(out, "test")) == ["Ann-Ann_take_00"]
    assert list(said(out, "dev")) == ["Bob-Bob_take_01"]


def test_one_speaker_is_split_by_utterance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path)
    write_lines(path, [row.rpartition(",")[0] for row in path.read_text().splitlines()])
    assert init(tmp_path, "--csv", str(path)) == 0
    assert "dev and test have speakers of train" in capsys.readouterr().out
    _, _, out = corpus(tmp_path)
    ids = [name for part in ("train", "dev", "test") for name in said(out, part)]
    assert len(set(ids)) == len(ids) == 12
    assert [len(said(out, part)) for part in ("dev", "test")] == [1, 1]  # nearest to a tenth


def test_a_failure_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither data/ nor another above it; one that was there stays."""
    path = table(tmp_path)
    spoil(path, 2, "none.wav,on,Ann")
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--csv", path.name, "--name", "mine"]) == 2
    assert not Path("data").exists()
    Path("there").mkdir()
    assert main(["init", "--csv", path.name, "--data", "there/a/b/c"]) == 2
    assert Path("there").is_dir() and not list(Path("there").iterdir())
    assert "Permission" not in capsys.readouterr().err


def test_speakers_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    text = path.read_text()
    path.write_text(text.replace(",Cleo", ",A b").replace(",Dan", ",A_b"))
    assert init(tmp_path, "--csv", str(path)) == 2
    assert "'A b' and 'A_b' would both be the speaker A_b" in capsys.readouterr().err


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    assert init(tmp_path, "--csv", str(path)) == 0
    before = (tmp_path / "c.yaml").read_text()
    assert init(tmp_path, "--csv", str(path)) == 2
    assert "is there already. Give --force" in capsys.readouterr().err
    assert init(tmp_path, "--csv", str(path), "--force", "--cluster", "slurm") == 0
    after = (tmp_path / "c.yaml").read_text()
    assert after != before and "snakemake --profile slurm" in after
    mine = ("--data", str(tmp_path / "my takes"), "--out", str(tmp_path / "d.yaml"), "--force")
    assert main(["init", "--csv", str(path), *mine]) == 2
    assert "not made by init" in capsys.readouterr().err
    assert len(list((tmp_path / "my takes").iterdir())) == 12


def test_the_folder_local_of_a_kaldi_recipe_is_no_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "score.sh").write_text("")
    monkeypatch.chdir(tmp_path)
    assert init(tmp_path, "--csv", str(table(tmp_path))) == 0
    root = Path(__file__).resolve().parents[1]
    line = f"snakemake --snakefile {root}/Snakefile --profile {root}/local --configfile "
    assert line in capsys.readouterr().out and line in (tmp_path / "c.yaml").read_text()


@pytest.mark.parametrize("damage", ["edited", "another's", "damaged record", "older record"])
def test_a_config_that_init_did_not_write_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    path, config, record = table(tmp_path), tmp_path / "c.yaml", tmp_path / "data" / "init.json"
    if damage == "another's":
        config.write_text("name: mine\n")
    else:
        assert init(tmp_path, "--csv", str(path)) == 0
    if damage == "edited":
        config.write_text(config.read_text() + "# mine\n")
    elif damage != "another's":
        record.write_text("{" if damage == "damaged record" else '{"hours": 1.0}')
    before = config.read_bytes()
    capsys.readouterr()
    assert init(tmp_path, "--csv", str(path), "--force") == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and "c.yaml: not as init wrote it" in told[0]
    assert "Give --name OTHER: config, data and results of their own; or remove it" in told[0]
    assert config.read_bytes() == before
    another = ("--out", str(tmp_path / "d.yaml"), "--data", str(tmp_path / "data2"), "--force",
               "--name", "other")  # fmt: skip
    assert main(["init", "--csv", str(path), *another]) == 0
    assert main(["init", "--csv", str(path), *another]) == 0  # its own, and unchanged
    assert config.read_bytes() == before


def test_what_another_config_has_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data, which --force would replace, and its results, by their name."""
    path = table(tmp_path)
    monkeypatch.chdir(tmp_path)
    first = ("init", "--csv", path.name, "--name", "mine")
    assert main([*first]) == 0
    config = Path("mine.yaml")
    config.write_text(config.read_text() + "# mine\n")
    data = Path("data/mine/train/text").stat()
    other = Path("other.yaml")
    assert main([*first, "--out", str(other), "--force"]) == 2
    told = capsys.readouterr().err
    assert "data/mine: mine.yaml uses it. Give --name OTHER: config, data and results" in told
    assert main([*first, "--out", str(other), "--data", "elsewhere"]) == 2
    assert "mine.yaml: has the name mine, too. Give --name OTHER" in capsys.readouterr().err
    assert not other.exists() and not Path("elsewhere").exists()
    assert Path("data/mine/train/text").stat() == data
    Path("notes.yaml").write_text("{")
    assert main([*first[:3], "--name", "other"]) == 0  # as the line says
    assert main([*first[:3], "--name", "other", "--force"]) == 0
    assert Path("data/mine/train/text").stat() == data


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "give --csv FILE, --kaldi DIR or --lhotse FILE"),
        (("--lhotse", "r.jsonl.gz"), "r.jsonl.gz: no such file"),
        (("--csv", "none.csv"), "none.csv: cannot be read"),
        (("--kaldi", "nowhere"), "nowhere: no data directory train"),
        (("--csv", "a.csv", "--name", "a b"), "'a b' cannot be a name"),
    ],
)
def test_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "stdin", (tmp_path / "empty").open("w+"))
    assert init(tmp_path, *arguments) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and message in told[0]


def test_it_asks_on_a_terminal(tmp_path: Path) -> None:
    path = table(tmp_path)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hadpsgd", "init"]
    answers = ["what", "csv", "nowhere.csv", str(path), "spoken", "", "moon", "pbs"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path) as it:
        os.close(theirs)
        os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
        shown = ""
        while select.select([ours], [], [], 60)[0]:
            try:
                shown += os.read(ours, 4096).decode()
            except OSError:  # it has ended
                break
        assert it.wait(60) == 0, shown
    os.close(ours)
    assert "one of csv, kaldi" in shown and "nowhere.csv: no such file" in shown
    text = (tmp_path / "spoken.yaml").read_text()
    root = Path(__file__).resolve().parents[1]  # it was asked in another folder
    assert f"snakemake --snakefile {root}/Snakefile --profile {root}/profiles/pbs" in text
    config = load(tmp_path / "spoken.yaml")
    assert isinstance(config.corpus, Kaldi) and config.corpus.train.data == "data/spoken/train"
