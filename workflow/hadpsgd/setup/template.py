"""The config that `hadpsgd init` writes: the keys that matter for a corpus, each with its why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from hadpsgd.config.sizes import REPEATED_FRAMES, Size, neural_dropout, neural_epochs, size_for
from hadpsgd.config.yaml_text import parsed
from hadpsgd.setup.prepared import MOST_UNKNOWN, Corpus, Dictionary, limits, one_of_each
from hadpsgd.setup.start import command

_MANY_HOURS = 10
"""From here on a cluster's several learners are worth their exchanges."""
_FEW_DEV_SECONDS = 600
_ADAPTED_SECONDS = 10
"""Of speech a speaker has on average in every set, or speakers are not adapted to."""
_MOST_FAILED = 0.05
_MOST_WORDS = 2_000_000
"""Of a text that a neural model is trained on without being asked for: three quarters of an hour
of a core."""


def written(
    name: str, corpus: Corpus, dictionary: Dictionary, *, cluster: str, config: Path
) -> str:
    """The config as YAML with comments.

    Args:
        name: of the results folder.
        corpus: data directories.
        dictionary: pronunciations.
        cluster: one of `PROFILES`.
        config: where it is written, for its first line.
    """
    size = size_for(corpus.sets["train"].hours)
    parts = [
        _head(name, cluster, config),
        _corpus(corpus, dictionary, size),
        _alignment(corpus, size),
        _features(corpus, size),
        _egs(size),
        _model(size),
        _training(corpus, size, cluster),
        _graph(dictionary),
        _lm(corpus, size),
        _decoding(corpus, size),
    ]
    return "\n".join("\n".join(part) + "\n" for part in map(list, parts) if part)


def _head(name: str, cluster: str, config: Path) -> Iterator[str]:
    yield "# Made by hadpsgd init: change what you like. Every key and its default: hadpsgd config"
    yield f"# {command(cluster, config)}"
    if cluster != "local":
        folder = f"profiles/{cluster}"
        yield f"# First put your queue or partition into {folder}/config.yaml, GPUs, memory and"
        yield f"# hours into {folder}/site.yaml."
    yield f"name: {_text(name)}  # of the folder below results/"
    yield "seed: 1"


def _corpus(corpus: Corpus, dictionary: Dictionary, size: Size) -> Iterator[str]:
    train, dev = corpus.sets["train"], corpus.sets["dev"]
    yield "corpus:"
    yield "  kind: kaldi"
    yield f"  train: {_text(train.data)}  # {_size(train.seconds)}, speakers: {len(train.speakers)}"
    yield f"  dev: {_text(dev.data)}  # weight and penalty are chosen on it; {_size(dev.seconds)}"
    yield "  tests:"
    for name, speech in corpus.sets.items():
        if name not in ("train", "dev"):
            yield f"    {name}: {_text(speech.data)}  # {_size(speech.seconds)}"
    kind = "words spelled letter by letter" if dictionary.spelled else "pronunciations of words"
    yield f"  dict_dir: {_text(dictionary.path)}  # {kind}"
    if corpus.lm_text:
        yield f"  lm_text: {_text(corpus.lm_text)}  # for the language model"
    else:
        yield "  # lm_text: FILE  # more text for the language model; else train's transcripts"
    if dictionary.case != "as-is":
        yield f"  case: {dictionary.case}  # of the lexicon"
    if unknown := limits(dictionary.unknown, MOST_UNKNOWN):
        yield "  # words that no pronunciation has cannot be recognised: this share may be such"
        yield f"  max_oov: {_shares(unknown, MOST_UNKNOWN)}"
    if len(size.speeds) > 1:
        yield f"  speeds: {list(size.speeds)}  # tempo and pitch, as if other people spoke, too"
    if corpus.allow_pipes:
        yield "  allow_pipes: true  # run the commands of wav.scp"
    if dictionary.spelled:
        yield ""
        yield "lang:"
        yield "  units: graphemes  # letters in place of phones"


