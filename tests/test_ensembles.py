"""`decoding.ensembles`: runs decoded together, as rows beside the runs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from test_gmm_row import cells, planned
from tracking_data import ERRORS, RUNS, WORDS, make_config, scored, without_models, write_results

from hadpsgd import cli
from hadpsgd.clean.claims import check_started, keys
from hadpsgd.config import (
    Config,
    check,
    ensemble_keys,
    keys_with_gmm,
    models_together,
    run_key,
)
from hadpsgd.config.command import resolved
from hadpsgd.errors import UserError
from hadpsgd.planning.cost import Machines, cost
from hadpsgd.reports import compare, significance, stages
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.scoring import sentences
from hadpsgd.tracking import identity
from hadpsgd.tracking.beside import read_beside
from hadpsgd.tracking.results import State
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import sync

BOTH = {"ensembles": {"both": ["single", "ssgd-4"]}}
BASE: dict[str, Any] = {"name": "x", "corpus": {"kind": "an4"}}
SEEDS = {"runs": [{"seeds": [1, 2, 3]}, {"name": "alone", "learners": 4, "strategy": "ssgd"}]}


def together(*names: str, **changes: Any) -> Config:
    content = {"training": SEEDS, "decoding": {"ensembles": {"all": [*names]}}}
    return check(BASE | content | changes, "x")


@pytest.mark.parametrize(
    ("ensembles", "told"),
    [
        (
            {"a": ["nobody", "alone"]},
            "decoding.ensembles.a: no run or row 'nobody'; there are single, alone, single-s1",
        ),
        ({"a": ["gmm-tri", "alone"]}, "single-s3, gmm-mono"),
        ({"a": ["gmm-mono", "alone", "gmm-mono"]}, "a: 'gmm-mono' is there twice; once is enough"),
        ({"a": ["gmm-mono"]}, "decoding.ensembles.a: the GMM-HMM alone is no ensemble; add a run"),
        ({"a": ["alone"]}, "decoding.ensembles.a: an ensemble has two or more runs, not 1"),
        ({"a": []}, "decoding.ensembles.a: an ensemble has two or more runs, not 0"),
        ({"a": ["single", "single-s2"]}, "decoding.ensembles.a: 'single-s2' is there twice"),
        ({"alone": ["single"]}, "decoding.ensembles.alone: there is a row of that name"),
        ({"gmm-mono": ["single"]}, "decoding.ensembles.gmm-mono: there is a row of that name"),
        ({"a/b": ["single"]}, "decoding.ensembles"),
        ({"a.b": ["single"]}, "decoding.ensembles"),
    ],
)
def test_what_is_no_ensemble_is_refused(ensembles: dict[str, list[str]], told: str) -> None:
    content = {"training": SEEDS, "decoding": {"gmm": True, "ensembles": ensembles}}
    with pytest.raises(UserError, match=re.escape(told)):
        check(BASE | content, "x")


@pytest.mark.parametrize(
    ("decoding", "told"),
    [
        (
            {"ensembles": {"a": ["alone", "gmm-mono"]}},
            "single-s3; with decoding.gmm: true that one, too",
        ),
        ({"gmm": True, "gmm_share": 0.3}, "decoding.gmm_share: no ensemble has the GMM-HMM"),
        (
            {"gmm_share": 0.3, "ensembles": {"a": ["single"]}},
            "decoding.gmm_share: no ensemble has the GMM-HMM; leave it out",
        ),
    ],
)
def test_a_gmm_that_is_not_there_is_refused(decoding: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        check(BASE | {"training": SEEDS, "decoding": decoding}, "x")


def test_a_row_of_seeds_stands_for_its_runs() -> None:
    assert together("single", "alone").together("all") == [
        *("single-s1", "single-s2", "single-s3", "alone")
    ]


def test_the_key_goes_by_weights_alone() -> None:
    """Neither names nor order of the runs decide what the mean of their scores is."""
    plain = together("single-s1", "single-s2")
    key = ensemble_keys(plain)["all"]
    assert re.fullmatch(r"all-[0-9a-f]{8}", key)
    assert ensemble_keys(together("single-s2", "single-s1")) == {"all": key}
    named = {"runs": [{"seeds": [1, 2, 3], "name": "x"}]}
    renamed = together("x-s2", "x-s1", training=named)
    assert ensemble_keys(renamed) == {"all": key}
    found, other = models_together(plain)[key], models_together(renamed)[key]
    assert [run[-8:] for run in found] == [run[-8:] for run in other]
    for changed in (
        together("single-s1", "single-s3"),
        together("single"),
        together("single-s1", "single-s2", seed=7),
        together("single-s1", "single-s2", model={"cells": 64}),
    ):
        assert ensemble_keys(changed)["all"] != key


def test_the_share_of_the_gmm_is_in_the_key() -> None:
    def key(*names: str, **decoding: Any) -> str:
        content = {"gmm": True, "ensembles": {"all": [*names]}} | decoding
        return ensemble_keys(check(BASE | {"training": SEEDS, "decoding": content}, "x"))["all"]

    heard = key("single-s1", "single-s2", "gmm-mono")
    assert heard == key("gmm-mono", "single-s2", "single-s1")
    assert heard != key("single-s1", "single-s2", "gmm-mono", gmm_share=0.5)
    assert heard != ensemble_keys(together("single-s1", "single-s2"))["all"]
    content = {"gmm": True, "ensembles": {"all": ["alone", "gmm-mono"]}}
    config = check(BASE | {"training": SEEDS, "decoding": content}, "x")
    assert config.together("all") == ["alone"] and config.has_gmm("all")
    assert keys_with_gmm(config) == [ensemble_keys(config)["all"]]


def test_nothing_else_is_made_again() -> None:
    plain = check(BASE | {"training": SEEDS}, "x")
    assert [run_key(plain, r.id) for r in plain.training.members] == [
        run_key(together("single"), r.id) for r in plain.training.members
    ]


def test_it_is_planned(tmp_path: Path) -> None:
    """Of a row of three seeds, one run alone is decoded; the ensemble and it have pages."""
    found = planned(
        "config/tiny.yaml",
        tmp_path,
        "decoding={gmm: true, ensembles: {all: [one], two: [one-s1, one-s2]}}",
        "training={runs: [{name: one, seeds: [1, 2, 3], decode: false}, {name: alone}]}",
    )
    wanted = {"train": 4, "decode": 9, "decode_gmm": 3, "tune": 4, "score": 12, "report": 1,
              "error_analysis": 3, "compare_errors": 2, "track_training": 4,
              "track_scores": 1, "track_beside": 3}  # fmt: skip
    assert {rule: found.get(rule, 0) for rule in wanted} == wanted


def test_the_gmm_of_an_ensemble_is_adapted(tmp_path: Path) -> None:
    """Without FMLLR in the network's input, too."""
    found = planned(
        "config/tiny_full.yaml",
        tmp_path,
        "decoding={gmm: true, ensembles: {heard: [single, gmm-sat]}}",
        "features={input: [logmel]}",
    )
    wanted = {"decode": 6, "decode_gmm": 3, "adapt": 3, "fmllr": 0, "tune": 3, "score": 9,
              "error_analysis": 2, "track_beside": 2}  # fmt: skip
    assert {rule: found.get(rule, 0) for rule in wanted} == wanted


