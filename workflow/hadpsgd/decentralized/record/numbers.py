"""Numbers in few bytes: LEB128, with zigzag where they may be negative, and doubles."""

from __future__ import annotations

import struct

DOUBLE = struct.Struct("<d")


class Numbers:
    """Reads numbers one after the other."""

    def __init__(self, content: bytes) -> None:
        """From the beginning."""
        self._content = content
        self.at = 0
        """Bytes that were read."""

    @property
    def left(self) -> bool:
        """Whether there is more."""
        return self.at < len(self._content)

    def byte(self) -> int:
        """The next byte."""
        self.at += 1
        return self._content[self.at - 1]

    def number(self) -> int:
        """The next LEB128 number."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def double(self) -> float:
        """The next eight bytes."""
        self.at += 8
        return float(DOUBLE.unpack_from(self._content, self.at - 8)[0])


def put(buffer: bytearray, number: int) -> None:
    """Append a number that is not negative."""
    while number > 127:
        buffer.append(128 | number & 127)
        number >>= 7
    buffer.append(number)


def zigzag(number: int) -> int:
    """A number without a sign for one that may have one; small stays small."""
    return 2 * number if number >= 0 else -2 * number - 1


def unzigzag(number: int) -> int:
    """The number of which `zigzag` made this."""
    return number >> 1 if number % 2 == 0 else -(number + 1) >> 1
