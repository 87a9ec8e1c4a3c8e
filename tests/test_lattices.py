"""Lattices: paths, posteriors, n-best and archives, against all paths by brute force."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattice_problems import SCALINGS, lattices, paths_of, penalties, two_words

from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.forward_backward import ForwardBackward, arc_posteriors
from hadpsgd.decoding.lattice import ARC, Lattice, Scaling, best_paths, topologically_sorted
from hadpsgd.decoding.nbest import nbest
from hadpsgd.decoding.word_lattice import WordLattice, word_lattice
from hadpsgd.errors import UserError


@given(lattices())
@settings(max_examples=100)
def test_best_paths_against_all_paths(lat: Lattice) -> None:
    for scaling, path in zip(SCALINGS, best_paths(lat, SCALINGS), strict=True):
        everything = paths_of(lat, scaling)
        least = min(cost for cost, _ in everything)
        assert path.cost == pytest.approx(least, abs=1e-6)
        assert any(
            cost == pytest.approx(least, abs=1e-6) and words == path.words.tolist()
            for cost, words in everything
        )
        total = path.graph + scaling.acoustic_scale * path.acoustic
        total += penalties(path.words.tolist(), scaling)
        assert total == pytest.approx(path.cost, abs=1e-5)


@given(lattices(), st.sampled_from([1, 2, 1 << 16]))
@settings(max_examples=50)
def test_archives_bring_lattices_back(lat: Lattice, together: int) -> None:
    """However many states are encoded at a time, the bytes are the same."""
    whole = lattice_io.encode(lat)
    with mock.patch.object(lattice_io, "_STATES", together):
        assert lattice_io.encode(lat) == whole
        assert lattice_io.entry("u", lat) == gzip.compress(b"u " + whole, 1, mtime=0)
        back = lattice_io.parse(whole)
    assert np.array_equal(back.final, lat.final)
    assert np.array_equal(back.first, lat.first)
    assert np.array_equal(back.arcs, lat.arcs)


@given(lattices(), st.permutations(range(7)))
@settings(max_examples=50)
def test_states_in_any_order_are_sorted(lat: Lattice, order: list[int]) -> None:
    places = [i for i in order if i < lat.num_states]
    arcs = lat.arcs.copy()
    rank = np.argsort(places)
    arcs["next"] = rank[arcs["next"]]
    by_source = np.argsort(rank[lat.sources], kind="stable")
    first = np.concatenate([[0], np.cumsum(np.diff(lat.first)[places])])
    mixed = Lattice(lat.final[places], first, arcs[by_source])
    back = topologically_sorted(mixed, int(rank[0]))
    assert np.all(back.arcs["next"] > back.sources)
    for scaling in SCALINGS:
        assert sorted(paths_of(back, scaling)) == sorted(paths_of(lat, scaling))


def test_nothing_said_has_no_confidences() -> None:
    arcs = np.array([(1, 0, 0.0, 0.0, 1), (1, 5, 3.0, 0.0, 1)], ARC)
    final = np.array([[np.inf, np.inf], [0, 0]], np.float32)
    lat = Lattice(final, np.array([0, 2, 2]), arcs)
    [path] = best_paths(lat, [Scaling(acoustic_scale=1.0)])
    assert len(path.words) == 0 and confidences(lat, path, Scaling(acoustic_scale=1.0)) == []


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_single_path_comes_back(size: int) -> None:
    """Chains are read at once; one state whose arc leads elsewhere is no chain."""
    final = np.full((size, 2), np.inf, np.float32)
    final[-1] = 1.5, 2.0
    rows = [(i + 3, i % 2, i / 2, -i / 4, i + 1) for i in range(size - 1)]
    arcs = np.array(rows, ARC)
    first = np.append(np.arange(size), size - 1)
    for change in (None, "next") if size > 2 else (None,):
        if change:
            arcs["next"][0] = 2
        back = lattice_io.parse(lattice_io.encode(Lattice(final, first, arcs)))
        assert back.arcs.tolist() == arcs.tolist()
        assert np.array_equal(back.final, final) and np.array_equal(back.first, first)


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    final = np.array([[np.inf, np.inf], [0, 0]], np.float32)
    lat = Lattice(final, np.array([0, 1, 1]), np.array([(1, 2, 0.5, 1.5, 1)], ARC))
    good = lattice_io.entry("u1", lat)
    good += lattice_io.entry("u2", lat)
    (tmp_path / "lat.1.gz").write_bytes(good)
    (tmp_path / "lat.old.gz").write_bytes(b"")
    assert [name for name, _ in lattice_io.read(tmp_path)] == ["u1", "u2"]
    (tmp_path / "lat.1.gz").write_bytes(good[:-30])
    with pytest.raises(UserError, match=r"lat\.1\.gz.*: damaged or no lattice archive \(cut short"):
        list(lattice_io.read(tmp_path))
    # between two utterances nothing tells that there were more, but what was written beside
    (tmp_path / "lat.1.gz").write_bytes(lattice_io.entry("u1", lat))
    assert [name for name, _ in lattice_io.read(tmp_path)] == ["u1"]
    (tmp_path / "decode.json").write_text('{"utterances": 3, "failed": ["u3"]}')
    for wanted in (None, {"u1"}):
        with pytest.raises(UserError, match=r"lattices of 1 utterances, and decode.json says 2"):
            list(lattice_io.read(tmp_path, wanted))
    (tmp_path / "lat.1.gz").write_bytes(good)
    assert [name for name, _ in lattice_io.read(tmp_path, {"u2"})] == ["u2"]
    (tmp_path / "lat.old.gz").unlink()
    (tmp_path / "num_jobs").write_text("2\n")
    with pytest.raises(UserError, match=r"1 files lat.*gz, and num_jobs says 2"):
        list(lattice_io.read(tmp_path))
    for name in ("num_jobs", "decode.json"):
        (tmp_path / name).write_text("[")
        with pytest.raises(UserError, match=rf"{name}: damaged"):
            list(lattice_io.read(tmp_path))
        (tmp_path / name).unlink()
    (tmp_path / "lat.1.gz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"lat\.1\.gz: damaged or no lattice archive"):
        list(lattice_io.read(tmp_path))
    for part in (b"u1", b"u1 \0B"):  # what ends such archives has no text of its own
        (tmp_path / "lat.1.gz").write_bytes(gzip.compress(part))
        with pytest.raises(UserError, match=r"lat\.1\.gz.*no lattice archive \(cut short\)"):
            list(lattice_io.read(tmp_path))
    (tmp_path / "lat.1.gz").unlink()
    with pytest.raises(UserError, match=r"no lat\.\*\.gz"):
        list(lattice_io.read(tmp_path))


def all_words(lat: Lattice, scaling: Scaling) -> dict[tuple[int, ...], float]:
    """Best cost of every word sequence."""
    best: dict[tuple[int, ...], float] = {}
    for cost, words in paths_of(lat, scaling):
        best[tuple(words)] = min(cost, best.get(tuple(words), np.inf))
    return best


@given(lattices(), st.sampled_from([1, 1 << 16]))
@settings(max_examples=60)
def test_nbest_against_all_paths(lat: Lattice, together: int) -> None:
    with mock.patch("hadpsgd.decoding.word_lattice._CHUNK", together):
        check_nbest(lat)


def check_nbest(lat: Lattice) -> None:
    for scaling in SCALINGS:
        wanted = sorted(all_words(lat, scaling).values())
        found = nbest(lat, scaling, count=1000, beam=np.inf)
        assert [h.cost for h in found] == pytest.approx(wanted, abs=1e-5)
        costs = all_words(lat, scaling)
        assert all(costs[h.words] == pytest.approx(h.cost, abs=1e-5) for h in found)
        for h in found:
            total = h.graph + scaling.acoustic_scale * h.acoustic
            total += penalties(h.words, scaling)
            assert total == pytest.approx(h.cost, abs=1e-5)
        narrow = nbest(lat, scaling, count=1000, beam=1.0)
        kept = [cost for cost in wanted if cost <= wanted[0] + 1.0 - 1e-4]
        assert [h.cost for h in narrow][: len(kept)] == pytest.approx(kept, abs=1e-5)
        few = nbest(lat, scaling, count=3, beam=8.0)
        kept = [cost for cost in wanted[:3] if cost <= wanted[0] + 8.0 - 1e-4]
        assert [h.cost for h in few][: len(kept)] == pytest.approx(kept, abs=1e-5)


def test_no_wider_beam_is_searched_than_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide beam of a poor lattice holds millions of pairs of words."""
    beams: list[float] = []

    def recorded(lat: Lattice, scaling: Scaling, beam: float) -> WordLattice:
        beams.append(beam)
        return word_lattice(lat, scaling, beam)

    monkeypatch.setattr("hadpsgd.decoding.nbest.word_lattice", recorded)
    lat = two_words([0.0, 3.0])
    assert len(nbest(lat, Scaling(acoustic_scale=1.0), count=2, beam=16.0)) == 2
    assert beams == [2.0, 4.0]
    beams.clear()
    assert len(nbest(lat, Scaling(acoustic_scale=1.0), count=3, beam=16.0)) == 2
    assert beams[-1] == 16.0


