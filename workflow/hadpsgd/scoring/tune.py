"""Choice of language model weight and word penalty on the development set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.config.decoding import Scoring
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.lattice import Scaling
from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.hypotheses import Words, texts
from hadpsgd.scoring.nist import align_texts
from hadpsgd.scoring.reference import TextFilter
from hadpsgd.scoring.rescoring import Rescoring


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A language model weight (inverse acoustic scale), a penalty a word, whether words are those
    of least expected errors in place of the best path's, the share of the neural language model in
    words' probabilities, and whether it was chosen with n-best lists."""

    lm_weight: float
    word_penalty: float
    minimum_bayes_risk: bool = False
    neural_weight: float = 0.0
    listed: bool = False

    @property
    def needs_lists(self) -> bool:
        """Whether words are chosen from n-best lists, not from lattices."""
        return self.neural_weight > 0.0 or (self.minimum_bayes_risk and self.listed)

    @property
    def why_lists(self) -> str:
        """What was chosen that needs them."""
        if self.neural_weight > 0.0:
            return f"neural_weight {self.neural_weight:g} was chosen"
        return "words of minimum Bayes risk were chosen from n-best lists"

    def scaling(self, words: Words) -> Scaling:
        """As lattices of these words want it."""
        return Scaling(
            acoustic_scale=1.0 / self.lm_weight, word_penalty=self.word_penalty, inside=words.inside
        )


def settings_of(config: Scoring, neural_weights: Sequence[float] | None = None) -> list[Setting]:
    """All combinations that the config names; with lists, and weights of the neural model."""
    return [
        Setting(
            lm_weight=weight,
            word_penalty=penalty,
            minimum_bayes_risk=config.minimum_bayes_risk,
            neural_weight=neural,
            listed=neural_weights is not None,
        )
        for weight in config.lm_weights
        for penalty in config.word_penalties
        for neural in (neural_weights or (0.0,))
    ]


def tune(
    folder: Path,
    data: DataDir,
    words: Words,
    settings: Sequence[Setting],
    lists: Iterator[tuple[str, NbestList]] | None = None,
) -> list[Counts]:
    """Counts of every setting on a decoded set; utterances without lattice count as deleted.

    All settings have minimum Bayes risk, or none. `lists`: where the settings are `listed`.
    """
    risk = any(setting.minimum_bayes_risk for setting in settings)
    totals = [Counts() for _ in settings]
    missing = set(data.utterances)
    scalings = [setting.scaling(words) for setting in settings]
    rules = TextFilter(data, words.filters)

    def count(utterance: str, hyp: str) -> Counts:
        ref = rules.ref(data.utterances[utterance].text)
        return Counts.of(align_texts(ref, rules.hyp(hyp), rules.options, utterance))

    weights = [setting.neural_weight for setting in settings]
    neural = Rescoring(weights, lists, risk) if lists else None
    for utterance, hyps in texts(folder, data, words, scalings, risk=risk, neural=neural):
        missing.discard(utterance)
        counts = {hyp: count(utterance, hyp) for hyp in sorted(set(hyps))}
        totals = [total + counts[hyp] for total, hyp in zip(totals, hyps, strict=True)]
    for utterance in missing:
        lost = count(utterance, "")
        totals = [total + lost for total in totals]
    return totals
