"""Copies of training speech: at other speeds, tempo and pitch together, and with noise, in rooms.

Speeds are Kaldi's perturb_data_dir_speed.sh: Ko et al., "Audio augmentation for speech
recognition", Interspeech 2015. Recordings, utterances and speakers at 0.9 of the speed are called
`sp0.9-<name>`, as Kaldi calls them; noisy copies `noise1-<name>` and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from hadpsgd.config.noise import Noise
from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.names import noisy, original, perturbed
from hadpsgd.corpus.noise.copies import Mixer, parts
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
    noise: Noise = field(default_factory=Noise)
    seed: int = 0
    """Of noise."""
    allow_pipes: bool = False


def perturb(source: Source, out: Path, jobs: int) -> Summary:
    """Write a data directory of all speeds but 1 and of noisy copies, and check it.

    Recordings at other speeds, and the noise and rooms of noisy copies, lie in audio/<name> of the
    folder two above, from where tables name them. Noisy copies are mixed when they are read.
    Beside Kaldi's usual files it has utt2uniq: the utterance that each was made from.

    Raises:
        UserError: audio that is missing, damaged or at another rate (names the recording); a name
            that looks like a copy's; own noise that is missing, no audio or silent.
    """
    speeds = [speed for speed in source.speeds if speed != 1.0]
    if not speeds and not source.noise.copies:
        raise UserError(
            "no speed but 1 and no noisy copies",
            fix="Set corpus.speeds, such as [0.9, 1.0, 1.1], or corpus.noise.copies",
        )
    data = source.data
    for name in [*data.utterances, *data.recordings]:
        if original(name) != name:
            raise UserError(
                f"'{name}' is called like a copy already",
                where=data.path,
                fix="Leave corpus.speeds and corpus.noise out, or give data without copies",
            )
    # both sides of a call may lie in one file
    names = {place: name for name, place in sorted(data.recordings.items(), reverse=True)}
    below, top = f"{AUDIO}/{out.name}", out.absolute().parents[1]
    mixer = Mixer(
        settings=source.noise,
        seed=source.seed,
        rate=source.rate,
        data=data,
        allow_pipes=source.allow_pipes,
    )
    mixtures = mixer.mixtures(below)
    tasks = [(name, speed) for name in sorted(names.values()) for speed in speeds]
    mixed = parts(mixtures)
    with atomic_folder(top / below) as folder:
        written = map_in_order(partial(_writer, source, folder), tasks, jobs)
        deque(tracked(written, tasks, what="perturb", unit="files"), maxlen=0)
        made = map_in_order(partial(mixer.maker, folder), mixed, jobs)
        deque(tracked(made, mixed, what="perturb", unit="noises and rooms"), maxlen=0)
    with atomic_folder(out) as folder:
        written_to = {
            speed: {place: f"{below}/{_wav(name, speed)}" for place, name in names.items()}
            for speed in speeds
        }
        named = {place: _from(top, place) for place in names}
        copies = [
            *(_copy(data, partial(perturbed, speed=s), written_to[s], s) for s in speeds),
            *(_copy(data, partial(noisy, number=n), named) for n in source.noise.numbers),
        ]
        joined = DataDir(
            folder,
            {u.id: u for u in sorted((u for each in copies for u in each), key=lambda u: u.id)},
            {name: place for each in copies for name, place in each.recordings.items()},
            {name: gender for each in copies for name, gender in each.gender.items()},
            {name: place for each in copies for name, place in each.channels.items()},
            mixtures,
        )
        joined.write(folder)
        write_table(folder / "utt2uniq", {u.id: original(u.id) for u in joined})
        checks = Checks(sample_rate=source.rate, threads=jobs, allow_pipes=source.allow_pipes)
        return validate_or_fail(folder, checks)


def _copy(
    data: DataDir, called: Callable[[str], str], places: Mapping[str, str], speed: float = 1.0
) -> DataDir:
    """Names and times of a data directory at a speed.

    Args:
        data: the original.
        called: a name to that of its copy.
        places: place of each recording to that of its copy.
        speed: of the copy.
    """

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
        {called(name): places[place] for name, place in data.recordings.items()},
        {called(speaker): gender for speaker, gender in data.gender.items()},
        {called(name): place for name, place in data.channels.items()},
    )


def _wav(recording: str, speed: float) -> str:
    """Name of the file of a recording at a speed."""
    return f"{file_name(perturbed(recording, speed))}.wav"


def _from(top: Path, place: str) -> str:
    """A recording's place as wav.scp has it: what lies below the folder two above the data
    directory is named from there, so that it may be moved as a whole."""
    if audio.is_pipe(place):
        return place
    path, top = Path(place).absolute(), top.resolve()
    return str(path.relative_to(top) if path.is_relative_to(top) else path)


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
        path = folder / _wav(name, speed)
        audio.write_wav(path, np.stack(channels, axis=1), source.rate)

    return write
