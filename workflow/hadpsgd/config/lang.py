"""The lang folder: phones, topology and lexicon (Kaldi's utils/prepare_lang.sh)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hadpsgd.config.base import Section


class Lang(Section):
    """Options of the lang folder; unused where Kaldi's is imported with the alignments."""

    units: Literal["phones", "graphemes"] = "phones"
    """Pronunciations of words: those of the lexicon, or their spelling, letter by letter (words of
    noise keep theirs)."""
    position_dependent: bool = False
    """Mark phones by their position in the word (_B, _E, _I, _S), as Kaldi's recipes do."""
    silence_probability: float = Field(0.5, gt=0, lt=1)
    """Probability of optional silence between words."""
    oov: str = ""
    """Word that stands for words missing from the lexicon; empty takes <UNK>, <unk> or
    <SPOKEN_NOISE>, whichever the lexicon has."""
    silence_states: int = Field(5, ge=1, le=10)
    """Emitting HMM states of silence phones."""
    nonsilence_states: int = Field(3, ge=1, le=10)
    """Emitting HMM states of other phones."""
