"""`hadpsgd images`: the recipe, the pictures, what is refused; test_images_training.py trains."""

from __future__ import annotations

import copy
import json
import re
import sys
from math import nan
from pathlib import Path
from typing import Any

import picture_folders
import pytest
import torch
from picture_folders import PICTURES, SIZE, settings
from torch import nn

from hadpsgd import cli, rank_device
from hadpsgd.decentralized import decentralize
from hadpsgd.errors import UserError
from hadpsgd.images import network, training, vision
from hadpsgd.images.folders import Folders, Keys
from hadpsgd.images.metrics import Rows
from hadpsgd.images.recipe import Recipe
from hadpsgd.images.training import Settings, train
from hadpsgd.training.row_file import rows_of

RESNET50 = {"parameters": 25_557_032, "statistics": 53, "blocks": 16}
"""He et al. 2016; ImageNet's 1000 classes."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture_folders.ready(tmp_path_factory.mktemp("pictures"))


# --- the recipe ---


@pytest.mark.parametrize(
    ("learners", "epoch", "rate"),
    [
        (256, 0.0, 0.1),  # as in the paper: from 0.1 to 3.2 within 5 epochs
        (256, 2.5, 1.65),
        (256, 5.0, 3.2),
        (256, 29.999, 3.2),
        (256, 30.0, 0.32),
        (256, 60.0, 0.032),
        (256, 80.0, 0.0032),
        (8, 0.0, 0.1),  # 256 images a step: nothing to warm up
        (8, 3.0, 0.1),
        (8, 85.0, 0.0001),
        (4, 0.0, 0.05),
    ],
)
def test_the_papers_learning_rate(learners: int, epoch: float, rate: float) -> None:
    assert Recipe().rate(epoch, learners=learners) == pytest.approx(rate)


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"momentum": 1.0}, {"milestones": (60, 30)}, {"base_rate": 0.0},
              {"momentum": 0.0, "nesterov": True}, {"base_rate": nan}, {"milestones": (nan,)},
              {"weight_decay": -1.0}]
)  # fmt: skip
def test_a_recipe_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Recipe(**wrong)


@pytest.mark.parametrize("name", ["size", "workers", "save-every", "seed", "statistics-batches"])
def test_settings_that_cannot_be_meant(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["images", str(tmp_path), "--out", str(out), f"--{name}=-1"]) == 2
    assert name in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.usefixtures("pictures")
def test_resnet50_is_the_papers_and_the_engine_takes_it_as_torch_does() -> None:
    """Made once: its size, its first weights, its decay, and one step beside torch's."""
    torch.manual_seed(0)
    net = network.make("resnet50", classes=1000)
    blocks = [m for m in net.modules() if type(m).__name__ == "Bottleneck"]
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {
        "parameters": sum(p.numel() for p in net.parameters()),
        "statistics": len(norms),
        "blocks": len(blocks),
    } == RESNET50
    assert all((block.bn3.weight == 0).all() for block in blocks)  # type: ignore[union-attr,operator]
    assert sum(bool((norm.weight == 0).any()) for norm in norms) == len(blocks)
    assert float(net.fc.weight.detach().std()) == pytest.approx(0.01, rel=0.02)  # type: ignore[union-attr,operator,arg-type]

    theirs = copy.deepcopy(net)
    optimizer, reference = Recipe().optimizer(net), Recipe().optimizer(theirs)
    decayed, free = optimizer.param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (1e-4, 0.0)
    assert len(decayed["params"]) == 54  # convolutions and the last layer
    assert len(free["params"]) == 2 * len(norms) + 1
    trainer = decentralize(net, optimizer)
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([1, 2])
    for model in (net, theirs):
        nn.functional.cross_entropy(model(images), labels).backward()
    trainer.step()
    reference.step()
    trainer.finish()
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("pictures")
def test_decay_of_everything_and_of_the_papers_part() -> None:
    net = network.make("tiny", classes=3)
    of_all = Recipe(decay_all=True).optimizer(net)
    assert {group["weight_decay"] for group in of_all.param_groups} == {1e-4}
    learnt = [p for group in of_all.param_groups for p in group["params"]]
    assert len(learnt) == len({id(p) for p in learnt}) == len(list(net.parameters()))
    with pytest.raises(UserError, match=r"no classifier 'resnet51'.*resnet50"):
        network.make("resnet51", classes=3)


# --- the pictures ---


def test_the_piece_of_a_picture_follows_from_its_key(pictures: Path) -> None:
    """Not from what was drawn before, or by whom; another epoch has another piece."""
    folders = Folders.open(pictures, size=SIZE)
    torch.manual_seed(7)
    first = folders.train[5][0]
    torch.rand(3)
    before = torch.random.get_rng_state()
    assert torch.equal(folders.train[5][0], first)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(folders.train[5 + PICTURES][0], first)
    assert folders.train[5 + PICTURES][1] == folders.train[5][1]
    held_out = folders.held_out[5][0]
    assert torch.equal(folders.held_out[5 + len(folders.held_out)][0], held_out)


