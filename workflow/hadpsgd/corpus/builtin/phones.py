# ruff: noqa: RUF001 (the IPA is meant)
"""espeak-ng's phonemes as 41 phones, named as in ARPAbet, and the lexicon in them.

AX is schwa, DX the flapped t of American English. Long vowels and diphthongs of British
accents take the nearest name (`əʊ` is OW, `ɒ` is AO, `eə` is EH AX).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from hadpsgd.corpus.builtin.espeak import Espeak

_VOWELS = (
    "aɪə=AY AX|aɪɚ=AY ER|aʊə=AW AX|aʊɚ=AW ER|aɪ=AY|aʊ=AW|ɔɪ=OY|eɪ=EY|oʊ=OW|əʊ=OW|eə=EH AX|"
    "ɛə=AE|iə=IH AX|ɪə=IH AX|ʊə=UH AX|oə=AO AX|ɔə=AO AX|əɪ=ER|əl=AX L|ɑː=AA|ɔː=AO|ɜː=ER|"
    "iː=IY|uː=UW|oː=OW|eː=EY|aː=AA|ɑ=AA|ɒ=AO|ɔ=AO|æ=AE|aa=AE|a=AE|ʌ=AH|ɐ=AX|ə=AX|ɚ=ER|ɜ=ER|"
    "ɛ=EH|e=EH|i=IY|ɪ=IH|ᵻ=IH|o=OW|u=UW|ʊ=UH"
)
_CONSONANTS = (
    "tʃ=CH|dʒ=JH|b=B|d=D|ð=DH|ɾ=DX|f=F|ɡ=G|h=HH|k=K|l=L|m=M|n̩=AX N|n=N|ŋ=NG|p=P|ɹ=R|r=R|"
    "s=S|ʃ=SH|t=T|ʔ=T|θ=TH|v=V|w=W|j=Y|x=K|z=Z|ʒ=ZH"
)
PHONES: dict[str, tuple[str, ...]] = {
    ipa: tuple(names.split())
    for ipa, _, names in (e.partition("=") for e in f"{_VOWELS}|{_CONSONANTS}".split("|"))
}
_LONGEST = max(map(len, PHONES))
_MARKS = str.maketrans("", "", "ˈˌ\u200d\u032a")

# of a word's pronunciations in one accent, those this much rarer than the others are left out
_RARE = 0.1


def to_phones(phonemes: Sequence[str]) -> tuple[str, ...]:
    """Phones of one word's phonemes; longest match first.

    Raises:
        ValueError: a symbol that is not in the table.
    """
    phones: list[str] = []
    for phoneme in phonemes:
        rest = phoneme.translate(_MARKS)
        while rest:
            for length in range(min(_LONGEST, len(rest)), 0, -1):
                if rest[:length] in PHONES:
                    phones += PHONES[rest[:length]]
                    rest = rest[length:]
                    break
            else:
                raise ValueError(f"no phone for '{rest}' of '{phoneme}'")
    return tuple(phones)


def make_lexicon(
    espeak: Espeak, accents: Iterable[str], words: Iterable[str], sentences: Sequence[str]
) -> dict[str, list[tuple[str, ...]]]:
    """Pronunciations of words, sorted: alone and, of those in sentences, the usual ones.

    Sentences (words without punctuation) show reduced forms: `to` before a vowel, `a`, `them`.
    Only sentences in which espeak-ng gives each word phonemes of its own are counted. It gets all
    in lower case: capitals it may spell out (`IT` as AY T IY).
    """
    lexicon: dict[str, set[tuple[str, ...]]] = {word: set() for word in words}
    for accent in accents:
        espeak.accent(accent)
        for word, pronunciations in lexicon.items():
            alone = (p for group in espeak.phonemes(word.lower()) for p in group)
            pronunciations.add(to_phones(list(alone)))
        for word, counts in _in_context(espeak, sentences).items():
            usual = _RARE * counts.total()
            lexicon[word] |= {pron for pron, n in counts.items() if n > usual}
    return {word: sorted(lexicon[word]) for word in sorted(lexicon)}


def _in_context(espeak: Espeak, sentences: Iterable[str]) -> dict[str, Counter[tuple[str, ...]]]:
    found: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for sentence in sentences:
        words = sentence.split()
        groups = espeak.phonemes(sentence.lower())
        if len(words) == len(groups):
            for word, group in zip(words, groups, strict=True):
                found[word][to_phones(group)] += 1
    return found
