"""`hadpsgd transcribe`: memory and time by a recording's length, and word errors by the workflow's.

`python benchmarks/transcribing.py RESULTS [--minutes 10 30 120] [--channels 1] [--sets swb ch]`

RESULTS is a finished `results/NAME`. A run of it is exported; recordings of all its sets, in random
order, are joined to recordings of so many minutes. Peak memory is of all processes together,
shared pages counted once, sampled; seconds are the processor's. The word errors of `--sets` are
those of recordings that `transcribe` cuts itself, beside those of the utterances of the corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import soundfile

EVERY = 0.1  # seconds between looks at memory


def joined(audio: Path, out: Path, *, minutes: float, channels: int) -> None:
    """Write a recording of test and training speech; all parts have come before one comes again."""
    files = sorted(audio.glob("*/*.wav"))
    if not files:
        sys.exit(f"{audio}: no recordings")
    order = np.random.default_rng(0)
    rate = soundfile.info(files[0]).samplerate
    left = int(minutes * 60 * rate)
    with soundfile.SoundFile(out, "w", rate, channels, subtype="PCM_16") as sink:
        while left:
            for number in order.permutation(len(files)):
                part = soundfile.read(files[number], dtype="int16", always_2d=True)[0]
                part = part[:left].take(np.arange(channels) % part.shape[1], axis=1)
                sink.write(part)
                left -= len(part)


def memory(process: psutil.Process) -> float:
    """MiB of a process and its children together; 0 where one begins or ends meanwhile."""
    try:
        every = [process, *process.children(recursive=True)]
        found = sum(float(each.memory_full_info().pss) for each in every) / 2**20
        same = every == [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0.0
    return found if same else 0.0


def run(*arguments: object) -> dict[str, float]:
    """Run a command: its seconds, processor seconds, peak memory in MiB. Ends where it fails."""
    words = [sys.executable, "-m", "hadpsgd", *map(str, arguments)]
    began, peak = time.monotonic(), 0.0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=said, stderr=said
        )
        looked = psutil.Process(process.pid)
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            peak = max(peak, memory(looked))
            time.sleep(EVERY)
        _, process.returncode, used = ended
        said.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(words)}\n{said.read()[-3000:]}")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mib": round(peak),
    }


def lengths(args: argparse.Namespace, bundle: Path, folder: Path) -> list[dict[str, Any]]:
    """A row for each length."""
    rows = []
    for minutes in args.minutes:
        recording = folder / "joined.wav"
        joined(args.results / "corpus/audio", recording, minutes=minutes, channels=args.channels)
        took = run("transcribe", bundle, recording, "--out", folder / "out", "--jobs", args.jobs)
        factor = took["processor_seconds"] / (60 * minutes)
        rows.append({"minutes": minutes, **took, "processor_real_time_factor": round(factor, 4)})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def errors(args: argparse.Namespace, bundle: Path, folder: Path) -> list[dict[str, Any]]:
    """A row for each set."""
    rows = []
    scores = json.loads((bundle / "bundle.json").read_text())["scores"]
    for name in args.sets:
        out, corpus = folder / name, args.results / "corpus"
        reference = corpus / "data" / name / "stm"
        sounds = corpus / "audio" / name
        glm, speakers = reference.parent / "glm", reference.parent / "utt2spk"
        more: list[object] = ["--glm", glm] if glm.exists() else []
        if not (reference.parent / "segments").exists():  # a recording is an utterance
            more += ["--speakers", speakers]
        run("transcribe", bundle, sounds, "--reference", reference, *more, "--out", out,
            "--jobs", args.jobs)  # fmt: skip
        ours = json.loads((out / "score/wer.json").read_text())
        row: dict[str, Any] = {"set": name, "words": ours["words"]}
        row["workflow"] = scores[name]["errors"]
        row["transcribe"] = ours["errors"]
        row["difference"] = round(100 * (ours["errors"] - row["workflow"]) / ours["words"], 2)
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--run", default="", help="folder in runs/ (the first)")
    parser.add_argument("--minutes", type=float, nargs="*", default=[10.0, 30.0, 120.0])
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sets", nargs="*", default=[], help="test sets whose errors are counted")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder, bundle = Path(work), Path(work) / "bundle"
        found = next(args.results.glob(f"runs/{args.run or '*'}/final.pt")).parent
        run("export", found, "--out", bundle)
        report: dict[str, Any] = {"run": found.name}
        report["lengths"] = lengths(args, bundle, folder)
        report["errors"] = errors(args, bundle, folder)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
