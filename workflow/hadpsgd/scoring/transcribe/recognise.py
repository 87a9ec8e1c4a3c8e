"""A data directory through the stages of the workflow, with the models of a bundle.

Each stage is the workflow's own function, so that words are those of the workflow.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.alignment import Ladder
from hadpsgd.config.limits import OTHERS, Limits
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.tables import read_counts
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.adaptation import estimate, unadapted, write_transforms
from hadpsgd.decoding.decode import Scorer, Work, decode
from hadpsgd.decoding.gmm import GmmScorer, gmm_scale
from hadpsgd.decoding.lattice import Scaling
from hadpsgd.decoding.network import NetworkScorer, device_of
from hadpsgd.decoding.search import Searcher
from hadpsgd.errors import UserError
from hadpsgd.features import fmllr
from hadpsgd.features.extract import extract
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.ivector import extractor, ubm
from hadpsgd.features.ivector.extract import extract as extract_ivectors
from hadpsgd.gmm.adaptation import MIN_COUNT
from hadpsgd.models.build import load_model
from hadpsgd.scoring.bundle import neural
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.hypotheses import Recognised, Timer, Words, recognised
from hadpsgd.scoring.rescoring import Rescoring

_ALL = Limits({OTHERS: 1.0})

Done = Callable[[str, float], None]
"""Takes the name of a step and the share of it that was done since it was last called."""

STEPS = {"features": 1.0, "adaptation": 12.0, "search": 10.0, "words": 3.0}
"""About how much time each takes, of the same speech; adaptation is left out where nothing is
adapted."""


@dataclass(frozen=True, kw_only=True)
class Recogniser:
    """A bundle, ready to recognise.

    jobs: processes. fast: FMLLR transforms are the identity; nothing is decoded to estimate them.
    device: auto, cpu, cuda, or empty for the bundle's choice.
    """

    bundle: Bundle
    jobs: int = 1
    fast: bool = False
    device: str = ""

    @cached_property
    def config(self) -> Config:
        """Settings; utterances that are too short are left without words."""
        config = self.bundle.config
        features = config.features.model_copy(update={"max_skipped": _ALL})
        return config.model_copy(update={"features": features})

    @cached_property
    def searcher(self) -> Searcher:
        """The graph."""
        return Searcher(self.bundle.graph, self.config.decoding)

    def check(self) -> None:
        """Load graph and networks, to tell before any work what is wrong with them.

        Raises:
            UserError: one is damaged, or CUDA is asked for and missing.
        """
        device_of(self.device or self.config.decoding.device)
        for model in self.bundle.models:
            load_model(model)
        if self.bundle.setting.needs_lists:
            neural.read(self.bundle.neural)
        _ = self.searcher

    @property
    def adapts(self) -> bool:
        """Whether speech is decoded twice, to adapt to its speakers, before the network does."""
        return "fmllr" in self.config.features.input and not self.fast

    @property
    def steps(self) -> dict[str, float]:
        """What is to be done, each with about its share of time."""
        left_out = () if self.adapts else ("adaptation",)
        return {step: weight for step, weight in STEPS.items() if step not in left_out}

    def __call__(self, data: Path, work: Path, done: Done) -> Iterator[Recognised]:
        """Yield what each utterance of a data directory says; none of those without any path.

        Args:
            data: Kaldi data directory with audio at the bundle's rate.
            work: a folder for what lies between.
            done: told of steps.

        Raises:
            UserError: audio is broken, or the bundle's parts do not fit.
        """
        with contextlib.redirect_stderr(io.StringIO()):  # the stages' own reports
            decoded = self._decoded(data, work, done)
        directory = DataDir.read(data, audio=False, text=False)
        words = Words.read(decoded, self.bundle.filters)
        timer = Timer.read(decoded, words, directory)
        setting = self.bundle.setting
        scaling, risk = setting.scaling(words), setting.minimum_bayes_risk
        more = self._neural(decoded)
        for found in recognised(decoded, timer, scaling, risk=risk, neural=more):
            yield found
            done("words", 1 / len(directory))

    def _neural(self, decoded: Path) -> Rescoring | None:
        """What the neural language model says of a decoding, where words are chosen from lists."""
        setting = self.bundle.setting
        if not setting.needs_lists:
            return None
        lists = neural.maker(self.bundle.neural, decoded=decoded).all(
            lattice_io.read(decoded), self.jobs
        )
        return Rescoring([setting.neural_weight], lists, setting.minimum_bayes_risk)

    def _decoded(self, data: Path, work: Path, done: Done) -> Path:
        """The folder of lattices."""
        feats = work / "feats"
        self._features(data, feats)
        done("features", 1.0)
        if "fmllr" in self.config.features.input:
            self._fmllr(data, work, feats, done)
        scorer = NetworkScorer(
            config=self.config,
            models=self.bundle.models,
            data=data,
            streams=feats,
            device=self.device,
        )
        scorer.share()
        names = scorer.utterances()
        told = _shares(done, "search", len(names))
        frames = read_counts(next(feats.glob(f"*/{data.name}/utt2num_frames")))
        self._search(self.searcher, scorer, names, work / "decode", told, frames)
        return work / "decode"

    def _search(
        self,
        searcher: Searcher,
        scorer: Callable[[], Scorer],
        names: list[str],
        out: Path,
        told: Callable[[int], None],
        frames: Mapping[str, int],
    ) -> None:
        work = Work(searcher=searcher, make_scorer=scorer)
        jobs = min(self.jobs, len(names))
        decode(work, names, out, jobs=jobs, max_failed=1.0, told=told, frames=frames)

    def _features(self, data: Path, feats: Path) -> None:
        directory, streams = DataDir.read(data, text=False), self.config.features.input
        computed = ["logmel"] if "logmel" in streams else []
        if {"fmllr", "ivector"} & {*streams}:
            computed.append("mfcc")
        for stream in computed:
            extract(stream, self.config, directory, feats / stream / data.name, self.jobs)
        if "ivector" in streams:
            self._ivectors(data, feats)

    def _ivectors(self, data: Path, feats: Path) -> None:
        folder = self.bundle.ivector
        directory = DataDir.read(data, audio=False, text=False)
        inputs = Inputs(directory, feats / "mfcc" / data.name, Frontend.read(folder), 1.0)
        extract_ivectors(
            inputs,
            ubm.read(folder / "final.dubm"),
            extractor.read(folder / "final.ie"),
            self.config.features.ivector,
            feats / "ivector" / data.name,
            self.jobs,
        )

    def _fmllr(self, data: Path, work: Path, feats: Path, done: Done) -> None:
        """Two passes of the adapted GMM estimate each speaker's transform, as in the workflow."""
        mfcc, last = feats / "mfcc" / data.name, None
        scale = gmm_scale(self.config)
        searcher = self.searcher.rescaled(scale)
        options = self.config.alignment
        least = options.min_speaker_frames if isinstance(options, Ladder) else MIN_COUNT
        for number in (1, 2) if self.adapts else ():
            scorer = self._gmm(data, mfcc, last)
            names = scorer.utterances()
            lattices = work / f"lattices{number}"
            told = _shares(done, "adaptation", 2 * len(names))
            frames = read_counts(mfcc / "utt2num_frames")
            self._search(searcher, scorer, names, lattices, told, frames)
            found = estimate(
                scorer,
                lattice_io.read(lattices),
                Scaling(acoustic_scale=scale),
                self._silence,
                least,
            )
            last = work / f"trans{number}"
            write_transforms(found, last)
        if last is None:
            last = work / "trans"
            write_transforms(unadapted(self._gmm(data, mfcc, None)), last)
        directory = DataDir.read(data, audio=False, text=False)
        inputs = Inputs(directory, mfcc, Frontend.read(self.bundle.gmm), 1.0)
        fmllr.apply(inputs, fmllr.read_transforms(last), feats / "fmllr" / data.name, self.jobs)

    def _gmm(self, data: Path, mfcc: Path, transforms: Path | None) -> GmmScorer:
        return GmmScorer(
            folder=self.bundle.gmm, data=data, feats=mfcc, transforms=transforms, max_skipped=1.0
        )

    @property
    def _silence(self) -> tuple[int, ...]:
        path = self.bundle.graph / "phones" / "silence.csl"
        try:
            return tuple(map(int, path.read_text(encoding="utf-8").strip().split(":")))
        except (OSError, ValueError):
            raise UserError("no list of phones", where=path, fix="Export it again") from None


def _shares(done: Done, step: str, total: int) -> Callable[[int], None]:
    """Tells of a step in shares what comes in numbers out of a total."""

    def told(count: int) -> None:
        done(step, count / total)

    return told
