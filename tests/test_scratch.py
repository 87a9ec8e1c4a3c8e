"""Temporary folders: what a kill leaves goes with the next start, what others work in stays."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from hadpsgd.gmm.workspace import Workspace
from hadpsgd.scratch import scratch_folder

USES = {
    "atomic_folder": "from hadpsgd.files import atomic_folder as use",
    "a corpus": "from hadpsgd.corpus.kinds import _written_into as use",
    "a ladder": "from hadpsgd.gmm.workspace import Workspace as use",
}
WORK = """\
import sys
from pathlib import Path
{use}
place = Path(sys.argv[1])
with use(place) as folder:
    folder = getattr(folder, "folder", folder)
    (folder / "large").write_text("much")
    print(folder, flush=True)
    if len(sys.argv) > 2:
        sys.stdin.read()
"""


@contextmanager
def at_work(use: str, place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has something in its folder and waits."""
    command = [sys.executable, "-c", WORK.format(use=USES[use]), str(place), "wait"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


@pytest.mark.parametrize("use", USES)
def test_what_a_kill_left_goes_with_the_next_start(use: str, tmp_path: Path) -> None:
    """And nothing else: neither what another process has there at the time, nor other files."""
    (place := tmp_path / "place").mkdir()
    with at_work(use, place) as (dead, left), at_work(use, place) as (_, busy):
        dead.kill()
        assert dead.wait() == -signal.SIGKILL and (left / "large").exists()
        (alike := left.with_name(f"{left.name}.other")).mkdir()
        (
            strange := left.with_name(left.name.replace(left.name.split(".")[2], "00000000-1"))
        ).mkdir()
        command = [sys.executable, "-c", WORK.format(use=USES[use]), str(place)]
        made = Path(subprocess.check_output(command, text=True).strip())
        assert not left.exists() and not made.exists()
        assert (busy / "large").read_text() == "much"
        assert alike.exists() and strange.exists(), "of another host, or nobody's"


PARALLEL = """\
import os, sys
from pathlib import Path
from hadpsgd.parallel import map_in_order
from hadpsgd.gmm.workspace import Workspace
from hadpsgd.scratch import scratch_folder
def make():
    def same(number):
        os.write(1, f"{os.getpid()}\\n".encode())
        return number
    return same
with scratch_folder(Path(sys.argv[1]), "it") as folder:
    for number in map_in_order(make, range(10**9), 2):
        pass
"""


def test_processes_of_a_stage_that_was_killed_end_with_it(tmp_path: Path) -> None:
    """And keep no lock: the next start finds its folder free."""
    command = [sys.executable, "-c", PARALLEL, str(tmp_path)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        workers = {int(process.stdout.readline()) for _ in range(50)}
        process.kill()
    (left,) = tmp_path.iterdir()
    psutil.wait_procs([psutil.Process(pid) for pid in workers if psutil.pid_exists(pid)], 10)
    assert not any(map(psutil.pid_exists, workers))
    with scratch_folder(tmp_path, "it"):
        assert not left.exists()


def test_a_ladders_space_goes_to_processes_that_are_not_forked(tmp_path: Path) -> None:
    """They use its folder, and leave it."""
    with Workspace(tmp_path) as space:
        sent = pickle.loads(pickle.dumps(space))
        assert sent.folder == space.folder
        del sent
        assert space.folder.is_dir()


def use_again_and_again(place: Path, times: int) -> None:
    """Nobody may take it away."""
    for number in range(times):
        with scratch_folder(place, "it") as folder:
            (folder / "file").write_text(str(number))
            assert (folder / "file").read_text() == str(number)
        assert not folder.exists()


def test_many_at_once(tmp_path: Path) -> None:
    """Folders that were just made are not taken for what is left."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=use_again_and_again, args=(tmp_path, 300)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert not list(tmp_path.iterdir())
