"""What `hadpsgd init` decides: who is in which set, and how large the network is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.config import Config
from hadpsgd.config.load import check
from hadpsgd.config.sizes import ROWS, neural_dropout, neural_epochs, size_for
from hadpsgd.setup.prepared import Corpus, Dictionary, Speech
from hadpsgd.setup.split import HELD_OUT, Piece, split
from hadpsgd.setup.start import PROFILES
from hadpsgd.setup.template import written

ROOT = Path(__file__).parents[1]
PIECES = st.lists(st.tuples(st.integers(0, 6), st.floats(0.5, 20)), min_size=3, max_size=40)


@given(PIECES)
def test_split(drawn: list[tuple[int, float]]) -> None:
    pieces = {f"{s}-{i:03d}": Piece(f"s{s}", seconds) for i, (s, seconds) in enumerate(drawn)}
    sets, by_speaker = split(pieces)
    assert sets.keys() == pieces.keys() and set(sets.values()) == {"train", "dev", "test"}
    assert split(dict(reversed(pieces.items()))) == (sets, by_speaker)
    names = {piece.speaker for piece in pieces.values()}
    assert by_speaker == (len(names) >= 3)
    if by_speaker:
        of = {(pieces[name].speaker, place) for name, place in sets.items()}
        assert len(of) == len(names)
        assert len(names) < 5 or 2 * [place for _, place in of].count("train") > len(names)
    units: dict[str, float] = {}
    for name, piece in pieces.items():
        unit = piece.speaker if by_speaker else name
        units[unit] = units.get(unit, 0) + piece.seconds
    shares = dict.fromkeys(("dev", "test", "train"), 0.0)
    for name, place in sets.items():
        shares[place] += pieces[name].seconds / sum(units.values())
    longest = max(units.values()) / sum(units.values())
    for place in ("dev", "test"):
        assert shares[place] <= HELD_OUT + longest + 1e-9  # at most one speaker too many


@given(st.lists(st.floats(1, 600), min_size=40, max_size=80))
def test_a_long_recording_takes_nothing_from_the_sets(seconds: list[float]) -> None:
    """By utterance: short ones that come after it are taken."""
    pieces = {f"u{i}": Piece("s", each) for i, each in enumerate(seconds)}
    sets, _ = split(pieces)
    need = HELD_OUT * sum(seconds)
    left = min((p.seconds for name, p in pieces.items() if sets[name] == "train"), default=0.0)
    filled = {
        place: sum(p.seconds for name, p in pieces.items() if sets[name] == place)
        for place in ("dev", "test")
    }
    if sum(place != "train" for place in sets.values()) < (len(pieces) - 1) // 2:
        assert min(filled.values()) >= need - left - 1e-6


def test_a_long_recording_leaves_train_its_speakers() -> None:
    """A tenth of all speech is then more than most speakers have."""
    spoken = {"a": 18.0, "b": 19.0, "c": 19.9, "d": 21.0, "e": 38.0, "f": 49.0, "g": 235.0}
    pieces = {
        f"{name}-{i}": Piece(name, seconds / 10) for name, seconds in spoken.items()
        for i in range(10)
    }  # fmt: skip
    sets, by_speaker = split(pieces)
    of = {pieces[name].speaker: place for name, place in sets.items()}
    assert by_speaker
    assert of == dict.fromkeys("defg", "train") | {"a": "dev", "b": "test", "c": "dev"}


def test_a_set_that_is_all_but_full_takes_no_further_speaker() -> None:
    spoken = {f"s{i:02d}": seconds for i, seconds in enumerate([98, 98, *[120] * 6, 64 + 120])}
    sets, _ = split({name: Piece(name, seconds) for name, seconds in spoken.items()})
    assert sorted(name for name, place in sets.items() if place != "train") == ["s00", "s01"]


def test_too_few_to_split() -> None:
    with pytest.raises(ValueError, match="2 utterances"):
        split({"a": Piece("s", 1), "b": Piece("s", 1)})


def corpus(hours: float, speakers: int = 1) -> Corpus:
    parts = {"train": hours, "dev": hours / 8, "test": hours / 8}
    return Corpus(
        sets={
            name: Speech(
                data=Path(f"data/x y/{name}"),
                sentences=["a b"] * 7,
                speakers=[f"s{number}" for number in range(speakers)],
                seconds=3600 * part,
            )
            for name, part in parts.items()
        },
        by_speaker=True,
        sample_rate=16000,
        lm_text=None,
        lm_sentences=[],
    )


@pytest.mark.parametrize("cluster", PROFILES)
@pytest.mark.parametrize("hours", [0.005, 0.02, 0.24, 0.25, 1, 3, 20, 300])
def test_every_config_is_one(hours: float, cluster: str) -> None:
    spelled = hours < 1
    made = Dictionary(
        path=Path("my lexicon: 'a'.txt"),
        case="as-is",
        spelled=spelled,
        words=2,
        unknown={"dev": 0.2},
    )
    text = written("x", corpus(hours), made, cluster=cluster, config=Path("x.yaml"))
    assert max(map(len, text.splitlines())) <= 110
    config = check(yaml.safe_load(text), "x.yaml")
    size = size_for(hours)
    assert config.model.cells == size.cells and config.training.epochs == size.epochs
    assert config.lang.units == ("graphemes" if spelled else "phones")
    assert config.graph.pronunciation_probabilities is not spelled
    whole, little, adapted = 0.25 <= hours < 2, 0.25 <= hours < 10, hours >= 0.25
    assert (config.training.spec_augment.frequency_masks > 0) is whole
    assert [stage.criterion for stage in config.training.stages] == ["lfmmi"] * whole
    assert config.scoring.minimum_bayes_risk is whole
    assert (config.model.output_dropout > 0) is little is (config.training.ivector_dropout > 0)
    assert (config.lm.neural is not None) is little and config.decoding.gmm is little
    assert (config.features.ivector_scale < 1) is little
    assert ("fmllr" in config.features.input) is adapted is (config.alignment.kind == "sat")
    last = config.training.learning_rate
    left = last.anneal_factor ** (config.training.epochs - last.anneal_after)
    assert 0.01 <= left <= 0.2  # of the rate, after the last epoch
    # with the lines that are commented out, too
    uncommented = text.replace("    # - ", "    - ").replace("    #   ", "      ")
    runs = check(yaml.safe_load(uncommented), "x.yaml").training.runs
    assert {run.strategy for run in runs} == {"single", "hadpsgd"}


MADE = Dictionary(path=Path("lexicon.txt"), case="as-is", spelled=False, words=2, unknown={})


def of(hours: float, speakers: int) -> Config:
    text = written("x", corpus(hours, speakers), MADE, cluster="local", config=Path("x.yaml"))
    return check(yaml.safe_load(text), "x.yaml")


def test_speakers_of_a_few_seconds_are_not_adapted_to() -> None:
    """An hour of train has 7.5 minutes of dev: 10 seconds for each of 45 speakers."""
    adapted, not_adapted = of(1, 45), of(1, 46)
    assert adapted.alignment.kind == "sat" and not_adapted.alignment.kind == "tri"
    assert adapted.features.input == ["fmllr", "ivector", "logmel"]
    assert not_adapted.features.input == ["logmel"] and not not_adapted.training.ivector_dropout
    assert len(not_adapted.training.stages) == 1 and not_adapted.lm.neural


def test_a_neural_model_of_a_long_text_is_left_to_the_user() -> None:
    long = replace(corpus(1), lm_sentences=["a b"] * 1_000_001)
    text = written("x", long, MADE, cluster="local", config=Path("x.yaml"))
    config = check(yaml.safe_load(text), "x.yaml")
    assert config.lm.neural is None and "# lm: {neural: {}}  # 2,000,002 words" in text


@pytest.mark.parametrize(
    ("name", "corpus_has"),
    [("children", set()), ("an4_full", {"alignment", "features"})],  # Kaldi's
)
def test_real_corpora_have_what_it_writes(
    name: str, corpus_has: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe is one: the configs whose results are shown differ in their corpora and runs."""
    monkeypatch.setenv("HADPSGD_SHARED", "shared")
    file = ROOT / f"config/{name}.yaml"
    config = check(yaml.safe_load(file.read_text()), name).model_dump(mode="json")
    wanted = of(0.97, 20).model_dump(mode="json")
    for found in (config, wanted):
        found["decoding"].pop("gmm")  # of Kaldi's there is none
        found["training"].pop("runs")
        found["features"].pop("sample_rate")
        for section in ("alignment", "decoding"):  # they follow the number of utterances
            found[section].pop("max_failed", None)
    recipe = {"alignment", "features", "egs", "model", "training", "graph", "lm", "decoding"}
    recipe |= {"scoring"}
    for section in sorted(recipe - corpus_has):
        assert config[section] == wanted[section], section
    shared_keys = ("normalise", "input", "ivector_scale")
    for key in shared_keys:
        assert config["features"][key] == wanted["features"][key], key


