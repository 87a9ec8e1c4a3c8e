"""The neural language model in a bundle: the network, the n-gram beside it, and which lists."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.decoding.list_files import partial_of
from hadpsgd.decoding.list_settings import ListSettings
from hadpsgd.decoding.neural_lists import ListMaker
from hadpsgd.errors import UserError
from hadpsgd.lm import backoff, stored
from hadpsgd.lm.arpa import BOS, EOS
from hadpsgd.lm.neural import model
from hadpsgd.lm.neural.mixture import Models

NGRAM, LISTS = "ngram", "lists.json"


def write(folder: Path, *, lm: Path, tuned: Path) -> None:
    """Write FOLDER/{model.pt,ngram/,lists.json} of the workflow's `lm/` and `tuned.json`.

    Raises:
        UserError: one is missing or damaged.
    """
    folder.mkdir()
    network = lm / "neural" / model.FILE
    model.load(network)  # is it one
    shutil.copyfile(network, folder / model.FILE)
    stored.write(backoff.load(lm / "full.arpa.gz"), folder / NGRAM)
    try:
        settings = json.loads(tuned.read_text(encoding="utf-8"))["lists"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"not from `hadpsgd tune` ({error})", where=tuned) from None
    (folder / LISTS).write_text(json.dumps(settings) + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[Models, ListSettings]:
    """What `write` wrote.

    Raises:
        UserError: a file is missing or damaged.
    """
    network, words = model.load(folder / model.FILE)
    settings = ListSettings.read(folder / LISTS)
    ngram = stored.read(folder / NGRAM)
    if lacking := {BOS, EOS} - ngram.ids.keys():
        where = folder / NGRAM / stored.WORDS
        raise UserError(f"no {min(lacking)}", where=where, fix="Export the bundle again")
    return Models(ngram, network, words), settings


def maker(folder: Path, *, decoded: Path) -> ListMaker:
    """What makes lists of a decoding folder's lattices; raises as `read`."""
    models, settings = read(folder)
    return ListMaker(
        models,
        {number: name for name, number in read_symbols(decoded / "words.txt").items()},
        settings.scalings,
        settings.nbest,
        partial_of(decoded),
    )
