"""Features that come from Kaldi instead of our own stages, stream by stream.

`{set}` in a path stands for train, dev or the name of a test set. Paths inside of scp files are
relative to the folder in which the workflow runs, as in Kaldi, or to a folder above the scp.
Where several paths are given, their speakers or utterances are taken together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hadpsgd.config.base import DECIDES_NOTHING, PathText, Section


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Paths = Annotated[
    list[PathText],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
"""A path or several."""


class FeatureImport(Section):
    """Static features of a stream (no deltas), and their CMVN statistics."""

    feats: PathText
    """feats.scp (ranges and compressed matrices too), or an archive."""
    cmvn: PathText | None = None
    """cmvn.scp by speaker; computed from the features where it is left out."""


class FmllrImport(Section):
    """FMLLR features, or transforms that are applied to the mfcc stream."""

    feats: PathText | None = None
    """feats.scp of adapted features."""
    trans: Paths | None = None
    """Folders with trans.*, archives or scps: one transform a speaker."""
    model: PathText | None = None
    """Folder with final.mat, splice_opts and cmvn_opts that belong to the transforms; with
    corpus.speeds or corpus.noise also final.mdl, final.alimdl, tree and phones.txt, which adapt
    the copies."""

    @model_validator(mode="after")
    def _one(self) -> FmllrImport:
        if (self.feats is None) == (self.trans is None) or (self.trans is None) != (
            self.model is None
        ):
            raise ValueError("give feats, or trans and model")
        return self


class IvectorImport(Section):
    """i-vectors."""

    ivectors: Paths
    """ivector_online.scp (matrices), or vectors by speaker or utterance; scp or archive."""
    per: Literal["speaker", "utterance", "online"] = "online"
    """What the vectors belong to."""
    period: int = Field(10, ge=1)
    """Frames between online vectors (Kaldi's ivector_period)."""
    extractor: PathText | None = Field(None, json_schema_extra=DECIDES_NOTHING)
    """Folder of the extractor that made them (final.ie, final.dubm, final.mat or lda_mllt.mat,
    splice_opts), so that `hadpsgd export` can make i-vectors of new recordings."""


class Imports(Section):
    """Streams taken from Kaldi; those that are left out are made by our own stages."""

    logmel: FeatureImport | None = None
    mfcc: FeatureImport | None = None
    fmllr: FmllrImport | None = None
    ivector: IvectorImport | None = None
