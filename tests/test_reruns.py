"""What is made again when settings or files change (docs/reruns.md), as Snakemake plans it."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stand_in import StandIn

from hadpsgd.corpus.lang import needed

SPEECH = ("train", "dev", "eval", "other")
RUNS = ("single", "ssgd-2")
WORDS = "hello bob\nbye\nhi ann\n"
LAST = {"report", "index", "track"}


def write_set(folder: Path, name: str) -> Path:
    """A data directory whose recording is some bytes."""
    data = folder / "data" / name
    data.mkdir(parents=True)
    (folder / "audio").mkdir(exist_ok=True)
    (folder / f"audio/{name}.wav").write_bytes(f"speech of {name}".encode())
    (data / "wav.scp").write_text(f"call audio/{name}.wav\n")
    (data / "segments").write_text("ann-1 call 0.5 2.25\n")
    (data / "text").write_text("ann-1 hello bob\n")
    (data / "utt2spk").write_text("ann-1 ann\n")
    return data


def write_corpus(folder: Path) -> dict[str, Any]:
    """Four sets, a dictionary and a text; the config's section."""
    sets = {name: str(write_set(folder, name)) for name in SPEECH}
    (folder / "dict").mkdir()
    (folder / "dict/lexicon.txt").write_text("bob B\nbye B\n")
    (folder / "text").write_text(WORDS)
    return {
        "kind": "kaldi",
        "train": sets["train"],
        "dev": sets["dev"],
        "tests": {"eval": sets["eval"], "other": sets["other"]},
        "dict_dir": str(folder / "dict"),
        "lm_text": str(folder / "text"),
    }


def runs() -> dict[str, Any]:
    return {"batch": 8, "runs": [{}, {"strategy": "ssgd", "learners": 2}]}


@pytest.fixture(scope="module")
def mono(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """Own monophones, two runs."""
    folder = tmp_path_factory.mktemp("mono")
    config = {"name": "x", "corpus": write_corpus(folder), "training": runs()}
    return StandIn(folder, config).made()


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """Own SAT, all 260 inputs."""
    folder = tmp_path_factory.mktemp("ladder")
    config = {
        "name": "x",
        "corpus": write_corpus(folder),
        "alignment": {"kind": "sat"},
        "features": {"input": ["fmllr", "ivector", "logmel"]},
    }
    return StandIn(folder, config).made()


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """Everything that can come from Kaldi; labels by a network."""
    folder = tmp_path_factory.mktemp("imported")
    corpus = write_corpus(folder)
    for name in ("ali", "lang/phones", "model", "trans", "ivectors", "lm"):
        (folder / name).mkdir(parents=True)
    for file in ("final.mdl", "tree", "phones.txt"):
        (folder / "ali" / file).write_text(file)
    (folder / "ali/ali.1.gz").write_bytes(gzip.compress(b"ali", mtime=0))
    (folder / "ali/log").write_text("nobody reads it")
    for file in (*needed.FILES, "G.fst"):
        (folder / "lang" / file).write_text(file)
    (folder / "model/final.mat").write_text("mat")
    (folder / "trans/trans.1").write_text("trans")
    for name in SPEECH:
        (folder / f"ivectors/{name}.ark").write_text(name)
        (folder / f"ivectors/{name}.scp").write_text(f"ann-1 ivectors/{name}.ark:5\n")
    (folder / "lm/other.txt").write_text(WORDS)
    (folder / "acronyms.map").write_text("u._c. u c\n")
    imports = {
        "fmllr": {"trans": str(folder / "trans"), "model": str(folder / "model")},
        "ivector": {"ivectors": str(folder / "ivectors/{set}.scp")},
    }
    ali = {"ali_dir": str(folder / "ali"), "lang_dir": str(folder / "lang")}
    config = {
        "name": "x",
        "corpus": corpus,
        "alignment": {"kind": "kaldi", **ali},
        "features": {"input": ["fmllr", "ivector", "logmel"], "imports": imports},
        "realign": {"passes": 1},
        "lm": {"sources": {"other": str(folder / "lm/other.txt")}},
        "scoring": {"acronym_map": str(folder / "acronyms.map")},
    }
    return StandIn(folder, config).made()


@contextmanager
def content(path: Path, text: str) -> Iterator[None]:
    """Another content, as old as the file is; the former one afterwards."""
    before, times = path.read_bytes(), path.stat()
    path.write_text(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns - 10**12))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def scored(*names: str, runs: tuple[str, ...] = RUNS) -> set[str]:
    """Decoding and scoring of these sets, and what is shown of all."""
    each = {f"{rule}.{run}.{s}" for rule in ("decode", "score") for run in runs for s in names}
    shown = {f"{rule}.{run}" for rule in ("error_analysis", "track_scores") for run in runs}
    return each | shown | {f"compare_errors.{run}" for run in runs if run != RUNS[0]} | LAST


