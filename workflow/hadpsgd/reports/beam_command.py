"""`hadpsgd beam-curve`: word error rate against real-time factor over search beams."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.decode import Work, decode
from hadpsgd.decoding.network import NetworkScorer, add_device
from hadpsgd.decoding.search import Searcher
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.numeric import real
from hadpsgd.parallel import add_jobs
from hadpsgd.reports.beam_curve import draw
from hadpsgd.reports.curves import write_png
from hadpsgd.scoring import nist
from hadpsgd.scoring.command import hypothesise, read_tuned
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.reference import Reference
from hadpsgd.scoring.significance import bootstrap
from hadpsgd.scoring.tune import Setting


@dataclass(frozen=True, kw_only=True)
class Point:
    """One beam. Real-time factors are processor seconds a second of speech: what else runs
    on the machine matters little.

    real_time_factor: of scores and search; search_real_time_factor: of the search alone.
    low, high: 95 % bootstrap interval of the WER.
    """

    beam: float
    wer: float
    low: float
    high: float
    errors: int
    words: int
    real_time_factor: float
    search_real_time_factor: float
    partial: int
    failed: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--model", type=Path, required=True, help="final.pt")
    parser.add_argument("--graph", type=Path, required=True, help="folder of HCLG.fst")
    parser.add_argument("--data", type=Path, required=True, help="data directory of the set")
    parser.add_argument("--streams", type=Path, required=True, help="folder of <stream>/<set>/")
    parser.add_argument("--tuned", type=Path, required=True, help="tuned.json of the dev set")
    parser.add_argument(
        "--beams",
        type=real("--beams", most=1000, above=True),
        nargs="+",
        default=[4, 6, 8, 10, 12, 14],
        help="4 6 8 10 12 14",
    )
    add_jobs(parser)
    add_device(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder of curve.png, curve.json")


def run(args: argparse.Namespace) -> int:
    """Decode and score the set with every beam; write OUT/curve.png and OUT/curve.json."""
    config = load(args.config)
    setting = read_tuned(args.tuned)
    if setting.needs_lists:
        what = f"{setting.why_lists}: lists are of one search, and each beam is another"
        fix = "Give a tuned.json of a config without lm.neural"
        raise UserError(what, where=args.tuned, fix=fix)
    points = []
    with atomic_folder(args.out) as out:
        for beam in sorted(set(args.beams)):
            points.append(_point(config, args, setting, beam))
            print(_line(points[-1]), file=sys.stderr)
        (out / "curve.json").write_text(json.dumps([asdict(p) for p in points], indent=1) + "\n")
        write_png(draw(points, args.data.name), out / "curve.png")
    return 0


def _point(config: Config, args: argparse.Namespace, setting: Setting, beam: float) -> Point:
    options = config.decoding.model_copy(update={"beam": beam})
    data = DataDir.read(args.data, audio=False)
    scorer = NetworkScorer(
        config=config,
        models=(args.model,),
        data=args.data,
        streams=args.streams,
        device=args.device,
    )
    utterances = scorer.utterances()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "decode"
        work = Work(searcher=Searcher(args.graph, options), make_scorer=scorer)
        # a narrow beam may lose many: they are counted as deleted
        report = decode(work, utterances, folder, jobs=args.jobs, max_failed=1.0)
        words = Words.read(folder, Filters.of(config.scoring))
        found = hypothesise(folder, data, words, setting)
        scored = Reference.of(data, found.seconds, words.filters).score(found.words)
    total = nist.total(scored)
    if not total.words:
        raise UserError("references without any word", where=args.data, fix="Correct its text")
    interval = bootstrap(scored, seed=config.seed)
    search = report["search_real_time_factor"]
    return Point(
        beam=beam,
        wer=round(total.wer, 3),
        low=round(interval.low, 3),
        high=round(interval.high, 3),
        errors=total.errors,
        words=total.words,
        real_time_factor=round(search + report["scoring_real_time_factor"], 5),
        search_real_time_factor=search,
        partial=len(report["partial"]),
        failed=len(report["failed"]),
    )


def _line(point: Point) -> str:
    lost = f", {point.partial} partial, {point.failed} lost" if point.partial + point.failed else ""
    return (
        f"beam {point.beam:g}: {point.wer:.2f} % ({point.low:.2f} .. {point.high:.2f}), real-time "
        f"factor {point.real_time_factor:.4f}, search alone {point.search_real_time_factor:.4f}"
        f"{lost}"
    )
