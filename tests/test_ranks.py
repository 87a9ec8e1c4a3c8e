"""The ranks of one host: logs, signals, exit statuses, replacements, orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rank_scripts import DIES, KILL, PATIENCE, STOPS_AT_A_SIGNAL, ranks
from slurm_cluster import until

from hadpsgd.locks import locked
from hadpsgd.training.ranks import Ranks
from hadpsgd.training.succession import ALIKE, JOIN_SECONDS


def test_each_rank_has_its_place_and_its_log(tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE"
    show = f"import os; print(*(os.environ[n] for n in '{names}'.split()))"
    started = Ranks([sys.executable, "-S", "-c", show], {}, range(2, 4), 4, tmp_path)
    assert started.run() == 0
    for rank in (2, 3):
        *_, last = (tmp_path / f"rank-{rank}.log").read_text().splitlines()
        assert last == f"{rank} {rank - 2} 4 2"


def test_bad_input_counts_whoever_else_dies_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("ranks", "crew"):
        monkeypatch.setattr(f"hadpsgd.training.{module}.SETTLE_SECONDS", PATIENCE)
    script = f"""
import os, sys, time
if os.environ['RANK'] == '0': print('lost rank 1'); sys.exit(7)
if os.environ['RANK'] == '1': time.sleep(0.5); print('the data are bad'); sys.exit(2)
{STOPS_AT_A_SIGNAL}"""
    started = ranks(tmp_path, script)
    assert started.run() == 2 and started.refused
    said = capsys.readouterr().err
    assert "rank 1: the data are bad" in said
    assert "failed" not in said


def test_a_second_attempt_appends_to_the_logs(tmp_path: Path) -> None:
    for word in ("first", "second"):
        assert ranks(tmp_path, f"print('{word}')", 1).run() == 0
    text = (tmp_path / "rank-0.log").read_text()
    assert text.index("first") < text.index("second")


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("pass", 0),
        ("import os, sys; sys.exit(75)", 75),
        ("import os, sys; sys.exit(2 if os.environ['RANK'] == '1' else 0)", 2),
        ("import os, sys; sys.exit(7 if os.environ['RANK'] == '1' else 0)", 1),
        ("import os; os.environ['RANK'] == '2' and os.kill(os.getpid(), 9)", 1),
    ],
)
def test_exit_status(script: str, status: int, tmp_path: Path) -> None:
    assert ranks(tmp_path, script).run() == status


def test_rank_0_and_the_last_words_of_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "import os, sys; r = os.environ['RANK']; print('hello from', r);"
        "sys.exit('no such phone' if r == '2' else 0)"
    )
    assert ranks(tmp_path, script).run() == 1
    shown = capsys.readouterr().err
    assert "hello from 0" in shown
    assert "hello from 1" not in shown
    assert "rank 2: no such phone" in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_reaches_every_rank(number: signal.Signals, tmp_path: Path) -> None:
    started = ranks(tmp_path, STOPS_AT_A_SIGNAL)

    def send() -> None:
        logs = [tmp_path / f"rank-{rank}.log" for rank in range(3)]
        until(lambda: all(f.is_file() and "ready" in f.read_text() for f in logs), PATIENCE)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    assert started.run() == 75
    sender.join()


HEARS_OF_IT_LATE = """
import os, signal, sys, time
print('started', flush=True)
time.sleep(0.5)  # slow imports
from hadpsgd.training import interrupt
interrupt.catch()
time.sleep(0.5)  # meeting the others
heard = []
with interrupt.Interrupt(lambda: heard.append(1)):
    for _ in range(3000):
        heard or time.sleep(0.1)
