"""`hadpsgd.decentralized` as a library: what it loads, and what it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import nn

from hadpsgd import cli
from hadpsgd.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / "workflow/hadpsgd/decentralized"
MODULES = sorted(
    ".".join(file.relative_to(ROOT / "workflow").with_suffix("").parts).removesuffix(".__init__")
    for file in ENGINE.rglob("*.py")
    if "commands" not in file.relative_to(ENGINE).parts
)
# refuses what is not of the base install, then imports
BARE = """
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(name + " is not installed", name=name)
sys.meta_path.insert(0, Absent())
{then}
"""


def absent_in_the_base_install() -> set[str]:
    """Top-level modules of the packages that only the extra `pipeline` names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {r.split("=")[0].split(">")[0].lower().replace("_", "-") for r in requirements}

    more = names(project["optional-dependencies"]["pipeline"]) - names(project["dependencies"])
    found = metadata.packages_distributions()
    modules = {m for m, packages in found.items() if names(packages) & more}
    assert {"kaldifst", "mlflow", "pydantic", "scipy", "snakemake", "matplotlib"} <= modules
    return modules


def without_the_pipeline(then: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that has the base install alone."""
    code = BARE.format(absent=absent_in_the_base_install(), then=then)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )


def test_the_engine_needs_torch_and_numpy_only() -> None:
    """Every module of it, but its commands, in an interpreter that has nothing else."""
    assert "hadpsgd.decentralized.assembly" in MODULES and "hadpsgd.decentralized" in MODULES
    ran = without_the_pipeline(f"for name in {MODULES}: importlib.import_module(name)")
    assert ran.returncode == 0, ran.stderr


def test_a_stage_says_which_package_is_missing() -> None:
    ran = without_the_pipeline("from hadpsgd import cli; sys.exit(cli.main(['config', 'x.yaml']))")
    assert ran.returncode == cli.USER_ERROR
    assert ran.stderr.count("\n") == 1 and "pip install 'hadpsgd[pipeline]'" in ran.stderr


def test_the_command_says_which_version_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hadpsgd {metadata.version('hadpsgd')}\n"


def test_a_module_of_ours_that_is_missing_is_no_users_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(cli.STAGES, "config", ("hadpsgd.nowhere", ""))
    with pytest.raises(ModuleNotFoundError):
        cli.load("config")
    with pytest.raises(UserError, match="unknown stage"):
        cli.load("nowhere")


def example(file: str) -> str:
    """The first block of Python in a page."""
    found = re.search(r"```python\nimport torch\n.*?```", (ROOT / file).read_text(), re.DOTALL)
    assert found
    return found[0].removeprefix("```python\n").removesuffix("```")


@pytest.mark.parametrize("by", ["torchrun", "hadpsgd launch"])
def test_the_example_runs_as_it_stands(by: str, tmp_path: Path) -> None:
    """Two processes; the model that it leaves has learnt something."""
    assert example("README.md") == example("docs/library.md")
    (tmp_path / "train.py").write_text(example("README.md"))
    command = {
        "torchrun": "torch.distributed.run --standalone --nproc-per-node 2",
        "hadpsgd launch": "hadpsgd launch --learners 2",
    }[by]
    ran = subprocess.run(
        [sys.executable, "-m", *command.split(), "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    model.load_state_dict(torch.load(tmp_path / "model.pt"))
    x = torch.randn(1000, 20, generator=torch.Generator().manual_seed(2))
    targets = x[:, :1].sin()
    with torch.no_grad():
        loss = float(nn.functional.mse_loss(model(x), targets))
    assert loss < 0.5 * float(targets.square().mean())


def test_the_manuals_checkpoints_outlive_a_kill(tmp_path: Path) -> None:
    """Its lines in place of the example's loop; one learner is killed after an epoch was saved."""
    text = (ROOT / "docs/library.md").read_text()
    found = re.search(r"## Checkpoints\n\n```\n(import os\n.*?)```", text, re.DOTALL)
    assert found
    whole = example("docs/library.md").replace('"adpsgd"', '"dpsgd"')
    before, rest = whole.split("for epoch in range(5):\n")
    loop, after = rest.split("trainer.finish()")
    lines = found[1].replace("range(90,", "range(5,").replace("90)", "5)")
    lines = lines.replace("    for inputs, targets in batches:\n        ...\n", loop)
    killed = (
        "    if epoch == 2 and trainer.rank == 1 and not os.path.exists('again'):\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    assert lines.count("    save(epoch + 1)\n") == 1
    lines = lines.replace("    save(epoch + 1)\n", killed + "    save(epoch + 1)\n")
    (tmp_path / "train.py").write_text(f"{before}{lines}trainer.finish(){after}")
    models, command = [], [sys.executable, "-m", "hadpsgd", "launch", "--learners", "2", "train.py"]
    for status in (137, 0, 0):  # the last one all in one
        ran = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert ran.returncode == status, ran.stderr
        (tmp_path / "again").touch()
        if status == 0:
            models.append(torch.load(tmp_path / "model.pt"))
            shutil.rmtree(tmp_path / "checkpoints")
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[1])
