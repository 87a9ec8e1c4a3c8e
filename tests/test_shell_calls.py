"""What Python gives to a shell is quoted or a list."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpus_data import make_data
from planted import config

from hadpsgd.cli import USER_ERROR, main


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A healthy data directory `data/train`, whose folder commands run in."""
    make_data(tmp_path)
    return tmp_path


def unquoted_calls(text: str) -> list[str]:
    """Calls `shell(...)` that are not one plain text whose every place has `:q`.

    An f-string, a sum or `format` fill the places in before Snakemake can quote them.
    """
    found = []
    for call in re.finditer(r"\bshell\(", text):
        source, end = "", call.end()
        while True:  # to the parenthesis that closes it
            end = text.index(")", end) + 1
            source = text[call.start() : end]
            try:
                parsed = ast.parse(source, mode="eval").body
            except SyntaxError:
                continue
            break
        assert isinstance(parsed, ast.Call)
        texts = [given.value for given in parsed.args[:1] if isinstance(given, ast.Constant)]
        places = re.findall(r"(?<!\{)\{[^{}]*\}", " ".join(map(str, texts)))
        if not texts or not all(place.endswith(":q}") for place in places):
            found.append(source)
    return found


class TestShell:
    """Rules' commands go through a shell: a path is one word of them, whatever it holds."""

    RULES = Path(__file__).parents[1] / "workflow"

    def test_every_path_is_quoted(self) -> None:
        """`{input.data}` would be several words, or a command; `{input.data:q}` is one word."""
        options = (
            "lists|launch|held_out|perturbed|stage|initial|first_pass|spelling|transform|trans|"
            "ivectors|gmm"
        )
        bare = re.compile(
            r"\{(?:input|output|log|wildcards|params(?!\.(?:" + options + r")\}))[^:{}]*\}"
        )
        found = []
        for file in sorted((self.RULES / "rules").glob("*.smk")):
            lines = file.read_text().splitlines()
            starts = [i for i, line in enumerate(lines) if line.strip() == "shell:"]
            for start in starts:
                for number, line in enumerate(lines[start + 1 :], start + 2):
                    if not line.strip().startswith('"'):
                        break
                    found += [f"{file.name}:{number}: {place}" for place in bare.findall(line)]
            for number, line in enumerate(lines, 1):
                if re.search(r'f"--[\w-]+ \{(?!quote)', line):
                    found.append(f"{file.name}:{number}: {line.strip()}")
        assert not found, "\n".join(found)

    @pytest.mark.parametrize(
        ("code", "refused"),
        [
            ('shell("hadpsgd report --config {SNAPSHOT.path:q} --show >&2")', False),
            ('shell("hadpsgd report --config {SNAPSHOT.path} --show >&2")', True),
            ("shell(f'rm {OUT}')", True),
            ('shell(\n    rf"rm {OUT:q}"\n)', True),
            ('shell(\n    "rm -r "\n    "{OUT}"\n)', True),
            ('shell("rm -r " f"{OUT}")', True),
            ('shell("rm -r " + OUT)', True),
            ('shell("rm {}".format(OUT))', True),
            ("shell(command)", True),
        ],
    )
    def test_calls_of_shell_are_looked_at(self, code: str, refused: bool) -> None:
        assert bool(unquoted_calls(f"def show():\n    {code}\n")) == refused

    def test_every_call_of_shell_is_quoted(self) -> None:
        """`shell(...)` in Python code: one plain text, each place in it with `:q`."""
        files = [
            *self.RULES.rglob("*.smk"),
            self.RULES / "Snakefile",
            self.RULES.parent / "Snakefile",
        ]
        calls = {str(file): unquoted_calls(file.read_text()) for file in files}
        assert not any(calls.values()), calls
        assert any(re.search(r"\bshell\(", file.read_text()) for file in files)

    def test_a_results_folder_with_a_command_in_its_name(self, place: Path) -> None:
        """A workflow whose folder's name a shell would run."""
        results = place / "my results $(touch ran); touch ran; 'x"
        file = config(place, results=str(results), alignment={"kind": "mono"})
        program = [sys.executable, "-m", "snakemake", "--snakefile", str(self.RULES / "Snakefile")]
        done = subprocess.run(
            [*program, "--cores", "1", "--configfile", file, "--until", "corpus"],
            cwd=place,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert (results / "t" / "corpus" / "data" / "dev" / "text").is_file()
        assert not list(place.rglob("ran"))

    def test_names_of_test_sets(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data = str(place / "data" / "train")
        file = config(place, corpus={"tests": {"swb; touch ran": data}})
        assert main(["config", file]) == USER_ERROR
        assert "corpus.tests" in capsys.readouterr().err.replace("kaldi.", "")