def test_keys_of_an_epoch_are_each_picture_once() -> None:
    keys = Keys(pictures=10, batch=3)
    torch.manual_seed(1)
    first, second = list(keys), list(keys)
    torch.manual_seed(1)
    assert list(keys) == first
    for epoch in (first, second):
        assert [len(batch) for batch in epoch] == [3, 3, 3] and len(keys) == 3
        numbers = [key % 10 for batch in epoch for key in batch]
        assert len(set(numbers)) == 9
        assert len({key // 10 for batch in epoch for key in batch}) == 1
    assert first[0][0] // 10 != second[0][0] // 10


def test_held_out_pictures_are_shared_among_ranks_without_rest(pictures: Path) -> None:
    folders = Folders.open(pictures, size=SIZE)
    counts = [
        sum(len(y) for _, y in folders.held_out_batches(batch=4, workers=0, rank=r, learners=7))
        for r in range(7)
    ]
    assert sum(counts) == len(folders.held_out) == 30 and max(counts) - min(counts) <= 1


# --- bad input ---


def test_pictures_that_are_not_there(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"/train: No such file or directory\. DATA/train and"):
        Folders.open(tmp_path, size=SIZE)
    for part in ("train", "val"):
        (tmp_path / part).symlink_to(pictures / part)
    (tmp_path / "val").unlink()
    (tmp_path / "val" / "yellow").mkdir(parents=True)
    (tmp_path / "val" / "yellow" / "1.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"other classes \(blue, green, red, yellow\)"):
        Folders.open(tmp_path, size=SIZE)
    held_out = Folders.open(pictures, size=SIZE).held_out
    held_out.samples[0] = (str(tmp_path / "val" / "yellow" / "1.png"), 0)
    with pytest.raises(UserError, match=r"yellow/1\.png: cannot be read"):
        held_out[0]
    folders = Folders(train=held_out, held_out=held_out)
    with pytest.raises(UserError) as caught:
        list(folders.held_out_batches(batch=4, workers=1))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'val' / 'yellow' / '1.png'}: cannot be read")


def test_a_result_that_took_the_place_of_another_is_not_taken_for_it(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between final.pt and summary.json."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    wanted = settings(pictures, tmp_path, recipe={"epochs": 1})
    train(wanted)
    made = (tmp_path / "final.pt").read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "write_text", _killed)
        train(settings(pictures, tmp_path, recipe={"epochs": 1}, seed=9))
    train(wanted)
    assert (tmp_path / "final.pt").read_bytes() == made


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_too_few_pictures_for_a_step(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="96 pictures are less than a batch of 97"):
        train(settings(pictures, tmp_path, recipe={"batch": 97}))


@pytest.mark.parametrize("damage", ["no weights", "damaged summary"])
def test_a_result_that_is_not_whole_is_made_again(
    damage: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    wanted, weights = settings(pictures, tmp_path, recipe={"epochs": 1}), tmp_path / "final.pt"
    train(wanted)
    made = weights.read_bytes()
    if damage == "no weights":
        weights.unlink()
    else:
        (tmp_path / "summary.json").write_text("{")
    train(wanted)
    assert weights.read_bytes() == made
    assert json.loads((tmp_path / "summary.json").read_text())["epochs"] == 1


def test_without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UserError, match=re.escape("pip install 'hadpsgd[images]'")):
        vision.torchvision()


def test_the_command_line_has_the_papers_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Settings] = []
    monkeypatch.setattr("hadpsgd.images.command.train", asked.append)
    assert cli.main(["images", "pictures", "--out", str(tmp_path)]) == 0
    assert asked[0].recipe == Recipe() and asked[0].model == "resnet50"
    assert asked[0].engine == {"strategy": "adpsgd"}  # what is not given is the library's
    monkeypatch.undo()
    assert cli.main(["images", str(tmp_path), "--out", str(tmp_path), "--device", "cpu"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# --- checkpoints and devices ---


def test_gpus_are_numbered_on_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("SLURM_LOCALID", "3")
    assert rank_device.device_of("auto") == torch.device("cuda", 3)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert rank_device.device_of("cuda") == torch.device("cuda", 1) == chosen[-1]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert rank_device.device_of("auto") == torch.device("cpu")
    with pytest.raises(UserError, match="device cpu"):
        rank_device.device_of("cuda")


def test_a_process_that_goes_on_late_takes_no_rows_with_it(tmp_path: Path) -> None:
    """It was stopped, and another one took over from the checkpoint of the first epoch."""
    file = tmp_path / "metrics" / "rank-1.jsonl"
    former = Rows(file, epochs=0)
    former.add({"epoch": 1, "loss": 3.0})
    former.add({"epoch": 2, "loss": 2.5})
    later = Rows(file, epochs=1)
    assert later.rows == rows_of(file) == [{"epoch": 1, "loss": 3.0}]
    later.add({"epoch": 2, "loss": 2.0})
    former.add({"epoch": 3, "loss": 1.5})
    former.close()
    assert rows_of(file) == later.rows == [{"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 2.0}]
    later.close()
    anew = Rows(file, epochs=0)
    assert anew.rows == rows_of(file) == []
    anew.close()
