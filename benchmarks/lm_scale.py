"""Memory and time of language models by their number of n-grams.

    python benchmarks/lm_scale.py [--ngrams 500000 1000000 2000000] [--stages load prune ...]

Makes texts and 4-grams of Zipf words (at most 85,000) and lets each stage run on them in a process
of its own. Prints its processor seconds and peak memory, what an n-gram costs (the slope over the
sizes), and from that what 36 and 65 million take. `--make FILE` writes a model alone.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from hadpsgd.decoding.grammar import Grammar
from hadpsgd.decoding.ngram_states import NgramStates
from hadpsgd.lm import arpa, stored
from hadpsgd.lm.backoff import Backoff, load
from hadpsgd.lm.mix import mix_tuned
from hadpsgd.lm.prune import prune
from hadpsgd.lm.train import train
from hadpsgd.lm.vocabulary import Vocabulary

SHARES = (0.10, 0.35, 0.55)
"""Of the 2-, 3- and 4-grams, as in a model of 65 million n-grams with 36 million 4-grams."""
WORDS = 85_000
NGRAMS_A_WORD = 2.6
PREDICTED = (36_000_000, 65_000_000)
EVENTS = 200_000
_BLOCK = 1 << 16


def make(path: Path, size: int, seed: int = 0) -> None:
    """Write an ARPA file of so many n-grams, block by block: their keys alone are held."""
    rng = np.random.default_rng(seed)
    words = min(WORDS, size // 4)
    counts = [words, *(int(share * (size - words)) for share in SHARES)]
    names = _names(words)
    with path.open("w", encoding="utf-8") as stream:
        stream.write("\\data\\\n")
        stream.writelines(f"ngram {order}={count}\n" for order, count in enumerate(counts, 1))
        spelled: list[np.ndarray] = []
        for order, count in enumerate(counts, 1):
            keys = _draw(rng, spelled[-1], words, count) if spelled else np.arange(words)
            spelled.append(keys)
            stream.write(f"\n\\{order}-grams:\n")
            _write_order(stream, rng, names, spelled, last=order == len(counts))
        stream.write("\n\\end\\\n")


def make_text(path: Path, size: int) -> None:
    """Write sentences of some ten Zipf words; they have about so many n-grams up to order 4."""
    rng = np.random.default_rng(2)
    words = min(WORDS, size // 4)
    names, zipf = _names(words)[2:], np.cumsum(1.0 / np.arange(10, words + 8))
    with path.open("w", encoding="utf-8") as stream:
        left = int(size / NGRAMS_A_WORD)
        while left > 0:
            drawn = np.searchsorted(zipf, rng.random(min(_BLOCK, left)) * zipf[-1])
            ends = np.flatnonzero(rng.random(len(drawn)) < 0.1)
            for sentence in np.split(drawn, ends):
                stream.write(" ".join([names[word] for word in sentence.tolist()]) + "\n")
            left -= len(drawn)


def _names(count: int) -> list[str]:
    """<s>, </s> and the most frequent words."""
    return ["<s>", "</s>", *(_name(number) for number in range(count - 2))]


def _name(number: int) -> str:
    """A word of lower-case letters: frequent ones are short, as words are."""
    letters = ""
    while number >= 0:
        letters += chr(ord("a") + number % 26)
        number = number // 26 - 1
    return letters


def _draw(rng: np.random.Generator, below: np.ndarray, words: int, count: int) -> np.ndarray:
    """Row of the context * words + last word of different n-grams, ascending.

    Few contexts have many words after them; none follows </s>, <s> follows none.
    """
    open_ = np.flatnonzero(below % words != 1)
    zipf = np.cumsum(1.0 / np.arange(10, words + 9))
    keys = np.empty(0, np.int64)
    while len(keys) < count:
        lacking = int(1.2 * (count - len(keys))) + 1000
        contexts = open_[(len(open_) * rng.random(lacking) ** 3).astype(np.int64)]
        last = 1 + np.searchsorted(zipf, rng.random(lacking) * zipf[-1])
        keys = np.unique(np.concatenate([keys, contexts * words + last]))
    return np.sort(rng.choice(keys, count, replace=False)) if len(keys) > count else keys


def _write_order(
    stream: TextIO,
    rng: np.random.Generator,
    names: list[str],
    spelled: list[np.ndarray],
    last: bool,
) -> None:
    keys, words = spelled[-1], len(names)
    after = np.bincount(keys // words) if len(spelled) > 1 else None
    for start in range(0, len(keys), _BLOCK):
        part = keys[start : start + _BLOCK]
        columns, rows = [], part
        for below in reversed(spelled[:-1]):
            rows, word = np.divmod(rows, words)
            columns.append(word)
            rows = below[rows]
        grams = np.stack([rows, *reversed(columns)], axis=1).tolist()
        if after is None:  # 1-grams: Zipf's law
            share = 1.0 / (np.arange(start, start + len(part)) + 10) / np.log(words)
        else:  # four fifths of each context's probability, unevenly
            share = (0.2 + 1.2 * rng.random(len(part))) / after[part // words]
        log_prob = np.log10(np.minimum(0.8 * share, 0.9))
        backoff = -0.1 - 0.6 * rng.random(len(part))
        for gram, value, weight in zip(grams, log_prob.tolist(), backoff.tolist(), strict=True):
            end = "\n" if last else f"\t{weight:.6f}\n"
            stream.write(f"{value:.6f}\t{' '.join([names[word] for word in gram])}{end}")


def _load(models: list[Path], _: Path) -> int:
    model = load(models[0])
    return sum(len(order.keys) for order in model.orders)


def _check(models: list[Path], _: Path) -> int:
    return sum(arpa.check(models[0]))


def _prune(models: list[Path], out: Path) -> int:
    prune(models[0], 1e-8, out)
    return sum(arpa.counts(models[0]))


def _mix(models: list[Path], out: Path) -> int:
    """With another of a quarter of its size."""
    sentences = [list("abcde"), list("ccab")] * 50
    mix_tuned({str(path): path for path in models}, sentences, out)
    return sum(arpa.counts(models[0]))


def _train(models: list[Path], out: Path) -> int:
    """On a text beside the model."""
    train(models[0].with_suffix(".txt"), Vocabulary(frozenset(_names(WORDS))), 4, out)
    return sum(arpa.counts(out))


def look_ups(model: Backoff) -> Iterator[tuple[str, float]]:
    """Microseconds of a probability: of listed 4-grams, and of words drawn at random."""
    rng = np.random.default_rng(1)
    longest = len(model.orders)
    rows = rng.integers(len(model.orders[-1].keys), size=EVENTS)
    listed = model.grams(longest)[rows]
    for name, grams in (
        ("listed", listed),
        ("drawn", rng.integers(1, len(model.words), (EVENTS, longest))),
    ):
        start = time.process_time()
        model.log10(grams[:, :-1], grams[:, -1])
        yield name, 1e6 * (time.process_time() - start) / EVENTS


def _look_ups(models: list[Path], _: Path) -> int:
    model = load(models[0])
    for name, microseconds in look_ups(model):
        print(f"{name} {microseconds:.2f} us", file=sys.stderr)
    return sum(len(order.keys) for order in model.orders)


def _rescore(models: list[Path], _: Path) -> int:
    """The grammar that rescores lattices, of a mapped model: sentences of drawn words."""
    numbers = {name: number for number, name in enumerate(_names(WORDS), 1)}
    model = stored.read(models[0].with_suffix(".stored"))
    states, rng, steps = NgramStates(model, numbers), np.random.default_rng(1), 0
    grammar = Grammar(states)
    start = time.process_time()
    while steps < EVENTS // 10:
        state = grammar.start()[1]
        for word in rng.integers(3, len(model.words), 10).tolist():
            state = grammar.step(state, word)[1]
            steps += 1
    print(f"step {1e6 * (time.process_time() - start) / steps:.0f} us", file=sys.stderr)
    return sum(len(order.keys) for order in model.orders)


def _store(models: list[Path], _: Path) -> int:
    """What `hadpsgd graph` keeps of the full model."""
    model = load(models[0])
    stored.write(model, models[0].with_suffix(".stored"))
    return sum(len(order.keys) for order in model.orders)


STAGES = {
    "train": _train,
    "load": _load,
    "check": _check,
    "prune": _prune,
    "mix": _mix,
    "look-ups": _look_ups,
    "store": _store,
    "rescore": _rescore,  # after "store"
}


def peak() -> int:
    """Bytes of memory that this process has had at most; ru_maxrss would count its parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def stage(name: str, models: list[Path], out: Path) -> None:
    """Run it here; print n-grams, processor seconds, bytes beyond those at its start."""
    before, start = peak(), time.process_time()
    size = STAGES[name](models, out)
    print(size, time.process_time() - start, peak() - before)


