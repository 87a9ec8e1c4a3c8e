"""The LDC's folders of Switchboard-1 and Hub5 2000 in miniature: names, formats and quirks of the
originals around tones and transcripts of our own."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import yaml
from corpus_data import RATE, tone, write_lines

SECONDS = 6
SAID = {
    "sw2001A": [
        "[silence]",
        "hi [laughter-bob] it's [an]n them_1",
        "[noise] I buy IBM's {snacks}",
        "uh-huh",
        "<b_aside> bye <e_aside> [silence]",
        "[laughter]",
    ],
    "sw2001B": ["[silence]", "uh-huh", "[hi/bye] ab[out]- I B M", "uh-huh", "[vocalized-noise]"],
    "sw2005A": ["uh-huh", "bob is I", "[silence]"],
    "sw2005B": ["hi ann", "a bye", "uh-huh"],
}
"""Side to the words of its utterances, one a second."""
WORDS = {
    "uh-huh": "ah hh ah", "hi": "hh ay", "Bob": "b aa b", "bob": "b aa b", "it's": "ih t s",
    "-[an]n": "n", "Ann": "ae n", "ann": "ae n", "them": "dh ah m", "them_1": "eh m", "I": "ay",
    "buy": "b ay", "IBM's": "ay b iy eh m z", "{snacks}": "s n ae k s", "bye": "b ay",
    "ab[out]-": "ae b", "is": "ih z", "a": "ax",
}  # fmt: skip
SCORED = {
    ("sw_4390", "A"): [(0.50, 1.50, "HI BOB"), (1.60, 2.50, "(%HESITATION) I B M")],
    ("sw_4390", "B"): [(1.00, 2.50, "BYE (( ANN )")],
    ("en_4156", "A"): [(0.05, 2.00, "<B_ASIDE> UH-HUH <E_ASIDE>")],
    ("en_4156", "B"): [(3.00, 4.00, "IGNORE_TIME_SEGMENT_IN_SCORING"), (4.5, 5.95, "BYE")],
}
FISHER = [
    "0.50 1.50 A: hi [laugh] bob",
    "1.20 2.00 B: i._b._m. [breath] uh-huh",
    "2.10 3.00 A: (( bye )) bob",
    "3.10 4.00 B: [[skip]]",
    "",
    "4.10 5.00 A: uh-huh",
]
_GLM = ['* name "own"', "* format = 'NIST1'", "* copy_no_hit = 'T'", "[uh] => %HESITATION"]


def write_sphere(path: Path, samples: np.ndarray, coding: str = "ulaw") -> Path:
    """Write int16 samples [samples, channels] as a mu-law Sphere file, its header padded."""
    coded = io.BytesIO()
    soundfile.write(coded, samples, RATE, format="RAW", subtype="ULAW")
    fields = [
        "NIST_1A", "   1024", f"sample_count -i {len(samples)}", "sample_n_bytes -i 1",
        f"channel_count -i {samples.shape[1]}", f"sample_rate -i {RATE}",
        f"sample_coding -s{len(coding)} {coding}", "end_head", "",
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(fields).encode().ljust(1024) + coded.getvalue())
    return path


@dataclass(frozen=True)
class Ldc:
    """The folders."""

    root: Path

    @property
    def transcripts(self) -> Path:
        return self.root / "swb_ms98_transcriptions"

    @property
    def stm(self) -> Path:
        return self.root / "LDC2002T43/reference/hub5e00.english.000405.stm"

    @property
    def pem(self) -> Path:
        return self.root / "LDC2002S09/english/hub5e_00.pem"

    def sphere(self, call: str) -> Path:
        """Where the recording of a call of Switchboard-1 lies."""
        return self.root / f"LDC97S62/swb1d1/{call}.sph"

    def trans(self, side: str) -> Path:
        """Where the transcript of a side lies."""
        name = f"{side}-ms98-a-trans.text"
        return self.transcripts / side[2:4] / side[2:6] / name

    def make(self) -> Ldc:
        """Write all of it."""
        both = np.stack([tone(SECONDS, 440), tone(SECONDS, 880)], axis=1)
        for call in ("sw02001", "sw02005"):
            write_sphere(self.sphere(call), both)
        for side, said in SAID.items():
            self.trans(side).parent.mkdir(parents=True, exist_ok=True)
            lines = [
                f"{side}-ms98-a-{i + 1:04d} {i:.6f} {i + 0.977625:.6f} {words}"
                for i, words in enumerate(said)
            ]
            write_lines(self.trans(side), lines)
        lines = [f"{word} {phones}" for word, phones in WORDS.items()]
        write_lines(self.transcripts / "sw-ms98-dict.text", ["# a dictionary", "", *lines])
        self.eval2000(both)
        for part, call in ((1, "fe_03_00001"), (2, "fe_03_05852")):
            write_sphere(self.root / f"LDC200{3 + part}S13/fe_03_p{part}_sph1/000/{call}.sph", both)
            path = self.fisher(call)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_lines(path, [f"# {call}.sph", "# Transcribed by us", "", *FISHER])
        return self

    def fisher(self, call: str) -> Path:
        """Where the transcript of a call of Fisher lies."""
        part = 1 if call < "fe_03_05850" else 2
        folder = self.root / f"LDC200{3 + part}T19/fe_03_p{part}_tran/data/trans"
        return folder / call[6:9] / f"{call}.txt"

    @property
    def fisher_folders(self) -> dict[str, list[str]]:
        """`corpus.fisher` of both parts."""
        parts = (1, 2)
        return {
            "audio": [str(self.root / f"LDC200{3 + part}S13") for part in parts],
            "transcripts": [str(self.root / f"LDC200{3 + part}T19") for part in parts],
        }

    def eval2000(self, both: np.ndarray) -> None:
        """Speech and pem, stm and GLM."""
        for file in sorted({file for file, _ in SCORED}):
            write_sphere(self.root / f"LDC2002S09/english/{file}.sph", both)
        segments = sorted((*key, *span) for key, spans in SCORED.items() for span in spans)
        write_lines(
            self.pem,
            [";; pem", *(f"{f} {c} unknown_speaker {b:.2f} {e:.2f}" for f, c, b, e, _ in segments)],
        )
        self.stm.parent.mkdir(parents=True)
        stm = [
            f"{f} {c} {f}_{c} {b:.2f} {e:.2f} <O,{f[:2]},F,{f[:2]}-F>  {words}"
            for f, c, b, e, words in segments
        ]
        write_lines(self.stm, [';; LABEL "O" "Overall" "Overall"', *stm])
        write_lines(self.stm.with_name("en20000405_hub5.glm"), _GLM)

    def config(self, path: Path, **more: Any) -> Path:
        """Write a config of them."""
        corpus = {
            "kind": "ldc",
            "switchboard": {
                "audio": str(self.root / "LDC97S62"), "transcripts": str(self.transcripts)
            },
            "eval2000": {
                "audio": str(self.root / "LDC2002S09"),
                "transcripts": str(self.root / "LDC2002T43"),
            },
            "dev_utterances": 2,
            "max_oov": {"default": 0.1, "swb": 0.4},  # b, m: letters of references
        }  # fmt: skip
        path.write_text(yaml.safe_dump({"name": "ldc", "corpus": corpus | more}))
        return path
