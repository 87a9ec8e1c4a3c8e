"""A recurrent language model over the n-gram's words, which rescores what is recognised.

It trains through `decentralize()` alone, as a script of one's own would (docs/library.md).
"""
