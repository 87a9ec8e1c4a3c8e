"""Tables that `hadpsgd init` reads: of spreadsheets, and faulty ones, each told in a line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import write_lines
from init_data import corpus, init, said, spoil, table, tone


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_tables_of_spreadsheets(tmp_path: Path, separator: str) -> None:
    path = table(tmp_path, separator=separator)
    head, _, rest = path.read_text().partition("\n")
    upper = head.replace("file", "PATH").replace("text", " Sentence ")
    for_excel = f"sep={separator}\n" if separator == ";" else ""
    whole = f"{for_excel}{upper}\n{rest}\n\n".replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + whole.encode())
    assert init(tmp_path, "--csv", str(path)) == 0
    _, _, out = corpus(tmp_path)
    assert sum(len(said(out, name)) for name in ("train", "dev", "test")) == 12


BAD = {
    "no column": (1, "name,words,speaker", "takes.csv:1: no column file and no column text"),
    "column twice": (1, "file,text,path", "'file' and 'path' are both the column file"),
    "missing": (2, "my takes/none.wav,on,Ann", "takes.csv:2: .*: missing.* begin at its folder"),
    "no audio": (2, "takes.csv,on,Ann", "takes.csv:2: .*not readable as audio"),
    "folder": (2, "my takes,on,Ann", "takes.csv:2: .*missing audio file"),
    "no text": (3, "my takes/Bob take 01.wav,,Bob", "takes.csv:3: no text for Bob take 01.wav"),
    "no word": (3, "my takes/Bob take 01.wav,--,Bob", "takes.csv:3: no word in '--'"),
    "no file": (3, ",on,Bob", "takes.csv:3: no file is named"),
    "no speaker": (3, "my takes/Bob take 01.wav,on,", "takes.csv:3: no speaker"),
    "reserved": (3, "my takes/Bob take 01.wav,<s> on,Bob", "takes.csv:3: word '<s>' is reserved"),
    "twice": (3, "my takes/../my takes/Ann take 00.wav,on,Ann", "takes.csv:3: .*in line 2 already"),
    "quote": (3, 'my takes/Bob take 01.wav,"on,Bob', r"takes.csv:3: a quotation .* to line 4\."),
    "comma": (3, "my takes/Bob take 01.wav,on, off,Bob", "takes.csv:3: 4 columns instead of 3"),
}  # fmt: skip


@pytest.mark.parametrize("line, new, message", BAD.values(), ids=BAD)
def test_a_bad_table_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: int, new: str, message: str
) -> None:
    path = table(tmp_path)
    spoil(path, line, new)
    assert init(tmp_path, "--csv", str(path)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and re.search(message, told[0]), told
    assert not (tmp_path / "c.yaml").exists() and not (tmp_path / "data").exists()


def test_every_fault_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    for rows, rate in (
        (np.zeros((800, 2), np.int16), 8000),
        (tone(4000), 4000),
        (tone(8000)[:90], 8000),
    ):
        soundfile.write(tmp_path / f"{rate}-{rows.size}.wav", rows, rate)
    (tmp_path / "b").mkdir()
    soundfile.write(tmp_path / "b" / "Ann take 00.wav", tone(16000), 16000)
    cut = tmp_path / "cut.wav"
    cut.write_bytes((tmp_path / "b" / "Ann take 00.wav").read_bytes()[:-500])
    added = ("8000-1600.wav", "4000-4000.wav", "8000-90.wav", "b/Ann take 00.wav", "cut.wav")
    with path.open("a") as stream:
        stream.writelines(f"{name},on,Ann\n" for name in added)
        stream.write("none.wav,,A nn\n")
    assert init(tmp_path, "--csv", str(path)) == 2
    *told, last = capsys.readouterr().err.splitlines()
    assert f"{len(told)} faults, the first: {path}:19: no text" in last
    for line, message in (
        (14, "2 channels"),
        (15, "4000 Hz; at least 8000"),
        (16, "only 11 ms"),
        (17, "would both be the utterance Ann-Ann_take_00"),
        (18, "truncated"),
        (19, "no text"),
        (19, "missing audio"),
    ):
        assert any(each.startswith(f"{path}:{line}: ") and message in each for each in told), (
            message
        )
    assert len(told) == 7


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("last", ['{}\t"on, off\tAnn', '{}\ton\t"Ann', '"{}\ton\tAnn'])
def test_the_last_line_has_an_open_quotation_mark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: str, end: str
) -> None:
    """No line is left that it could take in."""
    path = table(tmp_path, separator="\t")
    lines = path.read_text().splitlines()
    lines[-1] = last.format("my takes/Dan take 11.wav")
    path.write_bytes(("\n".join(lines) + end).encode())
    assert init(tmp_path, "--csv", str(path)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert 'takes.csv:13: a quotation mark (") is not closed. Close it in its line' in told[0]


def test_a_quotation_mark_takes_in_a_large_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More than csv takes for one field."""
    path = table(tmp_path)
    lines = path.read_text().replace('"', "").splitlines()
    lines[1] = lines[1].replace("Turn", '"Turn')
    write_lines(path, lines + 6000 * [lines[2]])
    assert init(tmp_path, "--csv", str(path)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and 'takes.csv:2: a quotation mark (") takes in all' in told[0]


def test_every_line_has_too_many_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts with commas and no quotes: told as such, not as a table without lines."""
    path = table(tmp_path)
    path.write_text(path.read_text().replace('"', "").replace("Turn", "Please, turn, it"))
    head, *rows = path.read_text().splitlines()
    write_lines(path, [head, *(row for row in rows if "Please" in row)])
    assert init(tmp_path, "--csv", str(path)) == 2
    *told, last = capsys.readouterr().err.splitlines()
    assert len(told) == 8 and "8 faults" in last
    assert all("columns instead of 3" in line for line in told)


def test_one_wrong_value_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    head, *rows = path.read_text().splitlines()
    sets = ["test", "dev", "train", *["trian"] * 7, "", ""]
    write_lines(path, [f"{head},set", *(f"{r},{s}" for r, s in zip(rows, sets, strict=True))])
    assert init(tmp_path, "--csv", str(path)) == 2
    first, second, last = capsys.readouterr().err.splitlines()
    assert first == f"{path}:5: set 'trian', in 7 lines. Write train, dev or test"
    assert second.startswith(f"{path}:12: no set, in 2 lines. Write one into every line")
    assert "2 faults" in last


@pytest.mark.parametrize(
    "content, message",
    [
        ("f\u00fcr".encode("latin-1"), "not UTF-8"),
        (b"", "no column file and no column text: the first line has nothing"),
        (b"file,text\n", "no recordings in it"),
        (b"file,text\0\n", "not a text file"),
    ],
)
def test_what_is_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    assert init(tmp_path, "--csv", str(tmp_path / "t.csv")) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and message in told[0]
