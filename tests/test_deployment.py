"""The workflow elsewhere: conda, containers, as a module of another workflow, on many GPUs."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from hadpsgd import cli, origin
from hadpsgd.config import load

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
GOLDEN = ROOT / "tests" / "golden" / "sbatch.txt"
# what Snakemake asks conda in a dry run; where there is a conda, nothing is installed either
CONDA = """#!/bin/sh
here=$(dirname "$(dirname "$0")")
case "$*" in
"info --json") echo "{\\"conda_prefix\\": \\"$here\\", \\"platform\\": \\"linux-64\\"}" ;;
"--version") echo "conda 25.1.0" ;;
*channel_priority*) echo '{"get": {"channel_priority": "strict"}}' ;;
clean*) ;;
*) CREATE ;;
esac
"""

SOON = ("latency-wait", "seconds-between-status-checks", "slurm-init-seconds-before-status-checks")


def run(*command: str, cwd: Path, path: str = "", env: dict[str, str] | None = None) -> str:
    """Output of a command that must not fail."""
    search = os.pathsep.join(filter(None, (path, str(BIN), os.environ["PATH"])))
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": search, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def rules() -> dict[str, str]:
    """Every rule's text by its name."""
    files = [ROOT / "workflow/Snakefile", *sorted((ROOT / "workflow/rules").glob("*.smk"))]
    text = "\n".join(file.read_text() for file in files)
    parts = re.split(r"^ *rule (\w+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_rule_has_the_environment() -> None:
    found = rules()
    assert {"corpus", "import_alignment", "ubm", "train", "report"} <= found.keys()
    without = {name for name, text in found.items() if "conda:" not in text}
    assert without == {"all", "paper", "checked"}  # they run nothing
    for name in found.keys() - without:
        files = re.findall(r'conda:\s+"([^"]+)"', found[name])
        for file in files:
            assert (ROOT / "workflow/rules" / file).resolve() == ROOT / "envs/hadpsgd.yaml", name


def test_a_rules_threads_are_its_processes() -> None:
    """What a command can start, its rule reserves; what a rule reserves, its command starts."""
    found = rules()
    for name, text in found.items():
        stage = re.search(r"hadpsgd ([\w-]+)", text)
        if not stage or stage[1] == "launch":  # it starts learners
            continue
        parser = argparse.ArgumentParser()
        cli.load(stage[1]).configure(parser)
        several = "--jobs" in parser._option_string_actions
        assert several == ("--jobs {threads}" in text), name
        assert several or "threads:" not in text, name


def test_dry_run_with_conda(tmp_path: Path) -> None:
    """Our own alignment, i-vectors and adaptation: nearly all rules there are."""
    conda = conda_in(tmp_path, "exit 1")
    shown = run(
        *("snakemake", "--sdm", "conda", "-n", "--directory", str(tmp_path)),
        *("--snakefile", str(ROOT / "Snakefile"), "--configfile", "config/tiny_full.yaml"),
        cwd=ROOT,
        path=str(conda),
    )
    assert re.search(r"Conda environment \S*envs/hadpsgd.yaml will be created", shown)
    planned = set(re.findall(r"^\s*(?:local)?rule (\w+):", shown, re.MULTILINE))
    assert {"corpus", "sat", "ivector_train", "train", "decode_adapted", "report"} <= planned


@pytest.mark.parametrize("snakefile", ["Snakefile", "workflow/Snakefile"])
def test_the_workflow_is_found_in_both_places(snakefile: str, tmp_path: Path) -> None:
    """At the root, and where catalogues look; the default profile is loaded from both."""
    shown = run(
        *("snakemake", "-n", "--snakefile", str(ROOT / snakefile)),
        *("--configfile", str(ROOT / "config/tiny.yaml")),
        cwd=tmp_path,
    )
    assert re.search(r"workflow specific profile \S+/profiles/default", shown)
    planned = set(re.findall(r"^\s*(?:local)?rule (\w+):", shown, re.MULTILINE))
    assert {"all", "corpus", "train", "track"} <= planned


def conda_in(folder: Path, create: str) -> Path:
    """Folder of a stand-in for conda, which creates an environment so."""
    conda = folder / "bin" / "conda"
    conda.parent.mkdir()
    conda.write_text(CONDA.replace("CREATE", create))
    conda.chmod(0o755)
    return conda.parent


@pytest.mark.slow
def test_a_job_in_a_conda_environment(tmp_path: Path) -> None:
    """Snakemake makes the environment, runs its own copy of the script there, then a rule.

    A virtual environment stands in for conda's; the packages of the lock are this one's.
    """
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "workflow", checkout / "workflow", symlinks=True)
    for name in ("pyproject.toml", "README.md", "envs", "profiles", "config"):
        (checkout / name).symlink_to(ROOT / name)
    packages = sysconfig.get_path("purelib")
    create = f"""for prefix; do :; done
        {sys.executable} -m venv --without-pip "$prefix"
        echo {packages} > "$(echo "$prefix"/lib/python*/site-packages)/lock.pth" """
    path = conda_in(tmp_path, create)
    (path / "activate").write_text('export CONDA_PREFIX="$1" PATH="$1/bin:$PATH"\n')
    shown = run(
        *("snakemake", "--sdm", "conda", "--cores", "1", "--configfile", "config/tiny.yaml"),
        *("--snakefile", str(checkout / "workflow/Snakefile"), "--directory", str(tmp_path)),
        *("--config", "corpus={train_minutes: 0.2, dev_minutes: 0.2, test_minutes: 0.2}"),
        *("--until", "lang", "--show-failed-logs"),
        cwd=checkout,
        path=str(path),
        env={"PYTHONPATH": str(checkout / "workflow")},
    )
    assert "Running post-deploy script .snakemake/conda/" in shown
    assert (tmp_path / "results/tiny/lang/L.fst").is_file()
    (program,) = tmp_path.glob(".snakemake/conda/*/bin/hadpsgd")
    assert f"Activating conda environment: .snakemake/conda/{program.parents[1].name}" in shown
    (link,) = program.parents[1].glob("lib/python*/site-packages/__editable__*hadpsgd*.pth")
    assert str(checkout / "workflow") in link.read_text()


