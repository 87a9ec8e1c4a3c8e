"""Learners that share their work, in virtual time and as processes: each block once."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crews
import dense
import numpy as np
import pytest
import torch.distributed as dist
from processes import Process, collect, free_port, launch_rank, run
from simulated_task import Small, small_gradient
from training_data import write_config
from training_runs import RUNS, finish, slow_down, wait_for, write_examples

from hadpsgd.config import load
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import blocks_of, ledger_faults
from hadpsgd.decentralized.elastic.decision import Decision
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.network import rendezvous, variables
from hadpsgd.decentralized.network.speeds import ComputeTimes
from hadpsgd.decentralized.record.lives import Lives
from hadpsgd.decentralized.record.reading import read
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.strategies.registry import create as create_strategy
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.training import replay_command
from hadpsgd.training.engines import record_folder
from hadpsgd.training.job import assemble
from hadpsgd.training.loop import train
from hadpsgd.training.saved import newest

pytestmark = pytest.mark.usefixtures("unrecorded")

LEARNERS, STEPS = 8, 100


def simulate(factors: dict[int, float], *, shared: bool, schedule: str = "ring") -> Simulation:
    """100 steps of 8 learners, a second for each gradient but for those that are slower."""
    setting = Setting(
        strategy=create_strategy(Choice(strategy="adpsgd")),
        schedule=create(schedule, learners=LEARNERS, seed=3),
        compute=ComputeTimes(seconds=1.0, factors=factors),
        shared_steps=STEPS if shared else 0,
    )
    simulation = Simulation(setting, Small(), record=True)
    simulation.run(steps=0 if shared else STEPS)
    return simulation


def seconds(simulation: Simulation) -> float:
    """Until the last update."""
    return max(step.moment for node in simulation.nodes for step in node.steps)


@pytest.mark.parametrize("schedule", ["ring", "random-ring"])
def test_a_slow_learner_does_less(schedule: str) -> None:
    """One of 8 is 5 times slower: the run takes 8 / 7.2 of the time and a little for its end."""
    undisturbed = seconds(simulate({}, shared=True, schedule=schedule))
    disturbed = simulate({3: 5.0}, shared=True, schedule=schedule)
    assert undisturbed == pytest.approx(STEPS, rel=0.02)
    assert seconds(disturbed) / undisturbed < 1.2
    done = [len(blocks_of(node.events)) for node in disturbed.nodes]
    assert done[3] < 0.25 * min(done[:3] + done[4:])
    assert each_once([blocks_of(node.events) for node in disturbed.nodes]) == LEARNERS * STEPS


@pytest.mark.parametrize("factor", [10.0, 100.0])
def test_a_very_slow_learner_does_not_hold_the_end_up(factor: float) -> None:
    """It leaves the last blocks to the others where it would be the last to be done."""
    disturbed = simulate({3: factor}, shared=True)
    speeds = LEARNERS - 1 + 1 / factor
    assert seconds(disturbed) < 1.05 * STEPS * LEARNERS / speeds
    assert each_once([blocks_of(node.events) for node in disturbed.nodes]) == LEARNERS * STEPS


def test_with_shares_of_their_own_all_wait_for_the_slow_one() -> None:
    assert seconds(simulate({3: 5.0}, shared=False)) == pytest.approx(5 * STEPS, rel=0.02)


def each_once(blocks: list[list[int]]) -> int:
    """How many there are, if each of them is there once."""
    counts = Counter(block for found in blocks for block in found)
    assert counts == Counter(range(len(counts)))
    return len(counts)


def test_it_is_the_equation_on_those_blocks() -> None:
    """Weights are those that NumPy makes of the record, a block's gradient wherever it was done."""
    simulation = simulate({1: 3.0, 4: 2.0}, shared=True)
    record = {node.index: node.events for node in simulation.nodes}
    assert not ledger_faults(record)
    blocks = {learner: blocks_of(events) for learner, events in record.items()}

    def gradient(learner: int, step: int, at: np.ndarray) -> np.ndarray:
        row, part = divmod(blocks[learner][step], LEARNERS)
        return small_gradient(part, row, at)

    start = flatten(Small().module).weights.numpy()
    versions = dense.evaluate(record, dict.fromkeys(record, start), gradient)
    for learner, weights in enumerate(simulation.weights().numpy()):
        np.testing.assert_allclose(weights, versions[learner][-1], rtol=1e-10, atol=1e-12)


def test_a_block_done_twice_is_a_fault() -> None:
    record = {node.index: node.events for node in simulate({}, shared=True).nodes}
    record[5] = record[2]
    assert "blocks of the shared work done twice" in ledger_faults(record)[0]


# --- processes ---


