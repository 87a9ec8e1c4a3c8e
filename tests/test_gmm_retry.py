"""Alignment within a beam: what is retried with a wider one, and what fails then too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gmm_toy import Toy, toy

from hadpsgd.errors import UserError
from hadpsgd.gmm import event_map, viterbi
from hadpsgd.gmm.collect import tree_statistics, utterances_of
from hadpsgd.gmm.context_stats import Context
from hadpsgd.gmm.em import Outcome, Passes, Search
from hadpsgd.gmm.packed_graph import pack
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.results import Front, Result, check_failures, write_folder
from hadpsgd.gmm.workspace import Chunk, Workspace

# each utterance is one phone whose frames all look like its first state; the path must leave it
# for the last two frames, and falls behind by about this much
BEHIND = {"fine": 1.0, "retried": 20.0, "lost": 60.0}
FRAMES = 12
Made = tuple[Workspace, Passes, Toy]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """Data, tree and model of three phones."""
    # 0.1 (the acoustic scale) / 2 of the square, in two frames
    means = [
        [[0.0], [np.sqrt(behind / 0.1)], [np.sqrt(behind / 0.1)]] for behind in BEHIND.values()
    ]
    small = toy(means)
    with Workspace(tmp_path) as space:
        frames = np.zeros((FRAMES, 1), np.float32)
        space.fill((name, "speaker", frames) for name in BEHIND)
        space.store_packed(pack(small.graph(phone)) for phone in (1, 2, 3))
        yield space, Passes(space, Pipeline(0), 1), small


def aligned(made: Made, search: Search) -> Outcome:
    return made[1].align(made[2].model, search)


def test_what_fails_is_retried_and_then_named(made: Made) -> None:
    space = made[0]
    outcome = aligned(made, Search(beam=10.0, retry_beam=40.0))
    assert list(outcome.needed) == ["retried"]
    assert 10 < outcome.needed["retried"] < 25
    assert list(outcome.failed) == ["lost"]
    assert outcome.failed["lost"] == "a beam of 60 would be needed"
    assert list(outcome.per_frame) == ["fine", "retried"]
    assert {name: len(ids) for name, ids in space.aligned()} == {"fine": 12, "retried": 12}


def test_beams_decide(made: Made) -> None:
    """Without a wider beam the same utterance fails, with a wide one none is retried."""
    assert list(aligned(made, Search(beam=10.0, retry_beam=10.0)).failed) == ["retried", "lost"]
    wide = aligned(made, Search(beam=100.0, retry_beam=100.0))
    assert not wide.needed and not wide.failed
    # a retried utterance has the path that a wide beam finds
    paths = dict(made[0].aligned())
    aligned(made, Search(beam=10.0, retry_beam=40.0))
    again = dict(made[0].aligned())
    assert again.keys() == {"fine", "retried"}
    for name, ids in again.items():
        np.testing.assert_array_equal(ids, paths[name])


def test_what_is_too_long_to_align_is_named(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of taking all memory: of ten minutes in one utterance, some 10 GB."""
    states = len(made[2].graph(1).pdfs)
    monkeypatch.setattr(viterbi, "MOST_CELLS", FRAMES * states)
    assert not aligned(made, Search(beam=100.0, retry_beam=100.0)).failed
    monkeypatch.setattr(viterbi, "MOST_CELLS", FRAMES * states - 1)
    failed = aligned(made, Search(beam=100.0, retry_beam=100.0)).failed
    assert list(failed) == list(BEHIND)
    assert failed["fine"] == f"12 frames in {states} states are too many: it needs segments"


def test_the_last_frame_of_a_shorter_alignment_is_left_out(made: Made) -> None:
    space, passes, small = made
    aligned(made, Search(beam=100.0, retry_beam=100.0))
    paths = dict(space.aligned())
    paths["fine"] = paths["fine"][:-1]
    whole = Chunk(0, len(space))
    space.store_alignment(whole, np.zeros(space.num_frames, np.int32))
    assert space.load_alignments(paths.items()) == []
    found = [ids for _, ids in utterances_of(space, whole)]
    for ids, expected in zip(found, paths.values(), strict=True):
        np.testing.assert_array_equal(ids, expected)
    stats = tree_statistics(passes, small.model.transitions, Context())
    assert stats.frames == 3 * FRAMES - 1
    assert set(stats.events[:, 1].tolist()) == {1, 2, 3}


def test_failures_are_counted_and_limited(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, _, small = made
    outcome = aligned(made, Search(beam=10.0, retry_beam=40.0))
    check_failures(outcome, total=len(space), limit=0.34, where=Path("data"))
    assert "utterance lost not aligned: a beam of 60" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"1 of 3 utterances cannot be aligned.*lost"):
        check_failures(outcome, total=len(space), limit=0.33, where=Path("data"))
    phones = tmp_path / "phones.txt"
    phones.write_text("a 1\nb 2\nc 3\n")
    write_folder(tmp_path / "ali", Result(small.tree, small.model, Front()), space, outcome, phones)
    told = json.loads((tmp_path / "ali/alignment.json").read_text())
    assert told["utterances"] == 3 and told["aligned"] == 2 and told["frames"] == 24
    assert list(told["retried"]) == ["retried"] and list(told["failed"]) == ["lost"]
    assert event_map.read(tmp_path / "ali/tree").num_pdfs == 9
