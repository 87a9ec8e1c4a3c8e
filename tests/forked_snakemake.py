"""Snakemake in a fork of this process: to load it takes a second of a processor each time."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def snakemake(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Its exit status, and what it said on both streams."""
    from snakemake.cli import get_argument_parser

    get_argument_parser()  # loads all plugins: the forks have them, too
    with tempfile.TemporaryFile() as said:
        if not (process := os.fork()):
            _run(arguments, cwd, env or {}, said)
        _, status = os.waitpid(process, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode()


def _run(arguments: Sequence[str], cwd: Path, env: Mapping[str, str], said: IO[bytes]) -> None:
    """What `snakemake` does with these arguments; never returns."""
    code = 1
    try:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        # not those of pytest, which collect
        sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))  # noqa: SIM115
        os.chdir(cwd)
        os.environ.update(env)
        sys.argv = ["snakemake", *arguments]
        from snakemake.cli import main

        main(list(arguments))
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
