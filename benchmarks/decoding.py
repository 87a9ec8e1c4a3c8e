"""Speed and memory of the search, on AN4 with Kaldi's own graph and GMM.

    python benchmarks/decoding.py [--repeat 3] [--out FILE.json]

The reference data (HADPSGD_SHARED, default ../shared) must be there. All 130 test utterances are
searched at beam 13 with scores that are computed before, one thread a process:

- kaldi-decoder's FasterDecoder alone: best paths, the graph loaded, scores spread by transition-id;
- our search for best paths, and for lattices (beam 6); all three batch by batch in turn;
- lattices with 1 and 2 processes, from scores to archive: wall seconds, and processor seconds of
  the busiest process. As a control, two decodings of one process each, which have nothing to do
  with one another, at the same time: what they lose is the machine's;
- memory of 1 and 8 processes: proportional set sizes (shared pages divided among their users) of
  all processes together, at their peak; and of 8 that are forked and do nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import hadpsgd  # noqa: F401  isort: skip  # before kaldifst: see hadpsgd/__init__.py
import kaldi_decoder
import kaldifst
import numpy as np
import psutil
from commands import side_by_side

from hadpsgd.config.decoding import Decoding
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.decode import Batch, Scorer, Work, decode
from hadpsgd.decoding.gmm import GmmScorer
from hadpsgd.decoding.scores import Matrix
from hadpsgd.decoding.search import Searcher
from hadpsgd.gmm import transition_model
from hadpsgd.graph.transitions import Transitions
from hadpsgd.parallel import map_in_order

SCALE = 0.0833
FRAME = 0.01  # seconds
_AT_ONCE = 3  # tasks for each process that does nothing
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
    scorer = GmmScorer(
        folder=kaldi / "exp/tri3b",
        data=data,
        feats=data,
        transforms=kaldi / "exp/tri3b_decode_test",
    )
    score = scorer()
    for utterance in DataDir.read(data, audio=False, text=False):
        np.save(scores / f"{utterance.id}.npy", score(utterance.id)[:])


def faster_decoder(graph: Path) -> Callable[[Sequence[Matrix]], None]:
    """FasterDecoder alone."""
    fst = kaldifst.StdConstFst.read(str(graph / "HCLG.fst"))
    pdf = Transitions.read(graph / "transitions.npz").pdf[1:]
    options = kaldi_decoder.FasterDecoderOptions(beam=OPTIONS.beam, max_active=OPTIONS.max_active)

    def run(scores: Sequence[Matrix]) -> None:
        for matrix in scores:
            decoder = kaldi_decoder.FasterDecoder(fst, options)
            spread = (matrix * np.float32(SCALE)).take(pdf, axis=1)
            decoder.decode(kaldi_decoder.DecodableCtc(spread))
            decoder.get_best_path()

    return run


def searches(folder: Path, repeat: int) -> dict[str, float]:
    """Processor seconds of FasterDecoder, best paths and lattices, the graph loaded."""
    graph, saved = folder / "graph", Saved(folder / "scores")
    runs = {"faster_decoder": faster_decoder(graph)}
    for name, one_best in (("best_path", True), ("lattice", False)):
        searcher = Searcher(graph, OPTIONS.model_copy(update={"one_best": one_best}))
        runs[name] = partial(_drain, searcher)
    scores = [saved()(utterance)[:] for utterance in saved.utterances]
    return side_by_side(repeat, runs, [scores])


def _drain(searcher: Searcher, scores: Sequence[Matrix]) -> None:
    for _ in searcher.search(scores):
        pass


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


def whole(folder: Path, searcher: Searcher, out: Path, jobs: int) -> tuple[float, float]:
    """From scores to lattice archive with `jobs` processes, the graph loaded: wall seconds, and
    processor seconds of the busiest process."""
    saved = Saved(folder / "scores")
    with tempfile.TemporaryDirectory() as name:
        work = Timed(searcher=searcher, make_scorer=saved, notes=Path(name))
        wall = decode(work, saved.utterances, out, jobs=jobs, max_failed=0.0)["seconds"]
        return wall, max(float(note.read_text()) for note in Path(name).iterdir())


class Child:
    """A decoding in a process of its own, loaded and waiting."""

    def __init__(self, folder: Path, jobs: int, idle: bool = False) -> None:
        words = ["--child", str(folder), "--jobs", str(jobs), *(["--idle"] if idle else [])]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit("a measured process failed")
        return line

    def go(self) -> None:
        """Let it decode."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def seconds(self) -> tuple[float, float]:
        """What `whole` found, when it is done."""
        wall, busiest = json.loads(self._line())
        self.process.wait()
        return wall, busiest

    def peak(self) -> float:
        """MiB of all its processes together, at their peak; waits for its end.

        Where a process begins or ends while they are looked at, pages that it shares are counted
        twice or not at all: that look does not count.
        """
        process, peak = psutil.Process(self.process.pid), 0.0
        while self.process.poll() is None:
            try:
                every = [process, *process.children(recursive=True)]
                found = sum(each.memory_full_info().pss for each in every) / 2**20
                if every == [process, *process.children(recursive=True)] and all(
                    each.status() != psutil.STATUS_ZOMBIE for each in every
                ):
                    peak = max(peak, found)
            except psutil.Error:
                continue
            time.sleep(0.02)
        return peak