def tuned(runs: tuple[str, ...] = RUNS) -> set[str]:
    """The choice on dev, and all scores after it."""
    return {f"tune.{run}" for run in runs} | {
        f"score.{run}.{name}" for run in runs for name in SPEECH[1:]
    }


def rules(planned: set[str]) -> set[str]:
    return {job.split(".")[0] for job in planned}


TRAINING = {"mono", "tri", "lda_mllt", "sat", "align", "import_alignment", "egs", "train"}


def test_nothing_is_made_again_without_a_change(mono: StandIn, ladder: StandIn) -> None:
    assert mono.planned() == set()
    assert ladder.planned() == set()


def test_touched_files_make_nothing_again(mono: StandIn, imported: StandIn) -> None:
    for workflow in (mono, imported):
        for path in workflow.folder.rglob("*"):
            if path.is_file() and not {"results", ".snakemake"} & set(path.parts):
                path.touch()
        assert workflow.planned() == set()


def test_what_decides_nothing_makes_nothing_again(mono: StandIn) -> None:
    corpus = {**mono.config["corpus"], "max_oov": 0.5, "allow_pipes": True}
    changed = {
        "corpus": corpus,
        "features": {"max_skipped": 0.5},
        "alignment": {"kind": "mono", "max_failed": 0.5},
        "egs": {"verify": False},
        "training": runs() | {"checkpoint_minutes": 1},
        "decoding": {"max_failed": 0.5},
        "tracking": {"every_seconds": 1},
    }
    assert mono.planned(**changed) == set()


def test_a_new_test_set_trains_nothing(mono: StandIn) -> None:
    corpus = mono.config["corpus"]
    if not (mono.folder / "data/new").exists():
        write_set(mono.folder, "new")
    tests = corpus["tests"] | {"new": str(mono.folder / "data/new")}
    own = {"corpus.new", "words.new", "features.new"}
    assert mono.planned(corpus=corpus | {"tests": tests}) == own | scored("new")


def test_a_faulty_test_set_trains_nothing(tmp_path: Path) -> None:
    """Though what does not depend on it goes on."""
    corpus = write_corpus(tmp_path)
    corpus["tests"]["faulty"] = str(write_set(tmp_path, "faulty"))
    said = StandIn(tmp_path, {"name": "x", "corpus": corpus}).snakemake(fails=True)
    assert "rule mono:" in said and "rule egs:" in said
    assert "rule train:" not in said


@pytest.mark.parametrize(
    ("file", "text"),
    [("audio/eval.wav", "speech of evaL"), ("data/eval/text", "ann-1 hello ann\n")],
)
def test_a_changed_test_set_costs_itself(mono: StandIn, file: str, text: str) -> None:
    """An older file of the same size in its place, too."""
    with content(mono.folder / file, text):
        assert mono.planned() == {"corpus.eval", "words.eval", "features.eval"} | scored("eval")


def test_a_changed_dev_set_trains_nothing(mono: StandIn) -> None:
    """The language model only if its words changed."""
    own = {"corpus.dev", "words.dev", "features.dev", "align.dev", "egs.dev"}
    shown = scored("dev") | tuned()
    with content(mono.folder / "audio/dev.wav", "other"):
        assert mono.planned() == own | shown
    with content(mono.folder / "data/dev/text", "ann-1 bye\n"):
        planned = mono.planned()
    assert {"dev_text", "lm", "graph"} <= planned and "train" not in rules(planned)


