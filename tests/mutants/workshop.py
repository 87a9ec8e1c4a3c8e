"""A copy of the checkout in which faults are tried: the working tree stays as it is."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from mutants.table import ROOT, Mutant

_PYTEST = ["-q", "--durations=0", "-m", "not slow", "-p", "no:cacheprovider"]
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True)
class Verdict:
    """How tests ended: `passed`, `failed` (then which), `hung`, or `broken` (then what was said: no
    test ran)."""

    outcome: str
    seconds: float
    failed: tuple[str, ...] = ()
    said: str = ""


class Workshop:
    """A clone of the repository with all files as they lie in the working tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # tests ask git what commit they run on
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(folder)], check=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            source, target = ROOT / name, folder / name
            target.unlink(missing_ok=True)
            if source.is_symlink() or source.exists():  # else removed, and not yet committed
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        # by content: a fault of the same length in the same second must not be taken for the file
        compileall.compile_dir(
            folder / "workflow", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH
        )

    def texts(self) -> dict[str, str]:
        """Of all Python files, by their names."""
        files = [*self.folder.glob("workflow/**/*.py"), *self.folder.glob("tests/**/*.py")]
        names = {file.relative_to(self.folder).as_posix(): file for file in files}
        return {name: file.read_text(encoding="utf-8") for name, file in names.items()}

    @contextmanager
    def fault(self, mutant: Mutant) -> Iterator[None]:
        """The copy has the fault while the block runs.

        Raises:
            ValueError: it does not apply.
        """
        file = self.folder / mutant.file
        text = file.read_text(encoding="utf-8")
        file.write_text(mutant.applied(text), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(text, encoding="utf-8")

    def run(self, tests: Sequence[str], limit: float, *, to_the_end: bool = False) -> Verdict:
        """Run tests in the copy, until the first fails or to the end; all that they started ends
        with them."""
        begin = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *_PYTEST, *["-x"] * (not to_the_end), *tests],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Verdict("hung", time.monotonic() - begin)
        finally:
            _end(process)
        seconds = time.monotonic() - begin
        if process.returncode == _PASSED:
            return Verdict("passed", seconds)
        lines = [line.split(" ")[:2] for line in output.splitlines()]
        failed = tuple(words[1] for words in lines if words[0] in ("FAILED", "ERROR"))
        if process.returncode == _FAILED and failed:
            return Verdict("failed", seconds, failed)
        return Verdict("broken", seconds, said=output[-2000:])

    def _environment(self) -> dict[str, str]:
        own = {
            "PYTHONPATH": str(self.folder / "workflow"),  # before the installed checkout
            "PYTHONDONTWRITEBYTECODE": "1",
            "HADPSGD_SHARED": os.environ.get("HADPSGD_SHARED", str(ROOT.parent / "shared")),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "KALDI_ROOT": "unset",
            "OMP_NUM_THREADS": "1",
        }
        # whoever runs the campaign may want other reports, which would not be understood here
        return {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"} | own


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
