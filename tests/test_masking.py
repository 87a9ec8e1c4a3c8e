"""SpecAugment and i-vectors left out: what is masked, how often, the same whenever it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_training_resumed import kill_and_resume, replay_again, same_end
from training_data import DIM, FRAMES, launch_of, write_egs
from training_runs import finish, weights, write_examples

from hadpsgd.config import check, run_fingerprint
from hadpsgd.config.settings import Settings
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.masking import Draws, Masks, stretches
from hadpsgd.errors import UserError
from hadpsgd.features.deltas import add_deltas
from hadpsgd.training.data import Feed

pytestmark = pytest.mark.usefixtures("unrecorded")

STREAMS = {"fmllr": 4, "ivector": 3, "logmel": 20}
BINS, LENGTH = 10, 21
SPEC = {"frequency_masks": 1, "frequency_width": 2, "time_masks": 1, "time_width": 2}


def masks(seed: int = 1, *, ivector_dropout: float = 0.0, **spec: int) -> Masks:
    wanted = Settings.model_validate({"spec_augment": spec, "ivector_dropout": ivector_dropout})
    return Masks(wanted, seed, STREAMS, BINS)


def masked(
    wanted: Masks, examples: NDArray[np.int64], epoch: int = 0
) -> dict[str, NDArray[np.bool_]]:
    """Stream -> what is zero of features of ones, [n, frames, dim]."""
    ones = np.ones((len(examples), LENGTH, sum(STREAMS.values())), np.float32)
    wanted(ones, epoch=epoch, examples=examples)
    assert np.isin(ones, (0, 1)).all()
    parts = np.split(ones == 0, np.cumsum(list(STREAMS.values()))[:-1], axis=2)
    return dict(zip(STREAMS, parts, strict=True))


def shares_by_definition(*, masks: int, widest: int, length: int) -> NDArray[np.float64]:
    """Of each place: how often it is covered, all widths and places of a mask gone through."""
    share = np.zeros(length)
    for width in range(widest + 1):
        for first in range(length - width + 1):
            row = np.zeros(length)
            row[first : first + width] = 1
            share += row / (widest + 1) / (length - width + 1)
    return 1 - (1 - share) ** masks


@pytest.mark.parametrize(
    ("count", "widest", "length"), [(1, 8, 40), (2, 27, 40), (1, 4, 21), (3, 21, 21)]
)
def test_each_place_is_masked_as_often_as_the_definition_says(
    count: int, widest: int, length: int
) -> None:
    n = 40000
    covered = stretches(
        Draws(np.arange(n), seed=3, epoch=2), masks=count, widest=widest, length=length
    )
    expected = shares_by_definition(masks=count, widest=widest, length=length)
    deviation = np.sqrt(expected * (1 - expected) / n)
    assert (np.abs(covered.mean(0) - expected) < 4.5 * deviation).all()
    if count == 1:
        widths = np.bincount(covered.sum(1), minlength=widest + 1) / n
        even = 1 / (widest + 1)
        assert (np.abs(widths - even) < 4.5 * np.sqrt(even * (1 - even) / n)).all()


def test_masks_of_an_example_say_nothing_of_those_of_its_neighbour() -> None:
    """Nor of those of the next epoch, of another seed, or of its own next draw."""
    n = 40000
    draws = Draws(np.arange(n), seed=1, epoch=1)
    own, second = draws.uniform(), draws.uniform()
    others = [second, np.roll(own, 1), Draws(np.arange(n), seed=1, epoch=2).uniform()]
    others += [Draws(np.arange(n), seed=2, epoch=1).uniform()]
    for other in others:
        assert abs(np.corrcoef(own, other)[0, 1]) < 4.5 / np.sqrt(n)


@settings(max_examples=25, deadline=None)
@given(
    spec=st.fixed_dictionaries(
        {
            "frequency_masks": st.integers(0, 3),
            "frequency_width": st.integers(1, BINS),
            "time_masks": st.integers(0, 3),
            "time_width": st.integers(1, LENGTH),
        }
    ),
    dropout=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_masks_are_whole_bins_whole_frames_and_whole_ivectors(
    spec: dict[str, int], dropout: float, seed: int
) -> None:
    found = masked(masks(seed, ivector_dropout=dropout, **spec), np.arange(50))
    frames = found["fmllr"].min(axis=2)
    assert (found["fmllr"] == frames[:, :, None]).all()
    bins = found["logmel"][:, :, :BINS].min(axis=1)
    expected = np.tile(bins, 2)[:, None, :] | frames[:, :, None]
    assert (found["logmel"] == expected).all()
    only = bins & ~frames.min(axis=1, keepdims=True)
    assert only.sum(1).max() <= spec["frequency_masks"] * spec["frequency_width"]
    assert frames.sum(1).max() <= spec["time_masks"] * spec["time_width"]
    without = found["ivector"].min(axis=(1, 2), keepdims=True)
    assert (found["ivector"] == without).all()
    assert dropout or not without.any()


def test_as_many_ivectors_are_left_out_as_asked() -> None:
    found = masked(masks(ivector_dropout=0.3), np.arange(20000))
    without = found["ivector"].any(axis=(1, 2))
    assert abs(without.mean() - 0.3) < 4.5 * np.sqrt(0.21 / 20000)
    assert not found["logmel"].any() and not found["fmllr"].any()


def test_a_masked_bin_is_masked_in_its_deltas() -> None:
    """What is zeroed of fused logmel is that bin's energy and the deltas made of it alone."""
    draws = np.random.default_rng(1)
    static = draws.normal(size=(LENGTH, BINS)).astype(np.float32)
    found = masked(masks(frequency_masks=1, frequency_width=5), np.arange(30))["logmel"]
    for zero in found[:, 0]:
        muted = static * ~zero[:BINS]
        fused = add_deltas(static, order=1) * ~zero
        np.testing.assert_array_equal(fused, add_deltas(muted, order=1))


