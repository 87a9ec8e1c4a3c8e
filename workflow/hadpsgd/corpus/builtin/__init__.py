"""The built-in corpus: SYNTHETIC telephone speech, spoken by espeak-ng from a grammar of ours.

A test bed that is made in seconds anywhere; no figure on it says anything about real speech.

    grammar.py         expands rules into sentences
    rules.py, topics.py  the rules: frames of conversation, and what is talked about
    disfluency.py      fillers, repetitions, restarts
    espeak.py          the espeak-ng library through ctypes
    phones.py          espeak's phonemes as a closed set of phones; the lexicon
    voices.py          speakers: accent, voice variant, rate, pitch
    channel.py         the telephone: band, tilt, room, noise, mu-law
    conversation.py    one two-channel recording
    prepare.py         sets, data directories, dictionary, texts
"""
