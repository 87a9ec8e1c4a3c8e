"""Training speech at other speeds, tempo and pitch together (Kaldi's perturb_data_dir_speed.sh).

Ko et al., "Audio augmentation for speech recognition", Interspeech 2015. Recordings, utterances
and speakers at 0.9 of the speed are called `sp0.9-<name>`, as Kaldi calls them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.names import original, perturbed
from hadpsgd.corpus.resample import resample, to_int16
from hadpsgd.corpus.tables import write_table
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder, file_name
from hadpsgd.parallel import map_in_order
from hadpsgd.progress import tracked

AUDIO = "audio"


def at_speed(samples: np.ndarray, speed: float) -> np.ndarray:
    """Float32 [samples] to [ceil(samples / speed)] of the same rate; below 1 is slower and lower.

    The speed is taken to the nearest hundredth.
    """
    ratio = Fraction(speed).limit_denominator(100)
    return resample(samples, rate=ratio.numerator, new_rate=ratio.denominator)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Recordings to be read."""

    data: DataDir
    speeds: Sequence[float]
    rate: int
    allow_pipes: bool = False


def perturb(source: Source, out: Path, jobs: int) -> Summary:
    """Write a data directory of all speeds but 1, and check it.

    Its recordings lie in audio/<name> of the folder two above, from where wav.scp names them.
    Beside Kaldi's usual files it has utt2uniq: the utterance that each was made from.

    Raises:
        UserError: audio that is missing, damaged or at another rate (names the recording); a name
            that looks like a perturbed one already.
    """
    speeds = [speed for speed in source.speeds if speed != 1.0]
    if not speeds:
        raise UserError("no speed but 1", fix="Set corpus.speeds, such as [0.9, 1.0, 1.1]")
    data = source.data
    for name in [*data.utterances, *data.recordings]:
        if original(name) != name:
            raise UserError(
                f"'{name}' is called as if its speed was perturbed already",
                where=data.path,
                fix="Leave corpus.speeds out, or give the data before perturbation",
            )
    # both sides of a call may lie in one file
    files = {place: name for name, place in sorted(data.recordings.items(), reverse=True)}
    tasks = [(name, speed) for name in sorted(files.values()) for speed in speeds]
    audio_folder = f"{AUDIO}/{out.name}"
    with atomic_folder(out.absolute().parents[1] / audio_folder) as folder:
        written = map_in_order(partial(_writer, source, folder), tasks, jobs)
        deque(tracked(written, tasks, what="perturb", unit="files"), maxlen=0)
    with atomic_folder(out) as folder:
        copies = [_copy(data, files, audio_folder, speed) for speed in speeds]
        joined = DataDir(
            folder,
            {u.id: u for u in sorted((u for each in copies for u in each), key=lambda u: u.id)},
            {name: place for each in copies for name, place in each.recordings.items()},
            {name: gender for each in copies for name, gender in each.gender.items()},
            {name: place for each in copies for name, place in each.channels.items()},
        )
        joined.write(folder)
        write_table(folder / "utt2uniq", {u.id: original(u.id) for u in joined})
        return validate_or_fail(folder, Checks(sample_rate=source.rate, threads=jobs))


def _copy(data: DataDir, files: Mapping[str, str], folder: str, speed: float) -> DataDir:
    """Names and times of a data directory at a speed, its recordings in `folder`.

    files: place of each recording to the name after which its copies are called.
    """

    def called(name: str) -> str:
        return perturbed(name, speed)

    def copied(utterance: Utterance) -> Utterance:
        return replace(
            utterance,
            id=called(utterance.id),
            speaker=called(utterance.speaker),
            recording=called(utterance.recording),
            start=utterance.start / speed,
            end=None if utterance.end is None else utterance.end / speed,
        )

    return DataDir(
        data.path,
        {called(utterance.id): copied(utterance) for utterance in data},
        {
            called(name): f"{folder}/{file_name(called(files[place]))}.wav"
            for name, place in data.recordings.items()
        },
        {called(speaker): gender for speaker, gender in data.gender.items()},
        {called(name): place for name, place in data.channels.items()},
    )


def _writer(source: Source, folder: Path) -> Callable[[tuple[str, float]], None]:
    """The function that writes a recording at a speed."""

    def write(task: tuple[str, float]) -> None:
        name, speed = task
        place = source.data.recordings[name]
        with audio.open_audio(place, allow_pipes=source.allow_pipes) as stream:
            if stream.samplerate != source.rate:
                raise UserError(
                    f"sample rate {stream.samplerate} Hz instead of {source.rate}",
                    where=f"recording {name}: {place}",
                    fix="Resample it (sox -r) or set features.sample_rate",
                )
            channels = [
                to_int16(at_speed(audio.read(stream, channel=channel), speed))
                for channel in range(stream.channels)
            ]
        path = folder / f"{file_name(perturbed(name, speed))}.wav"
        audio.write_wav(path, np.stack(channels, axis=1), source.rate)

    return write
