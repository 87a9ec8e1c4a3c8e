"""Where speech, texts and the lexicon come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic import model_validator as validator

from hadpsgd.config.base import DECIDES_NOTHING, PathText, Section
from hadpsgd.config.corpus_base import AnyCorpus, SetName
from hadpsgd.config.ldc import Ldc
from hadpsgd.config.lhotse import Lhotse
from hadpsgd.config.limits import Limits


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Patterns = Annotated[
    list[Annotated[str, Field(pattern=r"^\S+$")]],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
"""A wildcard pattern or several."""


LEXICON_SENTENCES = 2000
"""First sentences of the built-in corpus' text, from which its pronunciations are taken."""


class Builtin(AnyCorpus):
    """Synthetic telephone speech made by espeak-ng. A test bed, not a benchmark."""

    kind: Literal["builtin"]
    """Synthetic speech."""
    train_minutes: float = Field(30.0, gt=0)
    """Minutes of training speech."""
    dev_minutes: float = Field(3.0, gt=0)
    """Minutes of development speech (matched; weights and penalty are chosen on it)."""
    test_minutes: float = Field(4.0, gt=0)
    """Minutes of each test set, `swb` (matched) and `ch` (unseen voices, noisier)."""
    speakers: int = Field(48, ge=8)
    """Training speakers, each a voice with a rate and pitch of its own."""
    lm_sentences: int = Field(20000, ge=100)
    """Sentences of language model text, drawn apart from the spoken ones."""
    held_out_words: float = Field(0.0, ge=0, lt=0.5)
    """Share of the words that lexicon, language model text and training speech lack, for
    experiments with an open vocabulary; they are listed in `held_out_words.txt`."""

    @property
    def speaks_first(self) -> bool:
        """What is said is drawn as it is spoken."""
        return True


class An4(AnyCorpus):
    """CMU AN4, the public census corpus (16 kHz recordings, taken to 8 kHz)."""

    kind: Literal["an4"]
    """The corpus AN4."""
    path: PathText = Field("${HADPSGD_SHARED:-../shared}/an4", validate_default=True)
    """Folder with `etc/` and `wav/`."""
    dev_speakers: int = Field(8, ge=1)
    """Training speakers held out as the development set."""


class DataSet(Section):
    """A Kaldi data directory, or a part of one."""

    data: PathText
    """The data directory."""
    recordings: Patterns = Field(["*"])
    """Which of its recordings, by shell wildcards (`sw_*`), of the file names that
    reco2file_and_channel and stm have; the stm is restricted to them too."""

    @validator(mode="before")
    @classmethod
    def _of_path(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"data": value}
        if not isinstance(value, dict | DataSet):
            raise ValueError("a data directory, or `data` and `recordings`")
        return value

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> Any:
        return self.data if self.recordings == ["*"] else whole(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> Any:
        section = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(core, handler))
        what = {"description": section.pop("description"), "title": section.pop("title")}
        return {"anyOf": [{"type": "string"}, section], **what}


class Kaldi(AnyCorpus):
    """Your own Kaldi data directories."""

    kind: Literal["kaldi"]
    """Data directories."""
    train: DataSet
    """Training data directory."""
    dev: DataSet
    """Development data directory."""
    tests: dict[SetName, DataSet] = Field(min_length=1)
    """Test sets: name to data directory; several may be parts of one."""
    dict_dir: PathText
    """Kaldi's `data/local/dict`: lexicon.txt, silence_phones.txt, nonsilence_phones.txt,
    optional_silence.txt; or a bare lexicon.txt. lexiconp_silprob.txt (with silprob.txt) goes
    before lexiconp.txt, and this before lexicon.txt."""
    lm_text: PathText | None = None
    """Language model text, one sentence a line, gzipped or not; the training transcripts where it
    is left out. An ARPA file belongs into lm.arpa."""
    case: Literal["as-is", "lower", "upper"] = "as-is"
    """How transcripts and language model text are taken where the lexicon lacks a word as it is
    written: in lower or upper case. Scoring folds case in any way, as NIST's does."""
    max_oov: Limits = Field(Limits({"default": 0.05}), json_schema_extra=DECIDES_NOTHING)
    """Share of a set's running words that may lack a pronunciation; they become <UNK>. By set:
    {default: 0.02, ch: 0.1}."""
    max_uncovered: Limits = Field(Limits({"default": 0.0}), json_schema_extra=DECIDES_NOTHING)
    """Share of the words of a set's stm that may lie in none of its utterances; they count as
    deleted."""
    allow_pipes: bool = Field(False, json_schema_extra=DECIDES_NOTHING)
    """Run commands found in wav.scp (`sph2pipe ... |`). Only for data that you trust."""

    @property
    def folds_words(self) -> bool:
        """To the lexicon's case."""
        return self.case != "as-is"

    @property
    def sets(self) -> dict[str, DataSet]:
        """All sets by name."""
        return {"train": self.train, "dev": self.dev, **self.tests}


Corpus = Annotated[Builtin | An4 | Kaldi | Ldc | Lhotse, Field(discriminator="kind")]
