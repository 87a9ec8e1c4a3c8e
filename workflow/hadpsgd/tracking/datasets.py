"""Data sets of a run, as MLflow shows them: digest and size of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.corpus.tables import read_counts, read_table
from hadpsgd.errors import UserError
from hadpsgd.tracking.checksums import checksums, combined
from hadpsgd.tracking.events import Data, Inputs
from hadpsgd.tracking.uri import spool_folder

TRAINED_ON = {"train": "training", "train_perturbed": "training", "dev": "validation"}
"""Set -> what for. `train_perturbed` takes the place of `train` where there are copies."""
TESTED_ON = "testing"
_DIGITS = 16
_SHIFT_SECONDS = 0.01  # of all features: hadpsgd.features.spectrum, Kaldi's default


def trained_on(config: Config, data: Mapping[str, str]) -> Iterator[Inputs]:
    """Training and development sets.

    Args:
        config: names the results folder, where sizes are counted.
        data: checksums by file, of the run's provenance.
    """
    found = []
    for name, context in TRAINED_ON.items():
        own = {
            file: value
            for file, value in data.items()
            if any(file.startswith(f"{part}/") for part in _parts(config, name))
        }
        if own:
            found.append(_data(config, name, context, own))
    if found:
        yield Inputs(data=found)


def tested_on(config: Config, names: list[str]) -> Iterator[Inputs]:
    """Test sets as they lie in the results folder; one that is not there is left out."""
    found = []
    for name in names:
        if own := _checksums(config, name):
            found.append(_data(config, name, TESTED_ON, own))
    if found:
        yield Inputs(data=found)


def digest(config: Config, name: str) -> str:
    """Of a set as it lies in the results folder."""
    return combined(_checksums(config, name))[:_DIGITS]


def _checksums(config: Config, name: str) -> dict[str, str]:
    base = Path(config.results) / config.name
    return checksums(base, _parts(config, name), spool_folder(config) / "checksums.json")


def _parts(config: Config, name: str) -> list[str]:
    """Folders of a set: its tables, and its features, which tell other audio of the same name."""
    streams = (f"feats/{stream}/{name}" for stream in config.features.input)
    return [f"corpus/data/{name}", *streams]


def _data(config: Config, name: str, context: str, own: Mapping[str, str]) -> Data:
    source = Path(config.results) / config.name / "corpus/data" / name
    return Data(
        name=f"{config.corpus.kind}/{name}",
        digest=combined(dict(own))[:_DIGITS],
        source=str(source),
        context=context,
        profile=_size(config, name),
    )


def _size(config: Config, name: str) -> dict[str, float]:
    """Utterances (MLflow's pages know `num_rows`), frames and hours, as far as files tell."""
    base = Path(config.results) / config.name
    counts = (base / "feats" / stream / name / "utt2num_frames" for stream in config.features.input)
    try:
        frames = next((read_counts(file) for file in counts if file.is_file()), None)
        if frames is None:
            utterances = len(read_table(base / "corpus/data" / name / "utt2spk"))
            return {"num_rows": utterances}
    except (OSError, UserError):
        return {}
    total = sum(frames.values())
    hours = round(total * _SHIFT_SECONDS / 3600, 4)
    return {"num_rows": len(frames), "frames": total, "hours": hours}
