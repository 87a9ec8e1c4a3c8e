"""`hadpsgd score`: word error rate of a decoded set."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadpsgd import config
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.lattice import best_paths
from hadpsgd.decoding.word_times import FRAME_SHIFT
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.scoring import formats, nist, sentences
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.hypotheses import Timer, Words, lattices
from hadpsgd.scoring.reference import Reference
from hadpsgd.scoring.tune import Setting


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--decode", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tuned", type=Path, required=True, help="tuned.json of the dev set")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Write OUT/{ctm,stm,hyp.txt,alignments.txt,sentences.jsonl,wer.json}."""
    settings = config.load(args.config).scoring
    data = DataDir.read(args.data, audio=False)
    words = Words.read(args.decode, settings.dropped_words)
    setting = read_tuned(args.tuned)
    result = hypothesise(args.decode, data, words, setting)
    reference = Reference.of(data, result.seconds)
    scored = reference.score(result.words)
    checked = reference.checked(result.words, scored) if settings.nist_tools else {}
    report = summary(scored) | {
        "lm_weight": setting.lm_weight,
        "word_penalty": setting.word_penalty,
        "without_lattice": sorted(set(data.utterances) - set(result.texts)),
        "unaligned": result.unaligned,
        "glm": bool(reference.glm),
        "nist": checked,
    }
    with atomic_folder(args.out) as folder:
        formats.write_lines(folder / "ctm", result.words)
        formats.write_lines(folder / "stm", reference.segments, reference.comments)
        if reference.glm:
            ref, hyp = reference.filtered(result.words)
            formats.write_lines(folder / "stm.filt", ref, reference.comments)
            formats.write_lines(folder / "ctm.filt", hyp)
        lines = (f"{name} {result.texts.get(name, '')}".rstrip() for name in data.utterances)
        (folder / "hyp.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        (folder / "alignments.txt").write_text(readable(scored), "utf-8")
        sentences.write(folder / sentences.FILE, scored)
        (folder / "wer.json").write_text(json.dumps(report, indent=2) + "\n")
    total = nist.total(scored)
    print(
        f"{data.path.name}: {total.wer:.2f} % of {total.words} words"
        f" ({total.sub} sub, {total.dele} del, {total.ins} ins)",
        file=sys.stderr,
    )
    _say(checked)
    return 0


def _say(checked: dict[str, Any]) -> None:
    if checked.get("failed"):
        print(f"warning: {checked['tool']} failed: {checked['failed']}", file=sys.stderr)
    elif checked and not checked["agrees"]:
        names = ", ".join(checked["different_speakers"][:5])
        print(f"warning: {checked['tool']} counts otherwise for {names}", file=sys.stderr)


@dataclass
class Hypotheses:
    """What was recognised: timed words in NIST's order, text and seconds of every utterance."""

    words: list[TimedWord]
    texts: dict[str, str]
    seconds: dict[str, float]
    unaligned: int


def hypothesise(folder: Path, data: DataDir, words: Words, setting: Setting) -> Hypotheses:
    """Best paths of a decoding folder under a setting, with times and confidences."""
    timer = Timer.read(folder, words, data)
    timed: list[TimedWord] = []
    texts, seconds = {}, {}
    scaling = setting.scaling(words)
    for utterance, found in lattices(folder, data):
        path = best_paths(found, [scaling])[0]
        sure = confidences(found, path, scaling)
        timed += timer.timed(utterance, path, sure)
        texts[utterance] = " ".join(words.spoken(path.words.tolist()))
        seconds[utterance] = len(path.transitions) * FRAME_SHIFT
    return Hypotheses(formats.in_order(timed), texts, seconds, timer.aligner.unaligned)


def read_tuned(path: Path) -> Setting:
    """The choice that `hadpsgd tune` wrote.

    Raises:
        UserError: the file is missing or not of that kind.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Setting(float(content["lm_weight"]), float(content["word_penalty"]))
    except FileNotFoundError:
        raise UserError("missing", where=path, fix="`hadpsgd tune` writes it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"not from `hadpsgd tune` ({error})", where=path) from None


def summary(scored: Sequence[nist.Sentence]) -> dict[str, Any]:
    """Counts of all and of every speaker, as wer.json has them."""
    speakers = {name: _counts(count) for name, count in nist.by_speaker(scored).items()}
    return _counts(nist.total(scored)) | {"speakers": speakers}


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "words": counts.words,
        "correct": counts.correct,
        "sub": counts.sub,
        "ins": counts.ins,
        "del": counts.dele,
        "errors": counts.errors,
        "wer": round(counts.wer, 3) if counts.words else None,
        "sentences": counts.sentences,
        "wrong_sentences": counts.wrong_sentences,
    }


def readable(scored: Sequence[nist.Sentence]) -> str:
    """Alignments for people: reference above hypothesis, errors marked."""
    parts = []
    for sentence in scored:
        counts = sentence.counts
        columns = [
            (edit.ref or "*", edit.hyp or "*", "" if edit.kind == "C" else edit.kind)
            for edit in sentence.edits
        ]
        widths = [max(map(len, column)) for column in columns]
        rows = [
            " ".join(column[i].ljust(width) for column, width in zip(columns, widths, strict=True))
            for i in range(3)
        ]
        head = f"{sentence.name} C={counts.correct} S={counts.sub} D={counts.dele} I={counts.ins}"
        parts.append(f"{head}\nREF:  {rows[0]}\nHYP:  {rows[1]}\nEval: {rows[2].rstrip()}\n\n")
    return "".join(parts)
