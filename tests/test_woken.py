"""A process that was given up, or is of a former start, goes on: what its successor wrote counts.

It may have stood still before any of its writes. Here they are made late, in every order.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from training_data import write_config

from hadpsgd import rank_checkpoints
from hadpsgd.config import load, settings_of
from hadpsgd.decentralized.core.engine import Counted
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.training import averaging, checkpoints
from hadpsgd.training.averaging import Ended, Kept, by_epoch
from hadpsgd.training.checkpoints import Checkpoints
from hadpsgd.training.saved import Saved, complete, newest

pytestmark = pytest.mark.usefixtures("unrecorded")

MOMENT = f"{40:09}-{0:09}"


@dataclass
class Start:
    """All processes of one start of a run, and the store at which they have met."""

    folder: Path
    learners: int
    store: dist.Store = field(default_factory=dist.HashStore)
    processes: dict[tuple[int, int], Checkpoints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.process(0).start()  # as it looks for a checkpoint

    def process(self, node: int, *, life: int = 0) -> Checkpoints:
        """One that is about to write its part."""
        if (node, life) not in self.processes:
            self.processes[node, life] = self._process(node, life)
        return self.processes[node, life]

    def _process(self, node: int, life: int) -> Checkpoints:
        return Checkpoints(self.folder, meeting(self.store, node, self.learners, life), keep=2)


def meeting(store: dist.Store, rank: int, world: int, life: int = 0, *, size: int = 1) -> Meeting:
    """As one process sees it."""
    return Meeting(
        place=Place(rank=rank, world=world, size=size),
        local_world=1,
        host="h",
        store=store,
        timeout=timedelta(seconds=5),
        life=life,
    )


def part(
    process: Checkpoints,
    value: float,
    *,
    number: int = 0,
    living: dict[int, int],
    dead: dict[int, tuple[str, int]] | None = None,
    leads: bool = False,
) -> Callable[[], None]:
    """The write of a part: its weights are `value`, and so are the bytes of its record."""
    state: dict[str, Any] = {
        "weights": torch.tensor([value]),
        "record_file": f"node-{process.meeting.place.node}.{value:g}.bin",
        "record_bytes": int(value),
        "membership": number,
        "living": living,
        "dead": dead or {},
    }
    engine: Any = SimpleNamespace(
        moment=MOMENT, alive=tuple(living), living=(number, living), leads=leads
    )

    def write() -> None:
        process.save(state, engine)
        process.settle()

    return write


def values(saved: Saved) -> list[float]:
    """Of the weights that count; none as long as a part is missing."""
    return [saved.load(node)["weights"].item() for node in sorted(saved.parts())]


def in_order(
    folder: Path, writes: Sequence[Callable[[], None]], order: Iterable[int] | None = None
) -> Iterator[tuple[set[int], list[float]]]:
    """Which of the writes are done, and what counts then."""
    done: set[int] = set()
    for number in range(len(writes)) if order is None else order:
        writes[number]()
        done.add(number)
        yield done, values(Saved(folder / MOMENT))


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_a_part_of_a_former_start_is_not_one_of_this(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """Learner 0 of the former start stands still before it writes; 1 had written."""
    former = Start(tmp_path, 2)
    old = [former.process(node) for node in range(2)]
    assert [process.start() for process in old] == [1, 1]
    now = Start(tmp_path, 2)
    new = [now.process(node) for node in range(2)]
    assert [process.start() for process in new] == [2, 2]
    writes = [
        part(process, value, living={0: 0, 1: 0})
        for process, value in zip([*old, *new], (10, 11, 20, 21), strict=True)
    ]
    for done, seen in in_order(tmp_path, writes, order):
        whole = [20.0, 21.0] if done >= {2, 3} else [10.0, 11.0] if done >= {0, 1} else []
        assert seen == whole
        assert values(Saved(tmp_path / MOMENT, start=2)) == (whole if done >= {2, 3} else [])


LIVES = {0: 0, 1: 0, 2: 0}
REPLACED = {0: 0, 1: 2, 2: 0}


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_a_part_of_one_that_was_given_up_is_not_its_successors(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """Learner 1 stands still before it writes; the others, and its successor, reach that pause."""
    run = Start(tmp_path, 3)
    given_up, successor = run.process(1), run.process(1, life=1)
    writes = [
        part(run.process(0), 10, number=2, living=REPLACED),
        part(run.process(2), 12, number=2, living=REPLACED),
        part(successor, 21, number=2, living=REPLACED),
        part(given_up, 11, living=LIVES),
    ]
    for done, seen in in_order(tmp_path, writes, order):
        assert seen == ([10.0, 21.0, 12.0] if done >= {0, 1, 2} else [])
        if done >= {0, 1, 2}:
            assert Saved(tmp_path / MOMENT).records()[1] == Counted(file="node-1.21.bin", length=21)


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_some_knew_of_the_change_and_some_did_not(order: tuple[int, ...], tmp_path: Path) -> None:
    """Learner 0 wrote before it knew that 1 was given up, 2 when its successor was there."""
    run = Start(tmp_path, 3)
    given_up, successor = run.process(1), run.process(1, life=1)
    writes = [
        part(run.process(0), 10, living=LIVES),
        part(run.process(2), 12, number=2, living=REPLACED),
        part(successor, 21, number=2, living=REPLACED),
        part(given_up, 11, living=LIVES),
    ]
    for done, seen in in_order(tmp_path, writes, order):
        assert seen == ([10.0, 21.0, 12.0] if done >= {0, 1, 2} else [])


def test_the_successor_died_too(tmp_path: Path) -> None:
    """Then its record counts, as the others say, and not that of the one before it."""
    run = Start(tmp_path, 3)
    left = {0: 0, 2: 0}
    dead = {1: ("node-1.2.bin", 30)}
    for _ in in_order(
        tmp_path,
        [
            part(run.process(0), 10, number=1, living=left, dead={1: ("node-1.bin", 11)}),
            part(run.process(2), 12, number=3, living=left, dead=dead),
            part(run.process(1), 11, living=LIVES),
        ],
    ):
        pass
    saved = Saved(tmp_path / MOMENT)
    assert values(saved) == [10.0, 12.0]
    assert saved.records()[1] == Counted(file="node-1.2.bin", length=30)


def test_a_late_part_leaves_the_newest_checkpoint_alone(tmp_path: Path) -> None:
    """Its moment is one that the start which goes on never reached."""
    former = Start(tmp_path, 2)
    old = [former.process(node) for node in range(2)]
    for process in old:
        part(process, 1, living={0: 0, 1: 0})()
    late = part(old[0], 5, living={0: 0, 1: 0}, leads=True)
    (tmp_path / MOMENT).rename(tmp_path / f"{20:09}-{0:09}")
    late()
    assert newest(tmp_path).folder.name == f"{20:09}-{0:09}"
    assert len(complete(tmp_path)) == 1


def test_weights_of_an_epochs_end_are_ones_own(tmp_path: Path) -> None:
    """Both have that version of their record at the end of epoch 2: the one that was given up
    alone, and the one that goes on in its place.
    """
    config = write_config(tmp_path, [{"strategy": "single"}], epochs=3, average_last=3)
    training = settings_of(load(config), "single").training
    woken, successor = (Kept(tmp_path, 1, training) for _ in range(2))

    def at(value: float) -> Any:
        return SimpleNamespace(snapshot=lambda: (torch.tensor([value]), 40))

    for first, second in ((woken, successor), (successor, woken)):
        for kept in (first, second):
            kept.passed([2], at(11.0 if kept is woken else 21.0))
        [(version, checksum)] = by_epoch({1: successor.state()["epochs"]})[2].values()
        ended = Ended(epoch=2, node=1, version=version, checksum=checksum)
        assert averaging.load(ended, tmp_path).tolist() == [21.0]


# --- parts of each rank, as image training and the neural language model write them ---


Ranks = list[rank_checkpoints.Checkpoints]


def started(folder: Path) -> tuple[Ranks, list[Any]]:
    """The two processes of one start, a super-learner's members; what each of them goes on from."""
    store = dist.HashStore()
    ranks = [
        rank_checkpoints.Checkpoints(folder, meeting(store, rank, 2, size=2)) for rank in range(2)
    ]
    with ThreadPoolExecutor(2) as both:
        return ranks, list(both.map(lambda each: each.newest(), ranks))


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_a_ranks_part_of_a_former_start_is_not_one_of_this(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """Any of the four writes number 1 late; only parts of one start are gone on from."""
    old, new = (started(tmp_path)[0] for _ in range(2))
    done: set[int] = set()
    for number in order:
        [*old, *new][number].save(1, {"value": number})
        done.add(number)
        whole = [2, 3] if done >= {2, 3} else [0, 1] if done >= {0, 1} else []
        shutil.copytree(tmp_path, tmp_path.with_name("seen"))
        _, found = started(tmp_path.with_name("seen"))
        shutil.rmtree(tmp_path.with_name("seen"))
        expected: list[Any] = [(1, {"value": value}) for value in whole]
        assert found == (expected or [None, None])


@pytest.mark.parametrize("late", ["part", "removal"])
def test_a_rank_of_a_former_start_leaves_a_later_checkpoint_alone(
    late: Literal["part", "removal"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former start had written number 1, and one part of 2. Its rank 1 stands still before the
    other part; or rank 0 of a start after it does so while it looks for what is to be removed.
    """
    old, _ = started(tmp_path)
    for rank in old:
        rank.save(1, {"value": 1})
    old[0].save(2, {"value": 1})
    found_in, successors = checkpoints.found_in, []

    def stands_still(folder: Path) -> list[Saved]:
        seen = found_in(folder)
        monkeypatch.setattr(checkpoints, "found_in", found_in)
        successors.append(started(tmp_path))
        write_later(successors[0][0])
        return seen

    def write_later(new: Ranks) -> None:
        for number in (2, 3):
            for rank in new:
                rank.save(number, {"value": 10 + number})

    if late == "removal":
        monkeypatch.setattr(checkpoints, "found_in", stands_still)
        started(tmp_path)
        [(_, begin)] = successors
    else:
        new, begin = started(tmp_path)
        old[1].save(2, {"value": 1})
        assert started(tmp_path)[1] == [(1, {"value": 1})] * 2, "rank 0's part of 2 was removed"
        write_later(new)
    assert begin == [(1, {"value": 1})] * 2
    assert started(tmp_path)[1] == [(3, {"value": 13})] * 2
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"starts", *(f"{number:09}" for number in (1, 2, 3))}


def test_who_is_done_late_removes_nothing_of_its_successor(tmp_path: Path) -> None:
    """Else the successor, which is under way, could not write."""
    old, _ = started(tmp_path)
    for rank in old:
        rank.save(1, {"value": 1})
    new, begin = started(tmp_path)
    assert begin == [(1, {"value": 1})] * 2
    new[0].save(2, {"value": 2})
    old[0].clear()
    new[1].save(2, {"value": 2})
    last, found = started(tmp_path)
    assert found == [(2, {"value": 2})] * 2
    last[0].clear()
    assert not tmp_path.exists()
