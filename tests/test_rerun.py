"""`hadpsgd rerun`: the same weights and words from the record alone, or what differs."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import yaml
from small_workflow import Small

from hadpsgd import cli
from hadpsgd.config import check, run_key, run_of
from hadpsgd.rerun import command, comparison, scores
from hadpsgd.rerun.command import alone
from hadpsgd.rerun.comparison import Item
from hadpsgd.rerun.original import Original, find
from hadpsgd.rerun.scores import outcome
from hadpsgd.scoring.command import read_tuned
from hadpsgd.scoring.tune import Setting
from hadpsgd.tracking.arithmetic import arithmetic
from hadpsgd.tracking.store import Store


@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize("aligner", ["", "other", "single-s2"])
@pytest.mark.parametrize("run", ["single-s1", "single-s2", "other"])
def test_a_run_alone_keeps_its_key(run: str, aligner: str, passes: int) -> None:
    """Also where another run of the config aligned for it, among several seeds and beside grids,
    and decoded together with others."""
    content: dict[str, Any] = {
        "name": "x",
        "corpus": {"kind": "builtin"},
        "training": {
            "batch": 64,
            "seeds": [1, 2],
            "runs": [{"momentum": 0.9, "name": "single"}, {"name": "other", "seed": 3}],
            "grids": [{"part": "batch", "over": {"batch": [128, 256]}}],
        },
        "realign": {"passes": passes, "run": aligner},
        "decoding": {"ensembles": {"all": ["single", "other"]}},
    }
    config = check(content, "test")
    made = alone(config, run_of(config, run))
    assert run_key(made, run) == run_key(config, run)
    assert check(made.model_dump(mode="json"), "again") == made
    assert len(made.training.members) == 1 + (passes and run != config.realigner)


THEN: dict[str, Any] = {
    "code": {"commit": "a" * 40, "source": "b" * 64},
    "lock": "c" * 64,
    "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
    "machine": {"processor": "X", "cores": 8, "gpus": []},
    "seed": 1,
}
COUNTS = {"words": 100, "sub": 5, "ins": 1, "del": 2}


def weights(file: Path) -> dict[str, torch.Tensor]:
    return torch.load(file, weights_only=True)["state_dict"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("run", ["hadpsgd-2x2-dpsgd", "hadpsgd-2x2"])
def test_a_rerun_has_the_same_bits(
    run: str, small: Small, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The synchronous run is trained again, the asynchronous one follows its record."""
    out = tmp_path_factory.getbasetemp() / "rerun"  # both share features and alignments
    key = small.key(run)
    ran = small.command(
        *("hadpsgd", "rerun", key, "--results", str(small.results), "--out", str(out)),
        *("--cores", "2"),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    assert f"# Rerun of {key}: identical" in ran.stdout
    assert (out / "rerun.md").read_text() in ran.stdout
    ours, theirs = (weights(f / f"small/runs/{key}/final.pt") for f in (small.results, out))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (small.out / f"runs/{key}/final.pt").stat().st_ino != (
        out / f"small/runs/{key}/final.pt"
    ).stat().st_ino
    for name in ("dev", "swb", "ch"):
        scored = [f / f"small/score/{key}/{name}/wer.json" for f in (small.results, out)]
        assert scored[0].read_bytes() == scored[1].read_bytes()
        assert json.loads(scored[0].read_text())["wer"] < 100  # there is something to compare
    store = Store(small.env["MLFLOW_TRACKING_URI"], out / "tracking")
    tracked = json.loads((small.out / "tracking.json").read_text())["runs"]
    first = next(each["mlflow_run"] for each in tracked if each["run"] == run)
    tags = store.client.get_run(first).data.tags
    [told] = [value for name, value in tags.items() if name.startswith("rerun.")]
    assert told.startswith("identical; WER dev")
    linked = store.read(told.rpartition(" ")[2])
    assert linked.tags["mlflow.parentRunId"] == linked.tags["rerun_of"] == first
    wer = json.loads((small.out / f"score/{key}/swb/wer.json").read_text())["wer"]
    assert linked.metrics["WER/swb"] == pytest.approx(wer, abs=0.01)
    summary = json.loads((out / f"small/runs/{key}/summary.json").read_text())
    assert summary.get("replayed", False) == (run == "hadpsgd-2x2")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_words_are_those_of_the_settings_that_scored_it_last(
    small: Small, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A later start scored it with other words, and a weight chosen for several runs together."""
    run = "hadpsgd-2x2-dpsgd"
    results = small.scored_again(run, tmp_path, one_choice=True, filters=["[a-m].*"])
    out = tmp_path_factory.getbasetemp() / "rerun"  # made by the test above, or here
    ran = small.command(
        *("hadpsgd", "rerun", small.key(run), "--results", str(results), "--out", str(out)),
        *("--cores", "2"),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    assert f"# Rerun of {small.key(run)}: identical" in ran.stdout
    assert "4 choice" in ran.stdout
    scored = [f / f"small/score/{small.key(run)}/swb/wer.json" for f in (small.results, out)]
    assert scored[0].read_bytes() != scored[1].read_bytes()


@pytest.mark.parametrize("listed", [False, True])
def test_a_choice_for_all_runs_comes_back_from_its_file(tmp_path: Path, listed: bool) -> None:
    """From n-best lists with weight 0, too: the words would be the lattices'."""
    chosen = Setting(lm_weight=9.0, word_penalty=0.5, minimum_bayes_risk=True, listed=listed)
    original = argparse.Namespace(key="single-s1")
    scores.score(cast("Original", original), chosen, file=tmp_path, base=tmp_path, sets=[])
    assert read_tuned(tmp_path / "score/single-s1/tuned.json") == chosen


@pytest.mark.slow
def test_other_code_or_data_are_refused(small: Small, tmp_path: Path) -> None:
    key = small.key("hadpsgd-2x2-dpsgd")
    folder = tmp_path / "results/small/runs" / key
    shutil.copytree(small.out / "runs" / key, folder)
    changed = json.loads((folder / "provenance.json").read_text())
    changed["code"]["source"] = "0" * 64
    (folder / "provenance.json").write_text(json.dumps(changed))
    ran = small.command("hadpsgd", "rerun", str(folder), "--out", str(tmp_path / "again"))
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert f"not those of run {key}: source" in ran.stderr
    assert "`git " in ran.stderr and "--anyway" in ran.stderr
    here = changed["arithmetic"]["instructions"]
    changed["arithmetic"]["instructions"] = "SSE9"
    (folder / "provenance.json").write_text(json.dumps(changed))
    ran = small.command("hadpsgd", "rerun", str(folder), "--out", str(tmp_path / "again"))
    first, second = ran.stderr.splitlines()
    assert f"bits of weights will differ here: instructions SSE9, now {here}" in first
    assert "`git " in second


@pytest.mark.parametrize(
    "then, now, told",
    [
        ({"commit": "a"}, {"commit": "b"}, "`git checkout a`"),
        ({"commit": "a"}, {"commit": "a", "dirty": True}, "`git stash -u`, as files here are not"),
        (
            {"commit": "a", "dirty": True},
            {"commit": "b"},
            "`git checkout a`, then `git apply` its uncommitted.diff",
        ),
    ],
)
def test_the_way_back_to_the_code_of_then(
    then: dict[str, Any], now: dict[str, Any], told: str
) -> None:
    back = command.back(then, now)
    assert back.startswith(told) and ("checkout" in back) == ("checkout" in told)


def test_the_report_names_what_differs() -> None:
    now = THEN | {"machine": {"processor": "Y", "cores": 8, "gpus": ["H100"]}, "lock": "d" * 64}
    around = comparison.surroundings(THEN, now)
    assert [item.name for item in around if not item.same] == [
        "requirements.lock",
        "processor",
        "gpus",
    ]
    then = {"egs/train/meta.json": "sha256:1", "lang/topo": "2", "corpus/data/ch/glm": "3"}
    parts = ["egs", "lang", "corpus/data/train"]  # older records have test sets too
    data = comparison.data(then, {"lang/topo": "2"}, parts)
    assert [item.now for item in data] == ["missing", "2"]
    came = comparison.outcome({"weights": "e"}, {"weights": "e"}, {"ch": COUNTS}, {"ch": COUNTS})
    page = comparison.page("Rerun of x", [*around, *data, *came])
    assert page.startswith("# Rerun of x: identical")
    assert "8.00 % (5 sub, 1 ins, 2 del of 100)" in page
    assert "processor" in page and "numpy" not in page
    assert "2 packages" in page


def test_a_set_scored_later_is_named_and_not_compared(tmp_path: Path) -> None:
    """The config of the run does not have it, so the rerun does not make it."""
    config = check({"name": "x", "corpus": {"kind": "builtin"}}, "test")
    scores = {"dev": COUNTS, "ch": COUNTS, "later": COUNTS}
    original = Original(
        key="single-1", config=config, provenance={}, summary={"weights": "e"}, scores=scores
    )
    files: dict[str, dict[str, Any]] = {"runs/single-1/summary.json": {"weights": "e"}}
    files |= {f"score/single-1/{name}/wer.json": COUNTS for name in ("dev", "ch", "swb")}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps(content))
    made = ("dev", "swb", "ch")
    assert [item.name for item in outcome(original, tmp_path, made)] == ["final.pt", "dev", "ch"]
    line = comparison.not_compared(original.scores, made)
    assert line.count("\n") == 1
    assert "later (only the original" in line and "swb (only the rerun" in line
    assert comparison.not_compared(made, made) == ""


def test_a_key_in_several_results_is_named_with_each_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name / "runs/single-c29883a9" for name in ("bad1", "bad2", "bad3")]
    for folder in folders:
        folder.mkdir(parents=True)
    assert cli.main(["rerun", "single-c29883a9", "--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(str(folder) in error for folder in folders)


@pytest.mark.parametrize("what", ["weights", "word errors"])
def test_one_other_result_is_a_different_run(what: str) -> None:
    items = [
        Item(kind="weights", name="final.pt", then="a", now="a"),
        Item(kind="word errors", name="ch", then="1 %", now="1 %"),
    ]
    items = [
        Item(kind=i.kind, name=i.name, then=i.then, now="b") if i.kind == what else i for i in items
    ]
    assert comparison.page("x", items).startswith("# x: DIFFERENT")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("single-00000000", ". Give the run's folder, or --results; or give an MLflow"),
        ("f" * 32, "no server answers"),
        (".", "has no config.yaml"),
    ],
)
def test_a_run_that_is_not_there(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["rerun", name if name != "." else str(tmp_path), "--results", str(tmp_path)]
    assert cli.main([*arguments, "--tracking-uri", "http://127.0.0.1:9"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and said in error


@pytest.mark.slow
def test_a_run_is_found_by_its_mlflow_id(small: Small) -> None:
    tracked = json.loads((small.out / "tracking.json").read_text())["runs"]
    run_id = next(run["mlflow_run"] for run in tracked if run["run"] == "hadpsgd-2x2-dpsgd")
    key = small.key("hadpsgd-2x2-dpsgd")
    uri = small.env["MLFLOW_TRACKING_URI"]
    by_id, by_key = find(run_id, Path("nowhere"), uri), find(key, small.results, uri)
    assert by_id.key == by_key.key == key
    assert by_id.summary == by_key.summary and by_id.scores == by_key.scores
    assert by_id.provenance == by_key.provenance
    assert by_id.checkpoints == by_key.checkpoints is not None
    config = yaml.safe_load((small.out / f"runs/{key}/config.yaml").read_text())
    assert config["training"]["batch"] == by_id.config.training.batch


def test_other_arithmetic_is_named_before_anything_is_made() -> None:
    """Weights cannot be the same bits: processor, instructions, libraries, or cores as threads."""
    then = THEN | {"arithmetic": {"processor": "X", "instructions": "AVX512"}}
    now = then | {
        "machine": {"processor": "Y", "cores": 2, "gpus": []},
        "arithmetic": {"processor": "Y", "instructions": "AVX2"},
        "packages": {"torch": "2.13.0", "numpy": "2.4.7", "mlflow": "3"},
    }
    items = comparison.surroundings(then, now)
    named = ["numpy 2.4.6, now 2.4.7", "processor X, now Y", "instructions AVX512, now AVX2"]
    assert comparison.other_bits(items, threads=1) == named
    assert "cores 8, now 2" in comparison.other_bits(items, threads=0)
    assert comparison.other_bits(comparison.surroundings(then, then), threads=0) == []
    # a record of before there was one says nothing of instructions
    unknown = comparison.other_bits(comparison.surroundings(THEN, then), threads=1)
    assert unknown == ["instructions not recorded, now AVX512"]


def test_the_arithmetic_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    found = arithmetic()
    assert found["processor"] and found["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert "MKL_CBWR=AVX2" in found["settings"]
    assert torch.__version__ not in str(found)  # that is a package's
    assert "OpenBLAS" in found["numpy's and scipy's"] and "MKL" in found["torch's libraries"]


def test_a_run_whose_record_is_missing_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an asynchronous run that MLflow knows, on a clone that has no results of it."""
    content = {"name": "x", "corpus": {"kind": "builtin"}}
    training = {"runs": [{"strategy": "adpsgd", "learners": 2}]}
    config = check(content | {"training": training}, "test")
    original = Original(
        key=run_key(config, "adpsgd-2"), config=config, provenance={}, summary={"identity": "0"}
    )
    monkeypatch.setattr(command, "find", lambda *_: original)
    assert cli.main(["rerun", "f" * 32, "--out", str(tmp_path / "again")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "asynchronous: without its record" in error
    assert not (tmp_path / "again").exists()


def test_to_look_for_a_run_makes_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a command is given in another folder than the workflow."""
    store = tmp_path / "mlflow.db"
    assert cli.main(["rerun", "f" * 32, "--tracking-uri", f"sqlite:///{store}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{store}: no such file" in error
    assert "--tracking-uri" in error
    assert not list(tmp_path.iterdir())
