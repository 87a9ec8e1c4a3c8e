"""From a finished run to a bundle."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from hadpsgd import config as configs
from hadpsgd.config import Config
from hadpsgd.config.alignment import Ladder
from hadpsgd.decoding.onnx_file import write_onnx
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.models.build import load_model
from hadpsgd.scoring.bundle import bundle, imported, neural
from hadpsgd.scoring.bundle.manifest import FILE, FORMAT, SEVERAL, Manifest, Score
from hadpsgd.scoring.command import read_tuned

PACKAGES = (
    *("torch", "numpy", "scipy", "pydantic", "pyyaml", "soundfile", "threadpoolctl"),
    *("kaldi-io", "kaldi-native-fbank", "kaldifst", "kaldi-decoder"),
)
"""What recognition takes."""
_GMM = ("final.mdl", "final.mat", "splice_opts")
_IVECTOR = ("final.ie", "final.dubm", "splice_opts")
_MATRICES = ("final.mat", "lda_mllt.mat")  # of an i-vector extractor; the latter is Kaldi's


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that is trained, decoded and scored, or several that are decoded together."""

    out: Path
    """Results of the config."""
    key: str
    config: Config
    """As the run has it."""
    folders: tuple[Path, ...]
    """Of its training, or of theirs, in the order in which they are decoded."""

    @classmethod
    def of(cls, folder: Path, config: Config) -> Run:
        """One run: `<results>/<name>/runs/<key>`, with its config."""
        return cls(out=folder.parents[1], key=folder.name, config=config, folders=(folder,))

    @property
    def scored(self) -> Path:
        """Its scores."""
        return self.out / "score" / self.key

    @property
    def models(self) -> list[Path]:
        """The networks."""
        return [folder / "final.pt" for folder in self.folders]


def export(run: Run, out: Path, licence: str, *, onnx: bool = False) -> Manifest:
    """Write the bundle OUT, with `onnx` the network as ONNX, too; one that is there is replaced.

    Raises:
        UserError: something of the run is missing or does not fit, its features are imported and
            cannot be computed of a recording, or OUT is something else than a bundle; the package
            onnx is missing.
    """
    imported.refuse(run.config)
    if onnx and len(run.models) > 1:
        what = f"{run.key} has {len(run.models)} networks, and an ONNX file holds one"
        raise UserError(what, fix="Export without --onnx, or one of its runs")
    if out.exists() and not (out / FILE).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("is there and no bundle", where=out, fix="Name another folder")
    setting = read_tuned(run.scored / "tuned.json")
    _check_model(run)
    imported.check(run.config, run.out)
    with atomic_folder(out, own=True) as folder:
        _copy_parts(run, folder)
        if setting.needs_lists:
            tuned = run.scored / "tuned.json"
            neural.write(folder / bundle.NEURAL, lm=run.out / "lm", tuned=tuned)
        manifest = Manifest(
            format=SEVERAL if len(run.models) > 1 else FORMAT,
            name=run.config.name,
            run=run.key,
            streams=list(run.config.features.input),
            sample_rate=run.config.features.sample_rate,
            lm_weight=setting.lm_weight,
            word_penalty=setting.word_penalty,
            minimum_bayes_risk=setting.minimum_bayes_risk,
            neural_weight=setting.neural_weight,
            scores=_scores(run.scored),
            licence=licence,
            trained_with=_trained_with(run.folders[0]),
            exported_with=_versions(),
        )
        if onnx:
            write_onnx(folder / bundle.MODEL, out=folder / bundle.ONNX, about=_about(manifest))
        return manifest.write(folder)