def test_the_manual_has_the_sizes() -> None:
    page = (ROOT / "docs/own-recordings.md").read_text()
    for row in ROWS:
        hours = f"under {row.hours:g}" if row.hours < float("inf") else "more"
        units = f"triphones, {row.leaves} leaves" if row.leaves else "monophones"
        units += ", adapted to speakers" * row.adapted
        told = f"| {hours} | {units} | {row.layers} x {row.cells} | {row.copies} | "
        assert page.count(told) == 1, told


def test_sizes_grow_with_hours() -> None:
    sizes = [size_for(hours) for hours in (0.01, 0.03, 0.2, 1, 5, 50, 500)]
    for before, after in pairwise(sizes):
        assert before.layers * before.cells <= after.layers * after.cells
        assert before.mono <= after.mono and before.batch <= after.batch
    assert [size.epochs for size in sizes[:3]] == sorted(
        (s.epochs for s in sizes[:3]), reverse=True
    )


def test_the_neural_model_reads_a_short_text_more_often_and_with_more_dropout() -> None:
    words = (0, 5_000, 56_000, 100_000, 10**9)
    assert [neural_epochs(count) for count in words] == [20, 20, 18, 10, 4]
    assert [neural_dropout(count) for count in words] == [0.5, 0.5, 0.3, 0.3, 0.3]
