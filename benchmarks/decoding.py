"""Speed and memory of the search, on AN4 with Kaldi's own graph and GMM.

    python benchmarks/decoding.py [--repeat 3] [--out FILE.json]

The reference data (HADPSGD_SHARED, default ../shared) must be there. All 130 test utterances are
searched at beam 13 with scores that are computed before, one thread a process:

- kaldi-decoder's FasterDecoder alone: best paths, the graph loaded, scores spread by transition-id;
- our search for best paths, and for lattices (beam 6);
- lattices with 1 and 2 processes, from scores to archive: wall seconds, and processor seconds of
  the busiest process;
- memory of 1 and 8 processes: proportional set sizes (shared pages divided among their users) of
  all processes together, at their peak.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hadpsgd  # noqa: F401  isort: skip  # before kaldifst: see hadpsgd/__init__.py
import kaldi_decoder
import kaldifst
import numpy as np
import psutil
from commands import processor_seconds
from numpy.typing import NDArray

from hadpsgd.config.decoding import Decoding
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.decode import Batch, Scorer, Work, decode
from hadpsgd.decoding.gmm import GmmScorer
from hadpsgd.decoding.search import Searcher
from hadpsgd.gmm import transition_model
from hadpsgd.graph.transitions import Transitions

SCALE = 0.0833
FRAME = 0.01  # seconds
OPTIONS = Decoding(acoustic_scale=SCALE, beam=13.0, lattice_beam=6.0, max_active=7000)


@dataclass(frozen=True)
class Saved:
    """Scores computed before, one file an utterance."""

    folder: Path

    def __call__(self) -> Scorer:
        """Reads them, one utterance at a time."""
        return lambda utterance: np.load(self.folder / f"{utterance}.npy")

    @property
    def utterances(self) -> list[str]:
        """All of them, the longest first, as decoding takes them."""
        files = sorted(self.folder.glob("*.npy"), key=lambda path: -path.stat().st_size)
        return [path.stem for path in files]


def prepare(kaldi: Path, folder: Path) -> None:
    """A graph folder of Kaldi's graph; scores of all test utterances."""
    graph, scores = folder / "graph", folder / "scores"
    graph.mkdir()
    scores.mkdir()
    (graph / "HCLG.fst").symlink_to((kaldi / "exp/tri3b/graph/HCLG.fst").resolve())
    for name in ("words.txt", "phones.txt", "phones"):
        (graph / name).symlink_to((kaldi / "lang" / name).resolve())
    model = kaldi / "exp/tri3b/final.mdl"
    Transitions.of(transition_model.read(model)).write(graph / "transitions.npz")
    os.chdir(kaldi)  # scp files name archives from there
    data = kaldi / "data/test"
    scorer = GmmScorer(kaldi / "exp/tri3b", data, data, kaldi / "exp/tri3b_decode_test")
    score = scorer()
    for utterance in DataDir.read(data, audio=False, text=False):
        np.save(scores / f"{utterance.id}.npy", score(utterance.id))


def faster_decoder(graph: Path, scores: list[NDArray[np.float32]], repeat: int) -> float:
    """Seconds of FasterDecoder alone."""
    fst = kaldifst.StdConstFst.read(str(graph / "HCLG.fst"))
    pdf = Transitions.read(graph / "transitions.npz").pdf[1:]
    options = kaldi_decoder.FasterDecoderOptions(beam=OPTIONS.beam, max_active=OPTIONS.max_active)

    def run() -> None:
        for matrix in scores:
            decoder = kaldi_decoder.FasterDecoder(fst, options)
            spread = (matrix * np.float32(SCALE)).take(pdf, axis=1)
            decoder.decode(kaldi_decoder.DecodableCtc(spread))
            decoder.get_best_path()

    return processor_seconds(repeat, run)


def ours(graph: Path, scores: list[NDArray[np.float32]], one_best: bool, repeat: int) -> float:
    """Seconds of our search, the graph loaded."""
    searcher = Searcher(graph, OPTIONS.model_copy(update={"one_best": one_best}))

    def run() -> None:
        for first in range(0, len(scores), searcher.batch):
            searcher.search(scores[first : first + searcher.batch])

    return processor_seconds(repeat, run)


