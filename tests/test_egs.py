"""Examples: the shuffle, the sharing out among learners, the shards on disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline
from training_data import write_examples

from hadpsgd.cli import main
from hadpsgd.egs.chunks import starts
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.layout import Layout
from hadpsgd.egs.rows import Files
from hadpsgd.egs.shuffle import Permutation, RunOrder
from hadpsgd.egs.tempo import Tempo
from hadpsgd.errors import UserError


class TestShuffle:
    @given(st.integers(1, 5000), st.integers(0, 2**32), st.integers(0, 50))
    def test_it_is_a_permutation(self, size: int, seed: int, epoch: int) -> None:
        order = Permutation(size, seed, epoch)(np.arange(size))
        np.testing.assert_array_equal(np.sort(order), np.arange(size))

    def test_parts_are_those_of_the_whole(self) -> None:
        order = Permutation(10_007, 3, 1)
        np.testing.assert_array_equal(order(np.arange(10_007))[500:900], order(np.arange(500, 900)))

    def test_seeds_and_epochs_give_other_orders(self) -> None:
        orders = [Permutation(1000, *seeds)(np.arange(1000)) for seeds in [(1, 0), (1, 1), (2, 0)]]
        for number, order in enumerate(orders):
            for other in orders[:number]:
                assert (order == other).mean() < 0.01

    @pytest.mark.parametrize("size", [4096, 40_000, 65_537])
    def test_it_is_well_mixed(self, size: int) -> None:
        order = Permutation(size, 11, 4)(np.arange(size)).astype(float)
        position = np.arange(size)
        bound = 4.5 / np.sqrt(size)  # of a correlation of independent numbers
        assert abs(np.corrcoef(position, order)[0, 1]) < bound
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < bound
        # where the elements of each 16th of the order come from: chi-squared, 225 degrees
        table = np.histogram2d(position, order, bins=16)[0]
        chi = ((table - table.mean()) ** 2 / table.mean()).sum()
        assert 130 < chi < 340
        # as many fixed points and neighbours kept as in a random order (Poisson, mean 1)
        assert (order == position).sum() < 9
        assert (np.diff(order) == 1).sum() < 9


class TestRunOrder:
    @given(st.integers(1, 3000), st.integers(1, 9), st.integers(0, 2**32), st.integers(0, 50))
    def test_it_is_a_permutation_that_keeps_runs(
        self, size: int, run: int, seed: int, epoch: int
    ) -> None:
        order = RunOrder(size, seed, epoch, run=run)(np.arange(size))
        np.testing.assert_array_equal(np.sort(order), np.arange(size))
        if 1 < run <= size // RunOrder.FEWEST_RUNS:
            whole = order[: size // run * run].reshape(-1, run)
            assert (np.diff(whole) % size == 1).all()

    def test_whole_runs_and_all_of_them(self) -> None:
        """A size of which runs of 3 are left over."""
        orders = [RunOrder(3001, 5, epoch, run=3) for epoch in range(3)]
        found = [order(np.arange(3001)) for order in orders]
        for order, whole in zip(orders, found, strict=True):
            np.testing.assert_array_equal(np.sort(whole), np.arange(3001))
            assert (np.diff(whole[:3000].reshape(-1, 3)) % 3001 == 1).all()
            np.testing.assert_array_equal(order(np.arange(100, 207)), whole[100:207])
        # runs begin elsewhere in every epoch, and what is left over changes
        assert len({int(whole[3000]) for whole in found}) == 3
        assert len({int(whole[0]) % 3 for whole in found}) > 1

    def test_small_sets_are_shuffled_one_by_one(self) -> None:
        order = RunOrder(2999, 1, 1, run=3)(np.arange(2999))
        np.testing.assert_array_equal(order, Permutation(2999, 1, 1)(np.arange(2999)))
        assert (np.diff(order) == 1).sum() < 9


class TestPlan:
    @given(st.integers(1, 3000), st.integers(1, 400), st.integers(1, 9), st.integers(0, 3))
    def test_every_subsequence_once_an_epoch(
        self, size: int, batch: int, learners: int, epoch: int
    ) -> None:
        plan = Plan(size=size, batch=batch, seed=5)
        seen, largest = [], 0
        for step in range(plan.steps):
            parts = [
                plan.part(epoch=epoch, step=step, rank=rank, learners=learners)
                for rank in range(learners)
            ]
            sizes = [len(part) for part in parts]
            assert max(sizes) - min(sizes) <= 1
            largest = max(largest, sum(sizes))
            seen += parts
        assert largest <= batch
        np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(size))

    @given(st.integers(50, 900), st.integers(8, 64), st.integers(1, 8))
    def test_learners_share_out_the_same_global_batch(
        self, size: int, batch: int, learners: int
    ) -> None:
        plan = Plan(size=size, batch=batch, seed=2)
        for step in (0, plan.steps - 1):
            whole = plan.part(epoch=1, step=step)
            parts = [
                plan.part(epoch=1, step=step, rank=rank, learners=learners)
                for rank in range(learners)
            ]
            np.testing.assert_array_equal(np.sort(np.concatenate(parts)), whole)

    def test_steps_have_nearly_one_size(self) -> None:
        plan = Plan(size=1000, batch=256, seed=1)
        assert [len(plan.part(epoch=0, step=step)) for step in range(plan.steps)] == [250] * 4

    def test_every_epoch_and_seed_has_steps_of_its_own(self) -> None:
        """What is in the first step of an epoch is in that of another by chance only."""
        plans = [(seed, epoch) for seed in (1, 2) for epoch in range(5)]
        parts = [
            set(Plan(size=2000, batch=200, seed=seed).part(epoch=epoch, step=0).tolist())
            for seed, epoch in plans
        ]
        for number, part in enumerate(parts):
            assert all(len(part & other) < 50 for other in parts[:number])  # 20 by chance

    def test_a_reader_follows_the_epoch(self, tmp_path: Path) -> None:
        store(tmp_path / "egs", 100)
        dataset, plan = Dataset(tmp_path / "egs"), Plan(size=100, batch=10, seed=1)
        first = [next(dataset.batches(plan, dataset.gather, epoch=e))[0] for e in range(3)]
        for a, b in ((0, 1), (1, 2), (0, 2)):
            assert not np.array_equal(first[a], first[b])


def store(folder: Path, size: int, dim: int = 5, frames: int = 4, per_shard: int = 30,
          dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Examples of known content."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    features = rng.normal(size=(size, frames, dim)).astype(np.float32)
    labels = rng.integers(0, 9, size=(size, frames)).astype(np.int32)
    write_examples(folder, features, labels, pdfs=9, per_shard=per_shard, dtype=dtype)
    return features, labels


class TestDataset:
    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_gather(self, tmp_path: Path, dtype: str) -> None:
        features, labels = store(tmp_path / "egs", 100, dtype=dtype)
        dataset = Dataset(tmp_path / "egs")
        assert len(dataset) == 100 and len(dataset.meta["shards"]) == 4
        indices = np.array([99, 0, 29, 30, 31, 60, 0])
        found, ids = dataset.gather(indices)
        assert found.dtype == np.float32
        tolerance = 0 if dtype == "float32" else 2e-3
        np.testing.assert_allclose(found, features[indices], atol=tolerance)
        np.testing.assert_array_equal(ids, labels[indices])
        dataset.verify()

    def test_shards_are_plain_npy_files(self, tmp_path: Path) -> None:
        features, _ = store(tmp_path / "egs", 70)
        shards = [np.load(tmp_path / f"egs/examples.{n:04}.npy", mmap_mode="r") for n in range(3)]
        np.testing.assert_array_equal(np.concatenate([s["logmel"] for s in shards]), features)

    @pytest.mark.parametrize("learners", [1, 3])
    def test_an_epoch_over_all_learners(self, tmp_path: Path, learners: int) -> None:
        features, labels = store(tmp_path / "egs", 100)
        dataset, plan = Dataset(tmp_path / "egs"), Plan(size=100, batch=16, seed=1)
        batches = [
            b
            for r in range(learners)
            for b in dataset.batches(plan, dataset.gather, epoch=2, rank=r, learners=learners)
        ]
        found, ids = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        np.testing.assert_array_equal(rows(found, ids), rows(features, labels))

    def test_a_position_is_restored_exactly(self, tmp_path: Path) -> None:
        store(tmp_path / "egs", 100)
        dataset, plan = Dataset(tmp_path / "egs"), Plan(size=100, batch=16, seed=1)
        whole = list(dataset.batches(plan, dataset.gather, epoch=3, rank=1, learners=2))
        assert len(whole) == plan.steps == 7
        other = Dataset(tmp_path / "egs")
        resumed = list(other.batches(plan, other.gather, epoch=3, rank=1, learners=2, start=4))
        for expected, found in zip(whole[4:], resumed, strict=True):
            for ours, theirs in zip(expected, found, strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_neighbours_are_read_at_once(self, tmp_path: Path) -> None:
        features, labels = store(tmp_path / "egs", 100)
        dataset = Dataset(tmp_path / "egs")
        indices = np.array([3, 4, 5, 28, 29, 30, 31, 99])  # shards end after 29, 59 and 89
        found, ids = dataset.gather(indices)
        assert (dataset.rows.reads, dataset.rows.files.opened) == (4, 3)
        np.testing.assert_array_equal(found, features[indices])
        np.testing.assert_array_equal(ids, labels[indices])

    @pytest.mark.parametrize("readers", [2, 5])
    def test_several_threads_read_the_same(self, tmp_path: Path, readers: int) -> None:
        features, labels = store(tmp_path / "egs", 100)
        dataset = Dataset(tmp_path / "egs", readers=readers)
        for indices in (np.arange(100), np.array([7]), np.array([], np.int64)):
            found, ids = dataset.gather(indices)
            np.testing.assert_array_equal(found, features[indices])
            np.testing.assert_array_equal(ids, labels[indices])

    def test_no_more_files_are_open_than_may_be(self, tmp_path: Path) -> None:
        paths = [tmp_path / str(number) for number in range(9)]
        for path in paths:
            path.write_text(path.name)
        files = Files(paths=paths, limit=3)
        for number in (0, 1, 2, 0, 3, 0, 1, 8):
            with files.reading(number) as descriptor:
                assert os.pread(descriptor, 9, 0).decode() == str(number)
        assert files.opened == 6  # 1 is the one that was closed, and opened again
        with contextlib.ExitStack() as held:
            for number in range(5):  # more at once than may stay open: none is closed when read
                descriptor = held.enter_context(files.reading(number))
                assert os.pread(descriptor, 9, 0).decode() == str(number)

    def test_a_reader_may_stop_early(self, tmp_path: Path) -> None:
        store(tmp_path / "egs", 100)
        dataset = Dataset(tmp_path / "egs")
        batches = dataset.batches(Plan(size=100, batch=5, seed=1), dataset.gather, epoch=0)
        assert len(next(batches)[0]) == 5
        batches.close()  # type: ignore[attr-defined]

    def test_too_many_learners(self, tmp_path: Path) -> None:
        store(tmp_path / "egs", 20)
        dataset, plan = Dataset(tmp_path / "egs"), Plan(size=20, batch=5, seed=1)
        with pytest.raises(UserError, match="too few for 8 learners"):
            next(dataset.batches(plan, dataset.gather, epoch=0, rank=0, learners=8))

    def test_faults_are_one_line(self, tmp_path: Path) -> None:
        folder = tmp_path / "egs"
        store(folder, 100)
        shard = folder / "examples.0002.npy"
        content = shard.read_bytes()
        faults: list[tuple[bytes | None, str]] = [
            (content[:-100], "examples.0002.npy: truncated shard"),
            (content[:50], "examples.0002.npy: not a shard"),
            (content.replace(b"'<f4'", b"'<f2'"), "and meta.json says"),
            (None, "examples.0002.npy: missing shard"),
        ]
        for broken, message in faults:
            shard.unlink() if broken is None else shard.write_bytes(broken)
            with pytest.raises(UserError, match=message):
                Dataset(folder)
        shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(UserError, match=r"examples.0002.npy: damaged shard"):
            Dataset(folder).verify()
        found = []
        for rank in range(3):  # each compares its share
            try:
                Dataset(folder).verify(rank=rank, learners=3)
            except UserError:
                found.append(rank)
        assert found == [2]
        assert main(["check-egs", str(folder)]) == 2
        shard.write_bytes(content)
        assert main(["check-egs", str(folder)]) == 0
        counts = folder / "pdf_counts.npy"
        content = counts.read_bytes()
        for broken in (b"", content[:-10], b"not numpy"):
            counts.write_bytes(broken)
            with pytest.raises(UserError, match=r"pdf_counts.npy: cannot be read"):
                Dataset(folder)
        np.save(counts, np.zeros(8, np.int64))
        with pytest.raises(UserError, match=r"shape \(8,\) instead of \(9,\)"):
            Dataset(folder)
        (folder / "meta.json").write_text("{}")
        with pytest.raises(UserError, match="examples of format"):
            Dataset(folder)
        with pytest.raises(UserError, match="no examples here"):
            Dataset(tmp_path)

    def test_a_shard_cut_while_training_is_noticed(self, tmp_path: Path) -> None:
        store(tmp_path / "egs", 100)
        dataset = Dataset(tmp_path / "egs")
        shard = tmp_path / "egs/examples.0000.npy"
        shard.write_bytes(shard.read_bytes()[:300])
        with pytest.raises(UserError, match=r"examples.0000.npy: truncated shard"):
            dataset.gather(np.arange(100))


def rows(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    flat = np.concatenate([features.reshape(len(features), -1), labels], axis=1)
    return flat[np.lexsort(flat.T)]


def cut(features: np.ndarray, labels: np.ndarray, frames: int, *, pad: bool = False,
        shift: int = 0) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Examples of an utterance, as they are read."""
    layout = Layout.plain(frames=frames, dim=features.shape[1])
    first = starts(len(labels), frames=frames, pad=pad, shift=shift)
    rows = layout.rows({"logmel": features}, labels, first)
    out = np.empty((len(rows), frames, features.shape[1]), np.float32)
    layout.inputs(rows, None, out=out)
    return out, rows["labels"]


