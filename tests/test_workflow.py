"""The workflow as Snakemake sees it: profiles, lint, triggers, one lock for all environments."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpus_data import make_data
from small_workflow import Small
from tracking_data import write_results

from hadpsgd.cli import main
from hadpsgd.config import load, run_key, write_resolved
from hadpsgd.errors import UserError
from hadpsgd.starting import plans
from hadpsgd.training.identity import checkpoint_folder

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def snakemake(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(BIN / "snakemake"), *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("profile", ["local", "slurm"])
@pytest.mark.parametrize("config", ["demo", "an4"])
def test_a_profile_is_found_by_its_bare_name(profile: str, config: str, tmp_path: Path) -> None:
    fresh = f"results={tmp_path}"  # nothing is there yet, so every rule must be planned
    configfile = f"config/{config}.yaml"
    ran = snakemake("--profile", profile, "-n", "--configfile", configfile, "--config", fresh)
    assert ran.returncode == 0, ran.stderr[-2000:]
    planned = set(re.findall(r"^\s*(?:local)?rule (\w+):", ran.stdout, re.MULTILINE))
    assert {"corpus", "features", "egs", "train", "graph", "decode", "score", "report"} <= planned


LADDER = {"mono", "tri", "lda_mllt", "sat", "align"}
ADAPTS = {"decode_first", "adapt_first", "decode_adapted", "adapt", "fmllr"}
IVECTORS = {"ubm", "ivector_train", "ivector_extract"}


@pytest.mark.parametrize(
    ("config", "rules", "others"),
    [
        ("tiny_full", LADDER | ADAPTS | IVECTORS, {"import_fmllr", "import_alignment"}),
        (
            "an4_full",
            {"import_alignment", "import_fmllr", "import_ivector"},
            LADDER | ADAPTS | IVECTORS,
        ),
    ],
)
def test_all_260_inputs_are_planned(
    config: str, rules: set[str], others: set[str], shared: Path, tmp_path: Path
) -> None:
    ran = snakemake(
        "-n", "--profile", "local", "--configfile", f"config/{config}.yaml",
        "--config", f"results={tmp_path}", HADPSGD_SHARED=str(shared.resolve()),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    planned = set(re.findall(r"^\s*(?:local)?rule (\w+):", ran.stdout, re.MULTILINE))
    both = {"egs", "train", "alignment_report", "adaptation_report"}
    assert rules | both <= planned and not others & planned


def test_speeds_and_realignment_are_planned(tmp_path: Path) -> None:
    """Two passes train one network each and align train and dev; copies at other speeds are made
    and adapted, for the examples alone."""
    ran = snakemake(
        "-n", "--profile", "local", "--configfile", "config/tiny_full.yaml", "--quiet", "rules",
        "--config", f"results={tmp_path}", "realign={passes: 2}", "corpus={speeds: [0.9, 1.0]}",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    wanted = {
        "egs_to_realign": 4,
        "train_to_realign": 2,
        "realign": 4,
        "egs": 2,
        "train": 1,
        # of train, dev and two test sets, and of the copies
        "perturb": 1,
        "features": 10,
        "align": 1,
        "fmllr": 4,
        "ivector_extract": 5,
        "decode_first": 3,
        "sat": 1,
        "adapt_perturbed": 1,
        "fmllr_perturbed": 1,
    }
    assert {name: int(counts.get(name, 0)) for name in wanted} == wanted


def test_noisy_copies_are_planned(tmp_path: Path) -> None:
    """Made once, with logmel features as four sets have them; mfcc are of train and dev alone."""
    ran = snakemake(
        "-n", "--profile", "local", "--configfile", "config/demo.yaml", "--quiet", "rules",
        "--config", f"results={tmp_path}", "corpus={noise: {copies: 1}}",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    wanted = {"perturb": 1, "features": 4 + 1 + 2, "egs": 2, "corpus": 4}
    assert {name: int(counts.get(name, 0)) for name in wanted} == wanted


def test_a_run_may_be_trained_alone(tmp_path: Path) -> None:
    """The demo's two runs with a slow learner are not decoded, and have no page of errors."""
    ran = snakemake(
        "-n", "--profile", "local", "--configfile", "config/demo.yaml", "--quiet", "rules",
        "--config", f"results={tmp_path}",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    wanted = {"train": 5, "track_training": 5, "decode": 9, "tune": 3, "score": 9,
              "track_scores": 3, "error_analysis": 3, "compare_errors": 2}  # fmt: skip
    assert {name: int(counts.get(name, 0)) for name in wanted} == wanted


def test_a_wrong_config_is_one_line(tmp_path: Path) -> None:
    """Without the lines of the Snakefile and of the package that it went through."""
    ran = snakemake("-n", "--profile", "local", "--config", f"results={tmp_path}", "trainin={}")
    assert ran.returncode == 1
    [said] = [line for line in ran.stderr.splitlines() if not line.startswith("Using ")]
    assert said.startswith("hadpsgd: error: config: unknown key 'trainin': did you mean 'training'")


@pytest.mark.parametrize("one", [False, True])
def test_a_choice_for_each_run_or_one_for_all_seeds(one: bool, tmp_path: Path) -> None:
    ran = snakemake(
        "-n", "--profile", "local", "--configfile", "config/tiny.yaml", "--config",
        f"results={tmp_path}", f"scoring={{one_choice: {str(one).lower()}}}",
        "training={seeds: [1, 2], runs: [{strategy: single}]}",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = re.findall(r"hadpsgd tune .* --decode (.*) --data", ran.stdout + ran.stderr)
    decoded = [[Path(path).parent.name for path in each.split()] for each in found]
    first, second = sorted(each[0] for each in decoded)
    assert sorted(decoded) == ([[first, second], [second, first]] if one else [[first], [second]])


def test_copies_of_imported_speakers_are_adapted(shared: Path, tmp_path: Path) -> None:
    """Of AN4 with Kaldi's transforms: all others are imported."""
    ran = snakemake(
        "-n", "--profile", "local", "--configfile", "config/an4_full.yaml", "--quiet", "rules",
        "--config", f"results={tmp_path}", "corpus={speeds: [0.9, 1.0]}",
        HADPSGD_SHARED=str(shared.resolve()),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    wanted = {"import_alignment": 2, "import_fmllr": 3, "adapt_perturbed": 1,
              "fmllr_perturbed": 1, "import_ivector": 4, "egs": 2}  # fmt: skip
    assert {name: int(counts.get(name, 0)) for name in wanted} == wanted


def test_fmllr_without_a_source_is_refused() -> None:
    ran = snakemake(
        "-n", "--configfile", "config/demo.yaml", "--config", "features={input: [fmllr, logmel]}"
    )
    assert ran.returncode != 0
    assert "fmllr needs alignment.kind sat" in ran.stdout + ran.stderr


def test_lint_finds_nothing() -> None:
    ran = snakemake("--lint", "--configfile", "config/demo.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_section_that_stands_twice_stops_the_workflow(tmp_path: Path) -> None:
    """Snakemake's own reader takes the last one, with the defaults of all that the first had."""
    file = tmp_path / "twice.yaml"
    whole = (ROOT / "config/tiny.yaml").read_text()
    file.write_text(whole + "training:\n  average_last: 2\n")
    ran = snakemake("-n", "--configfile", str(file))
    assert ran.returncode != 0
    line = whole.count("\n") + 1
    assert f"{file}:{line}: not YAML: the key 'training' stands here a second" in ran.stderr


def test_folders_without_alignments_are_told_before_the_start(tmp_path: Path) -> None:
    for name in ("final.mdl", "tree"):  # without these Snakemake's own line comes first
        (tmp_path / name).touch()
    file = tmp_path / "imported.yaml"
    folders = f"ali_dir: {tmp_path}, lang_dir: {tmp_path}"
    head = f"name: x\nresults: {tmp_path}/results\ncorpus: {{kind: builtin}}\n"
    file.write_text(f"{head}alignment: {{kind: kaldi, {folders}}}\n")
    ran = snakemake("-n", "--configfile", str(file))
    told = ran.stdout + ran.stderr
    assert f"This would fail: alignment.lang_dir: {tmp_path}: no file phones.txt." in told
    assert f"alignment.ali_dir: {tmp_path}: no file ali.1.gz." in told
    begun = snakemake("--cores", "1", "--configfile", str(file))
    assert begun.returncode != 0 and f"{tmp_path}: no file phones.txt." in begun.stderr
    assert not (tmp_path / "results/x/corpus").exists()


def test_a_wrong_config_stops_the_workflow_with_the_keys_name() -> None:
    ran = snakemake("-n", "--configfile", "config/demo.yaml", "--config", "sead=3")
    assert ran.returncode != 0
    assert "sead" in ran.stdout + ran.stderr


def test_profiles_leave_locking_to_us() -> None:
    for profile in ("default", "local", "slurm"):
        assert profile_of(profile)["nolock"] is True


def test_a_wrong_tracking_uri_stops_the_workflow() -> None:
    ran = snakemake(
        "-n", "--configfile", "config/tiny.yaml", "--config", "tracking={uri: ./mlruns}"
    )
    assert ran.returncode != 0
    assert "not a tracking URI: './mlruns'; give sqlite:///FILE" in ran.stdout + ran.stderr


def test_results_below_a_file_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/more"):
        with pytest.raises(UserError, match="file: `results` lies below a file"):
            plans(tmp_path / place / "tiny")
    plans(tmp_path / "new" / "tiny")


def test_inputs_that_are_not_there(tmp_path: Path) -> None:
    """A dry run tells; a start ends before its first job."""
    make_data(tmp_path)
    content = {
        "name": "t",
        "results": f"{tmp_path}/results",
        "corpus": {
            "kind": "kaldi",
            "train": f"{tmp_path}/data/trian",
            "dev": f"{tmp_path}/data/train",
            "tests": {"test": f"{tmp_path}/data/train"},
            "dict_dir": f"{tmp_path}/lexicon.txt",
            "lm_text": f"{tmp_path}/data/train/text",
        },
    }
    file = tmp_path / "t.yaml"
    file.write_text(yaml.safe_dump(content))
    said = f"corpus.train: {tmp_path}/data/trian: no such file or folder"
    given = ["--profile", "local", "--cores", "1", "--configfile", str(file)]
    planned = snakemake("-n", *given)
    assert planned.returncode == 0 and f"This would fail: {said}" in planned.stdout + planned.stderr
    ran = snakemake(*given)
    assert ran.returncode != 0 and said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "results/t/corpus").exists()


def test_a_page_of_claims_without_grids_is_refused_first() -> None:
    """Before all runs are trained for it."""
    for more in ([], ["tracking={uri: none}"]):
        config = "config/paper_quick.yaml" if more else "config/tiny.yaml"
        ran = snakemake("-n", "--configfile", config, "--config", "name=new", *more, "--", "paper")
        assert ran.returncode == 1
        told = ran.stderr.strip().splitlines()[-1]
        assert told.startswith("hadpsgd: error: ")
        assert ("MLFLOW_TRACKING_URI is 'none'" if more else "no training.grids") in told


def test_read_only_results_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write anywhere
    with pytest.raises(UserError, match=r"tiny/config\.yaml: the file system is read-only"):
        write_resolved(load(ROOT / "config/tiny.yaml"), tmp_path / "tiny/config.yaml")


@pytest.mark.slow
def test_snakemakes_own_report(small: Small, tmp_path: Path) -> None:
    """It needs pygments, and no network."""
    file = tmp_path / "report.zip"
    ran = small.command(
        *("snakemake", "--profile", "local", "--configfile", str(small.config)),
        *("--report", str(file)),
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    names = zipfile.ZipFile(file).namelist()
    assert any(name.endswith("report.html") for name in names)


def profile_of(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "profiles" / name / "config.yaml").read_text())


def failing(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A workflow of which every stage fails, reports aside."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "hadpsgd").write_text(
        f'#!/bin/sh\n[ "$1" = report ] && exec {BIN}/hadpsgd "$@"\nexit 1\n'
    )
    (programs / "hadpsgd").chmod(0o755)
    path = os.pathsep.join((str(programs), str(BIN), os.environ["PATH"]))
    ran = snakemake(*arguments, PATH=path)
    assert ran.returncode != 0
    return ran


@pytest.mark.parametrize("snakefile", ["Snakefile", "workflow/Snakefile"])
def test_a_workflow_that_fails_prints_the_table_of_what_there_is(
    snakefile: str, tmp_path: Path
) -> None:
    """Every stage fails here; an included Snakefile's own handler would not be called."""
    config = write_results(tmp_path / "results")
    shutil.rmtree(tmp_path / "results/demo/score" / run_key(config, "single"))
    file = tmp_path / "results/demo/config.yaml"
    ran = failing(
        *("--snakefile", snakefile, "--profile", "local", "--cores", "1"),
        *("--configfile", str(file), "--", str(tmp_path / "results/demo/graph")),
        folder=tmp_path,
    )
    rows = [line for line in ran.stderr.splitlines() if re.match(r"\| (single|ssgd|hadpsgd)", line)]
    assert [row.count("not finished") for row in rows[:3]] == [3, 0, 0]
    assert "18.75 %" not in ran.stderr and "19.12 % (153/800)" in rows[2]


def test_what_a_failed_workflow_was_to_make_again_is_told_later_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path / "results")
    file, page = (tmp_path / "results/demo" / name for name in ("config.yaml", "index.html"))
    page.write_text("former")
    ran = failing("--profile", "local", "--cores", "1", "--configfile", str(file), folder=tmp_path)
    assert main(["report", "--config", str(file), "--show"]) == 0
    for told in (ran.stderr, capsys.readouterr().out):
        rows = [line for line in told.splitlines() if re.match(r"\| (single|ssgd|hadpsgd)", line)]
        assert [row.count("not finished") for row in rows[:3]] == [3, 3, 3]
        assert f"{page} and the pages beside it are not of this table" in told
    assert page.read_text() == "former"


def test_profiles_keep_going() -> None:
    """A job that fails is no reason to leave the other runs undone."""
    for name in ("default", "local", "slurm"):
        assert profile_of(name)["keep-going"] is True, name


def test_profiles_keep_off_what_snakemake_and_slurm_trip_over() -> None:
    for folder in (ROOT / "profiles").iterdir():
        assert len([*folder.glob("profile.*"), *folder.glob("config.*")]) == 1, folder
    # loaded before every profile, whose top-level keys it would replace
    assert not {"executor", "default-resources"} & profile_of("default").keys()
    slurm = profile_of("slurm")
    assert slurm["retries"] > 0
    for file in (ROOT / "workflow/rules").glob("*.smk"):  # they multiply with the executor's
        assert not re.search(r"^\s*retries:", file.read_text(), re.MULTILINE), file
    # without slurmdbd: squeue, and jobs that it still knows when it is asked
    assert slurm["slurm-status-command"] == "squeue"
    cluster = (ROOT / "tests/slurm/cluster.sh").read_text()
    age = int(re.findall(r"MinJobAge=(\d+)", cluster)[0])
    assert age >= 3 * slurm["slurm-init-seconds-before-status-checks"]
    assert all("code" not in profile_of(name)["rerun-triggers"] for name in ("default", "slurm"))


def test_what_takes_all_cores_does_not_wait_behind_what_takes_one_for_long() -> None:
    """A search of one core that starts first (the GMM's) leaves the others idle until it ends."""
    rules = "\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    found = re.findall(
        r"^ *rule (\w+):\n(.*?)(?=^ *(?:use )?rule |\Z)", rules, re.DOTALL | re.MULTILINE
    )
    wide = {
        name: body for name, body in found if re.search(r"^ *threads: THREADS$", body, re.MULTILINE)
    }
    assert {"corpus", "perturb", "mono", "sat", "egs", "ubm"} <= wide.keys()
    assert all(re.search(r"^ *priority: [23]\b", body, re.MULTILINE) for body in wide.values())
    # one training of all cores ends: the next one begins before one process may take a core
    [training] = re.findall(r"^ *priority: ([\d.]+)", dict(found)["track_training"], re.MULTILINE)
    assert 1 < float(training) < 2


def test_a_failed_training_keeps_its_checkpoints() -> None:
    """Snakemake deletes the outputs of a failed rule."""
    config = load(ROOT / "config/tiny.yaml")
    folder = checkpoint_folder(config, run_id="single", hash_="0" * 12)
    outputs = Path(config.results) / config.name
    assert outputs not in folder.parents