def measured(name: str, models: list[Path], folder: Path) -> np.ndarray:
    """n-grams, processor seconds and bytes of a stage in its own process."""
    arguments = ["--run", name, "--models", *map(str, models), "--out", str(folder / "out.gz")]
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    if name in ("look-ups", "rescore"):
        print("  " + ", ".join(line for line in done.stderr.splitlines() if line.endswith(" us")))
    return np.array([float(value) for value in done.stdout.split()])


def compare(sizes: list[int], stages: list[str]) -> None:
    """Measure stages by size, print fits and predictions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in sizes:
            make(folder / f"{size}.arpa", size)
            make(folder / f"{size}.more.arpa", size // 4, seed=1)
            make_text(folder / f"{size}.txt", size)
        for each in stages:
            rows = []
            for size in sizes:
                models = [folder / f"{size}.arpa", folder / f"{size}.more.arpa"]
                rows.append(measured(each, models[: 2 if each == "mix" else 1], folder))
                count, seconds, bytes_ = rows[-1]
                print(f"{each}: {count:,.0f} n-grams, {seconds:.1f} s, {bytes_ / 2**20:.0f} MiB")
            if len(sizes) > 1:
                _predict(each, np.array(rows))


def _predict(name: str, rows: np.ndarray) -> None:
    (slope_s, base_s), (slope_b, base_b) = (np.polyfit(rows[:, 0], rows[:, i], 1) for i in (1, 2))
    said = [f"{1e6 * slope_s:.2f} us and {slope_b:.0f} bytes an n-gram"]
    for count in PREDICTED:
        memory, seconds = base_b + slope_b * count, base_s + slope_s * count
        said.append(f"{count // 10**6} M: {math.ceil(seconds)} s, {memory / 1e9:.1f} GB")
    print(f"{name}: " + "; ".join(said), flush=True)


def main() -> None:
    """Measure, or make a model, or (--run) be the process of a stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ngrams", type=int, nargs="+", default=[500_000, 1_000_000, 2_000_000])
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--make", type=Path, help="write a model of the first of --ngrams here")
    parser.add_argument("--run", choices=list(STAGES), help="one stage, in this process")
    parser.add_argument("--models", type=Path, nargs="+", help="of --run")
    parser.add_argument("--out", type=Path, help="of --run")
    args = parser.parse_args()
    if args.run:
        stage(args.run, args.models, args.out)
    elif args.make:
        make(args.make, args.ngrams[0])
    else:
        compare(args.ngrams, args.stages)


if __name__ == "__main__":
    main()