os.kill(os.getpid(), signal.SIGUSR1)  # while it is leaving
os.kill(os.getpid(), signal.SIGTERM)
sys.exit(75 if len(heard) == 1 else 3)
"""


@pytest.mark.parametrize("moment", [0.1, 0.9])
def test_a_signal_before_training_and_more_after_it(moment: float, tmp_path: Path) -> None:
    """While ranks import and meet it is kept; while they leave it changes nothing."""
    started = Ranks([sys.executable, "-c", HEARS_OF_IT_LATE], {}, range(2), 2, tmp_path)
    logs = [tmp_path / f"rank-{rank}.log" for rank in range(2)]

    def send() -> None:
        until(lambda: all(log.is_file() and "started" in log.read_text() for log in logs), PATIENCE)
        time.sleep(moment)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    assert started.run() == 75
    sender.join()


def test_bad_input_of_one_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hadpsgd.training.ranks.GRACE_SECONDS", 0.5)
    script = "import os, sys, time; sys.exit(2) if os.environ['RANK'] == '1' else time.sleep(900)"
    assert ranks(tmp_path, script).run() == 2


def test_a_dead_rank_is_replaced_by_a_newcomer(tmp_path: Path) -> None:
    script = DIES.format(folder=str(tmp_path), times=1, end=KILL)
    assert ranks(tmp_path, script, alone=True, replacements=1).run() == 0
    assert "lived" in (tmp_path / "rank-1.log").read_text()


def test_the_others_go_on_without_a_dead_rank(tmp_path: Path) -> None:
    script = DIES.format(folder=str(tmp_path), times=1, end=KILL)
    assert ranks(tmp_path, script, alone=True).run() == 1
    assert "lived" in (tmp_path / "rank-2.log").read_text()


@pytest.mark.parametrize(("end", "times"), [("sys.exit(7)", ALIKE), (KILL, 5)])
def test_a_rank_that_always_crashes_alike_is_given_up(
    end: str, times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is killed from outside is started again as often as is allowed."""
    script = DIES.format(folder=str(tmp_path), times=times, end=end)
    assert ranks(tmp_path, script, alone=True, replacements=4).run() == 1
    assert (tmp_path / "rank-1.log").read_text().count("\ndying") == times
    given_up = "rank 1 failed (status 7) 3 times: the others go on" in capsys.readouterr().err
    assert given_up == (times == ALIKE)


def test_who_cannot_go_on_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = f"import os, time\nif os.environ['RANK'] == '1': {KILL}\ntime.sleep(900)"
    started = ranks(tmp_path, script, needs_all="every step of ssgd needs all")
    assert started.run() == 1
    said = "rank 1 failed (SIGKILL), and so the others end (every step of ssgd needs all); log: "
    assert said in capsys.readouterr().err


def test_a_signal_between_the_starts_reaches_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were not there yet when it came are told, too."""
    started = ranks(tmp_path, STOPS_AT_A_SIGNAL)
    start = started._start

    def start_one(number: int, **how: Any) -> None:
        if number == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        start(number, **how)

    monkeypatch.setattr(started, "_start", start_one)
    assert started.run() == 75
    codes = [rank.code for rank in started.crew.ranks.values()]
    assert 0 not in codes and len(codes) == 3


def test_without_others_nobody_joins(tmp_path: Path) -> None:
    assert JOIN_SECONDS > 1
    script = "import os; os.kill(os.getpid(), 9)"
    assert ranks(tmp_path, script, alone=True, replacements=10).run() == 1


def test_a_death_ends_all_where_they_cannot_go_on(tmp_path: Path) -> None:
    script = "import os, time; os.environ['RANK'] == '1' and os.abort(); time.sleep(900)"
    assert ranks(tmp_path, script).run() == 1


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child of this")
def test_kill_9_leaves_no_orphan_and_the_lock_is_free_only_then(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from pathlib import Path
from test_ranks import STOPS_AT_A_SIGNAL, ranks
from hadpsgd.locks import locked
slow = STOPS_AT_A_SIGNAL.replace("sys.exit(75)", "(time.sleep(1), print('ended'), sys.exit(75))")
with locked(Path({str(tmp_path / "lock")!r}), "the first") as lock:
    ranks(Path({str(tmp_path / "logs")!r}), "import os; print(os.getpid());" + slow,
          descriptors=[lock]).run()
"""
    head = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    logs = [tmp_path / "logs" / f"rank-{rank}.log" for rank in range(3)]
    until(lambda: all(log.is_file() and "ready" in log.read_text() for log in logs), PATIENCE)
    head.kill()
    head.wait()
    with locked(tmp_path / "lock", "the second", wait=True):
        assert all("ended" in log.read_text() for log in logs)
    pids = [int(log.read_text().splitlines()[1]) for log in logs]
    until(lambda: not any(map(alive, pids)), PATIENCE)
