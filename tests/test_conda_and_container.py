"""The workflow on other machines: conda's environment, the image, where catalogues look."""

from __future__ import annotations

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
from snakemake_calls import rules, run

from hadpsgd import origin
from hadpsgd.config import load

ROOT = Path(__file__).resolve().parents[1]
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


def test_every_rule_has_the_environment() -> None:
    found = rules()
    assert {"corpus", "import_alignment", "ubm", "train", "report"} <= found.keys()
    without = {name for name, text in found.items() if "conda:" not in text}
    assert without == {"all", "paper", "checked"}  # they run nothing
    for name in found.keys() - without:
        files = re.findall(r'conda:\s+"([^"]+)"', found[name])
        for file in files:
            assert (ROOT / "workflow/rules" / file).resolve() == ROOT / "envs/hadpsgd.yaml", name


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
