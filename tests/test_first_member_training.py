"""The first member of a super-learner of three is killed in training: the second has its place."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from processes import Process, collect, free_port, launch_rank, run
from test_helpers_training import EPOCHS, RUN, learner
from test_shared_work import beside, each_once, replay, running, serve, work_done
from training_data import write_config
from training_runs import wait_for, write_examples

from hadpsgd.decentralized.network import variables
from hadpsgd.training.orders import ORDERS, Order, give, pair

pytestmark = pytest.mark.usefixtures("unrecorded")

__all__ = ["running"]


def test_the_others_go_on_and_every_block_is_done_once(
    tmp_path: Path, running: dict[int, Process]
) -> None:
    """As the launcher would say: 4 becomes 3, 5 helps it, and a new 4 comes to both."""
    egs = write_examples(tmp_path / "egs")
    config = write_config(tmp_path, [RUN], epochs=EPOCHS, batch=48, member_death="continue")
    port, links = free_port(), {rank: pair() for rank in range(6)}
    serve(port, running)

    def start(key: int, rank: int, **env: str) -> None:
        arguments = (config, egs, tmp_path / "out")
        running[key] = launch_rank(rank, 6, learner, *arguments, env=beside(port) | env)

    for rank, (_, theirs) in links.items():
        start(rank, rank, **{ORDERS: str(theirs.fileno())})
    wait_for(tmp_path / "out/metrics.rank4.jsonl")
    os.kill(running[3].pid, signal.SIGKILL)
    assert collect({3: running.pop(3)}, 240)[3].error
    log = tmp_path / "rank-3.log"
    give(links[5][0], Order(rank=5, life=1))
    give(links[4][0], Order(rank=3, life=1, log=str(log)))
    start(6, 4, **{variables.JOIN: "2", variables.RETURN: "yes"})
    outcomes = collect({key: running.pop(key) for key in (0, 1, 2, 4, 5, 6)}, 240)
    errors = {key: outcome.error for key, outcome in outcomes.items() if outcome.error}
    assert not errors, "\n".join(errors.values())
    values = [outcomes[key].value for key in (0, 1, 2, 4, 5, 6)]
    assert values == 3 * [(0, 0)] + [(0, 1), (0, 2), (0, 2)]
    said = log.read_text()
    assert "joined at its step" in said and "goes on with new members" in said
    blocks = each_once(work_done(config, 2))
    assert blocks % (2 * EPOCHS) == 0 and blocks
    assert run(1, replay, config, "hadpsgd-2x3", egs, seconds=240) == [0]
