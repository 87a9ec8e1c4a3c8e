"""Sentences with errors drawn for a system, as NIST's files, and whether its tools are there."""

from __future__ import annotations

import numpy as np
import pytest

from hadpsgd.corpus.stm import Segment
from hadpsgd.scoring import formats, nist, sclite
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.nist import Options, Sentence

needs_sclite = pytest.mark.skipif(
    sclite.command("sclite") is None, reason="NIST's sclite is not installed (Debian: sctk)"
)


def random_sentences(seed: int, count: int, errors: float) -> list[Sentence]:
    """Sentences of one reference, with errors drawn for a system."""
    words = ["a", "b", "c", "d", "e", "f", "g"]
    scored = []
    for i in range(count):
        reference = np.random.default_rng(i).choice(words, 8).tolist()
        draw = np.random.default_rng((seed, i))
        hyp = [w if draw.random() > errors else str(draw.choice(words)) for w in reference]
        hyp = [w for w in hyp if draw.random() > errors / 3]
        segment = Segment(
            file=f"f{i % 4}",
            channel="1",
            speaker=f"spk{i % 6}",
            begin=i,
            end=i + 1,
            text=" ".join(reference),
        )
        step = 1.0 / (len(hyp) + 1)
        timed = [
            TimedWord(file=segment.file, channel="1", begin=i + step * j, duration=step, word=w)
            for j, w in enumerate(hyp)
        ]
        edits = nist.align_texts(segment.text, " ".join(hyp), Options())
        scored.append(
            Sentence(
                name=f"u{i:03d}",
                speaker=segment.speaker,
                edits=edits,
                segment=segment,
                words=tuple(timed),
            )
        )
    return scored


def files_of(scored: list[Sentence]) -> tuple[list[Segment], list[TimedWord]]:
    reference = sorted((s.segment for s in scored if s.segment), key=lambda s: (s.file, s.begin))
    return reference, formats.in_order(w for s in scored for w in s.words)
