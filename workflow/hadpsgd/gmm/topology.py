"""HMM topology in Kaldi's binary form, as it lies in `final.mdl`."""

from __future__ import annotations

from hadpsgd.corpus.lang.topology import State, Topology
from hadpsgd.kaldi_binary import Reader, Writer


def read_binary(reader: Reader) -> Topology:
    """Read `<Topology> ... </Topology>` of a binary model."""
    reader.expect("<Topology>")
    phones, index = reader.int32_vector(), reader.int32_vector()
    size = reader.int32()
    hmm = size != -1
    if not hmm:
        size = reader.int32()
    entries = []
    for _ in range(size):
        states = []
        for _ in range(reader.int32()):
            forward = reader.int32()
            loop = forward if hmm else reader.int32()
            arcs = tuple((reader.int32(), reader.float32()) for _ in range(reader.int32()))
            states.append(
                State(forward_pdf_class=forward, self_loop_pdf_class=loop, transitions=arcs)
            )
        entries.append(tuple(states))
    reader.expect("</Topology>")
    return Topology(phones, index, tuple(entries))


def write_binary(topology: Topology, writer: Writer) -> None:
    """Write `<Topology> ... </Topology>` as Kaldi does."""
    hmm = topology.is_hmm
    writer.token("<Topology>")
    writer.int32_vector(topology.phones)
    writer.int32_vector(topology.index)
    if not hmm:
        writer.int32(-1)
    writer.int32(len(topology.entries))
    for entry in topology.entries:
        writer.int32(len(entry))
        for state in entry:
            writer.int32(state.forward_pdf_class)
            if not hmm:
                writer.int32(state.self_loop_pdf_class)
            writer.int32(len(state.transitions))
            for target, probability in state.transitions:
                writer.int32(target)
                writer.float32(probability)
    writer.token("</Topology>")
