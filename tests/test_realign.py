"""Alignments by a trained network: against a GMM's, and against Viterbi written out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from gmm_toy import Toy, toy
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp

from hadpsgd import kaldi_io
from hadpsgd.alignment.agreement import agreement
from hadpsgd.alignment.archives import read_alignments
from hadpsgd.cli import main
from hadpsgd.config import load, run_key
from hadpsgd.config.realign import Realign
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.realign import Aligner, Places, compiler_of, realign
from hadpsgd.decoding.scores import LongScores
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import read_transforms, transform
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.fusion import Fusion
from hadpsgd.gmm import model
from hadpsgd.gmm.data import Lang, word_ids
from hadpsgd.gmm.likelihood import log_likelihoods
from hadpsgd.gmm.training_graph import Graph
from hadpsgd.gmm.update import scaled_scores
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import ModelMeta, SavedShape, log_priors, save_model

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Given:
    """Makes a scorer of given scores."""

    scores: Mapping[str, Floats | LongScores]

    def __call__(self) -> Callable[[str], Floats | LongScores]:
        return self.scores.__getitem__


@dataclass(frozen=True)
class Toys:
    """Compiles the graph of a toy's phone: the only "word" of an utterance."""

    small: Toy

    @property
    def model(self) -> object:
        return self.small.model.transitions

    def __call__(self, words: list[int]) -> Graph:
        return self.small.graph(words[0])


def by_hand(small: Toy, phone: int, scores: Floats, scale: float) -> tuple[float, list[int]]:
    """Viterbi over the three states of a phone, in float64: score and transition-ids."""
    loops = small.first_ids(phone)
    costs = scaled_scores(small.model.transitions).astype(np.float64)
    pdfs = small.graph(phone).pdfs[1:]
    frames = len(scores)
    best = np.full((frames, 3), -np.inf)
    came = np.zeros((frames, 3), int)
    best[0, 0] = scale * scores[0, pdfs[0]]
    for t in range(1, frames):
        for state in range(3):
            ways = [(best[t - 1, state] + costs[loops[state]], state)]
            if state:
                ways.append((best[t - 1, state - 1] + costs[loops[state - 1] + 1], state - 1))
            best[t, state], came[t, state] = max(ways)
            best[t, state] += scale * scores[t, pdfs[state]]
    path = [2]
    for t in range(frames - 1, 0, -1):
        path.append(int(came[t, path[-1]]))
    return float(best[-1, 2] + costs[loops[2] + 1]), path[::-1]


def piecemeal(scores: Floats) -> LongScores:
    """The same, two frames at a time."""
    made = LongScores(
        frames=len(scores), pdfs=scores.shape[1], make=lambda begin, end: scores[begin:end]
    )
    made.rows = 2
    return made


@given(
    seed=st.integers(0, 2**31),
    frames=st.integers(3, 12),
    scale=st.sampled_from([0.1, 0.5]),
    in_pieces=st.booleans(),
)
def test_paths_are_those_of_viterbi_written_out(
    seed: int, frames: int, scale: float, in_pieces: bool
) -> None:
    random = np.random.default_rng(seed)
    small = toy(np.zeros((3, 3, 1)))
    spoken = [(f"u{phone}", [phone]) for phone in (1, 2, 3)]
    given = {u: random.normal(0, 9, (frames, 9)).astype(np.float32) for u, _ in spoken}
    scores = {u: piecemeal(each) if in_pieces else each for u, each in given.items()}
    options = Realign(acoustic_scale=scale, beam=1000, retry_beam=1000)
    outcome, found = Aligner(Given(scores), Toys(small), options)()(spoken)  # type: ignore[arg-type]
    assert [name for name, _ in found] == ["u1", "u2", "u3"] and not outcome.failed
    for (name, words), (_, ids) in zip(spoken, found, strict=True):
        score, path = by_hand(small, words[0], given[name], scale)
        assert outcome.per_frame[name] * frames == pytest.approx(score, abs=1e-3)
        assert small.model.transitions.hmm_state[ids].tolist() == path
        own = given[name][np.arange(frames), small.model.transitions.pdf[ids]]
        fit = (own - logsumexp(given[name], axis=1)).mean()
        assert outcome.fits[name] == pytest.approx(fit, abs=1e-4)


