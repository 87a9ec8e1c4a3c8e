"""What commands in wav.scp print: within limits, as one may run for ever."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from typing import IO

from hadpsgd.errors import UserError
from hadpsgd.stalled import await_end, await_output, kill

MOST_BYTES = 2**32
"""What a WAV file may have; the output is held in memory."""
_HEAD, _BLOCK = 1 << 16, 1 << 20
_TEXT = frozenset(b"\t\n\r") | frozenset(range(32, 127))
_SPHERE = b"NIST_1A"
"""The one audio format whose header is text."""


def printed(location: str) -> bytes:
    """All that a command of bash prints, `cmd ... |`.

    Raises:
        UserError: it failed, printed nothing, or would never end.
    """
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            ["bash", "-c", location.removesuffix("|")],
            stdin=subprocess.DEVNULL,  # ffmpeg takes what it finds there for keys
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,
        ) as process:
            assert process.stdout is not None
            try:
                content = b"".join(_blocks(process.stdout, location))
                await_end(process, location)
            except BaseException:
                kill(process)  # leaving would wait for it
                raise
        if not process.returncode and content:
            return content
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    status = f"command ended with status {process.returncode} and {len(content)} bytes"
    raise UserError(f"{status}{': ' + said[0] if said else ''}", where=location)


def _blocks(stream: IO[bytes], location: str) -> Iterator[bytes]:
    total, head = 0, b""
    while True:
        await_output(stream.fileno(), location)
        block = os.read(stream.fileno(), _BLOCK)
        if not block:
            return
        total += len(block)
        if len(head) < _HEAD:
            head += block
            if len(head) >= _HEAD and _is_text(head):
                raise UserError("the command prints text, not audio", where=location)
        if total > MOST_BYTES:
            what = f"the command prints more than {MOST_BYTES} bytes"
            raise UserError(what, where=location, fix="Does it end? Split the recording")
        yield block


def _is_text(head: bytes) -> bool:
    return not head.startswith(_SPHERE) and _TEXT.issuperset(head)