@pytest.fixture
def running() -> Iterator[dict[int, Process]]:
    """Processes that a test leaves behind are ended."""
    found: dict[int, Process] = {}
    yield found
    for process in found.values():
        process.kill()


def learner(_: int, config: Path, run_id: str, egs: Path, out: Path) -> int:
    """`hadpsgd train` without its last words."""
    job = assemble(load(config), run_id, egs=egs / "train", dev_egs=egs / "dev", out=out)
    slow_down(job, 0.03)
    return int(train(job))


def serve(port: int, running: dict[int, Process]) -> None:
    """A store that outlives all learners."""
    running[-1] = launch_rank(0, 1, crews.serve, port, env={})


def beside(port: int) -> dict[str, str]:
    """The environment of learners that meet there."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        variables.AGENTS: "True",
    }


def replay(_: int, config: Path, run_id: str, egs: Path) -> int:
    """`hadpsgd replay`."""
    parser = argparse.ArgumentParser()
    replay_command.configure(parser)
    names = ["--config", str(config), "--run-id", run_id, "--egs", str(egs / "train")]
    return replay_command.run(parser.parse_args(names))


def work_done(config: Path, nodes: int) -> list[list[int]]:
    """Blocks of the (super-)learners' records, as far as these count."""
    folder = next((config.parent / "results/checkpoints/tiny").iterdir())
    schedule = create("ring", learners=nodes, seed=3)
    records = newest(folder).records()
    return [
        blocks_of(read(record_folder(folder) / record.file, schedule, record.length))
        for record in (records[node] for node in range(nodes))
    ]


def test_super_learners_share_their_work(tmp_path: Path) -> None:
    """Each block is done once, by both members of a super-learner, and it replays."""
    egs = write_examples(tmp_path / "egs")
    finish(tmp_path, egs, "hadpsgd-2x2")
    config = tmp_path / "config.yaml"
    assert each_once(work_done(config, 2)) == 3 * 10 * 2
    assert run(1, replay, config, "hadpsgd-2x2", egs) == [0]


