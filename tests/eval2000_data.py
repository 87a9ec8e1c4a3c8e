"""A test set as Kaldi's egs/swbd/s5c prepares eval2000: two kinds of telephone calls in one folder,
upper-case transcripts, one stm for all; tones in place of speech."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import yaml
from corpus_data import RATE, tone, write_lines

from hadpsgd.corpus.references import write_glm

STM_HEAD = [
    ";;",
    ';; CATEGORY "0" "" ""',
    ';; LABEL "O" "Overall" "Overall"',
    ';; CATEGORY "1" "Corpus" ""',
    ';; LABEL "en" "Callhome" "Callhome"',
    ';; LABEL "sw" "Switchboard" "Switchboard"',
    ';; CATEGORY "2" "Sex" ""',
    ';; LABEL "F" "Female" "Female"',
    ';; CATEGORY "3" "Corpus and sex" ""',
    ';; LABEL "en-F" "Callhome, female" ""',
    ';; LABEL "sw-F" "Switchboard, female" ""',
]
SAID = {
    ("en_4156", "A"): [(0.3, 1.5, "HELLO BOB"), (2.0, 3.0, "(%HESITATION) BYE")],
    ("en_4156", "B"): [(0.5, 1.6, "HI ANN")],
    ("sw_4390", "A"): [(0.2, 1.2, "BYE BYE (BOB)")],
    ("sw_4390", "B"): [(1.0, 2.5, "HELLO HELLO")],
}
"""File and channel to begin, end and words."""
IGNORED = ("sw_4390", "B", 3.0, 3.9, "IGNORE_TIME_SEGMENT_IN_SCORING")
"""In the stm, not in the data."""


def stm_lines() -> list[str]:
    """The stm of all calls."""
    said = [(*key, *segment) for key, segments in SAID.items() for segment in segments]
    lines = []
    for file, channel, begin, end, words in sorted([*said, IGNORED]):
        label = f"<O,{file[:2]},F,{file[:2]}-F>"
        lines.append(f"{file} {channel} {file}_{channel} {begin:.2f} {end:.2f} {label}  {words}")
    return [*STM_HEAD, *lines]


def make_eval2000(folder: Path) -> Path:
    """Write `folder`/data/eval2000, audio and a lower-case lexicon; returns the data directory."""
    data = folder / "data" / "eval2000"
    data.mkdir(parents=True)
    (folder / "audio").mkdir()
    tables: dict[str, list[str]] = {name: [] for name in ("segments", "text", "utt2spk")}
    recordings, files = [], []
    for (file, channel), segments in SAID.items():
        side = f"{file}-{channel}"
        place = folder / "audio" / f"{file}.wav"
        both = np.stack([tone(4, 440), tone(4, 880)], axis=1)
        soundfile.write(place, both, RATE, subtype="PCM_16")
        recordings.append(f"{side} {place}")
        files.append(f"{side} {file} {channel}")
        for begin, end, said in segments:
            name = f"{side}_{round(100 * begin):06d}-{round(100 * end):06d}"
            tables["segments"].append(f"{name} {side} {max(begin - 0.1, 0):.2f} {end + 0.1:.2f}")
            tables["text"].append(f"{name} {said}")
            tables["utt2spk"].append(f"{name} {side}")
    for table, rows in tables.items():
        write_lines(data / table, rows)
    write_lines(data / "wav.scp", recordings)
    write_lines(data / "reco2file_and_channel", files)
    write_lines(data / "stm", stm_lines())
    write_glm(data / "glm")
    words = ["ann", "bob", "bye", "hello", "hi"]
    write_lines(folder / "lexicon.txt", [f"{w} X" for w in words])
    return data


def corpus_config(path: Path, data: Path, tests: dict[str, Any], **more: Any) -> Path:
    """Write a config whose train and dev sets are the folder too."""
    corpus = {
        "kind": "kaldi",
        "train": str(data),
        "dev": str(data),
        "tests": tests,
        "dict_dir": str(data.parents[1] / "lexicon.txt"),
        "case": "lower",
    }
    path.write_text(yaml.safe_dump({"name": "mine", "corpus": corpus | more}))
    return path
