"""The site of a workflow: the file that its profile names, also where ours is a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hadpsgd
from hadpsgd.errors import UserError


def with_site(workflow: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The config with the site that the profile, or `--config site=FILE`, names.

    A module has a config of its own, in which the command line's is not seen. A path is looked for
    where the workflow runs, then in the checkout, whose profiles name theirs so.
    """
    named = workflow.config_settings.overwrite_config.get("site")
    site = config.get("site", named)
    if isinstance(site, str) and not Path(site).exists():
        checkout = Path(hadpsgd.__file__).resolve().parents[2] / site
        site = str(checkout) if checkout.is_file() else site
    return config if site is None else {**config, "site": site}


def check_site(workflow: Any, config: dict[str, Any]) -> None:
    """On Slurm the site must be known: without it all learners would share one host, without GPUs.

    Raises:
        UserError: nobody names it.
    """
    if workflow.executor_plugin.name == "slurm" and "site" not in with_site(workflow, config):
        raise UserError(
            "no site is named: `--config` on the command line takes the place of the profile's",
            fix="Add site=profiles/slurm/site.yaml to it, or the file of your cluster",
        )
