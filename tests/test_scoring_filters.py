"""Hypotheses filtered before scoring as Kaldi's s5c filters them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
import yaml
from corpus_data import write_lines
from eval2000_data import make_eval2000

from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.config.decoding import Scoring
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.scoring import formats, nist, sclite
from hadpsgd.scoring.filters import Filters, read_acronyms
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.reference import Reference, TextFilter

S5C = [
    r".*(\[noise|laughter|vocalized-noise\]).*",
    ".*<unk>.*",
    "uh|um|eh|mm|hm|ah|huh|ha|er|oof|hee|ach|eee|ew",
    ".*-",
]
"""What local/score_sclite.sh leaves out, as expressions of whole words."""
ACRONYMS = [
    "UCLA\tu._c._l._a.\tu c l a",
    "TV\tt._v.\tt v",
    "TV's\tt._v.'s\tt v's",
    "I\ti.\ti",
]
HESITATIONS = ["UH", "UM", "EH", "MM", "HM", "AH", "HUH", "HA", "ER", "OOF", "HEE", "ACH"]
HESITATIONS += ["EEE", "EW"]
SAID = ["hello", "bye", "u._c._l._a.", "T._V.", "t._v.'s", "i.", "uh", "Um", "um-hum", "uh-huh",
        "[noise]", "[laughter]", "[laughter-yes]", "[VOCALIZED-NOISE]", "<unk>", "<UNK>", "th-",
        "-ing", "laughter", "hum", "noise"]  # fmt: skip


def by_lines(lines: list[str]) -> list[str]:
    """An own reading of what the script's greps and its map of acronyms do to lines of a CTM."""
    table = {fields[1]: fields[2].split() for fields in (line.split("\t") for line in ACRONYMS)}
    kept = []
    for line in lines:
        upper = line.upper()
        if any(part in upper for part in ("[NOISE", "LAUGHTER", "VOCALIZED-NOISE]", "<UNK>")):
            continue
        if upper.split()[-1] in HESITATIONS or line.endswith("-"):
            continue
        file, channel, begin, duration, word = line.split()
        letters = table.get(word.lower(), [word])
        if len(letters) == 1:
            kept.append(f"{file} {channel} {begin} {duration} {letters[0]}")
            continue
        start, slot = float(begin), round(float(duration) / len(letters), 2)
        for letter in letters[:-1]:
            kept.append(f"{file} {channel} {start:.2f} {slot:.2f} {letter}")
            start += slot
        last = float(duration) - slot * (len(letters) - 1)
        kept.append(f"{file} {channel} {start:.2f} {last:.2f} {letters[-1]}")
    return kept


def random_ctm(seed: int) -> list[str]:
    source = random.Random(seed)
    lines = []
    for side in ("en_4156 A", "sw_4390 B"):
        time = 0
        for _ in range(150):
            length = source.randint(5, 60)
            lines.append(f"{side} {time / 100:.2f} {length / 100:.2f} {source.choice(SAID)}")
            time += length + source.randint(0, 5)
    return lines


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_lines(tmp_path / "acronyms.map", ACRONYMS)
    scoring = {"filters": S5C, "acronym_map": str(tmp_path / "acronyms.map")}
    content = {"name": "x", "corpus": {"kind": "an4"}, "scoring": scoring}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "c.yaml"


@pytest.fixture
def filters(config: Path) -> Filters:
    return Filters.of(load(config).scoring)


@pytest.mark.parametrize("seed", range(5))
def test_words_as_kaldis_script_leaves_them(filters: Filters, tmp_path: Path, seed: int) -> None:
    lines = random_ctm(seed)
    write_lines(tmp_path / "ctm", lines)
    ours = [w.line() for w in filters.timed(formats.read_ctm(tmp_path / "ctm"))]
    assert ours == by_lines(lines)


def test_lattices_words_pass_the_same_filters(filters: Filters) -> None:
    words = Words(dict(enumerate(SAID, 1)), filters)
    ids = list(words.names)
    lines = by_lines([f"f A 0.00 0.10 {word}" for word in SAID])
    assert words.spoken(ids) == [line.split()[-1] for line in lines]
    kept = [(word, place.start) for word, place in words.words(ids)]
    assert ("t._v.'s", SAID.index("t._v.'s")) in kept  # letters come last, with their times
    default = Filters.of(Scoring())
    assert not default.drop("um") and not default.drop("th-") and default.drop("[Vocalized-Noise]")


@pytest.mark.parametrize(
    ("patterns", "dropped", "kept"),
    [
        (["x", "(?i)foo"], ["X", "FOO", "foo"], ["xfoo"]),  # a flag inside an alternative: refused
        (["(?P<a>u)h", "(?P<a>u)m"], ["uh", "um"], ["u"]),  # a name twice: refused
        ([r"(a)\1", r"(b)\1"], ["aa", "bb"], ["ab", "b", "ba"]),  # groups counted on: bb stayed
    ],
)
def test_each_pattern_stands_for_itself(
    patterns: list[str], dropped: list[str], kept: list[str]
) -> None:
    filters = Filters.of(Scoring(filters=patterns))
    assert filters.text(" ".join(dropped + kept)).split() == kept


