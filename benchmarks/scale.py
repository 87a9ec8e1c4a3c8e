"""How processor time, memory and disk of each stage grow with the hours of speech.

    python benchmarks/scale.py --hours 0.5 1 2 --folder DIR [--out docs/benchmarks/scale.md]
        [--pieces workflow/hadpsgd/planning/pieces.json]

Generated speech of each length goes through the workflow, audio to training examples, with all of
the papers' inputs and models of one size; nothing is trained or decoded, but what adaptation needs.
Lengths that are complete in DIR are not made again. Each stage is fitted by a line. The shortest
goes through with four times the Gaussians, too: what they add is the slope by size.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import torch
import yaml
from scale_page import Found, Measured, Sizes, machine, page

from hadpsgd.config.settings import Model
from hadpsgd.planning.measure import Task, measure_compute

GAUSSIANS = {"mono": 1000, "tri": 6000, "lda_mllt": 6000, "sat": 6000}
LEAVES = 1000
LARGER = 4
ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
WRAPPER = """#!{python}
import ctypes, json, os, sys, time
SET_CHILD_SUBREAPER = 36  # orphans come to this process: fork servers, which nobody waits for
ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
begin, seconds, largest, status = time.monotonic(), 0.0, 0, 0
child = os.posix_spawn({real!r}, [{real!r}, *sys.argv[1:]], os.environ)
while True:
    try:
        ended, how, used = os.wait4(-1, 0)
    except ChildProcessError:
        break
    seconds += used.ru_utime + used.ru_stime
    largest = max(largest, used.ru_maxrss)
    if ended == child:
        status, wall = os.waitstatus_to_exitcode(how), time.monotonic() - begin
with open({log!r}, "a") as stream:
    told = dict(stage=os.readlink("/proc/self/fd/2"), seconds=seconds, wall=wall, largest=largest)
    print(json.dumps(told), file=stream)
sys.exit(status)
"""
"""Stands before `hadpsgd` on a job's way: its processes' seconds, as the kernel counts them."""


def main() -> None:
    """Do what the arguments say."""
    parser = arguments(__doc__)
    parser.add_argument("--pieces", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    hours = sorted(args.hours)
    measured = [length(args.folder, amount, args.cores) for amount in hours]
    larger = length(args.folder, hours[0], args.cores, times=LARGER)
    found = Found(
        hours=hours,
        measured=measured,
        disks=[disk(args.folder / "results" / named(amount)) for amount in hours],
    )
    sizes = Sizes(
        seconds={
            stage: max(0.0, larger[stage].seconds - measured[0][stage].seconds)
            / (hours[0] * (LARGER - 1) * number / 1000)
            for stage, number in GAUSSIANS.items()
        },
        larger=LARGER,
        gflops=gflops(),
    )
    text = page(found, sizes)
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")
    if args.pieces is not None:
        write_pieces(args.pieces, found, sizes)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Those of benchmarks by hours of speech."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--hours", type=float, nargs="+", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path)
    return parser


def gflops() -> float:
    """1e9 multiplications and additions a second of one core in a gradient of the papers' model."""
    torch.set_num_threads(1)
    task = Task(shape=Model())
    compute = measure_compute(task, batch=16, seconds=30).compute
    return 6 * task.parameters * task.frames / compute.each / 1e9


def named(hours: float, times: int = 1) -> str:
    """Of a length and a size, as configs may be called."""
    return f"scale-{1000 * hours:.0f}-thousandths-{times}"


def config(name: str, hours: float, times: int) -> dict[str, object]:
    """Models of one size whatever the length; sets that are tested, of one length, too."""
    tree = {"leaves": LEAVES, "gaussians": times * GAUSSIANS["sat"], "iterations": 20}
    return {
        "name": name,
        "corpus": {
            "kind": "builtin",
            "train_minutes": 60 * hours,
            "dev_minutes": 3,
            "test_minutes": 3,
            "speakers": max(16, round(32 * hours)),
            "lm_sentences": 10_000,
        },
        "features": {"input": ["fmllr", "ivector", "logmel"]},
        "alignment": {
            "kind": "sat",
            "mono": {"gaussians": times * GAUSSIANS["mono"], "iterations": 30},
            "tri": tree,
            "lda_mllt": tree,
            "sat": tree,
        },
        "egs": {"dtype": "float16"},
        "training": {"runs": [{"strategy": "single"}]},
    }