@dataclass(frozen=True)
class Timed(Work):
    """Work of which every process notes its processor seconds, in a file of its own."""

    notes: Path = Path()

    def __call__(self) -> Callable[[Sequence[str]], Batch]:
        """The function that decodes utterances."""
        decode, began = super().__call__(), time.process_time()

        def timed(utterances: Sequence[str]) -> Batch:
            batch = decode(utterances)
            (self.notes / str(os.getpid())).write_text(str(time.process_time() - began))
            return batch

        return timed


def whole(folder: Path, jobs: int) -> tuple[float, float]:
    """From scores to lattice archive with `jobs` processes, the graph loaded: wall seconds, and
    processor seconds of the busiest process."""
    saved = Saved(folder / "scores")
    with tempfile.TemporaryDirectory() as name:
        work = Timed(Searcher(folder / "graph", OPTIONS), saved, Path(name))
        wall = decode(work, saved.utterances, folder / f"out{jobs}", jobs, 0.0)["seconds"]
        return wall, max(float(note.read_text()) for note in Path(name).iterdir())


def memory(folder: Path, jobs: int) -> float:
    """MiB of all processes of a decoding together, at their peak."""
    command = [sys.executable, __file__, "--child", str(folder), "--jobs", str(jobs)]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    process, peak = psutil.Process(child.pid), 0.0
    while child.poll() is None:
        total = 0.0
        try:
            for each in [process, *process.children(recursive=True)]:
                total += each.memory_full_info().pss / 2**20
        except psutil.Error:
            continue
        peak = max(peak, total)
        time.sleep(0.05)
    if child.returncode:
        raise SystemExit("the measured process failed")
    return peak


def measure(kaldi: Path, folder: Path, repeat: int) -> dict[str, float]:
    """All figures."""
    prepare(kaldi, folder)
    saved = Saved(folder / "scores")
    scores = [saved()(utterance) for utterance in saved.utterances]
    speech = FRAME * sum(map(len, scores))
    alone = faster_decoder(folder / "graph", scores, repeat)
    first = ours(folder / "graph", scores, True, repeat)
    lattices = ours(folder / "graph", scores, False, repeat)
    runs = {jobs: [whole(folder, jobs) for _ in range(repeat)] for jobs in (1, 2)}
    one, two = (statistics.median(wall for wall, _ in runs[jobs]) for jobs in (1, 2))
    alone_busy, two_busy = (statistics.median(busy for _, busy in runs[jobs]) for jobs in (1, 2))
    small, large = memory(folder, 1), memory(folder, 8)
    return {
        "utterances": len(scores),
        "speech_seconds": speech,
        "faster_decoder_seconds": alone,
        "best_path_seconds": first,
        "lattice_seconds": lattices,
        "best_path_over_faster_decoder": first / alone,
        "lattice_over_best_path": lattices / first,
        "lattice_real_time_factor": lattices / speech,
        "one_process_seconds": one,
        "two_processes_seconds": two,
        "speed_up_of_two": one / two,
        "one_process_processor_seconds": alone_busy,
        "busiest_of_two_processor_seconds": two_busy,
        "speed_up_of_two_by_processor_seconds": alone_busy / two_busy,
        "one_process_mib": small,
        "eight_processes_mib": large,
        "memory_of_eight_over_one": large / small,
    }


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        whole(args.child, args.jobs)
        return
    out = args.out.resolve() if args.out else None
    kaldi = Path(os.environ.get("HADPSGD_SHARED", "../shared")).resolve() / "kaldi_an4"
    with tempfile.TemporaryDirectory() as name:
        figures = {
            key: round(value, 4) for key, value in measure(kaldi, Path(name), args.repeat).items()
        }
    width = max(map(len, figures))
    print("\n".join(f"{key:<{width}}  {value:g}" for key, value in figures.items()))
    if out:
        out.write_text(json.dumps({k: round(v, 4) for k, v in figures.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
