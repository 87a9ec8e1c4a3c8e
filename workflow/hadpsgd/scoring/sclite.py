"""NIST's own sclite, where it is installed (Debian: sctk): a check on our counts."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.corpus.stm import Segment
from hadpsgd.files import read_whole
from hadpsgd.scoring import formats, nist
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.formats import TimedWord

_ROW = re.compile(r"\s*\|\s*(\S+)\s*\|\s*(\d+)\s+(\d+)\s*\|" + r"\s*(\d+)" * 6 + r"\s*\|")
_SUMMARIES = ("Mean", "S.D.", "Median")


@dataclass(frozen=True)
class Verdict:
    """What sclite said: counts by speaker, or why it could not be asked."""

    speakers: dict[str, Counts]
    failure: str = ""


def command(tool: str) -> list[str] | None:
    """How to call a tool of SCTK (sclite, hubscr.pl); None where it is not installed."""
    if shutil.which(tool):
        return [tool]
    if shutil.which("sctk"):
        return ["sctk", tool.removesuffix(".pl")]
    return None


def run(
    segments: Sequence[Segment], words: Sequence[TimedWord], options: nist.Options
) -> Verdict | None:
    """Score with sclite; None where it is not installed."""
    call = command("sclite")
    if call is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        formats.write_lines(folder / "stm", segments)
        formats.write_lines(folder / "ctm", words)
        flags = ["-F"] * options.fragments + ["-D"] * options.optional_deletion
        arguments = ["-r", "stm", "stm", "-h", "ctm", "ctm", "-o", "rsum", "stdout", *flags]
        result = subprocess.run(
            [*call, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        table = parse_raw(result.stdout)
        if result.returncode or not table:
            return Verdict({}, _reason(result))
        return Verdict(table)


def hubscr(*, glm: Path, stm: Path, ctm: Path) -> Verdict | None:
    """Score unfiltered files with NIST's hubscr (English, Hub5); None where it is not installed."""
    call = command("hubscr.pl")
    if call is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, copy in ((glm, "glm"), (stm, "ref.stm"), (ctm, "hyp.ctm")):
            (folder / copy).write_bytes(read_whole(path))
        arguments = ["-l", "english", "-h", "hub5", "-g", "glm", "-r", "ref.stm", "hyp.ctm"]
        result = subprocess.run(
            [*call, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        report = folder / "hyp.ctm.filt.raw"
        table = parse_raw(report.read_text(errors="replace")) if report.exists() else {}
        if result.returncode or not table:
            return Verdict({}, _reason(result))
        return Verdict(table)


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    """The line that says why a tool failed: the first one of an error, otherwise the last."""
    lines = [line.strip() for line in (result.stderr + result.stdout).splitlines() if line.strip()]
    named = [line for line in lines if "error" in line.lower()]
    return [*named, *lines[-1:], f"exit status {result.returncode}"][0]


def parse_raw(text: str) -> dict[str, Counts]:
    """Counts by speaker of a `.raw` report (sclite's `-o rsum`), the sum left out."""
    table = {}
    for line in text.splitlines():
        row = _ROW.match(line)
        if row and row[1] not in _SUMMARIES and not row[1].startswith("Sum"):
            sentences, _words, correct, sub, dele, ins, _errors, wrong = map(int, row.groups()[1:])
            table[row[1]] = Counts(
                correct=correct,
                sub=sub,
                dele=dele,
                ins=ins,
                sentences=sentences,
                wrong_sentences=wrong,
            )
    return table


def differences(ours: dict[str, Counts], theirs: dict[str, Counts]) -> list[str]:
    """Speakers whose counts differ, case aside."""
    other = {name.lower(): counts for name, counts in theirs.items()}
    return sorted(name for name in ours.keys() | other.keys() if ours.get(name) != other.get(name))
