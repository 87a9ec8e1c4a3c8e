"""Hours of speech of a config, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from hadpsgd.config import Config
from hadpsgd.config.corpus import An4, Builtin
from hadpsgd.config.ldc import Ldc
from hadpsgd.errors import UserError
from hadpsgd.setup.need import hours_of_sets

SWITCHBOARD, FISHER, HUB5 = 300.0, 1700.0, 3.7
"""As the papers count them; Hub5 2000: Switchboard's 2.1 hours and CallHome's 1.6."""
AN4_TRAIN, AN4_TEST = 0.64, 0.17
DEV = 5.0
"""Hours of 4,000 utterances of Switchboard."""
TEST_SHARE = 0.1
"""Of speech of which nothing but the sum is known, development and test set together."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Hours of training speech, at one speed; of all that is decoded; where they come from."""

    train: float
    test: float
    source: str


def amounts(config: Config, given: float | None = None) -> Amounts | None:
    """`given`: hours of training speech. None where nobody knows.

    Raises:
        UserError: a number that cannot be.
    """
    if given is not None and not given > 0:
        raise UserError(f"hours of speech are a number above 0, not {given}")
    known = _known(config)
    if given is None:
        return known
    test = known.test if known else TEST_SHARE * given
    return Amounts(train=given, test=test, source="given")


def _known(config: Config) -> Amounts | None:
    match config.corpus:
        case An4():
            return Amounts(train=AN4_TRAIN, test=AN4_TEST, source="AN4 as it is published")
        case Ldc() as corpus:
            train = SWITCHBOARD + FISHER * (corpus.fisher is not None)
            return Amounts(train=train, test=HUB5 + DEV, source="the LDC's, as the papers count")
    if sets := hours_of_sets(config):
        train = sets.pop("train")
        source = "the config" if isinstance(config.corpus, Builtin) else "the data's durations"
        return Amounts(train=train, test=sum(sets.values()), source=source)
    if config.speech_hours:
        train = float(config.speech_hours)
        return Amounts(train=train, test=TEST_SHARE * train, source="the config")
    return None
