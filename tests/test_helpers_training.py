"""A member of a super-learner of three is killed in training: the others go on, and it is whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from processes import Process, collect, free_port, launch_rank, run
from test_shared_work import beside, each_once, replay, running, serve, work_done
from training_data import write_config
from training_runs import slow_down, wait_for, write_examples

from hadpsgd.config import load
from hadpsgd.decentralized.network import variables
from hadpsgd.training.job import assemble
from hadpsgd.training.loop import train

pytestmark = pytest.mark.usefixtures("unrecorded")

__all__ = ["running"]

RUN = {"strategy": "hadpsgd", "learners": 6, "super_learner": 3}
EPOCHS = 6


def learner(_: int, config: Path, egs: Path, out: Path) -> tuple[int, int]:
    """`hadpsgd train` without its last words; its end, and the life of its super-learner."""
    job = assemble(load(config), "hadpsgd-2x3", egs=egs / "train", dev_egs=egs / "dev", out=out)
    slow_down(job, 0.05)
    return int(train(job)), job.meeting.life


def test_two_of_three_go_on_and_come_back_with_a_new_one(
    tmp_path: Path, running: dict[int, Process]
) -> None:
    """The one in the middle, which the last one outlives: it helps the first, and comes back.

    Killed within a round that a partner counts, the first one ends, too, and with it the last.
    """
    egs = write_examples(tmp_path / "egs")
    config = write_config(tmp_path, [RUN], epochs=EPOCHS, batch=48, member_death="continue")
    port = free_port()
    serve(port, running)

    def start(rank: int, **env: str) -> None:
        arguments = (config, egs, tmp_path / "out")
        running[rank] = launch_rank(rank, 6, learner, *arguments, env=beside(port) | env)

    for rank in range(6):
        start(rank)
    wait_for(tmp_path / "out/metrics.rank4.jsonl")
    os.kill(running[4].pid, signal.SIGKILL)
    assert collect({4: running.pop(4)}, 240)[4].error
    start(4, **{variables.JOIN: "1", variables.RETURN: "yes"})
    outcomes = collect({rank: running.pop(rank) for rank in range(6)}, 240)
    errors = {rank: outcome.error for rank, outcome in outcomes.items() if outcome.error}
    if errors:
        assert "TornError" in errors[3] and "LostMemberError" in errors[5]
        assert "TooLateError" in errors[4] and len(errors) == 3
    else:
        assert [outcomes[rank].value for rank in range(6)] == 3 * [(0, 0)] + [(0, 0)] + 2 * [(0, 1)]
    blocks = each_once(work_done(config, 2))
    assert blocks % (2 * EPOCHS) == 0 and blocks
    assert run(1, replay, config, "hadpsgd-2x3", egs, seconds=240) == [0]
