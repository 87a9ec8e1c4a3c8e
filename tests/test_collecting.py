"""Python's garbage collector lies still while a stage is loaded, and when its process ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from hadpsgd.collecting import uncollected


def said(code: str) -> list[str]:
    """What a fresh process prints, line by line."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_block_ends_as_it_began() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


@pytest.mark.parametrize(
    "loads",
    [
        "from hadpsgd.cli import load; load('decode')",
        "from hadpsgd.tracking.store import Store; Store('sqlite:///{}/m.db', Path('{}/spool'))",
    ],
    ids=["torch", "mlflow"],
)
def test_nothing_is_collected_while_large_packages_are_loaded(
    loads: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    code = (
        "import gc\nfrom pathlib import Path\n"
        "import hadpsgd.config, hadpsgd.tracking.store\n"
        "times = []\n"
        "gc.callbacks.append(lambda phase, info: times.append(phase))\n"
        f"{loads.format(folder, folder)}\n"
        "print(len(times), gc.isenabled())"
    )
    times, enabled = said(code)[-1].split()
    assert int(times) < 20  # hundreds without
    assert enabled == "True"


def test_a_stage_that_ends_is_not_collected() -> None:
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count()))\n"  # the last to be called
        "from hadpsgd.cli import main\n"
        "main(['config', '--schema'])"
    )
    assert int(said(code)[-1]) > 10_000
