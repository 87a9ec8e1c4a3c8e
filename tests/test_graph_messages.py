"""What making a graph says: the time left, words left out, damaged files, too little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadpsgd import memory
from hadpsgd.cli import main
from hadpsgd.errors import UserError
from hadpsgd.gmm import event_map, transition_model
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph import arrays
from hadpsgd.graph import compile as compile_module
from hadpsgd.graph.command import of_arpa
from hadpsgd.graph.compile import Progress, Scales, compile_graph, make_g
from hadpsgd.graph.transitions import Transitions
from hadpsgd.progress import last_line


@pytest.fixture(scope="module")
def model(shared: Path) -> TransitionModel:
    return transition_model.read(shared / "kaldi_an4/exp/tri3b/final.mdl")


def test_a_step_tells_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the shares that steps take; `hadpsgd status` shows the last such line of the log."""
    clock = iter((100.0, 100.0, 131.0, 183.0, 200.0))
    monkeypatch.setattr(compile_module.time, "monotonic", lambda: next(clock))
    progress, log = Progress(3), tmp_path / "graph.log"
    said = []
    for name in ("G", "LG", "HCLG, minimised", "HCLG"):
        progress(name, 1000)
        with log.open("a") as stream:
            stream.write(capsys.readouterr().err)
        said.append(last_line(log))
    assert said[0] == "" and said[1] == "LG: 1,000 states (31.0 s), about 69 s left"
    assert said[2] == said[3] == "HCLG, minimised: 1,000 states (83.0 s), about 17 s left"


SMALL = (
    "\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-1.0\t<s>\t-0.3\n-0.4\ta\t-0.2\n-0.6\tb\n"
    "-0.5\t</s>\n\n\\2-grams:\n-0.1\t<s> a\n-0.2\ta b\n\n\\end\\\n"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\t-0.2\n", "\n", ":13: the context of this 2-gram has no back-off weight"),
        ("-0.6", "0.6", ":8: .*a probability above 1"),
        ("ngram 2=2", "ngram 2=3", r":15: 2 2-grams, .data. says 3"),
        ("-0.6", "nan", ":8: .*not a number"),
    ],
)
def test_what_is_no_language_model_makes_no_graph(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    """arpa2fst takes most of these for good."""
    path, words = tmp_path / "lm.arpa", tmp_path / "words.txt"
    path.write_text(SMALL.replace(old, new, 1))
    words.write_text("<eps> 0\na 1\nb 2\n#0 3\n<s> 4\n</s> 5\n")
    with pytest.raises(UserError, match=message):
        of_arpa(arpa=path, words=words)


def test_words_without_pronunciation_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, words = tmp_path / "lm.arpa", tmp_path / "words.txt"
    path.write_text(SMALL)
    words.write_text("<eps> 0\na 1\nb 2\n#0 3\n<s> 4\n</s> 5\n")
    assert of_arpa(arpa=path, words=words).num_states
    assert capsys.readouterr().err == ""
    words.write_text("<eps> 0\na 1\n#0 3\n<s> 4\n</s> 5\n")
    of_arpa(arpa=path, words=words)
    assert "1 of 2 words lack a pronunciation and are left out: b" in capsys.readouterr().err


def test_transitions_are_kept_beside_the_graph(model: TransitionModel, tmp_path: Path) -> None:
    kept = Transitions.of(model)
    kept.write(tmp_path / "transitions.npz")
    back = Transitions.read(tmp_path / "transitions.npz")
    assert np.array_equal(back.pdf, model.pdf)
    assert back.num_pdfs == 424
    with pytest.raises(UserError, match=r"lat: transition-id 10000, and transitions.npz ends at"):
        back.check(np.array([3, 10_000]), "lat")


@pytest.mark.parametrize(
    "fault", ["no archive", "empty", "part", "packing", "field", "length", "kind"]
)
def test_damaged_transitions_are_named(tmp_path: Path, fault: str) -> None:
    path, one = tmp_path / "transitions.npz", np.ones(3, np.int32)
    fields: dict[str, Any] = {"pdf": one, "phone": one, "final": one > 0, "loop": one > 0}
    if fault == "field":
        del fields["loop"]
    elif fault == "length":
        fields["loop"] = one[:1] > 0
    elif fault == "kind":
        fields["pdf"] = one / 2
    np.savez(path, **fields)
    whole = path.read_bytes()
    contents = {"no archive": b"PK no archive", "empty": b"", "part": whole[: len(whole) // 2]}
    packing = whole.rindex(b"PK\1\2") + 10
    contents["packing"] = whole[:packing] + b"\x63" + whole[packing + 1 :]
    path.write_bytes(contents.get(fault, whole))
    with pytest.raises(UserError, match=r"transitions\.npz: damaged .*Make the graph again"):
        Transitions.read(path)


def test_damaged_graphs_are_named(tmp_path: Path, shared: Path) -> None:
    whole = (shared / "kaldi_an4/exp/tri3b/graph/HCLG.fst").read_bytes()
    for content in (b"", b"no graph at all", whole[:5000], whole[:20]):
        path = tmp_path / "HCLG.fst"
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"HCLG\.fst: not a graph"):
            arrays.read(path)
    with pytest.raises(UserError, match="no such graph"):
        arrays.read(tmp_path / "missing")


def test_a_grammar_without_pronounced_words_is_refused(
    shared: Path, model: TransitionModel, tmp_path: Path
) -> None:
    kaldi = shared / "kaldi_an4"
    arpa = tmp_path / "arpa"
    lines = ["\\data\\", "ngram 1=3", "ngram 2=1", "", "\\1-grams:"]
    lines += ["-99\t<s>\t0", "-1\t</s>", "-0.1\t<s2>\t0", "", "\\2-grams:", "-0.1\t<s> <s2>"]
    arpa.write_text("\n".join([*lines, "", "\\end\\", ""]))
    words = tmp_path / "words.txt"
    text = (kaldi / "lang/words.txt").read_text()
    words.write_text(text + f"<s2> {len(text.splitlines())}\n")
    grammar = make_g(arpa=arpa, words=words, out=tmp_path / "G.fst")
    tree = event_map.read(kaldi / "exp/tri3b/tree")
    with pytest.raises(UserError, match="no word of the language model has a pronunciation"):
        compile_graph(kaldi / "lang", grammar, tree, model, Scales(), Progress(tree.width))


def test_what_does_not_fit_is_refused_before_it_is_made(
    shared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kaldi = shared / "kaldi_an4"
    monkeypatch.setattr("hadpsgd.memory.allowed", lambda: 80 * 2**20)
    config = tmp_path / "x.yaml"
    config.write_text("{name: x, corpus: {kind: builtin}}")
    arguments = [
        "--config",
        str(config),
        "--lang",
        str(kaldi / "lang"),
        "--out",
        str(tmp_path / "g"),
    ]
    arguments += ["--ali", str(kaldi / "exp/tri3b"), "--g", str(kaldi / "lang/G.fst")]
    assert main(["graph", *arguments]) == 2
    said = capsys.readouterr().err
    arcs = len(arrays.read(kaldi / "lang/G.fst").arcs)
    assert f"{arcs:,} arcs takes about 0.1 GiB of memory, and there are 0.1" in said
    assert "lm.first_pass_threshold" in said and said.count("\n") == 1
    assert not (tmp_path / "g").exists()


def test_memory_is_what_the_tightest_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    here = memory.allowed()
    assert 2**26 < here < 2**60
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "64")
    assert memory.allowed() == 64 * 2**20
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")  # all of the host
    assert memory.allowed() == here
