"""Which utterances are searched together, and what a network says of their frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hadpsgd.config import check
from hadpsgd.decoding.decode import dealt, dealt_by_frames, in_turn
from hadpsgd.decoding.network import by_length
from hadpsgd.errors import UserError


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 9))
def test_rounds_are_even_and_have_a_batch_for_each(number: int, size: int, jobs: int) -> None:
    rounds = dealt(range(number), size=size, jobs=jobs)
    assert [item for batches in rounds for item in in_turn(batches)] == list(range(number))
    sizes = [len(batch) for batches in rounds for batch in batches]
    assert min(sizes) >= 1 and max(sizes) <= size and max(sizes) - min(sizes) <= 1
    assert all(len(batches) == min(jobs, sum(map(len, batches))) for batches in rounds)
    assert len(rounds) == 1 or all(len(batches) == jobs for batches in rounds) or size == 1


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=200), st.integers(1, 9))
def test_batches_by_frames_hold_no_more_than_they_may(lengths: list[int], jobs: int) -> None:
    frames = {str(number): length for number, length in enumerate(lengths)}
    rounds = dealt_by_frames(list(frames), frames, most=1500, jobs=jobs)
    assert [item for batches in rounds for item in in_turn(batches)] == list(frames)
    assert all(batch for batches in rounds for batch in batches)
    assert all(len(batches) <= jobs for batches in rounds)
    for batch in (batch for batches in rounds for batch in batches):
        assert len(batch) == 1 or sum(frames[item] for item in batch) <= 1500
    # few rounds: of two that follow, what begins the second did not fit the first
    for before, after in pairwise(rounds):
        sums = [sum(frames[item] for item in batch) for batch in before]
        place = sum(map(len, before)) % jobs
        assert len(before) == jobs and sums[place] + frames[after[0][0]] > 1500


def test_utterances_of_like_length_go_together(tmp_path: Path) -> None:
    (tmp_path / "utt2num_frames").write_text("a 20\nb 300\nc 20\n")
    table = [tmp_path / "utt2num_frames"]
    assert by_length(["a", "b", "c"], table) == ["b", "a", "c"]
    assert by_length(["c", "a"], []) == ["c", "a"]
    table[0].write_text("a 20\nb many\n")
    with pytest.raises(UserError, match=r"utt2num_frames: 'b many': not a whole number"):
        by_length(["a", "b"], table)


def test_network_scores_are_log_posteriors_minus_log_priors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from hadpsgd.decoding import network
    from hadpsgd.models.blstm import BLSTM
    from hadpsgd.models.build import ModelMeta, SavedShape, save_model

    shape = SavedShape(layers=1, cells=8, projection=6, dropout=0.0)
    model = BLSTM(shape, input_dim=5, num_pdfs=4, seed=3)
    priors = torch.tensor([0.5, 0.3, 0.2, 0.0]).log()
    meta = ModelMeta(shape, 5, ("logmel",), 4, priors)
    save_model(tmp_path / "final.pt", model, meta)
    features = np.random.default_rng(0).normal(size=(13, 5)).astype(np.float32)

    class Fake:
        utterances = ("u",)

        def __init__(self, *_: object) -> None: ...

        def __getitem__(self, _: str) -> NDArray[np.float32]:
            return features

    @dataclass
    class Inputs:
        input: tuple[str, ...] = ("logmel",)

    @dataclass
    class FakeConfig:
        features: Inputs

    monkeypatch.setattr(network, "Fusion", Fake)
    monkeypatch.setattr(network, "read_data", lambda _: None)
    make: Callable[..., network.NetworkScorer] = network.NetworkScorer
    places = {"models": (tmp_path / "final.pt",), "data": tmp_path, "streams": tmp_path}
    scorer = make(config=FakeConfig(Inputs()), **places, device="cpu")
    got = scorer()("u")
    assert isinstance(got, np.ndarray)
    with torch.no_grad():
        posterior = torch.softmax(model(torch.from_numpy(features)[None])[0], 1).numpy()
    wanted = np.log(posterior[:, :3]) - np.log([0.5, 0.3, 0.2])
    assert got[:, :3] == pytest.approx(wanted, abs=1e-4)
    assert np.all(got[:, 3] < -1000)
    with pytest.raises(UserError, match=r"trained on \['logmel'\], config has"):
        make(config=FakeConfig(Inputs(("fmllr",))), **places, device="cpu")()


@pytest.mark.parametrize(
    ("wanted", "gpus", "place"),
    [("cpu", 1, "cpu"), ("auto", 0, "cpu"), ("auto", 1, "cuda"), ("cuda", 1, "cuda")],
)
def test_the_device_is_the_configs(
    wanted: str, gpus: int, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules give none, and the commands took the CPU."""
    import torch

    from hadpsgd.decoding.network import NetworkScorer

    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    content = {"name": "x", "corpus": {"kind": "builtin"}, "decoding": {"device": wanted}}
    scorer = NetworkScorer(
        config=check(content, "x"), models=(tmp_path,), data=tmp_path, streams=tmp_path
    )
    assert scorer.place == place
    assert replace(scorer, device="cpu").place == "cpu"


def test_scores_are_made_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, features and priors meet on one device; torch refuses two, as here CPU and meta."""
    import torch

    from hadpsgd.decoding import network
    from hadpsgd.models.blstm import BLSTM
    from hadpsgd.models.build import SavedShape
    from hadpsgd.models.long_input import hidden

    model = BLSTM(
        SavedShape(layers=2, cells=4, projection=3, dropout=0.0),
        input_dim=5,
        num_pdfs=7,
        device="meta",
    ).eval()
    features, priors = torch.empty(11, 5), torch.empty(7)
    states = hidden(model, features.to("meta"))
    there = network.log_likelihoods(model, states, priors.to("meta"))
    assert (there.device.type, there.shape) == ("meta", (11, 7))
    with pytest.raises(RuntimeError, match="device"):
        hidden(model, features)
    with pytest.raises(RuntimeError, match="device"):
        network.log_likelihoods(model, states, priors)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    make: Callable[..., network.NetworkScorer] = network.NetworkScorer
    scorer = make(config=None, models=(tmp_path,), data=tmp_path, streams=tmp_path, device="cuda")
    for asked in (scorer.share, scorer):
        with pytest.raises(UserError, match=r"device cuda: torch .*Set decoding\.device"):
            asked()