def test_pages_without_a_run_that_is_decoded(tmp_path: Path) -> None:
    found = planned(
        "config/tiny.yaml",
        tmp_path,
        "decoding={ensembles: {all: [one], two: [one-s1, one-s2]}}",
        "training={runs: [{name: one, seeds: [1, 2, 3], decode: false}]}",
    )
    wanted = {"decode": 6, "error_analysis": 2, "compare_errors": 1, "track_beside": 2}
    assert {rule: found.get(rule, 0) for rule in wanted} == wanted


def test_its_search_is_in_the_plan() -> None:
    """The arithmetic of three networks and one search more."""

    def hours(config: Config) -> float:
        rows = cost(config, Machines(cores=1), train=1.0, test=1.0)
        return sum(row.core_hours for row in rows if row.stage == "decoding")

    plain = check(BASE | {"training": SEEDS}, "x")
    network, alone = hours(together("single-s1", "single-s2")), hours(plain)
    three = hours(together("single"))
    search = 0.3
    assert network - alone - search == pytest.approx(2 * (three - network), rel=1e-6)
    assert three > network > alone + search


def finished(results: Path, decoding: dict[str, Any] = BOTH) -> Config:
    """A results folder with the ensemble's scores: those of `single`."""
    write_results(results)
    config = make_config(results, decoding=decoding)
    folder = results / config.name / "score" / ensemble_keys(config)["both"]
    folder.mkdir()
    (folder / "tuned.json").write_text(json.dumps({"lm_weight": 12.0, "word_penalty": 0.5}))
    for name, (sub, ins, dele) in ERRORS["single"].items():
        (folder / name).mkdir()
        counts = {"words": WORDS[name], "sub": sub, "ins": ins, "del": dele, "sentences": 100}
        (folder / name / "wer.json").write_text(json.dumps(counts))
        sentences.write(folder / name / sentences.FILE, scored(WORDS[name], sub, ins, dele))
    return config


