"""Language models of a few words: texts, a lang folder, an ARPA file, the n-grams of a model."""

from __future__ import annotations

from pathlib import Path

from hadpsgd.lm import backoff

TEXT = "a b c\na b\nb c a b\nc c a\na\nb a c b\nthe a b\n"
SECOND = "a c b\nc b\nc b b a\nb b\n"
GOOD = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1.0\t<s>\t-0.3
-0.5\t</s>
-0.4\ta\t-0.2
-0.6\tb

\\2-grams:
-0.1\t<s> a
-0.2\ta b

\\end\\
"""


def lang_folder(folder: Path) -> Path:
    """A new folder with words.txt."""
    folder.mkdir()
    words = ["<eps>", "a", "b", "c", "unheard", "#0", "<s>", "</s>"]
    (folder / "words.txt").write_text("".join(f"{w} {i}\n" for i, w in enumerate(words)))
    return folder


def spelled(model: backoff.Backoff, length: int) -> list[tuple[str, ...]]:
    """The n-grams of a length."""
    return [tuple(model.words[i] for i in gram) for gram in model.grams(length)]