def length(folder: Path, hours: float, cores: int, times: int = 1) -> dict[str, Measured]:
    """What each stage took, by the name of its log."""
    name = named(hours, times)
    targets = [f"results/{name}/egs/train", f"results/{name}/egs/dev"]
    return stages(folder, config(name, hours, times), targets, cores)


def stages(
    folder: Path,
    settings: Mapping[str, object],
    targets: Sequence[str],
    cores: int,
    kills: Sequence[float] = (),
) -> dict[str, Measured]:
    """What each stage of a config took on the way to targets, by the name of its log.

    A run that was killed goes on; all starts of a stage are told together.

    Args:
        kills: seconds after which all processes are killed, one after the other; each time the
            same command is given again.
    """
    name = str(settings["name"])
    log, file, done = (folder / f"{name}.{ending}" for ending in ("jsonl", "yaml", "done"))
    if not done.exists():
        file.write_text(yaml.safe_dump(dict(settings)))
        bin_ = folder / "bin" / name
        bin_.mkdir(parents=True, exist_ok=True)
        wrapper = bin_ / "hadpsgd"
        real = str(BIN / "hadpsgd")
        wrapper.write_text(WRAPPER.format(python=sys.executable, real=real, log=str(log)))
        wrapper.chmod(0o755)
        command = [str(BIN / "snakemake"), "--profile", str(ROOT / "profiles/local")]
        command += ["-s", str(ROOT / "Snakefile"), "--cores", str(cores), "--quiet", "all"]
        command += ["--rerun-incomplete", "--configfile", str(file), "--", *targets]
        path = f"{bin_}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path}
        for patience in itertools.chain(kills, [None]):
            with subprocess.Popen(command, cwd=folder, env=environ) as running:
                try:
                    if running.wait(patience):
                        raise subprocess.CalledProcessError(running.returncode, command)
                    break
                except subprocess.TimeoutExpired:
                    with log.open("a") as stream:
                        stream.writelines(f"{json.dumps(t)}\n" for t in killed(running.pid))
        done.touch()
    found: dict[str, Measured] = {}
    for line in log.read_text().splitlines():
        told = json.loads(line)
        stage = told["stage"].partition(f"/results/{name}/logs/")[2]
        if not stage:
            continue
        stage = stage.removesuffix(".log").replace("/", ".")
        out = folder / "results" / name
        mib = max(told["largest"] / 1024, resident(out / "benchmarks" / f"{stage}.tsv"))
        before = found[stage].seconds if stage in found else 0.0
        found[stage] = Measured(before + told["seconds"], mib)
    return found


def killed(pid: int) -> list[dict[str, object]]:
    """Kill a process and all that it started, as when a node fails; what stages had taken.

    Returns lines of the log, as those of stages that ended.
    """
    top = psutil.Process(pid)
    seconds: defaultdict[str, float] = defaultdict(float)
    for process in [top, *top.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, OSError):
            stage, times = str(Path(f"/proc/{process.pid}/fd/2").readlink()), process.cpu_times()
            process.kill()
            seconds[stage] += sum(times[:4])  # own ones, and of children that it waited for
    return [
        {"stage": stage, "seconds": spent, "largest": 0, "killed": True}
        for stage, spent in seconds.items()
    ]


def resident(benchmark: Path) -> float:
    """MiB that Snakemake saw; 0 where it saw nothing."""
    try:
        with benchmark.open() as stream:
            return float(list(csv.DictReader(stream, delimiter="\t"))[-1]["max_rss"])
    except (OSError, ValueError):
        return 0.0


def disk(folder: Path) -> dict[str, float]:
    """MiB below each folder of the results."""
    return {
        part.name: sum(f.stat().st_size for f in part.rglob("*") if f.is_file()) / 2**20
        for part in sorted(folder.iterdir())
        if part.is_dir() and part.name not in ("logs", "benchmarks", "configs")
    }


def write_pieces(path: Path, found: Found, sizes: Sizes) -> None:
    """What `hadpsgd cost` starts from."""
    stages: dict[str, dict[str, object]] = {}
    for stage in found.stages:
        line = found.seconds(stage)
        seconds = [round(line.fixed, 3), round(line.per_hour, 4)]
        most = max(each[stage].mib for each in found.measured)
        stages[stage] = {"seconds": seconds, "mib": round(most, 1)}
    for stage, slope in sizes.seconds.items():
        stages[stage]["size"] = round(slope, 4)
    told = {
        "machine": machine(),
        "hours": list(found.hours),
        "gaussians": GAUSSIANS,
        "gflops": round(sizes.gflops, 1),
        "stages": stages,
    }
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
