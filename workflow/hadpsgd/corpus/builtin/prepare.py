"""The built-in corpus: dictionary, data directories, language model text."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Set
from dataclasses import replace
from math import ceil
from pathlib import Path
from zlib import crc32

import numpy as np

from hadpsgd.config import Config
from hadpsgd.config.corpus import LEXICON_SENTENCES, Builtin
from hadpsgd.corpus.builtin.channel import RATE
from hadpsgd.corpus.builtin.conversation import CHANNELS, Plan, Segment, record
from hadpsgd.corpus.builtin.disfluency import speak_freely, transcript
from hadpsgd.corpus.builtin.espeak import Espeak
from hadpsgd.corpus.builtin.phones import make_lexicon
from hadpsgd.corpus.builtin.rules import grammar
from hadpsgd.corpus.builtin.topics import TOPICS
from hadpsgd.corpus.builtin.voices import ACCENTS, MATCHED, UNMATCHED, Speaker, draw_speakers
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.dictdir import write_dict
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.references import write_glm, write_stm
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.progress import tracked

TESTS = ("swb", "ch")
# speech of a recording, at most
_RECORDING_SECONDS = 300.0
# the most frequent words are never held out
_FREQUENT = 200
_FREQUENT_SENTENCES = 5000
# every third sentence of the language model's text is as spontaneous as `ch`
_SPONTANEOUS = 3
# loaded once for the processes of all recordings: scipy.signal takes seconds
_PRELOADED = ["hadpsgd.corpus.builtin.conversation", "scipy.signal"]


def dictionary(config: Config, layout: Layout) -> None:
    """Pronunciations by espeak-ng; words that are held out are listed beside them."""
    corpus = _corpus(config)
    unseen = _unseen(config)
    spoken = lm_text(sentences=corpus.lm_sentences, seed=config.seed, avoid=unseen)
    words = grammar().vocabulary() - unseen
    accents = list(dict.fromkeys(ACCENTS))
    lexicon = make_lexicon(Espeak(), accents, words, spoken[:LEXICON_SENTENCES])
    write_dict(layout.dict_dir, lexicon)
    if unseen:
        write_text(layout.held_out, "".join(f"{word}\n" for word in sorted(unseen)))


def data(
    config: Config, name: str, layout: Layout, lexicon: Container[str] | None, processes: int
) -> Summary:
    """Speak a set; its content depends on the settings alone.

    Raises:
        UserError: espeak-ng cannot be loaded, or features.sample_rate is not 8000.
    """
    corpus, unseen = _corpus(config), _unseen(config)
    planned = plans(corpus, config.seed, unseen)[name]
    made = _record(name, planned, layout, processes)
    made.write(layout.data(name))
    if name in TESTS:
        write_stm(layout.data(name) / "stm", made)
        write_glm(layout.data(name) / "glm")
    checks = Checks(sample_rate=RATE, lexicon=lexicon, max_oov=1.0 if unseen else 0.0)
    return validate_or_fail(layout.data(name), checks)


def text(config: Config, made: Layout, name: str) -> Iterable[str]:
    """Sentences for the language model; those of `dev` are what is said there."""
    if name == "dev":
        return made.transcripts("dev")
    corpus = _corpus(config)
    return lm_text(sentences=corpus.lm_sentences, seed=config.seed, avoid=_unseen(config))


def _corpus(config: Config) -> Builtin:
    assert isinstance(config.corpus, Builtin)
    if config.features.sample_rate != RATE:
        raise UserError("the built-in corpus has 8000 Hz", where="features.sample_rate")
    return config.corpus


def _unseen(config: Config) -> frozenset[str]:
    return held_out(share=_corpus(config).held_out_words, seed=config.seed)


def held_out(*, share: float, seed: int) -> frozenset[str]:
    """Words that only the dev and test sets say, none of the most frequent ones."""
    if not share:
        return frozenset()
    counts = Counter(
        word for line in lm_text(sentences=_FREQUENT_SENTENCES, seed=0) for word in line.split()
    )
    frequent = {word for word, _ in counts.most_common(_FREQUENT)}
    words = grammar().vocabulary()
    source = random.Random(f"held out {seed}")
    return frozenset(source.sample(sorted(words - frequent), round(share * len(words))))


def lm_text(*, sentences: int, seed: int, avoid: Set[str] = frozenset()) -> list[str]:
    """Text for the language model, drawn apart from what is spoken, without some words."""
    source = random.Random(f"language model {seed}")
    lines: list[str] = []
    while len(lines) < sentences:
        topic = source.choice(list(TOPICS))
        style = MATCHED if len(lines) % _SPONTANEOUS else UNMATCHED
        fluent = grammar().expand(name="turn", topic=topic, draw=source.random)
        tokens = speak_freely(fluent, style.manner, grammar(), topic, source.random)
        if avoid.isdisjoint(tokens):
            lines.append(transcript(tokens))
    return lines


def plans(corpus: Builtin, seed: int, unseen: frozenset[str]) -> dict[str, list[Plan]]:
    """The recordings of every set; the training set does not say `unseen` words."""
    few = max(4, corpus.speakers // 6 // 2 * 2)
    some = max(4, corpus.speakers // 4 // 2 * 2)
    taken: set[str] = set()
    sizes = {
        "train": (corpus.speakers, corpus.train_minutes, MATCHED),
        "dev": (few, corpus.dev_minutes, MATCHED),
        "swb": (some, corpus.test_minutes, MATCHED),
        "ch": (some, corpus.test_minutes, UNMATCHED),
    }
    found = {}
    for name, (count, minutes, style) in sizes.items():
        key = (seed, crc32(name.encode()))
        names = [f"{name}{number:03d}" for number in range(1, count + 1)]
        rng = np.random.default_rng(key)
        speakers = draw_speakers(names, style, rng, taken)
        avoid = unseen if name == "train" else frozenset()
        pairs = _pair(name, key, speakers, 60 * minutes, rng)
        found[name] = [replace(plan, avoid=avoid) for plan in pairs]
    return found


def _pair(
    name: str,
    key: tuple[int, ...],
    speakers: list[Speaker],
    seconds: float,
    rng: np.random.Generator,
) -> Iterator[Plan]:
    """Every speaker talks in every round, each time with another one."""
    pairs = ceil(len(speakers) / 2)
    rounds = ceil(seconds / (pairs * _RECORDING_SECONDS))
    number = 0
    for _ in range(rounds):
        order = [speakers[i] for i in rng.permutation(len(speakers))]
        order += order[: len(order) % 2]
        for first, second in zip(order[::2], order[1::2], strict=True):
            number += 1
            yield Plan(
                f"{name}{number:04d}",
                (*key, number),
                (first, second),
                seconds / (rounds * pairs),
            )


def _record(name: str, planned: list[Plan], layout: Layout, processes: int) -> DataDir:
    """Speak all recordings of a set, each in a fresh process."""
    jobs = [(layout.audio(name), plan) for plan in planned]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with context.Pool(processes, maxtasksperchild=1) as pool:
        work = pool.imap(_record_job, jobs, chunksize=1)
        segments = list(tracked(work, jobs, what=name, unit="recordings"))
    results = dict(zip((plan.name for plan in planned), segments, strict=True))
    return _data_dir(name, planned, results, layout)


def _record_job(job: tuple[Path, Plan]) -> list[Segment]:
    folder, plan = job
    return record(plan, folder)


def _data_dir(
    name: str, each: list[Plan], results: dict[str, list[Segment]], layout: Layout
) -> DataDir:
    folder = layout.audio(name)
    speakers = {speaker.id: speaker for plan in each for speaker in plan.speakers}
    utterances = []
    recordings, channels = {}, {}
    for plan in each:
        for channel in CHANNELS:
            recordings[f"{plan.name}-{channel}"] = layout.relative(folder / f"{plan.name}.wav")
            channels[f"{plan.name}-{channel}"] = (plan.name, channel)
        for s in results[plan.name]:
            recording = f"{plan.name}-{CHANNELS[s.channel]}"
            times = f"{round(100 * s.start):06d}-{round(100 * s.end):06d}"
            utterances.append(
                Utterance(
                    id=f"{s.speaker}-{recording}-{times}",
                    speaker=s.speaker,
                    recording=recording,
                    text=s.text,
                    start=s.start,
                    end=s.end,
                    channel=s.channel,
                )
            )
    return DataDir(
        layout.data(name),
        {u.id: u for u in sorted(utterances, key=lambda u: u.id)},
        recordings,
        {speaker.id: speaker.gender for speaker in speakers.values()},
        channels,
    )
