"""Kaldi's binary primitives, now in `hadpsgd.kaldi_binary`, where every room may use them."""

from hadpsgd.kaldi_binary import *  # noqa: F403