def test_what_dev_would_hide(mono: StandIn) -> None:
    """Examples were made again, then somebody stopped the workflow, and dev is to be made again:
    training does not wait for the next start."""
    stamp = mono.folder / "results/x/egs/train/.snakemake_timestamp"
    times = stamp.stat()
    stamp.touch()
    try:
        with content(mono.folder / "audio/dev.wav", "other"):
            planned = mono.planned()
    finally:
        os.utime(stamp, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert {"corpus.dev", "egs.dev", "train.single", "train.ssgd-2"} <= planned
    assert "egs.train" not in planned


def test_text_of_the_language_model(mono: StandIn, ladder: StandIn) -> None:
    after = {"lm_text", "lm", "graph"}
    with content(mono.folder / "text", "hello hello\n"):
        assert mono.planned() == after | scored("dev", "eval", "other") | tuned()
    with content(ladder.folder / "text", "hello hello\n"):
        planned = ladder.planned()
    # speakers of dev and the test sets are adapted by what was decoded, those of train are not
    assert after | {"decode_first.eval", "fmllr.dev", "egs.dev"} <= planned
    assert not {"train", "sat", "ubm"} & rules(planned)
    assert "fmllr.train" not in planned and "egs.train" not in planned


def test_the_dictionary_costs_no_features(mono: StandIn) -> None:
    with content(mono.folder / "dict/lexicon.txt", "bob B\nbye Y\n"):
        planned = mono.planned()
    assert {"dictionary", "words.eval", "lang", "mono", "lm", "train.single"} <= planned
    assert not {"corpus", "features"} & rules(planned)


def test_training_speech_costs_no_other_features(mono: StandIn) -> None:
    with content(mono.folder / "audio/train.wav", "others"):
        planned = mono.planned()
    assert {"corpus.train", "features.train", "mono", "egs.train", "train.ssgd-2"} <= planned
    assert not {"corpus.eval", "features.eval", "features.dev", "lang", "lm"} & planned


@pytest.mark.parametrize(
    ("changes", "first", "others"),
    [
        ({"alignment": {"kind": "sat", "sat": {"leaves": 7}}}, "sat", "lda_mllt"),
        ({"alignment": {"kind": "sat", "tri": {"leaves": 7}}}, "tri", "mono"),
        ({"decoding": {"beam": 9}}, "decode.single.eval", "graph"),
        ({"lm": {"order": 3}}, "lm", "lm_text"),
        ({"graph": {"self_loop_scale": 0.2}}, "graph", "lm"),
        ({"graph": {"pronunciation_probabilities": True}}, "pronunciations", "lm"),
        ({"model": {"cells": 64}}, "train.single", "egs.train"),
    ],
    ids=["sat", "tri", "decoding", "lm", "graph", "pronunciations", "model"],
)
def test_settings_cost_what_comes_after(
    ladder: StandIn, changes: dict[str, Any], first: str, others: str
) -> None:
    planned = ladder.planned(**changes)
    assert first in planned and "report" in planned
    assert others not in planned and others not in rules(planned)
    if first in ("lm", "graph", "pronunciations", "decode.single.eval"):
        assert not TRAINING - {"egs"} & rules(planned)


def test_realignment_costs_what_comes_after(imported: StandIn) -> None:
    planned = imported.planned(realign={"passes": 1, "beam": 7})
    assert {"realign.train", "egs.train", "train.single", "decode.single.eval"} <= planned
    assert not {"train_to_realign", "import_alignment", "features"} & rules(planned)


def test_scoring_costs_scores(mono: StandIn) -> None:
    shown = scored() | tuned()
    assert mono.planned(scoring={"dropped_words": ["um"]}) == shown
    assert mono.planned(scoring={"lm_weights": [9, 10]}) == shown


def test_another_run_costs_itself(mono: StandIn) -> None:
    training = runs()
    training["runs"].append({"strategy": "ssgd", "learners": 4})
    own = scored("dev", "eval", "other", runs=("ssgd-4",))
    own |= {"train.ssgd-4", "tune.ssgd-4", "track_training.ssgd-4"}
    assert mono.planned(training=training) == own


@pytest.mark.parametrize(
    ("targets", "made"), [([], LAST), (["paper"], {"paper_page"})], ids=["all", "paper"]
)
def test_a_run_is_added_to_results_that_came_without_snakemakes_records(
    mono: StandIn, targets: list[str], made: set[str]
) -> None:
    """As where somebody copies `results/` to another machine, or removes `.snakemake`."""
    records, aside = mono.folder / ".snakemake", mono.folder / "aside"
    # the page of claims is of grids: one of a run that is there
    grids = {"grids": [{"part": "learners", "run": {"strategy": "single"}}]} if targets else {}
    before, training = runs() | grids, runs() | grids
    training["runs"].append({"strategy": "ssgd", "learners": 4})
    mono.made(*targets, training=before)
    records.rename(aside)
    try:
        assert mono.planned(*targets, training=before) == set()
        planned = mono.planned(*targets, training=training)
    finally:
        shutil.rmtree(records, ignore_errors=True)
        aside.rename(records)
    assert {"train.ssgd-4", "score.ssgd-4.eval"} | made <= planned
    assert not {"train.single", "mono", "features"} & (planned | rules(planned))


@pytest.mark.parametrize(
    ("file", "wanted", "others"),
    [
        ("ali/ali.1.gz", {"import_alignment.train", "egs.train", "train.single"}, {"features"}),
        ("ali/log", set(), {"import_alignment", "report"}),
        ("lang/topo", {"lang", "import_alignment.train", "lm"}, {"features", "corpus"}),
        ("lang/phones/silence.csl", {"lang"}, {"features"}),
        ("lang/G.fst", set(), {"lang", "report"}),
        ("trans/trans.1", {"import_fmllr.eval", "egs.train", "train.single"}, {"lm", "lang"}),
        ("model/final.mat", {"import_fmllr.train"}, {"features", "import_ivector"}),
        ("ivectors/eval.ark", {"import_ivector.eval", "decode.single.eval"}, {"train", "lm"}),
        ("lm/other.txt", {"lm", "graph", "decode.single.dev"}, {"train", "egs", "lm_text"}),
        ("acronyms.map", {"tune.single", "score.single.eval"}, {"decode", "train"}),
    ],
)
def test_files_of_kaldi(imported: StandIn, file: str, wanted: set[str], others: set[str]) -> None:
    with content(imported.folder / file, "something else"):
        planned = imported.planned()
    assert wanted <= planned and not others & rules(planned)
    assert bool(wanted) == bool(planned)


def test_other_rows_of_the_same_runs_are_shown_again(tmp_path: Path) -> None:
    """Runs grouped into a row of seeds, or in another order: no run changes, the tables do."""
    apart: list[dict[str, Any]] = [{"name": f"x-s{seed}", "seed": seed} for seed in (1, 2)]
    config = {"name": "x", "corpus": write_corpus(tmp_path), "training": {"runs": apart}}
    workflow = StandIn(tmp_path, config).made()
    assert workflow.planned() == set()
    beside_another = {"compare_errors.x-s1"}  # the first run is not compared with itself
    assert workflow.planned(training={"runs": apart[::-1]}) == LAST | beside_another
    assert workflow.planned(training={"runs": [{"name": "x", "seeds": [1, 2]}]}) == LAST


def test_scores_that_were_to_be_made_again_are_not_shown(tmp_path: Path) -> None:
    """A workflow that fails before it removed those of former settings."""
    config = {"name": "x", "corpus": write_corpus(tmp_path), "training": runs()}
    workflow = StandIn(tmp_path, config).made()
    keys = sorted(folder.name for folder in (tmp_path / "results/x/score").iterdir())
    (tmp_path / "broken").write_text("tune")
    said = workflow.snakemake(fails=True, scoring={"lm_weights": [9, 10]})
    left = " ".join([*keys, *(f"{key}/{name}" for key in keys for name in SPEECH[1:])])
    shown = next(line for line in said.splitlines() if line.startswith("shown"))
    assert sorted(shown.split()[2:]) == sorted(left.split())