def _alignment(corpus: Corpus, size: Size) -> Iterator[str]:
    few = one_of_each({name: corpus.sets[name] for name in ("train", "dev")}, _MOST_FAILED)
    yield "alignment:  # which frame is which sound: the labels of the network"
    if _adapted(corpus, size):
        stage = f"{{leaves: {size.leaves}, gaussians: {size.gaussians}}}"
        yield "  kind: sat  # sounds in context, adapted to the speaker: docs/alignment.md"
        yield from (f"  {name}: {stage}" for name in ("tri", "lda_mllt", "sat"))
    elif size.leaves:
        yield "  kind: tri  # sounds in context; sat adapts to speakers, too: docs/alignment.md"
        yield f"  mono: {{gaussians: {size.mono}}}"
        yield f"  tri: {{leaves: {size.leaves}, gaussians: {size.gaussians}}}"
    else:
        yield "  kind: mono  # too little speech for sounds in context"
        yield f"  gaussians: {size.mono}"
        yield f"  retry_beam: {size.retry_beam:g}  # little speech: other speakers fit badly"
    if few:
        yield f"  max_failed: {_shares(few, _MOST_FAILED)}  # one utterance may fail"


def _features(corpus: Corpus, size: Size) -> Iterator[str]:
    yield "features:"
    yield f"  sample_rate: {corpus.sample_rate}  # Hz, of all recordings"
    if size.layers <= 2:
        yield "  normalise: speaker-mean-variance"
    if _adapted(corpus, size):
        yield "  input: [fmllr, ivector, logmel]  # 40 + 100 + 120 a frame: docs/inputs.md"
        if size.little:
            yield "  ivector_scale: 0.2  # few speakers"


def _egs(size: Size) -> Iterator[str]:
    if size.repeats:
        yield f"egs:  # little speech: subsequences overlap; {size.copies} times the frames"
        yield f"  frames: {REPEATED_FRAMES}"
        yield f"  shift: {REPEATED_FRAMES // 2}"
    if size.repeats and len(size.tempos) > 1:
        yield f"  tempos: {list(size.tempos)}  # features are stretched, too"


def _model(size: Size) -> Iterator[str]:
    yield f"model:  # fit for {_below(size)} of training speech"
    yield f"  layers: {size.layers}"
    yield f"  cells: {size.cells}"
    yield f"  projection: {size.projection}"
    yield f"  dropout: {size.dropout}"
    if size.little:
        yield "  input_dropout: 0.1  # of whole examples: docs/small-data.md"
        yield "  output_dropout: 0.2"


def _training(corpus: Corpus, size: Size, cluster: str) -> Iterator[str]:
    yield "training:"
    yield f"  epochs: {size.epochs}"
    yield f"  batch: {size.batch}  # subsequences, over all learners"
    if size.layers <= 2:
        yield "  threads: 1  # of a learner; more do not make so small a network faster"
    if size.weight_decay:
        yield f"  weight_decay: {size.weight_decay}  # few speakers would be learned by heart"
    if size.whole:
        yield "  spec_augment:"
        yield "    {frequency_masks: 2, frequency_width: 8, time_masks: 1, time_width: 5}"
    if size.little and _adapted(corpus, size):
        yield "  ivector_dropout: 0.5  # against learning few speakers by heart"
    yield "  learning_rate:"
    yield f"    base: {size.rate}"
    yield f"    base_batch: {size.batch}"
    yield f"    anneal_after: {size.anneal_after}  # epochs; then times this factor every epoch"
    yield f"    anneal_factor: {size.anneal_factor}"
    if size.whole:
        yield "  stages:  # of sequences, after frames: docs/sequence-training.md"
        yield "    - criterion: lfmmi"
    decentralised = [
        "strategy: hadpsgd  # two super-learners",
        "  learners: 4",
        "  super_learner: 2",
    ]
    many = cluster != "local" and corpus.sets["train"].hours >= _MANY_HOURS
    yield "  runs:  # every one is trained, decoded and scored: docs/strategies.md"
    if many:
        yield from (
            f"    {'- ' if i == 0 else '  '}{line.strip()}" for i, line in enumerate(decentralised)
        )
        yield "    # - strategy: single"
    else:
        yield "    - strategy: single"
        yield from (
            f"    # {'- ' if i == 0 else '  '}{line.strip()}"
            for i, line in enumerate(decentralised)
        )


