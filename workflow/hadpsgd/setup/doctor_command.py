"""`hadpsgd doctor`: is this machine, or cluster, ready to run? One line for each thing."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.config.tracking import Tracking
from hadpsgd.errors import UserError
from hadpsgd.numeric import real
from hadpsgd.setup import cluster, inputs, machine, places
from hadpsgd.setup.findings import Finding
from hadpsgd.setup.need import bytes_needed, hours_of_sets
from hadpsgd.setup.start import PROFILES
from hadpsgd.tracking.uri import VARIABLE, tracking_uri

FAILED = 1
"""Exit status where something fails."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, help="config that is to run")
    parser.add_argument("--cluster", choices=list(PROFILES), default="local", help="where")
    parser.add_argument(
        "--hours",
        type=real("--hours", above=True),
        help="of all speech, for the disk (else the config's)",
    )


def run(args: argparse.Namespace) -> int:
    """Print findings as they come; returns 1 where one is a failure."""
    config = load(args.config) if args.config else None
    counts: Counter[str] = Counter()
    for finding in _findings(config, args.cluster, args.hours):
        print(finding, flush=True)
        counts[finding.level] += 1
    print(f"{counts['ok']} ok, {counts['warn']} warn, {counts['fail']} fail")
    return FAILED if counts["fail"] else 0


def _findings(config: Config | None, kind: str, hours: float | None) -> Iterator[Finding]:
    yield from machine.check()
    if config:
        yield from inputs.check(config)
    results = Path(config.results if config else "results")
    writing = places.writing(results)
    yield writing
    if writing.level == "ok":
        yield from places.locks(results)
    try:
        if config and not hours:
            known = hours_of_sets(config) or {}
            hours = sum(known.values()) or float(config.speech_hours or 0) or None
    except UserError as error:
        fix = "Give --hours HOURS, or remove the folder and run `hadpsgd init` again"
        yield Finding(level="warn", what="hours", found=str(error), fix=fix)
    yield places.disk(results, bytes_needed(config, hours) if hours else None)
    yield places.store(tracking_uri(config) if config else os.environ.get(VARIABLE, Tracking().uri))
    yield from cluster.check(kind, results)
