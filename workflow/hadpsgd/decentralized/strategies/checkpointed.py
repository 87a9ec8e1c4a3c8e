"""What a checkpoint has of a learner that mixes; the learner as the checkpoint has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from hadpsgd.decentralized.core.engine import Counted
from hadpsgd.decentralized.core.events import Join
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.strategies.mixer import Mixer
from hadpsgd.errors import UserError


def state_of(
    learner: Learner,
    mixer: Mixer,
    recorder: Recorder | None,
    place: Place,
    membership: tuple[int, Mapping[int, int]],
) -> dict[str, Any]:
    """Everything that a resumed learner needs; nothing may be in flight.

    `membership` is as `Engine.living`.
    """
    learner.settle()
    number, living = membership
    state: dict[str, Any] = {
        "membership": number,
        "living": dict(living),
        "layout": learner.flat.layout,
        "weights": learner.weights,
        "velocity": learner.velocity,
        "steps": learner.steps,
        "rounds": learner.rounds,
        "version": learner.version,
        "read": learner.read,
        "finished": mixer.finished,
    }
    if more := learner.sgd.state_dict():
        state["optimiser"] = more
    if learner.apart:
        state["model"] = learner.model
    if learner.outer is not None:
        state["outer"] = learner.outer.state()
    forgotten = mixer.exchange.forget()
    if recorder is not None:
        if forgotten:
            recorder.forget()
        state |= recorder.state()
        dead = set(range(place.nodes)) - set(living)
        state["dead"] = _records_of_dead(recorder, sorted(dead), until=number)
    return state


def _records_of_dead(
    recorder: Recorder, dead: Collection[int], *, until: int
) -> dict[int, tuple[str, int]]:
    """What counts of the records of super-learners that are dead: (file, bytes)."""
    if recorder.lives is None:
        return {}
    counted = {node: recorder.lives.counted(node, until=until) for node in dead}
    return {n: (found.file, found.length) for n, found in counted.items() if found}


def check_layout(state: Mapping[str, Any], learner: Learner) -> None:
    """Whether the weights of a checkpoint lie as the learner's do.

    Raises:
        UserError: in another order, as on another kind of device.
    """
    layout = learner.flat.layout
    if state.get("layout", layout) != layout:  # former versions did not note it
        raise UserError(
            "a checkpoint has the weights in another order: it is of another kind of device",
            fix="Go on with it on the kind of device (CPU or GPU) that it was made on",
        )


def restore(
    state: Mapping[str, Any], learner: Learner, mixer: Mixer, recorder: Recorder | None
) -> None:
    """Be where `state_of` was taken.

    Raises:
        UserError: see `check_layout`.
    """
    check_layout(state, learner)
    with torch.no_grad():
        learner.weights.copy_(state["weights"])
        learner.velocity.copy_(state["velocity"])
        if learner.apart:
            learner.model.copy_(state["model"])
        if learner.outer is not None:
            learner.outer.restore(state["outer"])
    if "optimiser" in state:
        learner.sgd.load_state_dict(state["optimiser"])
    learner.restore(
        steps=state["steps"],
        rounds=state["rounds"],
        version=state["version"],
        read=state["read"],
    )
    if recorder is not None:
        done = state.get("record_blocks")
        recorder.resume(
            length=state["record_bytes"],
            version=state["version"],
            done=None if done is None else done.tolist(),
            block=state.get("record_block"),
            file=state.get("record_file"),
        )
    mixer.finished = state["finished"]


def take_place(
    state: Mapping[str, Any],
    learner: Learner,
    recorder: Recorder | None,
    *,
    source: int,
    record: Counted | None,
) -> None:
    """Go on from the state of another super-learner, `source`, as a newcomer gets its weights.

    `record` is what counts of the record of this one, which was dead when the state was taken.

    Raises:
        UserError: see `check_layout`.
    """
    check_layout(state, learner)
    steps, version = recorder.take_over(record) if recorder else (0, 0)
    learner.restore(steps=steps, rounds=state["rounds"], version=version, read=version)
    learner.join(Join(source=source, version=state["version"]), state["weights"])
