"""Kaldi data directories: three of them as they are, or one that is split here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.manifests import Read
from hadpsgd.corpus.tables import Report
from hadpsgd.corpus.validate import Checks, validate
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped
from hadpsgd.setup.prepared import Corpus, Speech
from hadpsgd.setup.split import SETS, Piece, split
from hadpsgd.texts import sentences

_TESTS = ("test*", "eval*")
_ONE_RATE = "Bring all to one rate (ffmpeg -i IN -ar HZ OUT.wav) and name the copies"
_SIDE = re.compile(r"(?P<place>.+?:\d+): (?P<recording>\S+): ")


def find(folder: Path) -> dict[str, Path]:
    """The data directories below a folder: train, dev and tests, or the folder itself as ``.

    Raises:
        UserError: neither the one nor the other.
    """
    if _is_data(folder):
        return {"": folder}
    tests = sorted({path for pattern in _TESTS for path in folder.glob(pattern) if _is_data(path)})
    found = {"train": folder / "train", "dev": folder / "dev", **{p.name: p for p in tests}}
    missing = [name for name, path in found.items() if not _is_data(path)]
    if missing or not tests:
        what = f"no data directory {missing[0]}" if missing else f"none named {' or '.join(_TESTS)}"
        raise UserError(
            what,
            where=folder,
            fix="Give a data directory (with wav.scp), or a folder of train, dev and test",
        )
    return found


def _is_data(path: Path) -> bool:
    return plain_or_gzipped(path / "wav.scp").is_file()


def read(
    found: dict[str, Path],
    *,
    source: Path,
    manifests: Read | None,
    lm_text: Path | None,
    folder: Path,
    named: Path,
    allow_pipes: bool,
    report: Report,
    threads: int,
) -> Corpus:
    """Check data directories, and split the one where there is one alone.

    Args:
        found: what `find` gives.
        source: what the user gave, for messages.
        manifests: lhotse's, which the one directory was made of.
        lm_text: more text for the language model.
        folder: where parts are written.
        named: the name that this folder will have.
        allow_pipes: run commands of wav.scp.
        report: takes each fault that `validate` finds.
        threads: headers read at a time.

    Raises:
        UserError: a file is missing, or one directory has fewer than three utterances.
    """
    places = manifests.places if manifests else {}
    rate = _rate(next(iter(found.values())), places, allow_pipes)
    checks = Checks(
        sample_rate=rate,
        other_rate=_ONE_RATE,
        allow_pipes=allow_pipes,
        threads=threads,
        places=places,
        said=manifests.said if manifests else {},
    )
    told = _told(report, places)
    summaries = {name: validate(path, checks, told) for name, path in found.items()}
    if "" in found:
        try:
            sets, by_speaker = _split(found[""], folder, named, allow_pipes)
        except ValueError as error:
            fix = "Record more" if manifests else "Give train, dev and test"
            raise UserError(str(error), where=source, fix=fix) from None
    else:
        by_speaker = True
        sets = {
            name: _speech(DataDir.read(path, _ignore), path, summaries[name].seconds or 0.0)
            for name, path in found.items()
        }
    return Corpus(
        sets=sets,
        by_speaker=by_speaker,
        sample_rate=rate,
        lm_text=lm_text,
        lm_sentences=[" ".join(words) for _, words in sentences(lm_text)] if lm_text else [],
        allow_pipes=allow_pipes,
    )


def _told(report: Report, places: Mapping[str, str]) -> Report:
    """Faults as they are told: a manifest's line once, though it has two channels."""
    said: set[str] = set()

    def told(fault: UserError) -> None:
        line = str(fault)
        side = _SIDE.match(line)
        if side and places.get(side["recording"]) == side["place"]:
            line = f"{side['place']}: {line[side.end() :]}"
        if line not in said:
            said.add(line)
            report(UserError(line))

    return told


def _ignore(fault: UserError) -> None:
    """It is reported once already."""


def _rate(path: Path, places: Mapping[str, str], allow_pipes: bool) -> int:
    data = DataDir.read(path, _ignore)
    if not data.recordings:
        raise UserError("no recordings", where=path / "wav.scp")
    first, place = next(iter(data.recordings.items()))
    manifest = places.get(first, path / "wav.scp")
    try:
        return audio.info(place, allow_pipes=allow_pipes).rate
    except UserError as error:
        raise UserError(str(error), where=f"{manifest}: {first}") from None


def _speech(data: DataDir, named: Path, seconds: float) -> Speech:
    return Speech(
        data=named,
        sentences=[utterance.text for utterance in data],
        speakers=data.speakers,
        seconds=seconds,
    )


def _split(
    path: Path, folder: Path, named: Path, allow_pipes: bool
) -> tuple[dict[str, Speech], bool]:
    data = DataDir.read(path, _ignore)
    lengths: dict[str, float] = {}

    def seconds(utterance: Utterance) -> float:
        if utterance.end is not None:
            return utterance.end - utterance.start
        if utterance.recording not in lengths:
            place = data.recordings[utterance.recording]
            lengths[utterance.recording] = audio.info(place, allow_pipes=allow_pipes).seconds
        return lengths[utterance.recording] - utterance.start

    pieces = {u.id: Piece(u.speaker, seconds(u)) for u in data}
    sets, by_speaker = split(pieces)
    made = {}
    for name in SETS:
        part = _part(data, {utterance for utterance, of in sets.items() if of == name})
        part.write(folder / name)
        made[name] = _speech(part, named / name, sum(pieces[u].seconds for u in part.utterances))
    return made, by_speaker


def _part(data: DataDir, kept: set[str]) -> DataDir:
    """Some utterances, with their recordings by absolute paths."""
    utterances = {name: u for name, u in data.utterances.items() if name in kept}
    recordings = {u.recording for u in utterances.values()}
    speakers = {u.speaker for u in utterances.values()}
    return replace(
        data,
        utterances=utterances,
        recordings={
            name: place if audio.is_pipe(place) else str(Path(place).absolute())
            for name, place in data.recordings.items()
            if name in recordings
        },
        gender={name: value for name, value in data.gender.items() if name in speakers},
        channels={name: value for name, value in data.channels.items() if name in recordings},
    )
