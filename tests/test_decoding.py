"""Search and word times: against Kaldi's results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hadpsgd import kaldi_io
from hadpsgd.config.decoding import Decoding
from hadpsgd.decoding import lattice, lattice_io
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.decode import Scorer, Work, decode
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.scores import Scores, scores_of
from hadpsgd.decoding.search import Searcher
from hadpsgd.decoding.word_times import Span, WordAligner, phone_spans
from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.graph.transitions import Transitions

SCALE = 0.0833


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> Path:
    return shared / "kaldi_an4"


@pytest.fixture(scope="module")
def graph(kaldi: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaldi's own graph, with what our graph folders hold beside it."""
    folder = tmp_path_factory.mktemp("graph")
    (folder / "HCLG.fst").symlink_to(kaldi / "exp/tri3b/graph/HCLG.fst")
    for name in ("words.txt", "phones.txt", "phones"):
        (folder / name).symlink_to(kaldi / "lang" / name)
    model = transition_model.read(kaldi / "exp/tri3b/final.mdl")
    Transitions.of(model).write(folder / "transitions.npz")
    return folder


@dataclass(frozen=True)
class Golden:
    """Kaldi's scores of 20 utterances, as a maker of scorers."""

    path: Path
    faults: tuple[tuple[str, str], ...] = ()

    def __call__(self) -> Scorer:
        found = dict(kaldi_io.iterate(self.path / "golden/gmm_loglikes_test20.ark.gz"))
        for utterance, kind in self.faults:
            if kind == "nan":
                found[utterance] = np.full_like(found[utterance], np.nan)
            elif kind == "empty":
                found[utterance] = found[utterance][:0]
            elif kind == "narrow":
                found[utterance] = found[utterance][:, :-1]
            elif kind == "short":
                found[utterance] = found[utterance][:40]
        return found.__getitem__


def golden_words(kaldi: Path) -> dict[str, list[str]]:
    lines = (kaldi / "golden/bestpath_words_test20.txt").read_text().splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines}


def symbols(path: Path) -> dict[int, str]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {int(number): name for name, number in rows}


@pytest.mark.parametrize(("one_best", "jobs"), [(False, 1), (True, 1), (False, 2)])
def test_the_words_of_kaldi(
    kaldi: Path, graph: Path, tmp_path: Path, one_best: bool, jobs: int
) -> None:
    options = Decoding(acoustic_scale=SCALE, one_best=one_best)
    wanted = golden_words(kaldi)
    work = Work(searcher=Searcher(graph, options), make_scorer=Golden(kaldi))
    report = decode(work, list(wanted), tmp_path / "out", jobs=jobs, max_failed=0.0)
    assert report["failed"] == report["partial"] == []
    names = symbols(kaldi / "lang/words.txt")
    found = {
        utterance: [
            names[word]
            for word in best_paths(lat, [Scaling(acoustic_scale=SCALE)])[0].words.tolist()
        ]
        for utterance, lat in lattice_io.read(tmp_path / "out")
    }
    assert found == wanted
    assert list(found) == list(wanted)
    assert (tmp_path / "out" / "words.txt").exists()


def test_lattices_do_not_depend_on_what_is_searched_together(kaldi: Path, graph: Path) -> None:
    names = list(golden_words(kaldi))[:5]
    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE))
    ways = [(5, 1 << 30), (5, 1), (2, 1 << 30)]  # lanes, and bytes of scores at a time
    together, *others = (
        Work(searcher=searcher, make_scorer=Golden(kaldi), lanes=lanes, room=room)()(names)
        for lanes, room in ways
    )
    for other in others:
        assert [name for name, *_ in other.results] == names
        assert [entry for *_, entry in other.results] == [entry for *_, entry in together.results]


def found(searcher: Searcher, scores: NDArray[np.float32]) -> Lattice:
    lat = searcher(scores).lattice
    assert lat is not None
    return lat


