"""`hadpsgd compare-errors`: a page of two runs' errors side by side, with audio."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hadpsgd import diverged
from hadpsgd.config import Config, load
from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.numeric import real, whole
from hadpsgd.reports.confusions import TOP
from hadpsgd.reports.errors import LISTED, MINUTES
from hadpsgd.reports.html import render
from hadpsgd.reports.pairs import SetPairs
from hadpsgd.reports.two_runs import SENTENCES
from hadpsgd.scoring import sentences

_TEMPLATE = "pairs.html.j2"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("first", type=Path, help="scoring folder of a set, or of a run: <set>/")
    parser.add_argument("second", type=Path, help="that of another run")
    parser.add_argument("--names", nargs=2, help="names of the runs (default: from the paths)")
    parser.add_argument(
        "--sets", nargs="+", help="of folders of runs (default: all that both have)"
    )
    parser.add_argument(
        "--data", type=Path, help="data directory of the set, or folder of <set>/: gives the audio"
    )
    parser.add_argument("--config", type=Path, help="takes sets and allow_pipes from there")
    parser.add_argument(
        "--listed",
        type=whole("--listed", least=0),
        default=LISTED,
        help="wrong sentences of each set to list",
    )
    parser.add_argument(
        "--audio-minutes",
        type=real("--audio-minutes"),
        default=MINUTES,
        help="audio of each set that the page has",
    )
    parser.add_argument("--out", type=Path, required=True, help="page (HTML) to write")


def run(args: argparse.Namespace) -> int:
    """Write the page, which needs no other file."""
    config = load(args.config) if args.config else None
    folders = (args.first, args.second)
    alone = (args.first / sentences.FILE).is_file() or diverged.told(args.first)
    names = args.names or [_name(each.resolve(), alone=bool(alone)) for each in folders]
    if names[0] == names[1]:
        raise UserError(f"both runs are called {names[0]}", fix="Use --names")
    sets = [args.first.resolve().name] if alone else args.sets or _sets(folders, config)
    below = ["" if alone else name for name in sets]
    why = next((w for one in folders for b in below if (w := diverged.told(one / b))), "")
    found = [] if why else [_set(args, config, n, b) for n, b in zip(sets, below, strict=True)]
    page = render(
        _TEMPLATE,
        names=list(names),
        sets=found,
        diverged=why,
        outcomes=SENTENCES[:3],
        minutes=args.audio_minutes,
        top=TOP,
    )
    write_text(args.out, page)
    if why:
        return diverged.say(why=why, what="compared")
    for each in found:
        words = ", ".join(f"{count} {kind}" for kind, count in each.runs.words.items())
        print(f"{each.name}: words: {words}", file=sys.stderr)
    return 0


def _name(folder: Path, *, alone: bool) -> str:
    """RUN of score/RUN, or of score/RUN/SET."""
    return folder.parent.name if alone else folder.name


def _sets(folders: Sequence[Path], config: Config | None) -> list[str]:
    """Test sets of the config, or all that both runs have."""
    if config:
        return list(config.tests)
    for folder in folders:
        if not folder.is_dir():
            raise UserError("no such folder", where=folder, fix="`hadpsgd score` writes it")
    first, second = ({p.parent.name for p in f.glob(f"*/{sentences.FILE}")} for f in folders)
    if not first & second:
        what = f"no set that {folders[1]} is scored on, too"
        raise UserError(what, where=folders[0], fix="Give scoring folders")
    return sorted(first & second)


def _set(args: argparse.Namespace, config: Config | None, name: str, below: str) -> SetPairs:
    first, second = (sentences.read(folder / below) for folder in (args.first, args.second))
    data = DataDir.read(args.data / below, audio=False) if args.data else None
    found = SetPairs(name, first, second, data, args.listed)
    try:
        assert found.runs
    except ValueError as error:
        raise UserError(f"{error}", where=f"{args.first / below}, {args.second / below}") from None
    if data is None or not data.recordings:
        return found
    pipes = bool(config and getattr(config.corpus, "allow_pipes", False))
    rate = config.features.sample_rate if config else _rate(data)
    with AudioReader(data, rate, allow_pipes=pipes) as reader:
        return found.heard(reader, minutes=args.audio_minutes)


def _rate(data: DataDir) -> int:
    """Samples a second of the first recording that is a file; of none, a telephone's."""
    for location in data.recordings.values():
        if not audio.is_pipe(location) and Path(location).is_file():
            return audio.info(location).rate
    return 8000