def recognition(config: Config) -> dict[str, Any]:
    """The part of a config that recognition reads, without paths and without limits of sets."""
    features = config.features.model_dump(mode="json", exclude={"imports", "max_skipped"})
    features["ivector"] = imported.ivector_options(config).model_dump(mode="json")
    features["ivector"].pop("transform")
    content = {
        "name": config.name,
        "seed": config.seed,
        "corpus": {"kind": "builtin"},
        "features": features,
        "decoding": config.decoding.model_dump(
            mode="json", exclude={"max_failed", "gmm", "gmm_share", "ensembles"}
        ),
        "scoring": config.scoring.model_dump(mode="json", exclude={"acronym_map"}),
    }
    if "fmllr" in config.features.input:
        own = isinstance(config.alignment, Ladder) and config.estimates_fmllr
        ladder = config.alignment if own else Ladder(kind="sat")  # imported, it adapts as one
        content["alignment"] = ladder.model_dump(mode="json", exclude={"max_failed"})
    return content


def _check_model(run: Run) -> None:
    """Networks, config and graph must belong together."""
    graph = run.out / "graph"
    number = graph / "num_pdfs"
    for path in run.models:
        _, meta = load_model(path)
        if list(meta.streams) != list(run.config.features.input):
            what = f"trained on {list(meta.streams)}, config has {run.config.features.input}"
            raise UserError(what, where=path)
        if not (graph / "HCLG.fst").is_file() or not number.is_file():
            raise UserError("missing", where=graph / "HCLG.fst", fix="`hadpsgd graph` makes it")
        if number.read_text().strip() != str(meta.num_pdfs):
            what = f"{number.read_text().strip()} pdf-ids, and the network has {meta.num_pdfs}"
            fix = "Make graph and network from the same alignments"
            raise UserError(what, where=graph, fix=fix)


def _copy_parts(run: Run, folder: Path) -> None:
    config = run.config
    for number, model in enumerate(run.models, 1):
        shutil.copyfile(model, folder / bundle.model_file(number))
    shutil.copytree(run.out / "graph", folder / bundle.GRAPH, copy_function=shutil.copyfile)
    if "fmllr" in config.features.input:
        source = imported.gmm_folder(config, run.out)
        more = ("final.alimdl", "cmvn_opts")
        _copy(source, folder / bundle.GMM, needed=_GMM, more=more)
    if "ivector" in config.features.input:
        source = imported.ivector_folder(config, run.out)
        matrix = next((name for name in _MATRICES if (source / name).is_file()), _MATRICES[0])
        needed = (*_IVECTOR, matrix)
        _copy(source, folder / bundle.IVECTOR, needed=needed, more=("cmvn_opts",))
    if config.scoring.acronym_map:
        shutil.copyfile(config.scoring.acronym_map, folder / bundle.ACRONYMS)
    content = recognition(config)
    configs.check(content, f"config {config.name}")
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    (folder / bundle.CONFIG).write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path, *, needed: tuple[str, ...], more: tuple[str, ...]) -> None:
    target.mkdir()
    for name in needed + more:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
        elif name in needed:
            raise UserError("missing", where=source / name, fix="Run the workflow to its end")


def _about(manifest: Manifest) -> dict[str, str]:
    """What a user of the network alone must know, as the metadata of its ONNX file."""
    told = ("name", "run", "sample_rate", "lm_weight", "word_penalty", "licence")
    return {name: str(getattr(manifest, name)) for name in told}


def _scores(folder: Path) -> dict[str, Score]:
    """Of every set that is scored."""
    found = {}
    for path in sorted(folder.glob("*/wer.json")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
            found[path.parent.name] = Score(
                words=row["words"], errors=row["errors"], wer=row["wer"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"damaged ({error})", where=path, fix="Score again") from None
    return found


def _trained_with(folder: Path) -> dict[str, str]:
    """Version, commit and packages that the training recorded."""
    try:
        found = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
        code: Mapping[str, Any] = found["code"]
        said = {"hadpsgd": str(code["version"]), "commit": str(code["commit"])}
        return said | {name: str(version) for name, version in found["packages"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        where = folder / "provenance.json"
        raise UserError(f"damaged ({error})", where=where) from None


def _versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in ("hadpsgd", *PACKAGES)}
    return {"python": platform.python_version(), **found}
