"""The record on disk: what is written is read, in few bytes; damage is named."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Event, Join, Mix, Update
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.record import reading
from hadpsgd.decentralized.record.entries import Entry, Fold, Forget, planned
from hadpsgd.decentralized.record.reading import read
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.topology.schedules import Ring
from hadpsgd.errors import UserError

RING = Ring(learners=5)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Any events of node 2 whose versions exist."""
    found: list[Entry] = []
    version = step = 0
    for _ in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(["update", "mix", "other mix", "fold", "forget", "join"]))
        back = draw(st.integers(0, version))
        match kind:
            case "update":
                rate = draw(st.floats(1e-6, 10))
                found.append(Update(step=step, read=version - back, rate=rate))
                step += 1
            case "mix":
                versions = [draw(st.integers(0, 10**6)) for _ in range(2)]
                plan = planned(RING, node=2, round_=draw(st.integers(0, 10**6)))
                takes = tuple((j, w, v) for (j, w), v in zip(plan, versions, strict=True))
                found.append(
                    Mix(round=draw(st.integers(0, 10**9)), own=version - back, takes=takes)
                )
            case "other mix":
                takes = tuple((j, 0.1 * j, 7 * j) for j in range(draw(st.integers(0, 4))))
                found.append(Mix(round=3, own=version - back, takes=takes))
            case "fold":
                found.append(Fold())
            case "forget":
                found.append(Forget())
            case "join":
                found.append(
                    Join(source=draw(st.integers(0, 4)), version=draw(st.integers(0, 10**6)))
                )
        version += kind not in ("fold", "forget")
    return found


def write(path: Path, content: list[Entry]) -> Recorder:
    """A record of node 2."""
    recorder = Recorder(path, {"run": "x"}, RING, 2)
    recorder.begin()
    for entry in content:
        match entry:
            case Fold():
                recorder.fold()
            case Forget():
                recorder.forget()
            case _:
                recorder.event(entry)
    return recorder


@given(entries())
@settings(max_examples=100)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, content: list[Entry]) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.bin"
    length = write(path, content).flush()
    assert path.stat().st_size == length
    assert read(path, RING) == content


def test_who_died_before_its_first_event_has_a_record(tmp_path: Path) -> None:
    """Or no replay of the others' would begin."""
    path = tmp_path / "node-2.bin"
    recorder = write(path, [Update(step=0, read=0, rate=0.5)])
    assert read(path, RING) == []
    recorder.flush()
    assert len(read(path, RING)) == 1


def test_is_compact(tmp_path: Path) -> None:
    events: list[Event] = []
    for step in range(1000):
        takes = tuple((j, w, 2 * step - 1) for j, w in planned(RING, node=2, round_=step))
        events += [
            Update(step=step, read=2 * step, rate=0.1),
            Mix(round=step, own=2 * step, takes=takes),
        ]
    length = write(tmp_path / "node-2.bin", list(events)).flush()
    assert length < 9 * 1000


def test_resumed_record_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "node-2.bin"
    recorder = write(path, [Update(step=0, read=0, rate=0.5), Fold()])
    length = recorder.flush()
    recorder.event(Update(step=1, read=1, rate=0.5))
    recorder.flush()
    again = Recorder(path, {"run": "x"}, RING, 2)
    again.resume(length=length, version=1)
    again.event(Update(step=1, read=0, rate=0.25))
    again.flush()
    assert read(path, RING) == [
        Update(step=0, read=0, rate=0.5),
        Fold(),
        Update(step=1, read=0, rate=0.25),
    ]


