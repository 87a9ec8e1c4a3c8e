"""What is recorded of a run, as lines of JSON: the same for the store and for the spool.

Every event may be applied twice without harm, so a sender that was killed just sends again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class Begin(_Event):
    """The run exists: created where no run has its key."""

    kind: Literal["begin"] = "begin"
    name: str
    experiment: str
    time_ms: int
    parent: str = ""
    """Key of the run under which the store's pages nest this one."""
    user: str = ""
    """Whose run it is."""


class Params(_Event):
    """Parameters. A value once written stays; a different one becomes a tag `changed.<name>`."""

    kind: Literal["params"] = "params"
    values: dict[str, str]


class Tags(_Event):
    """Tags; the last value counts."""

    kind: Literal["tags"] = "tags"
    values: dict[str, str]


class Note(_Event):
    """The run's description, in Markdown; one that somebody else wrote stays."""

    kind: Literal["note"] = "note"
    text: str


class Data(_Event):
    """A data set that the run was made from or measured on."""

    name: str
    digest: str
    """36 characters at most."""
    source: str
    """Folder."""
    context: str
    """What for: `training`, `validation` or `testing`."""
    profile: dict[str, float]
    """Its size."""


class Inputs(_Event):
    """Data sets; each is written once under its name and digest."""

    kind: Literal["inputs"] = "inputs"
    data: list[Data]


class Point(_Event):
    """One point of one curve."""

    name: str
    value: float
    step: int
    time_ms: int


class Metrics(_Event):
    """Points of curves. A step that a curve has is not written again, unless `replace`."""

    kind: Literal["metrics"] = "metrics"
    points: list[Point]
    replace: bool = False


class Artifact(_Event):
    """A file, put into a folder of the run's artifacts."""

    kind: Literal["artifact"] = "artifact"
    path: str
    folder: str = ""


class Model(_Event):
    """A trained model (`final.pt`) for the registry, under a name."""

    kind: Literal["model"] = "model"
    path: str
    name: str
    run: str = ""
    """Folder of its training, beside which lies what it recognises speech with."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of the config with which it was decoded and scored."""


class Finish(_Event):
    """The run's state; RUNNING again when it is resumed."""

    kind: Literal["finish"] = "finish"
    status: Status
    time_ms: int


Event = Begin | Params | Tags | Note | Inputs | Metrics | Artifact | Model | Finish

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def to_json(event: Event) -> str:
    """One line, without its end."""
    return event.model_dump_json()


def from_json(line: str) -> Event:
    """Read a line; raises pydantic's ValidationError for anything else."""
    return _ADAPTER.validate_json(line)
