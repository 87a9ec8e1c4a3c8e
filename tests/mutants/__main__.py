"""`make mutants`: put every fault into a copy of the checkout and see whether tests notice it."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mutants.table import PACKAGE, ROOT, Mutant, load
from mutants.workshop import Verdict, Workshop

WANTED_SHARE = 0.9
_PACKAGE = PACKAGE.as_posix()
_LIMIT_SECONDS = 400.0


@dataclass(frozen=True)
class Outcome:
    """What came of one fault: `noticed`, `survived`, or `error` (and why)."""

    mutant: Mutant
    result: str
    seconds: float
    how: str = ""


class Campaign:
    """Faults, copies of the checkout and what was found so far (a file: it goes on after a kill).

    Args:
        known: file of outcomes; one counts as long as the faulty file and its tests stay.
        copies: free copies of the checkout.
        texts: of the package's files and of the tests, by their names, as they are in the copies.
    """

    def __init__(
        self, known: Path, copies: queue.Queue[Workshop], texts: Mapping[str, str]
    ) -> None:
        self.known, self.copies, self.texts = known, copies, texts
        self.lock = threading.Lock()
        known.parent.mkdir(parents=True, exist_ok=True)
        lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
        self.found = {entry["key"]: entry for entry in map(json.loads, lines)}

    def tried(self, mutant: Mutant) -> Outcome:
        """What tests say of a fault: `failed` (and where) or `hung`, to be confirmed, `survived`
        or `error`."""
        try:
            changed = mutant.applied(self.texts[mutant.file.as_posix()])
        except (ValueError, KeyError) as error:
            return Outcome(mutant, "error", 0.0, str(error))
        key = _digest(changed, *mutant.tests, *map(self._text_of, mutant.tests))
        verdict = self._kept(key)
        if verdict is None:
            with self._copy() as copy, copy.fault(mutant):
                verdict = self._keep(key, mutant.name, copy.run(mutant.tests, _LIMIT_SECONDS))
        if verdict.outcome == "passed":
            return Outcome(mutant, "survived", verdict.seconds)
        if verdict.outcome == "broken":
            return Outcome(mutant, "error", verdict.seconds, f"no test ran: {verdict.said}")
        return Outcome(mutant, verdict.outcome, verdict.seconds, "".join(verdict.failed[:1]))

    def confirmed(self, outcomes: Sequence[Outcome], pool: ThreadPoolExecutor) -> list[Outcome]:
        """The same with `noticed`, where what failed passes without the fault, or `error`."""
        asked = {_file(test): set[str]() for o in outcomes for test in _suspects(o)}
        for outcome in outcomes:
            for test in _suspects(outcome):
                asked[_file(test)].add(test)
        runs = pool.map(self._without_fault, map(tuple, map(sorted, asked.values())))
        bad = {test for failed in runs for test in failed}
        return [self._judged(outcome, bad) for outcome in outcomes]

    def _judged(self, outcome: Outcome, bad: set[str]) -> Outcome:
        suspects = _suspects(outcome)
        if not suspects:
            return outcome
        if bad.intersection(suspects):
            how = f"{' '.join(suspects)}: fails without a fault, too"
            return replace(outcome, result="error", how=how)
        return replace(outcome, result="noticed", how=outcome.how or outcome.result)

    def _without_fault(self, tests: tuple[str, ...]) -> set[str]:
        """Which of these (functions of one file, or the file) fail without a fault, or hang."""
        package = (self.texts[name] for name in sorted(self.texts) if name.startswith(_PACKAGE))
        key = _digest(*tests, self._text_of(tests[0]), *package)
        verdict = self._kept(key)
        if verdict is None:
            with self._copy() as copy:
                found = copy.run(tests, 3 * _LIMIT_SECONDS, to_the_end=True)
            verdict = self._keep(key, " ".join(tests), found)
        if verdict.outcome in ("hung", "broken"):
            return set(tests)
        names = {part(test) for test in verdict.failed for part in (_function, _file)}
        return names & set(tests)

    @contextmanager
    def _copy(self) -> Iterator[Workshop]:
        copy = self.copies.get()
        try:
            yield copy
        finally:
            self.copies.put(copy)

    def _text_of(self, test: str) -> str:
        return self.texts[_file(test)]

    def _kept(self, key: str) -> Verdict | None:
        entry = self.found.get(key)
        if entry is None:
            return None
        failed = tuple(entry["failed"])
        return Verdict(entry["outcome"], entry["seconds"], failed, entry["said"])

    def _keep(self, key: str, what: str, verdict: Verdict) -> Verdict:
        entry = {"key": key, "what": what, **verdict.__dict__}
        with self.lock:
            self.found[key] = entry
            with self.known.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")
        return verdict


def _suspects(outcome: Outcome) -> tuple[str, ...]:
    """The tests that must pass without the fault, for what failed to count."""
    if outcome.result == "failed":
        return (_function(outcome.how),)
    return outcome.mutant.tests if outcome.result == "hung" else ()


def _function(test: str) -> str:
    return test.partition("[")[0]


def _file(test: str) -> str:
    return test.partition("::")[0]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts by room, then the survivors and what went wrong."""
    lines = [f"{'room':15}{'faults':>8}{'noticed':>9}{'survived':>10}{'errors':>8}"]
    for room in [*sorted({o.mutant.room for o in outcomes}), "all"]:
        mine = Counter(o.result for o in outcomes if room in ("all", o.mutant.room))
        counts = (mine["noticed"], mine["survived"], mine["error"])
        lines.append("{:15}{:8}{:9}{:10}{:8}".format(room, mine.total(), *counts))
    for outcome in outcomes:
        mutant, reason = outcome.mutant, outcome.mutant.survives
        if outcome.result == "survived":
            lines.append(f"survived: {mutant.room}: {mutant.name} ({reason or 'NO REASON GIVEN'})")
        elif outcome.result == "error":
            lines.append(f"error: {mutant.room}: {mutant.name}: {outcome.how}")
        elif reason:
            lines.append(f"noticed after all: {mutant.room}: {mutant.name}: remove its `survives`")
    return "\n".join(lines)


