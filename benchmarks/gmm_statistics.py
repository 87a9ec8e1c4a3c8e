"""A pass of statistics over generated speech, with one process and with two.

    .venv/bin/python benchmarks/gmm_statistics.py [--gaussians 200000] [--hours 300] [--shares 4]

Frames, means and alignments are random; utterances of 5 s, 25 Gaussians a pdf. Some of the 64
shares of a corpus of `--hours` are passed over. Printed are wall time and processor time of the
parent and of its processes; then those of a pass without the arithmetic: features read, sums
filled, stored and added up.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hadpsgd.corpus.lang.topology import State, Topology
from hadpsgd.gmm import diag_gmm, em, transition_model
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.partial_sums import SHARES, shares
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.tree_roots import Root, stub
from hadpsgd.gmm.workspace import Workspace

STATES, DIM, PER_PDF = 3, 40, 25
UTTERANCE, STAY = 500, 3
"""Frames of an utterance, and in a state."""


class Times(NamedTuple):
    """Seconds."""

    wall: float
    parent: float
    workers: float


def generated(gaussians: int, random: np.random.Generator) -> Model:
    """A model of so many Gaussians at least, phones of three states with one pdf each."""
    phones = range(1, 1 + -(-gaussians // (STATES * PER_PDF)))
    states = tuple(
        State(forward_pdf_class=i, self_loop_pdf_class=i, transitions=((i, 0.5), (i + 1, 0.5)))
        for i in range(STATES)
    )
    topology = Topology(
        np.array(phones, np.int32),
        np.array([-1, *(0 for _ in phones)], np.int32),
        ((*states, State(forward_pdf_class=-1, self_loop_pdf_class=-1)),),
    )
    roots = [Root(phones=(phone,), shared=False) for phone in phones]
    tree = Tree(width=1, position=0, root=stub(roots, topology, 0))
    count = tree.num_pdfs * PER_PDF
    mixtures = diag_gmm.make(
        np.full(tree.num_pdfs, PER_PDF),
        np.full(count, 1 / PER_PDF),
        random.standard_normal((count, DIM)),
        np.ones((count, DIM)),
    )
    return Model(transition_model.make(tree, topology), mixtures)


def fill(space: Workspace, model: Model, minutes: float, random: np.random.Generator) -> None:
    """Noise, aligned to phones in random order."""
    count = round(minutes * 6000 / UTTERANCE)

    def utterances() -> Iterator[tuple[str, str, NDArray[np.float32]]]:
        for number in range(count):
            noise = random.standard_normal((UTTERANCE, DIM), np.float32)
            yield f"u{number}", f"s{number // 50}", noise

    space.fill(utterances())
    first = model.transitions.first_id[:-1]
    for chunk in space.chunks():
        frames = int(space.bounds(chunk)[-1])
        visits = first[random.integers(len(first), size=-(-frames // STAY))]
        space.store_alignment(chunk, np.repeat(visits, STAY)[:frames])


def filled(*args: Any) -> None:
    """In place of `accumulate`: every page of the sums is touched, nothing is computed."""
    sums = args[-1]
    if not sums.frames:
        sums.first.fill(1.0)
        sums.second.fill(1.0)
        sums.frames = 1.0


def timed(work: Callable[[], object]) -> Times:
    """Of one call."""
    began, before = time.perf_counter(), used()
    work()
    spent = used() - before
    return Times(time.perf_counter() - began, *spent)


def used() -> NDArray[np.float64]:
    """Processor seconds of this process and of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(kind) for kind in kinds]
    return np.array([usage.ru_utime + usage.ru_stime for usage in usages])


def main() -> None:
    """Generate, time, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gaussians", type=int, default=200_000)
    parser.add_argument("--hours", type=float, default=300)
    parser.add_argument("--shares", type=int, default=4)
    args = parser.parse_args()
    random = np.random.default_rng(1)
    model = generated(args.gaussians, random)
    with tempfile.TemporaryDirectory() as scratch, Workspace(Path(scratch)) as space:
        fill(space, model, 60 * args.hours / SHARES * args.shares, random)
        print(f"{len(model.mixtures.weights)} Gaussians, {space.num_frames} frames")
        print("| processes | wall (s) | parent (s) | workers (s) |\n|---|---|---|---|")
        with threadpool_limits(1), patch.object(em, "shares", partial(shares, count=args.shares)):
            for jobs in (1, 2):
                passes = em.Passes(space, Pipeline(0), jobs)
                show(f"{jobs}", timed(partial(passes.accumulate, model)))
                with patch.object(em, "accumulate", filled):
                    show(f"{jobs}, no arithmetic", timed(partial(passes.accumulate, model)))


def show(name: str, times: Times) -> None:
    """A row of the table."""
    print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in times) + " |", flush=True)


if __name__ == "__main__":
    main()
