"""Checkpoints of all ranks, counted: NUMBER/rank-R.pt. One counts if all its ranks have written."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from hadpsgd.errors import UserError
from hadpsgd.files import DAMAGED_ARRAYS, atomic_file


class Checkpoints:
    """Of one run, seen by one rank; the folder is shared by all.

    Look for the newest before the learners meet: nobody writes then.
    """

    def __init__(self, folder: Path, *, rank: int, learners: int) -> None:
        self.folder = folder
        self.rank = rank
        self.learners = learners

    def newest(self) -> int | None:
        """The number of the last complete one; this rank's part of any later one is removed.

        (Parts of two starts would not belong together.)
        """
        numbers = self._numbers()
        found = next((each for each in reversed(numbers) if self._complete(each)), None)
        for each in numbers:
            if found is None or each > found:
                self._remove(each)
        return found

    def save(self, number: int, state: dict[str, Any]) -> None:
        """This rank's part; older ones go as soon as all ranks have written a newer one."""
        with atomic_file(self._file(number)) as temporary:
            torch.save(state, temporary)
        complete = [other for other in self._numbers() if self._complete(other)]
        for old in self._numbers():
            if complete and old < complete[-1]:
                self._remove(old)

    def load(self, number: int) -> dict[str, Any]:
        """This rank's part, in the host's memory.

        Raises:
            UserError: it is damaged.
        """
        file = self._file(number)
        try:
            state: dict[str, Any] = torch.load(file, map_location="cpu")
        except (*DAMAGED_ARRAYS, UnpicklingError) as error:
            what = f"a damaged checkpoint ({type(error).__name__})"  # torch's texts are many lines
            fix = f"Remove {file.parent}: then it begins anew"
            raise UserError(what, where=file, fix=fix) from None
        return state

    def clear(self) -> None:
        """Remove all of them: the run is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove(self, number: int) -> None:
        file = self._file(number)
        file.unlink(missing_ok=True)
        with suppress(OSError):  # the other ranks' are there
            file.parent.rmdir()

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.glob("[0-9]*"))

    def _complete(self, number: int) -> bool:
        return all(self._file(number, rank).is_file() for rank in range(self.learners))

    def _file(self, number: int, rank: int | None = None) -> Path:
        return self.folder / f"{number:09d}" / f"rank-{self.rank if rank is None else rank}.pt"
