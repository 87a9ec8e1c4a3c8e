"""Outputs appear whole or not at all: write to a temporary name, then rename."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hadpsgd.errors import UserError, reason
from hadpsgd.scratch import scratch_folder

# a damaged head asks for a password, or for a packing that zipfile lacks: RuntimeError
DAMAGED_ARRAYS = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, RuntimeError, MemoryError, SyntaxError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What NumPy raises where a file of arrays is damaged, or none at all."""
LONGEST_NAME = 200
"""Bytes of a file's name that is made here of others; file systems take 255."""
WORKFLOW_LOCK = ".workflow.lock"
"""In a results folder: who runs a workflow there."""
MADE = ".made-by-hadpsgd"
"""In a folder that was written here as a whole: it may be replaced so."""


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, a folder without write permission or a name that no file can have into one
    line for the user."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reasons = {
            errno.ENOSPC: ("the disk is full", "Free some space and run the same command again"),
            errno.EDQUOT: ("the disk quota is used up", "Free some space and run it again"),
            errno.EFBIG: ("no file may be so large here (ulimit -f)", "Raise the limit"),
            errno.EACCES: ("no permission to write here", "Choose another results folder"),
            errno.EROFS: ("the file system is read-only", "Choose another results folder"),
            errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter one"),
            errno.ELOOP: ("links lead in a circle", "Remove one of them"),
        }
        what, fix = reasons.get(_errno(error), ("", ""))
        if what:
            raise UserError(what, where=path, fix=fix) from error
        raise


def _errno(error: BaseException | None) -> int:
    """Of an error, or of that which it comes of (torch: a RuntimeError of a full disk); 0: none."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return (error.errno or 0) if error is not None else 0


def check_folder(path: Path) -> None:
    """Whether a folder is, or can be made, at `path`; stages that work for long ask first.

    Raises:
        UserError: it, or what should be a folder above it, is a file, or a link to nothing.
    """
    above = (path, *path.parents)
    nearest = next((each for each in above if each.exists() or each.is_symlink()), None)
    if nearest and not nearest.exists():
        raise UserError("is a link that leads nowhere", where=nearest, fix="Remove it")
    if nearest and not nearest.is_dir():
        raise UserError("is a file, where a folder is needed", where=nearest, fix="Name another")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success rename it there, on failure remove it.

    No two have one name: processes of several hosts, or containers, share folders and pids. A link
    stays, and the file that it leads to is replaced; into a device or a pipe the content goes.
    """
    path = Path(path)
    if _takes_bytes(path):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder, path.name)
            with Path(folder, path.name).open("rb") as made, path.open("wb") as target:
                shutil.copyfileobj(made, target)
        return
    with explain_os_errors(path):
        path = followed(path)
        check_folder(path.parent)
        if path.is_dir():
            raise UserError("is a folder, where a file is needed", where=path, fix="Name another")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{file_name(path.name)}.{secrets.token_hex(4)}.tmp")
        try:
            yield temporary
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _takes_bytes(path: Path) -> bool:
    """Whether `path` is a device or a pipe, such as /dev/stdout."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)


def followed(path: Path) -> Path:
    """Where a link leads; any other path as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def atomic_folder(path: Path, *, own: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside `path`; on success it replaces `path` as a whole.

    own: the caller has a mark of its own, and has seen to it that what is there may be replaced.
    Else raises as `check_replaced`, before anything is made.
    """
    path = Path(path)
    with explain_os_errors(path):
        path = followed(path)
        check_folder(path)
        if not own:
            check_replaced(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(path.parent, file_name(path.name)) as temporary:
            temporary.chmod(0o777 & ~_umask())
            yield temporary
            if not own:
                (temporary / MADE).touch()
            if path.exists():
                shutil.rmtree(path)
            temporary.replace(path)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def check_replaced(path: Path) -> None:
    """Whether what is at `path` may be removed for a new folder: nothing, an empty folder, or one
    that was written here, by its mark or within the results of a workflow (those of former versions
    have no marks).

    Raises:
        UserError: it holds something else, or is where this process works.
    """
    whole = Path(os.path.realpath(path))
    here = Path.cwd()
    if whole == here or whole in here.parents:
        what = "would be replaced with all that it holds, and you are in it"
        raise UserError(what, where=path, fix="Name a new folder")
    held = next(whole.iterdir(), None) if whole.is_dir() else None
    if held is None or (whole / MADE).is_file():
        return
    if not any((folder / WORKFLOW_LOCK).is_file() for folder in whole.parents):
        what = f"is there and was not made by hadpsgd: it holds '{held.name:.80}'"
        raise UserError(what, where=path, fix="Name a new folder, or remove this one")


def read_whole(path: Path) -> bytes:
    """The whole content of a file, unpacked if it is gzipped, whatever its name.

    Raises:
        UserError: it is gzipped and damaged.
    """
    raw = Path(path).read_bytes()
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"damaged gzip file ({reason(error)})", where=path) from None


def plain_or_gzipped(path: Path) -> Path:
    """The file, or `<name>.gz` where there is only that."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.exists() else path


def write_text(path: Path, text: str) -> None:
    """Write a whole text file atomically (UTF-8)."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    """Checksum of a file's content, read in blocks."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_file(path: Path) -> bool:
    """Whether there is such a file; no error for a name that no file can have."""
    try:
        return path.is_file()
    except OSError:
        return False


def file_name(name: str) -> str:
    """The id of an utterance or recording as the name of a file: it cannot lead elsewhere.

    Long ones are cut, with a checksum that keeps them apart, so that an ending has room.
    """
    safe = name.replace("/", "%2F")
    whole = os.fsencode(safe)
    if len(whole) <= LONGEST_NAME:
        return safe
    checksum = hashlib.sha256(whole).hexdigest()[:16]
    start = whole[: LONGEST_NAME - 1 - len(checksum)].decode(errors="ignore")  # no half letter
    return f"{start}-{checksum}"
