"""Commands in data that may run: none is waited for without end, none takes our input."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from corpus_data import make_data, replace_line, write_lines
from many_open import many_open
from planted import config, feature_files, pipe_audio

from hadpsgd import kaldi_stream, stalled
from hadpsgd.cli import USER_ERROR, main
from hadpsgd.corpus import pipes
from hadpsgd.errors import UserError
from hadpsgd.kaldi_stream import open_pipe


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A healthy data directory `data/train`."""
    make_data(tmp_path)
    return tmp_path


def ended(pid: int) -> bool:
    """Whether a process ends within a minute."""
    for _ in range(60):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.1)
    return False


class TestAudio:
    """Commands in wav.scp."""

    @pytest.mark.parametrize(
        ("endless", "said"),
        [
            ("yes |", "the command prints text, not audio"),
            ("sleep 60 |", "the command printed nothing for 0.5 s"),
            ("head -c 200000 /dev/zero; sleep 60 |", "the command printed nothing for 0.5 s"),
            ("echo; exec >&-; sleep 60 |", "the command ended its output, and ran on for 0.5 s"),
            ("cat /dev/zero |", "the command prints more than 3000000 bytes"),
        ],
    )
    def test_commands_that_never_end(
        self,
        endless: str,
        said: str,
        place: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(stalled, "STALL_SECONDS", 0.5)
        monkeypatch.setattr(pipes, "MOST_BYTES", 3_000_000)
        data = place / "data" / "train"
        replace_line(data / "wav.scp", "call-A audio/call.wav", f"call-A {endless}")
        before = time.monotonic()
        assert main(["validate", str(data), "--allow-pipes"]) == USER_ERROR
        assert time.monotonic() - before < 30
        found = capsys.readouterr().err
        assert f"call-A: {endless}: {said}" in found and "Traceback" not in found

    @pytest.mark.parametrize("beside", ["| cat |", "& |"], ids=["pipe", "shell has ended"])
    def test_all_that_a_command_starts_is_stopped(
        self, beside: str, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They waited on, for ever, for what the first one waits for."""
        monkeypatch.setattr(stalled, "STALL_SECONDS", 0.5)
        data, waiting = place / "data" / "train", f"sh -c 'echo $$ > pid; exec sleep 600' {beside}"
        replace_line(data / "wav.scp", "call-A audio/call.wav", f"call-A {waiting}")
        monkeypatch.chdir(place)
        assert main(["validate", str(data), "--allow-pipes"]) == USER_ERROR
        assert ended(int((place / "pid").read_text()))

    def test_they_do_not_read_what_the_command_line_gets(self, place: Path) -> None:
        """ffmpeg takes keys from there: it ends at a q, and stops as a job of the background."""
        data = place / "data" / "train"
        entry = f"cat - {place / 'audio' / 'call.wav'} |"
        replace_line(data / "wav.scp", "call-A audio/call.wav", f"call-A {entry}")
        call = [sys.executable, "-m", "hadpsgd", "validate", str(data), "--allow-pipes"]
        with subprocess.Popen(call, stdin=subprocess.PIPE) as process:
            try:
                assert process.wait(60) == 0
            finally:
                process.kill()

    def test_beside_many_open_files(self, place: Path) -> None:
        data = pipe_audio(place)
        with many_open():
            assert main(["validate", str(data), "--allow-pipes"]) == 0


class TestImports:
    """Commands for Kaldi's features."""

    @pytest.mark.parametrize(
        ("table", "endless", "said"),
        [
            (False, "yes |", "yes |"),  # blocked where nobody reads on
            (True, "yes |", "yes |"),
            (False, "sleep 60 |", "sleep 60 |: the command printed nothing for 0.5 s"),
            (True, "sleep 60 |", "sleep 60 |: the command printed nothing for 0.5 s"),
            (False, "head -c 20 {archive}; sleep 60 |", "the command printed nothing for 0.5 s"),
            (False, "head -c 9 {archive}; sleep 60 >&- |", "{archive}"),  # not waited for
        ],
    )
    def test_commands_that_never_end(
        self,
        table: bool,
        endless: str,
        said: str,
        place: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(stalled, "STALL_SECONDS", 0.5)
        monkeypatch.setattr(kaldi_stream, "_END_SECONDS", 0.5)
        monkeypatch.setattr(kaldi_stream, "_FAIL_SECONDS", 0.5)
        archive = feature_files(place)["feats"]
        entry = endless.format(archive=archive)
        if table:
            write_lines(place / "one.scp", [f"ann-1 {entry}"])
            entry = str(place / "one.scp")
        imports = {"logmel": {"feats": entry, "cmvn": str(place / "cmvn.scp")}}
        file = config(place, features={"imports": imports, "allow_pipes": True})
        arguments = [
            "--config",
            file,
            "--stream",
            "logmel",
            "--data",
            str(place / "data" / "train"),
        ]
        before = time.monotonic()
        assert main(["import-features", *arguments, "--out", f"{place}/out"]) == USER_ERROR
        assert time.monotonic() - before < 30
        found = capsys.readouterr().err
        assert said.format(archive=archive) in found and "Traceback" not in found

    def test_what_a_command_left_behind_is_stopped(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stalled, "STALL_SECONDS", 0.5)
        monkeypatch.chdir(place)
        waiting = "sh -c 'echo $$ > pid; exec sleep 600' & |"
        with pytest.raises(UserError, match="printed nothing"), open_pipe(waiting, True) as stream:
            stream.key()
        assert ended(int((place / "pid").read_text()))

    def test_a_command_that_nobody_reads_on_is_not_at_fault(
        self, place: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Python's programs end with an error then, as ffmpeg does."""
        feature_files(place)
        (place / "print.py").write_text("while True: print('ann-1 wrong')")
        entry = f"{sys.executable} {place / 'print.py'} 2>{os.devnull} |"
        imports = {"logmel": {"feats": entry, "cmvn": str(place / "cmvn.scp")}}
        file = config(place, features={"imports": imports, "allow_pipes": True})
        arguments = ["--config", file, "--stream", "logmel", "--data", str(place / "data/train")]
        assert main(["import-features", *arguments, "--out", f"{place}/out"]) == USER_ERROR
        said = capsys.readouterr().err
        assert "utterance ann-1: not a float matrix" in said and "status" not in said
