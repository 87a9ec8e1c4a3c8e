"""How bf16 is computed: measured once, the same for all learners, kept for whoever comes later."""

from __future__ import annotations

import argparse
import copy
import gc
import json
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from training_data import write_config, write_egs
from training_runs import rank_of_run

from hadpsgd.config import Config, load
from hadpsgd.config.training import Run
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.errors import UserError
from hadpsgd.models.blstm import BLSTM
from hadpsgd.rerun import command as rerun
from hadpsgd.rerun.original import Original
from hadpsgd.training import arithmetic, replay_command
from hadpsgd.training.arithmetic import AUTOCAST, BF16_LSTM, CHOICES, FP32
from hadpsgd.training.saved import complete

SIZE = arithmetic.Size(subsequences=2, frames=4)


SHAPE = SimpleNamespace(layers=2, cells=8, projection=4, dropout=0.5, frames_per_step=1)


def model() -> BLSTM:
    return BLSTM(SHAPE, input_dim=6, num_pdfs=5)


def meeting(rank: int = 0, world: int = 1, store: dist.Store | None = None) -> Meeting:
    place = Place(rank=rank, world=world, size=1)
    return Meeting(
        place=place, local_world=world, host="h", store=store, timeout=timedelta(seconds=120)
    )


def fastest_is(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever this machine is good at."""
    seconds = {choice: 1.0 if choice == name else 2.0 for choice in CHOICES}
    monkeypatch.setattr(arithmetic, "measure", lambda *_, **__: seconds)


def test_the_fastest_is_taken_and_fp32_among_equals() -> None:
    assert arithmetic.fastest({FP32: 2.0, AUTOCAST: 1.5, BF16_LSTM: 1.0}) == BF16_LSTM
    assert arithmetic.fastest({FP32: 2.0, AUTOCAST: 1.5, BF16_LSTM: 1.6}) == AUTOCAST
    assert arithmetic.fastest({FP32: 1.0, AUTOCAST: 1.0, BF16_LSTM: 1.0}) == FP32


def test_what_a_processor_cannot_do_is_not_taken() -> None:
    class Unable(BLSTM):
        def loss(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            if torch.is_autocast_enabled("cpu"):
                raise RuntimeError("could not create a primitive descriptor")
            return super().loss(x, targets)

    unable = Unable(SHAPE, input_dim=6, num_pdfs=5)
    assert arithmetic.measure(unable, SIZE).keys() == {FP32}


@pytest.mark.parametrize("choice", [AUTOCAST, BF16_LSTM])
def test_a_processor_that_cannot_what_was_kept_says_so(
    choice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that began with AVX512 goes on with AVX2: oneDNN's error was a traceback."""
    loss = BLSTM.loss

    def unable(own: BLSTM, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("could not create a primitive descriptor for an LSTM")
        return loss(own, x, targets)

    def able(own: BLSTM, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):  # no processor is asked for bf16
            return loss(own, x, targets)

    def begin(rank: int = 0, store: dist.Store | None = None) -> str:
        place = meeting(rank, 1 if store is None else 2, store)
        return arithmetic.agree(
            "bf16", model(), SIZE, run_id="r", meeting=place, folder=tmp_path
        )  # fmt: skip

    monkeypatch.setattr(BLSTM, "loss", unable)
    assert begin() == FP32  # measured here
    arithmetic.keep(tmp_path, choice)
    with pytest.raises(UserError, match=f"cannot compute by {choice}.*on one that can"):
        begin()
    store = dist.HashStore()  # rank 0's host can, that of rank 1 cannot
    monkeypatch.setattr(BLSTM, "loss", able)
    assert begin(0, store) == choice
    monkeypatch.setattr(BLSTM, "loss", unable)
    with pytest.raises(UserError, match=f"cannot compute by {choice}"):
        begin(1, store)


def test_going_on_as_was_chosen_draws_nothing(tmp_path: Path) -> None:
    arithmetic.keep(tmp_path, BF16_LSTM)
    mine = model()
    drawn = torch.get_rng_state()
    arithmetic.agree("bf16", mine, SIZE, run_id="r", meeting=meeting(), folder=tmp_path)
    assert torch.equal(torch.get_rng_state(), drawn) and mine.own_layers
    assert all(parameter.grad is None for parameter in mine.parameters())


def test_a_measurement_leaves_no_trace() -> None:
    measured = model()
    before = {name: value.clone() for name, value in measured.state_dict().items()}
    torch.manual_seed(5)
    drawn = torch.get_rng_state()
    found = arithmetic.measure(measured, SIZE)
    assert {FP32, BF16_LSTM} <= found.keys() <= set(CHOICES)
    assert all(0 < seconds < float("inf") for seconds in found.values())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(parameter.grad is None for parameter in measured.parameters())
    assert all(torch.equal(value, before[n]) for n, value in measured.state_dict().items())
    assert not measured.own_layers


def test_rank_0_decides_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One measurement, whatever the others would find; another start makes none."""
    measured = []

    def measure(*_: object, **__: object) -> dict[str, float]:
        measured.append(1)
        return {FP32: 3.0, AUTOCAST: 2.0, BF16_LSTM: 1.0}

    monkeypatch.setattr(arithmetic, "measure", measure)
    for _ in range(2):
        store = dist.HashStore()

        def agree(rank: int, store: dist.Store = store) -> tuple[str, bool]:
            mine = model()
            choice = arithmetic.agree(
                "bf16",
                mine,
                SIZE,
                run_id="r",
                meeting=meeting(rank, 3, store),
                folder=tmp_path / str(rank),
            )
            return choice, mine.own_layers

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(agree, [1, 2, 0])) == [(BF16_LSTM, True)] * 3
    assert len(measured) == 1


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp64"])
def test_other_precisions_choose_nothing(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastest_is(monkeypatch, BF16_LSTM)
    mine = model()
    found = arithmetic.agree(precision, mine, SIZE, run_id="r", meeting=meeting(), folder=tmp_path)
    assert found == precision == arithmetic.recorded(precision, tmp_path)
    assert not mine.own_layers and not list(tmp_path.iterdir())


def test_what_was_kept_counts(tmp_path: Path) -> None:
    assert arithmetic.kept(tmp_path) is None
    checkpoint = tmp_path / "000000000-000000004"
    checkpoint.mkdir()
    (checkpoint / f"node-0-of-1-{'0' * 16}.pt").touch()
    assert arithmetic.kept(tmp_path) == AUTOCAST  # of a version that knew no other
    for choice in CHOICES:
        arithmetic.keep(tmp_path, choice)
        assert arithmetic.kept(tmp_path) == arithmetic.recorded("bf16", tmp_path) == choice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"arithmetic": "fp8"}'])
def test_a_file_that_names_no_choice_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / arithmetic.FILE).write_text(text)
    with pytest.raises(UserError, match="names none of fp32, autocast, bf16-lstm"):
        arithmetic.kept(tmp_path)


def train(folder: Path, egs: Path) -> dict[str, object]:
    """The summary, without the time it took."""
    assert rank_of_run(0, folder / "config.yaml", "single", egs, folder / "out") == 0
    found: dict[str, object] = json.loads((folder / "out/summary.json").read_text())
    return {name: value for name, value in found.items() if name != "seconds"}


def write(folder: Path) -> Config:
    return load(write_config(folder, [{"strategy": "single"}], precision="bf16", epochs=1))


def kept_in(folder: Path) -> Path:
    (found,) = (folder / "results/checkpoints").glob("*/*")
    return found


def replay(folder: Path, egs: Path) -> int:
    parser = argparse.ArgumentParser()
    replay_command.configure(parser)
    places = ["--config", str(folder / "config.yaml"), "--run-id", "single"]
    return replay_command.run(parser.parse_args([*places, "--egs", str(egs / "train")]))


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples to train on and held-out ones."""
    folder = tmp_path_factory.mktemp("egs")
    for number, name in enumerate(("train", "dev")):
        write_egs(folder / name, 40, number)
    return folder


def test_a_run_keeps_its_choice(
    egs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Other choices give other bits; a later start and a replay those of the first."""
    weights = set()
    choices = arithmetic.measure(model(), SIZE).keys()
    for choice in choices:
        fastest_is(monkeypatch, choice)
        folder = tmp_path / choice
        write(folder)
        first = train(folder, egs)
        assert f"single: computes by {choice}; measured frames/s: " in capfd.readouterr().err
        assert first["arithmetic"] == choice
        weights.add(first["weights"])
        fastest_is(monkeypatch, FP32 if choice != FP32 else BF16_LSTM)
        assert replay(folder, egs) == 0
        for checkpoint in complete(kept_in(folder)):
            shutil.rmtree(checkpoint.folder)
        assert train(folder, egs) == first
        assert f"single: computes by {choice}, as chosen before" in capfd.readouterr().err
    assert len(weights) == len(choices)


@pytest.mark.parametrize(
    ("summary", "choice"), [({"arithmetic": BF16_LSTM}, BF16_LSTM), ({}, AUTOCAST)]
)
def test_a_rerun_takes_the_originals(
    summary: dict[str, str],
    choice: str,
    egs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """autocast, where it was made by a version that knew no other."""
    able = arithmetic.measure(model(), SIZE)
    fastest_is(monkeypatch, FP32)
    config = write(tmp_path)
    original = Original(key="single-0", config=config, provenance={}, summary=summary)
    made_in = tmp_path / "results" / config.name
    made_in.mkdir(parents=True, exist_ok=True)
    (made_in / "egs").symlink_to(egs, target_is_directory=True)
    rerun.keep_arithmetic(original, config)
    assert arithmetic.kept(kept_in(tmp_path)) == choice
    if choice in able:
        assert train(tmp_path, egs)["arithmetic"] == choice


def test_where_gradients_are_shared_there_are_no_graphs() -> None:
    """Hooks send them, which a graph would not call; local's first epochs share them, too."""
    cuda = torch.device("cuda")

    def able(device: torch.device = cuda, dropout: float = 0.0, **run: Any) -> bool:
        wanted = Run.model_validate({"strategy": "adpsgd", "learners": 4, **run})
        model = SimpleNamespace(dropout=dropout, input_dropout=0.0, output_dropout=0.0)
        settings: Any = SimpleNamespace(run=wanted, model=model)
        return arithmetic.can_capture(settings, device)

    assert able() and able(strategy="local") and able(strategy="dpsgd")
    assert not able(torch.device("cpu"))
    assert not able(dropout=0.1)
    assert not able(strategy="ssgd") and not able(strategy="ddp")
    assert not able(strategy="hadpsgd", super_learner=2)
    assert not able(strategy="local", synchronous_epochs=1)
    assert not able(launcher="virtual")


def test_what_has_no_room_in_a_gpus_memory_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """fp32 needs twice as much as bf16: a run in bf16 goes on without it."""
    usual = BLSTM.loss

    def loss(self: BLSTM, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return usual(self, x, targets)

    monkeypatch.setattr(BLSTM, "loss", loss)
    assert FP32 not in arithmetic.measure(model(), SIZE)


def test_nothing_of_a_measurement_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the model and its gradients, without waiting for the garbage collector."""
    copies: list[weakref.ref[BLSTM]] = []
    usual = copy.deepcopy

    def deepcopy(found: BLSTM) -> BLSTM:
        copied = usual(found)
        copies.append(weakref.ref(copied))
        return copied

    monkeypatch.setattr(arithmetic.copy, "deepcopy", deepcopy)
    gc.disable()
    try:
        arithmetic.measure(model(), SIZE)
        assert [copied() for copied in copies] == [None]
    finally:
        gc.enable()