def test_cut_drops_or_pads_the_rest() -> None:
    features = np.arange(50, dtype=np.float32).reshape(25, 2)
    labels = np.arange(25, dtype=np.int32)
    dropped, ids = cut(features, labels, 10)
    assert dropped.shape == (2, 10, 2)
    np.testing.assert_array_equal(ids.ravel(), np.arange(20))
    padded, ids = cut(features, labels, 10, pad=True)
    assert padded.shape == (3, 10, 2)
    np.testing.assert_array_equal(ids[2], [20, 21, 22, 23, 24, -1, -1, -1, -1, -1])
    np.testing.assert_array_equal(padded.reshape(30, 2)[:25], features)
    assert not padded[2, 5:].any()
    assert len(cut(features[:4], labels[:4], 10)[1]) == 0


@given(st.integers(0, 60), st.integers(1, 12), st.integers(1, 15))
def test_overlapping_subsequences(length: int, frames: int, shift: int) -> None:
    """Every start that fits, and nothing but frames of the utterance in their order."""
    features = np.arange(length, dtype=np.float32)[:, None]
    pieces, ids = cut(features, np.arange(length, dtype=np.int32), frames, shift=shift)
    expected = [s for s in range(0, length, shift) if s + frames <= length]
    np.testing.assert_array_equal(ids, np.array(expected).reshape(-1, 1) + np.arange(frames))
    np.testing.assert_array_equal(pieces[:, :, 0], ids)


