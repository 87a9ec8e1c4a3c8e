"""The lang folder: phones, words, topology and lexicon transducers, as Kaldi's prepare_lang.sh."""
