"""Probabilities of pronunciations and of silence by word: counted, estimated, read, in L and LG."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_leaves import content

from hadpsgd.alignment.pronunciations import BEGIN, END, Counts, Spoken, estimate, utterance_of
from hadpsgd.cli import main
from hadpsgd.config import check
from hadpsgd.config.lang import Lang
from hadpsgd.corpus.lang.dictionary import Pronunciation, read_dictionary
from hadpsgd.corpus.lang.directory import read_symbols, write_lang
from hadpsgd.corpus.lang.graphemes import spelled
from hadpsgd.corpus.lang.lexicon_fst import Silence, context_arcs
from hadpsgd.corpus.lang.silences import Beside, Ends
from hadpsgd.errors import UserError
from hadpsgd.gmm.phone_graph import Lexicon, PhoneGraph
from hadpsgd.graph.compile import compose_lg, read_fst

LEXICON = """<unk> 1 0.4 1 1 SPN
a 1 0.25 1.5 0.5 AH
a 0.3 0.6 0.7 1.25 AH D
an 0.5 0.75 0.4 1.25 AH N
and 1 0.5 1 2 AH N D
ha 1 0.8 3 0.25 D
"""
ENDS = "<s> 0.9\n</s>_s 1.25\n</s>_n 0.5\noverall 0.4\n"
KALDI = """0 2 SIL <eps> 0.105360515657826
0 1 #2 <eps> 2.30258509299405
1 3 AH a 0.693147180559945
2 3 AH a -0.405465108108164
3 4 #1 <eps>
4 1 #2 <eps> 0.287682072451781
4 2 SIL <eps> 1.38629436111989
1 5 AH an 0.470003629245736
2 5 AH an 1.6094379124341
5 6 N <eps>
6 7 #1 <eps>
7 1 #2 <eps> 1.38629436111989
7 2 SIL <eps> 0.287682072451781
1 8 AH and -0.693147180559945
2 8 AH and 0
8 9 N <eps>
9 10 D <eps>
10 1 #2 <eps> 0.693147180559945
10 2 SIL <eps> 0.693147180559945
2 -0.22314355131421
1 0.693147180559945"""
"""What make_lexicon_fst_silprob.pl writes of `a`, `an` and `and` above."""
AN4 = """AND 0.666667 0.19 0.67 1.24 AE N D
AND 1 0.13 0.83 1.12 AH N D
APOSTROPHE 1 0.31 0.87 1.11 AH P AA S T R AH F IY
EIGHTY 1 0.06 0.86 1.08 EY T IY
HUNDRED 0.166667 0.65 0.82 1.17 HH AH N D R AH D
HUNDRED 1 0.30 0.31 1.52 HH AH N ER D
SECOND 0.333333 0.47 1.00 1.00 S EH K AH N D
SEVENTY 0.217391 0.49 1.40 0.68 S EH V AH N T IY
THIRTIETH 1 0.59 0.74 1.16 TH ER T IY IH TH
ZERO 1 0.52 0.69 1.24 Z IY R OW"""
"""Lines that utils/dict_dir_add_pronprobs.sh writes of counts of Kaldi's alignment of AN4, of words
that begin no utterance; and its silprob.txt."""
AN4_ENDS = (0.95, 1.90097733863173, 0.137732552163635, 0.47)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "dict"
    folder.mkdir()
    for name, text in (
        ("lexiconp_silprob.txt", LEXICON),
        ("lexicon.txt", "other SPN\n"),
        ("silprob.txt", ENDS),
        ("silence_phones.txt", "SIL\nSPN\n"),
        ("nonsilence_phones.txt", "AH\nD\nN\n"),
        ("optional_silence.txt", "SIL\n"),
    ):
        (folder / name).write_text(text)
    return folder


def spoken(
    words: tuple[str, ...], lexicon: list[Pronunciation], ends: Ends
) -> dict[tuple[str, ...], float]:
    """Probability of each phone sequence, by the paper, over all pronunciations and silences."""
    found: dict[tuple[str, ...], float] = {}
    forms = [[p for p in lexicon if p.word == word] for word in words]
    for chosen in product(*forms):
        for silent in product([True, False], repeat=len(words) + 1):
            value = ends.begin if silent[0] else 1 - ends.begin
            phones = ["SIL"] * silent[0]
            for form, before, after in zip(chosen, silent[:-1], silent[1:], strict=True):
                beside = form.beside
                assert beside is not None
                value *= form.probability * (beside.with_silence if before else beside.without)
                value *= beside.after if after else 1 - beside.after
                phones += [*form.phones, *["SIL"] * after]
            value *= ends.with_silence if silent[-1] else ends.without
            found[tuple(phones)] = found.get(tuple(phones), 0.0) + value
    return found


def paths(
    fst: kaldifst.StdVectorFst, words: tuple[int, ...], names: dict[int, str]
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Phones, without disambiguation symbols, and probability of all paths with these words."""

    def go(
        state: int, said: int, phones: tuple[str, ...], cost: float
    ) -> Iterator[tuple[tuple[str, ...], float]]:
        final = fst.final(state).value
        if said == len(words) and math.isfinite(final):
            yield phones, math.exp(-cost - final)
        for arc in kaldifst.ArcIterator(fst, state):
            if arc.olabel and words[said : said + 1] != (arc.olabel,):
                continue
            name = names[arc.ilabel]
            more = () if name == "<eps>" or name[0] == "#" else (name,)
            yield from go(
                arc.nextstate, said + bool(arc.olabel), phones + more, cost + arc.weight.value
            )

    yield from go(fst.start, 0, (), 0.0)


