"""`hadpsgd plan`: hours of training on a cluster, and which strategy, sizes and rate to take.

`hadpsgd plan --nodes 8 --gpus 8 --bandwidth 12.5e9 --compute 0.12 --hours-of-speech 2000` needs no
GPU; `--measure` times a gradient here. The equations: docs/time-model.md.
"""

from __future__ import annotations

import argparse

from hadpsgd.columns import format_table
from hadpsgd.numeric import add_whole
from hadpsgd.planning import explain, inputs, papers
from hadpsgd.planning.recommend import Advice, advise

FOOTNOTE = """\
ms/step: of a learner. mixes/step: rounds of mixing of weights for each gradient. hours: without
reading of data, checkpoints and validation."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    inputs.add(parser)
    group = parser.add_argument_group("choice")
    add_whole(group, "--batch", help="of all learners; else what the papers and the data allow")
    group.add_argument(
        "--no-overlap", action="store_true", help="gradients are sent after the backward pass only"
    )
    parser.add_argument(
        "--papers", action="store_true", help="print the model beside the papers' hours, no plan"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    if args.papers:
        print(papers.table())
        return 0
    given = inputs.collect(args)
    advice = advise(given.cluster, given.work, batch=args.batch, overlap=not args.no_overlap)
    print("\n".join(report(advice, given)))
    return 0


def report(advice: Advice, given: inputs.Inputs) -> list[str]:
    """What is printed, line by line."""
    best = advice.best
    return [
        explain.choice(best),
        explain.rate_rule(best.team.batch),
        "",
        format_table(explain.rows(advice)),
        FOOTNOTE,
        "",
        "Why:",
        *(f"- {sentence}" for sentence in explain.reasons(advice, given.cluster)),
        "",
        "Config:",
        *explain.config(best, given.work),
        "",
        "What this rests on:",
        *(f"- {note}" for note in given.notes),
        f"- the model of time, within {100 * papers.largest_error():.0f} % of the papers' figures "
        "(hadpsgd plan --papers)",
    ]