@pytest.mark.parametrize(
    ("source", "said"),
    [("", "is not known: set HADPSGD_SOURCE to a checkout, or to what pip installs"),
     ("/", "no checkout at /: set HADPSGD_SOURCE to one")],
)  # fmt: skip
def test_a_package_of_unknown_origin(source: str, said: str) -> None:
    done = subprocess.run(
        ["bash", str(ROOT / "envs/hadpsgd.post-deploy.sh")],
        env={"PATH": os.environ["PATH"], "HADPSGD_SOURCE": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and said in done.stderr


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ({"url": "file:///a%20b/c", "dir_info": {}}, "/a b/c"),
        ({"url": "https://x.example/h.tar.gz", "archive_info": {}}, "https://x.example/h.tar.gz"),
        (
            {"url": "https://x.example/h", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "git+https://x.example/h@12ab",
        ),
    ],
)
def test_the_origin_of_an_installed_package(record: dict[str, Any], source: str) -> None:
    """Without a checkout beside it: what pip recorded (PEP 610)."""
    assert origin.as_pip_takes_it(record) == source


def module(folder: Path, **changes: object) -> None:
    """Another workflow that uses ours."""
    (folder / "Snakefile").write_text(f"""
configfile: "mine.yaml"

module speech:
    snakefile: "{ROOT}/workflow/Snakefile"
    config: config["speech"]

use rule * from speech as speech_*

use rule train from speech as speech_train with:
    retries: 0

rule mine:
    default_target: True
    input: rules.speech_report.output.wer
    output: "best.txt"
    shell: "tail -1 {{input}} > {{output}}"

rule nothing_of_speech:
    output: "other.txt"
    shell: "touch {{output}}"

onstart:
    shell("ls -A results/*/ > mine.starts")
""")
    inner = yaml.safe_load((ROOT / "config/tiny.yaml").read_text()) | changes
    (folder / "mine.yaml").write_text(yaml.safe_dump({"speech": inner}))


def test_a_module_of_another_workflow(tmp_path: Path) -> None:
    module(tmp_path)
    shown = run("snakemake", "-n", cwd=tmp_path)
    planned = set(re.findall(r"^\s*(?:local)?rule (\w+):", shown, re.MULTILINE))
    assert {"mine", "speech_train", "speech_decode", "speech_report"} <= planned
    assert "speech_track" not in planned  # nobody asked for it


def test_a_module_starts_as_the_workflow_does(tmp_path: Path) -> None:
    """Snakemake runs the main Snakefile's hooks alone; ours come before them."""
    module(tmp_path)
    run("snakemake", "--cores", "1", "other.txt", cwd=tmp_path)
    assert ".workflow.lock" in (tmp_path / "mine.starts").read_text().split()


def test_a_module_that_wants_too_many_hosts(tmp_path: Path) -> None:
    """Said before anything is submitted; Slurm would let the training wait for ever."""
    runs = [{"strategy": "ssgd", "learners": 8}]
    module(tmp_path, training={"runs": runs})
    (tmp_path / "site.yaml").write_text("learners_per_node: 2\n")
    said = refused_by_slurm(tmp_path, "site=site.yaml")
    assert re.match(r"run 'ssgd-8-\w+' wants 4 hosts, partition 'small' gives 2 at most", said)


def test_slurm_without_a_site(tmp_path: Path) -> None:
    """`--config` hides the profile's: all learners would share one host, without GPUs."""
    module(tmp_path)
    assert refused_by_slurm(tmp_path, "name=mine").startswith("no site is named")


def refused_by_slurm(folder: Path, config: str) -> str:
    """The one line of a workflow that may not start on Slurm; nothing is submitted."""
    scontrol = folder / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text("#!/bin/sh\necho PartitionName=small TotalNodes=3 MaxNodes=2\n")
    scontrol.chmod(0o755)
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "tests/sbatch_lines.py"), "--executor", "slurm"),
            *("--jobs", "9", "--default-resources", "slurm_partition=small"),
            *("--config", config),
        ],
        cwd=folder,
        env={**os.environ, "PATH": f"{scontrol.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stdout.strip() == "", done.stdout
    said = done.stderr.split("WorkflowError:\n")[1].strip().splitlines()
    assert len(said) == 2 and "File" in said[1], done.stderr[-2000:]  # where it was raised
    assert not (folder / "mine.starts").exists()
    return said[0]


def test_container_and_catalog() -> None:
    text = (ROOT / "Containerfile").read_text()
    copied = [
        word for line in re.findall(r"^COPY (.*)", text, re.MULTILINE) for word in line.split()
    ]
    missing = [name for name in copied if name != "./" and not (ROOT / name).exists()]
    assert not missing
    listed = set(re.findall(r"\]\((\w+\.yaml)\)", (ROOT / "config/README.md").read_text()))
    assert listed == {file.name for file in (ROOT / "config").glob("*.yaml")}
    catalog = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())
    flags = catalog["usage"]["mandatory-flags"]["flags"].split()
    assert (ROOT / flags[1]).is_dir()
    assert load(ROOT / flags[3]).name == "demo"


