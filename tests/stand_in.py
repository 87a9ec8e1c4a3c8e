"""The workflow with a stand-in for `hadpsgd`: every job runs, and only writes its outputs.

So Snakemake has records of a whole workflow within seconds, and tells what a change makes again.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from forked_snakemake import snakemake

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
_COMMAND = """
import sys
from pathlib import Path

command, *rest = sys.argv[1:]
if "--show" in rest:
    print("shown", *rest[rest.index("--show") + 1 :], file=sys.stderr)
    sys.exit()
if Path("broken").is_file() and Path("broken").read_text() == command:
    sys.exit("broken")
options = dict(zip(rest, rest[1:]))
out = Path(options.get("--out") or options["--index"])
name = options.get("--set", "")
if name == "faulty":
    sys.exit(2)
parts = {
    "dictionary": ["dict/"],
    "data": [f"data/{name}/", f"audio/{name}/"],
    "text": ["lm/train.txt"],
    "dev-text": ["lm/dev.txt"],
    "words": [f"words/{name}.json"],
}
quality = ["log_determinants", "ivectors", "durations", "silence", "fits"]
files = {
    "corpus": parts.get(options.get("--only")),
    "lm": ["full.arpa.gz", "first_pass.arpa.gz", "report.json"],
    "launch": ["final.pt", "summary.json"],
    "pronunciations": ["dict/", "lang/", "report.json"],
    "alignment-report": ["report.json", *(f"{name}.png" for name in quality)],
    "adaptation-report": ["adaptation.json", *(f"{name}.png" for name in quality)],
}
pages = ["report.html", "curves.png", "seconds.png", "learning_rate.png", "stages.md"]
pages.append("significance.json")
places = [out / file for file in files.get(command, [""])]
if command == "report" and "--out" in options:
    places = [out, *(out.parent / page for page in pages)]
if "--pictures" in options:
    places.append(Path(options["--pictures"]))
for place, text in zip(places, files.get(command, [str(place) for place in places])):
    folder = text.endswith("/") or (command not in files and not place.suffix)
    if folder:
        place.mkdir(parents=True, exist_ok=True)
        place = place / "made"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(command)
"""


@dataclass(frozen=True)
class StandIn:
    """A workflow in a folder of its own."""

    folder: Path
    config: dict[str, Any]

    def snakemake(self, *arguments: str, fails: bool = False, **changes: Any) -> str:
        """Run it with sections of the config changed; what it said. A set `faulty` fails."""
        (self.folder / "bin").mkdir(exist_ok=True)
        command = self.folder / "bin/hadpsgd"
        command.write_text(f"#!{sys.executable} -IS\n{_COMMAND}")
        command.chmod(0o755)
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(self.config | changes))
        path = os.pathsep.join([str(command.parent), str(BIN), os.environ["PATH"]])
        code, said = snakemake(
            [
                *("--snakefile", str(ROOT / "Snakefile")),
                *("--cores", "2", "--configfile", str(file), *arguments),
            ],
            cwd=self.folder,
            env={"PATH": path},
        )
        assert bool(code) == fails, said[-6000:]
        return said

    def made(self, *targets: str, **changes: Any) -> StandIn:
        """Run to the end."""
        self.snakemake("--", *targets, **changes)
        return self

    def planned(self, *targets: str, **changes: Any) -> set[str]:
        """What would be made again: rules, with the set or run of those that have one."""
        said = self.snakemake("-n", "--", *targets, **changes)
        jobs = re.split(r"^(?= *(?:local)?rule \w+:)", said, flags=re.MULTILINE)[1:]
        found = set()
        for job in jobs:
            rule = re.match(r" *(?:local)?rule (\w+):", job)
            wildcards = re.search(r"^ +wildcards: (.+)$", job, re.MULTILINE)
            values = re.findall(r"(?:set|run)=([\w-]+)", wildcards[1]) if wildcards else []
            assert rule is not None
            found.add(".".join([rule[1], *(re.sub("-[0-9a-f]{8}$", "", v) for v in values)]))
        return found - {"all", "paper", "checked"}  # these make nothing