@given(st.integers(5, 60), st.floats(0.5, 2.0), st.integers(0, 99))
def test_another_tempo_follows_curves(length: int, tempo: float, seed: int) -> None:
    """SciPy's Hermite cubics with Catmull and Rom's slopes; a parabola is met exactly inside."""
    features = np.random.default_rng(seed).normal(size=(length, 3)).astype(np.float32)
    padded = np.concatenate([features[:1], features, features[-1:]]).astype(np.float64)
    slopes = (padded[2:] - padded[:-2]) / 2
    copied = max(1, round(length / tempo))
    places = np.clip((np.arange(copied) + 0.5) * length / copied - 0.5, 0, length - 1)
    exact = CubicHermiteSpline(np.arange(length), features, slopes)(places)
    found = Tempo(frames=length, tempo=tempo).stretched(features)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, features if tempo == 1.0 else exact, atol=1e-5)
    parabola = np.square(np.arange(length)[:, None] / length).astype(np.float32)
    inside = (places >= 1) & (places <= length - 2)
    bent = Tempo(frames=length, tempo=tempo).stretched(parabola)[:, 0]
    np.testing.assert_allclose(bent[inside], (places[inside] / length) ** 2, atol=1e-6)


@given(st.integers(1, 80), st.floats(0.5, 2.0))
def test_another_tempo_keeps_order_and_range(length: int, tempo: float) -> None:
    """A ramp stays a ramp of the right slope but at its ends; labels are those of frames at most
    half one away."""
    ramp = np.arange(length, dtype=np.float32)[:, None]
    labels = np.arange(length, dtype=np.int32)
    features, ids = (at := Tempo(frames=length, tempo=tempo)).stretched(ramp), at.nearest(labels)
    assert len(features) == len(ids) == max(1, round(length / tempo))
    # beyond its ends a ramp is level, which a cubic feels between the first two frames
    assert np.all(np.abs(features[:, 0] - ids) <= 0.5 + 0.08)
    assert ids[0] <= tempo and ids[-1] >= length - 1 - tempo
    inside = features[(features[:, 0] > 1) & (features[:, 0] < length - 2), 0]
    np.testing.assert_allclose(np.diff(inside), length / len(ids), rtol=1e-3)
    np.testing.assert_array_equal(Tempo(frames=length, tempo=1.0).stretched(ramp), ramp)
