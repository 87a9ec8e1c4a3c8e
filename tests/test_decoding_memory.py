"""Memory of decoding that goes on for hours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import ModelMeta, SavedShape, save_model

GROWTH = """
import sys
import psutil
import torch
from hadpsgd.decoding.heap import give_back
from hadpsgd.decoding.network import _loaded
from hadpsgd.models.long_input import hidden

def held():
    give_back()
    return psutil.Process().memory_info().rss / 2**20

torch.set_num_threads(1)
((model, meta),) = _loaded((sys.argv[1],), "cpu")
for frames in range(101, 301, 5):
    hidden(model, torch.zeros(frames, meta.input_dim))
before = held()
for frames in range(102, 502, 5):
    hidden(model, torch.zeros(frames, meta.input_dim))
print(held() - before)
"""


def test_a_network_keeps_nothing_of_the_lengths_that_it_saw(tmp_path: Path) -> None:
    """Segments of a long recording have all lengths: oneDNN would keep half a MiB of each."""
    shape = SavedShape(layers=1, cells=48, projection=48, dropout=0.0)
    model = BLSTM(shape, input_dim=120, num_pdfs=4, seed=3)
    meta = ModelMeta(shape, 120, ("logmel",), 4, torch.full((4,), 0.25).log())
    save_model(tmp_path / "final.pt", model, meta)
    command = [sys.executable, "-c", GROWTH, str(tmp_path / "final.pt")]
    grown = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert grown < 10, f"{grown:.1f} MiB of 80 lengths"