def test_it_is_a_row_of_every_table(tmp_path: Path) -> None:
    config = finished(tmp_path)
    out, key = tmp_path / "demo", ensemble_keys(config)["both"]
    for kind in ("errors", "compared"):
        (out / kind / key).mkdir(parents=True)
        (out / kind / key / "index.html").write_text("")
    found = Findings.of(config)
    assert [row.label for row in found.rows] == [*RUNS, "both"]
    write(found, out / "wer.md")
    lines = (out / "wer.md").read_text().splitlines()
    row, *_ = (cells(line) for line in lines if line.startswith("| both "))
    assert row[:7] == ["both", "2 runs together", "-", "-", "5.00 % (45/900)", "6.00 % (60/1000)",
                       "18.75 % (150/800)"]  # fmt: skip
    tests = json.loads((out / significance.FILE).read_text())
    assert list(tests["swb"]["runs"]) == [*RUNS, "both"]
    assert cli.main(["report", "--config", str(write_file(config, tmp_path)),
                     "--index", str(out / "index.html")]) == 0  # fmt: skip
    page = (out / "index.html").read_text()
    assert f"errors/{key}/index.html" in page and f"compared/{key}/index.html" in page
    for name in ("both", key):
        shown = compare.page([*compare.find("single", config), *compare.find(name, config)])
        assert "single, ssgd-4" in shown and "6.00 % (60/1000)" in shown


def test_no_setting_is_compared_with_those_that_an_ensemble_lacks(tmp_path: Path) -> None:
    """Which differ between runs, is the same with its column and without."""
    config = finished(tmp_path)
    runs = [column for run in RUNS for column in compare.find(run, config)]
    settings, *_ = compare.page(runs).partition("\n\n")
    shown = compare.page([*runs, *compare.find("both", config)])
    assert shown.startswith(f"{settings}\n\n")
    assert "No setting differs." in compare.page([runs[0], *compare.find("both", config)])


def test_the_gmm_and_its_share_are_in_the_comparison(tmp_path: Path) -> None:
    heard = {"gmm": True, "gmm_share": 0.3, "ensembles": {"both": ["single", "gmm-mono"]}}
    config = finished(tmp_path, heard)
    (tmp_path / "demo/ali/train").mkdir(parents=True)
    shown = compare.page([*compare.find("single", config), *compare.find("both", config)])
    assert "single, gmm-mono" in shown and re.search(r"gmm_share .* 0\.3 ", shown)
    write(Findings.of(config), tmp_path / "demo/wer.md")
    assert "| 1 run and GMM together " in (tmp_path / "demo/wer.md").read_text()


def write_file(config: Config, folder: Path) -> Path:
    file = folder / "config.yaml"
    file.write_text(resolved(config))
    return file


def test_its_stages_are_in_the_table(tmp_path: Path) -> None:
    config = finished(tmp_path)
    row = "s\tmax_rss\tmean_load\n1.0\t2.0\t3.0\n"
    for key in (ensemble_keys(config)["both"], "both-00000000"):
        (tmp_path / "demo/benchmarks" / f"decode.{key}.dev.tsv").write_text(row)
    names = [stage.name for stage in stages.of_config(config)]
    assert [n for n in names if "both" in n] == [f"decode.{ensemble_keys(config)['both']}.dev"]


def state(config: Config) -> tuple[State, str, list[str]]:
    (found,) = read_beside(config)
    return found.state, found.why, list(found.scores)


def test_the_state_of_its_runs_is_its_own(tmp_path: Path) -> None:
    config = finished(tmp_path)
    assert state(config) == (State.FINISHED, "", ["dev", "swb", "ch"])
    folder = tmp_path / "demo/runs" / run_key(config, "ssgd-4")
    summary = (folder / "summary.json").read_text()
    newer = (tmp_path / "demo/score" / ensemble_keys(config)["both"] / "ch/wer.json").stat()
    (folder / "summary.json").write_text(json.dumps({"diverged": "loss of inf"}))
    assert state(config) == (State.DIVERGED, "ssgd-4: loss of inf", [])
    (folder / "summary.json").unlink()
    assert state(config) == (State.UNFINISHED, "", [])
    (folder / "failed.json").write_text(json.dumps({"why": "killed"}))
    assert state(config) == (State.FAILED, "ssgd-4: killed", [])
    (folder / "summary.json").write_text(summary)  # trained again, after the scores
    os.utime(folder / "summary.json", (newer.st_mtime + 10, newer.st_mtime + 10))
    assert state(config)[::2] == (State.UNFINISHED, [])


