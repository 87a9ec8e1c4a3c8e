"""`corpus.kind: ldc`: Switchboard and Fisher train, Switchboard's first utterances are dev.

Hub5 2000 tests.
Texts are written into the corpus folder, audio stays where it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.ldc import Ldc
from hadpsgd.corpus.datadir import Utterance
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.ldc import dictionary as ms98
from hadpsgd.corpus.ldc import eval2000, fisher, names, switchboard
from hadpsgd.corpus.ldc.calls import sides
from hadpsgd.corpus.ldc.folders import one, recordings
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.errors import UserError


def dictionary(config: Config, layout: Layout) -> None:
    """Mississippi State's pronunciations."""
    ms98.write(Path(_corpus(config).switchboard.transcripts), folder=layout.dict_dir)


def data(
    config: Config, name: str, layout: Layout, lexicon: Container[str] | None, processes: int
) -> Summary:
    """Write a set; its recordings stay where they are.

    Raises:
        UserError: a fault in the LDC's files, or too much is left out.
    """
    corpus, folder = _corpus(config), layout.data(name)
    limit = corpus.max_skipped.of(name)
    if name in corpus.tests:
        own = corpus.eval2000
        audio, transcripts = Path(own.audio), Path(own.transcripts)
        test = eval2000.read(audio=audio, transcripts=transcripts, name=name)
        calls = recordings([audio], names.TESTS[name] + r"\d+")
        made = sides(folder, test.utterances, calls, limit=limit, threads=processes, where=audio)
        made.write(folder)
        test.write(folder, glm=one(transcripts, names.GLM))
    else:
        place = Path(corpus.switchboard.audio)
        calls = recordings([place], names.SWITCHBOARD)
        said = _said(corpus, name)
        if name == "train":
            if corpus.fisher:
                calls |= recordings(map(Path, corpus.fisher.audio), names.FISHER)
            said = [*switchboard.without_repeats(said, corpus.max_repeats)]
        sides(folder, said, calls, limit=limit, threads=processes, where=place).write(folder)
    return validate_or_fail(folder, checks(config, name, lexicon, processes))


def text(config: Config, made: Layout, name: str) -> Iterator[str]:
    """The transcripts of a set, repeated ones too."""
    del made
    return (utterance.text for utterance in _said(_corpus(config), name))


def checks(config: Config, name: str, lexicon: Container[str] | None, threads: int = 1) -> Checks:
    """What a set is held against."""
    corpus = _corpus(config)
    return Checks(
        sample_rate=config.features.sample_rate,
        lexicon=lexicon,
        max_oov=corpus.max_oov.of(name),
        max_uncovered=corpus.max_uncovered.of(name),
        threads=threads,
    )


def _corpus(config: Config) -> Ldc:
    assert isinstance(config.corpus, Ldc)
    return config.corpus


def _said(corpus: Ldc, name: str) -> list[Utterance]:
    """Utterances of train or dev."""
    folder = Path(corpus.switchboard.transcripts)
    _, acronyms = ms98.read(folder)
    every = switchboard.utterances(folder, acronyms)
    if len(every) <= corpus.dev_utterances:
        raise UserError(
            f"dev_utterances {corpus.dev_utterances} leaves none of {len(every)} to train on",
            where=folder,
        )
    first = corpus.dev_utterances
    if name == "dev":
        return every[:first]
    more = fisher.utterances(map(Path, corpus.fisher.transcripts)) if corpus.fisher else []
    return [*every[first:], *more]
