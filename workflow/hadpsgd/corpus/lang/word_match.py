"""Which phones belong to which word, by the lexicon of a lang folder (align_lexicon.int)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hadpsgd.errors import UserError


@dataclass
class WordMatcher:
    """Finds which phones of a path belong to which word.

    pronunciations: word to its phone sequences; those of word 0 are optional silences.
    """

    pronunciations: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `phones/align_lexicon.int` of a lang, graph or decoding folder.

        Raises:
            UserError: it is missing or holds something else than numbers.
        """
        path = Path(folder) / "phones" / "align_lexicon.int"
        table: dict[int, list[tuple[int, ...]]] = {}
        try:
            for line in path.read_text().splitlines():
                _, word, *phones = map(int, line.split())
                table.setdefault(word, []).append(tuple(phones))
        except FileNotFoundError:
            raise UserError("missing", where=path, fix="Make the lang folder again") from None
        except ValueError:
            raise UserError("not lines of `word word phones`", where=path) from None
        return cls(table)

    def match(
        self, words: tuple[int, ...], phones: tuple[int, ...], *, cut: bool = False
    ) -> list[tuple[int, int]] | None:
        """First and last phone (exclusive) of every word, or None.

        The first way that fits, depth first: the nearest silences, pronunciations in their order.
        `cut` says that phones may end within the last word.
        """
        if not words:
            silent = len(phones) in _after_silences(0, phones, self._silences)
            return [] if silent or cut else None
        cuts: list[tuple[int, int]] = []
        waiting = [self._ways(words, phones, 0, 0, cut)]  # of each word so far, what is left
        dead: set[tuple[int, int]] = set()  # (words said, phones passed) from which nothing fits
        while waiting:
            said = len(waiting)
            way = next((w for w in waiting[-1] if (said, w[1]) not in dead), None)
            if way is None:
                waiting.pop()
                dead.add((said - 1, cuts[-1][1] if cuts else 0))
                if cuts:
                    cuts.pop()
            elif said < len(words):
                cuts.append(way)
                waiting.append(self._ways(words, phones, said, way[1], cut))
            elif len(phones) in _after_silences(way[1], phones, self._silences):
                return [*cuts, way]
        return None

    def _ways(
        self, words: tuple[int, ...], phones: tuple[int, ...], word: int, phone: int, cut: bool
    ) -> Iterator[tuple[int, int]]:
        """Where a word may begin and end, of those before it ending at a phone."""
        cut = cut and word == len(words) - 1
        for begin in _after_silences(phone, phones, self._silences):
            for form in self.pronunciations.get(words[word], []):
                end = begin + len(form)
                there = phones[begin:end]
                cut_off = cut and end >= len(phones)
                if there == form or (cut_off and there and there == form[: len(there)]):
                    yield begin, min(end, len(phones))

    @property
    def _silences(self) -> list[tuple[int, ...]]:
        return self.pronunciations.get(0, [])


def _after_silences(
    at: int, phones: tuple[int, ...], silences: Sequence[tuple[int, ...]]
) -> list[int]:
    """Places that can be reached by passing optional silences, nearest first."""
    places = [at]
    for place in places:  # grows while it is read
        for form in silences:
            beyond = place + len(form)
            if form and phones[place:beyond] == form and beyond not in places:
                places.append(beyond)
    return places
