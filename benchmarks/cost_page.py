"""The table of docs/cost.md: Switchboard on 1, 8 and 64 GPUs and on processors.

python benchmarks/cost_page.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hadpsgd.config import Config, check, load
from hadpsgd.planning.amounts import amounts
from hadpsgd.planning.cost import GIB, Machines, cost, disk, shown, total
from hadpsgd.planning.cost_command import CORE_PRICE, GPU_PRICE

ROOT = Path(__file__).resolve().parents[1]
ONE = {"strategy": "single", "batch": 256}
EIGHT = {"strategy": "ssgd", "learners": 8, "batch": 2048}
MANY = {"strategy": "hadpsgd", "learners": 64, "super_learner": 8}
CASES = {
    "1 GPU": (ONE, Machines(cores=16, gpus=1)),
    "8 GPUs": (EIGHT, Machines(cores=64, gpus=8)),
    "64 GPUs": (MANY, Machines(cores=64, nodes=8, gpus=8)),
    "64 nodes of 16 cores": ({**MANY, "threads": 16}, Machines(cores=1024)),
}


def table() -> str:
    """Markdown."""
    head = "| | trained by | hours, training | hours in all | core h | GPU h | disk GiB | money |"
    return "\n".join([head, "|---|---|" + "---:|" * 6, *_rows()])


def _rows() -> Iterator[str]:
    for name, title in (("swb300", "SWB-300"), ("swb2000", "SWB-2000")):
        for where, (run, machines) in CASES.items():
            config = _with(load(ROOT / f"config/{name}.yaml"), run)
            speech = amounts(config)
            assert speech is not None
            rows = cost(config, machines, train=speech.train, test=speech.test)
            (trained,) = (row for row in rows if row.stage.startswith("train"))
            all_ = total(rows)
            cells = [
                f"{title}, {where}",
                trained.stage.removeprefix("train "),
                shown(trained.hours),
                shown(all_.hours),
                shown(all_.core_hours),
                shown(all_.gpu_hours),
                shown(disk(config, train=speech.train) / GIB),
                shown(CORE_PRICE * all_.core_hours + GPU_PRICE * all_.gpu_hours),
            ]
            yield f"| {' | '.join(cells)} |"


def _with(config: Config, run: dict[str, object]) -> Config:
    training = config.training.model_dump() | {"runs": [run]}
    decoding = config.decoding.model_dump() | {"ensembles": {}}  # of runs that are not there
    changes = {"training": training, "decoding": decoding}
    return check(config.model_dump() | changes, "cost_page")


if __name__ == "__main__":
    print(table())
