"""The store that all learners share: what is needed of it, and one inside a process."""

from __future__ import annotations

import threading
from typing import Protocol

Key = str


class Store(Protocol):
    """What is needed of `torch.distributed.Store`."""

    def add(self, key: Key, amount: int, /) -> int: ...
    def set(self, key: Key, value: str, /) -> None: ...
    def get(self, key: Key, /) -> bytes: ...
    def multi_get(self, keys: list[str], /) -> list[bytes]: ...
    def check(self, keys: list[str], /) -> bool: ...
    def compare_set(self, key: Key, old: str, new: str, /) -> bytes: ...
    def delete_key(self, key: Key, /) -> bool: ...


class LocalStore:
    """A store inside one process."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._lock = threading.RLock()

    def add(self, key: Key, amount: int, /) -> int:
        """The new value."""
        with self._lock:
            value = int(self._values.get(key, "0")) + amount
            self._values[key] = str(value)
            return value

    def set(self, key: Key, value: str, /) -> None:
        """In place of a former one."""
        with self._lock:
            self._values[key] = value

    def get(self, key: Key, /) -> bytes:
        """The value; KeyError if there is none."""
        with self._lock:
            return self._values[key].encode()

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """Their values."""
        return [self.get(key) for key in keys]

    def check(self, keys: list[str], /) -> bool:
        """Whether all are there."""
        with self._lock:
            return all(key in self._values for key in keys)

    def compare_set(self, key: Key, old: str, new: str, /) -> bytes:
        """As torch's: a missing key counts as ""; the value afterwards, or `old`."""
        with self._lock:
            if self._values.get(key, "") == old:
                self._values[key] = new
            return self._values.get(key, old).encode()

    def delete_key(self, key: Key, /) -> bool:
        """Whether it was there."""
        with self._lock:
            return self._values.pop(key, None) is not None