@given(lattices())
@settings(max_examples=60)
def test_forward_and_backward_against_all_paths(lat: Lattice) -> None:
    for scaling in SCALINGS:
        costs = [cost for cost, _ in paths_of(lat, scaling)]
        best = ForwardBackward(lat, scaling, best=True)
        assert best.total == pytest.approx(min(costs), abs=1e-6)
        assert best.through.min() >= min(costs) - 1e-6
        sums = ForwardBackward(lat, scaling, best=False)
        assert sums.total == pytest.approx(-np.log(np.exp(-np.array(costs)).sum()), abs=1e-6)
        posteriors = arc_posteriors(lat, scaling)
        assert np.all((posteriors >= 0) & (posteriors <= 1 + 1e-9))
        # what enters a state leaves it, or ends there
        into = np.bincount(lat.arcs["next"], posteriors, lat.num_states)
        out = np.bincount(lat.sources, posteriors, lat.num_states)
        ends = np.exp(sums.total - sums.forward - sums.final)
        into[0] += 1.0
        assert into == pytest.approx(out + ends, abs=1e-6)


def test_confidence_is_the_share_of_the_probability() -> None:
    lat = two_words([0.0, np.log(3.0)])
    path = best_paths(lat, [Scaling(acoustic_scale=1.0)])[0]
    assert confidences(lat, path, Scaling(acoustic_scale=1.0)) == pytest.approx(
        [0.75, 1.0], abs=1e-6
    )
    single = two_words([0.5])
    assert (
        confidences(
            single,
            best_paths(single, [Scaling(acoustic_scale=1.0)])[0],
            Scaling(acoustic_scale=1.0),
        )
        is None
    )


def test_a_word_said_twice_is_as_sure_as_each_of_it_is() -> None:
    """What is said elsewhere in the utterance counts for the word that is nearest."""
    rows = [
        (1, word, float(-np.log(share)), 0.0, state + 1)
        for state, shares in enumerate([{1: 0.6, 2: 0.4}, {0: 1.0}, {0: 1.0}, {1: 0.7, 3: 0.3}])
        for word, share in shares.items()
    ]
    final = np.full((5, 2), np.inf, np.float32)
    final[-1] = 0.0
    lat = Lattice(final, np.array([0, 2, 3, 4, 6, 6]), np.array(rows, ARC))
    scaling = Scaling(acoustic_scale=1.0)
    path = best_paths(lat, [scaling])[0]
    assert path.words.tolist() == [1, 1]
    assert confidences(lat, path, scaling) == pytest.approx([0.6, 0.7], rel=1e-5)
