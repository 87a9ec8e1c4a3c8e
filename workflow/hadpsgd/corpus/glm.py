"""Global mapping files (GLM): NIST's rules that bring spellings together before scoring.

A rule is `A => B` or `A => B / C __ D` (between C and D only); brackets or quotes keep blanks;
B may hold alternations `{ x / y }` and optional words `(x)`. Source: SCTK's csrfilt and rfilter1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from hadpsgd.corpus.stm import wrong_parentheses
from hadpsgd.errors import UserError
from hadpsgd.files import read_whole

Kind = Literal["stm", "ctm", "trn"]

_APPLIES = re.compile(r';;\s+INPUT_DEPENDENT_APPLICATION\s*=\s*"([^"]*)"')
_QUOTED = re.compile(r"[\"']([^\"']*)[\"']")
_TRUE = ("T", "TRUE", "Y", "YES", "ON", "1")
_PURPOSE = {"stm": "ref", "trn": "ref", "ctm": "hyp"}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`old` becomes `new` where it stands between `left` and `right`."""

    old: str
    new: str
    left: str = ""
    right: str = ""

    def fits(self, text: str, at: int) -> bool:
        """Whether it applies at a place of a text."""
        return (
            text.startswith(self.old, at)
            and text.startswith(self.right, at + len(self.old))
            and at >= len(self.left)
            and text.startswith(self.left, at - len(self.left))
        )


class Glm:
    """The rules of a GLM that apply to one kind of input."""

    def __init__(self, rules: Iterable[Rule], *, keep_rest: bool = True, fold: bool = False):
        """`keep_rest`: copy what no rule touches; `fold`: match whatever the case."""
        self.keep_rest = keep_rest
        self._fold: Callable[[str], str] = str.upper if fold else str
        self._by_letter: dict[str, list[Rule]] = {}
        for rule in rules:
            parts = (self._fold(rule.old), self._fold(rule.left), self._fold(rule.right))
            folded = Rule(old=parts[0], new=rule.new, left=parts[1], right=parts[2])
            self._by_letter.setdefault(folded.old[0], []).append(folded)

    def apply(self, text: str) -> str:
        """Apply the rules once, from left to right; at every place the first one that fits."""
        looked_at, at, parts = self._fold(text), 0, []
        while at < len(text):
            for rule in self._by_letter.get(looked_at[at], ()):
                if rule.fits(looked_at, at):
                    parts.append(rule.new)
                    at += len(rule.old)
                    break
            else:
                parts.append(text[at] if self.keep_rest else "")
                at += 1
        return "".join(parts)

    def filter(self, text: str) -> str:
        """A transcript as hubscr makes it: upper case, rules, hyphens split, words put right.

        Raises:
            ValueError: parentheses that do not fit.
        """
        if wrong_parentheses(text):
            raise ValueError("parentheses that do not fit")
        spaced = f" {' '.join(text.upper().split())} "
        spaced = spaced.replace("(", "( ").replace(")", " )")
        result = self.apply(f" {spaced} ")
        result = re.sub(r"([^( ])-(?=[^) ])", r"\1 ", result)
        before = ""
        while before != result:  # every word of an optional phrase is optional by itself
            before, result = result, re.sub(r"(\(\s+[^()\s]+\s+)([^()\s]+)", r"\1) ( \2", result)
        result = re.sub(r"\(\s+", "(", result)
        return " ".join(re.sub(r"\s+\)", ")", result).split())


def read(path: Path, kind: Kind) -> Glm:
    """Read the rules for one kind of input (references: stm, trn; hypotheses: ctm).

    Raises:
        UserError: the file is missing or empty, or a line is no rule; names the line.
    """
    try:
        lines = read_whole(path).decode("utf-8-sig", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        raise UserError("no such GLM", where=path) from None
    if not lines:
        raise UserError("an empty GLM", where=path)
    if "=>" in lines[0].split(";;")[0]:
        what = "the first line says how comments begin, and this one is a rule"
        raise UserError(what, where=f"{path}:1", fix="Write a line `;; rules` above it")
    comment = lines[0].split()[0] if lines[0].strip() else ";;"
    rules: list[Rule] = []
    settings: dict[str, str] = {}
    applies = True
    for number, line in enumerate(lines, 1):
        if match := _APPLIES.match(line):
            wanted = match[1].lower()
            applies = bool(re.search(wanted, kind) or re.search(wanted, _PURPOSE[kind]))
        text = line.split(comment, 1)[0].rstrip()
        if number == 1 or not text.strip() or not applies:
            continue
        where = f"{path}:{number}"
        if text.startswith("*"):
            settings.update(_setting(text, where))
        else:
            rules.append(_rule(text, where))
    return Glm(
        rules,
        keep_rest=settings.get("COPY_NO_HIT", "T").upper() in _TRUE,
        fold=settings.get("CASE_SENSITIVE", "T").upper() not in _TRUE,
    )


def _setting(text: str, where: str) -> dict[str, str]:
    match = _QUOTED.search(text)
    if match is None:
        raise UserError(f"'{text}': a setting needs a value in quotes", where=where)
    names = ("NAME", "DESC", "FORMAT", "MAX_NRULES", "COPY_NO_HIT", "CASE_SENSITIVE")
    found = {name: match[1] for name in names if name in text[: match.start()].upper()}
    if found.get("FORMAT", "NIST1") != "NIST1":
        raise UserError(f"format {found['FORMAT']} is not known, only NIST1", where=where)
    return found


def _rule(text: str, where: str) -> Rule:
    old, arrow, rest = text.partition("=>")
    if not arrow:
        raise UserError(f"'{text.strip()}': a rule needs =>", where=where, fix="Write `A => B`")
    left = right = ""
    slash = rest.rfind("/")
    if slash >= 0 and not _enclosed(rest, slash):
        context = rest[slash + 1 :]
        rest = rest[:slash]
        left, mark, right = context.partition("__")
        if not mark and rest.lstrip().startswith("["):
            # NIST's own files have such lines: the bracket is meant to close at the end
            _warn(f"{where}: '[' without ']', taken to the line's end")
            return Rule(old=_bare(old), new=f"{rest}/{context}".strip()[1:])
        if not mark:
            raise UserError(
                f"'{text.strip()}': a context needs __, alternatives need brackets",
                where=where,
                fix="Write `A => B / C __ D` or `A => [{X / Y}]`",
            )
        # whatever stands at the mark itself is no context (such as __A)
        right = re.sub(r"^\S+", "", right)
    rule = Rule(old=_bare(old), new=_bare(rest), left=_bare(left), right=_bare(right))
    if not rule.old:
        raise UserError(f"'{text.strip()}': nothing on the left of =>", where=where)
    return rule


@cache
def _warn(what: str) -> None:
    """Say it once: a GLM is read for references and for hypotheses."""
    print(f"warning: {what}", file=sys.stderr)


def _enclosed(text: str, slash: int) -> bool:
    """A slash is within brackets where the next bracket closes."""
    opening, closing = text.find("[", slash), text.find("]", slash)
    return closing >= 0 and (opening < 0 or closing < opening)


def _bare(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and (text[0], text[-1]) in (("[", "]"), ('"', '"')):
        return text[1:-1]
    return text
