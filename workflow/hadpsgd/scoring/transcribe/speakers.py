"""Who speaks in which recording, by a file of the user's (`transcribe --speakers`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError
from hadpsgd.scoring.transcribe.sources import Source
from hadpsgd.texts import words_of


@dataclass(frozen=True)
class Speakers:
    """Recordings, or their channels, by speaker: who is not named is a speaker for each channel.

    by_name: speaker of a recording's name, or of NAME-CHANNEL, all in lower case. recordings: all
    names; NAME-CHANNEL that is one of them is no channel.
    """

    by_name: Mapping[str, str] = field(default_factory=dict)
    recordings: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: Path, sources: Sequence[Source]) -> Speakers:
        """Read lines `NAME SPEAKER`, as Kaldi's utt2spk where a recording is an utterance.

        Raises:
            UserError: a line is no pair, a name has two speakers, or none is of these recordings.
        """
        found: dict[str, str] = {}
        for number, line in enumerate(lines_of(path), 1):
            words = words_of(line)
            if not words:
                continue
            if len(words) != 2:
                raise UserError("not 'NAME SPEAKER'", where=f"{path}:{number}")
            name, speaker = words[0].lower(), words[1]
            if found.setdefault(name, speaker) != speaker:
                raise UserError(f"{words[0]} has two speakers", where=f"{path}:{number}")
        speakers = cls(found, frozenset(source.key.lower() for source in sources))
        if not any(speakers.named(source) for source in sources):
            some = ", ".join(source.key for source in sources[:3])
            raise UserError(
                f"has none of the recordings ({some})",
                where=path,
                fix="A line is 'NAME SPEAKER', NAME as in the CTM: without folder and ending",
            )
        return speakers

    def named(self, source: Source) -> bool:
        """Whether a recording, or one of its channels, has a speaker here."""
        key = source.key.lower()
        channels = (n for n in self.by_name if n not in self.recordings)
        return key in self.by_name or any(name.rpartition("-")[0] == key for name in channels)

    def of(self, source: Source, channel: str) -> str | None:
        """Speaker of a recording's channel, if named."""
        key = source.key.lower()
        own = f"{key}-{channel.lower()}"
        if own in self.by_name and own not in self.recordings:
            return self.by_name[own]
        return self.by_name.get(key)

    def group(self, source: Source) -> str | Source:
        """What recordings that are to be adapted together have in common."""
        return self.of(source, "1") or self.of(source, "A") or source
