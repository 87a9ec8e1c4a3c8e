"""One recording: two speakers in turn, one on each channel, each through a line of their own."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hadpsgd.corpus.audio import write_wav
from hadpsgd.corpus.builtin.channel import RATE, transmit
from hadpsgd.corpus.builtin.disfluency import speak_freely, spelling, transcript
from hadpsgd.corpus.builtin.espeak import Espeak, Voice
from hadpsgd.corpus.builtin.rules import grammar
from hadpsgd.corpus.builtin.topics import TOPICS
from hadpsgd.corpus.builtin.voices import Speaker
from hadpsgd.corpus.resample import resample

CHANNELS = "AB"
# seconds
_SHORTEST, _LONGEST = 0.7, 7.6
_MARGIN = 0.2  # of a segment, before and after its speech
_GAP = (0.0, 0.8)  # between two turns; margins are kept apart on a channel
_STEP = RATE // 100  # samples; segments begin and end at whole steps
# samples of espeak-ng quieter than this are silence
_SILENCE = 64


@dataclass(frozen=True)
class Plan:
    """What is recorded."""

    name: str
    """File name without suffix."""
    seed: tuple[int, ...]
    speakers: tuple[Speaker, Speaker]
    seconds: float
    """Speech in segments, both channels together; a little more is recorded."""
    avoid: frozenset[str] = frozenset()
    """Words that are not said."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One utterance of a recording."""

    speaker: str
    channel: int
    start: float
    end: float
    """Seconds, in steps of 10 ms."""
    text: str


@dataclass
class _Side:
    """A channel while it is spoken."""

    speaker: Speaker
    pieces: list[tuple[int, np.ndarray]]
    free_at: int = 0
    """First sample at which the next utterance may start."""


def record(plan: Plan, folder: Path) -> list[Segment]:
    """Speak a conversation and write `<name>.wav`, two channels, 8 kHz, 16 bits.

    Needs a process in which espeak-ng has not spoken before (see `espeak`).
    """
    talk = _Talk(plan)
    segments = talk.speak()
    write_wav(folder / f"{plan.name}.wav", talk.mix(), RATE)
    return segments


class _Talk:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(repr(plan.seed))
        self.espeak = Espeak()
        self.sides = [_Side(speaker, []) for speaker in plan.speakers]
        self.topic = self.random.choice(list(TOPICS))

    def speak(self) -> list[Segment]:
        """Turn by turn until there is enough speech and both have spoken."""
        segments: list[Segment] = []
        spoken, now, turn = 0.0, int(0.5 * RATE), 0
        while spoken < self.plan.seconds or turn < len(self.sides):
            channel = turn % len(self.sides)
            for _ in range(self.random.choice((1, 1, 1, 2))):
                segment, now = self._utter(channel, now)
                segments.append(segment)
                spoken += segment.end - segment.start
            turn += 1
        return segments

    def mix(self) -> np.ndarray:
        """Both channels through their lines: int16 [samples, 2]."""
        length = max(start + len(s) for side in self.sides for start, s in side.pieces) + RATE
        return np.stack(
            [self._transmit(channel, length) for channel in range(len(self.sides))], axis=1
        )

    def _utter(self, channel: int, now: int) -> tuple[Segment, int]:
        side = self.sides[channel]
        text, samples = self._say(side.speaker)
        margin = int(_MARGIN * RATE)
        start = max(now + int(self.random.uniform(*_GAP) * RATE), side.free_at + margin)
        end = start + len(samples)
        side.pieces.append((start, samples))
        side.free_at = end + margin + _STEP  # borders are rounded outwards
        segment = Segment(
            speaker=side.speaker.id,
            channel=channel,
            start=(start - margin) // _STEP / 100,
            end=-((end + margin) // -_STEP) / 100,
            text=text,
        )
        return segment, end

    def _say(self, speaker: Speaker) -> tuple[str, np.ndarray]:
        """Draw sentences until one has a length that fits."""
        while True:
            draw = self.random.random
            fluent = grammar().expand(name="turn", topic=self.topic, draw=draw)
            tokens = speak_freely(fluent, speaker.manner, grammar(), self.topic, draw)
            if not self.plan.avoid.isdisjoint(tokens):
                continue
            self.espeak.use(self._mood(speaker))
            samples = _trim(self.espeak.speak(spelling(tokens)))
            if _SHORTEST <= len(samples) / self.espeak.sample_rate <= _LONGEST:
                return transcript(tokens), resample(
                    samples, rate=self.espeak.sample_rate, new_rate=RATE
                )

    def _mood(self, speaker: Speaker) -> Voice:
        """The speaker's voice, a little different every time."""
        voice = speaker.voice
        return replace(
            voice,
            rate=int(voice.rate * self.random.uniform(0.92, 1.08)),
            pitch=voice.pitch + self.random.randint(-4, 4),
        )

    def _transmit(self, channel: int, length: int) -> np.ndarray:
        side = self.sides[channel]
        speech, active = np.zeros(length), np.zeros(length, dtype=bool)
        for start, samples in side.pieces:
            speech[start : start + len(samples)] = samples
            active[start : start + len(samples)] = True
        rng = np.random.default_rng([*self.plan.seed, channel])
        return transmit(speech, active, side.speaker.line, rng)


def _trim(samples: np.ndarray) -> np.ndarray:
    """Cut the silence before and after speech."""
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > _SILENCE)
    return samples[loud[0] : loud[-1] + 1] if len(loud) else samples[:0]