def succeeded(outcomes: Sequence[Outcome]) -> bool:
    """Nothing went wrong, every survivor has its reason, and they are few."""
    noticed = sum(outcome.result == "noticed" for outcome in outcomes)
    expected = all(o.result == "noticed" or o.mutant.survives for o in outcomes)
    errors = any(outcome.result == "error" for outcome in outcomes)
    return expected and not errors and noticed >= WANTED_SHARE * len(outcomes)


def main() -> int:
    """Parse, try, report."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="faults tried at the same time")
    parser.add_argument("--only", default="", help="rooms or parts of names, by commas")
    parser.add_argument("--known", type=Path, default=ROOT / "results/mutants.jsonl")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    arguments = parser.parse_args()
    if arguments.again:
        arguments.known.unlink(missing_ok=True)
    only = [part for part in arguments.only.split(",") if part]
    chosen = [m for m in load() if not only or any(p == m.room or p in m.name for p in only)]
    if not chosen:
        print(f"no fault is called '{arguments.only}'", file=sys.stderr)
        return 2
    os.nice(5)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.Queue[Workshop] = queue.Queue()
        for job in range(arguments.jobs):
            copies.put(Workshop(Path(folder) / str(job)))
        campaign = Campaign(arguments.known, copies, copies.queue[0].texts())
        with ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes: dict[Mutant, Outcome] = {}
            for done in as_completed([pool.submit(campaign.tried, mutant) for mutant in chosen]):
                outcome = done.result()
                outcomes[outcome.mutant] = outcome
                what = f"{outcome.mutant.room}: {outcome.mutant.name}"
                how = outcome.how[-90:]
                print(f"{outcome.result:9}{outcome.seconds:6.0f} s  {what}  {how}", flush=True)
            ordered = campaign.confirmed([outcomes[mutant] for mutant in chosen], pool)
    print(table(ordered))
    return 0 if succeeded(ordered) else 1


if __name__ == "__main__":
    sys.exit(main())
