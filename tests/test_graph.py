"""HCLG: against Kaldi's on the reference data, and its operations by themselves."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd import kaldi_io, memory
from hadpsgd.cli import main
from hadpsgd.errors import UserError
from hadpsgd.gmm import event_map, transition_model
from hadpsgd.gmm.flat_start import monophone_tree
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph import arrays
from hadpsgd.graph import compile as compile_module
from hadpsgd.graph.arrays import ARC, Arrays, assemble
from hadpsgd.graph.command import of_arpa
from hadpsgd.graph.compile import Progress, Scales, compile_graph, make_g, read_fst
from hadpsgd.graph.operations import add_self_loops, push_special, remove_symbols
from hadpsgd.graph.transitions import Transitions
from hadpsgd.progress import last_line

ACOUSTIC_SCALE = np.float32(0.0833)


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> Path:
    return shared / "kaldi_an4"


@pytest.fixture(scope="module")
def model(kaldi: Path) -> TransitionModel:
    return transition_model.read(kaldi / "exp/tri3b/final.mdl")


@pytest.fixture(scope="module")
def ours(kaldi: Path, model: TransitionModel) -> Arrays:
    return compiled(kaldi, model)


def compiled(kaldi: Path, model: TransitionModel, determinised: bool = True) -> Arrays:
    tree = event_map.read(kaldi / "exp/tri3b/tree")
    grammar = read_fst(kaldi / "lang/G.fst")
    return compile_graph(
        kaldi / "lang", grammar, tree, model, Scales(), Progress(tree.width), determinised
    )


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


def best_paths(
    graph: Arrays, model: TransitionModel, kaldi: Path, beam: float
) -> list[tuple[float, int, list[int]]]:
    """(cost, frames, words) of the golden utterances."""
    fst = kaldifst.StdConstFst(arrays.to_fst(graph))
    found = []
    for _, scores in kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz"):
        options = kaldi_decoder.FasterDecoderOptions(beam=beam)
        decoder = kaldi_decoder.FasterDecoder(fst, options)
        columns = np.ascontiguousarray(scores[:, model.pdf[1:]] * ACOUSTIC_SCALE)
        decoder.decode(kaldi_decoder.DecodableCtc(columns))
        _, path = decoder.get_best_path()
        _, _, words, weight = kaldifst.get_linear_symbol_sequence(path)
        found.append((weight.value1 + weight.value2, len(scores), words))
    return found


def test_best_paths_cost_what_they_cost_in_kaldis_graph(
    kaldi: Path, model: TransitionModel, ours: Arrays
) -> None:
    theirs = arrays.read(kaldi / "exp/tri3b/graph/HCLG.fst")
    assert len(ours.final) < 1.1 * len(theirs.final)
    assert len(ours.arcs) < 1.01 * len(theirs.arcs)
    pairs = zip(
        best_paths(ours, model, kaldi, 16.0), best_paths(theirs, model, kaldi, 16.0), strict=True
    )
    for (cost, frames, words), (wanted, _, wanted_words) in pairs:
        assert abs(cost - wanted) / frames < 1e-3
        assert words == wanted_words


def test_without_determinisation_best_paths_cost_the_same(
    kaldi: Path, model: TransitionModel, ours: Arrays
) -> None:
    larger = compiled(kaldi, model, determinised=False)
    assert len(larger.arcs) > len(ours.arcs)
    pairs = zip(
        best_paths(larger, model, kaldi, 16.0), best_paths(ours, model, kaldi, 16.0), strict=True
    )
    for (cost, frames, words), (wanted, _, wanted_words) in pairs:
        assert abs(cost - wanted) / frames < 1e-3
        assert words == wanted_words


def test_phones_alone_need_neither_determinisation_nor_minimisation(
    kaldi: Path, model: TransitionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LG is deterministic and minimal; each of its arcs becomes a chain of its own label."""
    tree = monophone_tree([[phone] for phone in model.topology.phones], model.topology)
    alone = transition_model.make(tree, model.topology)
    grammar = read_fst(kaldi / "lang/G.fst")

    def made() -> Arrays:
        return compile_graph(kaldi / "lang", grammar.copy(), tree, alone, Scales(), Progress(1))

    graph = made()
    fst = arrays.to_fst(graph)
    kaldifst.minimize_encoded(fst)
    assert fst.num_states > 0.98 * len(graph.final)
    monkeypatch.setattr(compile_module, "is_deterministic", lambda _: False)
    determinised = made()
    assert len(determinised.final) == len(graph.final)
    assert np.sort(determinised.arcs["weight"]) == pytest.approx(
        np.sort(graph.arcs["weight"]), abs=1e-4
    )


