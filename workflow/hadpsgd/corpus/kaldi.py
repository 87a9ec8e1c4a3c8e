"""Your own Kaldi data directories and dictionary: checked, then brought into the corpus folder.

Text files are copied, audio stays where it is. The dictionary is a folder like Kaldi's
data/local/dict, or a bare lexicon.txt: silence phones are then those named in `NOISES`, and
`<UNK>` is added.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.corpus import DataSet, Kaldi
from hadpsgd.corpus import audio, stm
from hadpsgd.corpus.case import Case
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.dictdir import read_lexicon, write_dict, write_lexicon, write_weighted
from hadpsgd.corpus.lang.dictionary import (
    LEXICONS,
    SILENCE_AT_ENDS,
    lexicon_file,
    numbers_of,
    read_dictionary,
)
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.parts import copy_tables, part_of
from hadpsgd.corpus.tables import write_table
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped, read_whole
from hadpsgd.texts import sentences

_PHONE_LISTS = ("silence_phones.txt", "nonsilence_phones.txt", "optional_silence.txt")


def dictionary(config: Config, layout: Layout) -> None:
    """Check and copy the user's dictionary."""
    copy_dictionary(Path(_corpus(config).dict_dir), layout)


def data(
    config: Config, name: str, layout: Layout, lexicon: Container[str] | None, processes: int
) -> Summary:
    """Check and copy one of the user's sets.

    Raises:
        UserError: a fault in the data.
    """
    corpus = _corpus(config)
    part = corpus.sets[name]
    checks = Checks(
        sample_rate=config.features.sample_rate,
        lexicon=lexicon,
        case=corpus.case,
        recordings=part.recordings,
        max_oov=corpus.max_oov.of(name),
        max_uncovered=corpus.max_uncovered.of(name),
        allow_pipes=corpus.allow_pipes,
        threads=processes,
    )
    summary = validate_or_fail(part.data, checks)
    _copy_set(part, Case(kind=corpus.case, lexicon=lexicon or ()), layout.data(name))
    return summary


def text(config: Config, made: Layout, name: str) -> Iterator[str]:
    """The user's sentences for the language model, or transcripts of a set."""
    corpus = _corpus(config)
    lexicon = read_lexicon(made.lexicon) if corpus.folds_words else ()
    case = Case(kind=corpus.case, lexicon=lexicon)
    if name == "train" and corpus.lm_text is not None:
        return map(case.text, sentences_of(Path(corpus.lm_text)))
    part = corpus.sets[name]
    return (case.text(u.text) for u in part_of(DataDir.read(part.data), part.recordings))


def _corpus(config: Config) -> Kaldi:
    assert isinstance(config.corpus, Kaldi)
    return config.corpus


def _copy_set(part: DataSet, case: Case, folder: Path) -> None:
    """Copy text files; wav.scp gets absolute paths, spk2utt is made again."""
    data = part_of(DataDir.read(part.data), part.recordings)
    folder.mkdir(parents=True, exist_ok=True)
    copy_tables(data, case, folder)
    references, rules = (plain_or_gzipped(data.path / name) for name in ("stm", "glm"))
    if references.is_file():
        stm.copy_part(references, part.recordings, folder / "stm")
    if rules.is_file():
        (folder / "glm").write_bytes(read_whole(rules))
    recordings = {
        name: place if audio.is_pipe(place) else str(Path(place).absolute())
        for name, place in data.recordings.items()
    }
    write_table(folder / "wav.scp", recordings)
    write_table(folder / "spk2utt", {s: " ".join(ids) for s, ids in data.speakers.items()})


def copy_dictionary(source: Path, layout: Layout) -> None:
    """Check a dict folder or a lexicon and copy it; raises UserError for its faults."""
    if not source.exists():
        raise UserError(
            "no such dictionary", where=source, fix="Set corpus.dict_dir to a folder or lexicon.txt"
        )
    if source.is_file() or not any((source / name).is_file() for name in _PHONE_LISTS):
        path = source if source.is_file() else lexicon_file(source)
        if numbers_of(path) > 1:
            raise UserError(
                f"{', '.join(_PHONE_LISTS)} are not beside it",
                where=path,
                fix="Take the whole folder that utils/dict_dir_add_pronprobs.sh wrote",
            )
        lexicon = read_lexicon(path)
        write_dict(layout.dict_dir, lexicon.words)
        if numbers_of(path):
            write_weighted(layout.dict_dir / "lexiconp.txt", lexicon)
        return
    read_dictionary(source)
    layout.dict_dir.mkdir(parents=True, exist_ok=True)
    for name in (*LEXICONS, SILENCE_AT_ENDS, "extra_questions.txt", *_PHONE_LISTS):
        if (path := plain_or_gzipped(source / name)).is_file():
            (layout.dict_dir / name).write_bytes(read_whole(path))
    if not layout.lexicon.is_file():
        write_lexicon(layout.lexicon, read_lexicon(lexicon_file(source)).words)


def sentences_of(path: Path) -> Iterator[str]:
    """Lines of a text, spaces normalised, empty ones left out; streams."""
    empty = True
    for _, words in sentences(path):
        empty = False
        yield " ".join(words)
    if empty:
        raise UserError("no sentence in this text", where=path, fix="Set corpus.lm_text")
