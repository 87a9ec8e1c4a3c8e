"""A corpus as `hadpsgd init` leaves it: data directories, a dictionary, and what a config says of
them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.corpus import overlap
from hadpsgd.corpus.case import Case, Kind, better_case
from hadpsgd.corpus.dictdir import Lexicon, read_lexicon, write_dict
from hadpsgd.corpus.lang.dictionary import lexicon_file
from hadpsgd.errors import UserError
from hadpsgd.progress import counted
from hadpsgd.setup.words import ENGLISH, LETTERS, english, spelled

MOST_UNKNOWN = 0.05
"""Share of running words without pronunciation that `corpus.max_oov` allows by default."""
_NAMED = 5
_WORDS_NAMED = 10
FEW_DEV_WORDS = 100
"""Fewer in dev are told: what is chosen on them may be chance."""
FEW_SPEAKERS = 3
"""Fewer in train are told."""
LONG_SECONDS = 60.0
"""Whose words are hard to find: models are trained from where words are taken to be."""


@dataclass(frozen=True, kw_only=True)
class Speech:
    """One set: its data directory and what is said there."""

    data: Path
    """As the config names it."""
    sentences: Sequence[str]
    """One an utterance."""
    speakers: Collection[str]
    seconds: float
    long: Sequence[str] = ()
    """Utterances of more than `LONG_SECONDS`."""

    @property
    def words(self) -> Counter[str]:
        """How often each word is said."""
        return Counter(word for sentence in self.sentences for word in sentence.split())

    @property
    def hours(self) -> float:
        """Of speech."""
        return self.seconds / 3600


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What there is before the dictionary."""

    sets: dict[str, Speech]
    """train, dev and test sets, in this order."""
    by_speaker: bool
    """Whether no speaker is in two sets, where the split was made here."""
    sample_rate: int
    lm_text: Path | None
    """As the config names it."""
    lm_sentences: Sequence[str]
    """Of that text; empty without one."""
    allow_pipes: bool = False
    changes: Sequence[str] = ()
    """Lines that say what texts lost here."""


@dataclass(frozen=True, kw_only=True)
class Dictionary:
    """Where pronunciations come from."""

    path: Path
    """As the config names it."""
    case: Kind
    spelled: bool
    words: int
    unknown: dict[str, float]
    """Set to the share of its running words that have no pronunciation."""
    unknown_words: dict[str, Counter[str]] = field(default_factory=dict)
    """Set to these words, and how often each is said there."""


def make_dictionary(corpus: Corpus, *, wanted: str, folder: Path, named: Path) -> Dictionary:
    """Make the dictionary in `folder`, or take the one that there is.

    Those made here have the words of train's transcripts and of the text for the language model:
    other words cannot be recognised, so those of dev and test alone are left out.

    Args:
        corpus: speech and text.
        wanted: `letters`, `english`, or a lexicon.txt or dict folder.
        folder: where a dictionary is written.
        named: the name of that folder in the config.

    Raises:
        UserError: no such lexicon, or more than `MOST_UNKNOWN` of train's running words have no
            pronunciation.
    """
    said = [*corpus.sets["train"].sentences, *corpus.lm_sentences]
    if wanted in (LETTERS, ENGLISH):
        words = {word for sentence in said for word in sentence.split()}
        made = spelled(words) if wanted == LETTERS else english(words, said)
        write_dict(folder, made)
        path, case = named, Case(kind="as-is", lexicon=made.keys())
        count = len(made)
    else:
        path, lexicon = Path(wanted), _given(Path(wanted))
        case, count = Case(kind=_case(corpus, lexicon), lexicon=lexicon), len(lexicon)
    unknown = {name: _unknown(speech, case) for name, speech in corpus.sets.items()}
    train = corpus.sets["train"].words.total()
    if unknown["train"].total() > MOST_UNKNOWN * train:
        raise _too_many(unknown["train"], train, wanted)
    shares = {
        name: unknown[name].total() / max(speech.words.total(), 1)
        for name, speech in corpus.sets.items()
    }
    return Dictionary(
        path=path,
        case=case.kind,
        spelled=wanted == LETTERS,
        words=count,
        unknown=shares,
        unknown_words=unknown,
    )