def test_g_of_kaldis_arpa_is_kaldis_g(kaldi: Path, tmp_path: Path) -> None:
    import gzip

    plain = tmp_path / "arpa"
    plain.write_bytes(gzip.decompress((kaldi / "lang/4gram.arpa.gz").read_bytes()))
    made = make_g(arpa=plain, words=kaldi / "lang/words.txt", out=tmp_path / "G.fst")
    theirs = arrays.read(kaldi / "lang/G.fst")
    got = arrays.from_fst(made)
    assert (len(got.final), len(got.arcs)) == (len(theirs.final), len(theirs.arcs))
    assert np.sort(got.arcs["weight"]) == pytest.approx(np.sort(theirs.arcs["weight"]), abs=1e-5)


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


def random_graph(draw: st.DrawFn, symbols: int) -> Arrays:
    """A small acyclic graph; state 0 starts, the last state ends."""
    size = draw(st.integers(2, 6))
    count = draw(st.integers(1, 12))
    arcs = np.zeros(count + size - 1, ARC)
    sources = np.zeros(len(arcs), np.int64)
    for i in range(len(arcs)):
        low = draw(st.integers(0, size - 2)) if i < count else i - count
        high = draw(st.integers(low + 1, size - 1)) if i < count else low + 1
        sources[i] = low
        arcs[i] = (
            draw(st.integers(0, symbols)),
            draw(st.integers(0, 3)),
            draw(st.integers(0, 40)) / 8,
            high,
        )
    final = np.full(size, np.inf, np.float32)
    final[-1] = draw(st.integers(0, 8)) / 8
    return assemble(0, final, sources, arcs)


def all_paths(graph: Arrays) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """(inputs, outputs, cost) of every path, epsilons left out."""
    found = []

    def walk(state: int, inputs: tuple[int, ...], outputs: tuple[int, ...], cost: float) -> None:
        if np.isfinite(graph.final[state]):
            found.append((inputs, outputs, cost + float(graph.final[state])))
        for arc in graph.arcs[graph.first[state] : graph.first[state + 1]]:
            if arc["next"] == state:
                continue  # self-loops are looked at elsewhere
            i, o = int(arc["ilabel"]), int(arc["olabel"])
            walk(
                int(arc["next"]),
                inputs + ((i,) if i else ()),
                outputs + ((o,) if o else ()),
                cost + float(arc["weight"]),
            )

    walk(graph.start, (), (), 0.0)
    return sorted(found)


@st.composite
def graphs(draw: st.DrawFn, symbols: int = 4) -> Arrays:
    return random_graph(draw, symbols)


def same_paths(
    a: list[tuple[tuple[int, ...], tuple[int, ...], float]],
    b: list[tuple[tuple[int, ...], tuple[int, ...], float]],
) -> bool:
    return len(a) == len(b) and all(
        x[:2] == y[:2] and abs(x[2] - y[2]) < 1e-3 for x, y in zip(a, b, strict=True)
    )


def best_by_label(
    paths: list[tuple[tuple[int, ...], tuple[int, ...], float]],
) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    best: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for inputs, outputs, cost in paths:
        best[inputs, outputs] = min(cost, best.get((inputs, outputs), np.inf))
    return sorted((i, o, cost) for (i, o), cost in best.items())


@given(graphs())
@settings(max_examples=50)
def test_arrays_pass_through_kaldifst_unchanged(graph: Arrays) -> None:
    back = arrays.from_fst(arrays.to_fst(graph))
    assert back.start == graph.start
    assert np.array_equal(back.final, graph.final)
    assert np.array_equal(back.first, graph.first)
    assert np.array_equal(back.arcs, graph.arcs)