def test_failures_are_named_and_limited_as_those_of_gmms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One is retried, one needs too wide a beam, one is too short, one has broken scores."""
    small = toy(np.zeros((3, 3, 1)))
    pdfs = [small.graph(phone).pdfs[1:] for phone in (1, 2, 3)]

    def behind(phone: int, by: float, frames: int = 12) -> Floats:
        """All frames look like the first state, which the last two must leave."""
        scores = np.full((frames, 9), -by / 2 / 0.1, np.float32)
        scores[:, pdfs[phone - 1][0]] = 0
        return scores

    scores = {"fine": behind(1, 2), "retried": behind(2, 20), "lost": behind(3, 60),
              "short": behind(1, 2, 2)}  # fmt: skip
    spoken = [("fine", [1]), ("retried", [2]), ("lost", [3]), ("short", [1])]
    aligner = Aligner(Given(scores), Toys(small), Realign())  # type: ignore[arg-type]
    for name in ("final.mdl", "tree"):
        (tmp_path / name).write_text(name)
    (tmp_path / "phones.txt").write_text("a 1\n")
    places = Places(data=Path("data/x"), ali=tmp_path, lang=tmp_path, out=tmp_path / "out")
    realign(aligner, iter(spoken), 4, places, jobs=1, max_failed=0.5)
    said = capsys.readouterr().err
    assert "utterance lost not aligned: a beam of " in said
    assert "utterance short not aligned: 2 frames are too few for its transcript" in said
    told = json.loads((tmp_path / "out/alignment.json").read_text())
    assert list(told["retried"]) == ["retried"] and list(told["failed"]) == ["lost", "short"]
    assert (told["utterances"], told["aligned"], told["frames"]) == (4, 2, 24)
    kept = dict(kaldi_io.iterate(tmp_path / "out/ali.1.gz", "ints"))
    assert list(kept) == ["fine", "retried"] and all(len(ids) == 12 for ids in kept.values())
    assert (tmp_path / "out/final.mdl").read_text() == "final.mdl"
    places = Places(data=Path("x"), ali=tmp_path, lang=tmp_path, out=tmp_path / "no")
    with pytest.raises(UserError, match=r"2 of 4 utterances cannot be aligned.*max_failed = 0.4"):
        realign(aligner, iter(spoken), 4, places, jobs=1, max_failed=0.4)
    assert not (tmp_path / "no").exists()
    scores["fine"][3, pdfs[0][1]] = np.nan
    with pytest.raises(UserError, match="utterance fine: the network's scores are not finite"):
        aligner()(spoken[:1])
    scores["fine"] = scores["fine"][:, :8]
    with pytest.raises(UserError, match=r"the network has 8 outputs, and final\.mdl 9 pdf-ids"):
        aligner()(spoken[:1])


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> Path:
    return shared / "kaldi_an4"


def gmm_scores(kaldi: Path, data: DataDir) -> dict[str, Floats]:
    """Log-likelihoods of Kaldi's speaker-adapted GMM on its adapted features."""
    ali = kaldi / "exp/tri3b_ali"
    mixtures, transforms = model.read(ali / "final.mdl").mixtures, dict(read_transforms(ali))
    inputs = Inputs(data, kaldi / "data/train", Frontend.read(ali))
    return {
        name: log_likelihoods(
            mixtures, transform(features, transforms[data.utterances[name].speaker])
        )
        for name, features in inputs
    }


