"""A tree of 32,000 leaves from statistics as large as those of 300 hours.

    .venv/bin/python benchmarks/gmm_tree.py [--hours 300] [--leaves 32000] [--one-root]

Generated: 42 phones in Kaldi's four positions and silence; 30,000 words, used as often as Zipf's
law says, in random order; every triphone that occurs three states with sums of 40 dimensions. What
a triphone adds to the mean of its phone follows from its neighbours, plus a part of its own.
Printed for each step: processor seconds, and the largest resident set until its end.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hadpsgd.corpus.lang.topology import State, Topology
from hadpsgd.gmm import event_map, phone_questions, transition_model
from hadpsgd.gmm.build_tree import Growth, build_tree, initial_mixtures
from hadpsgd.gmm.context_stats import ABSENT, Context, TreeStatistics
from hadpsgd.gmm.tree_roots import Root

PHONES, POSITIONS, SILENCES, DIM, STATES = 42, 4, 5, 40, 3
BEGIN, END, INSIDE, ALONE = range(POSITIONS)
WORDS, A_SECOND, FRAMES = 30_000, 3.2, 3.0
"""Words there are, words a second, frames of a state."""
SILENCE_AFTER = 0.2
"""Share of words that silence follows."""
Ints = NDArray[np.int32]


def topology() -> Topology:
    """Three states in a row for all phones."""
    states = tuple(
        State(forward_pdf_class=i, self_loop_pdf_class=i, transitions=((i, 0.5), (i + 1, 0.5)))
        for i in range(STATES)
    )
    phones = np.arange(1, 1 + SILENCES + PHONES * POSITIONS, dtype=np.int32)
    index = np.array([-1, *(0 for _ in phones)], np.int32)
    end = State(forward_pdf_class=-1, self_loop_pdf_class=-1)
    return Topology(phones, index, ((*states, end),))


def spoken(seconds: float, random: np.random.Generator) -> Ints:
    """int32 [phones]: phones of so many seconds of words."""
    base = random.zipf(1.3, size=20 * WORDS) % PHONES  # some phones are frequent
    lengths = np.clip(random.poisson(5, WORDS), 1, 14)
    words = []
    for number, length in enumerate(lengths.tolist()):
        letters = base[20 * number : 20 * number + length]
        places = np.full(length, INSIDE)
        places[0], places[-1] = BEGIN, END
        if length == 1:
            places[0] = ALONE
        words.append((1 + SILENCES + POSITIONS * letters + places).astype(np.int32))
    weights = 1 / np.arange(1, WORDS + 1)
    chosen = random.choice(WORDS, round(seconds * A_SECOND), p=weights / weights.sum())
    after = random.random(len(chosen)) < SILENCE_AFTER
    silence = np.array([1], np.int32)
    parts = [
        part
        for word, pause in zip(chosen.tolist(), after.tolist(), strict=True)
        for part in ((words[word], silence) if pause else (words[word],))
    ]
    return np.concatenate([silence, *parts, silence])


def generated(hours: float, random: np.random.Generator) -> TreeStatistics:
    """Statistics of the triphones of so many hours."""
    phones = spoken(3600 * hours, random)
    around = np.lib.stride_tricks.sliding_window_view(phones, 3).copy()
    around[around[:, 1] <= SILENCES, ::2] = ABSENT
    seen, counts = np.unique(around, axis=0, return_counts=True)
    events = np.column_stack(
        [np.repeat(seen, STATES, axis=0), np.tile(np.arange(STATES), len(seen))]
    ).astype(np.int32)
    frames = np.repeat(counts, STATES) * FRAMES
    size = 2 + SILENCES + PHONES * POSITIONS
    centre = random.normal(size=(size, STATES, DIM))
    left, right = (0.4 * random.normal(size=(size, DIM)) for _ in range(2))
    reach = np.array([1.0, 0.5, 0.2])  # a neighbour changes the states beside it most
    state = events[:, 3]
    means = centre[events[:, 1], state]
    means += reach[state, None] * left[events[:, 0]] + reach[2 - state, None] * right[events[:, 2]]
    means += 0.15 * random.normal(size=means.shape)
    sums = np.empty((len(events), 1 + 2 * DIM))
    sums[:, 0] = frames
    sums[:, 1 : 1 + DIM] = frames[:, None] * means
    sums[:, 1 + DIM :] = frames[:, None] * (means**2 + random.uniform(0.8, 1.2, means.shape))
    return TreeStatistics(Context(independent=tuple(range(1, SILENCES + 1))), events, sums)


def phone_sets() -> list[tuple[int, ...]]:
    """The variants of a phone, as in sets.int; silence first."""
    sets = [tuple(range(1, 1 + SILENCES))]
    first = 1 + SILENCES
    return sets + [
        tuple(range(first + POSITIONS * phone, first + POSITIONS * (phone + 1)))
        for phone in range(PHONES)
    ]


def extra_questions() -> list[tuple[int, ...]]:
    """Phones by their position in the word, as in extra_questions.txt."""
    first, past = 1 + SILENCES, 1 + SILENCES + PHONES * POSITIONS
    return [tuple(range(first + place, past, POSITIONS)) for place in range(POSITIONS)]


@contextmanager
def told(what: str) -> Iterator[None]:
    """A row of the table."""
    began = time.process_time()
    yield
    spent = time.process_time() - began
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {what} | {spent:.1f} | {largest:.2f} |", flush=True)


def main() -> None:
    """Generate, build, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=300)
    parser.add_argument("--leaves", type=int, default=32_000)
    parser.add_argument("--one-root", action="store_true", help="all phones share one, and states")
    args = parser.parse_args()
    random = np.random.default_rng(1)
    topo = topology()
    print("| step | processor (s) | largest resident set so far (GiB) |\n|---|---|---|")
    with threadpool_limits(1):
        with told("statistics generated"):
            stats = generated(args.hours, random)
        with told("questions"):
            sets = phone_questions.automatic(stats, phone_sets(), 1) + extra_questions()
            asked = phone_questions.compiled(sets, topo, 3)
        sets_of_roots = [sum(phone_sets(), ())] if args.one_root else phone_sets()
        roots = [Root(phones=phones) for phones in sets_of_roots]
        with told("tree"):
            built = build_tree(stats, roots, asked, topo, Growth(max_leaves=args.leaves))
        with told("first model"):
            first = initial_mixtures(built.tree, stats)
        with told("transition model"):
            transitions = transition_model.make(built.tree, topo)
    print(f"\n{stats.frames:.0f} frames, {len(stats.events)} events, {len(asked.sets[0])} sets of "
          f"phones to ask for, {len(transitions.tuples)} transition-states")  # fmt: skip
    content = event_map.content(built.tree) + first.mixtures.means.tobytes()
    print(f"{built.summary}; SHA-256 {hashlib.sha256(content).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