@pytest.mark.parametrize("former_version", [False, True])
def test_a_checkpoint_knows_the_blocks_that_are_done(
    tmp_path: Path, former_version: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of a long run are not read again; the next block is written as before."""
    path = tmp_path / "node-2.bin"
    first = [
        Update(step=step, read=step, rate=0.5, block=block) for step, block in enumerate((7, 2, 11))
    ]
    before = write(path, list(first))
    state = before.state()
    before.event(Update(step=3, read=3, rate=0.5, block=12))
    before.flush()
    again = Recorder(path, {"run": "x"}, RING, 2)
    if former_version:
        again.resume(length=state["record_bytes"], version=3)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(reading, "_entries", lambda *_: pytest.fail("the record was read"))
            again.resume(
                length=state["record_bytes"],
                version=3,
                done=state["record_blocks"].tolist(),
                block=state["record_block"],
            )
    assert list(again.done) == [7, 2, 11]
    again.event(Update(step=3, read=3, rate=0.5, block=4))
    again.flush()
    assert list(again.done) == [7, 2, 11, 4]
    assert read(path, RING) == [*first, Update(step=3, read=3, rate=0.5, block=4)]


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "node-2.bin"
    write(path, [Update(step=0, read=0, rate=0.5)]).flush()
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match=r"node-2\.bin: the record is damaged"):
        read(path, RING)
    path.write_bytes(b"something else\n")
    with pytest.raises(UserError, match="not a record"):
        read(path, RING)
    with pytest.raises(UserError, match="no record"):
        read(tmp_path / "node-7.bin", RING)
    with pytest.raises(UserError, match="the record has 15 bytes, the checkpoint knows 99"):
        Recorder(path, {}, RING, 2).resume(length=99, version=1)


def test_newcomer_goes_on_after_the_last_whole_event(tmp_path: Path) -> None:
    """A kill in the middle of a write costs the event, not the record."""
    path = tmp_path / "node-2.bin"
    write(
        path, [Update(step=0, read=0, rate=0.5), Mix(round=0, own=1, takes=((1, 0.25, 7),))]
    ).flush()
    path.write_bytes(path.read_bytes()[:-4])
    again = Recorder(path, {"run": "x"}, RING, 2)
    assert again.take_over(again.left()) == (1, 1)
    again.event(Join(source=3, version=9))
    again.flush()
    assert read(path, RING) == [Update(step=0, read=0, rate=0.5), Join(source=3, version=9)]


@pytest.mark.parametrize("tail", [bytes(4096), b"\xff"])
def test_newcomer_goes_on_before_what_is_no_event(tail: bytes, tmp_path: Path) -> None:
    """A host that fails in the middle of a write may leave zeros where bytes were announced."""
    path = tmp_path / "node-2.bin"
    sound: list[Entry] = [Update(step=0, read=0, rate=0.5), Update(step=1, read=1, rate=0.5)]
    write(path, sound).flush()
    path.write_bytes(path.read_bytes() + tail)
    again = Recorder(path, {"run": "x"}, RING, 2)
    assert again.take_over(again.left()) == (2, 2)
    again.flush()
    assert read(path, RING) == sound


@pytest.mark.parametrize("left", [None, b"", b'{"form'])
def test_newcomer_of_one_that_wrote_nothing(left: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "node-2.bin"
    if left is not None:
        path.write_bytes(left)
    recorder = Recorder(path, {"run": "x"}, RING, 2)
    assert recorder.take_over(recorder.left()) == (0, 0)
    recorder.event(Join(source=3, version=9))
    recorder.flush()
    assert read(path, RING) == [Join(source=3, version=9)]


def test_events_are_kept_while_another_thread_flushes(tmp_path: Path) -> None:
    path = tmp_path / "node-2.bin"
    recorder = write(path, [])
    busy = threading.Event()

    def flush() -> None:
        while not busy.is_set():
            recorder.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    for step in range(20_000):
        recorder.event(Update(step=step, read=step, rate=0.5))
    busy.set()
    thread.join()
    recorder.flush()
    assert len(read(path, RING)) == 20_000


def test_a_pause_after_a_round_without_partners_is_told() -> None:
    """The next gradient reads another version, which a replay has to know."""
    told: list[object] = []
    learner = Learner(
        flatten(nn.Linear(2, 1)), Sgd(), record=told.append, folded=lambda: told.append("fold")
    )
    learner.sit_out(Mix(round=0, own=0, takes=()))
    for _ in range(2):  # once is enough
        learner.settle()
    learner.update(rate=0.1)
    assert told[1] == "fold" and isinstance(told[2], Update) and told[2].read == 1
    assert len(told) == 3
