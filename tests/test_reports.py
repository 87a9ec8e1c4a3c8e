"""The table, the stages, the pictures and the page, from a results folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracking_data import (
    ERRORS,
    RUNS,
    WORDS,
    make_config,
    write_config,
    write_results,
    write_rows,
)

from hadpsgd import cli
from hadpsgd.config import Config, run_key, run_of
from hadpsgd.config.neural_lm import NeuralLm
from hadpsgd.errors import UserError
from hadpsgd.reports import (
    compare,
    curves,
    rows,
    significance,
    stages,
    table,
)
from hadpsgd.reports.command import FILES, INDEX, write
from hadpsgd.reports.findings import Findings
from hadpsgd.tracking import training_run
from hadpsgd.tracking.arithmetic import arithmetic
from hadpsgd.tracking.results import Score, State, read_results
from hadpsgd.tracking.sync import Tracked


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return write_results(tmp_path)


def test_one_row_a_run_one_column_a_set(config: Config) -> None:
    results = read_results(config)
    made = rows.of_results(
        results, [Tracked(run="single", key="k", mlflow_run="0123abcd", mlflow_experiment="1")]
    )
    lines = table.error_rates(config, made).markdown().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][:7] == ["run", "strategy", "learners", "training", "dev", "swb", "ch"]
    assert [row[0] for row in cells[2:]] == list(RUNS)
    assert cells[2][4:7] == ["5.00 % (45/900)", "6.00 % (60/1000)", "18.75 % (150/800)"]
    assert cells[2][7:] == ["10", "0.5", "0123abcd"] and cells[3][-1] == rows.NOT_UPLOADED
    assert len({len(line) for line in lines}) == 1  # lined up


def test_the_neural_models_share_is_shown_where_there_is_one(config: Config) -> None:
    """A column of its own, in the table and on the page; without the model none."""
    base = Path(config.results) / "demo"
    for file in (base / "score").glob("*/tuned.json"):
        made_at = file.stat().st_mtime_ns  # before the scores
        file.write_text(json.dumps(json.loads(file.read_text()) | {"neural_weight": 0.75}))
        os.utime(file, ns=(made_at, made_at))
    neural = config.lm.model_copy(update={"neural": NeuralLm()})
    for made in (config, config.model_copy(update={"lm": neural})):
        write(Findings.of(made), base / "wer.md")
        lines = (base / "wer.md").read_text().splitlines()
        [head] = [line for line in lines if line.startswith("| run ") and "penalty" in line]
        page = (base / "report.html").read_text()
        there = made is not config
        assert ("neural LM" in head) is ("<th>neural LM</th>" in page) is there
        row = lines[lines.index(head) + 2]
        assert (" 0.75 |" in row, "<td>0.75</td>" in page) == (there, there), row


def test_the_choice_is_told_with_the_numbers(config: Config) -> None:
    file = Path(config.results) / "demo/wer.md"
    update: dict[str, bool] = {"one_choice": True, "minimum_bayes_risk": True}
    both = config.model_copy(update={"scoring": config.scoring.model_copy(update=update)})
    more = ", once for all seeds of a row; words are those of minimum Bayes risk."
    best = config.decoding.model_copy(update={"one_best": True})
    one = both.model_copy(update={"decoding": best})
    no_choice = "; the search keeps the best path alone, whose words they do not change."
    for made, end in ((config, "."), (both, more), (one, no_choice)):
        write(Findings.of(made), file)
        assert f"chosen on `dev` alone{end}" in file.read_text()
        assert f"<code>dev</code> alone{end}" in (file.parent / "report.html").read_text()


def test_counts_are_those_of_the_scorer(config: Config) -> None:
    lines = table.counts(config, rows.of_results(read_results(config), [])).rows
    assert len(lines) == 9
    for run, name, words, errors, ins, dele, sub, _ in lines:
        wanted = ERRORS[run][name]
        assert (int(sub), int(ins), int(dele)) == wanted
        assert int(errors) == sum(wanted) and int(words) == WORDS[name]


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_shown_rate_is_errors_over_words(words: int, errors: int) -> None:
    text = table.rate(Score(words=words, sub=errors, ins=0, dele=0, sentences=1))
    percent, shown, total = re.fullmatch(r"([\d.]+) % \((\d+)/(\d+)\)", text).groups()  # type: ignore[union-attr]
    assert (int(shown), int(total)) == (errors, words)
    assert abs(float(percent) - 100 * errors / words) <= 0.00501


def test_a_missing_score_is_not_finished_and_a_broken_one_is_named(config: Config) -> None:
    file = Path(config.results) / "demo/score" / run_key(config, "ssgd-4") / "ch/wer.json"
    file.write_text('{"words": 3}')
    with pytest.raises(UserError, match=r"ssgd-4-\w+/ch/wer\.json: no usable count"):
        read_results(config)
    file.unlink()
    shown = table.error_rates(config, rows.of_results(read_results(config), []))
    assert shown.rows[1][4:7] == ["5.11 % (46/900)", "6.20 % (62/1000)", "not finished"]
    said = table.explanations(rows.of_results(read_results(config), []))
    assert said == "- ssgd-4 not finished: trained, and not scored on ch\n"
    assert [row.state for row in rows.of_results(read_results(config), [])] == [
        State.FINISHED,
        State.UNFINISHED,
        State.FINISHED,
    ]


def test_stages_from_snakemakes_benchmarks(config: Config) -> None:
    folder = Path(config.results) / "demo/benchmarks"
    (folder / "short.tsv").write_text("s\th:m:s\tmax_rss\tmean_load\n0.1\t0:00:00\tNA\t-\n")
    jobs = {job.name: job for job in stages.read(folder)}
    train = f"train.{run_key(config, 'single')}"
    assert jobs[train] == stages.Stage(name=train, seconds=95.1, peak_mib=402.0, cpu=98.1)
    assert jobs["short"].peak_mib is None
    # a job that was run again: Snakemake adds a row
    (folder / "again.tsv").write_text("s\tmax_rss\tmean_load\n1\t10\t100\n2\t20\t200\n")
    again = next(job for job in stages.read(folder) if job.name == "again")
    assert (again.seconds, again.peak_mib, again.cpu) == (2.0, 20.0, 200.0)
    assert f"| {train} |    95.1 |          402 |     98 |" in stages.page(
        "demo", list(jobs.values())
    )
    (folder / "broken.tsv").write_text("hello\n")
    with pytest.raises(UserError, match=r"broken\.tsv: not a benchmark file"):
        stages.read(folder)


class Resources(HTMLParser):
    """Everything that a page would fetch, and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.void = {"meta", "link", "img", "br", "path", "use", "rect"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            external = name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
            if external:
                self.fetched.append(value or "")
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag


def test_page_needs_nothing_from_elsewhere(config: Config) -> None:
    out = Path(config.results) / "demo/wer.md"
    write(Findings.of(config), out)
    assert all((out.parent / name).stat().st_size for name in FILES)
    page = (out.parent / "report.html").read_text()
    parser = Resources()
    parser.feed(page)
    assert parser.fetched == [] and parser.open == []
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", page)
    assert page.count("<svg") == 2 and "prefers-color-scheme: dark" in page
    assert "6.00 %" in page and "60 of 1000 words" in page
    assert "run.super_learner" in page and f"train.{run_key(config, 'single')}" in page
    png = (out.parent / "curves.png").read_bytes()
    assert png.startswith(b"\x89PNG")


def test_index_leads_to_the_pages_of_errors(config: Config) -> None:
    folder = f"errors/{run_key(config, 'ssgd-4')}"
    (Path(config.results) / "demo" / folder).mkdir(parents=True)
    (Path(config.results) / "demo" / folder / "index.html").write_text("")
    base = Path(config.results) / "demo"
    for run in ("single", "ssgd-4"):  # the first run is not compared with itself
        (base / "compared" / run_key(config, run)).mkdir(parents=True)
        (base / "compared" / run_key(config, run) / "index.html").write_text("")
    beside = f"compared/{run_key(config, 'ssgd-4')}/index.html"
    index = str(base / INDEX)
    assert cli.main(["report", "--config", str(base / "config.yaml"), "--index", index]) == 0
    parser = Resources()
    parser.feed((base / INDEX).read_text())
    assert parser.fetched == [f"{folder}/index.html", beside]
    write(Findings.of(config), base / "wer.md")
    parser = Resources()
    parser.feed((base / "report.html").read_text())
    assert parser.fetched == []


def test_page_escapes_what_it_shows(config: Config) -> None:
    Path(config.results, "demo/benchmarks/a<b>.tsv").write_text("s\tmax_rss\tmean_load\n1\t1\t1\n")
    write(Findings.of(config), Path(config.results) / "demo/wer.md")
    page = Path(config.results, "demo/report.html").read_text()
    assert "a&lt;b&gt;" in page and "a<b>" not in page


def test_same_results_same_page(config: Config, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(Findings.of(config), tmp_path / name / "wer.md")
    for file in (*FILES, "wer.md"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_command_shows_the_table(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(config.results) / "demo/config.yaml"
    assert cli.main(["report", "--config", str(file), "--show"]) == 0
    assert "18.75 % (150/800)" in capsys.readouterr().out
    shutil.rmtree(Path(config.results) / "demo/score")
    assert cli.main(["report", "--config", str(file), "--show"]) == 0
    assert capsys.readouterr().out.count("| not finished") == 9
    assert cli.main(["report", "--config", str(file)]) == 2


def test_results_of_a_config_that_never_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_config(make_config(tmp_path / "empty"), tmp_path / "c.yaml")
    assert cli.main(["report", "--config", str(file), "--show"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "empty/demo: no results yet" in error


WHY = "gradient of learner 0 is not finite at step 12"


def test_runs_without_a_result_are_rows_that_say_so(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run diverged, the second failed: the third has its row, page and pictures."""
    base = Path(config.results) / "demo"
    for run in ("single", "ssgd-4"):
        shutil.rmtree(base / "score" / run_key(config, run))
    diverged, failed = (base / "runs" / run_key(config, run) for run in ("single", "ssgd-4"))
    (diverged / "summary.json").write_text(json.dumps({"identity": "0", "diverged": WHY}))
    write_rows(diverged / "metrics.jsonl", [{"step": 85, "epoch": 4.2, "loss": 1e9, "time": 0}])
    (failed / "summary.json").unlink()
    (failed / "failed.json").write_text(json.dumps({"why": "rank 0 failed (SIGSEGV)"}))
    write(Findings.of(config), base / "wer.md")
    text = (base / "wer.md").read_text()
    table_lines = [line for line in text.split("##")[0].splitlines() if "|" in line]
    cells = {line.split("|")[1].strip(): line for line in table_lines}
    assert cells["single"].count("diverged") == cells["ssgd-4"].count("failed") == 3
    assert "18.75 %" not in text and "19.12 %" in cells["hadpsgd-2x2"]
    assert f"- single diverged: {WHY}\n" in text
    assert "- ssgd-4 failed: rank 0 failed (SIGSEGV)\n" in text
    page = (base / "report.html").read_text()
    assert f"diverged: {WHY}" in page and "failed: rank 0 failed (SIGSEGV)" in page
    assert "95 of" not in page and "153 of 800 words" in page
    axis, _ = curves.losses(read_results(config)).axes
    assert axis.get_ylim()[1] < 10
    compared = compare.page(compare.from_results(config, "demo"))
    status = next(line for line in compared.splitlines() if "| status" in line)
    assert f"diverged: {WHY}" in status and "finished" in status
    assert cli.main(["report", "--config", str(base / "config.yaml"), "--show"]) == 0
    assert f"- single diverged: {WHY}\n" in capsys.readouterr().out


def test_stages_are_those_of_the_configs_runs_and_sets(config: Config) -> None:
    """The results folder keeps benchmarks of former settings."""
    folder = Path(config.results) / "demo/benchmarks"
    now = run_key(config, "single")
    for name in (f"train.{now}", f"decode.{now}.swb", f"tune.{now}", f"score.{now}.dev"):
        (folder / f"{name}.tsv").write_text("s\tmax_rss\tmean_load\n1\t1\t1\n")
    for name in ("train.single-00000000", "decode.single-00000000.swb", f"score.{now}.gone"):
        (folder / f"{name}.tsv").write_text("s\tmax_rss\tmean_load\n1\t1\t1\n")
    assert {stage.name for stage in stages.of_config(config)} == {
        "corpus",
        *(f"train.{now}", f"decode.{now}.swb", f"tune.{now}", f"score.{now}.dev"),
    }


def test_a_run_of_former_settings_is_found_by_its_key(config: Config) -> None:
    """It has folders of its own, which a run of the same name with new settings leaves alone."""
    key = run_key(config, "ssgd-4")
    folder = Path(config.results) / "demo/runs" / key
    shutil.copy(Path(config.results) / "demo/config.yaml", folder / "config.yaml")
    training = config.training.model_copy(update={"momentum": 0.5})
    changed = config.model_copy(update={"training": training})
    assert run_key(changed, "ssgd-4") != key
    (now,), (former,) = (compare.find(name, changed) for name in ("ssgd-4", key))
    assert former.label == key and now.label == "ssgd-4"
    assert former.settings["training.momentum"] == "0.9" and now.settings != former.settings
    assert "WER swb" in former.metrics and now.metrics == {"status": "not finished"}
    with pytest.raises(UserError, match=f"'{key}' was trained with other settings"):
        run_of(changed, key)


def test_the_table_says_where_its_results_were_made(config: Config) -> None:
    """Errors on one kind of processor are not those on another."""
    out = Path(config.results) / "demo/wer.md"
    write(Findings.of(config), out)
    assert "Made by" not in out.read_text()  # nothing is known
    [folder] = (Path(config.results) / "demo/runs").glob("single-*")
    training_run.write_provenance(config, folder)
    write(Findings.of(config), out)
    kind = arithmetic()
    commit = json.loads((folder / "provenance.json").read_text())["code"]["commit"][:12]
    said = f"commit {commit}"
    text = out.read_text()
    assert said in text and f"{kind['processor']} ({kind['instructions']})" in text
    page = (out.parent / "report.html").read_text()
    assert said in page and kind["instructions"] in page and "OpenBLAS" in page


def test_scores_of_a_model_that_is_gone_are_not_shown(config: Config) -> None:
    """Its training failed, or goes on: the scores of before are no result."""
    base, key = Path(config.results) / config.name, run_key(config, "ssgd-4")
    summary = base / "runs" / key / "summary.json"
    times, text = summary.stat(), summary.read_text()
    summary.unlink()
    for failed, state in (({}, State.UNFINISHED), ({"why": "host"}, State.FAILED)):
        if failed:
            (summary.parent / "failed.json").write_text(json.dumps(failed))
        result = read_results(config)[1]
        assert (result.state, result.scores, result.tuned) == (state, {}, {})
        assert "ssgd-4" not in significance.of_config(config, read_results(config))["swb"]["runs"]
    summary.write_text(text)
    os.utime(summary, ns=(times.st_atime_ns, times.st_mtime_ns))
    (summary.parent / "failed.json").unlink()
    assert read_results(config)[1].state is State.FINISHED


@pytest.mark.parametrize(
    ("newer", "left"),
    [
        ("runs/{}/summary.json", set()),
        ("score/{}/tuned.json", set()),
        ("decode/{}/dev/.snakemake_timestamp", set()),
        ("decode/{}/swb/.snakemake_timestamp", {"dev", "ch"}),
        ("score/{}/swb/.snakemake_timestamp", {"dev", "swb", "ch"}),
    ],
)
def test_scores_older_than_what_they_are_made_from_are_not_shown(
    config: Config, newer: str, left: set[str]
) -> None:
    file = Path(config.results) / config.name / newer.format(run_key(config, "ssgd-4"))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    later = file.stat().st_mtime_ns + 10**9
    os.utime(file, ns=(later, later))
    result = read_results(config)[1]
    assert result.scores.keys() == left
    assert (result.state is State.FINISHED) == (len(left) == 3)
    tests = significance.of_config(config, read_results(config))
    assert {name for name in ("swb", "ch") if "ssgd-4" in tests[name]["runs"]} == left - {"dev"}


def test_the_report_leaves_out_what_was_not_made_again(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_config(config, Path(config.results) / "config.yaml")
    key, other = run_key(config, "ssgd-4"), run_key(config, "single")
    left_out = ["--unfinished", key, f"{other}/ch"]
    assert cli.main(["report", "--config", str(file), "--show", *left_out]) == 0
    out = capsys.readouterr().out
    assert "5.11 %" not in out and "18.75 %" not in out
    assert "6.00 %" in out and out.count("not finished") >= 4
