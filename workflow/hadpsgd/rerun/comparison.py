"""What differs between a run and its rerun, item by item."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hadpsgd.reports.table import Table

DECIDING = ("torch", "numpy", "scipy", "kaldi-native-fbank", "espeakng-loader")
"""Packages whose arithmetic the weights come from."""
TWICE = ("arithmetic", "processor")
"""Is in `machine` too, of older records also."""
SHOWN = 12
"""Digits of a checksum that are shown."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing that was recorded then and measured now."""

    kind: str
    name: str
    then: str
    now: str

    @property
    def same(self) -> bool:
        """Whether it did not change."""
        return self.then == self.now


def surroundings(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Item]:
    """Code, lock, packages, machine and seed of two provenances."""
    items = [
        Item(
            kind="code",
            name="commit",
            then=then["code"].get("commit", ""),
            now=now["code"].get("commit", ""),
        ),
        Item(
            kind="code",
            name="source",
            then=then["code"].get("source", ""),
            now=now["code"].get("source", ""),
        ),
        Item(
            kind="code",
            name="requirements.lock",
            then=then.get("lock", ""),
            now=now.get("lock", ""),
        ),
        Item(kind="seed", name="seed", then=str(then["seed"]), now=str(now["seed"])),
    ]
    for kind in ("packages", "machine", "arithmetic"):
        before, after = then.get(kind, {}), now.get(kind, {})
        names = [n for n in dict.fromkeys([*before, *after]) if (kind, n) != TWICE]
        items += [
            Item(kind=kind, name=n, then=_text(before.get(n)), now=_text(after.get(n)))
            for n in names
        ]
    return items


def other_bits(items: Sequence[Item], *, threads: int) -> list[str]:
    """Of all that differs, what the bits of weights depend on: `processor X, now Y`.

    `threads` of the run's learners; 0: they follow from the cores.
    """
    decides = {("machine", name) for name in ("processor", "gpus")}
    decides |= set() if threads else {("machine", "cores")}
    decides |= {("packages", name) for name in DECIDING}
    return [
        f"{item.name} {item.then or 'not recorded'}, now {item.now or 'none'}"
        for item in items
        if not item.same and (item.kind == "arithmetic" or (item.kind, item.name) in decides)
    ]


def data(then: Mapping[str, str], now: Mapping[str, str], parts: Sequence[str]) -> list[Item]:
    """Checksums of the files that the original was made from.

    Only those below `parts` (`tracking.provenance.data_parts`): older records have test sets too.
    """
    return [
        Item(kind="data", name=name, then=value, now=now.get(name, "missing"))
        for name, value in then.items()
        if any(name == part or name.startswith(f"{part}/") for part in parts)
    ]


def not_compared(then: Collection[str], now: Collection[str]) -> str:
    """One line on sets that only the original or only the rerun scored; empty without any."""
    only = {"the original": sorted(set(then) - set(now)), "the rerun": sorted(set(now) - set(then))}
    parts = [
        f"{', '.join(names)} (only {which} scored it)" for which, names in only.items() if names
    ]
    return f"Not compared: {'; '.join(parts)}.\n" if parts else ""


def outcome(
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    scores_then: Mapping[str, Mapping[str, int]],
    scores_now: Mapping[str, Mapping[str, int]],
) -> list[Item]:
    """Weights and word errors."""
    items = [
        Item(
            kind="weights",
            name="final.pt",
            then=_text(then.get("weights")),
            now=_text(now.get("weights")),
        )
    ]
    for name, counts in scores_then.items():
        items.append(
            Item(
                kind="word errors", name=name, then=rate(counts), now=rate(scores_now.get(name, {}))
            )
        )
    return items


def rate(counts: Mapping[str, int]) -> str:
    """`9.70 % (4 sub, 1 ins, 2 del of 72)`."""
    if not counts.get("words"):
        return "missing"
    errors = counts["sub"] + counts["ins"] + counts["del"]
    parts = f"{counts['sub']} sub, {counts['ins']} ins, {counts['del']} del"
    return f"{100 * errors / counts['words']:.2f} % ({parts} of {counts['words']})"


def page(title: str, items: list[Item]) -> str:
    """The report: first what came out, then what differs; what is the same is counted."""
    results = [item for item in items if item.kind in ("weights", "word errors")]
    around = [item for item in items if item not in results]
    differing = [item for item in around if not item.same]
    verdict = "identical" if all(item.same for item in results) else "DIFFERENT"
    lines = [f"# {title}: {verdict}", "", _table(results, same=True), ""]
    if differing:
        lines += ["What differs around it:", "", _table(differing)]
    else:
        lines += ["Nothing differs around it."]
    same = [item for item in around if item.same]
    kinds = {kind: sum(item.kind == kind for item in same) for kind in _kinds(same)}
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return "\n".join([*lines, "", f"The same: {counted or 'nothing'}."]) + "\n"


def _kinds(items: list[Item]) -> list[str]:
    return list(dict.fromkeys(item.kind for item in items))


def _table(items: list[Item], *, same: bool = False) -> str:
    rows = [[item.kind, item.name, _short(item.then), _short(item.now)] for item in items]
    heads = ["what", "name", "then", "now"]
    if same:
        rows = [[*r, "yes" if i.same else "no"] for r, i in zip(rows, items, strict=True)]
        heads.append("same")
    return Table(heads, rows, frozenset(heads)).markdown().rstrip()


def _short(text: str) -> str:
    bare = text.rpartition(":")[2]
    digits = set(bare) <= set("0123456789abcdef")
    return bare[:SHOWN] if digits and len(bare) >= 40 else text or "-"


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
