"""`bundle.json`: what a bundle is, where it comes from, and the checksum of each of its files."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hadpsgd.errors import UserError
from hadpsgd.files import sha256, write_text

FILE = "bundle.json"
FORMAT = 1
"""Version of the layout; another one is refused."""
SEVERAL = 2
"""Of bundles of several networks: versions that know format 1 alone would take the first."""
_AGAIN = "Export or copy the bundle again"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Stored(_Part):
    """A file of the bundle."""

    bytes: int = Field(ge=0)
    sha256: str


class Score(_Part):
    """Word errors of a set in the workflow."""

    words: int = Field(ge=0)
    errors: int = Field(ge=0)
    wer: float | None = Field(ge=0, allow_inf_nan=False)
    """Percent; None of a set without words."""


class Manifest(_Part):
    """All that is not in the bundle's other files."""

    format: int = FORMAT
    name: str
    """The config's name."""
    run: str
    """Key of the training run, or of the ensemble."""
    streams: list[str]
    """Feature streams of the network's input, in order."""
    sample_rate: int = Field(ge=8000, le=384_000)
    """Hz at which it recognises; other audio is resampled."""
    lm_weight: float = Field(gt=0, le=1000)
    """Weight of the language model (inverse acoustic scale) that dev chose."""
    word_penalty: float = Field(ge=-1000, le=1000)
    """Penalty a word that dev chose."""
    minimum_bayes_risk: bool = False
    """Whether words are those of least expected errors."""
    neural_weight: float = Field(0.0, ge=0, le=1)
    """Share of the neural language model in words' probabilities."""
    scores: dict[str, Score]
    """By set, those of the workflow."""
    licence: str
    """Of the data it was trained on, as the one who exported it said; may be empty."""
    trained_with: dict[str, str]
    """Version, commit, and packages of the training."""
    exported_with: dict[str, str]
    """Version and packages of the export."""
    files: dict[str, Stored] = {}
    """By path below the bundle, with /; all of them but this one."""

    def write(self, folder: Path) -> Manifest:
        """Write it, with the checksums of all files that the folder has; what was written."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        stored = {
            path.relative_to(folder).as_posix(): Stored(
                bytes=path.stat().st_size, sha256=sha256(path)
            )
            for path in paths
        }
        written = self.model_copy(update={"files": stored})
        content = json.dumps(written.model_dump(mode="json"), indent=2, ensure_ascii=False)
        write_text(folder / FILE, content + "\n")
        return written

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read it; files are not looked at.

        Raises:
            UserError: there is none, it is of another format, or it is damaged.
        """
        path = Path(folder) / FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            fix = "`hadpsgd export` makes one"
            raise UserError(f"not a bundle: no {FILE}", where=folder, fix=fix) from None
        except ValueError as error:
            raise UserError(f"damaged ({error})", where=path, fix=_AGAIN) from None
        found = content.get("format") if isinstance(content, dict) else None
        if found not in (FORMAT, SEVERAL):
            what = f"a bundle of format {found!r}, and this version reads {FORMAT} and {SEVERAL}"
            raise UserError(what, where=path, fix="Use the version of hadpsgd that exported it")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            what = f"damaged ('{'.'.join(map(str, first['loc']))}': {first['msg']})"
            raise UserError(what, where=path, fix=_AGAIN) from None

    def check(self, folder: Path) -> None:
        """Compare all files with their checksums.

        Raises:
            UserError: one is missing, of another size or content; names it.
        """
        for name, stored in self.files.items():
            relative = PurePosixPath(name)
            if relative.is_absolute() or ".." in relative.parts:
                raise UserError(f"names a file outside of it: {name}", where=folder / FILE)
            path = folder / relative
            if not path.is_file():
                raise UserError("missing from the bundle", where=path, fix=_AGAIN)
            if path.stat().st_size != stored.bytes or sha256(path) != stored.sha256:
                raise UserError("damaged: not what was exported", where=path, fix=_AGAIN)
