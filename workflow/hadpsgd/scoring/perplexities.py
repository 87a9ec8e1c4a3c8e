"""Perplexities of the development text, which `hadpsgd neural-lm` notes for every weight."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from hadpsgd.errors import UserError


def read(path: Path, weights: Sequence[float]) -> dict[float, float]:
    """Of each weight, out of the neural model's `meta.json`.

    Raises:
        UserError: the file is missing or something else, or lacks a weight.
    """
    fix = "`hadpsgd neural-lm` writes it"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = {float(w): float(value) for w, value in content["dev"]["perplexity"].items()}
    except FileNotFoundError:
        raise UserError("missing", where=path, fix=fix) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"no perplexities ({error})", where=path, fix=fix) from None
    for weight in weights:
        if not math.isfinite(found.get(weight, math.nan)):
            what = f"no perplexity with weight {weight:g} of lm.neural.weights"
            raise UserError(what, where=path, fix="Run `hadpsgd neural-lm` with this config")
    return found