def started_in_the_container() -> list[str]:
    """What the image runs, with this checkout in its place."""
    text = (ROOT / "Containerfile").read_text()
    (workdir,) = re.findall(r"^WORKDIR (\S+)", text, re.MULTILINE)
    parts = [json.loads(re.findall(rf"^{name} (.*)", text, re.MULTILINE)[0])
             for name in ("ENTRYPOINT", "CMD")]  # fmt: skip
    return [word.replace(workdir, str(ROOT)) for part in parts for word in part]


def test_the_container_leaves_everything_outside(tmp_path: Path) -> None:
    """mlflow.db and mlartifacts were lost: only results/ was a volume.

    All that the workflow writes lies where it is run, which is a volume, by the same path.
    """
    for page in ("Containerfile", "docs/cluster.md"):
        commands = re.findall(r"podman run (.*)", (ROOT / page).read_text())
        assert commands
        for command in commands:
            volume = re.search(r'-v "(\S+):(\S+)" -w "(\S+)" hadpsgd', command)
            assert volume and len(set(volume.groups())) == 1, command
    shown = run(*started_in_the_container(), "-n", "--cores", "2", cwd=tmp_path)
    outputs = re.findall(r"^    (?:output|log|benchmark): (.*)", shown, re.MULTILINE)
    written = {Path(path) for line in outputs for path in line.split(", ")}
    demo = load(ROOT / "config/demo.yaml")
    written |= {Path(demo.results), Path(demo.tracking.uri.removeprefix("sqlite:///"))}
    assert len(written) > 20 and not [path for path in written if path.is_absolute()]


