"""How often a word is spelled right where its phones are known for certain.

    python benchmarks/spelling.py PIECES LEXICON WORDS

PIECES is what `hadpsgd pieces` made, LEXICON has the words' pronunciations (Kaldi's lexicon.txt),
WORDS lists the words. A word counts if one of its pronunciations is spelled right, first or among
the first five spellings. No network could find more of these words than the first figure says.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import hadpsgd  # noqa: F401  isort: skip  # before kaldifst: see hadpsgd/__init__.py
import kaldifst

from hadpsgd.corpus.lang import joined
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.corpus.lang.lexicon_fst import SOUND
from hadpsgd.graph.command import of_arpa

FIRST = 5
_PATHS = 50  # several cut the same letters otherwise


class Speller:
    """Spellings of phones, the most likely ones first."""

    def __init__(self, pieces: Path) -> None:
        words = pieces / "lang/words.txt"
        self.names = {number: name for name, number in read_symbols(words).items()}
        self.phones = read_symbols(pieces / "lang/phones.txt")
        self.lexicon = self._compiled(words)
        self.grammar = of_arpa(arpa=pieces / "spelling.arpa.gz", words=words)
        kaldifst.arcsort(self.grammar, "ilabel")

    def _compiled(self, words: Path) -> kaldifst.StdVectorFst:
        """Phones to pieces, #0 passing."""
        of = read_symbols(words)
        lines, state = [f"0 0 0 {of['#0']}"], 1
        for name, number in of.items():
            _, *phones = name.split(SOUND)
            source, label = 0, number
            for i, phone in enumerate(phones):
                target = 0 if i + 1 == len(phones) else state
                lines.append(f"{source} {target} {self.phones[phone]} {label}")
                source, label, state = target, 0, state + (target > 0)
        fst = kaldifst.compile("\n".join([*lines, "0 0"]) + "\n")
        kaldifst.arcsort(fst, "ilabel")
        return fst

    def __call__(self, phones: list[str]) -> list[str]:
        """The first spellings of some phones."""
        lines = [f"{i} {i + 1} {self.phones[p]} {self.phones[p]}" for i, p in enumerate(phones)]
        spoken = kaldifst.compile("\n".join([*lines, f"{len(phones)} 0"]) + "\n")
        said = kaldifst.compose(spoken, self.lexicon)
        kaldifst.arcsort(said, "olabel")
        paths = kaldifst.shortest_path(kaldifst.compose(said, self.grammar), _PATHS)
        return list(dict.fromkeys(self._texts(paths)))[:FIRST] if paths.num_states else []

    def _texts(self, paths: kaldifst.StdVectorFst) -> list[str]:
        texts = []
        for first in kaldifst.ArcIterator(paths, paths.start):
            arc, text = first, ""
            while True:
                name = self.names[arc.olabel] if arc.olabel else ""
                text += "" if name == "#0" else joined.letters(name)
                following = list(kaldifst.ArcIterator(paths, arc.nextstate))
                if not following:
                    break
                [arc] = following
            texts.append(text)
        return texts


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("pieces", "lexicon", "words"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    speller = Speller(args.pieces)
    wanted = set(args.words.read_text(encoding="utf-8").split())
    places: dict[str, list[int]] = defaultdict(list)
    for line in args.lexicon.read_text(encoding="utf-8").splitlines():
        word, *phones = line.split()
        if word in wanted:
            found = speller(phones)
            places[word].append(found.index(word) if word in found else FIRST)
    best = [min(tried) for tried in places.values()]
    for what, limit in (("first", 1), (f"among the first {FIRST}", FIRST)):
        count = sum(place < limit for place in best)
        print(
            f"{count} of {len(best)} words spelled right {what} ({100 * count / len(best):.1f} %)"
        )


if __name__ == "__main__":
    main()
