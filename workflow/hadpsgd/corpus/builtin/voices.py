"""Speakers: an espeak-ng voice with a rate, pitch and manner, on a telephone of their own.

Training, dev and `swb` speakers are drawn from the same accents and variants, each with a
combination of its own; `ch` speakers have accents and variants that no other set has.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from hadpsgd.corpus.builtin.channel import Line
from hadpsgd.corpus.builtin.disfluency import Manner
from hadpsgd.corpus.builtin.espeak import Voice

# accents repeat as often as they are to be drawn
ACCENTS = ("en-us", "en-us", "en-us", "en-us-nyc", "en", "en-gb-x-rp")
UNSEEN_ACCENTS = ("en-gb-scotland", "en-gb-x-gbclan", "en-029")
WOMEN = ["f1", "f2", "f3", "f4", "f5", "Alicia", "linda", "steph", "steph3", "aunty", "anika"]
MEN = [
    "m1",
    "m2",
    "m3",
    "m4",
    "m5",
    "m6",
    "m7",
    "m8",
    "Alex",
    "Andy",
    "Denis",
    "Diogo",
    "Gene",
    "Henrique",
    "Jacky",
    "Lee",
    "Mario",
    "Michael",
    "Storm",
    "antonio",
    "ed",
    "gustave",
    "ian",
    "john",
    "marcelo",
    "max",
    "michel",
    "miguel",
    "norbert",
    "pablo",
    "pedro",
    "rob",
    "robert",
]
UNSEEN_WOMEN = ["Andrea", "Annie", "belinda", "grandma", "steph2", "shelby"]
UNSEEN_MEN = [
    "grandpa",
    "travis",
    "victor",
    "quincy",
    "paul",
    "boris",
    "Marco",
    "sandro",
    "Nguyen",
    "Mike",
    "Hugo",
    "Gene2",
]


@dataclass(frozen=True)
class Style:
    """What the speakers of a set have in common."""

    accents: tuple[str, ...]
    women: tuple[str, ...]
    men: tuple[str, ...]
    rate: tuple[int, int]
    """Words a minute, from and to."""
    manner: Manner
    snr_db: tuple[float, float]
    """Speech to noise ratio, from and to."""
    room_seconds: tuple[float, float]
    """Reverberation time, from and to; 0 is none."""


MATCHED = Style(
    accents=ACCENTS,
    women=tuple(WOMEN),
    men=tuple(MEN),
    rate=(150, 215),
    manner=Manner(filler=0.03, repeat=0.008, restart=0.008),
    snr_db=(14.0, 28.0),
    room_seconds=(0.0, 0.0),
)
UNMATCHED = Style(
    accents=UNSEEN_ACCENTS,
    women=tuple(UNSEEN_WOMEN),
    men=tuple(UNSEEN_MEN),
    rate=(160, 220),
    manner=Manner(filler=0.07, repeat=0.03, restart=0.03),
    snr_db=(13.0, 24.0),
    room_seconds=(0.02, 0.08),
)


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """One speaker."""

    id: str
    gender: str
    """`f` or `m`."""
    voice: Voice
    manner: Manner
    line: Line


def draw_speakers(
    names: list[str], style: Style, rng: np.random.Generator, taken: set[str]
) -> list[Speaker]:
    """Speakers with these ids, women and men in turn.

    Voices in `taken` are avoided while there are others; the new ones are added to it.
    """
    speakers = []
    for index, name in enumerate(names):
        gender = "fm"[index % 2]
        variants = style.women if gender == "f" else style.men
        voice = _draw_voice(style.accents, variants, rng, taken)
        taken.add(voice)
        speakers.append(
            Speaker(
                id=name,
                gender=gender,
                voice=Voice(
                    name=voice,
                    rate=int(rng.integers(*style.rate)),
                    pitch=int(rng.integers(35, 66)),
                    range=int(rng.integers(30, 80)),
                ),
                manner=style.manner,
                line=Line(
                    gain_db=float(rng.normal(0.0, 3.0)),
                    tilt_db=float(rng.uniform(-4.0, 3.0)),
                    ripple_db=float(rng.uniform(0.0, 4.0)),
                    snr_db=float(rng.uniform(*style.snr_db)),
                    noise_tilt_db=float(rng.uniform(-6.0, 0.0)),
                    room_seconds=float(rng.uniform(*style.room_seconds)),
                ),
            )
        )
    return speakers


def _draw_voice(
    accents: tuple[str, ...],
    variants: tuple[str, ...],
    rng: np.random.Generator,
    taken: set[str],
) -> str:
    voices = [f"{accent}+{variant}" for accent, variant in product(accents, variants)]
    free = [voice for voice in voices if voice not in taken] or voices
    return free[int(rng.integers(len(free)))]
