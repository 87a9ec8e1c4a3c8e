"""`hadpsgd score`: word error rate of a decoded set."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from hadpsgd import config, diverged
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding import list_files
from hadpsgd.decoding.word_times import FRAME_SHIFT
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.scoring import formats, scored_with
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.hypotheses import Timer, Words, recognised
from hadpsgd.scoring.places import places, said
from hadpsgd.scoring.reference import Reference
from hadpsgd.scoring.rescoring import Rescoring
from hadpsgd.scoring.scored import Scored
from hadpsgd.scoring.tune import Setting


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--decode", type=Path, required=True, help="folder of its lattices")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory of the set")
    parser.add_argument("--tuned", type=Path, required=True, help="tuned.json of the dev set")
    parser.add_argument(
        "--lists", type=Path, help="its lists, of `hadpsgd neural-lists`, with lm.neural"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of wer.json, CTM and alignments to write"
    )


def run(args: argparse.Namespace) -> int:
    """Write OUT/{ctm,stm,hyp.txt,alignments.txt,sentences.jsonl,wer.json,config.yaml}."""
    if why := diverged.told(args.decode):
        return diverged.leave(args.out, why=why, what="scored")
    whole = config.load(args.config)
    settings = whole.scoring
    data = DataDir.read(args.data, audio=False)
    words = Words.read(args.decode, Filters.of(settings))
    setting = read_tuned(args.tuned)
    result = hypothesise(args.decode, data, words, setting, args.lists)
    if line := said(data, places(data)):
        print(line, file=sys.stderr)
    reference = Reference.of(data, result.seconds, words.filters)
    scored = Scored.of(reference, result.words, nist_tools=settings.nist_tools)
    report = {
        "lm_weight": setting.lm_weight,
        "word_penalty": setting.word_penalty,
        **({"minimum_bayes_risk": True} if setting.minimum_bayes_risk else {}),
        **({"neural_weight": setting.neural_weight} if setting.neural_weight else {}),
        "without_lattice": sorted(set(data.utterances) - set(result.texts)),
        "unaligned": result.unaligned,
    }
    with atomic_folder(args.out) as folder:
        scored.write(folder, report)
        lines = (f"{name} {result.texts.get(name, '')}".rstrip() for name in data.utterances)
        (folder / "hyp.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        scored_with.note(whole, folder)
    scored.say(data.path.name)
    return 0


@dataclass
class Hypotheses:
    """What was recognised: timed words in NIST's order, text and seconds of every utterance."""

    words: list[TimedWord]
    texts: dict[str, str]
    seconds: dict[str, float]
    unaligned: int


def hypothesise(
    folder: Path, data: DataDir, words: Words, setting: Setting, lists: Path | None = None
) -> Hypotheses:
    """What a decoding folder says under a setting, with times and confidences.

    Raises:
        UserError: the setting needs `lists`, and there are none; or they are of another decoding.
    """
    if setting.needs_lists and lists is None:
        raise UserError(f"{setting.why_lists}, and no n-best lists are given", fix="Give --lists")
    scaling, risk = setting.scaling(words), setting.minimum_bayes_risk
    given = list_files.read_of(lists, decode=folder) if lists else None
    neural = None
    if given and setting.needs_lists:
        neural = Rescoring([setting.neural_weight], given, risk)
    timer = Timer.read(folder, words, data)
    timed: list[TimedWord] = []
    texts, seconds = {}, {}
    for found in recognised(folder, timer, scaling, risk=risk, neural=neural):
        timed += found.words
        texts[found.utterance] = found.text
        seconds[found.utterance] = found.frames * FRAME_SHIFT
    return Hypotheses(formats.in_order(timed), texts, seconds, timer.aligner.unaligned)


def read_tuned(path: Path) -> Setting:
    """The choice that `hadpsgd tune` wrote.

    Raises:
        UserError: the file is missing or not of that kind.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        setting = Setting(
            lm_weight=float(content["lm_weight"]),
            word_penalty=float(content["word_penalty"]),
            minimum_bayes_risk=content.get("minimum_bayes_risk", False) is True,
            neural_weight=float(content.get("neural_weight", 0.0)),
            listed=content.get("listed", "lists" in content) is True,
        )
        if not 0.0 <= setting.neural_weight <= 1.0:
            raise ValueError(f"neural_weight {setting.neural_weight}")
        if not (0.0 < setting.lm_weight < math.inf and math.isfinite(setting.word_penalty)):
            raise ValueError(f"lm_weight {setting.lm_weight}, word_penalty {setting.word_penalty}")
        return setting
    except FileNotFoundError:
        raise UserError("missing", where=path, fix="`hadpsgd tune` writes it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"not from `hadpsgd tune` ({error})", where=path) from None
