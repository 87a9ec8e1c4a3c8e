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
"""Of train's hours, development and test set together, where nothing else is known."""
_ASSUMED = "a tenth as much to decode is assumed"


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Hours of training speech, at one speed; of all that is decoded; where they come from."""

    train: float
    test: float
    source: str


def amounts(config: Config, given: float | None = None, *, headers: bool = False) -> Amounts | None:
    """Hours of a config; None where nobody knows.

    Args:
        config: the config.
        given: hours of training speech, if somebody said.
        headers: whether to look into audio files where tables do not tell, and to raise what is
            wrong with data directories.

    Raises:
        UserError: a number that cannot be; a fault of a data directory.
    """
    if given is not None and not given > 0:
        raise UserError(f"hours of speech are a number above 0, not {given}")
    known = _known(config, headers=headers and given is None)
    if given is None:
        return known
    if known:
        return Amounts(train=given, test=known.test, source="given")
    return Amounts(train=given, test=TEST_SHARE * given, source=f"given; {_ASSUMED}")


def _known(config: Config, *, headers: bool) -> Amounts | None:
    match config.corpus:
        case An4():
            return Amounts(train=AN4_TRAIN, test=AN4_TEST, source="AN4 as it is published")
        case Ldc() as corpus:
            train = SWITCHBOARD + FISHER * (corpus.fisher is not None)
            return Amounts(train=train, test=HUB5 + DEV, source="the LDC's, as the papers count")
    try:
        sets = hours_of_sets(config, headers=headers)
    except UserError:
        if not config.speech_hours:  # else the data may be elsewhere
            raise
        sets = None
    if sets:
        train = sets.pop("train")
        source = "the config" if isinstance(config.corpus, Builtin) else "the data's durations"
        return Amounts(train=train, test=sum(sets.values()), source=source)
    if config.speech_hours:
        train = float(config.speech_hours)
        return Amounts(train=train, test=TEST_SHARE * train, source=f"the config; {_ASSUMED}")
    return None
