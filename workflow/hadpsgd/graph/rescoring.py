"""What a graph of a pruned or smaller model keeps, so that its lattices can be rescored.

`rescore/old` and `rescore/new` are the model of the graph and the full one (`lm.stored`); with
spelled words there are `rescore/spelling` and `rescore/spelling.json`, too.
"""

from __future__ import annotations

import json
from pathlib import Path

from hadpsgd.config.decoding import Graph
from hadpsgd.errors import UserError
from hadpsgd.lm import stored
from hadpsgd.lm.backoff import load

FOLDER, OLD, NEW, SPELLING = "rescore", "old", "new", "spelling"


def write(graph: Path, *, old: Path, new: Path, spelling: Path | None, settings: Graph) -> None:
    """Write the models of ARPA files into a graph folder; one at a time is held in memory.

    Raises:
        UserError: an ARPA file is missing or damaged.
    """
    folder = graph / FOLDER
    folder.mkdir()
    for name, arpa in ((OLD, old), (NEW, new), (SPELLING, spelling)):
        if arpa is not None:
            stored.write(load(arpa), folder / name)
    if spelling:
        costs = {"cost": settings.spelled_cost, "scale": settings.spelling_scale}
        (folder / f"{SPELLING}.json").write_text(json.dumps(costs) + "\n", encoding="utf-8")


def spelling_costs(graph: Path) -> tuple[float, float] | None:
    """What a spelled word costs beside its pieces, and the scale of their costs; None without any.

    Raises:
        UserError: the file is damaged.
    """
    path = graph / FOLDER / f"{SPELLING}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return float(found["cost"]), float(found["scale"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({error})", where=path, fix="Make the graph again") from None