def test_mlflow_has_it_as_a_run_of_its_own(mlflow_folder: Path) -> None:
    config = without_models(finished(mlflow_folder))
    write(Findings.of(config), mlflow_folder / "demo/wer.md")
    tracked = sync(config, None)
    assert [each.run for each in tracked] == [*RUNS, "both"]
    assert sync(config, None) == tracked
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client
    (run,) = client.search_runs([tracked[-1].mlflow_experiment], "tags.kind = 'ensemble'")
    assert run.info.run_id == tracked[-1].mlflow_run and run.info.run_name == "both"
    assert run.info.start_time <= run.info.end_time
    assert run.data.metrics["WER/swb"] == pytest.approx(6.0)
    assert run.data.params["together"] == '["single", "ssgd-4"]'
    runs = client.search_runs([tracked[-1].mlflow_experiment])
    assert not [name for each in runs for name in each.data.params if "ensembles" in name]
    assert "runs single, ssgd-4 together" in run.data.tags["mlflow.note.content"]


@pytest.mark.parametrize("by_key", [False, True])
def test_it_is_recorded_alone_before_the_tables(mlflow_folder: Path, by_key: bool) -> None:
    """And with the tables later, as the same run; a table between the two has its id. A run that
    is recorded alone brings none along."""
    config = without_models(finished(mlflow_folder))
    key = ensemble_keys(config)["both"]
    [single] = sync(config, None, run="single")
    assert single.run == "single" and not identity.read(mlflow_folder / "demo/score" / key)
    [alone] = sync(config, None, run=key if by_key else "both")
    assert alone.run == "both" and len(alone.mlflow_run) == 32
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client
    [recorded] = client.search_runs([alone.mlflow_experiment], "tags.kind = 'ensemble'")
    assert recorded.info.run_id == alone.mlflow_run
    assert recorded.data.metrics["WER/swb"] == pytest.approx(6.0)
    write(Findings.of(config), mlflow_folder / "demo/wer.md")
    assert f"| {alone.mlflow_run} |" in (mlflow_folder / "demo/wer.md").read_text()
    assert sync(config, None)[-1] == alone
    run = client.get_run(alone.mlflow_run)
    assert "| both " in run.data.tags["mlflow.note.content"] and run.info.status == "FINISHED"
    assert len(client.get_metric_history(alone.mlflow_run, "WER/swb")) == 1


def test_a_misspelt_one_is_told_beside_the_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no training run 'bth'.*single, ssgd-4.*, both"):
        sync(finished(tmp_path), None, run="bth")


def test_mlflow_knows_when_its_scores_hold_no_more(mlflow_folder: Path) -> None:
    """One of its runs is trained again, after it was recorded, and diverges."""
    config = without_models(finished(mlflow_folder))
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client

    def told() -> list[str]:
        write(Findings.of(config), mlflow_folder / "demo/wer.md")
        found = client.get_run(sync(config, None)[-1].mlflow_run)
        tags = found.data.tags
        row = next(x for x in tags["mlflow.note.content"].splitlines() if x.startswith("| both "))
        return [found.info.status, tags["status"], tags["status_why"], cells(row)[4]]

    finished_before = ["FINISHED", "finished", "", "5.00 % (45/900)"]
    assert told() == finished_before
    summary = mlflow_folder / "demo/runs" / run_key(config, "ssgd-4") / "summary.json"
    trained = summary.read_text(), summary.stat()
    summary.write_text(json.dumps({"diverged": "loss of inf"}))
    assert told() == ["FAILED", "diverged", "ssgd-4: loss of inf", "diverged"]
    summary.write_text(trained[0])
    os.utime(summary, (trained[1].st_atime, trained[1].st_mtime))
    assert told() == finished_before


@pytest.mark.parametrize("name", ["both-00000000", "a**b", "*", "[x"])
def test_no_such_key_is_exported(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = finished(tmp_path)
    (tmp_path / "demo/config.yaml").write_text(resolved(config))
    arguments = ["export", name, "--results", str(tmp_path), "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 2
    told = capsys.readouterr().err
    assert f"no run '{name}'" in told
    for there in (run_key(config, "single"), ensemble_keys(config)["both"]):
        assert there in told.partition("There are: ")[2]


def test_clean_knows_it(tmp_path: Path) -> None:
    config = finished(tmp_path)
    assert ensemble_keys(config)["both"] in keys(config)
    file, started = write_file(config, tmp_path), tmp_path / "demo/configs/1.yaml"
    started.parent.mkdir()
    started.write_text(resolved(config))
    check_started(config, file)
    for other in (
        make_config(tmp_path, decoding={"ensembles": {"two": ["single", "ssgd-4"]}}),
        make_config(tmp_path),
        make_config(tmp_path, decoding=BOTH | {"gmm": True}),
    ):  # rows that no start has made
        with pytest.raises(UserError, match="no workflow was started here"):
            check_started(other, file)