@pytest.mark.parametrize(
    ("run_id", "size", "replaced"),
    [("adpsgd-4", 1, True), ("adpsgd-4", 1, False), ("hadpsgd-2x2", 2, True)],
)
def test_the_work_of_the_dead_is_done(
    run_id: str, size: int, replaced: bool, tmp_path: Path, running: dict[int, Process]
) -> None:
    """kill -9 in mid-epoch, with and without a newcomer: each block once, and it replays.

    Of a super-learner the first member, which decides for both: the other one ends of itself.
    """
    egs = write_examples(tmp_path / "egs")
    config = write_config(tmp_path, RUNS, epochs=8)
    port = free_port()
    arguments = (config, run_id, egs, tmp_path / "out")

    def start(rank: int, **more: str) -> None:
        running[rank] = launch_rank(rank, 4, learner, *arguments, env=beside(port) | more)

    serve(port, running)
    for rank in range(4):
        start(rank)
    wait_for(tmp_path / "out/metrics.rank2.jsonl")
    os.kill(running[2].pid, signal.SIGKILL)
    dead = range(2, 2 + size)
    deadline = time.monotonic() + 120
    for victim in [running.pop(rank) for rank in dead]:
        while victim.reap() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    if replaced:
        for rank in dead:
            start(rank, **{variables.JOIN: "1"})
    ranks = {rank: running.pop(rank) for rank in list(running) if rank >= 0}
    outcomes = collect(ranks, 240)
    errors = {rank: o.error for rank, o in outcomes.items() if o.error}
    assert errors.keys() <= set(dead)
    assert all("TooLateError" in error for error in errors.values()), errors
    assert each_once(work_done(config, 4 // size)) == 8 * 10 * 4 // size
    assert run(1, replay, config, run_id, egs, seconds=240) == [0]


def test_a_first_member_does_the_work_of_those_that_die(
    tmp_path: Path, running: dict[int, Process]
) -> None:
    """Killed within a round that a partner counts, the first one ends, too; others do its work."""
    egs = write_examples(tmp_path / "egs")
    config = write_config(tmp_path, RUNS, epochs=8, member_death="continue")
    port = free_port()
    serve(port, running)
    for rank in range(4):
        arguments = (config, "hadpsgd-2x2", egs, tmp_path / "out")
        running[rank] = launch_rank(rank, 4, learner, *arguments, env=beside(port))
    wait_for(tmp_path / "out/metrics.rank2.jsonl")
    os.kill(running[3].pid, signal.SIGKILL)
    outcomes = collect({rank: running.pop(rank) for rank in range(4)}, 240)
    errors = {rank: outcome.error for rank, outcome in outcomes.items() if outcome.error}
    assert errors.pop(3) and all("TornError" in errors.pop(rank) for rank in list(errors))
    assert each_once(work_done(config, 2)) == 8 * 10 * 2
    assert run(1, replay, config, "hadpsgd-2x2", egs, seconds=240) == [0]
    said = (tmp_path / "out/metrics.jsonl").read_text()
    assert '"step": 80' in said and "heldout_loss" in said


def test_who_comes_back_goes_on_with_the_same_block(
    tmp_path: Path, running: dict[int, Process]
) -> None:
    """Killed within a round that a partner counts, the first one ends, too: then nobody does."""
    egs = write_examples(tmp_path / "egs")
    config = write_config(tmp_path, RUNS, epochs=12, member_death="wait")
    port = free_port()
    serve(port, running)

    def start(rank: int, **env: str) -> None:
        arguments = (config, "hadpsgd-2x2", egs, tmp_path / "out")
        running[rank] = launch_rank(rank, 4, learner, *arguments, env=beside(port) | env)

    for rank in range(4):
        start(rank)
    wait_for(tmp_path / "out/metrics.rank2.jsonl")
    os.kill(running[3].pid, signal.SIGKILL)
    assert collect({3: running.pop(3)}, 240)[3].error
    start(3, **{variables.JOIN: "1", variables.RETURN: "yes"})
    outcomes = collect({rank: running.pop(rank) for rank in range(4)}, 240)
    errors = {rank: outcome.error for rank, outcome in outcomes.items() if outcome.error}
    if errors:
        assert "TornError" in errors[2] and "TooLateError" in errors[3] and len(errors) == 2
    assert each_once(work_done(config, 2)) == 12 * 10 * 2
    assert run(1, replay, config, "hadpsgd-2x2", egs, seconds=240) == [0]
    said = (tmp_path / "out/metrics.rank3.jsonl").read_text().splitlines()
    steps = [row["step"] for row in map(json.loads, said) if "loss" in row]
    assert errors or steps[-1] > steps[0] + 20


def stops(rank: int, where: str, config: Path, run_id: str, egs: Path, out: Path) -> int:
    """A learner that stops before it writes down what it did, or before it asks whether that
    counts; it is slow to see a change.
    """
    change, what = Membership.change, {"write": "flush", "ask": "is_closed"}[where]
    owner = Recorder if where == "write" else Lives
    goes_on = getattr(owner, what)
    times = itertools.count(1)

    def late_change(*args: Any, **kwargs: Any) -> Decision:
        time.sleep(3)
        return change(*args, **kwargs)

    def stop_once(*args: Any, **kwargs: Any) -> Any:
        if next(times) == 10:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.1)  # another thread may have taken the signal
        return goes_on(*args, **kwargs)

    Membership.change = late_change  # type: ignore[method-assign]
    setattr(owner, what, stop_once)
    return learner(rank, config, run_id, egs, out)


def wait_until_stopped(pid: int) -> None:
    """Until a process stands still."""
    deadline = time.monotonic() + 180
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("where", "late"), [("write", False), ("ask", True)])
def test_a_learner_that_wakes_up_after_it_was_given_up(
    where: str, tmp_path: Path, running: dict[int, Process], *, late: bool
) -> None:
    """Its block is another's by then: it ends, and what it still writes does not count.

    It wakes up at once, or when all the others are done.
    """
    egs = write_examples(tmp_path / "egs")
    config = write_config(tmp_path, RUNS)
    port = free_port()
    serve(port, running)
    for rank in range(4):
        arguments = (config, "adpsgd-4", egs, tmp_path / "out")
        running[rank] = (
            launch_rank(rank, 4, stops, where, *arguments, env=beside(port))
            if rank == 2
            else launch_rank(rank, 4, learner, *arguments, env=beside(port))
        )
    wait_until_stopped(running[2].pid)
    store = rendezvous.of_attempt(dist.TCPStore("127.0.0.1", port, is_master=False), "0")
    for word in ("dead/2", "proposed"):  # as who has waited for it for long enough
        store.set(f"mixing/members/1/{word}", "yes")
    others = {rank: running.pop(rank) for rank in (0, 1, 3)}
    if late:
        assert not [o.error for o in collect(others, 240).values() if o.error]
        assert each_once(work_done(config, 4)) == 3 * 10 * 4
    else:
        store.wait(["record/closed/node-2.bin"])
    os.kill(running[2].pid, signal.SIGCONT)
    [outcome] = collect({2: running.pop(2)}, 240).values()
    assert "ExcludedError" in outcome.error
    if not late:
        assert not [o.error for o in collect(others, 240).values() if o.error]
    assert each_once(work_done(config, 4)) == 3 * 10 * 4
    assert run(1, replay, config, "adpsgd-4", egs, seconds=240) == [0]