def summed(found: Iterator[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    total: dict[tuple[str, ...], float] = {}
    for phones, probability in found:
        total[phones] = total.get(phones, 0.0) + probability
    return total


SENTENCES = [("a",), ("a", "an"), ("and", "a", "ha"), ("ha", "an", "a"), ("<unk>",), ()]


def test_paths_of_l_have_the_probabilities_of_the_paper(small: Path, tmp_path: Path) -> None:
    dictionary, lang = read_dictionary(small), tmp_path / "lang"
    assert dictionary.ends is not None and {p.word for p in dictionary.lexicon} >= {"a", "and"}
    write_lang(dictionary, Lang(), lang)
    numbers = read_symbols(lang / "words.txt")
    names = {number: name for name, number in read_symbols(lang / "phones.txt").items()}
    for file in ("L.fst", "L_disambig.fst"):
        fst = kaldifst.StdVectorFst.read(str(lang / file))
        for words in SENTENCES:
            expected = spoken(words, list(dictionary.lexicon), dictionary.ends)
            found = summed(paths(fst, tuple(numbers[word] for word in words), names))
            assert found == pytest.approx(expected, rel=1e-5), (file, words)


def test_graphs_for_training_have_them_too(small: Path, tmp_path: Path) -> None:
    """Costs of the phones that a transcript may be said with: gmm.phone_graph."""
    dictionary, lang = read_dictionary(small), tmp_path / "lang"
    assert dictionary.ends is not None
    write_lang(dictionary, Lang(), lang)
    numbers = read_symbols(lang / "words.txt")
    names = {number: name for name, number in read_symbols(lang / "phones.txt").items()}
    for words in SENTENCES[1:4]:
        graph = Lexicon(lang / "L.fst").graph([numbers[word] for word in words])
        expected = spoken(words, list(dictionary.lexicon), dictionary.ends)
        assert summed(_through(graph, names)) == pytest.approx(expected, rel=1e-5)


def _through(graph: PhoneGraph, names: dict[int, str]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Phones and probability of all paths."""
    waiting: list[tuple[int, float, tuple[str, ...]]] = [(*start, ()) for start in graph.starts]
    while waiting:
        arc, cost, before = waiting.pop()
        phones = (*before, names[graph.phones[arc]])
        if math.isfinite(graph.ends[arc]):
            yield phones, math.exp(-cost - graph.ends[arc])
        waiting += [(after, cost + more, phones) for after, more in graph.after[arc]]


def test_arcs_are_kaldis() -> None:
    rows = [line.split() for line in LEXICON.splitlines()]
    chosen = [rows[1], rows[3], rows[4]]
    besides = [Beside(*map(float, row[2:5])) for row in chosen]
    entries = [(r[0], 1.0 if r[0] != "an" else 0.5, tuple(r[5:])) for r in chosen]
    marked = [(w, p, (*phones, "#1") if w != "and" else phones) for w, p, phones in entries]

    ours = context_arcs(besides, Ends(0.9, 1.25, 0.5, 0.4))(marked, Silence("SIL", 0.5, "#2"))
    assert sorted(map(_numbers, ours)) == sorted(map(_numbers, KALDI.splitlines()))


def _numbers(line: str) -> tuple[str, ...]:
    """A line with its cost rounded, none being 0."""
    fields = line.split()
    if len(fields) == 4:
        fields.append("0")
    return (*fields[:-1], f"{float(fields[-1]) + 0.0:.9f}")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_estimates_are_those_of_dense_counts(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lexicon: list[Spoken] = [("a", ("A",)), ("a", ("B", "A")), ("b", ("B",)), ("c", ("C",))]
    said = [*lexicon[:3], BEGIN, END]  # c is never said
    dense = generator.integers(0, 40, (5, 5, 2)) * (generator.random((5, 5, 2)) < 0.5)
    dense[3, 4] += 1
    dense[4], dense[:, 3] = 0, 0  # nothing after the end, or before the begin
    counts = Counts()
    for (v, w, silent), count in np.ndenumerate(dense):
        counts.pairs[said[v], said[w], bool(silent)] += int(count)
    entries, ends = estimate(counts, lexicon)
    rounded = np.vectorize(lambda value: float(f"{value:.2f}"), otypes=[float])
    overall = float(rounded(dense[:, :, 1].sum() / dense.sum()))
    silent_after = dense.sum(1)[:, 1] + 2 * overall
    after = np.clip(rounded(silent_after / (dense.sum((1, 2)) + 2)), 0.01, 0.99)
    expected = np.einsum("vws,v->w", dense, after)
    unexpected = np.einsum("vws,v->w", dense, 1 - after)
    with_silence = (dense.sum(0)[:, 1] + 2) / (expected + 2)
    without = (dense.sum(0)[:, 0] + 2) / (unexpected + 2)
    times = dense.sum((0, 2)) + 1
    highest = [max(times[0], times[1])] * 2 + [times[2]]
    for i, entry in enumerate(entries[:3]):
        assert entry.beside is not None
        assert entry.probability == pytest.approx(times[i] / highest[i])
        factors = np.maximum(rounded([with_silence[i], without[i]]), 0.01)
        assert entry.beside == pytest.approx((after[i], *factors), abs=1e-9)
    never = Beside(min(max(overall, 0.01), 0.99), 1.0, 1.0)
    assert entries[3] == Pronunciation("c", 1.0, ("C",), never)
    factors = np.maximum([with_silence[4], without[4]], 0.01)
    assert ends == pytest.approx((after[3], *factors, never.after), abs=1e-6)


def test_what_was_said_is_counted_with_the_silence_beside_it() -> None:
    """SIL a(AH) | an(AH N) SIL an(AH N), and nothing but silence."""
    phones = ["SIL", "AH", "AH", "N", "SIL", "AH", "N"]
    counts = Counts()
    counts.add(utterance_of(phones, ["a", "an", "an"], [(1, 2), (2, 4), (5, 7)]))
    counts.add(utterance_of(["SIL"], [], []))
    a, an = ("a", ("AH",)), ("an", ("AH", "N"))
    assert counts.pairs == {
        (BEGIN, a, True): 1, (a, an, False): 1, (an, an, True): 1, (an, END, False): 1,
        (BEGIN, END, True): 1,
    }  # fmt: skip
    assert counts.before(True) == {a: 1, an: 1, END: 1} and counts.after(False) == {a: 1, an: 1}


@pytest.fixture(scope="module")
def an4(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command makes of Kaldi's alignment of AN4."""
    kaldi, out = shared / "kaldi_an4", tmp_path_factory.mktemp("an4") / "pronunciations"
    arguments = ["--ali", kaldi / "exp/tri3b_ali", "--lang", kaldi / "lang",
                 "--data", kaldi / "data/train", "--out", out]  # fmt: skip
    assert main(["pronunciations", *map(str, arguments)]) == 0
    return out


def test_probabilities_of_an4_are_kaldis(an4: Path) -> None:
    entries = {(p.word, p.phones): p for p in read_dictionary(an4 / "dict").lexicon}
    for line in AN4.splitlines():
        word, probability, *beside = line.split()[:5]
        ours = entries[word, tuple(line.split()[5:])]
        assert ours.probability == pytest.approx(float(probability), abs=2e-6)
        assert ours.beside == Beside(*map(float, beside)), line
    assert read_dictionary(an4 / "dict").ends == pytest.approx(AN4_ENDS, abs=1e-5)
    report = json.loads((an4 / "report.json").read_text())
    assert (report["utterances"], report["words"]) == (948, 5442)  # those of data/train/text
    said = [line.split() for line in (an4 / "pron_counts_nowb.txt").read_text().splitlines()]
    assert sum(int(count) for count, *_ in said) == 5442


def test_the_lang_folder_fits_models_of_the_old_one(shared: Path, an4: Path) -> None:
    old, new = shared / "kaldi_an4/lang", an4 / "lang"
    for name in ("phones.txt", "words.txt", "topo", "phones/align_lexicon.int"):
        assert (old / name).read_bytes() == (new / name).read_bytes()
    disambig = {n for name, n in read_symbols(old / "phones.txt").items() if name[0] == "#"}
    used = {phone for phone, _ in _arcs(new / "L_disambig.fst")}
    assert disambig <= used <= set(read_symbols(old / "phones.txt").values()) - {0}


def test_the_dictionary_makes_the_same_lang_folder(an4: Path, tmp_path: Path) -> None:
    """Of the probabilities that it has, rounded to six digits: phones without their places."""
    dictionary = read_dictionary(an4 / "dict")
    write_lang(dictionary, Lang(position_dependent=True), tmp_path / "lang")
    for name in ("phones.txt", "words.txt", "phones/sets.txt", "phones/extra_questions.txt"):
        texts = [
            re.sub(r" +\n", "\n", (f / name).read_text()) for f in (tmp_path / "lang", an4 / "lang")
        ]
        assert texts[0] == texts[1], name
    found = [_arcs(folder / "L.fst") for folder in (tmp_path / "lang", an4 / "lang")]
    assert found[0].keys() == found[1].keys()
    for key, costs in found[0].items():
        assert costs == pytest.approx(found[1][key], abs=2e-5)


def _arcs(path: Path) -> dict[tuple[int, int], list[float]]:
    """Costs of arcs by their labels, in ascending order."""
    fst = kaldifst.StdVectorFst.read(str(path))
    found: dict[tuple[int, int], list[float]] = {}
    for state in kaldifst.StateIterator(fst):
        for arc in kaldifst.ArcIterator(fst, state):
            found.setdefault((arc.ilabel, arc.olabel), []).append(arc.weight.value)
    return {key: sorted(costs) for key, costs in found.items()}


def test_lg_keeps_what_probabilities_tell_apart(small: Path, tmp_path: Path) -> None:
    """Determinised, minimised and pushed, all paths cost what they did, but a constant."""
    dictionary, lang = read_dictionary(small), tmp_path / "lang"
    assert dictionary.ends is not None
    write_lang(dictionary, Lang(), lang)
    words = read_symbols(lang / "words.txt")
    names = {number: name for name, number in read_symbols(lang / "phones.txt").items()}
    pairs = [("a", "an"), ("ha", "and"), ("and", "a")]
    lines, state = [], 1
    for first, second in pairs:
        lines.append(f"0 {state} {words[first]} {words[first]} {math.log(3)}")
        lines.append(f"{state} {state + 1} {words[second]} {words[second]}")
        lines.append(f"{state + 1} 0.0")
        state += 2
    lg = compose_lg(read_fst(lang / "L_disambig.fst"), kaldifst.compile("\n".join(lines) + "\n"))
    ratios = []
    for pair in pairs:
        expected = spoken(pair, list(dictionary.lexicon), dictionary.ends)
        found = summed(paths(lg, tuple(words[word] for word in pair), names))
        assert found.keys() == expected.keys()
        ratios += [found[phones] / expected[phones] for phones in expected]
    # OpenFst minimises with weights rounded to 1/1024, arc by arc
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=8 / 1024)


FAULTS = [
    ("lexiconp_silprob.txt", "a 1 1.0 1 1 AH\n", ":1: '1.0 1 1': not a probability below 1"),
    ("lexiconp_silprob.txt", "a 1 0.5 0 1 AH\n", ":1: '0.5 0 1': not a probability below 1"),
    ("lexiconp_silprob.txt", "a 1 0.5 1 AH\n", ":1: word 'a' has no phones"),
    ("lexiconp_silprob.txt", "a 2 0.5 1 1 AH\n", ":1: '2' is not a probability"),
    ("silprob.txt", "<s> 0.9\n</s>_s 1\noverall 0.4\n", "no line '</s>_n NUMBER'"),
    ("silprob.txt", ENDS.replace("0.9", "1"), "<s> is '1', not a number above 0 and below 1"),
    ("silprob.txt", ENDS.replace("1.25", "nan"), "</s>_s is 'nan', not a number above 0"),
]


@pytest.mark.parametrize(("name", "text", "message"), FAULTS)
def test_a_fault_is_one_clear_line(small: Path, name: str, text: str, message: str) -> None:
    (small / name).write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        read_dictionary(small)


def test_what_does_not_fit_is_refused(small: Path) -> None:
    with pytest.raises(UserError, match=r"lang.units: graphemes: lexiconp_silprob.txt has"):
        spelled(read_dictionary(small))
    (small / "silprob.txt").unlink()
    with pytest.raises(UserError, match=r"silprob.txt: no such file"):
        read_dictionary(small)
    asked = content("builtin") | {"graph": {"pronunciation_probabilities": True}}
    with pytest.raises(UserError, match=r"pronunciation_probabilities: not with lm.pieces"):
        check(asked, "config.yaml")
    asked["lm"] = {}
    assert check(asked, "config.yaml").graph.pronunciation_probabilities


def test_another_data_set_is_refused(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kaldi = shared / "kaldi_an4"
    arguments = ["--ali", kaldi / "exp/tri3b_ali", "--lang", kaldi / "lang",
                 "--data", kaldi / "data/test", "--out", tmp_path / "out"]  # fmt: skip
    assert main(["pronunciations", *map(str, arguments)]) == 2
    told = capsys.readouterr().err
    assert "948 of 948 utterances have other phones than their words by the lexicon" in told
    assert not (tmp_path / "out").exists()
