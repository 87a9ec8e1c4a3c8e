"""HCLG from lang folder, tree, transition model and G, step by step as Kaldi's mkgraph.sh."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import kaldifst

from hadpsgd.errors import UserError
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import Arrays
from hadpsgd.graph.h_transducer import make_h
from hadpsgd.graph.operations import add_self_loops, is_deterministic, push_special, remove_symbols
from hadpsgd.progress import time_left


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Scales of transition probabilities (mkgraph.sh's options of these names)."""

    transition: float = 1.0
    self_loop: float = 0.1


_BYTES, _BYTES_AN_ARC = 70 * 2**20, 3100
"""Of memory when a graph is made, and what an arc of G adds at least: 3,100 to 4,300 bytes were
measured (docs/benchmarks/decoding.md), and nothing is to be refused that fits."""
_SHARES = {
    "LG": 0.31,
    "CLG": 0.35,
    "H": 0.35,
    "H and CLG composed": 0.45,
    "HCLG, determinised": 0.55,
    "HCLG, minimised": 0.83,
}
_SHARES_ALONE = {"LG": 0.55, "CLG": 0.65, "H": 0.65, "H and CLG composed": 0.81}
"""Share of the time after which a step is done, of phones in context (within 0.03 in graphs of 1.0
and 2.6 million states) and of phones alone. Each is one call, which does not tell how far it is."""


class Progress:
    """One line on stderr a step: what came out, how large, after how long, the time left.

    width: phones of a window of the tree.
    """

    def __init__(self, width: int) -> None:
        self.began = time.monotonic()
        self.shares = _SHARES if width > 1 else _SHARES_ALONE

    def __call__(self, name: str, states: int, arcs: int | None = None) -> None:
        size = f"{states:,} states" + ("" if arcs is None else f", {arcs:,} arcs")
        seconds = time.monotonic() - self.began
        left = (
            f", about {time_left(self.shares[name], seconds=seconds)}"
            if name in self.shares
            else ""
        )
        print(f"{name}: {size} ({seconds:.1f} s){left}", file=sys.stderr, flush=True)


def make_g(*, arpa: Path, words: Path, out: Path) -> kaldifst.StdVectorFst:
    """G of a plain ARPA file, with #0 on back-off arcs (arpa2fst --disambig-symbol=#0).

    Raises:
        UserError: the ARPA file cannot be turned into an FST.
    """
    # a process of its own: kaldilm aborts where it does not like a file
    command = [sys.executable, "-m", "kaldilm", f"--read-symbol-table={words}"]
    command += ["--disambig-symbol=#0", "--max-arpa-warnings=0", str(arpa), str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0 or not out.exists():
        said = [line for line in result.stderr.splitlines() if line.strip()]
        reason = said[-1] if said else f"arpa2fst ended with {result.returncode}"
        raise UserError(f"cannot be turned into a graph: {reason}", where=arpa)
    return read_fst(out)


def read_fst(path: Path) -> kaldifst.StdVectorFst:
    """Read an FST of type vector or const.

    Raises:
        UserError: it is missing or damaged.
    """
    return arrays.to_fst(arrays.read(path))


def read_integers(path: Path) -> list[int]:
    """Read a file of one integer a line.

    Raises:
        UserError: it is missing or holds something else.
    """
    try:
        return [int(line) for line in Path(path).read_text().split()]
    except FileNotFoundError:
        raise UserError("missing", where=path, fix="Make the lang folder again") from None
    except ValueError as error:
        raise UserError(f"not a list of numbers: {error}", where=path) from None


def compose_lg(
    lexicon: kaldifst.StdVectorFst, grammar: kaldifst.StdVectorFst
) -> kaldifst.StdVectorFst:
    """LG: L with disambiguation symbols composed with G, determinised, minimised, pushed."""
    kaldifst.arcsort(lexicon, "olabel")
    kaldifst.arcsort(grammar, "ilabel")
    lg = kaldifst.compose(lexicon, grammar)
    if lg.num_states == 0 or not (arrays.from_fst(lg).arcs["olabel"] > 0).any():
        raise UserError(
            "no word of the language model has a pronunciation",
            fix="Check that lexicon and language model text spell words alike",
        )
    kaldifst.determinize_star(lg, use_log=True)
    kaldifst.minimize_encoded(lg)
    return arrays.to_fst(push_special(arrays.from_fst(lg)))


def refuse_too_large(grammar: kaldifst.StdVectorFst, allowed: int) -> None:
    """Before a graph is made: what it takes, roughly, if that is more than `allowed` bytes.

    Raises:
        UserError: so.
    """
    arcs = len(arrays.from_fst(grammar).arcs)
    needed = _BYTES + _BYTES_AN_ARC * arcs
    if needed > allowed:
        raise UserError(
            f"the graph of a language model with {arcs:,} arcs takes about {needed / 2**30:.1f} GiB"
            f" of memory, and there are {allowed / 2**30:.1f}",
            fix="Give it a smaller first pass: lm.first_pass_threshold (1e-7), first_pass_arpa",
        )


def compile_graph(
    lang: Path,
    grammar: kaldifst.StdVectorFst,
    tree: Tree,
    model: TransitionModel,
    scales: Scales,
    progress: Progress,
    determinised: bool = True,
) -> Arrays:
    """HCLG: transition-ids in, words out.

    Without determinisation it has more states, and costs are the same.

    Raises:
        UserError: files are missing, or lang folder, tree, model and grammar do not fit.
    """
    progress("G", grammar.num_states)
    lg = compose_lg(read_fst(lang / "L_disambig.fst"), grammar)
    progress("LG", lg.num_states)
    disambig = read_integers(lang / "phones" / "disambig.int")
    clg, windows = kaldifst.compose_context(disambig, tree.width, tree.position, lg)
    kaldifst.arcsort(clg, "ilabel")
    progress("CLG", clg.num_states)
    h, symbols = make_h(windows, model, tree, scales.transition)
    progress("H", len(h.final), len(h.arcs))
    h_fst = arrays.to_fst(h)
    kaldifst.arcsort(h_fst, "olabel")
    hclg = kaldifst.compose(h_fst, clg)
    progress("H and CLG composed", hclg.num_states)
    graph = arrays.from_fst(hclg)
    if determinised and not is_deterministic(graph):
        kaldifst.determinize_star(hclg, use_log=True)
        progress("HCLG, determinised", hclg.num_states)
        graph = arrays.from_fst(hclg)
    graph = remove_symbols(graph, symbols)
    if tree.width > 1:  # phones alone leave LG minimal
        hclg = arrays.to_fst(graph)
        kaldifst.minimize_encoded(hclg)
        progress("HCLG, minimised", hclg.num_states)
        graph = arrays.from_fst(hclg)
    result = add_self_loops(graph, model, scales.self_loop)
    progress("HCLG", len(result.final), len(result.arcs))
    return result
