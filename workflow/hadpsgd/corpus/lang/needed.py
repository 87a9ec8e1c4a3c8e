"""What a Kaldi lang folder must have, to be copied."""

from __future__ import annotations

FILES = (
    "phones.txt",
    "words.txt",
    "topo",
    "L.fst",
    "L_disambig.fst",
    "phones/disambig.int",
    "phones/silence.csl",
    "phones/optional_silence.int",
)
