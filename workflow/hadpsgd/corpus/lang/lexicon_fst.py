"""Lexicon transducers L and L_disambig: phones to words, with optional silence.

The same texts as Kaldi's utils/lang/make_lexicon_fst.py and add_lex_disambig.pl make; silence by
word as in Chen, Xu, Wu, Povey, Khudanpur (2015).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import kaldifst

from hadpsgd.corpus.lang.dictionary import Dictionary
from hadpsgd.corpus.lang.silences import Beside, Ends

Phones = tuple[str, ...]
Entry = tuple[str, float, Phones]

START, LOOP, SILENCE = 0, 1, 2
WORD_START = "\u2581"
"""First sign of what begins a word (sentencepiece's); alone, it begins a word that is spelled."""
WORD_END = "</w>"
"""Ends a word that is spelled."""
SOUND = "\u2582"
"""In the name of a piece between its letters and each of its phones."""


@dataclass(frozen=True)
class Silence:
    """Optional silence between words; `disambig` follows it in L_disambig."""

    phone: str
    probability: float
    disambig: str = ""


def add_disambiguation(entries: Sequence[Entry]) -> tuple[list[Entry], int]:
    """Append #1, #2, ... where a pronunciation is shared or begins another one.

    Returns the lexicon and the highest symbol used (0: none).
    """
    shared = Counter(phones for _, _, phones in entries)
    begins = {phones[:n] for phones in shared for n in range(1, len(phones))}
    used: Counter[Phones] = Counter()
    marked = []
    for word, probability, phones in entries:
        if shared[phones] > 1 or phones in begins:
            used[phones] += 1
            phones = (*phones, f"#{used[phones]}")
        marked.append((word, probability, phones))
    return marked, max(used.values(), default=0)


def _optional_silence(
    silence: Silence, sources: Iterable[int], state: int
) -> tuple[list[str], int]:
    """Arcs of a silence that may be said between `sources` and the loop, and the next new state.

    Args:
        silence: the phone.
        sources: states after which it may be said.
        state: a new state, used where a disambiguation symbol follows it.
    """
    skip, say = -math.log(1.0 - silence.probability), -math.log(silence.probability)
    lines = []
    for source in sources:
        lines.append(f"{source} {LOOP} <eps> <eps> {skip}")
        lines.append(f"{source} {SILENCE} <eps> <eps> {say}")
    if not silence.disambig:
        return [*lines, f"{SILENCE} {LOOP} {silence.phone} <eps>"], state
    lines.append(f"{SILENCE} {state} {silence.phone} <eps>")
    lines.append(f"{state} {LOOP} {silence.disambig} <eps>")
    return lines, state + 1


def lexicon_arcs(entries: Iterable[Entry], silence: Silence) -> Iterator[str]:
    """Lines of OpenFst's text form, symbols as names."""
    to_loop = -math.log(1.0 - silence.probability)
    to_silence = -math.log(silence.probability)
    lines, state = _optional_silence(silence, [START], SILENCE + 1)
    yield from lines
    for word, probability, phones in entries:
        source, cost = LOOP, -math.log(probability)
        for phone in phones[:-1]:
            yield (
                f"{source} {state} {phone} {word} {cost}"
                if cost
                else (f"{source} {state} {phone} {word}")
            )
            source, word, cost, state = state, "<eps>", 0.0, state + 1
        yield f"{source} {LOOP} {phones[-1]} {word} {cost + to_loop}"
        yield f"{source} {SILENCE} {phones[-1]} {word} {cost + to_silence}"
    yield f"{LOOP} 0"


def piece_arcs(entries: Iterable[Entry], silence: Silence) -> Iterator[str]:
    """The same where words may be spelled in pieces: silence only between words.

    What has no phones (begin and end of a spelled word, signs in it) is passed by its
    disambiguation symbol. After a begin or a sign comes a piece with phones, so that nothing can go
    round without speech.
    """
    inside = SILENCE + 1  # the state after a piece with phones
    bare = inside + 1  # the state after one without
    lines, state = _optional_silence(silence, [START, inside], bare + 1)
    yield from lines
    for piece, probability, phones in entries:
        if piece.startswith(WORD_START):
            sources = [LOOP]
        else:
            sources = [inside, bare] if _spoken(phones) else [inside]
        target = inside if _spoken(phones) or piece == WORD_END else bare
        for source in sources:
            word, cost = piece, -math.log(probability)
            for phone in phones[:-1]:
                yield f"{source} {state} {phone} {word} {cost}"
                source, word, cost, state = state, "<eps>", 0.0, state + 1
            yield f"{source} {target} {phones[-1] if phones else '<eps>'} {word} {cost}"
    yield f"{LOOP} 0"


def _spoken(phones: Phones) -> bool:
    """Whether there are phones besides a disambiguation symbol."""
    return bool(phones) and not (len(phones) == 1 and phones[0].startswith("#"))


def context_arcs(besides: Sequence[Beside], ends: Ends) -> LexiconArcs:
    """What makes the lines where silence depends on the words beside it, of entries in this order.

    A word is said in state LOOP after a word, in state SILENCE after silence. In L_disambig it is
    the way without silence that has the symbol, which spares arcs (as in Kaldi's
    make_lexicon_fst_silprob.pl).
    """

    def arcs(entries: Iterable[Entry], silence: Silence) -> Iterator[str]:
        symbol = silence.disambig or "<eps>"
        yield f"{START} {LOOP} {symbol} <eps> {-math.log(1.0 - ends.begin)}"
        yield f"{START} {SILENCE} {silence.phone} <eps> {-math.log(ends.begin)}"
        state = SILENCE + 1
        for (word, probability, phones), beside in zip(entries, besides, strict=True):
            cost = -math.log(probability)
            yield f"{LOOP} {state} {phones[0]} {word} {cost - math.log(beside.without)}"
            yield f"{SILENCE} {state} {phones[0]} {word} {cost - math.log(beside.with_silence)}"
            for phone in phones[1:]:
                yield f"{state} {state + 1} {phone} <eps>"
                state += 1
            yield f"{state} {LOOP} {symbol} <eps> {-math.log(1.0 - beside.after)}"
            yield f"{state} {SILENCE} {silence.phone} <eps> {-math.log(beside.after)}"
            state += 1
        yield f"{LOOP} {-math.log(ends.without)}"
        yield f"{SILENCE} {-math.log(ends.with_silence)}"

    return arcs


def arcs_of(dictionary: Dictionary) -> LexiconArcs:
    """What makes the transducer of a dictionary's words."""
    if not dictionary.ends:
        return lexicon_arcs
    besides = [entry.beside for entry in dictionary.lexicon if entry.beside]
    return context_arcs(besides, dictionary.ends)


LexiconArcs = Callable[[Iterable[Entry], Silence], Iterator[str]]
"""Makes the lines of a lexicon transducer: of words, or of pieces of words."""


def compile_lexicon(
    entries: Iterable[Entry],
    silence: Silence,
    phones: dict[str, int],
    words: dict[str, int],
    arcs: LexiconArcs = lexicon_arcs,
) -> kaldifst.StdVectorFst:
    """The transducer, arcs sorted by output label."""
    lines = []
    for line in arcs(entries, silence):
        fields = line.split(" ")
        if len(fields) > 2:
            fields[2], fields[3] = str(phones[fields[2]]), str(words[fields[3]])
        lines.append(" ".join(fields))
    fst = kaldifst.compile("\n".join(lines) + "\n")
    kaldifst.arcsort(fst, sort_type="olabel")
    return fst


def add_word_self_loops(fst: kaldifst.StdVectorFst, *, phone: int, word: int) -> None:
    """Let #0 of the grammar pass through the lexicon (Kaldi's fstaddselfloops)."""
    kaldifst.add_self_loops(fst, [phone], [word])
    kaldifst.arcsort(fst, sort_type="olabel")
