"""Where words of the built-in corpus begin, and where alignments say that they do.

The voice tells when it begins each word. The training set's recordings are spoken once more, the
same samples, and the beginnings are compared with those of alignments: of the GMM-HMM, of a
network that was trained on them (`hadpsgd realign`).

    python benchmarks/alignment_truth.py --config results/demo/config.yaml \\
        --data results/demo/corpus/data/train --lang results/demo/lang \\
        --ali results/demo/ali/train realigned/train
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.alignment.archives import read_alignments
from hadpsgd.config import load
from hadpsgd.config.corpus import Builtin
from hadpsgd.corpus.builtin import conversation, prepare
from hadpsgd.corpus.builtin.channel import RATE
from hadpsgd.corpus.builtin.conversation import CHANNELS, Plan
from hadpsgd.corpus.builtin.espeak import Espeak
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.lang.weighted import LangLexicon
from hadpsgd.gmm.phone_segments import segments

_WORD = 1
_FRAME = 0.01
_FAR = (1, 2, 5)
"""Frames beside the truth, of which the table counts what is further."""
Begins = dict[str, list[float]]


class _Event(ctypes.Structure):
    """espeak-ng's espeak_EVENT (speak_lib.h)."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    ]


class _Told(Espeak):
    """A voice that tells at which of its samples words begin."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[int] = []
        self.first = 0
        """Loud sample."""

    def _receive(self, samples: Any, count: int, events: Any) -> int:
        found = ctypes.cast(events, ctypes.POINTER(_Event))
        number = 0
        while found[number].type:
            if found[number].type == _WORD:
                self.begins.append(found[number].sample)
            number += 1
        return super()._receive(samples, count, events)

    def speak(self, text: str) -> np.ndarray:
        """As before; `begins` are those of this text."""
        self.begins.clear()
        samples = super().speak(text)
        loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > conversation._SILENCE)
        self.first = int(loud[0]) if len(loud) else 0
        return samples


class _Talk(conversation._Talk):
    """A conversation whose words' beginnings are kept, in seconds of the recording."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.begins: list[list[float]] = []

    def _utter(self, channel: int, now: int) -> tuple[conversation.Segment, int]:
        segment, end = super()._utter(channel, now)
        start = self.sides[channel].pieces[-1][0] / RATE
        voice = self.espeak
        assert isinstance(voice, _Told)
        self.begins.append([start + (n - voice.first) / voice.sample_rate for n in voice.begins])
        return segment, end


def _spoken(plan: Plan) -> Begins:
    """Beginnings in seconds of their utterances, by the names that the corpus gives them."""
    conversation.Espeak = _Told  # type: ignore[misc]
    talk = _Talk(plan)
    said = talk.speak()
    found = {}
    for segment, begins in zip(said, talk.begins, strict=True):
        times = f"{round(100 * segment.start):06d}-{round(100 * segment.end):06d}"
        name = f"{segment.speaker}-{plan.name}-{CHANNELS[segment.channel]}-{times}"
        found[name] = [begin - segment.start for begin in begins]
    return found


def truth(config_file: Path, processes: int) -> Begins:
    """Of all training utterances; each recording needs a fresh process."""
    config = load(config_file)
    assert isinstance(config.corpus, Builtin)
    plans = prepare.plans(config.corpus, config.seed, prepare._unseen(config))["train"]
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        parts = pool.map(_spoken, plans, chunksize=1)
    return {name: begins for part in parts for name, begins in part.items()}


def aligned(ali: Path, lexicon: LangLexicon, data: DataDir) -> Iterator[tuple[str, list[float]]]:
    """Beginnings in seconds of the words of each utterance of an alignment."""
    model, alignments = read_alignments(ali)
    for utterance, ids in alignments:
        parts = segments(model, ids)
        phones = tuple(parts.phones.tolist())
        numbers = tuple(lexicon.words.get(word, -1) for word in data.utterances[utterance].words)
        cuts = lexicon.matcher.match(numbers, phones)
        if cuts is not None:
            yield utterance, [float(parts.starts[first]) * _FRAME for first, _ in cuts]


def differences(found: Begins, true: Begins) -> NDArray[np.float64]:
    """Frames by which words begin too late; both have as many of each utterance."""
    return np.array(
        [
            (mine - its) / _FRAME
            for name, begins in found.items()
            for mine, its in zip(begins, true[name], strict=True)
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table: one row an alignment, of the utterances that all of them have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lang", type=Path, required=True)
    parser.add_argument("--ali", type=Path, nargs="+", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args(arguments)
    true = truth(args.config, args.jobs)
    data, lexicon = DataDir.read(args.data, audio=False), LangLexicon.read(args.lang)
    found = [dict(aligned(ali, lexicon, data)) for ali in args.ali]
    common = set(true).intersection(*found)
    fitting = {name for name in common if len(true[name]) == len(data.utterances[name].words)}
    print(f"{len(data.utterances)} utterances, {len(true)} spoken again, {len(fitting)} compared\n")
    print("| alignment | words | median | mean distance from it | further than", end=" ")
    print(" | ".join(f"{far} frames" for far in _FAR) + " |")
    print("|---|" + "---:|" * (3 + len(_FAR)))
    for ali, begins in zip(args.ali, found, strict=True):
        late = differences({name: begins[name] for name in fitting}, true)
        middle = float(np.median(late))
        away = np.abs(late - middle)
        shares = " | ".join(f"{100 * np.mean(away > far):.1f} %" for far in _FAR)
        print(f"| {ali} | {len(late):,} | {middle:+.2f} | {away.mean():.2f} | {shares} |")


if __name__ == "__main__":
    main()
