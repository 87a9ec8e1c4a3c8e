"""`hadpsgd pronunciations`: learned probabilities of pronunciations, and of silence by word."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hadpsgd.alignment.archives import read_alignments
from hadpsgd.alignment.pronunciations import Counts, Spoken, estimate, utterance_of
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.lang.weighted import LangLexicon
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder, write_text
from hadpsgd.gmm.phone_segments import segments
from hadpsgd.progress import tracked
from hadpsgd.skipped import check_skipped

_LIMIT = 0.05
"""Share of utterances whose phones may not be those of their words."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--ali", type=Path, required=True, help="alignment folder, ours or Kaldi's")
    parser.add_argument("--lang", type=Path, required=True, help="its lang folder")
    parser.add_argument("--data", type=Path, required=True, help="its Kaldi data directory")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder to write: dict/, lang/, counts, a report"
    )


def run(args: argparse.Namespace) -> int:
    """Count, estimate, and write OUT/{dict,lang}/, counts in Kaldi's formats and report.json."""
    lexicon = LangLexicon.read(args.lang)
    counts, utterances = _counts(args, lexicon)
    entries, ends = estimate(counts, lexicon.entries)
    said = counts.before(True) + counts.before(False)
    with atomic_folder(args.out) as out:
        lexicon.write_dict(entries, ends, out / "dict")
        lexicon.write_lang(entries, ends, out / "lang")
        _write_counts(out, counts, lexicon)
        variants = Counter(word for word, _ in lexicon.entries)
        several = [word for word, number in variants.items() if number > 1]
        heard = {word for word, _ in said}
        report = {
            "utterances": utterances,
            "words": sum(n for (word, phones), n in said.items() if phones),
            "pronunciations": len(entries),
            "pronunciations_said": sum(1 for spoken in lexicon.entries if said[spoken]),
            "words_with_variants": len(several),
            "words_with_variants_said": sum(word in heard for word in several),
            "silence_overall": ends.overall,
            "silence_at_begin": ends.begin,
        }
        write_text(out / "report.json", json.dumps(report, indent=2) + "\n")
    print(
        f"pronunciations: {report['words']:,} words of {utterances:,} utterances; silence at"
        f" {100 * ends.overall:.0f} % of places, {100 * ends.begin:.0f} % of begins → {args.out}",
        file=sys.stderr,
    )
    return 0


def _counts(args: argparse.Namespace, lexicon: LangLexicon) -> tuple[Counts, int]:
    """Counts of an alignment, and of how many utterances.

    Raises:
        UserError: too many utterances have no words, or phones that are not those of their words.
    """
    data = DataDir.read(args.data, audio=False)
    names = {number: name for name, number in lexicon.phones.items()}
    unknown = _unknown(args.lang)
    model, alignments = read_alignments(args.ali)
    if strange := sorted({int(phone) for phone in model.phone[1:]} - names.keys()):
        raise UserError(
            f"phone {strange[0]} of the alignment is not in phones.txt",
            where=args.lang,
            fix="Give the lang folder of this alignment",
        )
    counts, misfits, total = Counts(), list[str](), 0
    for utterance, ids in tracked(
        alignments, data.utterances, what="pronunciations", unit="alignments"
    ):
        total += 1
        phones = tuple(segments(model, ids).phones.tolist())
        words = [
            word if word in lexicon.words else unknown
            for word in (data.utterances[utterance].words if utterance in data.utterances else ())
        ]
        numbers = tuple(lexicon.words.get(word, -1) for word in words)
        cuts = lexicon.matcher.match(numbers, phones)
        if cuts is None:
            misfits.append(utterance)
        else:
            counts.add(utterance_of([names[phone] for phone in phones], words, cuts))
    if not total:
        raise UserError("no alignments", where=args.ali)
    check_skipped(
        misfits,
        total=total,
        limit=_LIMIT,
        what="utterances have other phones than their words by the lexicon",
        where=args.ali,
        fix="Give the data directory and the lang folder that were aligned",
    )
    return counts, total - len(misfits)


def _unknown(lang: Path) -> str:
    """The word that stands for unknown ones; empty where there is none."""
    path = lang / "oov.txt"
    return path.read_text("utf-8").strip() if path.is_file() else ""


def _write_counts(out: Path, counts: Counts, lexicon: LangLexicon) -> None:
    """pron_counts_nowb.txt, sil_counts_nowb.txt and pron_bigram_counts_nowb.txt, as
    steps/get_prons.sh writes them."""

    def name(spoken: Spoken) -> str:
        return " ".join((spoken[0], *lexicon.bare(spoken[1])))

    def lines() -> Iterator[str]:
        for spoken in sorted(
            before[0].keys() | before[1].keys() | after[0].keys() | after[1].keys()
        ):
            numbers = (side[spoken] for side in (*before, *after))
            yield f"{' '.join(map(str, numbers))} {name(spoken)}\n"

    before, after = ((side(True), side(False)) for side in (counts.before, counts.after))
    write_text(out / "sil_counts_nowb.txt", "".join(lines()))
    said = before[0] + before[1]
    write_text(
        out / "pron_counts_nowb.txt",
        "".join(f"{n} {name(spoken)}\n" for spoken, n in said.most_common() if spoken[1]),
    )
    pairs: Counter[tuple[Spoken, Spoken]] = Counter()
    for (v, w, _), count in counts.pairs.items():
        pairs[v, w] += count
    write_text(
        out / "pron_bigram_counts_nowb.txt",
        "".join(f"{n}\t{name(v)}\t{name(w)}\n" for (v, w), n in sorted(pairs.items())),
    )
