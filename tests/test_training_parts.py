"""Parts of training by themselves: its data, dropout, checkpoints, rows and signals."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import threading
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from training_data import write_config, write_egs

from hadpsgd.config import load, settings_of
from hadpsgd.decentralized.core.engine import Counted
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.errors import UserError
from hadpsgd.training import interrupt
from hadpsgd.training.checkpoints import Checkpoints
from hadpsgd.training.data import Feed
from hadpsgd.training.final import average
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.metrics import Metrics
from hadpsgd.training.saved import Saved, complete

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    dataset = Dataset(write_egs(tmp_path_factory.mktemp("egs"), 50, 1))
    plan = Plan(size=50, batch=8, seed=4)
    return Feed(dataset, plan, rank=1, learners=2, device=CPU)


@pytest.mark.parametrize("start", [0, 3, 6, 7, 12])
def test_the_data_goes_on_from_epoch_to_epoch(feed: Feed, start: int) -> None:
    """A step's examples are the same wherever the run began; three epochs hold all three times."""
    assert feed.plan.steps == 7
    read = list(itertools.islice(feed.batches(start), 21 - start))
    for step, (x, targets) in enumerate(read, start):
        wanted, labels = feed.example(step=step, rank=1)
        assert torch.equal(x, wanted) and torch.equal(targets, labels)
    if start == 0:
        both = [x for step in range(21) for x in feed.example(step=step, rank=0)[0]]
        both += [row for x, _ in read for row in x]
        counts: dict[bytes, int] = {}
        for row in both:
            counts[row.numpy().tobytes()] = counts.get(row.numpy().tobytes(), 0) + 1
        assert len(counts) == 50 and set(counts.values()) == {3}


class Dropped(nn.Module):
    """A loss that shows its mask."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        del targets
        kept = nn.functional.dropout(self.weight, 0.5)
        return (kept * x).sum()


def test_dropout_is_drawn_anew_for_every_step_and_learner(tmp_path: Path) -> None:
    """And is the same for the same ones: a resumed run, or a replay, draws no other."""
    content = write_config(tmp_path, [{"strategy": "single"}]).read_text()
    (tmp_path / "c.yaml").write_text(
        content.replace("projection: 8", "projection: 8\n  dropout: 0.5")
    )
    settings = settings_of(load(tmp_path / "c.yaml"), "single")
    assert settings.model.dropout == 0.5
    masks: dict[tuple[int, int], Tensor] = {}
    for place in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]:
        for again in range(2):
            module = Dropped()
            torch.manual_seed(again)  # whatever was drawn before
            rank, step = place
            Gradients(module, settings, CPU, arithmetic="fp32").take(
                torch.ones(64), torch.ones(1), rank=rank, step=step
            )
            assert module.weight.grad is not None
            mask = module.weight.grad > 0
            assert torch.equal(masks.setdefault(place, mask), mask)
    for one, other in itertools.combinations(masks.values(), 2):
        assert 8 < int((one != other).sum()) < 56  # 32 of 64 by chance


def checkpoints(folder: Path, keep: int) -> Checkpoints:
    meeting = Meeting(
        place=Place(rank=0, world=1), local_world=1, host="h", store=None, timeout=timedelta(1)
    )
    return Checkpoints(folder, meeting, keep)


LIVING = {"living": {0: 0}}


def engine(step: int) -> Any:
    return SimpleNamespace(moment=f"{0:09}-{step:09}", alive=(0,), leads=True)


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    mine = checkpoints(tmp_path, keep=2)
    for step in (10, 20, 30, 40):
        mine.save({"steps": torch.tensor(step)} | LIVING, engine(step))
        mine.settle()
    left = complete(tmp_path)
    assert [int(saved.load(0)["steps"]) for saved in left] == [30, 40]
    found = mine.find()
    assert found is not None and int(found.load(0)["steps"]) == 40


def test_lengths_of_records_are_read_without_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 128 learners, the weights would fill a host: no two parts are held, and none is read."""
    for node in range(6):
        part = {
            "weights": torch.zeros(1000),
            "record_bytes": 10 + node,
            "dead": {6: 5, 7: ("node-7.2.bin", 8)} if node else {},
        }
        torch.save(part, tmp_path / f"node-{node}-of-3f-0123456789abcdef.pt")
    load = torch.load
    held: list[weakref.ref[Tensor]] = []

    def watched(path: Path, **options: Any) -> Any:
        assert options["mmap"]
        assert not [ref for ref in held if ref() is not None]
        found = load(path, **options)
        held.append(weakref.ref(found["weights"]))
        return found

    monkeypatch.setattr(torch, "load", watched)
    assert Saved(tmp_path).records() == {
        **{node: Counted(file=f"node-{node}.bin", length=10 + node) for node in range(6)},
        6: Counted(file="node-6.bin", length=5),  # as former versions had it
        7: Counted(file="node-7.2.bin", length=8),
    }
    assert len(held) == 6


