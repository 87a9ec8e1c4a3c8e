"""Training's memory does not grow with the corpus: peaks over N and over 8 N utterances.

What grows is the index (names, places) and what is asked for (a transform a speaker, a score an
utterance): a few hundred bytes an utterance, where its features have tens of thousands.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest
from gmm_toy import Toy, toy

from hadpsgd import kaldi_io
from hadpsgd.config.load import check
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.features.frontend import Frontend
from hadpsgd.features.ivector import ubm
from hadpsgd.features.ivector.train_command import train_extractor
from hadpsgd.gmm.collect import adapt, lda_sums, mllt_sums
from hadpsgd.gmm.em import Passes, Search
from hadpsgd.gmm.packed_graph import pack
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.workspace import Workspace

DIM, FRAMES, FEW, TIMES = 13, 200, 40, 8
FEATURES = FRAMES * DIM * 4
"""Bytes of an utterance's features."""


def peak(work: Callable[[], object]) -> int:
    """The most bytes that were held at once while working."""
    tracemalloc.start()
    try:
        result = work()
        assert result is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def growth(work: Callable[[int], Callable[[], object]]) -> float:
    """Bytes of the peak for each further utterance; `work` gets their number."""
    work(16)()  # what is loaded once is not counted
    few, many = (peak(work(count)) for count in (FEW, TIMES * FEW))
    return (many - few) / ((TIMES - 1) * FEW)


@pytest.fixture
def small() -> Toy:
    return toy(np.random.default_rng(1).normal(size=(4, 3, DIM)))


def passes(space: Workspace, small: Toy, count: int) -> Passes:
    """Utterances of one phone each, two a speaker, aligned state by state."""
    random = np.random.default_rng(2)
    space.fill(
        (f"u{u}", f"s{u // 2}", random.normal(size=(FRAMES, DIM)).astype(np.float32))
        for u in range(count)
    )
    phones = [1 + u % small.phones for u in range(count)]
    space.store_packed(pack(small.graph(phone)) for phone in phones)
    for u, (chunk, phone) in enumerate(zip(space.chunks(frames=FRAMES), phones, strict=True)):
        assert chunk.first == u
        space.store_alignment(chunk, np.repeat(small.first_ids(phone), [70, 70, FRAMES - 140]))
    return Passes(space, Pipeline(0), 1)


WORK: dict[str, Callable[[Passes, Toy], object]] = {
    "accumulate": lambda data, small: data.accumulate(small.model),
    "align": lambda data, small: data.align(small.model, Search()),
    "lda": lambda data, small: lda_sums(data, small.model.transitions, ()),
    "mllt": lambda data, small: mllt_sums(data, small.model, ()),
    "fmllr": lambda data, small: adapt(data, small.model, (), 100),
}


@pytest.mark.parametrize("name", WORK)
def test_passes_hold_a_chunk(
    name: str, small: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "chunks", partialmethod(Workspace.chunks, frames=8 * FRAMES))
    with Workspace(tmp_path) as space:

        def work(count: int) -> Callable[[], object]:
            data = passes(space, small, count)
            return lambda: WORK[name](data, small)

        assert growth(work) < 0.1 * FEATURES


def test_the_extractor_holds_a_batch(tmp_path: Path) -> None:
    """Of i-vectors; statistics by utterance lie on disk."""
    gaussians = 16
    config = check(
        {"name": "t", "corpus": {"kind": "an4"},
         "features": {"ivector": {"dim": 5, "iterations": 2, "top": 3, "posterior_scale": 1.0,
                                  "max_count": 0}}},
        "test",
    )  # fmt: skip
    random = np.random.default_rng(3)
    model = ubm.DiagGmm.from_moments(
        np.full(gaussians, 1 / gaussians), random.normal(size=(gaussians, DIM)),
        np.ones((gaussians, DIM)),
    )  # fmt: skip
    Frontend(left=0, right=0).write(tmp_path)
    ubm.write(tmp_path / "final.dubm", model)

    def work(count: int) -> Callable[[], object]:
        folder = tmp_path / str(count)
        folder.mkdir()
        names = [f"s{u // 2:03}-u{u}" for u in range(count)]
        (folder / "wav.scp").write_text("".join(f"{name} {name}.wav\n" for name in names))
        (folder / "utt2spk").write_text("".join(f"{name} {name[:4]}\n" for name in names))
        frames = ((name, random.normal(size=(FRAMES, DIM)).astype(np.float32)) for name in names)
        kaldi_io.write_archive(folder / "feats.ark", frames, folder / "feats.scp")
        stats = np.zeros((2, DIM + 1))
        stats[0, -1] = 1.0
        speakers = sorted({name[:4] for name in names})
        pairs = [(speaker, stats) for speaker in speakers]
        kaldi_io.write_archive(folder / "cmvn.ark", pairs, folder / "cmvn.scp")
        data = DataDir.read(folder, audio=False, text=False)
        return lambda: train_extractor(
            config, data, feats=folder, ubm_folder=tmp_path, out=folder / "ie", jobs=1
        )

    assert growth(work) < 0.1 * FEATURES
