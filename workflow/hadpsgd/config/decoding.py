"""Language model, graph, search and scoring."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from hadpsgd.config.base import (
    DECIDES_IF_GIVEN,
    DECIDES_NOTHING,
    EachOnce,
    PathText,
    Section,
    off_default,
)
from hadpsgd.config.limits import Limits
from hadpsgd.config.neural_lm import NeuralLm


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Regex = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
"""A regular expression of Python's."""


class Lm(Section):
    """N-gram language model."""

    order: int = Field(4, ge=2, le=6)
    """Order of the n-gram; less where no sentence is so long (as with words that stand alone). Of
    what is trained here: beside lm.arpa, of texts of lm.sources."""
    pieces: int = Field(0, ge=0)
    """An open vocabulary: new words are spelled in pieces (sentencepiece, unigram model), about so
    many, at least one for every letter (lang.units: graphemes) or letters with their sound
    (phones). 0: known words alone."""
    spelling_order: int = Field(4, ge=2, le=6)
    """Order of the n-gram over pieces, trained on the words of the lexicon. Only with lm.pieces."""
    arpa: PathText | None = None
    """An existing ARPA file (gzipped too) instead of training one. Without lm.sources, lm.order,
    lm.tool, lm.discounts and lm.cutoffs then stay at their defaults: another value is refused."""
    tool: Literal["kaldingram", "lmplz"] = "kaldingram"
    """What trains: we ourselves, on arrays (with one discount as the Python package kaldingram
    does), or KenLM's lmplz where it is installed."""
    discounts: Literal[1, 3] = 3
    """Discounts an order. 3: for n-grams seen once, twice and more often, interpolated (modified
    Kneser-Ney, as KenLM and SRILM's -kndiscount -interpolate; lmplz has them always). 1: as
    Kaldi's make_kn_lm.py, backed off from."""
    cutoffs: list[Annotated[int, Field(ge=0)]] = Field(
        [0], min_length=1, json_schema_extra=DECIDES_IF_GIVEN
    )
    """n-grams that the text has so often or less often are left out, by order, the last number for
    higher orders too: [0, 0, 1] leaves out 3-grams and longer ones that occur once. The first is
    0, none is below the one before, as KenLM's --prune. Discounts are estimated before."""
    sources: dict[str, PathText] = Field(default_factory=dict)
    """More sources by name, each a text or an ARPA file, gzipped or not: interpolated with the
    corpus' own model, weights tuned on the development text."""
    first_pass_arpa: PathText | None = None
    """An ARPA file (gzipped too) for the graph alone; its lattices are rescored with the full model
    (lm.arpa, or what is trained here)."""
    first_pass_threshold: float | None = Field(None, gt=0)
    """Entropy pruning (relative change of perplexity, such as 1e-7) of a model for the graph; its
    lattices are rescored with the full model. Left out: the graph has the full model."""
    neural: NeuralLm | None = Field(None, json_schema_extra=DECIDES_IF_GIVEN)
    """A recurrent model that rescores, after all n-grams: `neural: {}` for the defaults. Left out:
    none."""

    @model_validator(mode="after")
    def _neural_of_whole_words(self) -> Lm:
        if self.neural and self.pieces:
            raise ValueError("neural: not with pieces; leave one of them out")
        return self

    @model_validator(mode="after")
    def _is_trained(self) -> Lm:
        if self.arpa and not self.sources:
            for name in off_default(self, "order", "tool", "discounts", "cutoffs"):
                raise ValueError(f"{name}: lm.arpa is not trained here; leave one of them out")
        if self.tool == "lmplz" and off_default(self, "discounts"):
            raise ValueError("discounts: lmplz always has three; leave one of them out")
        if not self.pieces and off_default(self, "spelling_order"):
            raise ValueError("spelling_order: nothing is spelled without lm.pieces; leave it out")
        return self

    @model_validator(mode="after")
    def _possible_cutoffs(self) -> Lm:
        if self.cutoffs[0]:
            raise ValueError("cutoffs: single words are not left out; the first is 0, as in [0, 1]")
        if self.cutoffs != sorted(self.cutoffs):
            raise ValueError(f"cutoffs: {self.cutoffs} falls; none may be below the one before")
        if len(self.cutoffs) > self.order:
            raise ValueError(
                f"cutoffs: {len(self.cutoffs)} numbers, and lm.order is {self.order}; give no more"
            )
        return self

    @model_validator(mode="after")
    def _one_first_pass(self) -> Lm:
        if self.first_pass_arpa and self.first_pass_threshold:
            raise ValueError("first_pass_arpa and first_pass_threshold: give one of them")
        if self.first_pass_arpa and self.pieces:
            raise ValueError("first_pass_arpa: it has no new words (pieces); leave one of them out")
        return self

    @property
    def rescores(self) -> bool:
        """Whether the graph has a smaller model than the one that decides."""
        return bool(self.first_pass_arpa or self.first_pass_threshold)


