"""Where the running package came from, for environments that are to have the same one."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

VARIABLE = "HADPSGD_SOURCE"
"""What envs/hadpsgd.post-deploy.sh installs: a checkout, or what pip takes."""


def announce() -> None:
    """Tell the processes of this one, unless somebody said otherwise."""
    source = origin()
    if source:
        os.environ.setdefault(VARIABLE, source)


def origin() -> str:
    """The checkout whose package runs, or its URL as pip takes it; empty where it is not known."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return str(checkout)
    try:
        record = metadata.distribution("hadpsgd").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    return as_pip_takes_it(json.loads(record)) if record else ""


def as_pip_takes_it(record: dict) -> str:
    """The requirement that a direct_url.json (PEP 610) was made by."""
    url = record["url"]
    if "dir_info" in record:
        return unquote(urlsplit(url).path)
    vcs = record.get("vcs_info")
    if vcs is None:
        return url
    below = f"#subdirectory={record['subdirectory']}" if record.get("subdirectory") else ""
    return f"{vcs['vcs']}+{url}@{vcs['commit_id']}{below}"
