"""kill -9 and full disks at random moments of a small workflow: the same command completes it.

    python benchmarks/kills.py --moments 30 --seed 1 [--first N] [--from-training] [--folder DIR]

Struck in turn: Snakemake, a rank (or whatever stage runs), the MLflow server, the disk. A full disk
needs root: it is a small tmpfs. Then the same command is given again, and must end in the same
weights (of a synchronous run of H-ADPSGD) and words as an undisturbed one; one row a moment.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from servers import free_port, mlflow_server  # noqa: E402
from small_workflow import CONFIG, SYNCHRONOUS, Small, write  # noqa: E402

STRIKES = ("snakemake", "rank", "server", "disk")
RUN = "hadpsgd-2x2-dpsgd"
BEFORE_TRAINING = ("corpus", "lang", "ali", "feats", "egs", "lm", "graph")
DISK_MIB = 100
PATIENCE = 1800.0
ATTEMPTS = 3
DONE = "nothing: it was done"
HEADER = """\
| struck | after | what was hit | it ended with | then completed after | same result |
| ------ | ----: | ------------ | ------------: | -------------------- | ----------- |"""


@dataclass(frozen=True)
class Outcome:
    """What came of one moment."""

    struck: str
    moment: float
    what: str
    """What was hit."""
    first: int
    """Exit status of the disturbed command."""
    attempts: int
    """How often the command was given again; 0 if it never completed."""
    same: bool
    """Whether weights and words are those of the undisturbed run."""

    def row(self) -> str:
        """A line of the table."""
        fine = f"{self.attempts} command" + "s" * (self.attempts > 1) if self.attempts else "NEVER"
        cells = [self.struck, f"{self.moment:.1f} s", self.what, str(self.first), fine]
        return f"| {' | '.join(cells)} | {'yes' if self.same else 'NO'} |"


def make(folder: Path) -> Small:
    """A results folder's config: one synchronous run."""
    folder.mkdir(parents=True, exist_ok=True)
    return Small(folder, write(folder, training={**CONFIG["training"], "runs": [SYNCHRONOUS]}))


def start(place: Small, store: str) -> subprocess.Popen[bytes]:
    """The command that a user gives, up to the word errors of one set."""
    command = [sys.executable, "-m", "snakemake", "--profile", "local", "--cores", "2"]
    command += ["--snakefile", str(ROOT / "Snakefile"), "--directory", str(place.folder)]
    command += ["--configfile", str(place.config), "--", str(scored(place))]
    with place.folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**place.env, "MLFLOW_TRACKING_URI": store},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def scored(place: Small) -> Path:
    """The last result."""
    return place.out / "score" / place.key(RUN) / "swb"


def result(place: Small) -> tuple[dict[str, torch.Tensor], list[bytes]]:
    """Weights and words."""
    model = torch.load(place.out / "runs" / place.key(RUN) / "final.pt", weights_only=True)
    return model["state_dict"], [
        (scored(place) / name).read_bytes() for name in ("ctm", "wer.json")
    ]


def same(one: Small, other: Small) -> bool:
    """Whether two folders hold the same result, bit for bit."""
    (ours, words), (theirs, others) = result(one), result(other)
    equal = [torch.equal(ours[name], theirs[name]) for name in ours]
    return ours.keys() == theirs.keys() and all(equal) and words == others


def stages(place: Small) -> list[tuple[psutil.Process, str]]:
    """Processes of stages of this folder, and which; if ranks train, those alone."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]
        places = [i for i, word in enumerate(words) if Path(word).name == "hadpsgd"]
        if "python" in words[0] and places and any(str(place.folder) in word for word in words):
            found.append((process, words[places[0] + 1]))
    return [pair for pair in found if pair[1] == "train"] or found


def strike(struck: str, place: Small, running: subprocess.Popen[bytes], draw: random.Random) -> str:
    """Do it; what was hit. (The server ends by itself, after this.)"""
    if running.poll() is not None:
        return DONE
    if struck == "snakemake":
        during = sorted({stage for _, stage in stages(place)})
        running.kill()
        return f"Snakemake ({', '.join(during) or 'between stages'})"
    if struck == "rank":
        found = stages(place)
        if not found:
            return "nothing: between stages"
        victim, stage = draw.choice(found)
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
        return "a rank" if stage == "train" else stage
    during = sorted({stage for _, stage in stages(place)})
    if struck == "disk":
        fill(place.folder / "filler")
    return f"{struck} ({', '.join(during) or 'between stages'})"


def fill(file: Path) -> None:
    """Write until nothing fits any more."""
    with file.open("wb", buffering=0) as stream:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    stream.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def small_disks() -> bool:
    """Whether small file systems can be made here; that needs root."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with disk(Path(folder) / "small", small=True):
                return True
        except (subprocess.CalledProcessError, FileNotFoundError):
            return False


