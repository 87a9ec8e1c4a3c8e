"""A bundle that is opened: its parts by name."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from hadpsgd import config
from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.scoring.bundle.manifest import FILE, Manifest
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.tune import Setting

CONFIG, MODEL, GRAPH, GMM, IVECTOR = "config.yaml", "final.pt", "graph", "gmm", "ivector"
ONNX, ACRONYMS, NEURAL = "final.onnx", "acronyms.map", "neural"


def model_file(number: int) -> str:
    """Name of the network of that number, from 1."""
    return MODEL if number == 1 else f"final.{number}.pt"


@dataclass(frozen=True)
class Bundle:
    """What recognises speech."""

    folder: Path
    manifest: Manifest
    config: Config
    """Settings of features, search and words; the other sections mean nothing."""

    @classmethod
    def open(cls, folder: Path) -> Bundle:
        """Open a bundle and compare all its files with their checksums.

        Raises:
            UserError: it is none, of another format, or a file is missing or damaged.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        manifest.check(folder)
        for name in (CONFIG, MODEL):
            if name not in manifest.files:
                raise UserError(f"a bundle without {name}", where=folder, fix="Export it again")
        opened = cls(folder, manifest, config.load(folder / CONFIG))
        opened._check_config()
        return opened

    def _check_config(self) -> None:
        """Features are computed as the config says: the manifest must say the same.

        Raises:
            UserError: it does not.
        """
        features = self.config.features
        for what, told, set_ in (
            ("sample_rate", self.manifest.sample_rate, features.sample_rate),
            ("streams", self.manifest.streams, list(features.input)),
        ):
            if told != set_:
                where, line = self.folder / FILE, f"{what} {told}, and {CONFIG} has {set_}"
                raise UserError(line, where=where, fix="Export or copy the bundle again")

    @property
    def models(self) -> tuple[Path, ...]:
        """The network, `final.pt`; of an ensemble `final.2.pt` and so on, too."""
        names = map(model_file, itertools.count(1))
        there = itertools.takewhile(self.manifest.files.__contains__, names)
        return tuple(self.folder / name for name in there)

    @property
    def graph(self) -> Path:
        """HCLG with words, phones, transitions and, where the first pass is pruned, both LMs."""
        return self.folder / GRAPH

    @property
    def gmm(self) -> Path:
        """The speaker-adaptively trained model that estimates FMLLR."""
        return self.folder / GMM

    @property
    def ivector(self) -> Path:
        """The i-vector extractor with its UBM."""
        return self.folder / IVECTOR

    @property
    def neural(self) -> Path:
        """The neural language model with the n-gram, where words are chosen from n-best lists."""
        return self.folder / NEURAL

    @property
    def setting(self) -> Setting:
        """Language model weight and word penalty that dev chose, and how words are decided."""
        return Setting(
            lm_weight=self.manifest.lm_weight,
            word_penalty=self.manifest.word_penalty,
            minimum_bayes_risk=self.manifest.minimum_bayes_risk,
            neural_weight=self.manifest.neural_weight,
            listed=any(name.startswith(f"{NEURAL}/") for name in self.manifest.files),
        )

    @property
    def filters(self) -> Filters:
        """Words that are none, and acronyms."""
        acronyms = self.folder / ACRONYMS
        given = {"acronym_map": str(acronyms)} if acronyms.is_file() else {}
        return Filters.of(self.config.scoring.model_copy(update=given))