def test_transcripts_without_an_stm_pass_the_filters_too(filters: Filters, tmp_path: Path) -> None:
    """Noises and hesitations were left out of hypotheses alone: all of dev's were deletions."""
    text = "uh yes u._c._l._a. [laughter] th- [noise]"
    assert filters.text(text) == "yes u c l a"
    write_lines(tmp_path / "utt2spk", ["a-1 a"])
    write_lines(tmp_path / "text", [f"a-1 {text}"])
    data = DataDir.read(tmp_path, audio=False)
    said = TimedWord(file="a-1", channel="1", begin=0.0, duration=1.0, word="u._c._l._a.")
    yes = TimedWord(file="a-1", channel="1", begin=0.0, duration=0.1, word="yes")
    scored = Reference.of(data, {"a-1": 2.0}, filters).score([yes, *filters.spread(said)])
    assert nist.total(scored).words == 5 and nist.total(scored).errors == 0
    rules = TextFilter(data, filters)
    assert rules.ref(text) == "yes u c l a"
    write_lines(tmp_path / "stm", [f"a-1 1 a 0 2 {text}"])  # NIST's references stay as they are
    scored = Reference.of(data, {}, filters).score([yes])
    assert nist.total(scored).words == 6


def test_tuning_beside_an_stm_compares_like_with_like(filters: Filters, tmp_path: Path) -> None:
    """Hypotheses alone were filtered and spread: a perfect one counted errors in tuning."""
    text = "u._c._l._a. [noise] uh hello th-"
    write_lines(tmp_path / "utt2spk", ["a-1 a"])
    write_lines(tmp_path / "text", [f"a-1 {text}"])
    write_lines(tmp_path / "stm", ["a-1 1 a 0 2 u c l a (%hesitation) hello (th-)"])
    data = DataDir.read(tmp_path, audio=False)
    rules = TextFilter(data, filters)
    words = Words(dict(enumerate(text.split(), 1)), filters)
    said = rules.hyp(" ".join(words.spoken(list(words.names))))
    edits = nist.align_texts(rules.ref(data.utterances["a-1"].text), said, rules.options)
    assert "".join(edit.kind for edit in edits) == "CCCCC"


def test_references_in_the_lexicons_words(filters: Filters) -> None:
    said = "(%HESITATION) U C L A I watched (THE) T V uh"
    assert filters.heard(said) == ["u._c._l._a.", "I", "watched", "THE", "t._v."]
    assert Filters().heard("a (B) %hesitation") == ["a", "B"]


def test_alternatives_stay(filters: Filters) -> None:
    marks = [
        TimedWord(file="f", channel="A", begin=0.0, duration=0.0, word=mark)
        for mark in ("<ALT_BEGIN>", "<ALT>", "<ALT_END>")
    ]
    assert list(filters.timed(marks)) == marks


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["UCLA u._c._l._a. u c l a"], "acronyms.map:1: 'UCLA u._c._l._a. u c l a': not three"),
        (["UCLA\tu._c._l._a."], "not three fields"),
        ([], "no acronyms"),
    ],
)
def test_maps_that_are_none(tmp_path: Path, lines: list[str], message: str) -> None:
    write_lines(tmp_path / "acronyms.map", lines)
    with pytest.raises(Exception, match=re.escape(message)):
        read_acronyms(tmp_path / "acronyms.map")


def test_an_expression_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text('name: x\ncorpus: {kind: an4}\nscoring: {filters: ["[laughter"]}\n')
    assert main(["config", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "'scoring.filters.0' ('[laughter'): not a regular expression" in said


def test_any_recognisers_ctm_is_scored_as_in_s5c(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The counts are those of the filtered CTM, NIST's hubscr's too; and fewer than unfiltered."""
    data = make_eval2000(tmp_path / "s5c")
    lines = [
        "en_4156 A 0.40 0.30 hello", "en_4156 A 0.80 0.10 [laughter]", "en_4156 A 0.95 0.20 bo-",
        "en_4156 A 2.10 0.10 uh", "en_4156 A 2.30 0.20 bye", "en_4156 B 0.60 0.30 <unk>",
        "en_4156 B 1.00 0.40 t._v.", "sw_4390 A 0.30 0.20 Bye", "sw_4390 A 0.60 0.20 uh",
        "sw_4390 B 1.10 0.60 hello", "sw_4390 B 1.80 0.20 uh", "sw_4390 B 2.00 0.20 hello",
        "sw_4390 B 2.30 0.10 [noise]",
    ]  # fmt: skip
    write_lines(tmp_path / "ctm", lines)
    write_lines(tmp_path / "filtered", by_lines(lines))
    reports = {}
    for name, ctm, options in (
        ("whole", "ctm", []),
        ("ours", "ctm", ["--config", str(config)]),
        ("theirs", "filtered", []),
    ):
        out = tmp_path / name
        arguments = ["--stm", str(data / "stm"), "--glm", str(data / "glm"), "--nist-tools"]
        ctm_file = str(tmp_path / ctm)
        assert main(["score-ctm", *arguments, "--ctm", ctm_file, *options, "--out", str(out)]) == 0
        reports[name] = json.loads((out / "wer.json").read_text())
    assert reports["ours"] == reports["theirs"]
    assert reports["ours"]["errors"] < reports["whole"]["errors"]
    if sclite.command("hubscr.pl"):
        assert reports["ours"]["nist"] == {
            "tool": "hubscr",
            "agrees": True,
            "different_speakers": [],
        }
    part = DataDir.read(data)
    assert nist.total(Reference.of(part, {}, Filters()).score([])).words == reports["ours"]["words"]
    capsys.readouterr()
