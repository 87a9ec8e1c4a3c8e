"""Rounded weights: what messages say, what is owed, the mean that stays, and the replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dense
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_task import RATE, SGDS, Small, oracle, small_gradient
from torch import Tensor

from hadpsgd.config.training import Run
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Mix, ledger_faults
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.network.rounding import BLOCK, ROUNDINGS, Sender, message_like
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.record.entries import Entry, Forget
from hadpsgd.decentralized.record.reading import events_of, read
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.record.replay import Replay
from hadpsgd.decentralized.simulated.node import Node
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation, Step
from hadpsgd.decentralized.strategies.registry import Choice, create
from hadpsgd.decentralized.topology.schedules import create as create_schedule
from hadpsgd.errors import UserError

DENSE = {"bfloat16": dense.bfloat16, "int8": dense.int8}
WIRES = list(DENSE)
SCHEDULES = ["ring", "pairwise", "random-ring", "random-partner"]
LEARNERS, STEPS = 5, 30


def values(seed: int, blocks: int, dtype: torch.dtype) -> Tensor:
    """Of many sizes; some blocks are zero."""
    draws = np.random.default_rng(seed)
    sizes = np.repeat(10.0 ** draws.integers(-6, 6, blocks) * draws.integers(0, 2, blocks), BLOCK)
    return torch.from_numpy(draws.normal(size=BLOCK * blocks) * sizes).to(dtype)


def sent(wire: str, what: Tensor) -> Tensor:
    """What a message says of values."""
    rounding = ROUNDINGS[wire]
    assert rounding is not None
    message, out = message_like(what, rounding), torch.empty_like(what)
    rounding.encode(what, message)
    assert message.nbytes == rounding.nbytes(len(what))
    rounding.decode(message, out)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wire", WIRES)
@given(seed=st.integers(0, 2**32), blocks=st.integers(1, 40), at=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_messages_say_what_numpy_says(
    wire: str, dtype: torch.dtype, seed: int, blocks: int, at: int
) -> None:
    what = values(seed, blocks, dtype)
    found = sent(wire, what)
    np.testing.assert_array_equal(found.double().numpy(), DENSE[wire](what.double().numpy()))
    cut = BLOCK * min(at, blocks)  # shards of a super-learner say what the whole does
    for part in (slice(0, cut), slice(cut, None)):
        assert torch.equal(sent(wire, what[part]), found[part])
    assert torch.equal(sent(wire, found), found)


def test_a_long_message_is_its_pieces() -> None:
    what = values(1, 2**15 + 3, torch.float32)
    np.testing.assert_array_equal(sent("int8", what).numpy(), dense.int8(what.double().numpy()))


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_rounded_off_is_sent_later(wire: str) -> None:
    """The sum of all messages is that of all weights, but for what is owed, which stays small."""
    rounding = ROUNDINGS[wire]
    assert rounding is not None
    draws = np.random.default_rng(2)
    weights = torch.from_numpy(draws.normal(size=64))
    sender, message = Sender(rounding, weights), message_like(weights, rounding)
    wanted, said = torch.zeros(64).double(), torch.zeros(64).double()
    for number in range(200):
        weights += 1e-4 * torch.from_numpy(draws.normal(size=64))
        out = weights.clone()
        sender.send(out, message)
        if number % 3:  # a message that is not mixed in says nothing, and owes nothing
            sender.count()
            wanted += weights
            said += out
        torch.testing.assert_close(wanted, said + sender.owed, rtol=0, atol=1e-10)
    assert sender.owed.abs().max() <= 2.0**-6 * weights.abs().max()
    assert (weights != out).any()


def setting(wire: str, schedule: str, rate: float = RATE) -> Setting:
    """AD-PSGD among uneven learners."""
    return Setting(
        strategy=create(Choice(strategy="adpsgd", wire=wire)),
        schedule=create_schedule(schedule, learners=LEARNERS, seed=3),
        compute=ComputeTimes(seconds=1.0, factors={0: 2.5}, spread="exponential"),
        links=LinkTimes(latency=0.01, bandwidth=1e4),
        sgd=SGDS[1],
        rate=lambda _: rate,
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("wire", WIRES)
def test_the_engine_is_the_dense_evaluation(wire: str, schedule: str) -> None:
    simulation = Simulation(setting(wire, schedule), Small(), record=True)
    start = simulation.mean().numpy().copy()
    simulation.run(steps=STEPS, seconds=1000)
    record = {node.index: node.events for node in simulation.nodes}
    assert not ledger_faults(record)
    starts = dict.fromkeys(record, start)
    versions = dense.evaluate(record, starts, small_gradient, oracle(SGDS[1]), DENSE[wire])
    plain = dense.evaluate(record, starts, small_gradient, oracle(SGDS[1]))
    for node, found in enumerate(simulation.weights().numpy()):
        np.testing.assert_allclose(found, versions[node][-1], rtol=1e-10, atol=1e-12)
        assert not np.allclose(found, plain[node][-1], rtol=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("wire", WIRES)
def test_the_mean_stays_and_distances_shrink(wire: str, schedule: str) -> None:
    """Nothing but mixing acts; below the last bit that is sent, what is owed goes on to mix."""
    simulation = Simulation(setting(wire, schedule, rate=0.0), Small(), record=True)
    for node in simulation.nodes:
        learner = node.engine.learner
        learner.weights.add_(torch.randn(32, generator=torch.Generator().manual_seed(node.index)))
    mean, apart = simulation.mean(), simulation.consensus()
    simulation.run(steps=40, seconds=1000)
    torch.testing.assert_close(simulation.mean(), mean, rtol=0, atol=1e-13)
    assert simulation.consensus() < 0.02 * apart
    mixes = sum(isinstance(event, Mix) for node in simulation.nodes for event in node.events)
    assert mixes > 40


@pytest.mark.parametrize("schedule", ["ring", "random-partner"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_record_with_pauses_is_replayed_to_the_bit(
    wire: str, schedule: str, tmp_path: Path
) -> None:
    """At a checkpoint nothing is owed any more: a resumed run goes on like an unbroken one."""
    wanted = setting(wire, schedule)

    def recorder(node: int) -> Recorder:
        return Recorder(tmp_path / f"{node}", {}, wanted.schedule, node)

    def stepped(node: Node, step: Step) -> None:
        if node.index == 1 and step.step in (11, 12, 25):
            node.engine.request_pause()

    def paused(node: Node) -> None:
        node.engine.state_dict()

    simulation = Simulation(wanted, Small(), recorder=recorder, on_step=stepped, on_pause=paused)
    simulation.run(steps=STEPS, seconds=1000)
    records: dict[int, Sequence[Entry]] = {}
    for node in simulation.nodes:
        assert node.engine.recorder is not None
        node.engine.recorder.flush()
        records[node.index] = read(tmp_path / f"{node.index}", wanted.schedule)
        assert sum(isinstance(entry, Forget) for entry in records[node.index]) >= 2
    assert not ledger_faults({node: events_of(found) for node, found in records.items()})
    for own, rounding in ((True, ROUNDINGS[wire]), (False, None)):
        learners = {node: learner() for node in records}
        Replay(records, learners, gradient, rounding=rounding).run()
        again = torch.stack([learners[node].weights for node in sorted(learners)])
        assert torch.equal(again, simulation.weights()) == own


def learner() -> Learner:
    """A learner of the small problem."""
    return Learner(flatten(Small().module), SGDS[1])


def gradient(node: int, learner: Learner) -> float:
    """Of its step, into its buffer."""
    found = small_gradient(node, learner.steps, learner.model.numpy())
    learner.gradient.copy_(torch.from_numpy(found))
    return float(learner.gradient.norm())


@pytest.mark.parametrize("wire, ratio", [("float32", 1), ("bfloat16", 1 / 4), ("int8", 17 / 128)])
def test_bytes_are_those_of_messages(wire: str, ratio: float) -> None:
    """Of weights in double precision; a virtual model's on the links, too."""
    simulation = Simulation(setting(wire, "ring"), Small())
    simulation.run(steps=5, seconds=1000)
    for node in simulation.nodes:
        sends = 2 * node.engine.learner.rounds
        assert node.engine.bytes_sent == sends * 32 * 8 * ratio


@pytest.mark.parametrize("strategy", ["single", "ssgd", "dpsgd", "d1d", "local", "sgp", "noloco"])
def test_strategies_that_cannot_round_say_so(strategy: str) -> None:
    with pytest.raises(UserError, match=f"{strategy} sends weights as they are, not as int8"):
        create(Choice(strategy=strategy, wire="int8"))
    with pytest.raises(ValueError, match=f"{strategy} cannot send weights as int8"):
        Run(strategy=strategy, learners=1 if strategy == "single" else 4, wire="int8")


def test_super_learners_round_among_adpsgd_alone() -> None:
    Run(strategy="hadpsgd", learners=4, super_learner=2, wire="int8")
    with pytest.raises(ValueError, match="hadpsgd cannot send weights as bfloat16"):
        Run(strategy="hadpsgd", learners=4, super_learner=2, among="d1d", wire="bfloat16")
