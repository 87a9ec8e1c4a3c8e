"""Output of a command, read with a limit on its silence: one may wait for ever."""

from __future__ import annotations

import io
import select

from typing_extensions import Buffer, override

from hadpsgd.errors import UserError

STALL_SECONDS = 600.0
"""A command that prints nothing for so long is given up: it waits for something."""


def await_output(pipe: int, command: str) -> None:
    """Wait until there is something to read from a pipe, the end of the output included.

    Raises:
        UserError: nothing came for `STALL_SECONDS`; names the command.
    """
    if not select.select([pipe], [], [], STALL_SECONDS)[0]:
        what = f"the command printed nothing for {STALL_SECONDS:g} s"
        raise UserError(what, where=command, fix="It was stopped: does it wait for something?")


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
