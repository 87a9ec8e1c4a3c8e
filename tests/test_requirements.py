"""One lock pins all that is installed, and `make setup` installs all of it."""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PARTS = {"markupsafe"}
"""Come with others (jinja2, pydantic)."""


def pins(lines: list[str]) -> set[str]:
    return {line.strip().strip('-" ') for line in lines if "==" in line}


def test_the_conda_environment_has_the_pins_of_the_lock() -> None:
    lock = pins((ROOT / "requirements.lock").read_text().splitlines())
    environment = yaml.safe_load((ROOT / "envs/hadpsgd.yaml").read_text())
    conda = {
        pin for part in environment["dependencies"] if isinstance(part, dict) for pin in part["pip"]
    }
    assert conda == lock


def named(requirements: list[str]) -> set[str]:
    names = (re.split(r"[=<>\[]", requirement)[0] for requirement in requirements)
    return {name.lower().replace("_", "-") for name in names}


def test_every_direct_requirement_is_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == {"pipeline", "images", "test", "docs", "bench"}
    wanted = named([*project["dependencies"], *itertools.chain(*extras.values())])
    assert wanted <= named(list(pins((ROOT / "requirements.lock").read_text().splitlines())))


def test_what_is_installed_for_a_requirement_is_in_the_lock_too() -> None:
    """Else pip takes the newest of it, whatever that is on the day."""
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    locked = {canonicalize_name(name) for name in named(list(pins(lock)))}
    extras = ("pipeline", "images", "test", "docs", "bench")
    todo, found = [("hadpsgd", extra) for extra in ("", *extras)], set[tuple[str, str]]()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                other = canonicalize_name(needed.name)
                if not (name == "torch" and other.startswith(("nvidia-", "cuda-", "triton"))):
                    todo += [(other, each) for each in ("", *needed.extras)]
    assert len(found) > 150
    assert {name for name, _ in found} - {"hadpsgd"} <= locked


def wheel(folder: Path, name: str, requires: str = "") -> None:
    """A package of one module, NAME.py."""
    about = f"{name}-1.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{needs}"
        )
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "")


def installed(folder: Path, lock: str) -> subprocess.CompletedProcess[str]:
    """What `make setup` does with a lock and the wheels of the folder."""
    (folder / "requirements.lock").write_text(lock)
    place = sysconfig.get_path("purelib", vars={"base": str(folder / "new")})
    told = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_PREFIX": str(folder / "new")}
    return subprocess.run(
        [sys.executable, ROOT / "envs/installed.py"],
        cwd=folder,
        env={**os.environ, **told, "PIP_CONFIG_FILE": os.devnull, "PYTHONPATH": place},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_lock_is_installed_in_two_halves_and_what_it_leaves_to_its_packages(
    tmp_path: Path,
) -> None:
    """As torch names its CUDA packages."""
    names = ("first", "second", "third", "left")
    for name in names:
        wheel(tmp_path, name, requires="left" if name == "second" else "")
    ran = installed(tmp_path, "# made\nfirst==1\nsecond==1 ; python_version > '3'\nthird==1\n")
    assert ran.returncode == 0 and not ran.stdout + ran.stderr
    assert {path.stem for path in (tmp_path / "new").rglob("*.py")} == set(names)


def test_what_cannot_be_installed_is_said_once(tmp_path: Path) -> None:
    wheel(tmp_path, "first")
    ran = installed(tmp_path, "first==1\nmissing==1\n")
    assert ran.returncode == 1
    assert ran.stderr.count("No matching distribution found for missing==1") == 1


def test_what_stages_load_is_compiled_beforehand(tmp_path: Path) -> None:
    """Also where Python is told to write no byte code, as in many containers."""
    told = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "envs/compiled.py"]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **told}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0 and not ran.stdout, ran.stderr
    packages = {path.parent.name for path in tmp_path.rglob("__init__.*.pyc")}
    loaded = {"torch", "_dynamo", "mlflow", "snakemake", "pandas", "hadpsgd", "decoding"}
    loaded |= {"signal", "stats", "sqlite"}  # late, by what a stage then does
    assert loaded <= packages


def test_the_package_imports_what_it_requires() -> None:
    """`pip install .[pipeline]` has neither the tools of the tests nor the benchmarks' peers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = {*sys.stdlib_module_names, "hadpsgd", "__future__"}
    imported = set()
    for file in (ROOT / "workflow/hadpsgd").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    found = metadata.packages_distributions()
    required = named([*project["dependencies"], *project["optional-dependencies"]["pipeline"]])
    needed = {name: named(found[name]) for name in imported - own if name in found}
    assert "torch" in needed and len(needed) > 15
    assert {name for name, packages in needed.items() if not packages & required} == PARTS
