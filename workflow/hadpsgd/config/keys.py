"""Keys of stages: what in the config decides a stage's output, apart from its inputs.

A stage is made again when its key changes, or when a stage before it is made again. So a key has
what the stage itself reads. Sections are taken whole, without what is named here as another
stage's: a field that is new in the schema belongs to every stage of its section until somebody
says otherwise.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from hadpsgd.config.alignment import KaldiAlignment, Ladder
from hadpsgd.config.base import deciding
from hadpsgd.config.corpus import LEXICON_SENTENCES, An4, Builtin, Kaldi
from hadpsgd.config.ldc import Ldc
from hadpsgd.config.lhotse import Lhotse
from hadpsgd.config.load import fingerprint
from hadpsgd.config.schema import Config

Settings = dict[str, list[object]]
"""Stage to what decides it."""

_OF_TRAINING = ("shift", "tempos", "misfit")
_COPIES = ("speeds", "noise")
_SIZES = ("train_minutes", "dev_minutes", "test_minutes")
_LADDER = ("kind", "mono", "tri", "lda_mllt", "sat", "min_speaker_frames", "acoustic_scale")
_EXTRACTION = ("per", "period", "max_count")
_POSTERIORS = ("top", "min_post", "posterior_scale")
_TRAINING = ("dim", "iterations")
_FRONT = ("ubm", "context", "transform", "input_dim")
_GRID = ("lm_weights", "word_penalties")
_LISTS = ("nbest", "weights")


def stage_keys(config: Config) -> dict[str, str]:
    """Hash of what decides each stage; a corpus has one a set (`corpus.train`)."""
    parts = (_corpus, _features, _alignment, _examples, _search)
    settings = {stage: value for part in parts for stage, value in part(config).items()}
    return {stage: fingerprint(value) for stage, value in settings.items()}


def before_training(config: Config) -> list[str]:
    """Stages whose settings decide what a run is trained on, held-out data aside."""
    keys, inputs = stage_keys(config), config.features.input
    imported = config.features.imports.fmllr
    own = config.alignment.kind != "kaldi"
    mfcc = own or "ivector" in inputs or (imported is not None and imported.trans is not None)
    wanted = {
        "corpus.train": True,
        "dictionary": own or config.corpus.folds_words,
        "perturb": config.corpus.versions > 1,
        "lang": True,
        "features.logmel": "logmel" in inputs,
        "features.mfcc": mfcc,
        **dict.fromkeys(config.alignment.stages, True),
        "import_alignment": True,
        "align": "fmllr" in inputs and config.corpus.versions > 1,
        **dict.fromkeys(
            ("ubm", "ivector_train", "ivector_extract", "import_ivector"), "ivector" in inputs
        ),
        "import_fmllr": "fmllr" in inputs,
        "egs.train": True,
        "realign": config.realign.passes > 0,
    }
    return [stage for stage, needed in wanted.items() if needed and stage in keys]


def _without(section: BaseModel, *names: str) -> dict[str, Any]:
    """A section's values without those that other stages read."""
    return {name: value for name, value in deciding(section).items() if name not in names}


def _only(section: BaseModel, *names: str) -> dict[str, Any]:
    values = deciding(section)
    return {name: values[name] for name in names}


def _corpus(config: Config) -> Settings:
    """The corpus part by part, and the lang folder."""
    rate, seed, corpus = config.features.sample_rate, config.seed, config.corpus
    found: Settings = {
        "perturb": [corpus.speeds, rate, *corpus.mixed, *(seed for _ in corpus.mixed)]
    }
    match corpus:
        case Builtin():
            words = _without(corpus, *_SIZES, "speakers", *_COPIES)
            few = min(corpus.lm_sentences, LEXICON_SENTENCES)
            found["dictionary"] = [seed, words | {"lm_sentences": few}]
            found |= {"lm_text": [seed, words], "dev_text": []}
            for name, own in (("train", 0), ("dev", 1), *((test, 2) for test in config.tests)):
                others = {*_SIZES} - {_SIZES[own]}
                spared = {*others, *_COPIES, "lm_sentences"}
                spared |= set() if name == "train" else {"held_out_words"}
                found[f"corpus.{name}"] = [seed, rate, _without(corpus, *spared)]
        case An4():
            found["dictionary"] = [_without(corpus, "dev_speakers", *_COPIES)]
            found["lm_text"] = found["dev_text"] = [_without(corpus, *_COPIES)]
            for name in ("train", "dev"):
                found[f"corpus.{name}"] = [rate, _without(corpus, *_COPIES)]
            found["corpus.test"] = [rate, _without(corpus, "dev_speakers", *_COPIES)]
        case Kaldi() | Lhotse():
            own_keys = ("train", "dev", "tests", "dict_dir", "lm_text", *_COPIES)
            shared = _without(corpus, *own_keys)
            found["dictionary"] = [corpus.dict_dir]
            found["lm_text"] = [shared, corpus.lm_text or corpus.train]
            found["dev_text"] = [shared, corpus.dev]
            for name, part in corpus.sets.items():
                found[f"corpus.{name}"] = [rate, part, shared]
        case Ldc():
            found |= _ldc(corpus, rate)
    lang: list[object] = [config.lang]
    if isinstance(config.alignment, KaldiAlignment):
        lang = [config.alignment.lang_dir, config.lang.units]
    return found | {"lang": lang}