class Graph(Section):
    """The decoding graph HCLG."""

    self_loop_scale: float = Field(0.1, ge=0, le=1000)
    """Scale of self-loop probabilities (Kaldi's --self-loop-scale)."""
    transition_scale: float = Field(1.0, ge=0, le=1000)
    """Scale of the other transition probabilities."""
    pronunciation_probabilities: bool = Field(False, json_schema_extra=DECIDES_IF_GIVEN)
    """Learn from the alignment of the training speech how likely each pronunciation of a word is,
    and silence before and after it, for the lexicon of the graph (Kaldi's steps/get_prons.sh,
    utils/dict_dir_add_pronprobs.sh, prepare_lang.sh). Probabilities of the dictionary, which the
    alignment was made with, are replaced. Not with lm.pieces."""
    determinised: bool = True
    """Determinise the whole graph. With lm.pieces and letters in context that takes more memory
    than there is; without, the graph is larger and slower to search."""
    spelled_cost: float = 0.0
    """Added to the cost (nats) of every word that is spelled; less than 0 finds more new words, and
    takes more known ones for new. Only with lm.pieces."""
    spelling_scale: float = Field(1.0, gt=0, le=1000)
    """Scale of the costs of pieces inside such a word. Only with lm.pieces."""


EnsembleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]


OF_ENSEMBLES = ("ensembles", "gmm_share")
"""Keys of `decoding` that decide nothing of a run, only of what is decoded beside the runs."""


class Decoding(Section):
    """Search."""

    beam: float = Field(13.0, gt=0, le=1000)
    """Paths that cost this much more (nats) than the best one at a frame are given up."""
    lattice_beam: float = Field(6.0, gt=0, le=1000)
    """Paths that cost this much more (nats) than the best one over the utterance leave the
    lattice."""
    max_active: int = Field(7000, ge=100)
    """Most states that go on from a frame."""
    one_best: bool = False
    """Search the best path alone, faster. There is nothing to choose from then: lattice_beam,
    scoring.lm_weights, word_penalties and minimum_bayes_risk change no word."""
    acoustic_scale: float = Field(0.1, gt=0, le=1000)
    """Acoustic scale of the search; scoring rescales its lattices."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """Where the network runs in decoding, realignment and error analysis; every process loads it.
    auto takes a GPU where there is one; cuda asks the scheduler for one, too."""
    gmm: bool = Field(False, json_schema_extra=DECIDES_NOTHING)
    """Decode and score the GMM-HMM of our own alignment, too: a row of the tables beside the runs,
    to measure them by (docs/decoding.md). With `alignment.kind` sat it is adapted to speakers."""
    ensembles: dict[EnsembleName, list[str]] = Field({}, json_schema_extra=DECIDES_NOTHING)
    """Runs decoded together: name -> ids of runs, or rows of several seeds. The mean of their
    networks' log-likelihoods counts; where the row of decoding.gmm (gmm-sat) is among them, the
    GMM-HMM's count, too. Nothing is trained for it. Each is a row of the tables beside the runs
    (docs/decoding.md)."""
    gmm_share: float = Field(0.2, gt=0, lt=1, json_schema_extra=DECIDES_NOTHING)
    """Share of the GMM-HMM's log-likelihoods in those of an ensemble that has it, which it gives
    another folder; the rest is the networks' mean."""
    max_failed: Limits = Field(Limits({"default": 0.05}), json_schema_extra=DECIDES_NOTHING)
    """Share of utterances that may have no path at all; more stops the run. By set:
    {default: 0.05, ch: 0.2}."""


class Scoring(Section):
    """Choice of weight and penalty on the development set, then word error rates."""

    lm_weights: Annotated[list[Annotated[float, Field(ge=0.01, le=1000)]], EachOnce] = Field(
        [float(w) for w in range(7, 18)], min_length=1
    )
    """Language model weights (inverse acoustic scales) tried on the development set. Of all
    settings within half a standard error of the fewest errors the middle is taken."""
    word_penalties: Annotated[list[Annotated[float, Field(ge=-1000, le=1000)]], EachOnce] = Field(
        [0.0, 0.5, 1.0], min_length=1
    )
    """Word insertion penalties (nats a word) tried on the development set; the middle, likewise."""
    dropped_words: list[str] = Field(
        ["!SIL", "<SIL>", "<UNK>", "[NOISE]", "[LAUGHTER]", "[VOCALIZED-NOISE]"]
    )
    """Words of the lexicon that are no words: left out of hypotheses, whatever their case."""
    filters: list[Regex] = Field([])
    """More of them as regular expressions of whole words, whatever their case: '.*-' are words
    broken off, 'uh|um|hm' hesitations, '\\[laughter-.*' words said laughing."""
    acronym_map: PathText | None = None
    """Kaldi's acronyms.map: acronyms of the lexicon (u._c._l._a.) become the words that references
    have (u c l a) before scoring."""
    dotted_acronyms: bool = Field(False, json_schema_extra=DECIDES_IF_GIVEN)
    """The same by their spelling, without a map: i._b._m. becomes i b m, i._b._m.'s i b m's. For
    lexicons that write all acronyms so, as `corpus.kind: ldc` does."""
    minimum_bayes_risk: bool = Field(False, json_schema_extra=DECIDES_IF_GIVEN)
    """Say the words of which the lattice, or with lm.neural the n-best list, expects the fewest
    errors, in place of the best path's (Xu, Povey, Mangu, Zhu, 2011; `--decode-mbr true` of Kaldi's
    score.sh). Not with lm.pieces."""
    one_choice: bool = Field(False, json_schema_extra=DECIDES_IF_GIVEN)
    """One choice for all runs of a row (`training.seeds`), by their errors on the development set
    in all. Each run alone has few words to choose by."""
    nist_tools: bool = True
    """Check our counts with NIST's sclite, or hubscr where there is a GLM, if installed."""
