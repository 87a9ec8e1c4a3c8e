"""Hypotheses, references and lattices of thousands of words, through the commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.lattice import ARC, Lattice, Scaling
from hadpsgd.decoding.nbest import nbest
from hadpsgd.decoding.word_times import Span, WordAligner
from hadpsgd.graph.transitions import Transitions
from hadpsgd.scoring import align, wavefront
from hadpsgd.scoring.network import NetworkError, linear, parse

WORDS = 5000
YES, NO, NEVER = 1, 2, 3


def chain(words: Sequence[Sequence[tuple[int, float]]], frames: int = 3) -> Lattice:
    """A lattice that says one word after another, each by one of several arcs with their costs."""
    rows: list[tuple[int, int, float, float, int]] = []
    sources: list[int] = []
    for choices in words:
        state = len(rows) and rows[-1][-1]
        for word, cost in choices:
            rows.append((1, word, cost, 0.0, state + 1))
            sources.append(state)
        for number in range(1, frames):
            rows.append((2, 0, 0.0, 0.0, state + number + 1))
            sources.append(state + number)
    final = np.full((rows[-1][-1] + 1, 2), np.inf, np.float32)
    final[-1] = 0.0
    first = np.searchsorted(sources, np.arange(len(final) + 1))
    return Lattice(final, first, np.array(rows, ARC))


def decoding(folder: Path, said: dict[str, Lattice], references: dict[str, str]) -> list[str]:
    """A decoding and a data directory; the arguments that name them and a config."""
    decoded, data = folder / "decode", folder / "dev"
    (decoded / "phones").mkdir(parents=True)
    data.mkdir()
    (decoded / "words.txt").write_text("<eps> 0\nyes 1\nno 2\nnever 3\n")
    (decoded / "phones/align_lexicon.int").write_text("1 1 1\n2 2 1\n2 2 1 1\n3 3 1\n")
    # transition-id 1 ends a phone, 2 is its self-loop
    ids = np.array([0, 1, 1], np.int32)
    final, loop = np.array([False, True, False]), np.array([False, False, True])
    Transitions(phone=ids, pdf=ids, final=final, loop=loop).write(decoded / "transitions.npz")
    with (decoded / "lat.1.gz").open("wb") as stream:
        for name, lattice in said.items():
            stream.write(lattice_io.entry(name, lattice))
    (data / "utt2spk").write_text("".join(f"{name} {name}\n" for name in references))
    (data / "text").write_text("".join(f"{name} {text}\n" for name, text in references.items()))
    (folder / "config.yaml").write_text(
        "name: t\ncorpus: {kind: an4}\n"
        "scoring: {lm_weights: [8, 10], word_penalties: [0, 1], nist_tools: false}\n"
    )
    return ["--config", str(folder / "config.yaml"), "--decode", str(decoded), "--data", str(data)]


def test_five_thousand_words_from_tuning_to_times(tmp_path: Path) -> None:
    """A long chain with two ways at every word, and one that says too little."""
    two = chain([((YES, 0.0), (NO, 0.5 if place else 0.01)) for place in range(WORDS)])
    little = chain([((NO, 0.0),)] * 400)
    references = {"long": "yes " * (WORDS - 1) + "no no", "short": "no " * 400 + "yes"}
    common = decoding(tmp_path, {"long": two, "short": little}, references)
    tuned = tmp_path / "tuned.json"
    assert main(["tune", *common, "--out", str(tuned)]) == 0
    assert json.loads(tuned.read_text())["errors"] == 3
    common += ["--tuned", str(tuned)]
    score = tmp_path / "score"
    assert main(["score", *common, "--out", str(score)]) == 0
    report = json.loads((score / "wer.json").read_text())
    assert [report[key] for key in ("words", "sub", "del", "ins")] == [WORDS + 402, 1, 2, 0]
    assert report["unaligned"] == 0
    lines = (score / "ctm").read_text().splitlines()
    assert lines[WORDS - 1].split()[:5] == ["long", "1", "149.97", "0.03", "yes"]
    again = ["--stm", str(score / "stm"), "--ctm", str(score / "ctm")]
    assert main(["score-ctm", *again, "--out", str(tmp_path / "again")]) == 0
    assert json.loads((tmp_path / "again/wer.json").read_text())["errors"] == 3
    assert main(["nbest", *common, "--out", str(tmp_path / "nbest"), "--count", "3"]) == 0
    texts = (tmp_path / "nbest/text").read_text().splitlines()
    assert len(texts) == 4 and all(line.count(" ") == WORDS for line in texts[:3])
    assert texts[1].split()[1:3] == ["no", "yes"]  # the cheapest other way


def test_nists_tools_are_not_asked_about_segments_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """sclite would take hours; our counts stand alone, and a line says so."""
    (tmp_path / "stm").write_text("f 1 s 0 9 a b c d\n")
    (tmp_path / "ctm").write_text("f 1 0.5 0.5 a\n")
    tool = tmp_path / "sclite"
    tool.write_text("#!/bin/sh\nexit 7\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    files = ["--stm", str(tmp_path / "stm"), "--ctm", str(tmp_path / "ctm"), "--nist-tools"]
    for longest, said in ((4, "sclite failed: exit status 7"), (3, "not asked: a segment of 4")):
        monkeypatch.setattr("hadpsgd.scoring.reference.LONGEST", longest)
        assert main(["score-ctm", *files, "--out", str(tmp_path / "score")]) == 0
        assert said in capsys.readouterr().err


def test_wide_lattices_of_many_words(tmp_path: Path) -> None:
    """Three words at each of 2,000 places, all as likely: the best few are found all the same."""
    wide = chain([((YES, 0.1), (NO, 0.1), (NEVER, 0.1))] * 2000, frames=1)
    found = nbest(wide, Scaling(acoustic_scale=1.0), count=5)
    assert len({each.words for each in found}) == 5
    assert all(len(each.words) == 2000 for each in found)
    assert [each.cost for each in found] == pytest.approx([200.0] * 5, rel=1e-5)
    common = decoding(tmp_path, {"wide": wide}, {"wide": "never " * 2000})
    (tmp_path / "tuned.json").write_text('{"lm_weight": 10, "word_penalty": 0}')
    arguments = [*common, "--tuned", str(tmp_path / "tuned.json")]
    assert main(["score", *arguments, "--out", str(tmp_path / "score")]) == 0
    report = json.loads((tmp_path / "score/wer.json").read_text())
    assert report["words"] == 2000 and report["ins"] == report["del"] == 0


def test_a_word_late_in_the_utterance_decides_where_the_first_one_ends() -> None:
    """Phones 1 and 2; word 5 is 1 or 1 1, word 6 is 1 2: only the last of all leaves no choice."""
    aligner = WordAligner({0: [(9,)], 5: [(1,), (1, 1)], 6: [(1, 2)]})
    count = 3000
    spans = [Span(label=1, begin=i, end=i + 1) for i in range(count + 1)]
    spans.append(Span(label=2, begin=count + 1, end=count + 2))
    found = aligner.match((5,) * count + (6,), tuple(span.label for span in spans))
    assert found == [(i, i + 1) for i in range(count)] + [(count, count + 2)]
    # nothing fits: known without trying every way
    assert aligner.match((5,) * 40 + (6,), (1,) * 60 + (4,)) is None


def test_braces_within_braces() -> None:
    """As deep as anyone may write them."""
    deep = parse("{ a / " * WORDS + "b" + " }" * WORDS)
    assert len(deep.ends) == WORDS + 1
    with pytest.raises(NetworkError, match="without '}'"):
        parse("{ " * WORDS)


TRANSCRIPTS = st.lists(
    st.sampled_from(["a", "b", "th-", "-ing", "the", "{ a / b c }", "{ @ / (d) }", "(e)", "@"]),
    max_size=8,
).map(" ".join)


@given(TRANSCRIPTS, TRANSCRIPTS, st.booleans())
def test_long_alignments_are_those_of_short_ones(ref: str, hyp: str, fragments: bool) -> None:
    """Over arrays, to the last bit: otherwise ties would break otherwise."""
    one, other = (parse(text, optional_deletion=True) for text in (ref, hyp))
    by_cell = align._fill(one, other, fragments)
    by_front = wavefront.fill(one, other, fragments)
    assert by_front[:-1, :-1].tolist() == by_cell
    assert np.isinf(by_front[-1]).all() and np.isinf(by_front[:, -1]).all()


def test_long_words_are_aligned_as_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell and over arrays: the same edits of some hundred words."""
    draw = np.random.default_rng(3)
    ref = [f"w{i}" for i in draw.integers(0, 40, 300)]
    hyp = [w for w in ref if draw.random() > 0.1]
    for place in draw.integers(0, len(hyp), 40):
        hyp[place : place + draw.integers(0, 2)] = [f"w{draw.integers(0, 40)}"]
    found = []
    for least in (0, 1 << 30):
        monkeypatch.setattr(align, "_LARGE", least)
        found.append(align.align(linear(ref), linear(hyp)))
    assert found[0] == found[1]
    assert len({edit.kind for edit in found[0]}) == 4
