"""Keys that configs had once, and what took their place."""

from __future__ import annotations

_THREADS = (
    "a rule's threads are its processes; `--set-threads {rules}`, or set-threads in a profile, "
    "changes them"
)

_SITE = (
    "facts of the machines are in the section `site`, or in the file that the profile names "
    "(profiles/slurm/site.yaml)"
)

REMOVED: dict[str, str] = {
    "alignment.jobs": _THREADS.format(rules="mono=4 align=4"),
    "decoding.jobs": _THREADS.format(rules="decode=4"),
    "features.jobs": _THREADS.format(rules="features=4"),
    "realign.jobs": _THREADS.format(rules="realign=4"),
    "training.cluster": f"{_SITE}; its lost_learner is training.lost_learner",
    "training.rendezvous_seconds": _SITE,
}
"""By name: the sentence that follows the key's in the message."""