@pytest.mark.parametrize("one_best", [False, True])
def test_scores_made_little_by_little(
    kaldi: Path, graph: Path, monkeypatch: pytest.MonkeyPatch, one_best: bool
) -> None:
    """The same lattices to the byte, and never more scores at a time than a chunk holds."""
    names = list(golden_words(kaldi))[:3]
    whole = dict(kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz"))
    pdfs = whole[names[0]].shape[1]
    monkeypatch.setattr("hadpsgd.decoding.scores.WHOLE", 4 * pdfs * 50)
    most = 0

    def little(name: str) -> Scores:
        def make(begin: int, end: int) -> NDArray[np.float32]:
            nonlocal most
            most = max(most, end - begin)
            return whole[name][begin:end]

        return scores_of(frames=len(whole[name]), pdfs=pdfs, make=make)

    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE, one_best=one_best))
    found = searcher.search([little(name) for name in names], together=2)
    wanted = searcher.search([whole[name] for name in names], together=2)
    for one, other in zip(found, wanted, strict=True):
        assert one.lattice is not None and other.lattice is not None
        assert lattice_io.encode(one.lattice) == lattice_io.encode(other.lattice)
    assert most == 50 < min(len(whole[name]) for name in names)
    whole[names[1]][-1, 0] = np.nan
    with pytest.raises(UserError, match="not finite"):
        list(searcher.search(map(little, names)))


def test_costs_add_up(kaldi: Path, graph: Path) -> None:
    """Acoustic costs of a path are the scores that it passes, not scaled."""
    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE))
    pdf = searcher.transitions.pdf
    for _, scores in list(kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz"))[:5]:
        path = best_paths(found(searcher, scores), [Scaling(acoustic_scale=SCALE)])[0]
        assert len(path.transitions) == len(scores)
        acoustic = -scores[np.arange(len(scores)), pdf[path.transitions]].sum(dtype=np.float64)
        assert path.acoustic == pytest.approx(acoustic, rel=1e-5)
        assert path.cost == pytest.approx(path.graph + SCALE * path.acoustic, rel=1e-6)


def test_kaldis_own_alignments_have_kaldis_phones(kaldi: Path) -> None:
    transitions = Transitions.of(transition_model.read(kaldi / "exp/tri3b_ali/final.mdl"))
    names = symbols(kaldi / "lang/phones.txt")
    wanted: dict[str, list[tuple[int, int, str]]] = {}
    for line in (kaldi / "golden/phone_ctm_train.txt").read_text().splitlines():
        utterance, _, begin, length, phone = line.split()
        first, frames = round(float(begin) * 100), round(float(length) * 100)
        wanted.setdefault(utterance, []).append((first, first + frames, phone))
    wanted.popitem()  # the file ends within its last utterance
    checked = 0
    for job in (1, 2):
        for utterance, ids in kaldi_io.iterate(kaldi / f"exp/tri3b_ali/ali.{job}.gz", "ints"):
            if utterance not in wanted:
                continue
            nothing = np.zeros(0, np.int32)
            path = lattice.Path(
                transitions=ids,
                words=nothing,
                word_frames=nothing,
                cost=0.0,
                graph=0.0,
                acoustic=0.0,
            )
            spans = phone_spans(path, transitions)
            assert [(s.begin, s.end, names[s.label]) for s in spans] == wanted[utterance]
            checked += 1
    assert checked == len(wanted) > 0


def test_faults_of_scores_are_named(kaldi: Path, graph: Path, tmp_path: Path) -> None:
    names = list(golden_words(kaldi))[:4]
    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE))
    for kind, message in (("nan", "not finite"), ("narrow", "for a graph of 424 pdfs")):
        work = Work(searcher=searcher, make_scorer=Golden(kaldi, ((names[1], kind),)))
        with pytest.raises(UserError, match=rf"{names[1]}: .*{message}"):
            decode(work, names, tmp_path / "out", jobs=1, max_failed=0.0)
        assert not (tmp_path / "out").exists()


def test_partial_and_failed_utterances_are_counted(
    kaldi: Path, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = list(golden_words(kaldi))[:4]
    faults = ((names[0], "short"), (names[2], "empty"))
    work = Work(
        searcher=Searcher(graph, Decoding(acoustic_scale=SCALE, beam=4.0)),
        make_scorer=Golden(kaldi, faults),
    )
    report = decode(work, names, tmp_path / "out", jobs=1, max_failed=0.25)
    assert report["failed"] == [names[2]]
    assert names[0] in report["partial"]
    assert [name for name, _ in lattice_io.read(tmp_path / "out")] == [names[0], names[1], names[3]]
    assert "1 of 4 utterances have no path" in capsys.readouterr().err
    assert json.loads((tmp_path / "out/decode.json").read_text())["utterances"] == 4
    with pytest.raises(UserError, match="1 of 4 utterances have no path"):
        decode(work, names, tmp_path / "other", jobs=1, max_failed=0.2)


def test_a_missing_graph_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"transitions.npz: missing"):
        Searcher(tmp_path, Decoding())


