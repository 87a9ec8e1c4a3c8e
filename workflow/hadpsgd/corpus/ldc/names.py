"""How the LDC names the files of these corpora."""

from __future__ import annotations

SWITCHBOARD = r"sw\d{5}"
"""Recordings of Switchboard-1, a regular expression."""
FISHER, FISHER_TRANSCRIPTS = r"fe_03_\d{5}", "fe_03_*.txt"
TRANSCRIPTS = "*-trans.text"
DICTIONARY = "sw-ms98-dict.text"
TESTS = {"swb": "sw_", "ch": "en_"}
"""Test set to how the names of its recordings begin, in Hub5 2000."""
PEM, STM, GLM = "hub5e_00.pem", "hub5e00.english.000405.stm", "en20000405_hub5.glm"