def _too_many(unknown: Counter[str], total: int, wanted: str) -> UserError:
    """Words of train that cannot be pronounced; those that cannot be spelled have no letters."""
    first = ", ".join(word for word, _ in unknown.most_common(_NAMED))
    which = f"{unknown.total()} of train's {total} words"
    if wanted == LETTERS:
        return UserError(
            f"{which} have no letters (most often: {first})",
            where=f"--lexicon {LETTERS}",
            fix="Write them out as they are spoken, or remove them from text",
        )
    return UserError(
        f"lacks {which} (most often: {first})",
        where=wanted,
        fix=f"Add them, or take --lexicon {LETTERS}",
    )


def _given(path: Path) -> Lexicon:
    if not path.exists():
        raise UserError(
            "no such lexicon", where=path, fix=f"Give a file, a folder, {LETTERS} or {ENGLISH}"
        )
    return read_lexicon(path if path.is_file() else lexicon_file(path))


def _case(corpus: Corpus, lexicon: Lexicon) -> Kind:
    """The case to which words of transcripts are folded where the lexicon lacks them."""
    said = sum((speech.words for speech in corpus.sets.values()), Counter[str]())
    missing = {word: count for word, count in said.items() if word not in lexicon}
    return better_case(missing, lexicon)[0] or "as-is"


def _unknown(speech: Speech, case: Case) -> Counter[str]:
    return Counter({w: n for w, n in speech.words.items() if case.word(w) not in case.lexicon})


def limits(shares: dict[str, float], default: float) -> dict[str, float]:
    """Shares above a default, rounded up to a hundredth."""
    return {
        name: min(1.0, math.ceil(100 * share) / 100)
        for name, share in shares.items()
        if share > default
    }


def one_of_each(sets: dict[str, Speech], default: float) -> dict[str, float]:
    """For sets so small that one utterance is more than the default share: that share."""
    return limits({name: 1 / len(speech.sentences) for name, speech in sets.items()}, default)


def told(corpus: Corpus, dictionary: Dictionary) -> Iterator[str]:
    """Lines that say what was found."""
    for name, speech in corpus.sets.items():
        yield (
            f"{name}: utterances {len(speech.sentences)}, speakers {len(speech.speakers)}, "
            f"minutes {speech.seconds / 60:.1f}, words {speech.words.total()}"
        )
        if speech.long:
            yield (
                f"{name}: {len(speech.long)} longer than {LONG_SECONDS:.0f} s, which are hard to "
                f"align: {', '.join(speech.long[:_NAMED])}; cut them into sentences"
            )
    speakers = len(corpus.sets["train"].speakers)
    if speakers < FEW_SPEAKERS and corpus.by_speaker:
        few = "one speaker alone" if speakers == 1 else f"{speakers} speakers alone"
        yield f"train: {few}; who speaks otherwise will hardly be recognised"
    if corpus.by_speaker:
        yield from overlap.of_speakers({n: each.speakers for n, each in corpus.sets.items()})
    else:
        yield "too few speakers to split by: dev and test have speakers of train"
    if (said := corpus.sets["dev"].words.total()) < FEW_DEV_WORDS:
        yield (
            f"dev: only {counted(said, 'word')} to choose weight and penalty by: give it more, "
            f"{FEW_DEV_WORDS} at least"
        )
    for name, words in dictionary.unknown_words.items():
        if words:
            yield _unknown_told(name, words, corpus.sets[name].words.total())
    digits = sorted({w for w in _all_words(corpus) if any(c.isdigit() for c in w)})
    if dictionary.spelled and digits:
        yield f"words with digits are spelled digit by digit ({', '.join(digits[:_NAMED])})"
    yield from corpus.changes


def _unknown_told(name: str, words: Counter[str], total: int) -> str:
    count = words.total()
    often = sorted(words, key=lambda word: (-words[word], word))
    more = ", ..." if len(often) > _WORDS_NAMED else ""
    return (
        f"{name}: {count} of {total} words ({100 * count / total:.1f} %) have no pronunciation and "
        f"cannot be recognised: {', '.join(often[:_WORDS_NAMED])}{more}; more text (--lm-text) or "
        "a lexicon brings more words"
    )


def _all_words(corpus: Corpus) -> Iterable[str]:
    return (word for speech in corpus.sets.values() for word in speech.words)