def test_a_graph_that_scoring_cannot_use_is_refused_first(
    kaldi: Path, graph: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "graph"
    folder.mkdir()
    for path in graph.iterdir():
        (folder / path.name).symlink_to(path.resolve())
    work = Work(
        searcher=Searcher(folder, Decoding(acoustic_scale=SCALE)), make_scorer=Golden(kaldi)
    )
    (folder / "words.txt").unlink()
    with pytest.raises(UserError, match=r"words\.txt: missing"):
        decode(work, ["no utterance"], tmp_path / "out", jobs=1, max_failed=0.0)
    lines = (kaldi / "lang/words.txt").read_text().splitlines()
    (folder / "words.txt").write_text("".join(f"{line}\n" for line in lines[:-5]))
    with pytest.raises(UserError, match=r"words\.txt: lacks \d+ words of HCLG.fst, such as number"):
        decode(work, ["no utterance"], tmp_path / "out", jobs=1, max_failed=0.0)
    few = np.ones(3, np.int32)
    (folder / "transitions.npz").unlink()
    Transitions(few, few, few > 0, few > 0).write(folder / "transitions.npz")
    with pytest.raises(UserError, match=r"HCLG\.fst: transition-id \d+, and transitions.npz ends"):
        Searcher(folder, Decoding(acoustic_scale=SCALE))


def aligned(words: list[int], phones: list[int], aligner: WordAligner) -> list[tuple[int, ...]]:
    spans = [Span(label=phone, begin=3 * i, end=3 * i + 3) for i, phone in enumerate(phones)]
    frames = np.arange(len(words), dtype=np.int32)
    ids = np.zeros(3 * len(phones), np.int32)
    path = lattice.Path(
        transitions=ids,
        words=np.array(words, np.int32),
        word_frames=frames,
        cost=0.0,
        graph=0.0,
        acoustic=0.0,
    )
    return [(s.label, s.begin // 3, s.end // 3) for s in aligner.words(path, spans)]


def test_words_get_the_phones_of_their_pronunciations() -> None:
    aligner = WordAligner({0: [(1,)], 5: [(10,), (10, 11)], 6: [(11, 12)], 7: [(1,)]})
    # 10 11 12: word 5 must leave 11 to word 6
    assert aligned([5, 6], [1, 10, 11, 12, 1], aligner) == [(5, 1, 2), (6, 2, 4)]
    assert aligned([5, 6], [10, 11, 1, 1, 11, 12], aligner) == [(5, 0, 2), (6, 4, 6)]
    assert aligned([7], [1], aligner) == [(7, 0, 1)]
    assert aligned([5, 6], [10, 11], aligner) == [(5, 0, 1), (6, 1, 2)]  # cut off
    assert aligned([], [1, 1], aligner) == []
    assert aligner.unaligned == 0
    aligned([6], [10], aligner)
    assert aligner.unaligned == 1


def test_confidence_means_what_it_says(kaldi: Path, graph: Path) -> None:
    """Words with high confidence are right more often than words with low confidence."""
    searcher = Searcher(graph, Decoding(acoustic_scale=SCALE))
    names = symbols(kaldi / "lang/words.txt")
    lines = (kaldi / "data/test/text").read_text().splitlines()
    texts = {line.split()[0]: line.split()[1:] for line in lines}
    right: list[float] = []
    wrong: list[float] = []
    for utterance, scores in kaldi_io.iterate(kaldi / "golden/gmm_loglikes_test20.ark.gz"):
        lat = found(searcher, scores)
        path = best_paths(lat, [Scaling(acoustic_scale=SCALE)])[0]
        sure = confidences(lat, path, Scaling(acoustic_scale=SCALE)) or []
        said = [names[word] for word in path.words.tolist()]
        for word, confidence in zip(said, sure, strict=True):
            (right if word in texts[utterance] else wrong).append(confidence)
    assert len(right) > 60
    assert len(wrong) >= 5
    assert np.mean(right) > np.mean(wrong) + 0.05
