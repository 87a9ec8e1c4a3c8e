"""Processor time and memory of every stage from audio to the table, by hours of speech.

    python benchmarks/long_corpus.py --hours 1 2 20 --folder DIR [--kills 300 600 900]
        [--out docs/benchmarks/FILE.md]

Generated speech of each length goes through the whole workflow: all of the papers' inputs from our
own ladder, a small network trained by two learners, decoding, scores, pages. Lengths that are
complete in DIR are not made again; a run that was killed goes on. Each stage is fitted by a line.
With `--kills`, all processes of the longest are killed after so many seconds, and its command is
given again, once for each number.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import scale
from scale_page import Found, Measured, by_folder, by_stage, machine

PAGE = """\
# From audio to a table, by hours of speech

**{hours} hours of speech go from audio to a table on {cores} cores, unattended: {total:.1f} hours
of processors. The line of all stages misses no point by more than {miss:.1f} %, and no job takes
more than {most:.0f} MiB ({least:.0f} at {shortest:g} hours).**

Generated speech of {lengths} hours (`benchmarks/long_corpus.py`): fMLLR, i-vectors and log mel
energies from our own ladder with 1,000 states and 6,000 Gaussians; two layers of 128 cells, two
epochs by two learners (`adpsgd`, `precision: bf16`), then decoding and pages of errors. Sets that
are tested have 3 minutes at every length. Processor seconds of all processes of a stage, as the
kernel counts them, with other work beside. Miss: of the worst point from the line, over that of
the longest. Memory: all processes of a job as Snakemake saw them now and then, or its largest
process. Of a stage that was killed all starts together, with what was computed twice.

{kills}

{machine}.

{wer}

{stages}

{folders}
"""


def config(hours: float) -> dict[str, object]:
    """The stages of `scale.py`, and what follows them, small."""
    name = f"long-{1000 * hours:.0f}-thousandths"
    return scale.config(name, hours, times=1) | {
        "model": {"layers": 2, "cells": 128, "projection": 128},
        "training": {
            "epochs": 2,
            "batch": 128,
            "precision": "bf16",
            "learning_rate": {"base": 0.1, "base_batch": 128, "anneal_after": 1},
            "runs": [{"strategy": "adpsgd", "learners": 2}],
        },
        "decoding": {"beam": 10, "max_active": 2000, "lattice_beam": 5},
    }


def unkeyed(measured: Mapping[str, Measured]) -> dict[str, Measured]:
    """The same by names without keys of runs, which differ by length."""
    return {re.sub(r"-[0-9a-f]{8}(?=\.|$)", "", stage): each for stage, each in measured.items()}


def kills(folder: Path, name: str) -> str:
    """At how many moments all processes of a length were killed, and in which stages."""
    told = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    struck = [each for each in told if each.get("killed")]
    logs = f"/results/{name}/logs/"
    at = Counter(e["stage"].partition(logs)[2].removesuffix(".log") for e in struck)
    moments = at.pop("", 0)  # Snakemake itself
    if not moments:
        return "Nothing was killed."
    where = ", ".join(f"`{stage}` {count}" for stage, count in at.items())
    lost = sum(each["seconds"] for each in struck if logs in each["stage"])
    return (
        f"At {moments} moments all processes of the longest were killed (in {where}), and the same "
        f"command was given again. Killed starts had taken {lost:,.0f} processor seconds, of which "
        "checkpoints kept a part."
    )


def main() -> None:
    """Do what the arguments say."""
    parser = scale.arguments(__doc__)
    parser.add_argument("--kills", type=float, nargs="*", default=[])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    hours = sorted(args.hours)
    configs = [config(amount) for amount in hours]
    folders = [args.folder / "results" / str(each["name"]) for each in configs]
    found = Found(
        hours=hours,
        measured=[
            unkeyed(
                scale.stages(
                    args.folder,
                    each,
                    [],
                    args.cores,
                    kills=args.kills if each is configs[-1] else [],
                )
            )
            for each in configs
        ],
        disks=[scale.disk(folder) for folder in folders],
    )
    text = PAGE.format(
        hours=f"{hours[-1]:g}",
        cores=args.cores,
        total=found.sums[-1] / 3600,
        miss=100 * found.total.largest_miss,
        most=found.most[-1],
        least=found.most[0],
        shortest=hours[0],
        lengths=", ".join(f"{amount:g}" for amount in hours),
        machine=machine(),
        kills=kills(args.folder, str(configs[-1]["name"])),
        wer=(folders[-1] / "wer.md").read_text("utf-8").strip(),
        stages=by_stage(found),
        folders=by_folder(found),
    )
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
