"""i-vectors as Kaldi makes them: diagonal UBM, extractor, its training, extraction.

Dehak et al., "Front-end factor analysis for speaker verification", 2011; formats and updates are
those of Kaldi's ivector/ivector-extractor.cc.
"""
