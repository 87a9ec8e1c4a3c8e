"""A text, spelled words and pieces of them for tests of an open vocabulary."""

from __future__ import annotations

from pathlib import Path

from hadpsgd.cli import main

TEXT = ["the wonder of it", "it is wonderful", "a restful rest", "i won't rest", "the other one"]
CONFIG = "name: t\ncorpus: {kind: builtin}\nlang: {units: graphemes}\nlm: {order: 3, pieces: 24}\n"


def prepared(out: Path) -> Path:
    """A dictionary, a text, a lang folder of spelled words, and what `hadpsgd pieces` makes."""
    (out / "config.yaml").write_text(CONFIG)
    (out / "text").write_text("".join(f"{line}\n" for line in [*TEXT * 3, "<UNK> rest"]))
    (out / "dict").mkdir()
    words = sorted({word for line in TEXT for word in line.split()})
    lexicon = ["<UNK> SPN", "!SIL SIL", *(f"{word} AH" for word in words)]
    (out / "dict/lexicon.txt").write_text("".join(f"{line}\n" for line in lexicon))
    (out / "dict/silence_phones.txt").write_text("SIL\nSPN\n")
    (out / "dict/nonsilence_phones.txt").write_text("AH\n")
    (out / "dict/optional_silence.txt").write_text("SIL\n")
    common = ["--config", str(out / "config.yaml"), "--dict", str(out / "dict")]
    assert main(["lang", *common, "--out", str(out / "lang")]) == 0
    common += ["--text", str(out / "text"), "--dev", str(out / "text"), "--lang", str(out / "lang")]
    assert main(["pieces", *common, "--out", str(out / "pieces")]) == 0
    return out
