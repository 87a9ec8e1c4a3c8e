"""Graphs with damaged bytes, and other transducers in their place: refused before any search."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hadpsgd.cli import USER_ERROR, main
from hadpsgd.config.decoding import Decoding
from hadpsgd.decoding.reference import ReferenceGraph
from hadpsgd.decoding.search import Searcher
from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import Arrays
from hadpsgd.graph.transitions import Transitions


@pytest.fixture(scope="module")
def graph(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaldi's, as a graph folder."""
    kaldi, folder = shared / "kaldi_an4", tmp_path_factory.mktemp("graph")
    shutil.copyfile(kaldi / "exp/tri3b/graph/HCLG.fst", folder / "HCLG.fst")
    shutil.copyfile(kaldi / "lang/words.txt", folder / "words.txt")
    Transitions.of(transition_model.read(kaldi / "exp/tri3b/final.mdl")).write(
        folder / "transitions.npz"
    )
    return folder


def with_fst(graph: Path, content: bytes) -> Path:
    """The folder, with another HCLG.fst."""
    (graph / "HCLG.fst").write_bytes(content)
    return graph


def refused(graph: Path) -> str:
    """What all that reads graphs says, in one line."""
    with pytest.raises(UserError) as search:
        Searcher(graph, Decoding())
    with pytest.raises(UserError) as reference:
        ReferenceGraph.read(graph, ())
    assert str(search.value) == str(reference.value)
    assert str(search.value).startswith(f"{graph / 'HCLG.fst'}: ") and "\n" not in str(search.value)
    return str(search.value)


@pytest.mark.parametrize("name", ["L.fst", "L_disambig.fst", "G.fst"])
def test_another_transducer_in_its_place(name: str, shared: Path, graph: Path) -> None:
    """Labels of phones or words are transition-ids, too, as numbers: it was searched for hours."""
    said = refused(with_fst(graph, (shared / "kaldi_an4/lang" / name).read_bytes()))
    assert "not a graph of this model: transition-id" in said and "is a self-loop" in said


def test_a_graph_without_self_loops(shared: Path, graph: Path) -> None:
    whole = arrays.read(shared / "kaldi_an4/exp/tri3b/graph/HCLG.fst")
    kept = ~Transitions.read(graph / "transitions.npz").loop[whole.arcs["ilabel"]]
    less = arrays.assemble(whole.start, whole.final, whole.sources[kept], whole.arcs[kept])
    arrays.write(less, graph / "HCLG.fst")
    assert "no arc is one of the model's self-loops" in refused(graph)


def _next(found: Arrays) -> None:
    found.arcs["next"][7] = 10**6


def _label(found: Arrays) -> None:
    found.arcs["ilabel"][7] = -2


def _cost(found: Arrays) -> None:
    found.arcs["weight"][7] = np.nan


def _end(found: Arrays) -> None:
    found.final[7] = -np.inf


def _first(found: Arrays) -> None:
    found.first[7] = 10**6


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_next, "an arc whose next is 1000000"),
        (_label, "an arc whose ilabel is -2"),
        (_cost, "a cost that is no number"),
        (_end, "a cost that is no number"),
        (_first, "arcs of a state that do not follow"),
    ],
)
def test_flipped_bits(
    damage: Callable[[Arrays], None], said: str, shared: Path, graph: Path
) -> None:
    path = graph / "HCLG.fst"
    whole = arrays.read(shared / "kaldi_an4/exp/tri3b/graph/HCLG.fst")
    damaged = Arrays(whole.start, whole.final.copy(), whole.first.copy(), whole.arcs.copy())
    # `write` takes numbers of arcs from the first ones: of these it is written, then replaced
    arrays.write(whole, path)
    at = path.read_bytes().index(whole.arcs.tobytes()[:160])
    damage(damaged)
    content = bytearray(path.read_bytes())
    content[at:] = damaged.arcs.tobytes()
    states = content[at - 20 * len(whole.final) : at]
    table = np.frombuffer(bytes(states), "<u4").reshape(-1, 5).copy()
    table[:, 0], table[:, 1] = damaged.final.view(np.uint32), damaged.first[:-1]
    content[at - len(states) : at] = table.tobytes()
    assert f"a damaged graph ({said}" in refused(with_fst(graph, bytes(content)))


def test_a_start_that_is_no_state(shared: Path, graph: Path) -> None:
    whole = arrays.read(shared / "kaldi_an4/exp/tri3b/graph/HCLG.fst")
    arrays.write(Arrays(10**9, whole.final, whole.first, whole.arcs), graph / "HCLG.fst")
    assert "a damaged graph (start state 1000000000 of" in refused(graph)


def test_a_command_says_it_in_one_line(
    shared: Path, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kaldi = shared / "kaldi_an4"
    with_fst(graph, (kaldi / "lang/L.fst").read_bytes())
    (tmp_path / "config.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    arguments = ["decode-gmm", "--config", str(tmp_path / "config.yaml"), "--graph", str(graph)]
    arguments += ["--model", str(kaldi / "exp/tri3b"), "--data", "x", "--feats", "x"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == USER_ERROR
    said = capsys.readouterr().err
    assert "HCLG.fst: not a graph of this model" in said and said.count("\n") == 1
