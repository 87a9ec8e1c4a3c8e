"""A Switchboard user: Kaldi's egs/swbd/s5c, in miniature, from data directories to SWB and CH."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from miniature_s5c import ACRONYM, Tree
from small_workflow import BIN, ROOT, Small

from hadpsgd.cli import main
from hadpsgd.corpus import stm
from hadpsgd.corpus.datadir import DataDir

pytestmark = pytest.mark.slow
CONFIG = "config/swbd.yaml"
SMALLER = [
    "model={layers: 1, cells: 32, projection: 32}",
    "training={epochs: 8, batch: 8, threads: 1,"
    " learning_rate: {base: 0.2, base_batch: 16, anneal_after: 4}, runs: [{strategy: single}]}",
    "decoding={beam: 10}",
    "scoring={lm_weights: [8, 10, 12], word_penalties: [0.0]}",
]
"""What of the documented config is made smaller."""


@dataclass(frozen=True)
class User:
    """A tree of Kaldi's, and somebody who has set S5C to it."""

    tree: Path
    results: Path

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the documented config."""
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "S5C": str(self.tree), "OMP_NUM_THREADS": "1"}
        env["MLFLOW_TRACKING_URI"] = "none"
        return subprocess.run(
            [str(BIN / "snakemake"), "--profile", "local", "--cores", "2", "--configfile", CONFIG,
             *arguments],
            cwd=ROOT, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def user(small: Small, tmp_path_factory: pytest.TempPathFactory) -> User:
    folder = tmp_path_factory.mktemp("kaldi")
    tree = Tree(root=folder / "s5c", corpus=small.out / "corpus").make()
    return User(tree.root, folder / "results")


@pytest.fixture(scope="module")
def scored(user: User) -> Path:
    """The results of the whole workflow."""
    ran = user.snakemake("--config", f"results={user.results}", *SMALLER)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return user.results / "swbd"


def test_the_documented_config_is_planned(user: User) -> None:
    ran = user.snakemake("-n", "--quiet", "rules", "--config", f"results={user.results}/planned")
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    wanted = {
        "features": 5,  # logmel of train, dev and two tests, MFCC of dev
        "import_alignment": 1,
        "align": 1,
        "train": 2,
        "decode": 6,
        "score": 6,
        "graph": 1,
    }
    assert {name: int(counts.get(name, 0)) for name in wanted} == wanted


def test_the_tree_has_no_fault_but_its_case(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    lexicon = str(user.tree / "data/local/dict_nosp/lexicon.txt")
    check = ["validate", str(user.tree / "data/eval2000"), "--lexicon", lexicon]
    assert main(check) == 2
    assert "a command in wav.scp is not run" in capsys.readouterr().err
    assert main([*check, "--allow-pipes"]) == 2
    said = capsys.readouterr().err
    assert "in lower case 1.2 %. Set corpus.case: lower" in said
    assert said.count("\n") == 2  # the fault, and where
    fitting = [*check, "--allow-pipes", "--case", "lower"]
    assert main(fitting) == 2  # letters of acronyms, which the lexicon has joined
    assert "word 'Y' is not in the lexicon" in capsys.readouterr().err
    assert main([*fitting, "--max-oov", "0.02"]) == 0


def test_it_ends_in_a_table_of_both_parts(user: User, scored: Path) -> None:
    table = (scored / "wer.md").read_text()
    assert re.search(r"\| +dev +\| +swb +\| +ch +\|", table)
    every = [s for s in stm.read(user.tree / "data/eval2000/stm") if not s.ignored]
    for name, prefix in (("swb", "sw_"), ("ch", "en_")):
        (folder,) = scored.glob(f"score/*/{name}")
        wer = json.loads((folder / "wer.json").read_text())
        segments = [s for s in every if s.file.startswith(prefix)]
        assert wer["sentences"] == len(segments)
        assert wer["words"] == sum(len(s.text.split()) for s in segments)
        assert wer["nist"].get("agrees", True) and wer["wer"] < 90
        words = [line.split() for line in (folder / "ctm").read_text().splitlines()]
        assert {fields[0][:3] for fields in words} == {prefix}
        assert not {fields[4] for fields in words} & {"uh", "um", "[laughter]", ACRONYM[1]}


def test_dev_is_aligned_and_scored_without_an_stm(user: User, scored: Path) -> None:
    utterances = list(DataDir.read(user.tree / "data/train_dev").utterances)
    aligned = json.loads((scored / "ali/dev/alignment.json").read_text())
    assert aligned["aligned"] == aligned["utterances"] == len(utterances)
    (folder,) = scored.glob("score/*/dev")
    reference = " ".join(s.text for s in stm.read(folder / "stm")).split()
    assert not {"uh", "um", "[laughter]", "[noise]", ACRONYM[1]} & set(reference)
    assert set(ACRONYM[2].split()) <= set(reference)


def test_two_language_models(user: User, scored: Path) -> None:
    report: dict[str, Any] = json.loads((scored / "lm/report.json").read_text())
    folder = user.tree / "data/local/lm"
    assert report["sources"]["corpus"]["source"] == str(folder / "sw1_fsh.o4g.kn.gz")
    assert report["first_pass"]["source"] == str(folder / "sw1.o3g.kn.gz")
    assert (len(report["ngrams"]), len(report["first_pass"]["ngrams"])) == (4, 3)
    assert sorted(p.name for p in (scored / "graph/rescore").iterdir()) == ["new", "old"]


def test_errors_are_analysed(scored: Path) -> None:
    (file,) = scored.glob("errors/*/errors.json")
    for name, report in json.loads(file.read_text()).items():
        causes = {kind: row["sentences"] for kind, row in report["causes"].items()}
        assert sum(causes.values()) > causes["not tested"] + causes["unknown word"], (name, causes)


def test_a_second_run_does_nothing(user: User, scored: Path) -> None:
    ran = user.snakemake("-n", "--config", f"results={user.results}", *SMALLER)
    assert "Nothing to be done" in ran.stdout + ran.stderr, scored