@given(graphs())
@settings(max_examples=50)
def test_push_special_keeps_the_cost_of_every_path(graph: Arrays) -> None:
    fst = arrays.to_fst(graph)
    kaldifst.connect(fst)
    graph = arrays.from_fst(fst)
    pushed = push_special(graph)
    assert same_paths(best_by_label(all_paths(graph)), best_by_label(all_paths(pushed)))


def test_push_special_evens_what_leaves_a_state(kaldi: Path) -> None:
    graph = push_special(arrays.read(kaldi / "lang/G.fst"), delta=1e-3)
    mass = np.bincount(
        graph.sources, np.exp(-graph.arcs["weight"].astype(float)), len(graph.final)
    ) + np.exp(-graph.final.astype(float))
    assert mass.max() / mass.min() < 1.002


def test_symbols_become_epsilon() -> None:
    arcs = np.array([(5, 1, 0.0, 1), (7, 2, 0.0, 1)], ARC)
    graph = assemble(0, np.array([np.inf, 0.0], np.float32), np.zeros(2, np.int64), arcs)
    assert remove_symbols(graph, [7]).arcs["ilabel"].tolist() == [5, 0]


@given(graph=graphs(symbols=40))
@settings(max_examples=60)
def test_self_loops_cost_what_the_model_says(model: TransitionModel, graph: Arrays) -> None:
    looped = add_self_loops(graph, model, 0.3)
    leave = np.zeros(model.num_ids + 1)
    loop_of = np.zeros(model.num_ids + 1, np.int64)
    for tid in range(1, model.num_ids + 1):
        state = model.state_of_id[tid]
        ids = np.arange(model.first_id[state], model.first_id[state + 1])
        loops = ids[model.is_self_loop[ids]]
        if len(loops):
            loop_of[tid] = loops[0]
            leave[tid] = -0.3 * np.log1p(-np.exp(float(model.log_probs[loops[0]])))
    wanted = [
        (inputs, outputs, cost + sum(leave[tid] for tid in inputs))
        for inputs, outputs, cost in all_paths(graph)
    ]
    assert same_paths(best_by_label(wanted), best_by_label(all_paths(looped)))
    # every state entered by a transition-id has that id's self-loop, at its price
    for state, arc in zip(looped.sources, looped.arcs, strict=True):
        if arc["ilabel"] == 0 or arc["next"] == state:
            continue
        target = int(arc["next"])
        own = looped.arcs[looped.first[target] : looped.first[target + 1]]
        loops = own[own["next"] == target]
        wanted_loop = loop_of[arc["ilabel"]]
        assert loops["ilabel"].tolist() == ([wanted_loop] if wanted_loop else [])
        if wanted_loop:
            price = -0.3 * float(model.log_probs[wanted_loop])
            assert float(loops["weight"][0]) == pytest.approx(price, abs=1e-4)


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


def test_damaged_graphs_are_named(tmp_path: Path, kaldi: Path) -> None:
    whole = (kaldi / "exp/tri3b/graph/HCLG.fst").read_bytes()
    for content in (b"", b"no graph at all", whole[:5000], whole[:20]):
        path = tmp_path / "HCLG.fst"
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"HCLG\.fst: not a graph"):
            arrays.read(path)
    with pytest.raises(UserError, match="no such graph"):
        arrays.read(tmp_path / "missing")


def test_a_grammar_without_pronounced_words_is_refused(
    kaldi: Path, model: TransitionModel, tmp_path: Path
) -> None:
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
    kaldi: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_assemble_sorts_arcs_by_state() -> None:
    arcs = np.zeros(4, ARC)
    arcs["ilabel"] = [1, 2, 3, 4]
    sources = np.array([1, 0, 1, 0])
    graph = assemble(0, np.zeros(2, np.float32), sources, arcs)
    assert graph.arcs["ilabel"].tolist() == [2, 4, 1, 3]
    assert graph.first.tolist() == [0, 2, 4]
    assert list(itertools.pairwise(graph.first)) == [(0, 2), (2, 4)]