@settings(max_examples=25, deadline=None)
@given(examples=st.lists(st.integers(0, 10**7), min_size=1, max_size=30), epoch=st.integers(0, 99))
def test_masks_do_not_depend_on_the_minibatch(examples: list[int], epoch: int) -> None:
    wanted = masks(7, ivector_dropout=0.5, **SPEC)
    numbers = np.array(examples)
    together = masked(wanted, numbers, epoch)
    alone = [masked(wanted, numbers[i : i + 1], epoch) for i in range(len(numbers))]
    for name, part in together.items():
        np.testing.assert_array_equal(part, np.concatenate([a[name] for a in alone]))


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_examples(tmp_path_factory.mktemp("egs"))


def feed(egs: Path, *, learners: int, rank: int = 0, spec: dict[str, int] | None = None) -> Feed:
    data = Dataset(egs / "train")
    training = Settings.model_validate({"spec_augment": SPEC if spec is None else spec})
    plan = Plan(size=len(data), batch=40, seed=4)
    wanted = Masks.of(training, 4, data)
    device = torch.device("cpu")
    return Feed(data, plan, rank=rank, learners=learners, device=device, masks=wanted)


def test_every_way_of_reading_an_example_gives_the_same_masks(egs: Path) -> None:
    """In its turn, from the middle of an epoch on, as a block, and among any number of learners."""
    whole = feed(egs, learners=1)
    plain = feed(egs, learners=1, spec={})
    assert plain.masks is None
    steps = whole.plan.steps
    for learners in (2, 4):
        for step in (0, steps - 1, steps, 2 * steps + 3):
            parts = [
                next(feed(egs, learners=learners, rank=r).batches(step)) for r in range(learners)
            ]
            one = whole.example(step=step, rank=0)
            together = torch.cat([x for x, _ in parts])
            assert sorted(x.numpy().tobytes() for x in together) == sorted(
                x.numpy().tobytes() for x in one[0]
            )
            for rank, (x, y) in enumerate(parts):
                again, labels = feed(egs, learners=learners).example(step=step, rank=rank)
                assert torch.equal(x, again) and torch.equal(y, labels)
    x, y = whole.example(step=0, rank=0)
    unmasked, labels = plain.example(step=0, rank=0)
    assert torch.equal(y, labels) and not torch.equal(x, unmasked)
    assert torch.equal(torch.where(x == 0, unmasked, x), unmasked)
    later = feed(egs, learners=1)
    order = later.plan.part(epoch=0, step=0)
    epochs = [np.ones((40, FRAMES, DIM), np.float32) for _ in range(2)]
    for epoch, ones in enumerate(epochs):
        assert later.masks is not None
        later.masks(ones, epoch=epoch, examples=order)
    assert not np.array_equal(epochs[0], epochs[1])


