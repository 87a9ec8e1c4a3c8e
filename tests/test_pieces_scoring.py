"""Recognised pieces as words again: their groups and times; how many of some words are found."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.lang import joined
from hadpsgd.decoding.lattice import Path as LatticePath
from hadpsgd.decoding.word_times import Span, WordAligner
from hadpsgd.graph.transitions import Transitions
from hadpsgd.scoring import sentences
from hadpsgd.scoring.align import Edit
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Timer, Words
from hadpsgd.scoring.nist import Sentence
from hadpsgd.scoring.tune import Setting


def test_timed_words_of_pieces() -> None:
    names = {1: "▁won", 2: "der", 3: "▁", 4: "it", 5: "▁<UNK>", 6: "</w>"}
    words = Words(names, Filters(frozenset({"<unk>"})), pieces=True)
    aligner = WordAligner({1: [(1,)], 2: [(2,)], 3: [()], 4: [(4,)], 5: [(5,)], 0: [(9,)]})
    flags = np.zeros(10, bool)
    transitions = Transitions(
        np.arange(10, dtype=np.int32), np.arange(10, dtype=np.int32), ~flags, flags
    )
    data = DataDir(Path("x"), {"u": Utterance(id="u", speaker="s", recording="r", start=1.0)})
    said = np.array([1, 2, 5, 3, 4], np.int32)
    path = LatticePath(
        transitions=np.array([9, 1, 2, 9, 5, 4], np.int32),
        words=said,
        word_frames=np.arange(5, dtype=np.int32),
        cost=0.0,
        graph=0.0,
        acoustic=0.0,
    )
    timed = Timer(words, transitions, aligner, data).timed("u", path, [0.9, 0.5, 1.0, 0.8, 0.7])
    assert words.inside == {2, 4, 6}  # no penalty for them
    assert Setting(lm_weight=10.0, word_penalty=0.5).scaling(words).begin(said).tolist() == [
        1,
        0,
        1,
        1,
        0,
    ]
    assert aligner.unaligned == 0
    assert [(w.word, round(w.begin, 2), round(w.duration, 2), w.confidence) for w in timed] == [
        ("wonder", 1.01, 0.02, 0.5),
        ("it", 1.05, 0.01, 0.7),
    ]
    assert aligner.words(
        path, [Span(label=p, begin=i, end=i + 1) for i, p in enumerate([9, 1, 2, 9, 5, 4])]
    )[3] == Span(label=3, begin=5, end=5)


@given(st.lists(st.sampled_from(["▁", "▁a", "b", "▁c'", "▁<UNK>"]), max_size=8))
def test_groups_hold_every_piece_once(names: list[str]) -> None:
    places = joined.groups(names)
    assert list(itertools.chain(*places)) == list(range(len(names)))
    assert all(names[p[0]].startswith("▁") for p in places[1:])


def test_recall_of_some_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edits = [
        Edit(kind="C", ref="zebra", hyp="zebra"),
        Edit(kind="S", ref="zebra", hyp="the"),
        Edit(kind="D", ref="quagga", hyp=None),
        Edit(kind="S", ref="the", hyp="zebra"),
        Edit(kind="I", ref=None, hyp="a"),
        Edit(kind="C", ref="other", hyp="other"),
        Edit(kind="C", ref=None, hyp=None),
    ]
    folder = tmp_path / "score"
    folder.mkdir()
    sentences.write(folder / sentences.FILE, [Sentence(name="s", speaker="a", edits=edits)])
    (tmp_path / "words").write_text("Zebra\nquagga\n")
    out = tmp_path / "out.json"
    arguments = [str(folder), "--words", str(tmp_path / "words"), "--out", str(out)]
    assert main(["word-recall", *arguments]) == 0
    report = json.loads(out.read_text())
    assert (report["said"], report["recognised"], report["false_alarms"]) == (3, 1, 1)
    assert (report["others"], report["others_errors"], report["others_wer"]) == (2, 2, 100.0)
    assert "1 of 3 recognised" in capsys.readouterr().out