def child(folder: Path, jobs: int, idle: bool) -> None:
    """The life of a `Child`."""
    out = folder / f"out{os.getpid()}"
    searcher = Searcher(folder / "graph", OPTIONS)
    print("ready", flush=True)
    sys.stdin.readline()
    if idle:
        for _ in map_in_order(_idle, range(_AT_ONCE * jobs), jobs):
            pass
    else:
        print(json.dumps(whole(folder, searcher, out, jobs)), flush=True)
        shutil.rmtree(out)


def _idle() -> Callable[[int], None]:
    return lambda _: time.sleep(0.3)


def memory(folder: Path, jobs: int, idle: bool = False) -> float:
    """MiB of all processes of a decoding together, at their peak."""
    one = Child(folder, jobs, idle)
    one.go()
    return one.peak()


def processes(folder: Path, repeat: int) -> dict[str, float]:
    """One process, two, and two decodings of one each at the same time; in turn, medians."""
    kinds = {"one_process": [1], "two_processes": [2], "two_alone": [1, 1]}
    walls: dict[str, list[float]] = {name: [] for name in kinds}
    busy: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(repeat):
        for name, jobs in kinds.items():
            children = [Child(folder, each) for each in jobs]
            for each in children:
                each.go()
            found = [each.seconds() for each in children]
            walls[name].append(statistics.mean(wall for wall, _ in found))
            busy[name].append(statistics.mean(used for _, used in found))
    wall = {name: statistics.median(each) for name, each in walls.items()}
    used = {name: statistics.median(each) for name, each in busy.items()}
    return {
        **{f"{name}_seconds": value for name, value in wall.items()},
        **{f"{name}_processor_seconds": value for name, value in used.items()},
        "speed_up_of_two": wall["one_process"] / wall["two_processes"],
        "speed_up_of_two_that_share_nothing": 2 * wall["one_process"] / wall["two_alone"],
        "speed_up_of_two_by_processor_seconds": used["one_process"] / used["two_processes"],
        "the_same_of_two_that_share_nothing": 2 * used["one_process"] / used["two_alone"],
    }


def measure(kaldi: Path, folder: Path, repeat: int) -> dict[str, float]:
    """All figures."""
    prepare(kaldi, folder)
    saved = Saved(folder / "scores")
    speech = FRAME * sum(len(saved()(utterance)) for utterance in saved.utterances)
    found = searches(folder, repeat)
    small, large = memory(folder, 1), memory(folder, 8)
    return {
        "utterances": len(saved.utterances),
        "speech_seconds": speech,
        **{f"{name}_seconds": value for name, value in found.items()},
        "best_path_over_faster_decoder": found["best_path"] / found["faster_decoder"],
        "lattice_over_faster_decoder": found["lattice"] / found["faster_decoder"],
        "lattice_real_time_factor": found["lattice"] / speech,
        **processes(folder, repeat),
        "one_process_mib": small,
        "eight_processes_mib": large,
        "eight_that_do_nothing_mib": memory(folder, 8, idle=True),
        "memory_of_eight_over_one": large / small,
    }


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--idle", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.jobs, args.idle)
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
