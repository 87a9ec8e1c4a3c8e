"""`hadpsgd track`: runs, curves, scores, tables and models to MLflow."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.errors import UserError
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.recorder import Connection, Recorder, warn
from hadpsgd.tracking.spool import keys_waiting
from hadpsgd.tracking.uri import WHY_OFF, is_on, redacted


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="the config")
    parser.add_argument("--out", type=Path, help="write a list of the runs and their ids here")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--upload", action="store_true", help="send the records that wait in the spool"
    )
    modes.add_argument("--check", action="store_true", help="say whether the store can be reached")
    modes.add_argument(
        "--follow", action="store_true", help="follow a training until standard input ends"
    )
    parser.add_argument(
        "--run", help="this run alone, and no tables; with --follow the one to follow"
    )
    parser.add_argument("--dir", type=Path, help="with --follow: folder of the checkpoints")
    parser.add_argument("--metrics", type=Path, help="with --follow: the growing metrics.jsonl")
    parser.add_argument(
        "--arithmetic", help="with --follow: what the training's PyTorch computes with (JSON)"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    if not is_on(config):
        warn(f"{WHY_OFF}: nothing is recorded")
    if args.follow:
        return _follow(config, args)
    if args.upload and is_on(config):
        return _upload(config)
    if args.check and is_on(config):
        return _check(config)
    from hadpsgd.tracking.sync import sync

    sync(config, args.out, run=args.run)
    return 0


def _follow(config: Config, args: argparse.Namespace) -> int:
    from hadpsgd.tracking.follower import follow

    if not (args.run and args.dir and args.metrics):
        raise UserError("--follow needs --run, --dir and --metrics")
    follow(
        config,
        args.run,
        checkpoints=args.dir,
        metrics=args.metrics,
        orders=sys.stdin.buffer,
        torchs=_told(args.arithmetic),
    )
    return 0


def _told(arithmetic: str | None) -> dict[str, str] | None:
    """What --arithmetic says.

    Raises:
        UserError: it is no JSON object.
    """
    try:
        told = json.loads(arithmetic) if arithmetic else None
    except ValueError:
        told = arithmetic
    if told is not None and not isinstance(told, dict):
        raise UserError(
            f"--arithmetic {arithmetic} is no JSON object",
            fix="Leave it out: it is then asked of PyTorch",
        )
    return told


def _check(config: Config) -> int:
    connection = Connection(config)
    try:
        connection.store()
    except NotStoredError as error:
        raise UserError(str(error), fix="Start the server or change tracking.uri") from None
    print(f"{redacted(connection.uri)} answers")
    return 0


def _upload(config: Config) -> int:
    connection = Connection(config)
    keys = keys_waiting(connection.spool)
    if not keys:
        print(f"nothing waits in {connection.spool}")
        return 0
    for number, key in enumerate(keys, 1):
        try:
            Recorder(connection, key).upload()
        except NotStoredError as error:
            left = len(keys) - number + 1
            raise UserError(
                f"{error}; {left} of {len(keys)} runs still wait in {connection.spool}"
            ) from None
        warn(f"uploaded {number} of {len(keys)}: {key}")
    print(f"uploaded {len(keys)} runs to {redacted(connection.uri)}")
    return 0
