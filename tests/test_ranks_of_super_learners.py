"""Ranks of super-learners: replaced as a whole, or one by one while the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rank_scripts import HEARS, KILL, PATIENCE, ranks

from hadpsgd.training.ranks import Ranks

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
    script = (
        HEARS.format(folder=str(tmp_path))
        + f"""
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
    )
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
COMES = (
    HEARS
    + """
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
)


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
    script = (
        HEARS.format(folder=str(tmp_path))
        + f"""
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
    )
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