def sbatch_lines(folder: Path) -> str:
    """What would be submitted for 64 and for 128 GPUs, 8 on each host, and for one."""
    profile = (ROOT / "profiles/slurm/config.yaml").read_text()
    for name in ("account", "partition"):
        pattern = rf"# (slurm_\w+: your-{name})\b.*"
        profile, count = re.subn(pattern, r"\1", profile)
        assert count == 1, f"{name} has its place in the profile"
    one_rule = r"# (set-resources:\n)# (  train:\n)# (    slurm_partition: your-gpu-.*\n)"
    profile, count = re.subn(one_rule, r"\1\2\3", profile)
    assert count == 1, "one rule's resources have their place"
    many = [{"strategy": "hadpsgd", "learners": n, "super_learner": 8} for n in (64, 128)]
    training = {"device": "cuda", "batch": 2560, "runs": [*many, {"strategy": "single"}]}
    site = {"learners_per_node": 8, "cpus": 4, "memory_mb": 16000}
    (folder / "site.yaml").write_text(yaml.safe_dump(site))
    assert "site=profiles/slurm/site.yaml" in profile
    profile = profile.replace("profiles/slurm/site.yaml", "site.yaml")
    (folder / "profile").mkdir()
    (folder / "profile/config.yaml").write_text(profile.replace("# qos: your", "qos: your"))
    config = {"name": "many", "corpus": {"kind": "builtin"}, "training": training}
    config["decoding"] = {"device": "cuda"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines = submitted(
        *("--profile", "profile", "--snakefile", str(ROOT / "Snakefile")),
        *("--configfile", "config.yaml", "--", "results/many/index.html"),
        cwd=folder,
    )
    # other settings give other keys; the lines are of all others
    return re.sub(r"-[0-9a-f]{8}(?![0-9a-f])", "-KEY", lines)


def submitted(*arguments: str, cwd: Path) -> str:
    """The lines for sbatch; nothing is submitted."""
    script = str(ROOT / "tests/sbatch_lines.py")
    done = subprocess.run(
        [sys.executable, script, *(f"--{name}=1" for name in SOON), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_module_on_slurm_asks_for_the_same(tmp_path: Path) -> None:
    """The profile names no rule: another workflow may have renamed all of them."""
    module(tmp_path)
    where = ("--default-resources", "slurm_account=a", "slurm_partition=p")
    slurm = ("--profile", str(ROOT / "profiles/slurm"), *where, "--until", "speech_train")
    lines = submitted(*slurm, cwd=tmp_path).splitlines()
    train = [line for line in lines if "rule_speech_train_" in line]
    assert train and all(line.endswith(" --signal=USR1@120 --no-kill") for line in train)
    many = [line for line in lines if re.search("rule_speech_(features|mono|align|egs)_", line)]
    assert many and all("--cpus-per-task=8" in line for line in many)


def test_no_rule_waits_for_what_another_ones_group_needs() -> None:
    """mono, which needs lang, waited for the language model that shared a job with lang."""
    found = {name: re.findall(r'group:\s+"(\w+)"', text) for name, text in rules().items()}
    assert {name for name, group in found.items() if group} == {"tune", "score"}
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    # of one run: those of several would wait for the last of them
    assert not {"groups", "group-components", "set-resources", "set-threads"} & profile.keys()


def test_sbatch_lines_of_64_and_128_gpus(tmp_path: Path) -> None:
    """`python tests/test_deployment.py` writes them anew; look at the difference."""
    found = sbatch_lines(tmp_path)
    assert found.splitlines() == GOLDEN.read_text().splitlines()
    train = [line for line in found.splitlines() if "rule_train_" in line]
    assert ["--nodes=8 " in line and "--gres=gpu:8" in line for line in train] == [
        False,
        True,
        False,
    ]
    assert not re.search("--gpus-per-task|--ntasks-per-gpu", found)  # they run a script often


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(sbatch_lines(Path(temporary)))
