"""The machines: how a run's learners are laid over hosts, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field

from hadpsgd.config.base import Section, expand
from hadpsgd.config.yaml_text import parsed


class Site(Section):
    """What is so on these machines, whatever runs there: how many learners a host takes, what a
    scheduler is asked for. Written into a file of its own that a profile names; moving to another
    cluster changes no experiment.

    None of it is in the names of runs, so a run may go on elsewhere.
    """

    learners_per_node: int = Field(0, ge=0)
    """Learners on a host: its number of GPUs, as a rule. 0 puts all learners of a run on one."""
    cpus: int = Field(1, ge=1)
    """CPU cores of a learner."""
    memory_mb: int = Field(2000, ge=1)
    """Memory of a learner in MB, at the first attempt; the next ones ask for more."""
    hours: float = Field(24.0, gt=0)
    """Time limit of a training job, in hours; one that needs longer is requeued and goes on."""
    gpus: Literal["auto", "each", "none"] = "auto"
    """auto asks for one GPU for each learner where training.device is cuda, each also where it is
    auto, none never."""
    gpu_type: str = Field("", pattern=r"^[A-Za-z0-9_.]*$")
    """Type of the GPUs, as the cluster calls it (`a100`); any where it is empty."""
    between_gpus: Literal["nccl", "host"] = "nccl"
    """How gradients and averages of all weights go between GPUs: NCCL, which wants one for each
    learner, or by the hosts' memory and gloo, which learners of one GPU can use. What a
    super-learner mixes goes by the hosts' memory in any case."""
    rendezvous_seconds: float = Field(300.0, gt=0, le=1e6)
    """Seconds that ranks wait for each other, at the start and in a silent exchange."""


def read_site(given: Any) -> Any:
    """The section where a path is given in its place.

    Raises:
        ValueError: the file cannot be read or is no mapping.
    """
    if not isinstance(given, str):
        return given
    path = Path(expand(given))
    try:
        content = parsed(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{error.strerror or error}: a file with the site's facts") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from None
    if content is None:  # all commented out
        return {}
    if not isinstance(content, dict):
        raise ValueError("a site is a mapping of keys to values")
    return content


SiteOrFile = Annotated[Site, BeforeValidator(read_site, json_schema_input_type=Site | str)]
"""The section, or the path of a YAML file that holds it."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A run laid over hosts."""

    nodes: int
    """Hosts."""
    per_node: int
    """Learners on each."""
    cpus: int
    """CPU cores of a learner."""
    gpus: int
    """GPUs on each host."""
    gpu_type: str = ""

    @property
    def gres(self) -> str:
        """The GPUs of a host as Slurm's generic resources, or an empty string."""
        return ":".join(filter(None, ("gpu", self.gpu_type, str(self.gpus)))) if self.gpus else ""


def shape(site: Site, learners: int, device: str) -> Shape:
    """Lay learners over hosts, equally many on each.

    Raises:
        ValueError: they cannot be laid out so.
    """
    per_node = min(site.learners_per_node or learners, learners)
    if learners % per_node:
        raise ValueError(
            f"{learners} learners cannot be laid out {per_node} to a host: "
            "site.learners_per_node must divide them"
        )
    wanted = {"auto": ("cuda",), "each": ("cuda", "auto"), "none": ()}[site.gpus]
    gpus = per_node if device in wanted else 0
    return Shape(
        nodes=learners // per_node,
        per_node=per_node,
        cpus=site.cpus,
        gpus=gpus,
        gpu_type=site.gpu_type,
    )
