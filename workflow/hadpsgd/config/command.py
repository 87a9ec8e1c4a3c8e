"""`hadpsgd config`: check a config, print it resolved, or print the JSON Schema."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import yaml

from hadpsgd.config.load import load
from hadpsgd.config.schema import Config
from hadpsgd.errors import UserError
from hadpsgd.files import write_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("config", nargs="?", type=Path, help="YAML file to check")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema instead")
    parser.add_argument("--out", type=Path, help="write here instead of to standard output")


def resolved(config: Config) -> str:
    """The config with every default written out, as YAML."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def write_resolved(config: Config, path: Path) -> Path:
    """Write the resolved config unless it is there already; returns its path."""
    text = resolved(config)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
    return path


def json_schema() -> str:
    """JSON Schema of the config, for editors and Snakemake's `validate`."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(schema | Config.model_json_schema(), indent=2) + "\n"


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    if args.schema:
        text = json_schema()
    elif args.config is not None:
        text = resolved(load(args.config))
    else:
        raise UserError("name a config file, or --schema")
    if args.out:
        write_text(args.out, text)
    else:
        print(text, end="")
    return 0
