"""`corpus.kind: lhotse`: sets of lhotse's manifests, brought into the corpus folder.

Audio stays where it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.lhotse import Lhotse
from hadpsgd.corpus.case import Case
from hadpsgd.corpus.dictdir import read_lexicon
from hadpsgd.corpus.kaldi import copy_dictionary, sentences_of
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.manifests import all_or_no_genders, read
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.skipped import check_skipped


def dictionary(config: Config, layout: Layout) -> None:
    """Check and copy the user's dictionary."""
    copy_dictionary(Path(_corpus(config).dict_dir), layout)


def data(
    config: Config, name: str, layout: Layout, lexicon: Container[str] | None, processes: int
) -> Summary:
    """Write a set.

    Raises:
        UserError: a fault in its manifests or its audio, or too many supervisions without text.
    """
    corpus, folder = _corpus(config), layout.data(name)
    found = read(corpus.sets[name], folder)
    check_skipped(
        found.silent,
        total=found.total,
        limit=corpus.max_skipped.of(name),
        what="supervisions have no text",
        where=corpus.sets[name].files[-1],
        fix="Remove them, or raise corpus.max_skipped",
    )
    all_or_no_genders(found.data, corpus.sets[name].files[-1])
    case = Case(kind=corpus.case, lexicon=lexicon or ())
    for utterance in [*found.data]:
        folded = replace(utterance, text=case.text(utterance.text))
        found.data.utterances[utterance.id] = folded
    found.data.write(folder)
    held = checks(config, name, lexicon, processes)
    return validate_or_fail(folder, replace(held, places=found.places, said=found.said))


def text(config: Config, made: Layout, name: str) -> Iterator[str]:
    """The user's sentences for the language model, or transcripts of a set."""
    corpus = _corpus(config)
    case = Case(kind=corpus.case, lexicon=read_lexicon(made.lexicon) if corpus.folds_words else ())
    if name == "train" and corpus.lm_text is not None:
        return map(case.text, sentences_of(Path(corpus.lm_text)))
    return (case.text(u.text) for u in read(corpus.sets[name], made.data(name)).data)


def checks(config: Config, name: str, lexicon: Container[str] | None, threads: int = 1) -> Checks:
    """What a set is held against."""
    corpus = _corpus(config)
    return Checks(
        sample_rate=config.features.sample_rate,
        lexicon=lexicon,
        case=corpus.case,
        max_oov=corpus.max_oov.of(name),
        threads=threads,
    )


def _corpus(config: Config) -> Lhotse:
    assert isinstance(config.corpus, Lhotse)
    return config.corpus
