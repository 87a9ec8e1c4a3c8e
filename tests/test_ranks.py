"""The ranks of one host: logs, signals, exit statuses, replacements, orphans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import until

from hadpsgd.locks import locked
from hadpsgd.training.ranks import Ranks
from hadpsgd.training.succession import ALIKE, JOIN_SECONDS

STOPS_AT_A_SIGNAL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGUSR1])
print('ready', flush=True)
time.sleep(300)
"""
PATIENCE = 200.0


def ranks(folder: Path, script: str, count: int = 3, **how: Any) -> Ranks:
    """Ranks that run a Python script."""
    folder.mkdir(parents=True, exist_ok=True)
    return Ranks([sys.executable, "-S", "-c", script], {}, range(count), count, folder, **how)


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


# rank 1 dies `times` times; the others live until the head has heard of the last death
DIES = """
import os, sys, time
log = os.path.join({folder!r}, 'rank-1.log')
if os.environ['RANK'] == '1' and open(log).read().count('dying') < {times}:
    print('dying', os.getpid(), flush=True)
    {end}
def deaths():
    lines = open(log) if os.path.exists(log) else []
    return [line.split()[1] for line in lines if line.startswith('dying') and line[-1] == '\\n']
while len(deaths()) < {times} or os.path.exists('/proc/' + deaths()[-1]):
    time.sleep(0.05)
print('lived', flush=True)
"""
KILL = "os.kill(os.getpid(), 9)"


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


# of ranks 2 and 3 one dies in the first life, of the death of the other or of itself; all others
# live until both have come again
TOGETHER = """
import os, sys, time
rank, life = int(os.environ['RANK']), int(os.environ.get('HADPSGD_JOIN', '0'))
print('life', life, flush=True)
def text(rank):
    log = os.path.join({folder!r}, f'rank-{{rank}}.log')
    return open(log).read() if os.path.exists(log) else ''
if rank == 3 and life < {lives}:
    while f'life {{life}}\\n' not in text(2):  # the other would be killed before it has said so
        time.sleep(0.02)
    {end}
while not all('life {lives}' in text(r) for r in (2, 3)) or life < {lives} and rank == 2:
    time.sleep(0.02)
"""


@pytest.mark.parametrize("end", [KILL, "os.kill(os.getpid(), 11)", "sys.exit(7)"])
def test_a_super_learner_is_replaced_as_a_whole(end: str, tmp_path: Path) -> None:
    """Rank 2 would never end by itself; each life is told its number."""
    script = TOGETHER.format(folder=str(tmp_path), lives=2, end=end)
    started = ranks(tmp_path, script, 4, alone=True, replacements=5, size=2)
    assert started.run() == 0
    assert started.succession.replacements == 3
    for rank in range(4):
        lives = (tmp_path / f"rank-{rank}.log").read_text().count("\nlife")
        assert lives == (3 if rank > 1 else 1)


def test_others_go_on_without_a_super_learner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"""
import os, time
rank, log = os.environ['RANK'], os.path.join({str(tmp_path)!r}, 'rank-2.log')
if rank == '2': print('pid', os.getpid(), flush=True); time.sleep(3600)
def pid():
    lines = open(log).read().split('\\n') if os.path.exists(log) else []
    return next((line.split()[1] for line in lines[:-1] if line.startswith('pid')), None)
while pid() is None:
    time.sleep(0.02)
if rank == '3': {KILL}
while os.path.exists('/proc/' + pid()):
    time.sleep(0.02)
"""
    started = ranks(tmp_path, script, 4, alone=True, size=2)
    assert started.run() == 1
    assert {r.number: r.code for r in started.crew.ranks.values()} == {0: 0, 1: 0, 2: 1, 3: 1}
    said = capsys.readouterr().err
    assert "rank 3 failed (SIGKILL), and super-learner 1 with it: the others go on without" in said


def test_of_three_ranks_two_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 3, 4, 5 the last one dies, and is replaced; then 4 as well: 3 goes on, and others come for
    both.
    """
    script = f"""
import os, time
rank, life = int(os.environ['RANK']), int(os.environ.get('HADPSGD_JOIN', '0'))
print('pid', os.getpid(), life, 'HADPSGD_RETURN' in os.environ, flush=True)
def there(rank, life):
    log = os.path.join({str(tmp_path)!r}, f'rank-{{rank}}.log')
    lines = open(log).read().split('\\n') if os.path.exists(log) else []
    words = [line.split() for line in lines[:-1] if line.startswith('pid')]
    return next((pid for _, pid, which, _ in words if which == str(life)), '')
