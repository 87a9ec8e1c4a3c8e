"""The whole configuration, section by section in the order in which data passes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from hadpsgd.config.alignment import Alignment, Egs, Mono
from hadpsgd.config.base import DECIDES_NOTHING, PathText, Section, off_default
from hadpsgd.config.by_hours import filled
from hadpsgd.config.corpus import Corpus
from hadpsgd.config.decoding import Decoding, Graph, Lm, Scoring
from hadpsgd.config.effective import effective
from hadpsgd.config.experiment import Training
from hadpsgd.config.features import Features
from hadpsgd.config.lang import Lang
from hadpsgd.config.limits import OTHERS, Limits
from hadpsgd.config.realign import Realign
from hadpsgd.config.settings import Model
from hadpsgd.config.site import Site, SiteOrFile, shape
from hadpsgd.config.stage import StageRun
from hadpsgd.config.tracking import Tracking
from hadpsgd.config.training import LONGEST_ID


class Config(Section):
    """One workflow: a corpus taken to a table of word error rates."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", json_schema_extra=DECIDES_NOTHING)
    """Name of the results folder."""
    seed: int = Field(1, ge=0)
    """Seed of the data: corpus, dither, alignment, examples; and of training, as long as
    `training.seed` does not say otherwise."""
    results: PathText = Field("results", json_schema_extra=DECIDES_NOTHING)
    """Folder under which `<name>/` is written."""
    speech_hours: Annotated[float, Field(gt=0)] | Literal["auto"] | None = Field(
        None, json_schema_extra=DECIDES_NOTHING
    )
    """Hours of training speech: keys that are left out of alignment, examples, network and
    training, and `corpus.speeds`, get the sizes that fit them in place of the defaults below
    (docs/small-data.md#sizes-by-hours).
    `auto` measures them. Only these keys decide what is made again."""
    corpus: Corpus
    lang: Lang = Lang()
    features: Features = Features()
    alignment: Alignment = Mono()
    realign: Realign = Realign()
    egs: Egs = Egs()
    model: Model = Model()
    training: Training = Training()
    lm: Lm = Lm()
    graph: Graph = Graph()
    decoding: Decoding = Decoding()
    scoring: Scoring = Scoring()
    tracking: Tracking = Field(Tracking(), json_schema_extra=DECIDES_NOTHING)
    site: SiteOrFile = Field(Site(), json_schema_extra=DECIDES_NOTHING)
    """Facts of the machines, or the file that holds them; profiles name one."""

    @model_validator(mode="before")
    @classmethod
    def _sizes(cls, given: Any) -> Any:
        return filled(given) if isinstance(given, dict) else given

    @field_validator("results")
    @classmethod
    def _a_folder(cls, path: str) -> str:
        if not path or not path.isprintable() or {"{", "}"} & set(path):
            raise ValueError("no folder that Snakemake can write to: leave out { and }")
        return path

    @model_validator(mode="after")
    def _test_names(self) -> Config:
        reserved = {"train", "dev", OTHERS} & set(self.tests)
        if reserved:
            raise ValueError(f"corpus.tests: '{reserved.pop()}' is not a name for a test set")
        return self

    @model_validator(mode="after")
    def _limits_of_known_sets(self) -> Config:
        sets = ("train", "dev", *self.tests)
        for section in ("corpus", "features", "alignment", "decoding"):
            for key, value in getattr(self, section):
                unknown = value.sets.difference(sets) if isinstance(value, Limits) else ()
                for name in sorted(unknown):
                    known = ", ".join((*sets, OTHERS))
                    raise ValueError(f"{section}.{key}: no set '{name}'; there are {known}")
        return self

    @model_validator(mode="after")
    def _fmllr_has_a_source(self) -> Config:
        if self.estimates_fmllr and self.alignment.kind != "sat":
            raise ValueError(
                "features.input: fmllr needs alignment.kind sat, or features.imports.fmllr"
            )
        return self

    @model_validator(mode="after")
    def _fits_are_known(self) -> Config:
        if self.egs.misfit and self.alignment.kind == "kaldi":
            raise ValueError("egs.misfit: Kaldi's alignments do not say how utterances fit")
        return self

    @model_validator(mode="after")
    def _gmm_is_ours(self) -> Config:
        if self.decoding.gmm and self.alignment.kind == "kaldi":
            raise ValueError("decoding.gmm: Kaldi's GMM is not decoded; one of our alignments is")
        if self.gmm_row in {*self.training.rows, *(run.id for run in self.training.members)}:
            raise ValueError(f"'{self.gmm_row}' is the row of decoding.gmm: give the run a `name`")
        return self

    @model_validator(mode="after")
    def _ensembles_of_runs(self) -> Config:
        runs_and_rows = dict.fromkeys([*self.training.rows, *self.training.by_id])
        beside = dict.fromkeys([*runs_and_rows, *filter(None, [self.gmm_row])])
        for name, listed in self.decoding.ensembles.items():
            where = f"decoding.ensembles.{name}"
            if len(name) > LONGEST_ID:
                raise ValueError(f"{where}: too long for names of files: {LONGEST_ID} at most")
            if name in (*runs_and_rows, self.gmm_row):
                raise ValueError(f"{where}: there is a row of that name; give it another one")
            for each in listed:
                if each not in beside:
                    off = each == f"gmm-{self.alignment.kind}" and not self.decoding.gmm
                    raise ValueError(
                        f"{where}: no run or row '{each}'; there are {', '.join(beside)}"
                        + "; with decoding.gmm: true that one, too" * off
                    )
            runs = self.together(name)
            members = [*runs, *(each for each in listed if each == self.gmm_row)]
            if twice := next((each for each in members if members.count(each) > 1), ""):
                raise ValueError(f"{where}: '{twice}' is there twice; once is enough")
            if members and not runs:
                raise ValueError(f"{where}: the GMM-HMM alone is no ensemble; add a run")
            if len(members) < 2:
                raise ValueError(f"{where}: an ensemble has two or more runs, not {len(members)}")
        if not any(map(self.has_gmm, self.decoding.ensembles)):
            for key in off_default(self.decoding, "gmm_share"):
                raise ValueError(f"decoding.{key}: no ensemble has the GMM-HMM; leave it out")
        return self

    @model_validator(mode="after")
    def _risk_of_whole_words(self) -> Config:
        if self.scoring.minimum_bayes_risk and self.lm.pieces:
            raise ValueError("scoring.minimum_bayes_risk: not with lm.pieces; leave one out")
        return self

    @model_validator(mode="after")
    def _learned_of_whole_words(self) -> Config:
        if self.graph.pronunciation_probabilities and self.lm.pieces:
            raise ValueError("graph.pronunciation_probabilities: not with lm.pieces; leave one out")
        return self

    @model_validator(mode="after")
    def _spelled_with_pieces(self) -> Config:
        if not self.lm.pieces:
            for name in off_default(self.graph, "spelled_cost", "spelling_scale"):
                raise ValueError(
                    f"graph.{name}: nothing is spelled without lm.pieces; leave it out"
                )
        return self

    @model_validator(mode="after")
    def _neural_lm_has_lists(self) -> Config:
        if self.lm.neural and self.decoding.one_best:
            raise ValueError(
                "lm.neural: not with decoding.one_best, which leaves nothing to choose"
            )
        return self

    @model_validator(mode="after")
    def _realigned_by_a_run(self) -> Config:
        names = [run.id for run in self.training.members if not isinstance(run, StageRun)]
        if self.realign.run and self.realign.run not in names:
            raise ValueError(
                f"realign.run: no training run '{self.realign.run}'; there are {', '.join(names)}"
            )
        return self

    @model_validator(mode="after")
    def _masks_fit_the_input(self) -> Config:
        features = self.features
        for run in self.training.members:
            training = effective(self, run).training
            frames, key = self.egs.frames, "egs.frames"
            if isinstance(run, StageRun):
                frames, key = run.stage.frames, "training.stages"
            misfit = training.spec_augment.misfit(
                features.input,
                bins=features.logmel.bins,
                frames=frames,
                normalised=features.normalise != "none",
                key=key,
            )
            if misfit:
                raise ValueError(f"run '{run.id}': training.spec_augment: {misfit}")
            if training.ivector_dropout and "ivector" not in features.input:
                raise ValueError(
                    f"run '{run.id}': training.ivector_dropout needs ivector in features.input"
                )
        return self

    @model_validator(mode="after")
    def _fits_the_site(self) -> Config:
        for run in self.training.members:
            try:
                shape(self.site, run.processes, effective(self, run).training.device)
            except ValueError as error:
                raise ValueError(f"run '{run.id}': {error}") from None
        return self

    @property
    def realigner(self) -> str:
        """Name of the training run whose network aligns."""
        return self.realign.run or self.training.members[0].id

    @property
    def estimates_fmllr(self) -> bool:
        """Whether the input has FMLLR features of our own transforms."""
        return "fmllr" in self.features.input and self.features.imports.fmllr is None

    @property
    def gmm_row(self) -> str:
        """Name of the GMM-HMM's row in the tables, and of its folders; empty without one."""
        return f"gmm-{self.alignment.kind}" if self.decoding.gmm else ""

    def together(self, ensemble: str) -> list[str]:
        """Ids of the runs of `decoding.ensembles`: those named, and those of the rows named."""
        rows = self.training.rows
        return [
            run
            for name in self.decoding.ensembles[ensemble]
            if name != self.gmm_row
            for run in ([each.id for each in rows[name]] if name in rows else [name])
        ]

    def has_gmm(self, ensemble: str) -> bool:
        """Whether the GMM-HMM is one of `decoding.ensembles`."""
        return self.gmm_row in self.decoding.ensembles[ensemble]

    @property
    def adapts_speakers(self) -> bool:
        """Whether speakers of dev and test sets get FMLLR transforms of our own."""
        return self.estimates_fmllr or (self.decoding.gmm and self.alignment.kind == "sat")

    @property
    def tests(self) -> tuple[str, ...]:
        """Names of the test sets, in the order of the table's columns."""
        match self.corpus.kind:
            case "builtin":
                return ("swb", "ch")
            case "an4":
                return ("test",)
            case _:
                return tuple(self.corpus.tests)
