"""`hadpsgd transcribe`: recordings to text, with times and confidences."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hadpsgd.corpus import audio
from hadpsgd.decoding.network import add_device
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder, check_folder
from hadpsgd.parallel import add_jobs
from hadpsgd.progress import counted, of_speech
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.transcribe import against, outputs
from hadpsgd.scoring.transcribe.batch import Outcome, batches, transcribe
from hadpsgd.scoring.transcribe.left import Left
from hadpsgd.scoring.transcribe.recognise import Recogniser
from hadpsgd.scoring.transcribe.sources import Source, find
from hadpsgd.scoring.transcribe.speakers import Speakers
from hadpsgd.scoring.transcribe.transcript import Transcript

FAILED = 1
"""Exit status where more recordings failed than --max-failed allows."""
_SCORE = "score"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("bundle", type=Path, help="folder that `hadpsgd export` wrote")
    parser.add_argument("files", type=Path, nargs="+", help="recordings, or folders of them")
    parser.add_argument("--out", type=Path, help="folder of results (without: text is printed)")
    parser.add_argument(
        "--format",
        action="append",
        choices=sorted(outputs.FORMATS),
        help="write only this one to OUT (may be given again)",
    )
    parser.add_argument(
        "--fast",
        action="store_true",
        help="no passes that adapt FMLLR to the speakers: sooner, with more errors",
    )
    parser.add_argument(
        "--speakers",
        type=Path,
        help="lines `NAME SPEAKER`: recordings of one speaker are adapted to together"
        " (without: each channel of a recording is a speaker)",
    )
    parser.add_argument(
        "--reference", type=Path, help="score the words: FILE.stm, or lines `NAME words`"
    )
    parser.add_argument("--glm", type=Path, help="GLM that reference and words pass before")
    parser.add_argument(
        "--max-failed",
        type=_share,
        default=0.0,
        help="share of the recordings that may fail, 0 .. 1 (0)",
    )
    add_jobs(parser)
    add_device(parser)


def run(args: argparse.Namespace) -> int:
    """Print the text, or write OUT/<name>.<format>; 1 where too many recordings failed."""
    if args.format and not args.out:
        raise UserError("--format is of the files in OUT", fix="Give --out")
    if args.glm and not args.reference:
        raise UserError("--glm is of the words of a reference", fix="Give --reference")
    if args.out:
        check_folder(args.out)
    for given in (args.speakers, args.reference, args.glm):
        if given and not given.is_file():
            raise UserError("no such file", where=given)
    sources = find(args.files)
    speakers = Speakers.read(args.speakers, sources) if args.speakers else Speakers()
    if args.reference:
        against.check(args.reference, [source.key for source in sources], glm=args.glm)
        if args.out:
            _check_free(args.out / _SCORE, sources)
    bundle = Bundle.open(args.bundle)
    recogniser = Recogniser(bundle=bundle, jobs=args.jobs, fast=args.fast, device=args.device)
    recogniser.check()
    began = time.monotonic()
    found = _all(recogniser, sources, speakers, args)
    found.say(time.monotonic() - began)
    if args.speakers and (alone := sum(not speakers.named(each) for each in sources)):
        print(
            f"{alone} of {len(sources)} recordings are not in {args.speakers}:"
            " each channel of those is a speaker",
            file=sys.stderr,
        )
    if found.kept:
        _score(args, bundle, found.kept)
    return FAILED if len(found.failed) > args.max_failed * len(sources) else 0


def _check_free(score: Path, sources: Sequence[Source]) -> None:
    """Nothing but scores may stand where scores go: the folder is replaced."""
    taken = any(source.name.lower().split("/")[0] == _SCORE for source in sources)
    if taken or (score.exists() and not (score / "wer.json").is_file()):
        raise UserError("scores would stand here", where=score, fix="Give another --out")


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"--max-failed {text}: not a share from 0 to 1")
    return share


@dataclass(kw_only=True)
class _Tally:
    """What was transcribed and what was not.

    kept: transcripts that are to be scored; others are gone once they are written.
    """

    recordings: int = 0
    seconds: float = 0.0
    words: int = 0
    failed: list[str] = field(default_factory=list)
    kept: list[tuple[Source, Transcript]] = field(default_factory=list)

    def say(self, seconds: float) -> None:
        """Tell how much it was and how long it took."""
        factor = f", real-time factor {seconds / self.seconds:.3f}" if self.seconds else ""
        print(
            f"{counted(self.recordings, 'recording')}, {of_speech(self.seconds)}, "
            f"{counted(self.words, 'word')} in {seconds:.0f} s{factor}",
            file=sys.stderr,
        )
        if self.failed:
            count = counted(len(self.failed) + self.recordings, "recording")
            named = ", ".join(self.failed[:5]) + " ..." * (len(self.failed) > 5)
            print(f"{len(self.failed)} of {count} failed: {named}", file=sys.stderr)


def _all(
    recogniser: Recogniser,
    sources: Sequence[Source],
    speakers: Speakers,
    args: argparse.Namespace,
) -> _Tally:
    """Transcribe and write recordings, batch by batch."""
    tally = _Tally()
    known = [(source, _seconds(source)) for source in sources]
    left = Left(sum(seconds for _, seconds in known), recogniser.steps)
    for batch in batches(known, speakers):
        left.group(sum(seconds for _, seconds in batch))
        with tempfile.TemporaryDirectory(prefix="hadpsgd-") as work:
            together = [source for source, _ in batch]
            found = transcribe(recogniser, together, speakers, Path(work), left.done)
        for each, (_, seconds) in zip(found, batch, strict=True):
            if each.transcript is None:
                left.drop(seconds)
                tally.failed.append(each.source.name)
                print(f"failed: {each.why}", file=sys.stderr)
                continue
            _give(each, args, several=len(sources) > 1)
            tally.recordings += 1
            tally.seconds += each.transcript.seconds
            tally.words += sum(len(segment.words) for segment in each.transcript.segments)
            if args.reference:
                tally.kept.append((each.source, each.transcript))
    return tally


def _seconds(source: Source) -> float:
    """Of a recording by its header; 0 where it cannot be read, which is told later."""
    try:
        return audio.info(str(source.path)).seconds
    except UserError:
        return 0.0


def _give(found: Outcome, args: argparse.Namespace, *, several: bool) -> None:
    assert found.transcript is not None
    if args.out:
        outputs.write(found.transcript, args.out, args.format or list(outputs.FORMATS))
        return
    text = outputs.text(found.transcript)
    head = f"# {found.source.name}\n" if several else ""
    print(f"{head}{text}", end="", flush=True)


def _score(
    args: argparse.Namespace, bundle: Bundle, done: Sequence[tuple[Source, Transcript]]
) -> None:
    """Say the word error rate; with OUT, write OUT/score/ as `hadpsgd score` does."""
    scored = against.score(
        args.reference,
        [found for _, found in done],
        [source.key for source, _ in done],
        bundle.filters,
        glm=args.glm,
    )
    scored.say(args.reference.name)
    if args.out:
        with atomic_folder(args.out / _SCORE) as folder:
            scored.write(folder, {"reference": args.reference.name})
