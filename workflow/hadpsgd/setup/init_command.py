"""`hadpsgd init`: a config, and data directories where there are none, for speech of your own."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.config.sizes import size_for
from hadpsgd.corpus.validate import Checks, validate_or_fail
from hadpsgd.errors import UserError, raise_all
from hadpsgd.files import LONGEST_NAME, atomic_folder, sha256, write_text
from hadpsgd.parallel import add_jobs
from hadpsgd.setup import from_kaldi, from_lhotse, from_table
from hadpsgd.setup.need import MADE
from hadpsgd.setup.others import ANOTHER_NAME, check_others
from hadpsgd.setup.prepared import Corpus, make_dictionary, told
from hadpsgd.setup.questions import ask
from hadpsgd.setup.start import PROFILES, command
from hadpsgd.setup.template import written
from hadpsgd.setup.words import ENGLISH, LETTERS


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--csv", type=Path, help="table with columns file, text [speaker] [set]")
    source.add_argument(
        "--kaldi", type=Path, help="a Kaldi data directory, or a folder of train, dev and test*"
    )
    source.add_argument(
        "--lhotse",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="manifests of lhotse: recordings and supervisions, or cuts",
    )
    parser.add_argument("--name", default="", help="of config and results (default: the source's)")
    parser.add_argument(
        "--lexicon",
        default=LETTERS,
        help=f"lexicon.txt or dict folder; {LETTERS}: words as they are spelled (the default); "
        f"{ENGLISH}: American English by espeak-ng",
    )
    parser.add_argument("--lm-text", type=Path, help="more text, one sentence a line")
    parser.add_argument("--cluster", choices=list(PROFILES), default="local", help="where it runs")
    parser.add_argument("--out", type=Path, help="config to write (default: NAME.yaml)")
    parser.add_argument("--data", type=Path, help="folder for data made here (default: data/NAME)")
    parser.add_argument("--force", action="store_true", help="replace what init wrote before")
    parser.add_argument("--allow-pipes", action="store_true", help="run commands of wav.scp")
    add_jobs(parser, "headers read at a time")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    if not (args.csv or args.kaldi or args.lhotse):
        if not sys.stdin.isatty():
            raise UserError(
                "give --csv FILE, --kaldi DIR or --lhotse FILE...", fix="On a terminal it asks"
            )
        try:
            ask(args)
        except EOFError:
            raise UserError("no answer") from None
    name = _name(args)
    out, data = args.out or Path(f"{name}.yaml"), args.data or Path("data") / name
    _check_free(out, data, args.force)
    check_others(out, name=name, data=data)
    _make(args, name, out, data)
    return 0


def _name(args: argparse.Namespace) -> str:
    """Of the config.

    Raises:
        UserError: it cannot be one.
    """
    if args.lhotse:
        stem = args.lhotse[0].name.partition(".")[0]  # of .jsonl.gz
    else:
        stem = args.csv.stem if args.csv else args.kaldi.resolve().name
    name = args.name or re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_-")[:LONGEST_NAME]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise UserError(
            f"'{name}' cannot be a name", where="--name", fix="Take letters, digits, - and _"
        )
    if len(name) > LONGEST_NAME:
        what, fix = f"'{name}' cannot be a name", f"Take at most {LONGEST_NAME} letters"
        raise UserError(what, where="--name", fix=fix)
    return name


def _check_free(out: Path, data: Path, force: bool) -> None:
    """Nothing is written over that is not ours, nor without being asked.

    Raises:
        UserError: config or folder is there.
    """
    if data.exists() and not (data / MADE).is_file():
        raise UserError("is there, and not made by init", where=data, fix="Name another: --data")
    for path in (out, data):
        if path.exists() and not force:
            raise UserError("is there already", where=path, fix="Give --force, or another --name")
    if out.is_dir():
        raise UserError("is a folder", where=out, fix="Name a file: --out FILE.yaml")
    if out.exists() and sha256(out) != _written_before(data):
        fix = f"{ANOTHER_NAME}; or remove it"
        raise UserError("not as init wrote it; it is kept", where=out, fix=fix)


def _written_before(data: Path) -> str | None:
    """SHA-256 of the config that init wrote with this folder; None where that is not known."""
    try:
        return str(json.loads((data / MADE).read_bytes())["config"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


@contextmanager
def _no_empty_folders(data: Path) -> Iterator[None]:
    """A failure removes the folders above `data` that were made for it."""
    made = [folder for folder in data.absolute().parents if not folder.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not made yet, or no longer empty
            for folder in made:
                folder.rmdir()
        raise


def _make(args: argparse.Namespace, name: str, out: Path, data: Path) -> None:
    with _no_empty_folders(data), atomic_folder(data, own=True) as folder:
        corpus = _corpus(args, folder, data)
        dictionary = make_dictionary(
            corpus, wanted=args.lexicon, folder=folder / "dict", named=data / "dict"
        )
        source = str((args.csv or args.kaldi or args.lhotse[0]).absolute())
        _check_data(corpus, data, folder)
        text = written(name, corpus, dictionary, cluster=args.cluster, config=out)
        write_text(folder / "config.yaml", text)
        load(folder / "config.yaml")
        (folder / "config.yaml").unlink()
        digest = hashlib.sha256(text.encode()).hexdigest()
        made = {"source": source, "config": digest, "hours": _hours(corpus)}
        write_text(folder / MADE, json.dumps(made, indent=2) + "\n")
    write_text(out, text)
    for line in told(corpus, dictionary):
        print(line)
    size = size_for(corpus.sets["train"].hours)
    print(f"lexicon: {dictionary.words} words, {args.lexicon}")
    print(f"network: {size.layers} layers of {size.cells} cells, {size.epochs} epochs")
    print(f"wrote {out} and {data}")
    print(f"next: hadpsgd doctor --config {shlex.quote(str(out))}")
    print(f"      {command(args.cluster, out)}")


def _corpus(args: argparse.Namespace, folder: Path, data: Path) -> Corpus:
    """What the source has; its faults one a line.

    Raises:
        UserError: there is a fault.
    """
    faults: list[UserError] = []
    source = args.csv or args.kaldi or args.lhotse[0]
    if args.csv:
        recordings = from_table.read(args.csv, faults.append, args.jobs)
        raise_all(faults, source)
        return from_table.write(recordings, lm_text=args.lm_text, folder=folder, named=data)
    whole = folder / "whole"
    manifests = from_lhotse.data_directory(args.lhotse, whole) if args.lhotse else None
    corpus = from_kaldi.read(
        {"": whole} if args.lhotse else from_kaldi.find(args.kaldi),
        source=source,
        manifests=manifests,
        lm_text=args.lm_text,
        folder=folder,
        named=data,
        allow_pipes=args.allow_pipes,
        report=faults.append,
        threads=args.jobs,
    )
    raise_all(faults, source)
    if whole.exists():  # its parts are written
        shutil.rmtree(whole)
    return corpus


def _check_data(corpus: Corpus, data: Path, folder: Path) -> None:
    """The tables that were written here, as the workflow will check them; audio was looked at."""
    for speech in corpus.sets.values():
        if speech.data.is_relative_to(data):
            made = folder / speech.data.relative_to(data)
            validate_or_fail(made, Checks(sample_rate=corpus.sample_rate, audio=False))


def _hours(corpus: Corpus) -> dict[str, float]:
    return {name: round(speech.hours, 4) for name, speech in corpus.sets.items()}
