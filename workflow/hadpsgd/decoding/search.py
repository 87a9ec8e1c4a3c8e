"""Search of one utterance through HCLG with kaldi-decoder."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.decoding import Decoding
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.rescore import Rescorer
from hadpsgd.errors import UserError
from hadpsgd.graph.transitions import Transitions


@dataclass(frozen=True)
class Found:
    """What the search left of an utterance.

    content: the lattice in Kaldi's binary format, acoustic costs not scaled; None if no path.
    partial: no final state was reached, so that the paths end anywhere.
    """

    frames: int
    content: bytes | None
    partial: bool = False


class Searcher:
    """A graph with its options. Load it before processes fork: they then share its memory.

    Pickled, it is only its folder; the graph is loaded again where it arrives.
    """

    def __init__(self, folder: Path, options: Decoding) -> None:
        self.folder, self.options = Path(folder), options
        self._load()

    def _load(self) -> None:
        path = self.folder / "HCLG.fst"
        self.transitions = Transitions.read(self.folder / "transitions.npz")
        self._column = self.transitions.pdf[1:]
        graph = kaldifst.StdConstFst.read(str(path)) if path.exists() else None
        if graph is None:
            raise UserError(
                "no graph, or a damaged one", where=path, fix="`hadpsgd graph` makes it"
            )
        self._graph = graph
        self._rescorer = Rescorer.of_graph(self.folder)

    def __getstate__(self) -> tuple[Path, Decoding]:
        return self.folder, self.options

    def __setstate__(self, state: tuple[Path, Decoding]) -> None:
        self.folder, self.options = state
        self._load()

    def __call__(self, loglikes: NDArray[np.float32]) -> Found:
        """Search an utterance.

        Args:
            loglikes: float32 [frames, pdfs], log-likelihoods (of a network: log-posteriors minus
                log-priors), not scaled.

        Raises:
            UserError: another number of pdfs than the graph's, or NaN.
        """
        self._check(loglikes)
        if len(loglikes) == 0:
            return Found(0, None)
        # the decoders read column ilabel - 1: one column for each transition-id
        scaled = np.multiply(loglikes, np.float32(self.options.acoustic_scale), dtype=np.float32)
        decodable = kaldi_decoder.DecodableCtc(scaled.take(self._column, axis=1))
        lattice, partial = self._best(decodable) if self.options.one_best else self._all(decodable)
        if lattice is None:
            return Found(len(loglikes), None, partial=True)
        scale = kaldifst.lattice_scale(1.0, 1.0 / self.options.acoustic_scale)
        kaldifst.scale_lattice(scale, lattice)
        content = _bytes(lattice)
        if self._rescorer is not None:
            content = lattice_io.encode(self._rescorer(lattice_io.parse(content)))
        return Found(len(loglikes), content, partial)

    def _check(self, loglikes: NDArray[np.float32]) -> None:
        if loglikes.ndim != 2 or loglikes.shape[1] != self.transitions.num_pdfs:
            raise UserError(
                f"scores of shape {loglikes.shape} for a graph of {self.transitions.num_pdfs} pdfs",
                fix="Model and graph must come from the same alignments",
            )
        if not np.isfinite(loglikes).all():
            raise UserError("scores that are not finite (NaN or infinite)", fix="Train again")

    def _all(self, decodable: object) -> tuple[kaldifst.Lattice | None, bool]:
        config = kaldi_decoder.LatticeSimpleDecoderConfig(
            beam=self.options.beam, lattice_beam=self.options.lattice_beam
        )
        decoder = kaldi_decoder.LatticeSimpleDecoder(self._graph, config)
        decoder.decode(decodable)
        partial = not np.isfinite(decoder.final_relative_cost())
        ok, lattice = decoder.get_raw_lattice()
        return (lattice if ok and lattice.num_states else None), partial

    def _best(self, decodable: object) -> tuple[kaldifst.Lattice | None, bool]:
        config = kaldi_decoder.FasterDecoderOptions(
            beam=self.options.beam, max_active=self.options.max_active
        )
        decoder = kaldi_decoder.FasterDecoder(self._graph, config)
        decoder.decode(decodable)
        ok, lattice = decoder.get_best_path()
        return (lattice if ok and lattice.num_states else None), not decoder.reached_final()


def _bytes(lattice: kaldifst.Lattice) -> bytes:
    with tempfile.NamedTemporaryFile(prefix="hadpsgd") as file:
        if not lattice.write(file.name):
            raise UserError("cannot write a temporary file", where=file.name, fix="Free some space")
        return Path(file.name).read_bytes()