def test_held_out_examples_are_read_as_they_are(egs: Path) -> None:
    """Evaluation, and whoever asks the data set itself, sees no mask."""
    masked_feed = feed(egs, learners=1)
    stored = masked_feed.dataset.gather(np.arange(400))[0]
    read = torch.cat([x for x, _ in masked_feed.share(rank=0, learners=1)])
    np.testing.assert_array_equal(read.numpy(), stored)


@pytest.mark.parametrize("run_id", ["adpsgd-4", "hadpsgd-2x2"])
def test_a_replay_masks_as_the_run_did(run_id: str, egs: Path, tmp_path: Path) -> None:
    """Learners that share their work, whoever took the block."""
    finish(tmp_path, egs, run_id, spec_augment=SPEC)
    assert replay_again(tmp_path, egs, run_id) == [0]


def test_a_killed_run_goes_on_with_the_same_masks(egs: Path, tmp_path: Path) -> None:
    training: dict[str, Any] = {"checkpoint_minutes": 0.001, "epochs": 6, "spec_augment": SPEC}
    kill_and_resume(tmp_path / "broken", egs, "dpsgd-4", 1, **training)
    same_end(tmp_path, egs, "dpsgd-4", **training)
    plain = finish(tmp_path / "plain", egs, "dpsgd-4", epochs=6)
    assert not torch.equal(weights(tmp_path / "broken/out"), plain)


def config(**training: Any) -> dict[str, Any]:
    return {"name": "x", "corpus": {"kind": "builtin"}, "training": training}


@pytest.mark.parametrize(
    ("training", "sections", "message"),
    [
        ({"spec_augment": {"frequency_masks": 1, "frequency_width": 41}}, {}, "the 40 mel bins"),
        ({"spec_augment": {"time_masks": 1, "time_width": 22}}, {}, "21 frames of egs.frames"),
        (
            {"runs": [{"name": "odd", "spec_augment": {"time_masks": 1}}]},
            {"features": {"normalise": "none"}},
            "run 'odd': training.spec_augment: .* features.normalise is none",
        ),
        (
            {"spec_augment": {"frequency_masks": 1}},
            {"features": {"input": ["fmllr"]}, "alignment": {"kind": "sat"}},
            "need logmel in features.input",
        ),
        ({"ivector_dropout": 0.1}, {}, "needs ivector in features.input"),
    ],
)
def test_masks_that_do_not_fit_the_input_are_refused(
    training: dict[str, Any], sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(config(**training) | sections, "test")


def test_examples_of_before_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = write_egs(tmp_path / "egs", 50, 1)
    meta = json.loads((folder / "meta.json").read_text())
    del meta["bins"]
    (folder / "meta.json").write_text(json.dumps(meta))
    training = Settings.model_validate({"spec_augment": SPEC})
    with pytest.raises(UserError, match=r"the 0 mel bins[\s\S]*`hadpsgd egs` again"):
        Masks.of(training, 1, Dataset(folder))


def test_without_masks_a_run_keeps_its_folder(tmp_path: Path) -> None:
    """Its key is what it would be if there were no such settings; with them it is another."""
    plain = launch_of(tmp_path / "a", {"strategy": "single"})
    off = launch_of(tmp_path / "b", {"strategy": "single"}, spec_augment={"time_masks": 0})
    on = launch_of(tmp_path / "c", {"strategy": "single"}, spec_augment={"time_masks": 1})
    keys = [run_fingerprint(launch.config, launch.run_id) for launch in (plain, off, on)]
    assert keys[0] == keys[1] != keys[2]