def _ldc(corpus: Ldc, rate: int) -> Settings:
    own, dev, more = corpus.switchboard, corpus.dev_utterances, corpus.fisher
    return {
        "dictionary": [own.transcripts],
        "lm_text": [own.transcripts, dev, more and more.transcripts],
        "dev_text": [own.transcripts, dev],
        "corpus.train": [rate, own, dev, more, corpus.max_repeats],
        "corpus.dev": [rate, own, dev],
        **{f"corpus.{name}": [rate, corpus.eval2000] for name in corpus.tests},
    }


def _features(config: Config) -> Settings:
    """Streams of features; `fused` is what reads them together."""
    features, imports = config.features, config.features.imports
    dither = [features.dither, config.seed] if features.dither else []
    ivector = features.ivector
    logmel = _without(features.logmel, "delta_order", "delta_window")
    own_logmel = [logmel, features.sample_rate, dither]
    own_mfcc = [features.mfcc, features.sample_rate, dither]
    found: Settings = {
        "features.logmel": [imports.logmel] if imports.logmel else own_logmel,
        "features.mfcc": [imports.mfcc] if imports.mfcc else own_mfcc,
    }
    if imports.fmllr:
        found["import_fmllr"] = [imports.fmllr]
    if imports.ivector:
        return found | {"import_ivector": [imports.ivector]}
    return found | {
        "ubm": [config.seed, _without(ivector, *_EXTRACTION, *_POSTERIORS, *_TRAINING)],
        "ivector_train": [config.seed, _without(ivector, *_FRONT, *_EXTRACTION)],
        "ivector_extract": [_without(ivector, *_FRONT, *_TRAINING)],
    }


def _fused(config: Config) -> list[object]:
    """How streams become the network's input."""
    features = config.features
    logmel = [features.normalise, _only(features.logmel, "delta_order", "delta_window")]
    return [
        features.input,
        logmel if "logmel" in features.input else [],
        features.ivector_scale if "ivector" in features.input else [],
    ]


def _alignment(config: Config) -> Settings:
    """Our own ladder, each stage apart, and what it adapts test speakers with; or the import."""
    alignment, seed = config.alignment, config.seed
    if isinstance(alignment, KaldiAlignment):
        # copies are aligned with the defaults of our own stages
        own = _without(alignment, "lang_dir", "align_dev")
        return {"import_alignment": [own], "align": [alignment.align_dev]}
    search = _without(alignment, *_LADDER)
    if not isinstance(alignment, Ladder):
        return {"mono": [seed, search], "align": [search], "decode_gmm": [config.decoding]}
    speakers = alignment.min_speaker_frames
    found: Settings = {
        stage: [seed, search, getattr(alignment, stage)] for stage in alignment.stages
    }
    found["align"] = [search]
    scaled = _without(config.decoding, "acoustic_scale")
    found["decode_gmm"] = [alignment.acoustic_scale, scaled]
    if "sat" in found:
        found["sat"].append(speakers)
        found["align"].append(speakers)
        found["adapt"] = [alignment.acoustic_scale, speakers]
    return found


def _examples(config: Config) -> Settings:
    """Training examples, and labels by a trained network."""
    cut, corpus = _without(config.egs, *_OF_TRAINING), config.corpus
    fits = ["fits"] * bool(config.egs.misfit)  # not likelihoods, as it was
    stages: Settings = {}
    for stage in config.training.stages:
        egs = stage.examples(config.egs)
        stages[f"egs.{stage.criterion}.train"] = [
            *(*fits, egs, corpus.speeds, *corpus.mixed, _fused(config))
        ]
        stages[f"egs.{stage.criterion}.dev"] = [_without(egs, *_OF_TRAINING), _fused(config)]
    return stages | {
        "egs.train": [*fits, config.egs, corpus.speeds, *corpus.mixed, _fused(config)],
        "egs.dev": [cut, _fused(config)],
        "realign": [_without(config.realign, "passes", "run"), _fused(config)],
    }


def _search(config: Config) -> Settings:
    """From the language model to the scores."""
    pieces = [_only(config.lm, "pieces", "spelling_order"), config.lang]
    found: Settings = {
        **({"pieces": pieces} if config.lm.pieces else {}),
        "lm": [_without(config.lm, "pieces", "spelling_order", "neural")],
        **({"pronunciations": []} if config.graph.pronunciation_probabilities else {}),
        "graph": [config.graph],
        "decode": [config.decoding, _fused(config)],
        "tune": [_without(config.scoring, "nist_tools")],
        "score": [_without(config.scoring, *_GRID)],
    }
    return found | _neural(config)


def _neural(config: Config) -> Settings:
    """The neural language model, its lists, and the choice that has its weight."""
    neural = config.lm.neural
    if neural is None:
        return {}
    return {
        "neural-lm": [config.seed, _without(neural, *_LISTS)],
        "neural-lists": [neural.nbest, _only(config.scoring, *_GRID)],
        "tune": [_without(config.scoring, "nist_tools"), neural.weights],
    }
