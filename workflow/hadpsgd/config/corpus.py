"""Where speech, texts and the lexicon come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from hadpsgd.config.base import DECIDES_NOTHING, PathText, Section


class AnyCorpus(Section):
    """What all kinds share."""

    speeds: list[Annotated[float, Field(ge=0.5, le=2)]] = Field([1.0])
    """Speeds at which the network is trained on every training utterance, tempo and pitch
    together; [0.9, 1.0, 1.1] triples a small corpus. 1.0, as it was said, must be among them."""

    @field_validator("speeds")
    @classmethod
    def _own_speed(cls, speeds: list[float]) -> list[float]:
        if 1.0 not in speeds:
            raise ValueError("1.0 must be among the speeds")
        if len(set(speeds)) < len(speeds):
            raise ValueError("a speed is listed twice")
        if any(round(speed, 2) != speed for speed in speeds):
            raise ValueError("two decimals at most")
        return speeds


class Builtin(AnyCorpus):
    """Synthetic telephone speech made by espeak-ng. A test bed, not a benchmark."""

    kind: Literal["builtin"]
    train_minutes: float = Field(30.0, gt=0)
    """Minutes of training speech."""
    dev_minutes: float = Field(3.0, gt=0)
    """Minutes of development speech (matched; acoustic scale and penalty are chosen on it)."""
    test_minutes: float = Field(4.0, gt=0)
    """Minutes of each test set, `swb` (matched) and `ch` (unseen voices, noisier)."""
    speakers: int = Field(48, ge=8)
    """Training speakers, each a voice with a rate and pitch of its own."""
    lm_sentences: int = Field(20000, ge=100)
    """Sentences of language model text, drawn apart from the spoken ones."""
    held_out_words: float = Field(0.0, ge=0, lt=0.5)
    """Share of the words that lexicon, language model text and training speech lack, for
    experiments with an open vocabulary; they are listed in `held_out_words.txt`."""


class An4(AnyCorpus):
    """CMU AN4, the public census corpus (16 kHz recordings, taken to 8 kHz)."""

    kind: Literal["an4"]
    path: PathText = Field("${HADPSGD_SHARED:-../shared}/an4", validate_default=True)
    """Folder with `etc/` and `wav/`."""
    dev_speakers: int = Field(8, ge=1)
    """Training speakers held out as the development set."""


class Kaldi(AnyCorpus):
    """Your own Kaldi data directories."""

    kind: Literal["kaldi"]
    train: PathText
    """Training data directory."""
    dev: PathText
    """Development data directory."""
    tests: dict[str, PathText] = Field(min_length=1)
    """Test sets: name to data directory."""
    dict_dir: PathText
    """Kaldi's `data/local/dict`: lexicon.txt, silence_phones.txt, nonsilence_phones.txt,
    optional_silence.txt; or a bare lexicon.txt."""
    lm_text: PathText | None = None
    """Language model text, one sentence a line, gzipped or not; the training transcripts where it
    is left out. An ARPA file belongs into lm.arpa."""
    max_oov: float = Field(0.05, ge=0, le=1, json_schema_extra=DECIDES_NOTHING)
    """Share of a set's running words that may lack a pronunciation; they become <UNK>."""
    allow_pipes: bool = Field(False, json_schema_extra=DECIDES_NOTHING)
    """Run commands found in wav.scp (`sph2pipe ... |`). Only for data that you trust."""


Corpus = Annotated[Builtin | An4 | Kaldi, Field(discriminator="kind")]
