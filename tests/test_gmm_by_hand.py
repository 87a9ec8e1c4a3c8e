"""Words of the GMM-HMM's row beside a decoding by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from small_workflow import CONFIG, Small, write

from hadpsgd import kaldi_io
from hadpsgd.gmm import model

ROW = "gmm-mono"


def dense(folder: Path, frames: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log-likelihoods [frames, pdfs] of all Gaussians, by the definition."""
    mixtures = model.read(folder / "final.mdl").mixtures
    found = []
    for low, high in zip(mixtures.offsets[:-1], mixtures.offsets[1:], strict=True):
        means = mixtures.means[low:high].astype(float)
        variances = mixtures.variances[low:high].astype(float)
        apart = (frames[:, None, :] - means) ** 2 / variances
        each = -0.5 * (apart + np.log(2 * np.pi * variances)).sum(axis=2)
        found.append(logsumexp(each + np.log(mixtures.weights[low:high]), axis=1))
    return np.stack(found, axis=1)


def deltas(mfcc: NDArray[np.float32]) -> NDArray[np.float32]:
    """MFCC, deltas and deltas of these (Kaldi's add-deltas: window 2, edges repeated)."""
    once = np.array([-2, -1, 0, 1, 2]) / 10
    parts = [mfcc]
    for window in (once, np.convolve(once, once)):
        reach = len(window) // 2
        padded = np.pad(mfcc, ((reach, reach), (0, 0)), mode="edge")
        shifted = (padded[i : i + len(mfcc)] * weight for i, weight in enumerate(window))
        parts.append(sum(shifted))
    return np.concatenate(parts, axis=1)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """The small workflow without its trainings: the GMM's row alone."""
    folder = tmp_path_factory.mktemp("scored")
    # the scale of the search, too: a lattice has the states of words that are best at that one
    scoring = CONFIG["scoring"] | {"lm_weights": [10]}
    made = Small(
        folder, write(folder, decoding=CONFIG["decoding"] | {"gmm": True}, scoring=scoring)
    )
    targets = [str(made.out / "score" / ROW / name) for name in ("dev", "swb")]
    ran = made.command(
        *("snakemake", "--profile", "local", "--cores", "2", "--configfile", str(made.config)),
        *("--", *targets),
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return made


def names_and_words(file: Path) -> dict[str, list[str]]:
    """A file of Kaldi's: the first word of each line, and the others."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name: words for name, *words in lines}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_words_are_those_of_decoding_by_hand(scored: Small) -> None:
    """Features, Gaussians and scores in NumPy; the search is kaldi-decoder's, one utterance at a
    time, at the scale of the search."""
    out, data = scored.out, scored.out / "feats/mfcc/swb"
    transitions = model.read(out / "ali/train/final.mdl").transitions
    graph = kaldifst.StdConstFst.read(str(out / "graph/HCLG.fst"))
    words = {int(n): word for word, [n] in names_and_words(out / "graph/words.txt").items()}
    speakers = names_and_words(out / "corpus/data/swb/utt2spk")
    tuned = json.loads((out / "score" / ROW / "tuned.json").read_text())
    mfcc, stats = kaldi_io.Scp(data / "feats.scp"), kaldi_io.Scp(data / "cmvn.scp")
    found = names_and_words(out / "score" / ROW / "swb/hyp.txt")
    assert len(found) > 5
    for name, words_found in found.items():
        sums = stats[speakers[name][0]]
        centred = mfcc[name] - sums[0, :-1] / sums[0, -1]
        scores = dense(out / "ali/train", deltas(centred)) / tuned["lm_weight"]
        columns = np.ascontiguousarray(scores[:, transitions.pdf[1:]], np.float32)
        decoder = kaldi_decoder.FasterDecoder(graph, kaldi_decoder.FasterDecoderOptions(beam=20.0))
        decoder.decode(kaldi_decoder.DecodableCtc(columns))
        _, path = decoder.get_best_path()
        _, _, numbers, _ = kaldifst.get_linear_symbol_sequence(path)
        assert [words[number] for number in numbers] == words_found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_row_is_there_before_any_training(scored: Small) -> None:
    counts = json.loads((scored.out / "score" / ROW / "swb/wer.json").read_text())
    shown = scored.command("hadpsgd", "report", "--config", str(scored.config), "--show")
    assert shown.returncode == 0, shown.stderr
    rate = f"{counts['wer']:.2f} % ({counts['errors']}/{counts['words']})"
    [row] = [line for line in shown.stdout.splitlines() if line.startswith(f"| {ROW} ")]
    assert re.search(rf"\| {re.escape(rate)} +\| not finished +\|", row), (
        row
    )  # ch was not asked for
    assert shown.stdout.count("| not finished |") >= 2  # the runs