def _graph(dictionary: Dictionary) -> Iterator[str]:
    if not dictionary.spelled:
        yield "graph:"
        yield "  pronunciation_probabilities: true  # and of silence, as aligned"


def _lm(corpus: Corpus, size: Size) -> Iterator[str]:
    if size.little:
        text = corpus.lm_sentences or corpus.sets["train"].sentences
        words = sum(len(sentence.split()) for sentence in text)
        epochs, dropout = neural_epochs(words), neural_dropout(words)
        if words > _MOST_WORDS:
            yield f"# lm: {{neural: {{}}}}  # {words:,} words take hours: docs/neural-lm.md"
            return
        yield "lm:  # a neural model rescores what the n-gram finds: docs/neural-lm.md"
        yield "  neural:"
        yield f"    {{epochs: {epochs}, dropout: {dropout}, weights: [0.0, 0.25, 0.5, 0.75, 0.9]}}"


def _decoding(corpus: Corpus, size: Size) -> Iterator[str]:
    held_out = {name: speech for name, speech in corpus.sets.items() if name != "train"}
    yield "decoding:"
    yield "  beam: 13  # smaller: faster, at times more errors"
    yield "  lattice_beam: 8"
    if size.little:
        yield "  gmm: true  # a row for the GMM-HMM: what the network gains"
    if few := one_of_each(held_out, _MOST_FAILED):
        yield f"  max_failed: {_shares(few, _MOST_FAILED)}  # one utterance may fail"
    yield ""
    yield "scoring:  # tried on dev"
    if size.little:
        yield "  lm_weights: [4, 6, 8, 10, 12, 14, 16, 18, 20]"
        yield "  word_penalties: [-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]"
        yield "  one_choice: true  # for all seeds of a row, if there are several"
        if size.whole:
            yield "  minimum_bayes_risk: true  # among the neural model's lists: docs/decoding.md"
    elif corpus.sets["dev"].seconds < _FEW_DEV_SECONDS:
        yield "  lm_weights: [4, 6, 8, 10, 12, 14]  # few: with more to choose from, chance chooses"
        yield "  word_penalties: [0.0]"
    else:
        yield "  lm_weights: [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]"
        yield "  word_penalties: [-0.5, 0.0, 0.5, 1.0]"


def _adapted(corpus: Corpus, size: Size) -> bool:
    """Whether features are adapted to speakers, of whom there is enough speech."""
    return size.adapted and all(
        speech.seconds >= _ADAPTED_SECONDS * len(speech.speakers) for speech in corpus.sets.values()
    )


def _text(value: object) -> str:
    """A value as YAML, whatever its signs; a variable's name is no variable here."""
    text = str(value)
    plain = all(sign.isalnum() or sign in "/._-" for sign in text) and text[:1] not in "-"
    return text if plain and _is_text(text) else json.dumps(text, ensure_ascii=False)


def _is_text(plain: str) -> bool:
    """Whether YAML takes it for a text: no number, date, `no` or `null`."""
    try:
        return bool(parsed(plain) == plain)
    except yaml.YAMLError:  # a date that there is not
        return False


def _shares(shares: dict[str, float], default: float) -> str:
    rows = [f"default: {default:g}", *(f"{name}: {share:g}" for name, share in shares.items())]
    return f"{{{', '.join(rows)}}}"


def _size(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def _below(size: Size) -> str:
    return "hundreds of hours" if size.hours == float("inf") else f"less than {size.hours:g} h"
