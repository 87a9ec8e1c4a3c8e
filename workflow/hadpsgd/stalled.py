"""Output of a command, read with a limit on its silence: one may wait for ever."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import subprocess
from pathlib import Path

from typing_extensions import Buffer, override

from hadpsgd.errors import UserError

STALL_SECONDS = 600.0
"""A command that prints nothing for so long is given up: it waits for something."""
_STOPPED = "It was stopped: does it wait for something?"


def await_output(pipe: int, command: str) -> None:
    """Wait until there is something to read from a pipe, the end of the output included.

    Raises:
        UserError: nothing came for `STALL_SECONDS`; names the command.
    """
    waiting = select.poll()  # select() takes no descriptor above 1023
    waiting.register(pipe, select.POLLIN)
    if not waiting.poll(1000 * STALL_SECONDS):
        raise UserError(
            f"the command printed nothing for {STALL_SECONDS:g} s", where=command, fix=_STOPPED
        )


def await_end(process: subprocess.Popen[bytes], command: str) -> None:
    """Wait until a command that prints no more has ended.

    Raises:
        UserError: it goes on for `STALL_SECONDS`; names the command.
    """
    try:
        process.wait(STALL_SECONDS)
    except subprocess.TimeoutExpired:
        what = f"the command ended its output, and ran on for {STALL_SECONDS:g} s"
        raise UserError(what, where=command, fix=_STOPPED) from None


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a shell and what it started: the parts of a pipe would wait on without it.

    Those that it left behind when it ended are found by its group: start it with `process_group=0`.
    """
    children = [] if process.returncode is not None else _children(process.pid)
    with contextlib.suppress(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, signal.SIGKILL)
    for child in children:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    """Of a process, and theirs; none where the system is not Linux. Bundles have no psutil."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                found += [child, *_children(child)]
    return found


class Output(io.RawIOBase):
    """The output of a command as a file that is never waited for longer than that.

    Args:
        stream: unbuffered, its end of the pipe; closed with this.
        command: what messages call it.
    """

    def __init__(self, stream: io.RawIOBase, command: str) -> None:
        self._stream, self._command = stream, command

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer) -> int | None:
        await_output(self._stream.fileno(), self._command)
        return self._stream.readinto(buffer)

    @override
    def close(self) -> None:
        self._stream.close()
        super().close()
