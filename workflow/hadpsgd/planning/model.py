"""Seconds of a step and hours of training, strategy by strategy (docs/time-model.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from hadpsgd.errors import UserError
from hadpsgd.planning.cluster import Cluster, check
from hadpsgd.planning.traffic import allreduce, mixing

Strategy = Literal["single", "ssgd", "d1d", "dpsgd", "adpsgd", "rand", "hadpsgd"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
BACKWARD = 2 / 3
"""Share of a gradient's time in which parts of it are ready to be sent: its backward pass."""
PIECES = 8
"""Pieces that a gradient is sent in where that begins during the backward pass; the last one
cannot be hidden."""
FRAMES_A_SECOND = 100


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is trained, and on how much."""

    model_bytes: float
    hours_of_speech: float
    epochs: float = 16
    frames: int = 21
    """Of a subsequence; 100 are a second of speech."""

    def __post_init__(self) -> None:
        for what in ("model_bytes", "hours_of_speech", "epochs", "frames"):
            check(what.replace("_", " "), getattr(self, what))

    @property
    def subsequences(self) -> float:
        """Of an epoch."""
        return self.hours_of_speech * 3600 * FRAMES_A_SECOND / self.frames


@dataclass(frozen=True, kw_only=True)
class Team:
    """How learners work together."""

    strategy: Strategy
    batch: int
    """Subsequences of a step of all learners."""
    learners: int = 1
    super_learner: int = 1
    schedule: str = "ring"
    overlap: bool = True
    """Whether gradients are sent while the backward pass still runs (ssgd, hadpsgd)."""

    def __post_init__(self) -> None:
        if self.batch < self.learners:
            raise UserError(f"a batch of {self.batch} is too small for {self.learners} learners")
        if self.learners % self.super_learner:
            raise UserError(
                f"{self.learners} learners are no super-learners of {self.super_learner}"
            )

    @property
    def own_batch(self) -> float:
        """Subsequences of a learner's gradient."""
        return self.batch / self.learners


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where the seconds of a learner's step go; they add up to `seconds`."""

    compute: float
    """Forward, backward and update, alone on the machine."""
    waiting: float = 0.0
    """For slower learners."""
    exchange: float = 0.0
    """Communication that is not hidden, and what the hidden one takes from the gradient."""
    rounds: float = 0.0
    """Rounds of mixing of weights for each gradient."""

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.compute + self.waiting + self.exchange


def step(team: Team, cluster: Cluster, model_bytes: float) -> Step:
    """Mean step of a learner, where all learners are equally fast in the long run.

    Raises:
        UserError: the cluster has not so many GPUs.
    """
    if team.learners > cluster.nodes * cluster.gpus:
        raise UserError(
            f"{team.learners} learners on {cluster.nodes} nodes of {cluster.gpus} GPUs",
            fix="Give --nodes and --gpus that have one GPU a learner, or another config",
        )
    if cluster.gpus % team.super_learner:
        raise UserError(
            f"{cluster.gpus} GPUs of a node are no super-learners of {team.super_learner}"
        )
    match team.strategy:
        case "single":
            return Step(compute=cluster.compute.seconds(team.own_batch))
        case "ssgd":
            return _shared_gradient(team, cluster, team.learners, model_bytes)
        case "d1d":
            round_ = allreduce(cluster, learners=team.learners, size=model_bytes)
            return _in_step(team, cluster, round_, team.learners)
        case "dpsgd":
            return _in_step(team, cluster, _round(team, cluster, model_bytes), 3)
        case "adpsgd" | "rand" | "hadpsgd":
            own = _shared_gradient(team, cluster, team.super_learner, model_bytes)
            return _beside(own, _round(team, cluster, model_bytes), cluster.contention)


def _round(team: Team, cluster: Cluster, model_bytes: float) -> float:
    schedule = "random-ring" if team.strategy == "rand" else team.schedule
    return mixing(
        cluster,
        schedule,
        learners=team.learners,
        super_learner=team.super_learner,
        size=model_bytes,
    )


def _shared_gradient(team: Team, cluster: Cluster, group: int, model_bytes: float) -> Step:
    """A gradient averaged over `group` learners: all wait for the last, then for the bytes."""
    compute = cluster.compute.seconds(team.own_batch)
    seconds = allreduce(cluster, learners=group, size=model_bytes)
    hidden = min(BACKWARD * compute, (1 - 1 / PIECES) * seconds) if team.overlap else 0.0
    return Step(
        compute=compute,
        waiting=cluster.compute.wait(team.own_batch, learners=group),
        exchange=seconds - hidden + cluster.contention * hidden,
    )


def _beside(own: Step, round_: float, contention: float) -> Step:
    """Rounds beside the gradients, one a gradient or as many as the links carry; nobody waits."""
    if not round_:
        return own
    longest = own.seconds / (1 - contention)  # where messages travel all the time
    lost = contention * min(round_, longest)
    return replace(own, exchange=own.exchange + lost, rounds=min(1.0, longest / round_))


def _in_step(team: Team, cluster: Cluster, round_: float, group: int) -> Step:
    """A round beside each gradient, for which the next one waits.

    Learner i begins at max(its own end, begin of the last partner + round): where rounds are
    shorter than gradients, that slack absorbs most of the learners' noise.
    """
    compute = cluster.compute.seconds(team.own_batch)
    lost = cluster.contention * min(round_, compute / (1 - cluster.contention))
    late = cluster.compute.wait(team.own_batch, learners=min(group, team.learners))
    slack = compute + lost - round_
    waiting = late if slack <= late / 2 else late**2 / (2 * slack)
    exchange = max(lost, round_ - compute - waiting)
    return Step(compute=compute, waiting=waiting, exchange=exchange, rounds=1.0)


def seconds_a_batch(team: Team, cluster: Cluster, model_bytes: float) -> float:
    """Seconds in which all learners together take gradients of `team.batch` subsequences.

    One learner is `cluster.slowest` times slower: all wait for it where they go in step; where
    they do not, its (super-)learner alone makes fewer gradients.
    """
    usual = step(team, cluster, model_bytes).seconds
    if cluster.slowest == 1:
        return usual
    slowed = replace(
        cluster,
        compute=replace(cluster.compute, each=cluster.compute.each * cluster.slowest, noise=0.0),
    )
    slow = max(usual, step(team, slowed, model_bytes).seconds)
    if team.strategy in ("single", "ssgd", "d1d", "dpsgd"):
        return slow
    share = team.super_learner / team.learners
    return 1 / ((1 - share) / usual + share / slow)


def hours(team: Team, cluster: Cluster, work: Work) -> float:
    """Hours of training, without reading data, checkpoints and validation."""
    steps = work.epochs * work.subsequences / team.batch
    return steps * seconds_a_batch(team, cluster, work.model_bytes) / 3600
