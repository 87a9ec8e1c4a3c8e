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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
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
        self._whole: dict[tuple[str, ...], threading.Lock] = {}

    def outcome(self, mutant: Mutant) -> Outcome:
        """Of one fault."""
        try:
            changed = mutant.applied(self.texts[mutant.file.as_posix()])
        except (ValueError, KeyError) as error:
            return Outcome(mutant, "error", 0.0, str(error))
        key = _digest(changed, *mutant.tests, *map(self._text_of, mutant.tests))
        verdict = self._kept(key) or self._tried(mutant, key)
        if verdict.outcome == "passed":
            return Outcome(mutant, "survived", verdict.seconds)
        if verdict.outcome == "broken":
            return Outcome(mutant, "error", verdict.seconds, f"no test ran: {verdict.where}")
        # what failed must pass without the fault
        failed = (verdict.where.partition("[")[0],) if verdict.where else mutant.tests
        sound = self._without_fault(failed)
        if sound.outcome != "passed":
            how = f"{' '.join(failed)} {sound.outcome} without a fault, too"
            return Outcome(mutant, "error", verdict.seconds, how)
        return Outcome(mutant, "noticed", verdict.seconds, verdict.where or verdict.outcome)

    def _without_fault(self, tests: tuple[str, ...]) -> Verdict:
        with self.lock:
            lock = self._whole.setdefault(tests, threading.Lock())
        with lock:  # once, however many faults the tests notice
            package = (self.texts[name] for name in sorted(self.texts) if name.startswith(_PACKAGE))
            key = _digest(*tests, *map(self._text_of, tests), *package)
            kept = self._kept(key)
            if kept:
                return kept
            copy = self.copies.get()
            try:
                return self._keep(key, " ".join(tests), copy.run(tests, _LIMIT_SECONDS))
            finally:
                self.copies.put(copy)

    def _tried(self, mutant: Mutant, key: str) -> Verdict:
        copy = self.copies.get()
        try:
            with copy.fault(mutant):
                return self._keep(key, mutant.name, copy.run(mutant.tests, _LIMIT_SECONDS))
        finally:
            self.copies.put(copy)

    def _text_of(self, test: str) -> str:
        return self.texts[test.partition("::")[0]]

    def _kept(self, key: str) -> Verdict | None:
        entry = self.found.get(key)
        return Verdict(entry["outcome"], entry["seconds"], entry["where"]) if entry else None

    def _keep(self, key: str, what: str, verdict: Verdict) -> Verdict:
        entry = {"key": key, "what": what, **verdict.__dict__}
        with self.lock:
            self.found[key] = entry
            with self.known.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")
        return verdict


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
        outcomes: dict[Mutant, Outcome] = {}
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for done in as_completed([pool.submit(campaign.outcome, mutant) for mutant in chosen]):
                outcome = done.result()
                outcomes[outcome.mutant] = outcome
                what = f"{outcome.mutant.room}: {outcome.mutant.name}"
                print(
                    f"{outcome.result:9}{outcome.seconds:6.0f} s  {what}  [{outcome.how[-90:]}]",
                    flush=True,
                )
    ordered = [outcomes[mutant] for mutant in chosen]
    print(table(ordered))
    return 0 if succeeded(ordered) else 1


if __name__ == "__main__":
    sys.exit(main())
