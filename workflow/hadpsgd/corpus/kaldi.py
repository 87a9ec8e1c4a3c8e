"""Your own Kaldi data directories and dictionary: checked, then brought into the corpus folder.

Text files are copied, audio stays where it is. The dictionary is a folder like Kaldi's
data/local/dict, or a bare lexicon.txt: silence phones are then those named in `NOISES`, and
`<UNK>` is added.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.corpus import Kaldi
from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.dictdir import read_lexicon, write_dict, write_lexicon
from hadpsgd.corpus.lang.dictionary import read_dictionary
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.tables import write_table
from hadpsgd.corpus.validate import Checks, Summary, validate_sets
from hadpsgd.errors import UserError
from hadpsgd.texts import sentences

_COPIED = ("segments", "text", "utt2spk", "spk2gender", "reco2file_and_channel", "stm", "glm")
_PHONE_LISTS = ("silence_phones.txt", "nonsilence_phones.txt", "optional_silence.txt")


def prepare(config: Config, out: Path, processes: int) -> dict[str, Summary]:
    """Check and copy the user's sets into the corpus folder `out`.

    Raises:
        UserError: a fault in the data, the dictionary or the language model text.
    """
    corpus, layout = config.corpus, Layout(out)
    assert isinstance(corpus, Kaldi)
    _copy_dict(Path(corpus.dict_dir), layout)
    if corpus.lm_text is not None:
        next(_sentences(Path(corpus.lm_text)))  # its faults are told before audio is read
    sets = {"train": corpus.train, "dev": corpus.dev, **corpus.tests}
    checks = Checks(
        sample_rate=config.features.sample_rate,
        lexicon=read_lexicon(layout.lexicon),
        max_oov=corpus.max_oov,
        allow_pipes=corpus.allow_pipes,
        threads=processes,
    )
    summaries = validate_sets({name: Path(path) for name, path in sets.items()}, checks)
    for name, path in sets.items():
        _copy_set(Path(path), layout.data(name))
    layout.write_lm("dev", _transcripts(layout, "dev"))
    if corpus.lm_text is None:
        layout.write_lm("train", _transcripts(layout, "train"))
    else:
        layout.write_lm("train", _sentences(Path(corpus.lm_text)))
    return summaries


def _copy_set(source: Path, folder: Path) -> None:
    """Copy text files; wav.scp gets absolute paths, spk2utt is made again."""
    data = DataDir.read(source)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    recordings = {
        name: place if audio.is_pipe(place) else str(Path(place).absolute())
        for name, place in data.recordings.items()
    }
    write_table(folder / "wav.scp", recordings)
    write_table(folder / "spk2utt", {s: " ".join(ids) for s, ids in data.speakers.items()})


def _copy_dict(source: Path, layout: Layout) -> None:
    if source.is_file():
        write_dict(layout.dict_dir, read_lexicon(source).words)
        return
    if not source.is_dir():
        raise UserError(
            "no such dictionary", where=source, fix="Set corpus.dict_dir to a folder or lexicon.txt"
        )
    if not any((source / name).is_file() for name in _PHONE_LISTS):
        write_dict(layout.dict_dir, read_lexicon(_lexicon_file(source)).words)
        return
    read_dictionary(source)
    layout.dict_dir.mkdir(parents=True, exist_ok=True)
    for name in ("lexicon.txt", "lexiconp.txt", "extra_questions.txt", *_PHONE_LISTS):
        if (source / name).is_file():
            shutil.copyfile(source / name, layout.dict_dir / name)
    if not layout.lexicon.is_file():
        write_lexicon(layout.lexicon, read_lexicon(_lexicon_file(source)).words)


def _lexicon_file(folder: Path) -> Path:
    weighted = folder / "lexiconp.txt"
    return weighted if weighted.is_file() else folder / "lexicon.txt"


def _transcripts(layout: Layout, name: str) -> Iterator[str]:
    return (u.text for u in DataDir.read(layout.data(name)))


def _sentences(path: Path) -> Iterator[str]:
    """Lines of a text, spaces normalised, empty ones left out; streams."""
    empty = True
    for _, words in sentences(path):
        empty = False
        yield " ".join(words)
    if empty:
        raise UserError("no sentence in this text", where=path, fix="Set corpus.lm_text")
