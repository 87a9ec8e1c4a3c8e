"""Lattices of AN4 before and after they are determinised, with Kaldi's own graph and GMM.

    python benchmarks/lattices.py [--out FILE.json]

The reference data (HADPSGD_SHARED, default ../shared) must be there. All 130 test utterances are
searched as in benchmarks/decoding.py. Told are arcs and bytes (of `lat.1.gz`) a second of speech,
processor seconds a second of speech of search, determinisation and best paths under 33 settings,
and under how many settings an utterance has the same words as before.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hadpsgd  # noqa: F401  isort: skip  # before kaldifst: see hadpsgd/__init__.py
import numpy as np
from decoding import FRAME, OPTIONS, SCALE, Saved, prepare

from hadpsgd.config.decoding import Scoring
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.determinise import determinised
from hadpsgd.decoding.lanes import Lanes
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.search import TOGETHER, Searcher, all_paths
from hadpsgd.decoding.token_passing import Beams

_TOGETHER = 20  # lattices


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out.resolve() if args.out else None
    shared = Path(os.environ.get("HADPSGD_SHARED", "../shared")).resolve()
    with tempfile.TemporaryDirectory() as folder:
        prepare(shared / "kaldi_an4", Path(folder))
        found = json.dumps(measured(Path(folder)), indent=2)
    print(found)
    if out:
        out.write_text(found + "\n")


def measured(folder: Path) -> dict[str, float]:
    """All figures."""
    saved, seconds = Saved(folder / "scores"), dict[str, float]()
    scores = [saved()(utterance) for utterance in saved.utterances]
    speech = FRAME * sum(map(len, scores))
    searcher = Searcher(folder / "graph", OPTIONS)
    beams = Beams(beam=OPTIONS.beam, lattice_beam=OPTIONS.lattice_beam, max_active=7000)
    lanes = Lanes(scores, count=TOGETHER)
    with clock(seconds, "search"):
        search = all_paths(searcher._graph, searcher._columns, lanes, SCALE, beams)
        whole = [lattice for lattice, _ in search if lattice is not None]
    own, small = Scaling(acoustic_scale=SCALE), list[Lattice]()
    with clock(seconds, "determinisation"):
        for low in range(0, len(whole), _TOGETHER):
            some = whole[low : low + _TOGETHER]
            small += [each for each, _ in determinised(some, own, OPTIONS.lattice_beam)]
    config = Scoring()
    settings = [
        Scaling(acoustic_scale=1 / weight, word_penalty=penalty)
        for weight in config.lm_weights
        for penalty in config.word_penalties
    ]
    words = {}
    for name, lattices in (("before", whole), ("after", small)):
        with clock(seconds, f"best paths {name}"):
            paths = [best_paths(lattice, settings) for lattice in lattices]
        words[name] = [path.words.tolist() for each in paths for path in each]
    figures = {f"{name}, seconds a second": taken / speech for name, taken in seconds.items()}
    for name, lattices in (("before", whole), ("after", small)):
        figures[f"arcs {name}"] = sum(len(each.arcs) for each in lattices) / speech
        entries = [lattice_io.entry("name", each) for each in lattices]
        figures[f"bytes {name}"] = sum(map(len, entries)) / speech
    figures["settings of utterances"] = len(words["before"])
    figures["other words"] = sum(
        a != b for a, b in zip(words["before"], words["after"], strict=True)
    )
    changes = []
    for lattice, less in zip(whole, small, strict=True):
        before, after = best_paths(lattice, [own])[0], best_paths(less, [own])[0]
        assert before.words.tolist() == after.words.tolist()
        assert before.transitions.tolist() == after.transitions.tolist()
        sure = confidences(lattice, before, own), confidences(less, after, own)
        changes += [abs(a - b) for a, b in zip(*(each or [] for each in sure), strict=True)]
    figures["mean change of confidences"] = float(np.mean(changes))
    return figures


@contextmanager
def clock(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Processor seconds of a block."""
    began = time.process_time()
    yield
    seconds[name] = time.process_time() - began


if __name__ == "__main__":
    main()
