"""The config: defaults, refusals by name, and the schema file beside the code."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hadpsgd.cli import main
from hadpsgd.config import (
    check,
    fingerprint,
    load,
    run_fingerprint,
    run_key,
    run_of,
    stage_keys,
)
from hadpsgd.config.base import expand
from hadpsgd.config.command import json_schema, resolved
from hadpsgd.config.removed import REMOVED
from hadpsgd.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
MINIMAL = {"name": "x", "corpus": {"kind": "builtin"}}


@pytest.mark.parametrize("path", sorted(ROOT.glob("config/*.yaml")), ids=lambda p: p.name)
def test_every_config_is_valid_and_survives_being_resolved(path: Path) -> None:
    config = load(path)
    assert check(yaml.safe_load(resolved(config)), "resolved") == config


def test_the_schema_file_is_the_one_that_the_code_makes() -> None:
    committed = (ROOT / "workflow/schemas/config.schema.json").read_text()
    assert committed == json_schema(), "run: hadpsgd config --schema --out workflow/schemas/..."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpos": {}}, "unknown key 'corpos': did you mean 'corpus'?"),
        ({"learning_rate": 1}, "'learning_rate': did you mean 'training.learning_rate'?"),
        ({"training": {"layers": 3}}, "'training.layers': did you mean 'model.layers'?"),
        (
            {"alignment": {"kind": "sat", "leaves": 9}},
            "did you mean 'alignment.lda_mllt.leaves' or 'alignment.sat.leaves' or 'alignment.tri.",
        ),
        ({"corpus": {"kind": "builtin", "minutes": 3}}, "unknown key 'corpus.minutes'"),
        ({"corpus": {"kind": "swb"}}, "'builtin', 'an4', 'kaldi'"),
        ({"corpus": {"kind": "kaldi"}}, "key 'corpus.train' is missing"),
        ({"model": {"layers": "two"}}, "'model.layers' ('two')"),
        ({"model": {"layers": 0}}, "greater than or equal to 1"),
        ({"training": {"runs": [{"strategy": "ssdg"}]}}, "'training.runs.0.strategy' ('ssdg')"),
        ({"training": {"runs": [{"learner": 2}]}}, "did you mean 'learners'?"),
        ({"training": {"runs": [{}, {}]}}, "two runs have the name 'single'"),
        (
            {"training": {"runs": [{"strategy": "hadpsgd", "learners": 4, "super_learner": 3}]}},
            "4 learners cannot be divided into super-learners of 3",
        ),
        (
            {"training": {"batch": 10, "runs": [{"strategy": "ssgd", "learners": 4}]}},
            "batch 10 cannot be divided among 4 learners",
        ),
        ({"name": "../x"}, "'name'"),
    ],
)
def test_a_wrong_config_is_refused_by_the_keys_name(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError) as refusal:
        check(MINIMAL | change, "file.yaml")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_command_line_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\ncorpus: {kind: builtin\nseed: 1\n")
    assert main(["config", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"hadpsgd config: error: {path}:3: not YAML")
    assert main(["config", str(tmp_path / "none.yaml")]) == 2
    assert "no such config" in capsys.readouterr().err
    path.write_bytes(b"name: caf\xe9\n")
    assert main(["config", str(path)]) == 2
    assert "not UTF-8" in capsys.readouterr().err
    for text, told in (
        ("seed: 1\nname: x\nseed: 2\n", ":3: not YAML: the key 'seed' stands here a second time"),
        ("model:\n  cells: 1\n  cells: 2\n", ":3: not YAML: the key 'cells' stands here"),
        ("name: 2024-13-45\n", "a value that cannot be read (month must be in 1..12)"),
        ("seed: !!timestamp x\n", "a value that cannot be read"),
        ("name: !!int abc\n", "a value that cannot be read"),
        ("name: " + "[" * 3000, "brackets within brackets"),
        ("seed: " + "9" * 5000, "a value that cannot be read"),
    ):
        path.write_text(text)
        assert main(["config", str(path)]) == 2
        said = capsys.readouterr().err
        assert told in said and said.count("\n") == 1, said
    path.write_bytes(b"\xef\xbb\xbfname: x\ncorpus: {kind: builtin}\n")
    assert main(["config", str(path)]) == 0
    capsys.readouterr()
    assert main(["nonsense"]) == 2
    assert "unknown stage 'nonsense'" in capsys.readouterr().err


def test_a_folder_for_a_file_and_the_other_way_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("name: x\ncorpus: {kind: builtin}\n")
    assert main(["config", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"hadpsgd config: error: {tmp_path}: Is a directory\n"
    assert main(["lang", "--config", str(file), "--dict", str(file), "--out", "x"]) == 2
    assert capsys.readouterr().err.endswith(": Not a directory\n")


def test_what_nobody_named_is_a_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hadpsgd.config.command.load", lambda _: (tmp_path / "lost").read_text())
    with pytest.raises(FileNotFoundError):
        main(["config", "file.yaml"])


def test_paths_expand_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOMEWHERE", raising=False)
    assert expand("${SOMEWHERE:-../shared}/an4") == "../shared/an4"
    monkeypatch.setenv("SOMEWHERE", "/data")
    assert expand("${SOMEWHERE:-../shared}/an4") == "/data/an4"
    monkeypatch.delenv("SOMEWHERE")
    with pytest.raises(ValueError, match="SOMEWHERE is not set"):
        expand("${SOMEWHERE}/an4")


def test_a_stage_depends_on_its_own_settings_only() -> None:
    base = check(MINIMAL, "x")
    before = stage_keys(base)
    other_lm = stage_keys(check(MINIMAL | {"lm": {"order": 3}}, "x"))
    assert {stage for stage in before if before[stage] != other_lm[stage]} == {"lm"}
    housekeeping = check(MINIMAL | {"training": {"checkpoint_minutes": 1}}, "x")
    assert run_fingerprint(housekeeping, "single") == run_fingerprint(base, "single")
    longer = check(MINIMAL | {"training": {"epochs": 3}}, "x")
    assert run_fingerprint(longer, "single") != run_fingerprint(base, "single")
    with pytest.raises(UserError, match="no training run 'ssgd-4'"):
        run_of(base, "ssgd-4")


@pytest.mark.parametrize("key", sorted(REMOVED))
def test_a_key_of_old_configs_says_what_took_its_place(key: str) -> None:
    section, name = key.split(".")
    kind = {"kind": "mono"} if section == "alignment" else {}
    with pytest.raises(UserError) as refused:
        check(MINIMAL | {section: kind | {name: 2}}, "x")
    assert str(refused.value) == f"x: there is no key '{key}' any more: {REMOVED[key]}"


def test_what_decides_nothing_renames_nothing() -> None:
    """Thresholds, checks and places are marked in the schema."""
    base = check(MINIMAL | {"realign": {"passes": 1}}, "x")
    other = {
        "name": "y",
        "results": "elsewhere",
        "features": {"max_skipped": 0.5, "allow_pipes": True},
        "alignment": {"kind": "mono", "max_failed": 0.5},
        "realign": {"passes": 1},
        "egs": {"verify": False},
        "training": {
            "checkpoint_minutes": 1,
            "keep_checkpoints": 5,
            "lost_learner": "stop",
            "silence_limit": 5,
            "member_death": "continue",
            "runs": [{"checkpoint_minutes": 2, "name": "single"}],
        },
        "site": {"cpus": 9, "rendezvous_seconds": 7},
        "decoding": {"max_failed": 0.5},
        "tracking": {"uri": "none"},
    }
    changed = check(MINIMAL | other, "x")
    assert stage_keys(changed) == stage_keys(base)
    assert run_key(changed, "single") == run_key(base, "single")
    assert fingerprint([changed]) == fingerprint([base])
    kaldi = {"kind": "kaldi", "train": "a", "dev": "b", "tests": {"t": "c"}, "dict_dir": "d"}
    strict = check(MINIMAL | {"corpus": kaldi}, "x")
    lax = check(MINIMAL | {"corpus": kaldi | {"max_oov": 0.5, "allow_pipes": True}}, "x")
    assert stage_keys(lax) == stage_keys(strict)
