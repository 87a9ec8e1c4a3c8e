"""A corpus of isolated words, and a config that says nothing about language models.

`python benchmarks/isolated_words.py FOLDER [--files 2500] [--more]`

Ten words, spoken by espeak-ng voices through a telephone line: one word a file, as Kaldi data
directories (train 70 %, dev 10 %, test 20 %; no speaker is in two sets) with a bare lexicon, and
`words.yaml`. `--more` adds one more test set, of other speakers, and `words_more.yaml` with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hadpsgd.corpus.audio import write_wav
from hadpsgd.corpus.builtin.channel import RATE, transmit
from hadpsgd.corpus.builtin.espeak import Espeak
from hadpsgd.corpus.builtin.phones import make_lexicon
from hadpsgd.corpus.builtin.voices import ACCENTS, MATCHED, draw_speakers
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.dictdir import write_lexicon
from hadpsgd.corpus.resample import resample

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SHARES = {"train": 0.7, "dev": 0.1, "test": 0.2}
MORE = 0.1
EACH = 20  # words of a speaker
_MARGIN = 0.25  # seconds, before and after a word


def say_set(espeak: Espeak, folder: Path, name: str, files: int) -> None:
    """Speak a set: `data/<name>` and `audio/<name>`."""
    rng = np.random.default_rng([len(name), *name.encode()])
    names = [f"{name}{number:03d}" for number in range(-(-files // EACH))]
    speakers = draw_speakers(names, MATCHED, rng, set())
    audio = folder / "audio" / name
    audio.mkdir(parents=True)
    utterances, recordings = {}, {}
    for number in range(files):
        speaker, word = speakers[number // EACH], WORDS[int(rng.integers(len(WORDS)))]
        espeak.use(speaker.voice)
        samples = resample(espeak.speak(word), rate=espeak.sample_rate, new_rate=RATE)
        margin = int(_MARGIN * RATE)
        padded = np.pad(samples, margin)
        active = np.zeros(len(padded), bool)
        active[margin : margin + len(samples)] = True
        utterance = f"{speaker.id}-{number:05d}"
        path = audio / f"{utterance}.wav"
        write_wav(path, transmit(padded.astype(float), active, speaker.line, rng), RATE)
        recordings[utterance] = str(path.absolute())
        utterances[utterance] = Utterance(
            id=utterance, speaker=speaker.id, recording=utterance, text=word
        )
    genders = {speaker.id: speaker.gender for speaker in speakers}
    DataDir(folder / "data" / name, utterances, recordings, genders, {}).write(
        folder / "data" / name
    )


def config(folder: Path, name: str, more: list[str]) -> dict[str, Any]:
    """Nothing of it is about language models."""
    data = folder.absolute() / "data"
    return {
        "name": name,
        "results": str(folder.absolute() / "results"),
        "corpus": {
            "kind": "kaldi",
            "train": str(data / "train"),
            "dev": str(data / "dev"),
            "tests": {each: str(data / each) for each in ("test", *more)},
            "dict_dir": str(folder.absolute() / "lexicon.txt"),
        },
        "alignment": {"kind": "mono", "gaussians": 150, "iterations": 15},
        "model": {"layers": 1, "cells": 64, "projection": 48},
        "training": {
            "epochs": 8,
            "batch": 8,
            "threads": 1,
            "learning_rate": {"base": 0.2, "base_batch": 16, "anneal_after": 5},
            "runs": [{"strategy": "single"}],
        },
    }


def main() -> None:
    """Make it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=2500)
    parser.add_argument("--more", action="store_true", help="only add the further test set")
    args = parser.parse_args()
    espeak, folder = Espeak(), args.folder
    if args.more:
        say_set(espeak, folder, "more", max(1, round(MORE * args.files)))
        content = config(folder, "words", ["more"])
        (folder / "words_more.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return
    for name, share in SHARES.items():
        say_set(espeak, folder, name, max(1, round(share * args.files)))
    lexicon = make_lexicon(espeak, dict.fromkeys(ACCENTS), WORDS, WORDS)
    write_lexicon(folder / "lexicon.txt", lexicon)
    content = config(folder, "words", [])
    (folder / "words.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


if __name__ == "__main__":
    main()
