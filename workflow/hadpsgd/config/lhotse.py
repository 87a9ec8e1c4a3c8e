"""Speech that lhotse's manifests name."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hadpsgd.config.base import DECIDES_NOTHING, PathText, Section
from hadpsgd.config.corpus_base import AnyCorpus, SetName
from hadpsgd.config.limits import Limits


class Manifests(Section):
    """What lhotse knows of a set: recordings and supervisions, or cuts. JSON lines, gzipped or
    not."""

    recordings: PathText | None = None
    """Manifest of the recordings (*_recordings_*.jsonl.gz)."""
    supervisions: PathText | None = None
    """Manifest of what is said in them (*_supervisions_*.jsonl.gz)."""
    cuts: PathText | None = None
    """Manifest of cuts, in place of the other two (*_cuts_*.jsonl.gz)."""

    @model_validator(mode="after")
    def _one_or_the_others(self) -> Manifests:
        both = self.recordings is not None and self.supervisions is not None
        some = self.recordings is not None or self.supervisions is not None
        if some if self.cuts is not None else not both:
            raise ValueError("`recordings` and `supervisions`, or `cuts`")
        return self

    @property
    def files(self) -> list[str]:
        """Those that are given."""
        return [path for path in (self.recordings, self.supervisions, self.cuts) if path]


class Lhotse(AnyCorpus):
    """Sets of lhotse's manifests, with a dictionary as Kaldi's."""

    kind: Literal["lhotse"]
    """Manifests of lhotse."""
    train: Manifests
    """Training speech."""
    dev: Manifests
    """Development speech."""
    tests: dict[SetName, Manifests] = Field(min_length=1)
    """Test sets by name."""
    dict_dir: PathText
    """Kaldi's `data/local/dict`, or a bare lexicon.txt."""
    lm_text: PathText | None = None
    """Language model text, one sentence a line, gzipped or not; the training transcripts where it
    is left out."""
    case: Literal["as-is", "lower", "upper"] = "as-is"
    """How words are taken that the lexicon lacks as they are written: in lower or upper case."""
    max_skipped: Limits = Field(Limits({"default": 0.0}), json_schema_extra=DECIDES_NOTHING)
    """Share of a set's supervisions that may be left out, since they have no text."""
    max_oov: Limits = Field(Limits({"default": 0.05}), json_schema_extra=DECIDES_NOTHING)
    """Share of a set's running words that may lack a pronunciation; they become <UNK>."""

    @property
    def folds_words(self) -> bool:
        """To the lexicon's case."""
        return self.case != "as-is"

    @property
    def sets(self) -> dict[str, Manifests]:
        """All sets by name."""
        return {"train": self.train, "dev": self.dev, **self.tests}
