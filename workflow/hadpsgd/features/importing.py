"""Features and i-vectors of Kaldi take the place of a stream of ours.

Nothing is copied where an scp points to matrices: ours points to the same. Archives and the
output of commands are copied, for they cannot be read at random. All is read once, so that what
is broken or missing is found here and not in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.imports import FeatureImport, IvectorImport
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.names import original
from hadpsgd.errors import UserError
from hadpsgd.features.cmvn import SpeakerStatistics
from hadpsgd.features.coverage import check_coverage
from hadpsgd.features.ivector.extract import NAMES, PERIOD
from hadpsgd.files import atomic_file, write_text
from hadpsgd.kaldi_io import Kind, Scp, Writer, iterate, resolved, write_archive
from hadpsgd.progress import tracked
from hadpsgd.skipped import check_skipped

_OTHER = "Features of another data set?"


class Source:
    """Arrays of an scp or an archive, and how they are referred to afterwards."""

    def __init__(self, place: str, kind: Kind, *, allow_pipes: bool) -> None:
        self.place, self.kind, self.allow_pipes = place, kind, allow_pipes
        self.scp = Scp(place, kind, allow_pipes=allow_pipes) if place.endswith(".scp") else None

    @property
    def refers(self) -> bool:
        """Whether our scp can point to the arrays where they lie."""
        return self.scp is not None and not any(e.endswith("|") for e in self.scp.entries.values())

    def items(self, wanted: Iterable[str]) -> Iterable[tuple[str, NDArray]]:
        """(key, array) of wanted keys that are there."""
        if self.scp is not None:
            return ((key, self.scp[key]) for key in wanted if key in self.scp)
        keys = set(wanted)
        found = iterate(self.place, self.kind, allow_pipes=self.allow_pipes)
        return (item for item in found if item[0] in keys)


def take(
    sources: Sequence[Source], wanted: list[str], out: Path, name: str,
    counts: dict[str, int] | None = None, speakers: SpeakerStatistics | None = None,
) -> set[str]:  # fmt: skip
    """Write `name`.scp (and .ark where copied) in `out`; returns the keys that are there.

    `counts` takes the rows of every array, `speakers` its statistics.

    Raises:
        UserError: an array is broken, or of another dimension than those before.
    """
    out.mkdir(parents=True, exist_ok=True)
    found: set[str] = set()
    width = 0
    refers = all(source.refers for source in sources)
    with ExitStack() as stack:
        if refers:
            scp = stack.enter_context(atomic_file(out / f"{name}.scp"))
            lines = stack.enter_context(scp.open("w", encoding="utf-8"))
        else:
            writer = stack.enter_context(Writer(ark=out / f"{name}.ark", scp=out / f"{name}.scp"))
        items = ((s, *item) for s in sources for item in s.items(wanted))
        for source, key, array in tracked(items, wanted, what="import", unit=f"entries of {name}"):
            width = width or array.shape[-1]
            if array.shape[-1] != width:
                what = f"{key} has {array.shape[-1]} dimensions, those before {width}"
                raise UserError(what, where=source.place)
            if not np.isfinite(array).all():
                what = f"{key} has a value that is not a finite number"
                raise UserError(what, where=source.place, fix="Make its features again")
            if key in found:
                raise UserError(f"{key} is there twice", where=source.place)
            found.add(key)
            if counts is not None:
                counts[key] = len(array)
            if speakers is not None:
                speakers.add(key, array)
            if refers:
                assert source.scp is not None
                lines.write(f"{key} {resolved(source.scp, key)}\n")
            else:
                writer.write(key, array)
    return found


def import_features(
    options: FeatureImport, data: DataDir, out: Path, limit: float, *, allow_pipes: bool = False
) -> None:
    """Write feats.scp, cmvn.scp, utt2num_frames of a set from Kaldi's.

    Raises:
        UserError: features are broken; more than a share `limit` of the utterances have none, or
            such of another length; a speaker has no statistics.
    """
    speaker_of = {utterance.id: utterance.speaker for utterance in data}
    wanted = list(speaker_of)
    counts: dict[str, int] = {}
    sums = SpeakerStatistics(speaker_of)
    source = Source(in_set(options.feats, data), "matrix", allow_pipes=allow_pipes)
    found = take([source], wanted, out, "feats", counts, None if options.cmvn else sums)
    missing = [utterance for utterance in wanted if utterance not in found]
    check_skipped(
        missing,
        total=len(wanted),
        limit=limit,
        what="utterances are not there",
        where=source.place,
        fix=_OTHER,
    )
    check_coverage(counts, data, limit=limit, where=source.place)
    write_text(out / "utt2num_frames", "".join(f"{u} {counts[u]}\n" for u in sorted(found)))
    if not options.cmvn:
        write_archive(out / "cmvn.ark", sums.items(), out / "cmvn.scp")
        return
    statistics = Source(in_set(options.cmvn, data), "matrix", allow_pipes=allow_pipes)
    speakers = sorted({speaker_of[utterance] for utterance in found})
    known = take([statistics], speakers, out, "cmvn")
    lacking = [speaker for speaker in speakers if speaker not in known]
    check_skipped(
        lacking,
        total=len(speakers),
        limit=0.0,
        what="speakers are not there",
        where=statistics.place,
        fix=_OTHER,
    )


def import_ivectors(
    options: IvectorImport, data: DataDir, out: Path, limit: float, *, allow_pipes: bool = False
) -> None:
    """Write the ivector stream of a set from Kaldi's archives.

    Speakers or utterances at another speed that have none take those that they were made from.

    Raises:
        UserError: they are broken; more than a share `limit` of utterances or speakers have none.
    """
    kind: Kind = "matrix" if options.per == "online" else "vector"
    wanted = list(data.speakers) if options.per == "speaker" else list(data.utterances)
    sources = [
        Source(in_set(place, data), kind, allow_pipes=allow_pipes) for place in options.ivectors
    ]
    # online vectors follow the frames: those of another speed would not fit
    before = {key: key if options.per == "online" else original(key) for key in wanted}
    keys = list(dict.fromkeys([*wanted, *before.values()]))
    found = take(sources, keys, out, NAMES[options.per])
    missing = [key for key in wanted if key not in found and before[key] not in found]
    named = "speakers" if options.per == "speaker" else "utterances"
    check_skipped(
        missing,
        total=len(wanted),
        limit=limit,
        what=f"{named} are not there",
        where=", ".join(source.place for source in sources),
        fix=_OTHER,
    )
    if options.per == "online":
        write_text(out / PERIOD, f"{options.period}\n")


def in_set(path: str, data: DataDir) -> str:
    """A path of the config for one data set."""
    return path.replace("{set}", data.path.name)
