"""HCLG and G against Kaldi's on the reference data."""

from __future__ import annotations

from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.gmm import event_map, transition_model
from hadpsgd.gmm.flat_start import monophone_tree
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph import arrays
from hadpsgd.graph import compile as compile_module
from hadpsgd.graph.arrays import Arrays
from hadpsgd.graph.compile import Progress, Scales, compile_graph, make_g, read_fst

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


def check_best_paths(ours: Arrays, theirs: Arrays, model: TransitionModel, kaldi: Path) -> None:
    """The same words at the same costs a frame."""
    pairs = zip(
        best_paths(ours, model, kaldi, 16.0), best_paths(theirs, model, kaldi, 16.0), strict=True
    )
    for (cost, frames, words), (wanted, _, wanted_words) in pairs:
        assert abs(cost - wanted) / frames < 1e-3
        assert words == wanted_words


def test_best_paths_cost_what_they_cost_in_kaldis_graph(
    kaldi: Path, model: TransitionModel, ours: Arrays
) -> None:
    theirs = arrays.read(kaldi / "exp/tri3b/graph/HCLG.fst")
    assert len(ours.final) < 1.1 * len(theirs.final)
    assert len(ours.arcs) < 1.01 * len(theirs.arcs)
    check_best_paths(ours, theirs, model, kaldi)


def test_without_determinisation_best_paths_cost_the_same(
    kaldi: Path, model: TransitionModel, ours: Arrays
) -> None:
    larger = compiled(kaldi, model, determinised=False)
    assert len(larger.arcs) > len(ours.arcs)
    check_best_paths(larger, ours, model, kaldi)


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
