"""A user's own Kaldi directories and dictionaries."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import kaldifst
import pytest
from corpus_data import make_data, replace_line, write_lines
from tracking_data import write_config

from hadpsgd.cli import main
from hadpsgd.config import Config
from hadpsgd.config.decoding import Scoring
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.kinds import prepare, prepare_part
from hadpsgd.corpus.lang.dictionary import read_dictionary
from hadpsgd.corpus.layout import Layout
from hadpsgd.errors import UserError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path / "mine")


def config(data: Path, **more: object) -> Config:
    corpus: dict[str, object] = {
        "kind": "kaldi",
        "train": str(data),
        "dev": str(data),
        "tests": {"eval": str(data)},
        "dict_dir": str(data.parents[1] / "lexicon.txt"),
    }
    return Config.model_validate({"name": "mine", "corpus": corpus | more})


def test_sets_are_copied_and_audio_is_not(data: Path, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out")
    summaries = prepare(config(data), layout.root, 1)
    assert list(summaries) == ["train", "dev", "eval"]
    found = DataDir.read(layout.data("eval"))
    assert found.utterances == DataDir.read(data).utterances
    assert found.recordings["call-A"] == str(data.parents[1] / "audio" / "call.wav")
    assert not (layout.root / "audio").exists()
    assert layout.lm("train").read_text().splitlines() == ["hello bob", "bye", "hi ann", "bye bye"]


def test_what_scoring_would_refuse_is_told_before_training(data: Path, tmp_path: Path) -> None:
    """A word in braces is an alternative in NIST's files, unless scoring drops it; of train, which
    is not scored, it is one like others."""
    write_lines(data.parents[1] / "lexicon.txt", ["{breath} N", *(
        f"{word} X" for word in ("ann", "bob", "bye", "hello", "hi"))])  # fmt: skip
    replace_line(data / "text", "ann-2 bye", "ann-2 bye {breath}")
    mine, out = config(data), tmp_path / "out"
    prepare_part(mine, part="dictionary", name="", out=out, processes=1)
    for name in ("train", "dev"):
        prepare_part(mine, part="data", name=name, out=out, processes=1)
    prepare_part(mine, part="words", name="train", out=out, processes=1)
    with pytest.raises(UserError, match=r"ann-2: '\{breath\}' would not be scored as a word"):
        prepare_part(mine, part="words", name="dev", out=out, processes=1)
    dropping = mine.model_copy(update={"scoring": Scoring(dropped_words=["{breath}"])})
    prepare_part(dropping, part="words", name="dev", out=out, processes=1)
    with pytest.raises(UserError, match=r"ann-2: '\{breath\}' would not be scored as a word"):
        prepare(mine, tmp_path / "whole", 1)
    prepare(dropping, tmp_path / "whole", 1)


def test_bare_lexicon(data: Path, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out")
    prepare(config(data), layout.root, 1)
    lines = layout.lexicon.read_text().splitlines()
    assert lines[:2] == ["<UNK> SPN", "!SIL SIL"]
    assert (layout.dict_dir / "silence_phones.txt").read_text() == "SIL\nSPN\n"


def test_dict_folder_with_probabilities(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dict"
    folder.mkdir()
    words = ["<UNK>", "ann", "bob", "bye", "hello", "hi"]
    write_lines(
        folder / "lexiconp.txt", [f"{w} 0.5 X" if w != "<UNK>" else "<UNK> 1 N" for w in words]
    )
    write_lines(folder / "silence_phones.txt", ["N"])
    write_lines(folder / "nonsilence_phones.txt", ["X"])
    write_lines(folder / "optional_silence.txt", ["N"])
    layout = Layout(tmp_path / "out")
    prepare(config(data, dict_dir=str(folder)), layout.root, 1)
    assert layout.lexicon.read_text().splitlines()[:2] == ["<UNK> N", "ann X"]
    assert (layout.dict_dir / "lexiconp.txt").read_text() == (folder / "lexiconp.txt").read_text()
    write_lines(folder / "nonsilence_phones.txt", ["Y"])
    with pytest.raises(UserError, match=r"phone 'X' .* is in no phone list"):
        prepare(config(data, dict_dir=str(folder)), layout.root, 1)


@pytest.mark.parametrize("folder", [True, False])
def test_a_bare_lexicon_with_probabilities_keeps_them(
    data: Path, tmp_path: Path, folder: bool
) -> None:
    (tmp_path / "bare").mkdir()
    path = tmp_path / "bare/lexiconp.txt"
    write_lines(path, [f"{w} 0.25 X" for w in ("ann", "bob", "bye", "hello", "hi")])
    layout = Layout(tmp_path / "out")
    prepare(config(data, dict_dir=str(path.parent if folder else path)), layout.root, 1)
    found = {p.word: p.probability for p in read_dictionary(layout.dict_dir).lexicon}
    assert found["<UNK>"] == found["!SIL"] == 1.0
    assert {found[word] for word in ("ann", "bob", "bye", "hello", "hi")} == {0.25}


def test_probabilities_of_silence_reach_the_lang_folder(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dict"
    folder.mkdir()
    words = ["<UNK>", "ann", "bob", "bye", "hello", "hi"]
    silence = [f"{w} 1 0.25 2 0.5 {'N' if w == '<UNK>' else 'X'}" for w in words]
    write_lines(folder / "lexiconp_silprob.txt", silence)
    write_lines(folder / "silprob.txt", ["<s> 0.9", "</s>_s 1.5", "</s>_n 0.25", "overall 0.4"])
    layout = Layout(tmp_path / "out")
    with pytest.raises(UserError, match=r"silprob.txt: silence_phones.txt, .* are not beside it"):
        prepare(config(data, dict_dir=str(folder)), layout.root, 1)
    write_lines(folder / "silence_phones.txt", ["N"])
    write_lines(folder / "nonsilence_phones.txt", ["X"])
    write_lines(folder / "optional_silence.txt", ["N"])
    prepare(config(data, dict_dir=str(folder)), layout.root, 1)
    file, lang = tmp_path / "config.yaml", tmp_path / "lang"
    file.write_text("name: t\ncorpus: {kind: an4}\n")
    arguments = ["--config", str(file), "--dict", str(layout.dict_dir), "--out", str(lang)]
    assert main(["lang", *arguments]) == 0
    fst = kaldifst.StdVectorFst.read(str(lang / "L.fst"))
    finals = [fst.final(state).value for state in (1, 2)]
    assert finals == pytest.approx([-math.log(0.25), -math.log(1.5)])


def test_text_of_the_language_model(data: Path, tmp_path: Path) -> None:
    text = tmp_path / "more.txt"
    text.write_text("hello   hello\n\nbye\n")
    layout = Layout(tmp_path / "out")
    prepare(config(data, lm_text=str(text)), layout.root, 1)
    assert layout.lm("train").read_text() == "hello hello\nbye\n"
    text.write_text("\n\n")
    with pytest.raises(UserError, match="no sentence"):
        prepare(config(data, lm_text=str(text)), layout.root, 1)
    text.write_bytes(b"caf\xe9\n")
    with pytest.raises(UserError, match="not UTF-8"):
        prepare(config(data, lm_text=str(text)), layout.root, 1)
    text.write_bytes(gzip.compress(b"bye\n"))
    prepare(config(data, lm_text=str(text)), layout.root, 1)
    assert layout.lm("train").read_text() == "bye\n"


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_for_a_text_is_refused_before_audio_is_read(
    data: Path, tmp_path: Path, packed: bool
) -> None:
    model = b"\n\\data\\\nngram 1=1\n\n\\1-grams:\n-1\tbye\n\n\\end\\\n"
    (tmp_path / "text").write_bytes(gzip.compress(model) if packed else model)
    (data / "wav.scp").write_text("no audio\n")
    with pytest.raises(
        UserError, match=r"an ARPA language model, not a text\. Give it as lm\.arpa"
    ):
        prepare(config(data, lm_text=str(tmp_path / "text")), tmp_path / "out", 1)


def test_words_outside_the_lexicon(data: Path, tmp_path: Path) -> None:
    replace_line(data.parents[1] / "lexicon.txt", "ann SPN", None)
    with pytest.raises(UserError, match="'ann' is not in the lexicon"):
        prepare(config(data), tmp_path / "out", 1)
    summaries = prepare(config(data, max_oov=0.2), tmp_path / "out", 1)
    assert summaries["train"].oov == 1


def test_the_last_line_of_several_faults_tells_the_first(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hadpsgd status` shows the last line of a log."""
    for entry in ("ann SPN", "hi SPN"):
        replace_line(data.parents[1] / "lexicon.txt", entry, None)
    mine = write_config(config(data), tmp_path / "config.yaml")
    assert main(["corpus", "--config", str(mine), "--out", str(tmp_path / "c")]) == 2
    *every, last = capsys.readouterr().err.splitlines()
    assert len([line for line in every if "is not in the lexicon" in line]) == 2
    assert last.startswith(f"hadpsgd corpus: error: 2 faults, the first: {data}")
    assert ": word 'ann' is not in the lexicon (1 time). Add it to lexicon.txt, " in last
    assert "corpus.max_oov" in last


