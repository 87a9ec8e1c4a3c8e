"""Where a result comes from: code, packages, data, machine, job."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import hadpsgd
from hadpsgd.config import Config
from hadpsgd.files import sha256
from hadpsgd.tracking.arithmetic import arithmetic, processor
from hadpsgd.tracking.checksums import checksums, combined
from hadpsgd.tracking.uri import spool_folder

FILE = "provenance.json"
DIFF = "uncommitted.diff"
_SETS = ("train", "dev", "train_perturbed")
_DATA = ("corpus/dict", "lang", "ali", "ali_dev", "egs")
_SOURCE = ("workflow", "profiles", "envs", "Snakefile")
"""Where new files are code. Users keep configs of their own elsewhere; each run has its own."""
_ENDS = (".py", ".j2", ".smk", ".yaml", "Snakefile")
DIFF_LIMIT = 2 * 2**20
"""Bytes of the uncommitted diff that are kept."""

PACKAGES = (
    *("torch", "numpy", "scipy", "mlflow", "snakemake", "pydantic", "kaldi-io"),
    *("kaldi-native-fbank", "kaldifst", "kaldi-decoder", "kaldilm"),
    *("kaldialign", "espeakng-loader", "sentencepiece"),
)
_SLURM = ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID", "JOB_NAME", "JOB_PARTITION", "NNODES")
_SLURM_MORE = ("NTASKS", "RESTART_COUNT", "CLUSTER_NAME")
_SLURM_HOSTS = ("JOB_NODELIST",)


def collect(config: Config, torchs: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Everything but the diff, as JSON: code, lock, packages, machine, slurm, data.

    torchs: `arithmetic.of_torch()` of the process that computes, if that is another one.
    """
    folder = Path(config.results) / config.name
    data = checksums(folder, data_parts(config), spool_folder(config) / "checksums.json")
    return {
        "code": code(),
        "lock": lock_hash(),
        "packages": packages(),
        "machine": machine(hostnames=config.tracking.hostnames),
        "arithmetic": arithmetic(torchs),
        "slurm": slurm(hostnames=config.tracking.hostnames),
        "data": data,
        "data_checksum": combined(data),
        "seed": config.seed,
    }


def data_parts(config: Config) -> list[str]:
    """What training is made from, below the results folder of a config.

    Test sets are left out: they may come before or after training, or be others.
    """
    folders = ("corpus/data", *(f"feats/{stream}" for stream in config.features.input))
    return [*_DATA, *(f"{folder}/{name}" for folder in folders for name in _SETS)]


def repository() -> Path | None:
    """Top of the git work tree that the package runs from, or None."""
    package = Path(hadpsgd.__file__).resolve().parent
    top = _git(package, "rev-parse", "--show-toplevel")
    return Path(top) if top else None


def code() -> dict[str, Any]:
    """Version, git commit, whether files differ from it, and a hash of the difference."""
    top = repository()
    found: dict[str, Any] = {"version": _version("hadpsgd"), "commit": "", "dirty": False}
    found["source"] = source_hash()
    if top is None:
        return found
    difference = diff()
    found["commit"] = _git(top, "rev-parse", "HEAD")
    found["branch"] = _git(top, "rev-parse", "--abbrev-ref", "HEAD")
    found["dirty"] = bool(difference)
    found["diff_hash"] = hashlib.sha256(difference.encode()).hexdigest() if difference else ""
    return found


def source_hash() -> str:
    """Of the package's own files: the same code is the same in any commit."""
    package = Path(hadpsgd.__file__).resolve().parent
    files = sorted(path for end in ("*.py", "*.j2") for path in package.rglob(end))
    return combined({path.relative_to(package).as_posix(): sha256(path) for path in files})


def diff() -> str:
    """What differs from the commit, new source files included, as `git apply` takes it."""
    top = repository()
    if top is None:
        return ""
    new = (_git(top, "diff", "--no-index", "--", os.devnull, name) for name in _untracked(top))
    text = "".join(part + "\n" for part in (_git(top, "diff", "HEAD"), *new) if part)
    if len(text) > DIFF_LIMIT:
        return text[:DIFF_LIMIT] + f"\n[cut: {len(text)} characters in all]\n"
    return text


def lock_hash() -> str:
    """SHA-256 of requirements.lock, or an empty string where there is none."""
    top = repository() or Path.cwd()
    lock = top / "requirements.lock"
    return sha256(lock) if lock.is_file() else ""


def packages() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    versions = {name: version for name in PACKAGES if (version := _version(name))}
    return {"python": platform.python_version(), **versions}


def machine(*, hostnames: bool) -> dict[str, Any]:
    """Processor, cores, memory, accelerators, system; the host's name only if allowed."""
    found: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(_memory_bytes() / 2**30, 1),
        "gpus": _gpus(),
        "system": f"{platform.system()} {platform.release()}",
    }
    if hostnames:
        found["host"] = platform.node()
    return found


def slurm(*, hostnames: bool) -> dict[str, str]:
    """Ids of the Slurm job, where there is one."""
    names = _SLURM + _SLURM_MORE + (_SLURM_HOSTS if hostnames else ())
    pairs = {name.lower(): os.environ.get(f"SLURM_{name}", "") for name in names}
    return {name: value for name, value in pairs.items() if value}


def origin(found: dict[str, Any]) -> str:
    """`commit 1a2b3c4d5e6f, AMD EPYC (AVX512), torch 2.13.0`: what a table says of its results."""
    code = found["code"]
    changes = " with uncommitted changes" if code["dirty"] else ""
    instructions = found.get("arithmetic", {}).get("instructions")
    kind = f" ({instructions})" if instructions else ""
    gpus = "".join(f", {gpu}" for gpu in dict.fromkeys(found["machine"]["gpus"]))
    return (
        f"commit {code['commit'][:12] or 'unknown'}{changes}, "
        f"{found['machine']['processor']}{kind}{gpus}, torch {found['packages'].get('torch')}"
    )


def read(folder: Path) -> dict[str, Any]:
    """The provenance kept in a run's folder; empty where there is none."""
    try:
        return json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def tags(found: dict[str, Any]) -> dict[str, str]:
    """The parts that the store's pages show or filter by."""
    code, machine = found["code"], found["machine"]
    values = {
        "mlflow.source.name": "hadpsgd",
        "mlflow.source.type": "PROJECT",
        "mlflow.source.git.commit": code["commit"],
        "git.dirty": str(code["dirty"]).lower(),
        "lock": found["lock"][:12],
        "data": found["data_checksum"][:12],
        "machine.processor": machine["processor"],
        "machine.instructions": found.get("arithmetic", {}).get("instructions", ""),
        "machine.gpus": ", ".join(machine["gpus"]),
        "machine.host": machine.get("host", ""),
    }
    values |= {f"slurm.{name}": value for name, value in found["slurm"].items()}
    return {name: value for name, value in values.items() if value}


def _git(folder: Path, *arguments: str) -> str:
    """Output of git, or an empty string where git or the repository is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            check=False,
            capture_output=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    if done.returncode not in (0, 1):  # 1: diff --no-index found a difference
        return ""
    return done.stdout.decode(errors="replace").strip("\n")


def _untracked(top: Path) -> list[str]:
    """New source files that git does not know."""
    listing = _git(top, "ls-files", "--others", "--exclude-standard", "--", *_SOURCE)
    return [name for name in listing.splitlines() if name.endswith(_ENDS)]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if not program:
        return []
    try:
        listing = subprocess.run(
            [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listing.stdout.splitlines() if line.strip()]
