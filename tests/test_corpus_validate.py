"""The validator names every fault: one healthy directory, spoiled in one way at a time."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import RATE, make_data, replace_line, tone, write_lines

from hadpsgd.cli import main
from hadpsgd.corpus.dictdir import Lexicon, read_lexicon
from hadpsgd.corpus.validate import Checks, validate
from hadpsgd.errors import UserError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path)


def faults(data: Path, *, allow_pipes: bool = False) -> list[str]:
    found: list[UserError] = []
    lexicon = read_lexicon(data.parents[1] / "lexicon.txt", found.append)
    validate(data, Checks(sample_rate=RATE, lexicon=lexicon, allow_pipes=allow_pipes), found.append)
    return [str(fault) for fault in found]


def wav(data: Path) -> Path:
    return data.parents[1] / "audio" / "call.wav"


def test_healthy(data: Path) -> None:
    found: list[UserError] = []
    summary = validate(
        data, Checks(sample_rate=RATE, lexicon={"hello", "bob", "bye", "hi", "ann"}), found.append
    )
    assert not found
    assert (summary.utterances, summary.speakers, summary.recordings) == (4, 2, 2)
    assert (summary.words, summary.vocabulary, summary.oov) == (7, 5, 0)
    assert summary.seconds == pytest.approx(1.75 + 1.5 + 1 + 4.99)


def test_a_folder_without_utterances(data: Path) -> None:
    """Its files are all there, and empty."""
    for file in data.iterdir():
        file.write_text("")
    assert faults(data) == [f"{data}: no utterances. Name a Kaldi data directory"]


def truncate(data: Path) -> None:
    content = wav(data).read_bytes()
    wav(data).write_bytes(content[:-100])


def truncate_header(data: Path) -> None:
    wav(data).write_bytes(wav(data).read_bytes()[:30])


def other_rate(data: Path) -> None:
    soundfile.write(wav(data), np.zeros((160000, 2), dtype=np.int16), 16000)


def not_audio(data: Path) -> None:
    wav(data).write_bytes(b"<html>not found</html>" * 10)


def crlf(data: Path) -> None:
    path = data / "text"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def latin1(data: Path) -> None:
    (data / "text").write_bytes("ann-1 caf\xe9\n".encode("latin-1"))


def unsorted(data: Path) -> None:
    lines = (data / "utt2spk").read_text().splitlines()
    write_lines(data / "utt2spk", [lines[1], lines[0], *lines[2:]])


def speakers_unsorted(data: Path) -> None:
    (data / "spk2utt").unlink()
    write_lines(data / "utt2spk", ["ann-1 x", "ann-2 x", "bob-1 b", "bob-2 b"])
    write_lines(data / "spk2gender", ["b m", "x f"])


def line(name: str, old: str, new: str | None) -> Callable[[Path], None]:
    return lambda data: replace_line(data / name, old, new)


CASES: list[tuple[str, Callable[[Path], object], list[str]]] = [
    ("missing wav", lambda d: wav(d).unlink(), ["missing audio file"] * 2),
    (
        "relative",
        line("wav.scp", "call-A audio/call.wav", "call-A call.wav"),
        ["/call.wav: missing audio file. Correct wav.scp (docs/corpora.md says where relative"],
    ),
    (
        "a name that no file can have",
        line("wav.scp", "call-A audio/call.wav", f"call-A audio/{300 * 'x'}.wav"),
        ["x.wav: missing audio file"],
    ),
    ("truncated wav", truncate, ["100 of 320000 bytes are missing"] * 2),
    ("cut in the header", truncate_header, ["truncated audio: no data chunk"] * 2),
    ("empty wav", lambda d: wav(d).write_bytes(b""), ["truncated audio: empty file"] * 2),
    (
        "wrong rate",
        other_rate,
        ["sample rate 16000 Hz instead of 8000. Resample it or set features.sample_rate: 16000"],
    ),
    ("not audio", not_audio, ["not readable as audio"] * 2),
    ("a pipe", line("wav.scp", "call-A audio/call.wav", "call-A cat x |"), ["is not run"]),
    ("empty transcript", line("text", "ann-2 bye", "ann-2"), ["empty transcript of utterance"]),
    ("no transcript", line("text", "ann-2 bye", None), ["no transcript of 'ann-2'"]),
    ("word", line("text", "ann-2 bye", "ann-2 zzz zzz"), ["'zzz' is not in the lexicon (2 times)"]),
    ("reserved word", line("text", "ann-2 bye", "ann-2 <s>"), ["word '<s>' is reserved"]),
    (
        "no speaker",
        line("utt2spk", "bob-1 bob", None),
        ["utterance without speaker 'bob-1'", "unknown utterance 'bob-1'", "gives 'bob-1' to"],
    ),
    (
        "empty speaker",
        line("utt2spk", "ann-1 ann", "ann-1"),
        ["utterance without speaker 'ann-1'", "speaker '' is missing", "utt2spk to ''"],
    ),
    (
        "duplicate utterance",
        line("utt2spk", "ann-2 ann", "ann-2 ann\nann-2 ann"),
        ["utt2spk:3: duplicate id 'ann-2'"],
    ),
    (
        "duplicate transcript",
        line("text", "ann-2 bye", "ann-2 bye\nann-2 hello"),
        ["text:3: duplicate id 'ann-2'"],
    ),
    ("unsorted", unsorted, ["utt2spk:2: unsorted: 'ann-1' after 'ann-2'"]),
    ("unsorted speakers", speakers_unsorted, ["speaker 'x' sorts after 'b'"]),
    ("CRLF", crlf, ["text:1: CRLF line ends"]),
    ("empty line", line("text", "ann-2 bye", "\nann-2 bye"), ["text:2: empty line"]),
    (
        "white space",
        line("text", "ann-1 hello bob", "ann-1 hello\xa0bob"),
        ["text:1: white space U+00A0"],
    ),
    (
        "beyond the end",
        line("segments", "bob-2 call-B 5 9.99", "bob-2 call-B 5 10.9"),
        ["utterance bob-2: segment 5.00-10.90 s is beyond the end of recording call-B (10.00 s)"],
    ),
    (
        "starts after the end",
        line("segments", "bob-2 call-B 5 9.99", "bob-2 call-B 12 12.2"),
        ["is beyond the end"],
    ),
    (
        "backwards",
        line("segments", "bob-2 call-B 5 9.99", "bob-2 call-B 5 4"),
        ["bad segment 'call-B 5 4'", "unknown utterance 'bob-2'"],
    ),
    (
        "no number",
        line("segments", "bob-2 call-B 5 9.99", "bob-2 call-B five 9"),
        ["bad segment 'call-B five 9'", "unknown utterance 'bob-2'"],
    ),
    (
        "too short",
        line("segments", "bob-2 call-B 5 9.99", "bob-2 call-B 5 5.02"),
        ["only 20 ms of audio"],
    ),
    (
        "unknown recording",
        line("segments", "bob-2 call-B 5 9.99", "bob-2 call-C 5 9.99"),
        ["unknown recording 'call-C'", "unknown utterance 'bob-2'"],
    ),
    (
        "empty segments",
        lambda d: (d / "segments").write_text(""),
        ["unknown utterance"] * 4,
    ),
    (
        "empty wav.scp",
        lambda d: (d / "wav.scp").write_text(""),
        ["segments: utterance"] * 4 + ["unknown utterance"] * 4 + ["unknown recording"] * 2,
    ),
    (
        "utterance without segment",
        line("segments", "bob-2 call-B 5 9.99", None),
        ["unknown utterance 'bob-2' (not in segments)"],
    ),
    (
        "channel not there",
        line("reco2file_and_channel", "call-B call B", "call-B call C"),
        ["channel 3 of a recording with 2"] * 2,
    ),
    (
        "channel not said",
        lambda d: (d / "reco2file_and_channel").unlink(),
        ["recording call-A has 2 channels and nothing says which"] * 2
        + ["recording call-B has 2 channels and nothing says which"] * 2,
    ),
    (
        "channel nonsense",
        line("reco2file_and_channel", "call-B call B", "call-B call left"),
        ["bad line 'call-B call left'", "'call-B' is missing"]
        + ["recording call-B has 2 channels"] * 2,
    ),
    (
        "recording nonsense",
        line("reco2file_and_channel", "call-B call B", "call-B call B\ncall-C call A"),
        ["unknown recording 'call-C'"],
    ),
    ("gender", line("spk2gender", "bob m", "bob x"), ["speaker 'bob': 'x'"]),
    ("gender missing", line("spk2gender", "bob m", None), ["speaker 'bob' is missing"]),
    ("gender extra", line("spk2gender", "bob m", "bob m\nzoe f"), ["unknown speaker 'zoe'"]),
    (
        "spk2utt",
        line("spk2utt", "bob bob-1 bob-2", "bob bob-1 bob-9"),
        ["'bob-9' to 'bob'", "lacks"],
    ),
    (
        "spk2utt lacks one",
        line("spk2utt", "bob bob-1 bob-2", "bob bob-1"),
        ["spk2utt: lacks utterance 'bob-2'"],
    ),
]


@pytest.mark.parametrize(("spoil", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_fault_is_named(data: Path, spoil: Callable[[Path], object], expected: list[str]) -> None:
    spoil(data)
    found = faults(data)
    assert len(found) == len(expected), found
    assert all(any(part in fault for fault in found) for part in expected), found
    assert all(any(part in fault for part in expected) for fault in found), found
    assert "\n" not in "".join(found)


def test_not_utf8(data: Path) -> None:
    latin1(data)
    assert any("text:1: not UTF-8" in fault for fault in faults(data))


def test_all_faults_are_named_together(data: Path) -> None:
    truncate(data)
    crlf(data)
    replace_line(data / "segments", "bob-2 call-B 5 9.99", "bob-2 call-B 5 4")
    found = " ".join(faults(data))
    for part in ("CRLF", "bytes are missing", "bad segment"):
        assert part in found


def test_length_unknown_to_the_writer_of_a_pipe(data: Path) -> None:
    content = bytearray(wav(data).read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = struct.pack("<I", 0x7FFFFFFF)
    wav(data).write_bytes(bytes(content))
    assert not faults(data)


def test_truncated_output_of_a_command(data: Path) -> None:
    """But for a little, of which programs guess wrong: sox the length of MP3, short ones, too."""
    scp, audio = data / "wav.scp", wav(data)
    for missing, wrong in ((100, False), (4608, False), (160_000, True)):
        lines = [f"call-{c} head -c -{missing} {audio} |" for c in "AB"]
        write_lines(scp, lines)
        found = faults(data, allow_pipes=True)
        told = "the output of the command is truncated: 160000 of 320000 bytes are missing"
        assert all(told in fault for fault in found) and bool(found) == wrong


def test_truncated_flac(data: Path) -> None:
    place = wav(data).with_name("call.flac")
    noise = np.random.default_rng(1).normal(0, 0.1, 10 * RATE)
    soundfile.write(place, noise, RATE, format="FLAC", subtype="PCM_16")
    write_lines(data / "wav.scp", ["call-A audio/call.flac", "call-B audio/call.flac"])
    assert not faults(data)
    content = place.read_bytes()
    place.write_bytes(content[: len(content) // 2])
    assert all("audio" in fault and "call.flac" in fault for fault in faults(data))
    assert len(faults(data)) == 2


@pytest.mark.parametrize("times", ["nan 4.99", "0 nan", "0 inf", "inf -1", "-1 4.99"])
def test_times_that_are_no_numbers(data: Path, times: str) -> None:
    replace_line(data / "segments", "bob-2 call-B 5 9.99", f"bob-2 call-B {times}")
    assert any(f"utterance 'bob-2': bad segment 'call-B {times}'" in f for f in faults(data))


def test_a_recording_without_samples(data: Path) -> None:
    soundfile.write(wav(data), np.zeros((0, 2), dtype=np.int16), RATE)
    assert all("has no samples" in fault for fault in faults(data))
    assert faults(data)


def test_a_byte_order_mark_is_named(data: Path) -> None:
    for name in ("text", "wav.scp", "utt2spk"):
        path = data / name
        content = path.read_bytes()
        path.write_bytes(b"\xef\xbb\xbf" + content)
        assert [f for f in faults(data) if f"{name}:1: a byte order mark" in f] == faults(data)
        path.write_bytes(content)


def test_truncated_sphere(data: Path) -> None:
    place = wav(data).with_name("call.sph")
    soundfile.write(place, tone(10), RATE, format="NIST", subtype="PCM_16")
    write_lines(data / "wav.scp", ["call-A audio/call.sph", "call-B audio/call.sph"])
    assert not faults(data)
    place.write_bytes(place.read_bytes()[:-1000])
    assert all("1000 of 160000 bytes are missing" in fault for fault in faults(data))


def test_lexicon_faults(tmp_path: Path) -> None:
    write_lines(tmp_path / "lexicon.txt", ["a AX", "b", "a AX", "<s> SIL"])
    found: list[UserError] = []
    read_lexicon(tmp_path / "lexicon.txt", found.append)
    assert [str(f).split(": ", 1)[1] for f in found] == [
        "word 'b' has no phones. Write: word phones",
        "pronunciation of 'a' twice. Remove one",
        "word '<s>' is reserved. Remove it",
    ]


@pytest.mark.parametrize("phone", ["<eps>", "#1", "#nonterm"])
def test_phones_that_are_symbols_of_graphs(
    data: Path, capsys: pytest.CaptureFixture[str], phone: str
) -> None:
    """Only `hadpsgd lang` refused them, with a file that the user had not written."""
    lexicon = data.parents[1] / "lexicon.txt"
    write_lines(lexicon, ["ann AE N", "bob B", "bye B AY", f"hello HH {phone}", "hi HH"])
    told = f"{lexicon}:4: '{phone}' of word 'hello' cannot be a phone: reserved. Rename it"
    main(["validate", str(data), "--lexicon", str(lexicon)])
    assert told in capsys.readouterr().err.splitlines()
    sets = {"train": str(data), "dev": str(data), "tests": {"eval": str(data)}}
    corpus = {"kind": "kaldi", **sets, "dict_dir": str(lexicon)}
    config = data.parents[1] / "c.yaml"
    config.write_text(json.dumps({"name": "c", "corpus": corpus}))
    out = str(data.parents[1] / "out")
    assert main(["corpus", "--config", str(config), "--out", out]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "entry", "told"),
    [
        ("cafe\u0301", "caf\u00e9", "it has U+0301, and 'caf\u00e9' there U+00E9"),
        ("caf\u00e9", "cafe\u0301", "it has U+00E9, and 'cafe\u0301' there U+0301"),
        ("he\u200bllo", "hello", "it has U+200B, and 'hello' there ASCII alone"),
        ("hello", "hello\ufeff", "it has ASCII alone, and 'hello\ufeff' there U+FEFF"),
        ("CAFE\u0301", "caf\u00e9", "it has U+0301, and 'caf\u00e9' there U+00E9"),
    ],
)
def test_words_that_look_like_one_of_the_lexicon(
    data: Path, word: str, entry: str, told: str
) -> None:
    lexicon = Lexicon({each: [("SPN",)] for each in ("ann", "bob", "bye", "hi", "hello", entry)})
    if word == "hello":
        del lexicon.words["hello"]
    write_lines(data / "text", ["ann-1 bye bob", "ann-2 bye", "bob-1 hi ann", f"bob-2 bye {word}"])
    found: list[UserError] = []
    checks = Checks(sample_rate=RATE, lexicon=lexicon, case="lower" if word.isupper() else "as-is")
    validate(data, checks, found.append)
    assert [str(fault).partition("utterance ")[2].partition(". ")[0] for fault in found] == [
        f"bob-2: word '{word}' is not in the lexicon (1 time) as it is written: {told}"
    ]


def test_oov_within_the_limit_is_counted(data: Path) -> None:
    found: list[UserError] = []
    lexicon = {"hello", "bob", "bye", "hi"}
    summary = validate(data, Checks(sample_rate=RATE, lexicon=lexicon, max_oov=0.2), found.append)
    assert (summary.oov, found) == (1, [])
    for limit, faults in ((1 / 7, 0), (1 / 7 - 1e-9, 1)):  # a share that is allowed may be reached
        found.clear()
        validate(data, Checks(sample_rate=RATE, lexicon=lexicon, max_oov=limit), found.append)
        assert len(found) == faults
