"""`hadpsgd replay`: train again from a run's record; the same weights, bit for bit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from hadpsgd.config import RunSettings, load, settings_of
from hadpsgd.decentralized.core.buffers import Flat, flatten
from hadpsgd.decentralized.core.events import ledger_faults
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sums import mean_of
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.network.rounding import ROUNDINGS
from hadpsgd.decentralized.record.reading import events_of, read, read_header, shared_blocks
from hadpsgd.decentralized.record.replay import Replay
from hadpsgd.decentralized.strategies.strategy import UNROUNDED
from hadpsgd.decentralized.topology.schedules import Complete, create
from hadpsgd.egs.dataset import Dataset
from hadpsgd.egs.masking import Masks
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.models.backend import allow_tf32
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import checksum
from hadpsgd.progress import Progress
from hadpsgd.training import arithmetic, averaging, final, memory
from hadpsgd.training.criterion import begin, criterion_of
from hadpsgd.training.data import Feed, plan_of
from hadpsgd.training.engines import injection_of, record_folder, sgd_of, strategy_of
from hadpsgd.training.evaluation import pick_device
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.identity import checkpoint_folder, identity
from hadpsgd.training.metrics import say
from hadpsgd.training.saved import Saved, newest

DIFFERENT = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="YAML config of the run")
    parser.add_argument("--run-id", "--run", dest="run", required=True, help="as in the config")
    parser.add_argument("--egs", type=Path, required=True, help="its training examples")
    parser.add_argument(
        "--initial", type=Path, metavar="FINAL.PT", help="model that a stage went on from"
    )
    parser.add_argument(
        "--checkpoints", type=Path, help="folder of its checkpoints and record, if elsewhere"
    )
    parser.add_argument("--out", type=Path, help="write final.pt and summary.json here")


def run(args: argparse.Namespace) -> int:
    """Replay up to the newest checkpoint and compare with it; 1 if a bit differs.

    Under torchrun, several processes share the learners out.
    """
    config = load(args.config)
    settings = settings_of(config, args.run)
    hash_ = identity(config, settings.run.id, args.egs, initial=args.initial)
    folder = args.checkpoints or checkpoint_folder(config, run_id=settings.run.id, hash_=hash_)
    processes = int(rendezvous.environment()["WORLD_SIZE"])
    meeting = rendezvous.meet(
        learners=processes, size=1, agree_on=hash_, seconds=config.site.rendezvous_seconds
    )
    if processes > 1:
        rank = meeting.place.rank
        rendezvous.process_group("replay", meeting, rank=rank, size=processes, by_host=True)
    saved = newest(folder)
    if settings.training.precision == "bf16":
        memory.keep()
    choice = averaging.choice_of(folder, saved.folder.name)
    learners, kept = replay(
        settings,
        args.egs,
        saved,
        meeting,
        choice.needed if choice else set(),
        initial=args.initial,
    )
    different = compare(saved, learners)
    kind = "super-learner" if settings.run.super_learner > 1 else "learner"
    for node in different:
        say(f"{kind} {node}: weights differ from the checkpoint's")
    if not different:
        nodes = ", ".join(map(str, sorted(learners)))
        say(f"{args.run}: {kind} {nodes} replayed, every bit the same")
    if args.out and processes > 1:
        raise UserError("--out needs all learners in one process: leave torchrun away")
    if args.out:
        last = {node: learners[node] for node in sorted(saved.parts())}
        mean, distance = final.average([learner.weights.cpu() for learner in last.values()])
        if choice:
            mean = choice.weights(lambda ended: kept[ended.node, ended.version], last=mean)
        _write(settings, args.egs, last, args.out, mean=mean, distance=distance, hash_=hash_)
    if processes > 1:
        dist.barrier()
        dist.destroy_process_group()
    return DIFFERENT if different else 0


def replay(
    settings: RunSettings,
    egs: Path,
    saved: Saved,
    meeting: Meeting,
    needed: Collection[tuple[int, int]] = (),
    *,
    initial: Path | None = None,
) -> tuple[dict[int, Learner], dict[tuple[int, int], Tensor]]:
    """This process's learners after all that the record says up to a checkpoint; and of the
    (node, version) `needed`, their weights at that version.

    Raises:
        UserError: the record loses a gradient, applies one twice or uses what is not there yet.
    """
    run_, training, seed = settings.run, settings.training, settings.seed
    folder = saved.folder.parent
    counted = {n: record for n, record in saved.records().items() if record.length}
    files = {node: record_folder(folder) / record.file for node, record in counted.items()}
    header = read_header(files[min(files)])
    nodes, size = header["nodes"], run_.learners // header["nodes"]
    _warn_if_other(header)
    torch.set_num_threads(header["threads"])
    dataset = Dataset(egs)
    plan = plan_of(settings, dataset)
    strategy = strategy_of(run_, plan.steps)
    schedule = (
        create(run_.schedule, learners=nodes, seed=seed)
        if strategy.mixes
        else Complete(learners=nodes)
    )
    schedule = injection_of(run_, seed).on(schedule, one_way=strategy.push_sum)
    records = {node: read(files[node], schedule, record.length) for node, record in counted.items()}
    if faults := ledger_faults({node: events_of(found) for node, found in records.items()}):
        raise UserError("; ".join(faults), where=record_folder(folder), fix="The record is damaged")
    processes = meeting.place.world
    mine = [node for node in records if node % processes == meeting.place.rank]
    device = pick_device(training.device, meeting.place.rank % meeting.local_world)
    dtype = torch.float64 if training.precision == "fp64" else torch.float32
    allow_tf32(training.precision == "tf32")
    model = BLSTM.for_training(
        settings.model, input_dim=dataset.dim, num_pdfs=dataset.num_pdfs, seed=seed
    )
    begin(model, initial, dataset)
    model = model.to(device, dtype)
    way = arithmetic.recorded(training.precision, folder)
    subsequences = max(1, training.batch // run_.learners)
    trial = arithmetic.Size(subsequences=subsequences, frames=dataset.frames)
    arithmetic.check(model, trial, way, folder)
    flat = flatten(model, shards=run_.learners)
    arithmetic.prepare(model, way)
    gradients = Gradients(criterion_of(model, settings, dataset), settings, device, arithmetic=way)
    feed = Feed(
        dataset,
        plan,
        rank=0,
        learners=run_.learners,
        device=device,
        dtype=dtype,
        masks=Masks.of(training, seed, dataset),
    )

    blocks = {
        node: shared_blocks(found, node=node, learners=nodes) for node, found in records.items()
    }

    def gradient(node: int, learner: Learner) -> float:
        if shared_work := blocks[node]:
            step, part = divmod(shared_work[learner.steps], nodes)
            members = range(part * size, (part + 1) * size)
            return _average_gradient(flat, learner, gradients, feed, members, step)
        shared = learner.steps < strategy.shared_steps and size == 1
        members = range(run_.learners) if shared else range(node * size, (node + 1) * size)
        return _average_gradient(flat, learner, gradients, feed, members, learner.steps)

    learners = {
        node: Learner(
            flat.another(own_gradient=strategy.late),
            sgd_of(training),
            late=strategy.late,
            outer=strategy.outer(flat.weights[flat.learnt], schedule, node),
        )
        for node in mine
    }
    again = Replay(
        records,
        learners,
        gradient,
        rounding=ROUNDINGS[header.get("wire", UNROUNDED)],
        average=strategy.collective,
        owner=lambda node: node % processes,
        process=meeting.place.rank,
        kept=needed,
    )
    total = sum(map(len, records.values()))
    progress = Progress("replay", total, "events")
    again.run(lambda n: progress.add(n - progress.done))
    return learners, again.kept


def _average_gradient(
    flat: Flat, learner: Learner, gradients: Gradients, feed: Feed, members: range, step: int
) -> float:
    """The mean over the members' parts of a step, summed in their order; its norm.

    Into the learner's buffer.
    """
    flat.point_to(learner.model)
    rows = []
    for member in members:
        flat.gradient.zero_()
        x, targets = feed.example(step=step, rank=member)
        gradients.take(x, targets, rank=member, step=step)
        rows.append(flat.gradient.clone() if len(members) > 1 else flat.gradient)
    if len(rows) > 1:
        mean_of(rows, learner.gradient)
    elif learner.gradient.data_ptr() != flat.gradient.data_ptr():
        learner.gradient.copy_(flat.gradient)
    return float(torch.linalg.vector_norm(learner.gradient))


def _write(
    settings: RunSettings,
    egs: Path,
    learners: dict[int, Learner],
    out: Path,
    *,
    mean: Tensor,
    distance: float,
    hash_: str,
) -> None:
    """What training leaves, of the replayed learners and the final weights `mean`."""
    run_, training = settings.run, settings.training
    dataset = Dataset(egs)
    model = BLSTM(
        settings.model, input_dim=dataset.dim, num_pdfs=dataset.num_pdfs, seed=settings.seed
    )
    flat = flatten(model.to(pick_device(training.device, 0)), shards=run_.learners)
    with torch.no_grad():
        flat.weights.copy_(mean)
    out.mkdir(parents=True, exist_ok=True)
    final.save(out, model, settings.model, dataset)
    first = learners[min(learners)]
    summary = {
        "run": run_.id,
        "identity": hash_,
        "replayed": True,
        "strategy": run_.strategy,
        "learners": run_.learners,
        "epochs": training.epochs,
        "steps": sum(learner.steps for learner in learners.values()) // len(learners),
        "mixes": first.rounds,
        "consensus_distance": distance,
        "weights": checksum(model),
    }
    write_text(out / "summary.json", json.dumps(summary, indent=2) + "\n")


def compare(saved: Saved, learners: dict[int, Learner]) -> list[int]:
    """Nodes whose weights, momentum or outer state are not those of the checkpoint."""
    different = []
    for node in learners.keys() & saved.parts().keys():
        learner = learners[node]
        part = saved.load(node)
        outer = learner.outer.state() if learner.outer is not None else {}
        ours = {"weights": learner.weights, "velocity": learner.velocity} | outer
        theirs = part | part.get("outer", {})
        if not all(_equal(value, theirs[name]) for name, value in ours.items()):
            different.append(node)
    return different


def _equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one.cpu(), other.cpu())
    return one == other


def _warn_if_other(header: dict[str, object]) -> None:
    here = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    for name, value in here.items():
        if header[name] != value:
            say(f"warning: recorded with {name} {header[name]}, this is {value}: bits may differ")