if rank == 5 and not life:
    while not (there(3, 0) and there(4, 0)): time.sleep(0.02)
    {KILL}
if rank == 4 and not life:
    while not there(5, 1): time.sleep(0.02)
    {KILL}
if 'HADPSGD_RETURN' in os.environ:
    time.sleep(3600)
while not all(there(r, 2) for r in (4, 5)): time.sleep(0.02)
"""
    started = ranks(tmp_path, script, 6, alone=True, replacements=5, size=3, reduces=True)
    assert started.run() == 1
    assert started.succession.replacements == 3 and not started.crew.waiting
    said = capsys.readouterr().err
    assert "rank 5 failed (SIGKILL): the others go on, of its super-learner rank 3, 4 go on" in said
    assert "rank 4 failed (SIGKILL): the others go on, of its super-learner rank 3" in said
    for rank, returns in {3: [False], 4: [False, True], 5: [False, True, True]}.items():
        lines = (tmp_path / f"rank-{rank}.log").read_text().splitlines()
        found = [line.split()[3] == "True" for line in lines if line.startswith("pid")]
        assert found == returns


def test_another_rank_takes_the_place_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 3, 4, 5 the first one dies: 4 hears that it is rank 3 now, 5 that there is another first
    one, and a new rank 4 comes to it.
    """
    script = f"""
import os, socket, time
rank, life = int(os.environ['RANK']), int(os.environ.get('HADPSGD_JOIN', '0'))
print('life', life, flush=True)
def said(rank, word):
    log = os.path.join({str(tmp_path)!r}, f'rank-{{rank}}.log')
    return os.path.exists(log) and word in open(log).read()
if rank == 3:
    while not (said(4, 'life 0') and said(5, 'life 0')): time.sleep(0.02)
    {KILL}
if 'HADPSGD_TURN' in os.environ:
    launcher = socket.socket(fileno=int(os.environ['HADPSGD_TURN']))
    launcher.send(b'.')
    launcher.recv(1)
    print('its turn', life, flush=True)
elif rank in (4, 5):
    print(socket.socket(fileno=int(os.environ['HADPSGD_ORDERS'])).recv(4096).decode(), flush=True)
while not said(4, 'its turn 2'): time.sleep(0.02)
"""
    started = ranks(tmp_path, script, 6, alone=True, replacements=3, size=3, reduces=True)
    assert started.run() == 0 and started.succession.replacements == 2 and not started.crew.waiting
    said = capsys.readouterr().err
    assert "rank 3 failed (SIGKILL): the others go on, rank 4 takes its place" in said
    assert "super-learner 1: new rank 4 comes to rank 3" in said
    logs = {rank: (tmp_path / f"rank-{rank}.log").read_text() for rank in (4, 5)}
    orders = {
        rank: [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        for rank, text in logs.items()
    }
    assert orders[4] == [{"rank": 3, "life": 1, "log": str(tmp_path / "rank-3.log")}]
    assert orders[5] == [{"rank": 5, "life": 1, "log": ""}]


# rank 3 dies, and the one that comes then says that it is ready; rank 2 is there
COMES = """
import os, socket, time
rank, life = int(os.environ['RANK']), int(os.environ.get('HADPSGD_JOIN', '0'))
print('life', life, flush=True)
def said(rank, word):
    log = os.path.join({folder!r}, f'rank-{{rank}}.log')
    return os.path.exists(log) and word in open(log).read()
if 'HADPSGD_TURN' in os.environ:
    launcher = socket.socket(fileno=int(os.environ['HADPSGD_TURN']))
    {before}
    launcher.send(b'.')
    launcher.recv(1)
    print('its turn', life, flush=True)
    {after}
elif rank == 3 and not life:
    while not said(2, 'life 0'): time.sleep(0.02)
    os.kill(os.getpid(), 9)
elif not life:
    while not ({until}): time.sleep(0.02)
"""


def who_comes(
    folder: Path, until: str, *, before: str = "pass", after: str = "pass", **how: Any
) -> Ranks:
    """Ranks of `COMES`."""
    script = COMES.format(folder=str(folder), before=before, after=after, until=until)
    return ranks(folder, script, 4, alone=True, size=2, reduces=True, **how)


@pytest.mark.parametrize("waits", [False, True])
def test_a_new_rank_comes_to_the_one_that_is_alone(
    waits: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = who_comes(tmp_path, "said(3, 'its turn')", replacements=3, waits=waits)
    assert started.run() == 0 and started.succession.replacements == 2 and not started.crew.waiting
    said = capsys.readouterr().err
    assert ("rank 2 waits for new ones" in said) == waits
    assert "super-learner 1: new rank 3 comes to rank 2" in said
    assert "life 1" not in (tmp_path / "rank-2.log").read_text()


def test_a_neighbour_may_lose_a_rank_while_a_new_one_comes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both of two super-learners lack one then, and both are whole again."""
    until = "rank == 1 and said(3, 'its turn') and os.kill(os.getpid(), 9) or said(1, 'its turn')"
    after = "while not said(1, 'its turn'): time.sleep(0.02)"
    started = who_comes(tmp_path, until, after=after, replacements=3)
    assert started.run() == 0 and started.succession.replacements == 1
    said = capsys.readouterr().err
    assert "rank 1 failed (SIGKILL): the others go on, of its super-learner rank 0 alone" in said
    assert "super-learner 0: new rank 1 comes to rank 0" in said


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_new_rank_that_dies_is_replaced(
    dies: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before its turn by another one; after it the one that it came to may be waiting for it."""
    whole = dies == "after"
    until = "said(2, 'life 2')" if whole else "said(3, 'its turn')"
    end = {dies: "if life == 1: os.kill(os.getpid(), 9)"}
    started = who_comes(tmp_path, until, replacements=3, **end)
    assert started.run() == 0 and started.succession.replacements == 1
    assert ("super-learner 1 with it" in capsys.readouterr().err) == whole


def test_a_new_rank_that_takes_part_is_missed_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When it dies then, the one that it came to goes on alone again."""
    after = "launcher.send(b'.')\n    if life == 1: os.kill(os.getpid(), 9)"
    started = who_comes(tmp_path, "said(3, 'its turn 2')", after=after, replacements=3)
    assert started.run() == 0 and started.succession.replacements == 1
    assert capsys.readouterr().err.count("of its super-learner rank 2 alone") == 2
    assert "life 1" not in (tmp_path / "rank-2.log").read_text()


@pytest.mark.parametrize("replacements", [0, 3])
def test_nobody_is_waited_for_if_nobody_comes(
    replacements: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There are none left, or all of them crash alike: the super-learner leaves, and joins."""
    script = f"""
import os, time
rank, life = int(os.environ['RANK']), int(os.environ.get('HADPSGD_JOIN', '0'))
print('life', life, flush=True)
def said(rank, word):
    log = os.path.join({str(tmp_path)!r}, f'rank-{{rank}}.log')
    return os.path.exists(log) and word in open(log).read()
if rank == 3 and not life:
    while not said(2, 'life 0'): time.sleep(0.02)
if rank == 3:
    os._exit(7)
if rank == 2:
    print('pid', os.getpid(), '.', flush=True)
    time.sleep(3600)
while not (said(2, 'pid') and said(2, ' .')): time.sleep(0.02)
pid = open(os.path.join({str(tmp_path)!r}, 'rank-2.log')).read().split('pid ')[1].split()[0]
while os.path.exists('/proc/' + pid): time.sleep(0.02)
"""
    how = {"reduces": True, "waits": True, "replacements": replacements}
    started = ranks(tmp_path, script, 4, alone=True, size=2, **how)
    assert started.run() == 1
    assert {r.number: r.code for r in started.crew.ranks.values()} == {0: 0, 1: 0, 2: 1, 3: 1}
    said = capsys.readouterr().err
    assert ("nobody comes for whom it waits" in said) == bool(replacements)
    assert "without the super-learner" in said or "super-learner joins again" in said


def test_bad_input_of_a_member_counts_though_its_colleague_died_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 3 loses rank 2, which is about to say what is wrong."""
    for module in ("ranks", "crew"):
        monkeypatch.setattr(f"hadpsgd.training.{module}.SETTLE_SECONDS", PATIENCE)
    monkeypatch.setattr("hadpsgd.training.ranks.GRACE_SECONDS", 0.5)
    script = """
import os, sys, time
rank = os.environ['RANK']
if rank == '3': sys.exit(1)
if rank == '2': time.sleep(0.3); print('no such phone'); sys.exit(2)
time.sleep(900)
"""
    started = ranks(tmp_path, script, 4, alone=True, replacements=5, size=2)
    assert started.run() == 2
    assert started.reason == "no such phone" and started.succession.replacements == 5


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