def test_a_gmms_likelihoods_give_kaldis_alignments(
    kaldi: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of 80 utterances over two processes; what is left are ties, as with `hadpsgd align`."""
    monkeypatch.chdir(kaldi)
    ali, everything = kaldi / "exp/tri3b_ali", DataDir.read(kaldi / "data/train", audio=False)
    names = sorted(everything.utterances)[::12]
    data = DataDir(everything.path, {name: everything.utterances[name] for name in names})
    lang = Lang(kaldi / "lang")
    scores = gmm_scores(kaldi, data)
    aligner = Aligner(Given(scores), compiler_of(ali, lang), Realign())
    spoken = zip(names, word_ids(data, names, lang), strict=True)
    places = Places(data=data.path, ali=ali, lang=kaldi / "lang", out=tmp_path / "ali")
    outcome = realign(aligner, spoken, len(names), places, jobs=2, max_failed=0.0)
    assert not outcome.failed
    transitions, found = read_alignments(tmp_path / "ali")
    items = list(found)
    assert [name for name, _ in items] == names
    theirs = dict(read_alignments(ali)[1])
    same = sum(int((ids == theirs[name]).sum()) for name, ids in items)
    total = sum(len(theirs[name]) for name in names)
    assert sum(len(ids) for _, ids in items) == total
    assert same / total > 0.997
    told = json.loads((tmp_path / "ali/alignment.json").read_text())
    share = np.mean(np.concatenate([
        transitions.pdf[ids] == transitions.pdf[theirs[name]] for name, ids in items
    ]))  # fmt: skip
    assert told["same_pdf"] == pytest.approx(share)
    assert "hardly those before" not in capsys.readouterr().err
    # one that has learnt nothing
    blind = Aligner(
        Given({name: 0 * scores[name] for name in names[:4]}), aligner.compiler, Realign()
    )
    some = zip(names[:4], word_ids(data, names[:4], lang), strict=True)
    places = Places(data=data.path, ali=ali, lang=kaldi / "lang", out=tmp_path / "blind")
    realign(blind, some, 4, places, jobs=1, max_failed=0.0)
    assert "warning: these labels are hardly those before" in capsys.readouterr().err


def test_agreement_in_any_order() -> None:
    pdf = np.array([-1, 0, 0, 1], np.int32)
    ones = [(name, np.array(ids, np.int32)) for name, ids in
            (("a", [1, 1, 3]), ("b", [3, 3]), ("only", [1]))]  # fmt: skip
    others = [(name, np.array(ids, np.int32)) for name, ids in
              (("b", [3, 1]), ("more", [1, 1, 1, 1]), ("a", [2, 3, 3]))]  # fmt: skip
    assert agreement(ones, others, pdf) == pytest.approx(3 / 5)
    assert agreement(others, ones, pdf) == pytest.approx(3 / 5)
    assert agreement(ones[:1], others[:1], pdf) is None


def test_runs_on_other_labels_are_other_runs(tmp_path: Path) -> None:
    """Passes, the run that aligns and the beam decide."""

    def key(**realign: object) -> str:
        runs = [{"strategy": "single"}, {"strategy": "ssgd", "learners": 2}]
        content = {"name": "t", "corpus": {"kind": "an4"}, "training": {"runs": runs}}
        (tmp_path / "c.yaml").write_text(json.dumps(content | {"realign": realign}))
        return run_key(load(tmp_path / "c.yaml"), "single")

    one = key(passes=1)
    assert one == key(passes=1, run="single")
    others = [key(), key(passes=2), key(passes=1, beam=9), key(passes=1, run="ssgd-2")]
    assert len({one, *others}) == 5
    assert key() == key(beam=9)  # without a pass nothing changes
    with pytest.raises(UserError, match=r"realign\.run: no training run 'x'; there are single, ss"):
        key(passes=1, run="x")


class TestCommand:
    """With a network that has learnt 30 utterances of AN4, Kaldi's MFCC standing for logmel."""

    @pytest.fixture(scope="class")
    @staticmethod
    def folder(kaldi: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Data, features and network."""
        folder = tmp_path_factory.mktemp("realign")
        for place in ("data/train", "feats/logmel/train"):
            (folder / place).mkdir(parents=True)
        for name in ("text", "utt2spk"):
            lines = (kaldi / "data/train" / name).read_text().splitlines(keepends=True)
            (folder / "data/train" / name).write_text("".join(lines[100:130]))
        for name in ("feats.scp", "cmvn.scp"):
            table = (kaldi / "data/train" / name).read_text()
            (folder / "feats/logmel/train" / name).write_text(table)
        features = {"logmel": {"bins": 13}, "normalise": "speaker-mean-variance"}
        content = {"name": "t", "corpus": {"kind": "an4"}, "features": features}
        (folder / "c.yaml").write_text(json.dumps(content))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(kaldi)
            TestCommand.train(folder, kaldi / "exp/tri3b_ali")
        return folder

    @staticmethod
    def train(folder: Path, ali: Path) -> None:
        config = load(folder / "c.yaml")
        data = DataDir.read(folder / "data/train", audio=False)
        transitions, alignments = read_alignments(ali)
        fusion = Fusion(config, folder / "feats", data)
        features, labels = [], []
        for name, ids in alignments:
            if name in data.utterances:
                whole = len(ids) // 21 * 21
                features.append(fusion[name][:whole])
                labels.append(transitions.pdf[ids][:whole])
        x = torch.from_numpy(np.concatenate(features)).unflatten(0, (-1, 21))
        y = torch.from_numpy(np.concatenate(labels)).unflatten(0, (-1, 21))
        shape = SavedShape(layers=1, cells=64, projection=64, dropout=0.0)
        network = BLSTM(shape, input_dim=x.shape[2], num_pdfs=transitions.num_pdfs, seed=1)
        optimiser = torch.optim.Adam(network.parameters(), 0.01)
        order = torch.Generator().manual_seed(1)
        for _ in range(250):
            rows = torch.randint(len(x), (48,), generator=order)
            optimiser.zero_grad()
            network.loss(x[rows], y[rows].long()).backward()
            optimiser.step()
        counts = np.bincount(y.numpy().ravel(), minlength=transitions.num_pdfs)
        meta = ModelMeta(shape, x.shape[2], ("logmel",), transitions.num_pdfs, log_priors(counts))
        save_model(folder / "final.pt", network, meta)

    def run(self, folder: Path, kaldi: Path, out: Path, *more: str, **instead: Path) -> int:
        place = {
            "config": folder / "c.yaml",
            "model": folder / "final.pt",
            "lang": kaldi / "lang",
            "ali": kaldi / "exp/tri3b_ali",
            "data": folder / "data/train",
            "streams": folder / "feats",
        } | instead
        arguments = [text for key, path in place.items() for text in (f"--{key}", str(path))]
        return main(["realign", *arguments, "--out", str(out), *more])

    def test_labels_are_mostly_those_that_it_was_trained_on(
        self, folder: Path, kaldi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(kaldi)
        assert self.run(folder, kaldi, tmp_path / "one", "--jobs", "1") == 0
        told = json.loads((tmp_path / "one/alignment.json").read_text())
        assert told["utterances"] == told["aligned"] == 30 and not told["failed"]
        assert told["same_pdf"] > 0.7  # 0.83 here; by chance under 0.1
        names = {"ali.1.gz", "final.mdl", "tree", "num_jobs", "phones.txt"}
        assert names <= {path.name for path in (tmp_path / "one").iterdir()}
        # the examples take them as any other alignments
        egs = [
            *("egs", "--config", str(folder / "c.yaml"), "--data", str(folder / "data/train")),
            *("--streams", str(folder / "feats"), "--ali", str(tmp_path / "one")),
            *("--out", str(tmp_path / "egs")),
        ]
        assert main(egs) == 0
        # processes change nothing
        assert self.run(folder, kaldi, tmp_path / "two", "--jobs", "2") == 0
        for name in ("ali.1.gz", "alignment.json", "scores.txt", "fits.txt"):
            one, two = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
            assert one == two

    def test_what_does_not_belong_together_is_refused(
        self,
        folder: Path,
        kaldi: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(kaldi)

        def refused(**instead: Path) -> str:
            out = tmp_path / "out"
            assert self.run(folder, kaldi, out, "--jobs", "1", **instead) == 2
            assert not out.exists()
            return capsys.readouterr().err

        assert "no such model" in refused(model=tmp_path / "final.pt")
        ali = tmp_path / "ali"
        ali.mkdir()
        assert f"{ali / 'final.mdl'}: " in refused(ali=ali)
        for name in ("final.mdl", "tree"):
            (ali / name).write_bytes((kaldi / "exp/tri3b_ali" / name).read_bytes())
        phones = (kaldi / "lang/phones.txt").read_text()
        (ali / "phones.txt").write_text(phones.replace("SIL_B", "HUSH_B"))
        assert "phone 'HUSH_B' is not the same as in" in refused(ali=ali)
        data = tmp_path / "train"
        data.mkdir()
        (data / "utt2spk").write_bytes((folder / "data/train/utt2spk").read_bytes())
        assert "no file text" in refused(data=data)
