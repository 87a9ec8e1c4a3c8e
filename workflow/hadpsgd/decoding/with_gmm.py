"""Log-likelihoods of networks and of the GMM-HMM whose states they have learned, together.

Frame by frame and state by state (1 - share) times the networks' plus share times the GMM-HMM's
(combined as in Swietojanski, Ghoshal, Renals, "Revisiting hybrid and GMM-HMM system combination
techniques", 2013): both have the pdf-ids of one tree, so one graph.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config import Config
from hadpsgd.decoding.decode import Scorer
from hadpsgd.decoding.gmm import GmmScorer
from hadpsgd.decoding.network import NetworkScorer
from hadpsgd.decoding.scores import Scores, scores_of
from hadpsgd.errors import UserError
from hadpsgd.gmm import model as gmm_model
from hadpsgd.graph.transitions import Transitions


@dataclass(frozen=True, kw_only=True)
class WithGmm:
    """Makes a scorer of utterances."""

    networks: NetworkScorer
    gmm: GmmScorer
    gmm_share: float
    """Between 0 and 1."""

    def __call__(self) -> Scorer:
        """Load all models in the process that uses them.

        Raises:
            UserError: something is missing, broken or does not fit.
        """
        by_networks, by_gmm = self.networks(), self.gmm()

        def score(utterance: str) -> Scores:
            ours, others = by_networks(utterance), by_gmm(utterance)
            (frames, pdfs), (gmm_frames, gmm_pdfs) = ours.shape, others.shape
            if pdfs != gmm_pdfs:
                raise UserError(
                    f"{gmm_pdfs} pdf-ids, and the networks have {pdfs}",
                    where=self.gmm.folder / "final.mdl",
                    fix="Take the GMM-HMM whose alignments the networks have learned",
                )
            if abs(frames - gmm_frames) > 1:
                what = f"{utterance}: {gmm_frames} frames, and the networks' features have {frames}"
                raise UserError(what, where=self.gmm.feats, fix="Make the features again")

            def make(begin: int, end: int) -> NDArray[np.float32]:
                share = np.float32(self.gmm_share)
                return (1 - share) * ours[begin:end] + share * others[begin:end]

            held = ours.nbytes + others.nbytes
            return scores_of(frames=min(frames, gmm_frames), pdfs=pdfs, make=make, held=held)

        return score

    def share(self) -> None:
        """As `NetworkScorer.share`."""
        self.networks.share()

    def utterances(self) -> list[str]:
        """Utterances with features for both, in the order of the networks'."""
        known = set(self.gmm.utterances())
        return [utterance for utterance in self.networks.utterances() if utterance in known]


def add_gmm(parser: argparse.ArgumentParser) -> None:
    """Arguments of a command that may take a GMM-HMM beside the networks."""
    parser.add_argument(
        "--gmm",
        type=Path,
        help="folder of the GMM-HMM whose states the networks have learned: its log-likelihoods "
        "count, too, with the share decoding.gmm_share",
    )
    parser.add_argument("--gmm-feats", type=Path, help="folder of <set>/, its MFCC and CMVN")
    parser.add_argument(
        "--gmm-trans",
        type=Path,
        help="folder of <set>/trans, FMLLR transforms; without it final.alimdl scores, where there "
        "is one",
    )


def with_gmm(
    networks: NetworkScorer, args: argparse.Namespace, config: Config
) -> NetworkScorer | WithGmm:
    """The networks' scorer, and with --gmm that of both.

    Raises:
        UserError: some of the arguments are missing.
    """
    if args.gmm is None:
        if args.gmm_feats or args.gmm_trans:
            raise UserError("--gmm-feats and --gmm-trans are of --gmm, which is not given")
        return networks
    if args.gmm_feats is None:
        raise UserError("--gmm needs --gmm-feats, the folder of its MFCC")
    _check_states(args.gmm / "final.mdl", args.graph)
    name = networks.data.name
    gmm = GmmScorer(
        folder=args.gmm,
        data=networks.data,
        feats=args.gmm_feats / name,
        transforms=args.gmm_trans / name / "trans" if args.gmm_trans else None,
        max_skipped=config.features.max_skipped.of(name),
    )
    return WithGmm(networks=networks, gmm=gmm, gmm_share=config.decoding.gmm_share)


def _check_states(model: Path, graph: Path) -> None:
    """The graph's transitions and the model's lead to the same pdf-ids.

    Raises:
        UserError: they do not.
    """
    ours = Transitions.of(gmm_model.read(model).transitions)
    if not np.array_equal(ours.pdf, Transitions.read(graph / "transitions.npz").pdf):
        raise UserError(
            f"other states than those of {graph}",
            where=model,
            fix="Take the GMM-HMM whose alignments the networks have learned",
        )
