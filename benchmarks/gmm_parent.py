"""What the parent works while graphs are compiled and FMLLR transforms are estimated.

    .venv/bin/python benchmarks/gmm_parent.py [--utterances 2000]

Kaldi's model, tree and lang folder of AN4 (`HADPSGD_SHARED`); utterances of 5 s are noise, 50 a
speaker, and have 12 random words of the lexicon. Printed are wall time and processor time of the
parent and of its processes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from gmm_statistics import UTTERANCE, fill, show, timed
from threadpoolctl import threadpool_limits

from hadpsgd.gmm import event_map
from hadpsgd.gmm import model as models
from hadpsgd.gmm.collect import adapt
from hadpsgd.gmm.compilation import compile_graphs
from hadpsgd.gmm.data import Lang
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.pipeline import Pipeline
from hadpsgd.gmm.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
KALDI = Path(os.environ.get("HADPSGD_SHARED", ROOT.parent / "shared")).resolve() / "kaldi_an4"
WORDS = 12


def main() -> None:
    """Generate, time, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--utterances", type=int, default=2000)
    args = parser.parse_args()
    random = np.random.default_rng(1)
    folder, lang = KALDI / "exp/tri3b_ali", Lang(KALDI / "lang")
    model, tree = models.read(folder / "final.mdl"), event_map.read(folder / "tree")
    spoken = sorted({word for (_, word) in lang.lexicon.arcs if word})
    words = random.choice(spoken, (args.utterances, WORDS)).tolist()
    with tempfile.TemporaryDirectory() as scratch, Workspace(Path(scratch)) as space:
        fill(space, model, args.utterances * UTTERANCE / 6000, random)
        print(f"{len(space)} utterances, {space.num_frames} frames")
        print("| | wall (s) | parent (s) | workers (s) |\n|---|---|---|---|")
        with threadpool_limits(1):
            for jobs in (1, 2):
                passes = Passes(space, Pipeline(0), jobs)
                graphs = partial(compile_graphs, passes, words, lang, tree, model.transitions)
                show(f"graphs, {jobs}", timed(graphs))
                show(f"FMLLR, {jobs}", timed(partial(adapt, passes, model, lang.silence, 500.0)))


if __name__ == "__main__":
    main()
