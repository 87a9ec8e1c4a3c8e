"""A weighted context-free grammar and its expansion into words.

Rules are text, one a line: `name: alternative | alternative | ...`. An alternative is words and
`<names>`; `3* ...` gives it the weight 3 (default 1); `<name>?` is left out half of the time;
`$T` is the topic of the conversation. Punctuation (`,` `.` `?`) stands as words of its own: it
guides the voice and is no part of the transcript. `a_` becomes `a` or `an`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

PUNCTUATION = frozenset({",", ".", "?"})
ARTICLE = "a_"
_AN = frozenset({"hour", "honest"})
_A = frozenset({"one", "used", "university", "european", "useful", "unique", "usual", "once"})

Draw = Callable[[], float]
"""Gives the next random number in [0, 1)."""

_Symbol = tuple[str, bool, bool]  # text, is a rule's name, is optional


@dataclass
class _Rule:
    cumulative: list[float] = field(default_factory=list)
    alternatives: list[list[_Symbol]] = field(default_factory=list)


class Grammar:
    """Rules by name; `expand` draws one sentence."""

    def __init__(self, rules: Iterable[str], topics: Iterable[str]) -> None:
        """Parse and check the rules.

        Raises:
            ValueError: a rule is given twice, or one is used that is not there.
        """
        self._rules: dict[str, _Rule] = {}
        self._topics = list(topics)
        for line in rules:
            if line.strip() and not line.lstrip().startswith("#"):
                self._add(line)
        self._check()

    def _add(self, line: str) -> None:
        name, _, body = line.partition(":")
        name = name.strip()
        if name in self._rules:
            raise ValueError(f"rule '{name}' is given twice")
        weights, rule = [], _Rule()
        for alternative in body.split("|"):
            head, star, rest = alternative.partition("*")
            weights.append(float(head) if star else 1.0)
            rule.alternatives.append([_symbol(s) for s in (rest if star else alternative).split()])
        total = sum(weights)
        rule.cumulative = [w / total for w in accumulate(weights)]
        self._rules[name] = rule

    def _check(self) -> None:
        for name, rule in self._rules.items():
            for text, is_name, _ in (s for a in rule.alternatives for s in a):
                for topic in self._topics if is_name else []:
                    if text.replace("$T", topic) not in self._rules:
                        raise ValueError(f"rule '{name}' uses '{text}', which is not a rule")

    def expand(self, *, name: str, topic: str, draw: Draw) -> list[str]:
        """Words and punctuation drawn from a rule."""
        tokens: list[str] = []
        self._expand(name.replace("$T", topic), topic, draw, tokens)
        return _articles(tokens)

    def _expand(self, name: str, topic: str, draw: Draw, tokens: list[str]) -> None:
        rule = self._rules[name]
        chosen = bisect(rule.cumulative, draw())
        for text, is_name, optional in rule.alternatives[min(chosen, len(rule.alternatives) - 1)]:
            if optional and draw() < 0.5:
                continue
            if is_name:
                self._expand(text.replace("$T", topic), topic, draw, tokens)
            else:
                tokens.append(text)

    def vocabulary(self) -> set[str]:
        """Every word that any rule can give."""
        symbols = (s for r in self._rules.values() for a in r.alternatives for s in a)
        words = {text for text, is_name, _ in symbols if not is_name}
        return (words - PUNCTUATION - {ARTICLE}) | {"a", "an"}


def _symbol(text: str) -> _Symbol:
    optional = text.endswith(">?")
    if optional:
        text = text[:-1]
    if text.startswith("<") and text.endswith(">"):
        return text[1:-1], True, optional
    return text, False, False


def _articles(tokens: list[str]) -> list[str]:
    following = [*tokens, ""][1:]
    pairs = zip(tokens, following, strict=True) if tokens else ()
    return [article(after) if token == ARTICLE else token for token, after in pairs]


def article(word: str) -> str:
    """`a` or `an` before a word."""
    if word in _AN:
        return "an"
    return "an" if word[:1] in "aeiou" and word not in _A else "a"
