"""With which settings a run was decoded and scored: later ones, perhaps, than it was trained with.

Each folder of scores has the config that `hadpsgd score` was given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hadpsgd import config as configs
from hadpsgd.config import Config
from hadpsgd.config.command import resolved
from hadpsgd.config.decoding import OF_ENSEMBLES
from hadpsgd.errors import UserError
from hadpsgd.files import write_text

FILE: Final = "config.yaml"
SECTIONS: Final = ("corpus", "lm", "graph", "decoding", "scoring")
"""What may change after a training without making it another run: of the corpus test sets and
text, else its key would be another."""


def note(config: Config, folder: Path) -> None:
    """Leave the config in a folder of scores."""
    write_text(folder / FILE, resolved(config))


def file_of(scored: Path) -> Path | None:
    """The config of a run's scores (`RESULTS/NAME/score/KEY`): that of dev, on which scale and
    penalty are chosen, else of any set; None where there is none, as in older results."""
    dev = scored / "dev" / FILE
    found = [dev] if dev.is_file() else sorted(scored.glob(f"*/{FILE}"))
    return next(iter(found), None)


def settings(config: Config, file: Path | None) -> Config:
    """A config with the sections that scores were made with; as it is where no file tells.

    Raises:
        UserError: the file is of another version of the code, or damaged.
    """
    if file is None:
        return config
    try:
        scored = configs.load(file)
    except UserError as error:
        raise UserError(str(error), fix="Score the run again") from None
    beside = {key: getattr(config.decoding, key) for key in OF_ENSEMBLES}  # of its own runs
    update = {name: getattr(scored, name) for name in SECTIONS}
    update["decoding"] = scored.decoding.model_copy(update=beside)
    return config.model_copy(update=update)
