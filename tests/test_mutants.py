"""The faults of `make mutants` fit the code; what the campaign makes of what tests say."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mutants.__main__ import Campaign, Outcome, succeeded, table
from mutants.table import ROOT, Mutant, load
from mutants.workshop import Verdict, Workshop

MUTANTS = load()
FAULT = Mutant("room", "a fault", Path("workflow/a.py"), "x < 1", "x <= 1", ("tests/test_a.py",))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.room}: {mutant.name}")
def test_the_fault_applies_once(mutant: Mutant) -> None:
    """Else the code has changed: write the fault anew, or take it out (docs/mutants.md)."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    changed = mutant.applied(text)
    assert changed != text
    compile(changed, str(mutant.file), "exec")
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).is_file()


def test_every_room_has_faults() -> None:
    rooms = Counter(mutant.room for mutant in MUTANTS)
    package = ROOT / "workflow/hadpsgd"
    there = {folder.name for folder in package.iterdir() if (folder / "__init__.py").is_file()}
    assert there - {"rerun"} == rooms.keys()
    assert min(rooms.values()) >= 4 and rooms.total() >= 100
    survivors = [mutant for mutant in MUTANTS if mutant.survives]
    assert len(survivors) <= len(MUTANTS) // 10


def test_a_fault_that_does_not_fit_is_named(tmp_path: Path) -> None:
    for text in ("y < 1", "x < 1 or x < 1"):
        with pytest.raises(ValueError, match=r"room: 'a fault': its text is [02] times in"):
            FAULT.applied(text)
    assert FAULT.applied("if x < 1:") == "if x <= 1:"
    entry = "- {name: a, file: b.py, old: c, new: d, tests: test_a.py"
    for content in (f"{entry}, test: e}}\n", "- {name: a, file: b.py}\n", f"{entry}}}\n" * 2):
        (tmp_path / "room.yaml").write_text(content)
        with pytest.raises(ValueError, match=r"'a'"):
            load(tmp_path)


NODE = "tests/test_a.py::test_b"


class Bench:
    """In place of a copy of the checkout: says what tests would."""

    def __init__(self, sound: str, faulty: str) -> None:
        self.sound, self.faulty = sound, faulty
        self.ran: list[tuple[bool, tuple[str, ...]]] = []
        self.spoiled = False

    @contextmanager
    def fault(self, mutant: Mutant) -> Iterator[None]:
        del mutant
        self.spoiled = True
        yield
        self.spoiled = False

    def run(self, tests: Sequence[str], limit: float, *, to_the_end: bool = False) -> Verdict:
        assert limit > 0 and to_the_end != self.spoiled
        self.ran.append((self.spoiled, tuple(tests)))
        outcome = self.faulty if self.spoiled else self.sound
        return Verdict(outcome, 1.0, (f"{NODE}[c",) if outcome == "failed" else ())


def found_by(bench: Bench, known: Path, mutant: Mutant = FAULT) -> Outcome:
    """What a campaign of one fault makes of it."""
    copies: queue.Queue[Any] = queue.Queue()
    copies.put(bench)
    campaign = Campaign(known, copies, {"workflow/a.py": "x < 1", "tests/test_a.py": "test_b"})
    with ThreadPoolExecutor(1) as pool:
        [outcome] = campaign.confirmed([campaign.tried(mutant)], pool)
    return outcome


@pytest.mark.parametrize(
    ("sound", "faulty", "result", "how"),
    [
        ("passed", "failed", "noticed", NODE),
        ("passed", "hung", "noticed", "hung"),
        ("passed", "passed", "survived", ""),
        ("failed", "failed", "error", f"{NODE}: fails without a fault, too"),
        ("hung", "failed", "error", f"{NODE}: fails without a fault, too"),
        ("hung", "hung", "error", "tests/test_a.py: fails without a fault, too"),
        ("failed", "hung", "error", "tests/test_a.py: fails without a fault, too"),
        ("passed", "broken", "error", "no test ran"),
    ],
)
def test_what_is_noticed(sound: str, faulty: str, result: str, how: str, tmp_path: Path) -> None:
    bench = Bench(sound, faulty)
    found = found_by(bench, tmp_path / "known")
    assert found.result == result and how in found.how
    # what failed is tried again without the fault, all its parameters
    again = (NODE,) if faulty == "failed" else FAULT.tests
    asked = [(True, FAULT.tests), (False, again)]
    assert bench.ran == asked[: 2 if faulty in ("failed", "hung") else 1]
    # a second campaign knows, but nothing of another fault there
    before = len(bench.ran)
    assert found_by(bench, tmp_path / "known") == found and len(bench.ran) == before
    found_by(bench, tmp_path / "known", replace(FAULT, new="x > 1"))
    assert len(bench.ran) == before + 1


def test_the_campaign_fails_for_survivors_without_a_reason(tmp_path: Path) -> None:
    noticed = found_by(Bench("passed", "failed"), tmp_path / "a")
    survived = found_by(Bench("passed", "passed"), tmp_path / "b")
    broken = found_by(Bench("passed", "broken"), tmp_path / "c")
    excused = replace(survived, mutant=replace(FAULT, survives="it changes nothing"))
    assert succeeded([noticed] * 9 + [excused])
    assert not succeeded([noticed] * 8 + [excused])  # less than nine of ten
    assert not succeeded([noticed] * 9 + [survived])
    assert not succeeded([noticed] * 99 + [broken])
    said = table([noticed, survived, excused, broken])
    assert "NO REASON GIVEN" in said and "it changes nothing" in said and "error: room" in said


def test_a_fault_is_tried_in_a_copy(tmp_path: Path) -> None:
    """The package of the copy is the one that is tested; the working tree stays as it is."""
    copy = Workshop(tmp_path / "copy")
    tests = ("tests/test_sgd.py::test_weights_decay_where_the_gradient_was_taken",)
    file = Path("workflow/hadpsgd/decentralized/core/sgd.py")
    fault = Mutant("decentralized", "decay", file, "add_(phi,", "add_(weights,", tests)
    before = copy.texts()
    with copy.fault(fault):
        spoiled = copy.run(tests, 300.0)
        assert copy.texts() != before
    assert spoiled.outcome == "failed" and spoiled.failed == tests
    assert copy.run(tests, 300.0).outcome == "passed"
    assert copy.texts() == before
    assert copy.run(tests, 0.01).outcome == "hung"
    assert fault.old in (ROOT / fault.file).read_text(encoding="utf-8")
