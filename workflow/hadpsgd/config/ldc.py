"""Telephone speech from the LDC's own folders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hadpsgd.config.base import DECIDES_NOTHING, PathText, Section
from hadpsgd.config.corpus_base import AnyCorpus
from hadpsgd.config.imports import Paths
from hadpsgd.config.limits import Limits


class Switchboard(Section):
    """Switchboard-1 Release 2."""

    audio: PathText
    """Folder of LDC97S62: its recordings are found at any depth."""
    transcripts: PathText
    """Folder of Mississippi State's corrected transcripts (swb_ms98_transcriptions), with its
    dictionary sw-ms98-dict.text."""


class Fisher(Section):
    """Fisher English, one part or both."""

    audio: Paths
    """Folders of the speech (LDC2004S13, LDC2005S13): recordings are found at any depth."""
    transcripts: Paths
    """Folders of the transcripts (LDC2004T19, LDC2005T19)."""


class Eval2000(Section):
    """Hub5 2000, English."""

    audio: PathText
    """Folder of LDC2002S09, with english/hub5e_00.pem, at any depth."""
    transcripts: PathText
    """Folder of LDC2002T43, with reference/hub5e00.english.000405.stm and
    reference/en20000405_hub5.glm, at any depth."""


class Ldc(AnyCorpus):
    """Switchboard and Hub5 2000 as the LDC delivers them, prepared as Kaldi's egs/swbd/s5c does."""

    kind: Literal["ldc"]
    """The LDC's folders."""
    switchboard: Switchboard
    fisher: Fisher | None = None
    """More training speech, and text for the language model."""
    eval2000: Eval2000
    dev_utterances: int = Field(4000, ge=1)
    """First utterances of Switchboard, in the order of their ids, that are the development set."""
    max_repeats: int = Field(300, ge=1)
    """Training utterances of one and the same transcript that are kept (Kaldi's train_nodup)."""
    max_skipped: Limits = Field(Limits({"default": 0.02}), json_schema_extra=DECIDES_NOTHING)
    """Share of a set's utterances that may be left out, since their recording is missing or ends
    before them."""
    max_oov: Limits = Field(
        Limits({"default": 0.02, "swb": 0.1, "ch": 0.1}), json_schema_extra=DECIDES_NOTHING
    )
    """Share of a set's running words that may lack a pronunciation; they become <unk>."""
    max_uncovered: Limits = Field(Limits({"default": 0.0}), json_schema_extra=DECIDES_NOTHING)
    """Share of the words of a test set's stm that may lie in none of its utterances."""

    @property
    def tests(self) -> tuple[str, ...]:
        """Hub5 2000's Switchboard and CallHome."""
        return ("swb", "ch")
