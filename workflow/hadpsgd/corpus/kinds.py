"""Corpora by kind, and how one is made of its parts.

A part is the dictionary, a set or a text. Each depends on few settings and files, so that a
workflow makes again what a change touches: a new test set leaves the others as they are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

from hadpsgd.config import Config
from hadpsgd.config.corpus import Builtin, Kaldi
from hadpsgd.config.ldc import Ldc
from hadpsgd.config.lhotse import Lhotse
from hadpsgd.corpus import an4, kaldi, lhotse
from hadpsgd.corpus.builtin import prepare as builtin
from hadpsgd.corpus.dictdir import read_lexicon
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.ldc import prepare as ldc
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.errors import UserError
from hadpsgd.files import MADE, check_folder, check_replaced, explain_os_errors, write_text
from hadpsgd.scratch import scratch_folder
from hadpsgd.uncounted import Uncounted

PARTS = ("dictionary", "data", "text", "dev-text", "words")
_OF_SETS = ("data", "words")


class Kind(Protocol):
    """What makes the parts of a corpus; each raises UserError for what is wrong with it."""

    def dictionary(self, config: Config, layout: Layout) -> None:
        """Write the dict folder."""

    def data(
        self,
        config: Config,
        name: str,
        layout: Layout,
        lexicon: Container[str] | None,
        processes: int,
    ) -> Summary:
        """Write a set's data directory, and its audio where that is made; checked. Words are not
        held against a lexicon of None, which is not for corpora that fold words."""

    def text(self, config: Config, made: Layout, name: str) -> Iterable[str]:
        """Sentences for the language model: to train it (`train`) or to tune it (`dev`). `made`
        has the dictionary where the corpus folds words, and dev where it speaks first."""


# by corpus.kind
KINDS: dict[str, Kind] = {
    "builtin": builtin,
    "an4": an4,
    "kaldi": kaldi,
    "ldc": ldc,
    "lhotse": lhotse,
}


def prepare(config: Config, out: Path, processes: int) -> dict[str, Summary]:
    """Make a whole corpus in the folder `out`; returns what its sets hold.

    Raises:
        UserError: anything that is wrong with it.
    """
    kind, layout = KINDS[config.corpus.kind], Layout(out)
    kind.dictionary(config, layout)
    layout.write_lm("train", kind.text(config, layout, "train"))  # its faults before the audio's
    lexicon = read_lexicon(layout.lexicon)
    summaries = {
        name: kind.data(config, name, layout, lexicon, processes)
        for name in ("train", "dev", *config.tests)
    }
    for name in ("dev", *config.tests):  # what scoring would refuse
        _words(config, name, layout)
    layout.write_lm("dev", kind.text(config, layout, "dev"))
    return summaries


def prepare_part(
    config: Config, *, part: str, name: str, out: Path, processes: int
) -> dict[str, Summary]:
    """Make one part of the corpus in `out`, where those that it needs lie already.

    Args:
        config: of the corpus.
        part: one of `PARTS`.
        name: the set, for `data` and `words` (words that the dictionary lacks, counted).
        out: the corpus folder.
        processes: at most.

    Returns:
        what the set holds; nothing for other parts.

    Raises:
        UserError: anything that is wrong with it, or a part that it needs is missing.
    """
    if (part in _OF_SETS) != bool(name):
        raise UserError(f"--only {part} " + ("goes without --set" if name else "needs --set"))
    kind, made = KINDS[config.corpus.kind], Layout(out)
    with _written_into(out) as folder:
        layout = Layout(folder)
        match part:
            case "dictionary":
                kind.dictionary(config, layout)
            case "data":
                lexicon = read_lexicon(made.lexicon) if config.corpus.folds_words else None
                return {name: kind.data(config, name, layout, lexicon, processes)}
            case "text":
                layout.write_lm("train", kind.text(config, made, "train"))
            case "dev-text":
                layout.write_lm("dev", kind.text(config, made, "dev"))
            case "words":
                summary = _words(config, name, made)
                write_text(layout.words(name), json.dumps(asdict(summary), indent=2) + "\n")
                return {name: summary}
    return {}


def _words(config: Config, name: str, made: Layout) -> Summary:
    """Hold a set that was made before against the dictionary of now."""
    checks, data = Checks(lexicon=read_lexicon(made.lexicon), audio=False), made.data(name)
    match config.corpus:
        case Kaldi() as corpus:
            part = corpus.sets[name]
            data = Path(part.data)  # faults name the user's files
            checks = replace(
                checks,
                case=corpus.case,
                recordings=part.recordings,
                max_oov=corpus.max_oov.of(name),
                max_uncovered=corpus.max_uncovered.of(name),
            )
        case Lhotse():
            checks = replace(lhotse.checks(config, name, checks.lexicon), audio=False)
        case Ldc():
            checks = replace(ldc.checks(config, name, checks.lexicon), audio=False)
        case Builtin() as corpus:
            checks = replace(checks, max_oov=1.0 if corpus.held_out_words else 0.0)
    if name != "train":  # what scoring would refuse is told before anything is trained
        checks = replace(checks, scored=Uncounted.of(config.scoring))
    return validate_or_fail(data, checks)


@contextmanager
def _written_into(out: Path) -> Iterator[Path]:
    """A temporary folder in `out`; on success, what it holds takes its place there.

    Folders of several parts (data/, audio/, lm/, words/) keep the others.
    """
    check_folder(out)
    with explain_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        if not any(out.iterdir()):
            (out / MADE).touch()
        with scratch_folder(out, "part") as temporary:
            yield temporary
            parts = [part for top in temporary.iterdir() for part in _parts(top)]
            places = {part: out / part.relative_to(temporary) for part in parts}
            for place in places.values():
                check_replaced(place)
            for part, place in places.items():
                place.parent.mkdir(exist_ok=True)
                if part.is_dir():
                    (part / MADE).touch()
                if place.is_dir():
                    shutil.rmtree(place)
                part.replace(place)


def _parts(top: Path) -> Iterable[Path]:
    return [*top.iterdir()] if top.name in ("data", "audio", "lm", "words") else [top]
