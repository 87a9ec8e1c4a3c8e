"""H-ADPSGD: speech to word error rate, trained by asynchronous decentralised SGD.

The rooms, in the order in which data passes them: corpus, features, gmm, alignment, egs, models,
decentralized, training, lm, graph, decoding, scoring, reports. A room imports only rooms above it
and the common modules (config, kaldi_io, errors, files); tracking is called at the edges only.
"""
