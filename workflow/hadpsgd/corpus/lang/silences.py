"""Silence beside words: how likely it is by word, in Kaldi's files (Chen et al., 2015).

`lexiconp_silprob.txt`: word, probability of the pronunciation, probability of silence after it,
factor where silence stood before it, factor where none did, phones. `silprob.txt`: the same of the
begin (`<s>`) and the end (`</s>_s`, `</s>_n`) of utterances, and the share of all places that are
silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple


class Beside(NamedTuple):
    """Silence beside a word that is pronounced in one way.

    after: probability of silence after it. with_silence, without: factors on its probability where
    silence stood before it, and where none did: how much more often that was so than the words
    before it make one expect.
    """

    after: float
    with_silence: float
    without: float


class Ends(NamedTuple):
    """Silence at the ends of utterances.

    begin: probability of silence at the begin. with_silence, without: as `Beside`, of the end.
    overall: share of all places beside words that are silent.
    """

    begin: float
    with_silence: float
    without: float
    overall: float


_NAMES = ("<s>", "</s>_s", "</s>_n", "overall")


def number(text: str, *, below: float) -> float | None:
    """A number above 0 and below a limit; None where the text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < below else None


def beside_of(texts: Sequence[str]) -> Beside | None:
    """Three fields of a line of lexiconp_silprob.txt; None where one is not what it should be."""
    values = [number(text, below=below) for text, below in zip(texts, (1.0, inf, inf), strict=True)]
    found = [value for value in values if value is not None]
    return Beside(*found) if len(found) == len(values) else None


def ends_of(table: Mapping[str, str]) -> Ends:
    """Ends of name and number as text.

    Raises:
        ValueError: one is missing, or not a probability or factor.
    """
    values = []
    for name, below in zip(_NAMES, (1.0, inf, inf, 1.0), strict=True):
        if name not in table:
            raise ValueError(f"no line '{name} NUMBER': it has {', '.join(_NAMES)}")
        value = number(table[name], below=below)
        if value is None:
            limits = "above 0 and below 1" if below == 1 else "above 0"
            raise ValueError(f"{name} is '{table[name]}', not a number {limits}")
        values.append(value)
    return Ends(*values)


def ends_text(ends: Ends) -> str:
    """What silprob.txt has."""
    return "".join(f"{name} {value:g}\n" for name, value in zip(_NAMES, ends, strict=True))
