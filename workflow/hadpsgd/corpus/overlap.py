"""What sets have in common with the training speech: error rates of these are of known speech."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set

from hadpsgd.progress import counted

_NAMED = 3


def of_speakers(sets: Mapping[str, Collection[str]]) -> Iterator[str]:
    """A line for each set some of whose speakers are train's; `sets`: speakers by set."""
    train = set(sets["train"])
    for name, own in _others(sets):
        if told := _common(name, train, own, "speaker"):
            yield f"{told}: its error rates are those of known speakers"


def of_tables(tables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The same by sets' utt2spk, and where a set has utterances of train, these.

    Args:
        tables: by set, the speaker of each utterance.
    """
    train = tables["train"].keys()
    apart = {"train": tables["train"].values()}
    for name, own in _others(tables):
        if told := _common(name, train, own, "utterance"):
            yield f"{told}: its error rates are those of learned sentences"
        else:
            apart[name] = tables[name].values()
    yield from of_speakers(apart)


def _others(sets: Mapping[str, Collection[str]]) -> Iterator[tuple[str, set[str]]]:
    yield from ((name, set(each)) for name, each in sets.items() if name != "train")


def _common(name: str, train: Set[str], own: set[str], what: str) -> str:
    """What a set has in common with train, counted and named; empty where there is nothing."""
    both = sorted(own & train)
    named = ", ".join([*both[:_NAMED], *(["..."] if len(both) > _NAMED else [])])
    return f"{name}: {len(both)} of {counted(len(own), what)} in train, too ({named})" * bool(both)