@contextlib.contextmanager
def disk(folder: Path, *, small: bool) -> Iterator[None]:
    """A folder, on a small file system of its own if so wished."""
    folder.mkdir(parents=True)
    if not small:
        yield
        return
    options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    subprocess.run(["mount", *options], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def one(
    struck: str,
    moment: float,
    folder: Path,
    reference: Small,
    draw: random.Random,
    parts: tuple[str, ...] = (),
) -> Outcome:
    """Disturb one workflow at a moment, give the command again, compare.

    `parts` of the undisturbed workflow are taken over.
    """
    with disk(folder, small=struck == "disk"), contextlib.ExitStack() as servers:
        place = make(folder)
        for part in parts:
            shutil.copytree(reference.out / part, place.out / part)
        database = store = f"sqlite:///{folder}/mlflow.db"
        first_server = contextlib.ExitStack()
        if struck == "server":
            store = first_server.enter_context(mlflow_server(database, folder, free_port()))
        with first_server:  # which is killed at its end
            running = start(place, store)
            time.sleep(moment)
            what = strike(struck, place, running, draw)
        code = end(running)
        (folder / "filler").unlink(missing_ok=True)
        if struck == "server":
            port = int(store.rsplit(":", 1)[1])
            servers.enter_context(mlflow_server(database, folder, port))
        for attempt in range(1, ATTEMPTS + 1):
            if end(start(place, store)) == 0:
                return Outcome(struck, moment, what, code, attempt, same(place, reference))
        return Outcome(struck, moment, what, code, 0, same=False)


def end(running: subprocess.Popen[bytes]) -> int:
    """Exit status of a command; one that hangs is killed, which counts as -9."""
    try:
        return running.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        return running.wait()


def undisturbed(folder: Path, reference: Small | None, parts: tuple[str, ...]) -> Small:
    """Run it to its end."""
    place = make(folder)
    for part in parts if reference else ():
        assert reference is not None
        shutil.copytree(reference.out / part, place.out / part)
    if end(start(place, f"sqlite:///{folder}/mlflow.db")):
        sys.exit(f"the undisturbed workflow failed: {folder.with_suffix('.log')}")
    return place


def main() -> int:
    """Rows, and 1 if one is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="begin with this one, from 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="a new folder; a temporary one without it")
    parser.add_argument("--from-training", action="store_true", help="what is before it is copied")
    parser.add_argument("--strikes", nargs="+", choices=STRIKES, default=STRIKES)
    args = parser.parse_args()
    bad = 0
    base = (args.folder or Path(tempfile.mkdtemp(prefix="kills-"))).absolute()
    strikes = [s for s in args.strikes if s != "disk" or small_disks()]
    reference = undisturbed(base / "reference", None, ())
    parts = BEFORE_TRAINING if args.from_training else ()
    begin = time.monotonic()
    again = undisturbed(base / "again", reference, parts)
    span = time.monotonic() - begin
    if not same(again, reference):
        sys.exit("two undisturbed workflows differ")
    print(
        f"moments {args.first} to {args.moments} over {span:.0f} s, seed {args.seed}\n\n{HEADER}",
        flush=True,
    )
    number, again_sooner = args.first, 0
    while number < args.moments:
        draw = random.Random(f"{args.seed} {number} {again_sooner}")  # the same whatever was before
        struck, moment = strikes[number % len(strikes)], draw.uniform(0, span)
        folder = base / f"{number}-{again_sooner}"
        outcome = one(struck, moment, folder, reference, draw, parts)
        fine = outcome.attempts > 0 and outcome.same
        bad += not fine
        if fine:
            shutil.rmtree(folder, ignore_errors=True)
        if fine and outcome.what == DONE:  # other load than before: once more, sooner
            span, again_sooner = min(span, moment), again_sooner + 1
            continue
        print(outcome.row(), flush=True)
        number, again_sooner = number + 1, 0
    print(f"\n{bad} of {args.moments - args.first} went wrong; {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
