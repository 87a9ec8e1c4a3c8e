"""Every key does something: what the schema has and nothing reads is a fault."""

from __future__ import annotations

from pathlib import Path

from config_reads import keys, reads_of_code, reads_of_rules

ROOT = Path(__file__).resolve().parents[1]


def test_every_key_is_read() -> None:
    """By the types: another object's `verify` is not that of the examples."""
    code = reads_of_code(ROOT / "workflow/hadpsgd")
    rules = reads_of_rules(file.read_text() for file in (ROOT / "workflow").rglob("*.smk"))
    wanted = keys()
    assert len(wanted) > 150 and len(code) > 150  # mypy has found the types
    assert not sorted(wanted - code - rules)