@pytest.mark.parametrize("wrote", [True, False])
def test_one_that_dies_while_parts_are_written_leaves_the_others_a_checkpoint(
    tmp_path: Path, *, wrote: bool
) -> None:
    """Of four learners number 3 dies: 0 wrote before it knew that, 1 and 2 after."""

    def write(node: int, living: str, dead: dict[int, tuple[str, int]]) -> None:
        part = {"weights": torch.zeros(1), "record_bytes": 10 + node, "dead": dead}
        torch.save(part, tmp_path / f"node-{node}-of-{living}-0123456789abcdef.pt")

    write(0, "f", {})
    if wrote:
        write(3, "f", {})
    assert not Saved(tmp_path).parts()
    write(1, "7", {3: ("node-3.bin", 13)})
    assert not Saved(tmp_path).parts(), "2 has not written its own"
    write(2, "7", {3: ("node-3.bin", 13)})
    saved = Saved(tmp_path)
    assert sorted(saved.parts()) == [0, 1, 2]
    assert saved.source(3) == 0
    lengths = {node: record.length for node, record in saved.records().items()}
    assert lengths == {0: 10, 1: 11, 2: 12, 3: 13}


def test_a_damaged_or_incomplete_checkpoint_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = checkpoints(tmp_path, keep=3)
    for step in (10, 20, 30):
        mine.save({"steps": torch.tensor(step)} | LIVING, engine(step))
        mine.settle()
    [part] = (tmp_path / engine(30).moment).iterdir()
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    assert not Saved(part.parent).sound(0)
    [other] = (tmp_path / engine(20).moment).iterdir()
    other.rename(other.with_name(other.name.replace("of-1-", "of-3-")))  # node 1's is missing
    found = checkpoints(tmp_path, keep=3).find()  # at the next start
    assert found is not None and found.folder.name == engine(10).moment
    assert f"{part}: damaged checkpoint" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [engine(10).moment, "starts"]


def test_training_goes_on_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is the state of the moment, whatever training does to it meanwhile."""
    go_on, write = threading.Event(), torch.save

    def slow(*args: Any) -> None:
        assert go_on.wait(120)
        write(*args)

    monkeypatch.setattr(torch, "save", slow)
    mine = checkpoints(tmp_path, keep=3)
    state: dict[str, Any] = {
        "weights": torch.zeros(3),
        "more": {"momentum": [torch.zeros(2)]},
    } | LIVING
    mine.save(state, engine(10))
    assert complete(tmp_path) == []
    state["weights"] += 1
    state["more"]["momentum"][0] += 1
    go_on.set()
    mine.settle()
    [saved] = complete(tmp_path)
    found = saved.load(0)
    assert found["weights"].tolist() == [0, 0, 0]
    assert found["more"]["momentum"][0].tolist() == [0, 0]


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """torch makes an error of its own of what the system says."""
    mine = checkpoints(tmp_path, keep=3)
    mine.save({"steps": torch.tensor(1)} | LIVING, engine(10))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        mine.save({"weights": torch.zeros(100_000)} | LIVING, engine(20))
        with pytest.raises(UserError, match=r"node-0\.1\.0-of-1.*no file may be so large here"):
            mine.settle()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_mean_of_learners_that_are_read_one_by_one() -> None:
    rows = [torch.randn(7, generator=torch.Generator().manual_seed(n)) for n in range(5)]
    held: list[int] = []

    class Read:
        def __iter__(self) -> Iterator[Tensor]:
            for n, row in enumerate(rows):
                held.append(n)
                yield row.clone()

    mean, distance = average(Read())
    dense = np.stack([row.double().numpy() for row in rows])
    np.testing.assert_allclose(mean.numpy(), dense.mean(0), rtol=1e-15)
    expected = np.sqrt(((dense - dense.mean(0)) ** 2).sum(1).mean()) / np.linalg.norm(dense.mean(0))
    assert distance == pytest.approx(expected, rel=1e-12)
    assert held == [*range(5), *range(5)]


def test_rows_of_an_attempt_that_got_further_are_cut(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1.0} for step in (1, 2, 3, 4)] + [{"note": "no step"}]
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = Metrics(tmp_path, rank=0, step=2)
    again.write(step=3, loss=2.0)
    again.close()
    steps = [json.loads(line).get("step") for line in file.read_text().splitlines()]
    assert steps == [1, 2, None, 3]


@pytest.mark.parametrize("number", interrupt.SIGNALS)
def test_a_signal_before_training_is_heard_as_it_begins(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "_kept", False)
    before = {each: signal.getsignal(each) for each in interrupt.SIGNALS}
    asked: list[int] = []
    try:
        interrupt.catch()
        assert not interrupt.asked()
        with interrupt.Interrupt(lambda: asked.append(0)):
            assert asked == []
        os.kill(os.getpid(), number)
        assert interrupt.asked()
        with interrupt.Interrupt(lambda: asked.append(1)):
            assert asked == [1]
            os.kill(os.getpid(), number)
            assert asked == [1, 1]
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
