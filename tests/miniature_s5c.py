"""A tree as Kaldi's egs/swbd/s5c leaves it, in miniature, out of a prepared built-in corpus.

Same files, names and quirks: Sphere files of two mu-law channels behind `sph2pipe ... |`, sides of
calls as recordings and speakers, segments named by hundredths of a second, lower-case words and
phones, `[laughter]` and its kin in transcripts, acronyms as `y._h.`, upper-case eval2000 of sw_ and
en_ calls with one stm for both, alignments in several archives of train_nodup alone, gzipped ARPA
files called sw1.o3g.kn.gz and sw1_fsh.o4g.kn.gz.

    python tests/miniature_s5c.py CORPUS OUT     # CORPUS: from `hadpsgd corpus`, kind builtin
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import soundfile
import yaml

from hadpsgd.cli import main
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.corpus.dictdir import read_lexicon
from hadpsgd.corpus.references import HESITATIONS, write_glm
from hadpsgd.corpus.tables import write_table
from hadpsgd.kaldi_io import iterate, write_archive
from hadpsgd.lm.train import train
from hadpsgd.lm.vocabulary import Vocabulary

RATE = 8000
ACRONYM = ("yeah", "y._h.", "y h")
"""A word that is an acronym here: in the built-in corpus, in the lexicon, in references."""
NOISES = ("[laughter]", "[noise]", "[vocalized-noise]")
_SPH2PIPE = '''#!{python} -IS
"""Stands in for sph2pipe: `-f wav -p -c CHANNEL FILE` of a mu-law Sphere file."""
import struct, sys
assert sys.argv[1:5] == ["-f", "wav", "-p", "-c"], sys.argv
channel, path = int(sys.argv[5]), sys.argv[6]
raw = open(path, "rb").read()
assert raw.startswith(b"NIST_1A")
head = int(raw[8:16])
lines = raw[16:head].decode().split("end_head")[0].splitlines()
fields = dict(line.split(None, 1) for line in lines)
channels = int(fields["channel_count"].split()[1])
def linear(code):
    code ^= 255
    value = ((((code & 15) << 3) + 132) << ((code >> 4) & 7)) - 132
    return struct.pack("<h", -value if code & 128 else value)
table = [linear(code) for code in range(256)]
data = b"".join(table[code] for code in raw[head + channel - 1 :: channels])
form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
sys.stdout.buffer.write(b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVE" + form
                        + b"data" + struct.pack("<I", len(data)) + data)
'''
_STM_HEAD = """\
;;
;; CATEGORY "0" "" ""
;; LABEL "O" "Overall" "Overall"
;; CATEGORY "1" "Corpus" ""
;; LABEL "en" "Callhome" "Callhome"
;; LABEL "sw" "Switchboard" "Switchboard"
;; CATEGORY "2" "Sex" ""
;; LABEL "F" "Female" "Female"
;; LABEL "M" "Male" "Male"
;; CATEGORY "3" "Corpus and sex" ""
;; LABEL "en-F" "Callhome, female" ""
;; LABEL "en-M" "Callhome, male" ""
;; LABEL "sw-F" "Switchboard, female" ""
;; LABEL "sw-M" "Switchboard, male" ""
"""


@dataclass(frozen=True)
class Call:
    """A recording of two sides, under its name in the tree."""

    name: str
    audio: Path
    sides: dict[str, list[Utterance]]


@dataclass(frozen=True)
class Tree:
    """The tree at work: its folder and the corpus that it is made of."""

    root: Path
    corpus: Path

    @property
    def sph2pipe(self) -> Path:
        """Kaldi's own place for it."""
        return self.root / "tools/sph2pipe_v2.5/sph2pipe"

    def make(self) -> Tree:
        """Write all of it."""
        self.sph2pipe.parent.mkdir(parents=True)
        self.sph2pipe.write_text(_SPH2PIPE.replace("{python}", sys.executable))
        self.sph2pipe.chmod(0o755)
        dev = self.calls("dev", [f"sw{2001 + 4 * i:05d}" for i in range(99)])
        last = int(dev[-1].name[2:])
        names = [f"sw{last + 5 * (i + 1):05d}" for i in range(99)]
        self.set_of("train_dev", dev, "swb1")
        self.set_of("train_nodup", self.calls("train", names), "swb1")
        tests = self.calls("ch", [f"en_{4156 + 14 * i}" for i in range(99)])
        tests += self.calls("swb", [f"sw_{4390 + 94 * i}" for i in range(99)])
        self.eval2000(tests)
        self.dictionary()
        self.alignments()
        self.language_models()
        return self

    def calls(self, name: str, names: list[str]) -> list[Call]:
        """The recordings of a set of the corpus, renamed."""
        data = DataDir.read(self.corpus / "data" / name)
        files = sorted({file for file, _ in data.channels.values()})
        found = []
        for file, new in zip(files, names, strict=False):
            sides: dict[str, list[Utterance]] = {"A": [], "B": []}
            for utterance in sorted(data, key=lambda u: u.start):
                its, channel = data.file_and_channel(utterance)
                if its == file:
                    sides[channel].append(utterance)
            found.append(Call(new, Path(data.recordings[f"{file}-A"]), sides))
        return found

    def sphere(self, call: Call, folder: str) -> Path:
        """Write the two channels as a mu-law Sphere file."""
        samples, rate = soundfile.read(call.audio, dtype="int16")
        assert rate == RATE and samples.shape[1] == 2
        coded = io.BytesIO()
        soundfile.write(coded, samples, RATE, format="RAW", subtype="ULAW")
        fields = [
            "NIST_1A", "   1024", f"sample_count -i {len(samples)}", "sample_n_bytes -i 1",
            "channel_count -i 2", "sample_byte_format -s1 1", f"sample_rate -i {RATE}",
            "sample_coding -s4 ulaw", "end_head", "",
        ]  # fmt: skip
        path = self.root / "corpora" / folder / f"{call.name}.sph"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("\n".join(fields).encode().ljust(1024) + coded.getvalue())
        return path

    def sides(self, calls: list[Call], folder: str, out: Path) -> Iterator[tuple[Call, str, str]]:
        """Write wav.scp and reco2file_and_channel; yields call, channel and recording."""
        pipes, files = {}, {}
        for call in calls:
            sphere = self.sphere(call, folder)
            for number, channel in enumerate("AB", 1):
                side = f"{call.name}-{channel}"
                pipes[side] = f"{self.sph2pipe} -f wav -p -c {number} {sphere} |"
                files[side] = f"{call.name} {channel}"
                yield call, channel, side
        write_table(out / "wav.scp", pipes)
        write_table(out / "reco2file_and_channel", files)

    def set_of(self, name: str, calls: list[Call], folder: str) -> None:
        """Training speech, as swbd1_data_prep.sh prepares it: every side is a speaker."""
        out = self.root / "data" / name
        tables: dict[str, dict[str, str]] = {t: {} for t in ("segments", "text", "utt2spk")}
        for call, channel, side in self.sides(calls, folder, out):
            for count, each in enumerate(call.sides[channel]):
                assert each.end is not None
                utterance = f"{side}_{100 * each.start:06.0f}-{100 * each.end:06.0f}"
                words = [ACRONYM[1] if word == ACRONYM[0] else word for word in each.words]
                noise = [NOISES[count // 3 % len(NOISES)]] if count % 3 == 0 else []
                tables["segments"][utterance] = f"{side} {each.start:g} {each.end:g}"
                tables["text"][utterance] = " ".join([*words, *noise])
                tables["utt2spk"][utterance] = side
        self.write(out, tables)

    def eval2000(self, calls: list[Call]) -> None:
        """The test set, as eval2000_data_prep.sh prepares it: transcripts are the stm's."""
        out = self.root / "data/eval2000"
        tables: dict[str, dict[str, str]] = {t: {} for t in ("segments", "text", "utt2spk")}
        stm = []
        for call, channel, side in self.sides(calls, "hub5e_00/english", out):
            kind, end = call.name[:2], 0.0
            label = f"<O,{kind},F,{kind}-F>"
            for each in call.sides[channel]:
                assert each.end is not None
                begin, end = each.start, each.end
                words = " ".join(map(_reference, each.words))
                utterance = f"{side}_{100 * begin:06.0f}-{100 * end:06.0f}"
                tables["segments"][utterance] = f"{side} {max(begin - 0.1, 0):.2f} {end + 0.1:.2f}"
                tables["text"][utterance] = words
                tables["utt2spk"][utterance] = side
                speaker = f"{call.name}_{channel}"
                stm.append(
                    (
                        call.name,
                        channel,
                        begin,
                        end,
                        f"{speaker} {begin:.2f} {end:.2f} {label}  {words}",
                    )
                )
            ignored = f"{call.name}_{channel} {end + 0.2:.2f} {end + 0.4:.2f} {label}"
            stm.append(
                (call.name, channel, end + 0.2, end, f"{ignored}  IGNORE_TIME_SEGMENT_IN_SCORING")
            )
        self.write(out, tables)
        lines = [f"{file} {channel} {rest}\n" for file, channel, *_, rest in sorted(stm)]
        (out / "stm").write_text(_STM_HEAD + "".join(lines))
        write_glm(out / "glm")

    @staticmethod
    def write(out: Path, tables: dict[str, dict[str, str]]) -> None:
        """Write tables and spk2utt."""
        speakers: dict[str, list[str]] = {}
        for utterance, speaker in sorted(tables["utt2spk"].items()):
            speakers.setdefault(speaker, []).append(utterance)
        for name, rows in tables.items():
            write_table(out / name, rows)
        write_table(out / "spk2utt", {s: " ".join(ids) for s, ids in speakers.items()})

    @property
    def dict_dir(self) -> Path:
        """Made by swbd1_prepare_dict.sh."""
        return self.root / "data/local/dict_nosp"

    def dictionary(self) -> None:
        """Lower-case words and phones; lexicon.txt is a link, extra_questions.txt is empty."""
        self.dict_dir.mkdir(parents=True)
        words = read_lexicon(self.corpus / "dict/lexicon.txt").words
        lines = {"!sil sil", "<unk> spn", "[vocalized-noise] spn", "[noise] nsn", "[laughter] lau"}
        phones = set()
        for word, pronunciations in words.items():
            for pronunciation in pronunciations:
                if word not in ("<UNK>", "!SIL"):
                    sounds = [phone.lower() for phone in pronunciation]
                    phones |= set(sounds)
                    written = ACRONYM[1] if word == ACRONYM[0] else word
                    lines.add(" ".join([written, *sounds]))
        lines |= {"[laughter-yes] y eh s"} if {"y", "eh", "s"} <= phones else set()
        files = {
            "lexicon5.txt": sorted(lines),
            "silence_phones.txt": ["sil", "spn", "nsn", "lau"],
            "nonsilence_phones.txt": sorted(phones),
            "optional_silence.txt": ["sil"],
            "extra_questions.txt": [],
            "acronyms.map": ["\t".join(["YH", *ACRONYM[1:]]), "I\ti.\ti"],
        }
        for name, content in files.items():
            (self.dict_dir / name).write_text("".join(f"{line}\n" for line in content))
        (self.dict_dir / "lexicon.txt").symlink_to("lexicon5.txt")

    def config(self) -> Path:
        """How the tree's own GMM is trained."""
        stage = {"leaves": 60, "gaussians": 200, "iterations": 8}
        data = str(self.root / "data/train_nodup")
        content = {
            "name": "s5c",
            "corpus": {
                "kind": "kaldi", "train": data, "dev": data, "tests": {"t": data},
                "dict_dir": str(self.dict_dir), "allow_pipes": True,
            },
            "lang": {"position_dependent": True},
            "alignment": {
                "kind": "sat", "mono": {"gaussians": 120, "iterations": 10}, "tri": stage,
                "lda_mllt": {**stage, "dim": 20}, "sat": stage, "max_failed": 0.2,
                "min_speaker_frames": 200,
            },
        }  # fmt: skip
        path = self.root / "tree.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def alignments(self) -> None:
        """data/lang and exp/tri4_ali_nodup: LDA+MLLT+SAT, alignments of train_nodup alone."""
        common = ["--config", str(self.config())]
        lang, gmm = self.root / "data/lang", self.root / "exp"
        data = ["--data", str(self.root / "data/train_nodup")]
        feats = self.root / "mfcc"
        run("lang", *common, "--dict", str(self.dict_dir), "--out", str(lang))
        run("features", *common, *data, "--stream", "mfcc", "--out", str(feats), "--jobs", "1")
        before: list[str] = []
        for stage, folder in (
            ("mono", "mono"),
            ("tri", "tri2"),
            ("lda-mllt", "tri3"),
            ("sat", "tri4"),
        ):
            out = ["--out", str(gmm / folder), "--jobs", "1"]
            run(stage, *common, *data, "--feats", str(feats), "--lang", str(lang), *before, *out)
            before = ["--ali", str(gmm / folder)]
        ali = gmm / "tri4_ali_nodup"
        shutil.copytree(gmm / "tri4", ali)
        items = list(iterate(ali / "ali.1.gz", "ints"))
        half = len(items) // 2
        for number, part in enumerate((items[:half], items[half:]), 1):
            write_archive(ali / f"ali.{number}.gz", part)
        (ali / "num_jobs").write_text("2\n")
        for name in ("alignment.json", "scores.txt", "fits.txt", "final.occs"):
            (ali / name).unlink(missing_ok=True)

    def language_models(self) -> None:
        """data/local/lm, as swbd1_train_lms.sh leaves it: a trigram of the transcripts, and a
        4-gram of much more text."""
        folder = self.root / "data/local/lm"
        folder.mkdir(parents=True)
        more = (self.corpus / "lm/train.txt").read_text().splitlines()
        table = (self.root / "data/train_nodup/text").read_text().splitlines()
        said = [line.split(maxsplit=1)[1] for line in table]
        more = [
            " ".join(ACRONYM[1] if w == ACRONYM[0] else w for w in line.split()) for line in more
        ]
        for name, order, lines in (("sw1", 3, said + more[::3]), ("sw1_fsh", 4, said + more)):
            text = folder / f"{name}.text"
            text.write_text("".join(f"{line}\n" for line in lines))
            words = Vocabulary.of_lang(self.root / "data/lang")
            train(text, words, order, folder / f"{name}.o{order}g.kn.gz")


def run(*arguments: str) -> None:
    """A command of the project, in this process."""
    if main(list(arguments)):
        raise RuntimeError(f"hadpsgd {' '.join(arguments)} failed")


def _reference(word: str) -> str:
    """A word as NIST's references of eval2000 have it."""
    if word in HESITATIONS:
        return "(%HESITATION)"
    return ACRONYM[2].upper() if word == ACRONYM[0] else word.upper()


if __name__ == "__main__":
    Tree(Path(sys.argv[2]).absolute(), Path(sys.argv[1]).absolute()).make()
