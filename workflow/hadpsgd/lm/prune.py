"""Entropy pruning of an ARPA file (kaldingram), for a small first-pass graph."""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import redirect_stderr
from pathlib import Path

from kaldingram.prune import ArpaParser
from kaldingram.prune import prune as entropy_prune

from hadpsgd.errors import UserError
from hadpsgd.lm import arpa
from hadpsgd.lm.train import closed, write


def prune(path: Path, threshold: float, out: Path) -> None:
    """Drop n-grams whose loss changes perplexity by less than `threshold`, relatively (Stolcke).

    Raises:
        UserError: the model cannot be read, or nothing but words is left.
    """
    parser = ArpaParser()
    with arpa.unpacked(path) as file, tempfile.TemporaryDirectory() as folder:
        pruned = Path(folder) / "arpa"
        with redirect_stderr(io.StringIO()):  # its progress bars
            model = parser.loadf(str(file), encoding="utf-8")[0]
            entropy_prune(model, threshold, 2)
            parser.dumpf(model, str(pruned), encoding="utf-8")
        if not model.order() > 1 or not any(True for _ in model._entries(2)):
            raise UserError(f"a threshold of {threshold:g} leaves no 2-gram", fix="Lower it")
        kept = [count for count in arpa.counts(pruned) if count]
        write(out, kept, closed(pruned))
    print(f"first pass: {kept} n-grams by order", file=sys.stderr)
