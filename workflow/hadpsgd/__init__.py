"""H-ADPSGD: speech to word error rate, trained by asynchronous decentralised SGD.

The rooms, in the order in which data passes them: corpus, features, gmm, alignment, egs, models,
decentralized, training, lm, graph, decoding, scoring, reports. A room imports only rooms above it
and the common modules (config, kaldi_io, errors, files); tracking is called at the edges only.
"""

# kaldi_hmm_gmm 1.1 hangs at import in a process that has loaded kaldifst, kaldi_decoder or kaldilm
# (each wheel carries its own OpenFst); the other way round all works. So it comes first, here.
import kaldi_hmm_gmm as _first  # noqa: F401
