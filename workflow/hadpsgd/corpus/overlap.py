"""What sets have in common with the training speech: error rates of these are of known speech."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from hadpsgd.progress import counted

_NAMED = 3


def of_speakers(sets: Mapping[str, Collection[str]]) -> Iterator[str]:
    """A line for each set some of whose speakers are train's; `sets`: speakers by set."""
    yield from _common(sets, "speaker", "its error rates are those of known speakers")


def of_utterances(sets: Mapping[str, Collection[str]]) -> Iterator[str]:
    """A line for each set some of whose utterances are train's; `sets`: their names by set."""
    yield from _common(sets, "utterance", "its error rates are those of learned sentences")


def _common(sets: Mapping[str, Collection[str]], what: str, so: str) -> Iterator[str]:
    train = set(sets["train"])
    for name, own in ((name, set(each)) for name, each in sets.items() if name != "train"):
        both = sorted(own & train)
        if both:
            named = ", ".join([*both[:_NAMED], *(["..."] if len(both) > _NAMED else [])])
            yield f"{name}: {len(both)} of {counted(len(own), what)} in train, too ({named}): {so}"
