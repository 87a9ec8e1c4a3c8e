"""Files that commands in a data directory name: what these print hangs on them, too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_OPERATORS = ";&|()<>"
_TOKEN = re.compile(rf"[{_OPERATORS}]+|[^\s{_OPERATORS}]+")
_QUOTE = re.compile(r"[\"'\\]")
_NO_PROGRAM = re.compile(r"<|\w+=")
"""Starts words that may come before the program's name: `<FILE`, `VARIABLE=value`."""
_PREFIX = re.compile(r"<?(?:-{0,2}\w[\w-]*=)?(?:(?:ark|scp)(?:,\w+)*:)?")
"""Before a file's name: `<`, `--option=`, `name=`, `ark:`, `scp,p:`."""
_HEAD_BYTES = 1024


class NamedFiles:
    """Of many commands, whose words are mostly the same: each is looked up once."""

    def __init__(self) -> None:
        """Nothing is looked up yet."""
        self._file = lru_cache(maxsize=None)(_file)
        self._is_text = lru_cache(maxsize=None)(_is_text)

    def __call__(self, command: str, folder: Path = Path()) -> Iterator[Path]:
        """Files that a command reads or, as scripts whose names have a slash, runs.

        Not those that it writes to, and no binary programs: built again they print the same.

        Args:
            command: for a shell.
            folder: where it runs.
        """
        for words in _simple_commands(command):
            named = (i for i, word in enumerate(words) if not _NO_PROGRAM.match(word))
            program = next(named, len(words))
            if words[program : program + 1] == ["cd"]:
                folder = folder.joinpath(*words[program + 1 : program + 2])
                continue
            for i, word in enumerate(words):
                file = self._file(folder, word)
                if i == program:
                    if file and "/" in word and self._is_text(file):
                        yield file
                elif file:
                    yield file
                elif any(map(str.isspace, word)):  # sh -c 'COMMAND', 'ark:COMMAND |'
                    yield from self(_PREFIX.sub("", word, count=1), folder)


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Words of each command of a pipe or list, without what it writes to."""
    words: list[str] = []
    prefix, written = "", False
    for token in _tokens(command):
        if not token.strip(_OPERATORS):
            written, prefix = ">" in token, "<" * token.endswith("<")
            if not written and set(token) & set(";&|()"):
                yield words
                words = []
            continue
        if not written:
            words.append(prefix + token)
        prefix, written = "", False
    yield words


def _tokens(command: str) -> list[str]:
    if _QUOTE.search(command):
        lexer = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
        lexer.whitespace_split, lexer.commenters = True, ""
        with suppress(ValueError):  # an open quote
            return [token for token in lexer if token]
        command = _QUOTE.sub(" ", command)
    return _TOKEN.findall(command)


def _file(folder: Path, word: str) -> Path | None:
    """The file that a word is, or names behind a prefix."""
    for name in dict.fromkeys((word, _PREFIX.sub("", word, count=1))):
        with suppress(OSError, ValueError):  # no name of a file
            if name and (folder / name).is_file():
                return folder / name
    return None


def _is_text(file: Path) -> bool:
    with suppress(OSError), file.open("rb") as stream:
        return b"\0" not in stream.read(_HEAD_BYTES)
    return False
