"""Starting ranks: logs, signals, exit statuses, replacements, the lock, what Slurm is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import until
from training_data import write_config, write_egs

from hadpsgd.config import check, load, request_of
from hadpsgd.errors import UserError
from hadpsgd.locks import locked
from hadpsgd.training import launch as launching
from hadpsgd.training import slurm as slurm_job
from hadpsgd.training.job import checkpoint_folder, identity
from hadpsgd.training.launch import Launch, srun_command
from hadpsgd.training.ranks import JOIN_SECONDS, Ranks

STOPS_AT_A_SIGNAL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGUSR1])
print('ready', flush=True)
time.sleep(60)
"""


def ranks(folder: Path, script: str, count: int = 3, **how: Any) -> Ranks:
    """Ranks that run a Python script."""
    folder.mkdir(parents=True, exist_ok=True)
    return Ranks([sys.executable, "-S", "-c", script], {}, range(count), count, folder, **how)


def settings(runs: list[dict[str, Any]], **training: Any) -> Any:
    return check(
        {
            "name": "x",
            "corpus": {"kind": "builtin"},
            "training": {"batch": 256, "runs": runs, **training},
        },
        "test",
    )


def test_each_rank_has_its_place_and_its_log(tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE"
    show = f"import os; print(*(os.environ[n] for n in '{names}'.split()))"
    started = Ranks([sys.executable, "-S", "-c", show], {}, range(2, 4), 4, tmp_path)
    assert started.run() == 0
    for rank in (2, 3):
        *_, last = (tmp_path / f"rank-{rank}.log").read_text().splitlines()
        assert last == f"{rank} {rank - 2} 4 2"


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
        until(lambda: all("ready" in f.read_text() for f in tmp_path.glob("*.log")), 20)
        os.kill(os.getpid(), number)

    sender = threading.Timer(0.5, send)
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
    for _ in range(600):
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
        until(lambda: all(log.is_file() and "started" in log.read_text() for log in logs), 20)
        time.sleep(moment)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    assert started.run() == 75
    sender.join()


@pytest.mark.parametrize(
    ("stopped", "state", "starts"),
    [(False, "RUNNING", 3), (False, "", 1), (True, "RUNNING", 1), (False, "COMPLETING", 1)],
)
def test_what_slurm_ends_is_not_started_again(
    stopped: bool, state: str, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = launch_of(tmp_path, {"strategy": "adpsgd", "learners": 4})
    wanted = replace(wanted, restarts=2)
    job = slurm_job.SlurmJob("7", ("a", "b"), "127.0.0.1")
    monkeypatch.setattr(launching.slurm, "current", lambda: job)
    monkeypatch.setattr(slurm_job.SlurmJob, "state", lambda _: state)
    monkeypatch.setattr(slurm_job, "ASK_AGAIN_SECONDS", 0)
    attempts = []

    def crashes(*_: Any) -> tuple[int, bool]:
        attempts.append(1)
        return 1, stopped

    monkeypatch.setattr(launching, "_on_all_hosts", crashes)
    assert launching.launch(wanted) == 1
    assert len(attempts) == starts


@pytest.mark.parametrize(("in_step", "by_srun"), [(False, True), (True, False)])
def test_one_host_of_a_job(
    in_step: bool, by_srun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By srun from the job's script, directly from a shell that srun started."""
    wanted = launch_of(tmp_path, {"strategy": "single"})
    job = slurm_job.SlurmJob("7", ("a",), "127.0.0.1", in_step)
    monkeypatch.setattr(launching.slurm, "current", lambda: job)
    used: list[bool] = []

    def remember(srun: bool) -> Any:
        used.append(srun)
        return (0, False) if srun else 0

    monkeypatch.setattr(launching, "_on_all_hosts", lambda *_: remember(True))
    monkeypatch.setattr(Ranks, "run", lambda _: remember(False))
    assert launching.launch(wanted) == 0
    assert used == [by_srun]


@pytest.mark.parametrize(
    ("states", "requeued", "waits"),
    [
        (["RUNNING"], True, True),
        (["RUNNING", "COMPLETING"], False, True),  # the end came before scontrol's answer
        (["RUNNING", "RUNNING"], False, False),  # --no-requeue
        (["COMPLETING"], True, False),  # cancelled
    ],
)
def test_back_into_the_queue(
    states: list[str], requeued: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(states)
    slept: list[float] = []
    monkeypatch.setattr(slurm_job.SlurmJob, "state", lambda _: next(told))
    monkeypatch.setattr(slurm_job.SlurmJob, "requeue", lambda _: requeued)
    monkeypatch.setattr(launching.time, "sleep", slept.append)
    launching._back_into_the_queue(slurm_job.SlurmJob("7", ("a",), "127.0.0.1"))
    assert bool(slept) == waits


def test_the_end_that_a_requeue_brings_is_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(slurm_job.SlurmJob, "state", lambda _: "RUNNING")
    monkeypatch.setattr(slurm_job.SlurmJob, "requeue", lambda _: True)
    monkeypatch.setattr(launching.time, "sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as end:
        launching._back_into_the_queue(slurm_job.SlurmJob("7", ("a",), "127.0.0.1"))
    assert end.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is before


def test_bad_input_of_one_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hadpsgd.training.ranks.GRACE_SECONDS", 0.5)
    script = "import os, sys, time; sys.exit(2) if os.environ['RANK'] == '1' else time.sleep(60)"
    begin = time.monotonic()
    assert ranks(tmp_path, script).run() == 2
    assert time.monotonic() - begin < 20


DIES_ONCE = """
import os, sys, time
if os.environ['RANK'] == '1' and 'HADPSGD_JOIN' not in os.environ:
    os.kill(os.getpid(), 9)
time.sleep(1)
print('joining' if 'HADPSGD_JOIN' in os.environ else 'first')
"""


def test_a_dead_rank_is_replaced_by_a_newcomer(tmp_path: Path) -> None:
    assert ranks(tmp_path, DIES_ONCE, alone=True, replacements=1).run() == 0
    assert "joining" in (tmp_path / "rank-1.log").read_text()
    assert "joining" not in (tmp_path / "rank-0.log").read_text()


def test_the_others_go_on_without_a_dead_rank(tmp_path: Path) -> None:
    assert ranks(tmp_path, DIES_ONCE, alone=True).run() == 1
    assert "first" in (tmp_path / "rank-2.log").read_text()


def test_without_others_nobody_joins(tmp_path: Path) -> None:
    assert JOIN_SECONDS > 1
    script = "import os; os.kill(os.getpid(), 9)"
    assert ranks(tmp_path, script, alone=True, replacements=10).run() == 1


def test_a_death_ends_all_where_they_cannot_go_on(tmp_path: Path) -> None:
    script = "import os, time; os.environ['RANK'] == '1' and os.abort(); time.sleep(60)"
    begin = time.monotonic()
    assert ranks(tmp_path, script).run() == 1
    assert time.monotonic() - begin < 20


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
from test_launch import STOPS_AT_A_SIGNAL, ranks
from hadpsgd.locks import locked
slow = STOPS_AT_A_SIGNAL.replace("sys.exit(75)", "(time.sleep(1), print('ended'), sys.exit(75))")
with locked(Path({str(tmp_path / "lock")!r}), "the first") as lock:
    ranks(Path({str(tmp_path / "logs")!r}), "import os; print(os.getpid());" + slow,
          descriptors=[lock]).run()
"""
    head = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    logs = [tmp_path / "logs" / f"rank-{rank}.log" for rank in range(3)]
    until(lambda: all(log.is_file() and "ready" in log.read_text() for log in logs), 60)
    head.kill()
    head.wait()
    with locked(tmp_path / "lock", "the second"):
        assert all("ended" in log.read_text() for log in logs)
    pids = [int(log.read_text().splitlines()[1]) for log in logs]
    until(lambda: not any(map(alive, pids)), 10)


@pytest.mark.slow
def test_a_second_launch_waits_and_finds_the_work_done(tmp_path: Path) -> None:
    """Two processes with one output, told to wait: the second says whom it waits for."""
    write_egs(tmp_path / "egs/train", 200, 1)
    write_egs(tmp_path / "egs/dev", 50, 2)
    config = write_config(tmp_path, [{"strategy": "ssgd", "learners": 2}])
    command = [sys.executable, "-m", "hadpsgd", "launch", "--config", str(config)]
    command += ["--run-id", "ssgd-2", "--egs", str(tmp_path / "egs/train")]
    command += ["--dev-egs", str(tmp_path / "egs/dev"), "--out", str(tmp_path / "out"), "--wait"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    told = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    late = next(text for text in told if "waiting for its end" in text)
    assert "trained already" in late
    assert sum("epoch 3/3 done" in text for text in told) == 1
    assert (tmp_path / "out/final.pt").is_file()
    assert (tmp_path / "out/logs/rank-1.log").is_file()


@pytest.mark.parametrize("taken", ["out", "checkpoints"])
def test_a_second_launch_is_refused_in_one_line(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs with one output directory, or one run with two."""
    monkeypatch.setattr("hadpsgd.locks.GRACE_SECONDS", 0.3)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    wanted = launch_of(tmp_path, {"strategy": "single"})
    hash_ = identity(wanted.config, "single", wanted.egs)
    checkpoints = checkpoint_folder(wanted.config, "single", hash_)
    folder = wanted.out if taken == "out" else checkpoints
    folder.mkdir(parents=True)
    with (
        locked(folder / launching.LOCK, "process 7 on a (Slurm job 4)"),
        pytest.raises(UserError, match=r"process 7 on a \(Slurm job 4\) trains this run already"),
    ):
        launching.launch(wanted)


SIXTY_FOUR = {"strategy": "hadpsgd", "learners": 64, "super_learner": 8}
GPUS = {"learners_per_node": 8, "cpus": 4, "memory_mb": 16000}


def test_request_of_many_gpus() -> None:
    config = settings([SIXTY_FOUR], device="cuda", cluster=GPUS)
    wanted = {"nodes": 8, "tasks": 8, "mpi": "srun", "cpus_per_task": 32, "gres": "gpu:8"}
    wanted |= {"tasks_per_gpu": 0, "mem_mb": 128000, "runtime": 1440}
    assert request_of(config, config.training.runs[0].id) == wanted
    assert request_of(config, config.training.runs[0].id, 2)["mem_mb"] == 256000


def test_request_of_one_learner_and_of_a_type_of_gpu() -> None:
    cluster = {**GPUS, "gpu_type": "a100", "hours": 1.5}
    config = settings([{"strategy": "single"}], device="cuda", cluster=cluster)
    request = request_of(config, "single")
    assert request["nodes"] == request["tasks"] == 1
    assert request["mpi"] == ""  # the executor starts the script without srun
    assert request["gres"] == "gpu:a100:1"
    assert request["runtime"] == 90


@pytest.mark.parametrize(("device", "gpus"), [("cpu", "auto"), ("auto", "auto"), ("cuda", "none")])
def test_no_gpu_is_asked_for_unasked(device: str, gpus: str) -> None:
    config = settings([SIXTY_FOUR], device=device, cluster={**GPUS, "gpus": gpus})
    request = request_of(config, config.training.runs[0].id)
    assert request["gres"] is request["tasks_per_gpu"] is None


def test_learners_that_cannot_be_laid_out_are_refused() -> None:
    with pytest.raises(UserError, match="6 learners cannot be laid out 4 to a host"):
        settings(
            [{"strategy": "adpsgd", "learners": 6}], batch=60, cluster={"learners_per_node": 4}
        )


def launch_of(tmp_path: Path, run: dict[str, Any], **cluster: Any) -> Launch:
    write_egs(tmp_path / "egs", 50, 1)
    file = write_config(tmp_path, [run], batch=64, cluster={"learners_per_node": 2, **cluster})
    config = load(file)
    egs = tmp_path / "egs"
    return Launch(
        file, config, config.training.runs[0].id, egs, egs, tmp_path / "o", tmp_path / "l"
    )


@pytest.mark.parametrize(
    ("strategy", "lost", "stays"),
    [("adpsgd", "replace", True), ("adpsgd", "stop", False), ("ssgd", "replace", False)],
)
def test_srun_goes_on_without_a_host_where_the_strategy_can(
    strategy: str, lost: str, stays: bool, tmp_path: Path
) -> None:
    wanted = launch_of(tmp_path, {"strategy": strategy, "learners": 4}, lost_learner=lost)
    command = srun_command(wanted, 2)
    assert ("--no-kill" in command) == stays
    assert f"--kill-on-bad-exit={int(not stays)}" in command
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=2"} <= set(command)


def test_too_few_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = launch_of(tmp_path, {"strategy": "adpsgd", "learners": 4})
    job = slurm_job.SlurmJob("7", ("a",), "127.0.0.1")
    monkeypatch.setattr(launching.slurm, "current", lambda: job)
    with pytest.raises(UserError, match=r"wants 2 hosts \(4 learners, 2 on each\).*has 1"):
        launching.launch(wanted)


def test_a_job_that_slurm_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="hosts of job 12"):
        slurm_job.current({"SLURM_JOB_ID": "12"})
    assert slurm_job.current({}) is None


def test_read_only_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = launch_of(tmp_path, {"strategy": "single"})

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write anywhere
    with pytest.raises(UserError, match="no permission to write here"):
        launching.launch(wanted)