def test_a_part_is_shown_with_what_is_known_of_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words are held against the dictionary in a stage of its own, which hears no audio."""
    replace_line(data.parents[1] / "lexicon.txt", "ann SPN", None)
    mine = write_config(config(data, max_oov=0.2), tmp_path / "config.yaml")
    known = {}
    for part, name in (("dictionary", ""), ("data", "eval"), ("words", "eval")):
        told = ["--only", part, *(["--set", name] if name else [])]
        assert main(["corpus", "--config", str(mine), "--out", str(tmp_path / "c"), *told]) == 0
        known[part] = capsys.readouterr().out
    heads = {part: table.splitlines()[0].split()[4:] for part, table in known.items() if table}
    assert heads == {
        "data": ["minutes", "words", "vocabulary"],
        "words": ["words", "vocabulary", "OOV"],
    }
    assert "1 (14.29 %)" in known["words"] and " 0.2 " in known["data"]
    counted = json.loads((tmp_path / "c/words/eval.json").read_text())
    assert (counted["seconds"], counted["oov"]) == (None, 1)


def test_pipes(data: Path, tmp_path: Path) -> None:
    place = data.parents[1] / "audio" / "call.wav"
    write_lines(data / "wav.scp", [f"call-A cat {place} |", f"call-B cat {place} |"])
    with pytest.raises(UserError, match="faults"):
        prepare(config(data), tmp_path / "out", 1)
    prepare(config(data, allow_pipes=True), tmp_path / "out", 1)
    copied = Layout(tmp_path / "out").data("train") / "wav.scp"
    assert copied.read_text() == (data / "wav.scp").read_text()


def test_command_names_the_users_file(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text(config(data).model_dump_json())
    arguments = ["corpus", "--config", str(settings), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    capsys.readouterr()
    replace_line(data / "text", "ann-2 bye", "ann-2")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{data}/text:2: empty transcript of utterance 'ann-2'" in said
    assert (tmp_path / "out" / "data" / "train" / "text").is_file()  # the last good one stays
