"""The ladder from monophones to speaker-adaptive training, on little data, some of it bad."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.alignment.archives import read_alignments
from hadpsgd.cli import main
from hadpsgd.features.fmllr import read_transforms
from hadpsgd.gmm import checkpoint, event_map, model, training
from hadpsgd.gmm.training import Schedule
from hadpsgd.kaldi_binary import read_matrix

CONFIG = {
    "name": "ladder",
    "corpus": {"kind": "an4"},
    "alignment": {
        "kind": "sat",
        "max_failed": 0.1,
        "mono": {"gaussians": 200, "iterations": 12},
        "tri": {"leaves": 60, "gaussians": 250, "iterations": 8},
        "lda_mllt": {"leaves": 60, "gaussians": 250, "iterations": 8, "dim": 20},
        "sat": {"leaves": 60, "gaussians": 250, "iterations": 8},
    },
}
SPEAKERS = ("fash", "fbbh", "fclc", "fejs")
# what is wrong with these utterances
SILENT, LONG_TEXT, SHORT = "fash-silent", "fbbh-long", "short-e"


@dataclass(frozen=True)
class Corpus:
    """A Kaldi data directory of some AN4 utterances, its lang folder and the config."""

    data: Path
    lang: Path
    config: Path

    def run(self, stage: str, out: Path, *more: object) -> int:
        words = ["--config", self.config, "--data", self.data, "--feats", self.data]
        words += ["--lang", self.lang, "--out", out, *more]
        return main([stage, *map(str, words)])


def write_corpus(kaldi: Path, folder: Path, *, bad: bool) -> Corpus:
    """Utterances of some speakers; with `bad` also noise without words, a transcript that is
    too long for its frames, and a speaker of half a second."""
    data = folder / "data"
    data.mkdir(parents=True)
    rows = [line.split(" ", 1) for line in (kaldi / "data/train/text").read_text().splitlines()]
    text = {name: words for name, words in rows if name.startswith(SPEAKERS)}
    speaker = {name: name.split("-")[0] for name in text}
    scp = kaldi_io.Scp(kaldi / "data/train/feats.scp")
    features = {name: scp[name] for name in text}
    stats = kaldi_io.Scp(kaldi / "data/train/cmvn.scp")
    means = {name: stats[name] for name in SPEAKERS}
    if bad:
        whole = features["fash-an251-fash-b"]
        features |= {SILENT: np.repeat(whole[:5], 20, axis=0), LONG_TEXT: whole[:40],
                     SHORT: whole[40:90]}  # fmt: skip
        text |= {SILENT: "!SIL", LONG_TEXT: "SEVEN " * 30, SHORT: "YES"}
        speaker |= {SILENT: "fash", LONG_TEXT: "fbbh", SHORT: "short"}
        means["short"] = means["fash"]
    names = sorted(text)
    (data / "text").write_text("".join(f"{name} {text[name].strip()}\n" for name in names))
    (data / "utt2spk").write_text("".join(f"{name} {speaker[name]}\n" for name in names))
    (data / "wav.scp").write_text("".join(f"{name} {name}.wav\n" for name in names))
    pairs = [(name, features[name].astype(np.float32)) for name in names]
    kaldi_io.write_archive(data / "feats.ark", pairs, data / "feats.scp")
    kaldi_io.write_archive(data / "cmvn.ark", sorted(means.items()), data / "cmvn.scp")
    config = folder / "config.yaml"
    config.write_text(json.dumps(CONFIG))
    return Corpus(data, kaldi / "lang", config)


STAGES = ("mono", "tri", "lda-mllt", "sat")


@pytest.fixture(scope="module")
def ladder(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Path]:
    """All stages, trained on data of which some are bad."""
    folder = tmp_path_factory.mktemp("ladder")
    corpus = write_corpus(shared.resolve() / "kaldi_an4", folder, bad=True)
    for before, stage in zip((None, *STAGES), STAGES, strict=False):
        more = ("--ali", folder / before) if before else ()
        assert corpus.run(stage, folder / stage, *more) == 0, stage
    return corpus, folder


def summary(folder: Path) -> dict:
    return json.loads((folder / "alignment.json").read_text())


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_leaves_kaldis_files(ladder: tuple[Corpus, Path], stage: str) -> None:
    folder = ladder[1] / stage
    trained, tree = model.read(folder / "final.mdl"), event_map.read(folder / "tree")
    assert tree.num_pdfs == trained.mixtures.num_pdfs
    transitions, alignments = read_alignments(folder)
    paths = dict(alignments)
    frames = {name: len(ids) for name, ids in paths.items()}
    counts = summary(folder)
    assert len(frames) == counts["aligned"] == counts["utterances"] - len(counts["failed"])
    assert sum(frames.values()) == counts["frames"]
    assert transitions.num_pdfs == tree.num_pdfs
    first, *occupancies, last = (folder / "final.occs").read_text().split()
    assert (first, last) == ("[", "]")
    pdfs = transitions.pdf[np.concatenate(list(paths.values()))]
    np.testing.assert_array_equal(
        np.array(occupancies, float), np.bincount(pdfs, minlength=tree.num_pdfs)
    )
    assert (folder / "phones.txt").is_file() and (folder / "cmvn_opts").is_file()
    if stage in ("lda-mllt", "sat"):
        assert read_matrix(folder / "final.mat").shape == (20, 91)
        assert "--left-context=3" in (folder / "splice_opts").read_text()
    if stage == "sat":
        assert {"fash", "fbbh", "fclc", "fejs", "short"} == set(read_transforms(folder))
        aligner = model.read(folder / "final.alimdl").mixtures
        np.testing.assert_array_equal(aligner.offsets, trained.mixtures.offsets)
        assert not np.allclose(aligner.means, trained.mixtures.means)


def test_what_cannot_be_aligned_is_counted_and_named(ladder: tuple[Corpus, Path]) -> None:
    for stage in STAGES:
        counts = summary(ladder[1] / stage)
        assert list(counts["failed"]) == [LONG_TEXT]
        assert "frames are too few" in counts["failed"][LONG_TEXT]
        assert all(10 < beam <= 40 for beam in counts["retried"].values())


def test_silence_alone_is_aligned_to_silence(ladder: tuple[Corpus, Path]) -> None:
    for stage in STAGES:
        transitions, alignments = read_alignments(ladder[1] / stage)
        ids = dict(alignments)[SILENT]
        assert (transitions.phone[ids] <= 10).all()


def test_a_speaker_of_half_a_second_shares_a_transform(
    ladder: tuple[Corpus, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, folder = ladder
    assert corpus.run("align", tmp_path / "ali", "--model", folder / "sat") == 0
    said = capsys.readouterr().err
    assert "1 with too little speech share one transform (short)" in said
    found = read_transforms(tmp_path / "ali")
    assert all(np.isfinite(matrix).all() for matrix in found.values())
    own = [found[name] for name in SPEAKERS]
    assert not any(np.allclose(found["short"], matrix) for matrix in own)


def test_phones_never_seen_have_pdfs_all_the_same(ladder: tuple[Corpus, Path]) -> None:
    corpus, folder = ladder
    transitions, alignments = read_alignments(folder / "tri")
    seen = {phone for _, ids in alignments for phone in transitions.phone[ids].tolist()}
    names = [line.split() for line in (corpus.lang / "phones.txt").read_text().splitlines()]
    real = {int(number) for name, number in names if name[0] not in "#<"}
    unseen = real - seen
    assert unseen
    trained = model.read(folder / "tri/final.mdl")
    assert unseen <= set(trained.transitions.tuples[:, 0].tolist())
    assert np.isfinite(trained.mixtures.gconsts).all()


def test_too_many_failures_stop_the_run(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(shared.resolve() / "kaldi_an4", tmp_path, bad=True)
    alignment = {"kind": "mono", "iterations": 2, "gaussians": 140, "max_failed": 0.001}
    corpus.config.write_text(json.dumps(CONFIG | {"alignment": alignment}))
    assert corpus.run("mono", tmp_path / "mono") == 2
    said = capsys.readouterr().err
    assert "1 of " in said and LONG_TEXT in said and "alignment.max_failed" in said
    assert not (tmp_path / "mono").exists()


def test_same_seed_same_bytes_whatever_the_jobs(ladder: tuple[Corpus, Path], tmp_path: Path
                                                ) -> None:  # fmt: skip
    corpus, folder = ladder
    more = ("--ali", folder / "tri", "--jobs", 2)
    assert corpus.run("lda-mllt", tmp_path / "again", *more) == 0
    for name in ("final.mdl", "tree", "final.mat"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / "lda-mllt" / name).read_bytes()


def test_a_config_without_the_stage_is_refused(
    ladder: tuple[Corpus, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = ladder[0]
    config = tmp_path / "mono.yaml"
    config.write_text(json.dumps(CONFIG | {"alignment": {"kind": "mono"}}))
    other = Corpus(corpus.data, corpus.lang, config)
    assert other.run("tri", tmp_path / "tri", "--ali", ladder[1] / "mono") == 2
    assert "Triphones need kind tri" in capsys.readouterr().err


class TestParts:
    """The first stages on a part of the data: the model of that part, alignments of all."""

    def reduced(self, corpus: Corpus, folder: Path, names: set[str]) -> Corpus:
        """The same corpus with these utterances alone."""
        data = folder / "data"
        data.mkdir(parents=True)
        for table in ("text", "utt2spk", "wav.scp"):
            lines = (corpus.data / table).read_text().splitlines(keepends=True)
            kept = [line for line in lines if line.split()[0] in names]
            (data / table).write_text("".join(kept))
        for table in ("feats.scp", "cmvn.scp"):
            (data / table).write_text((corpus.data / table).read_text())
        return replace(corpus, data=data)

    def test_monophones_of_some_short_ones(self, shared: Path, tmp_path: Path) -> None:
        corpus = write_corpus(shared.resolve() / "kaldi_an4", tmp_path / "all", bad=False)
        scp = kaldi_io.Scp(corpus.data / "feats.scp")
        order = sorted(scp, key=lambda name: len(scp[name]))
        short = [name for name in scp if name in set(order[:40])]
        names = {short[n * 40 // 25] for n in range(25)}
        alone = self.reduced(corpus, tmp_path / "part", names)
        assert alone.run("mono", tmp_path / "alone") == 0
        parts: dict[str, Any] = json.loads(json.dumps(CONFIG["alignment"]))
        parts["mono"] = parts["mono"] | {"shortest": 40, "utterances": 25}
        parts["tri"] = parts["tri"] | {"utterances": 30}
        corpus.config.write_text(json.dumps(CONFIG | {"alignment": parts}))
        mono, tri = tmp_path / "mono", tmp_path / "tri"
        assert corpus.run("mono", mono) == 0
        assert (mono / "final.mdl").read_bytes() == (tmp_path / "alone/final.mdl").read_bytes()
        assert summary(mono)["utterances"] == len(scp) > 40
        assert len(summary(mono)["failed"]) <= 2
        # triphones: evenly spaced ones of all, on the alignments of the monophones
        assert corpus.run("tri", tri, "--ali", mono) == 0
        names = {list(scp)[n * len(scp) // 30] for n in range(30)}
        alone = self.reduced(corpus, tmp_path / "part3", names)
        corpus.config.write_text(json.dumps(CONFIG))
        assert alone.run("tri", tmp_path / "tri-alone", "--ali", mono) == 0
        assert (tri / "final.mdl").read_bytes() == (tmp_path / "tri-alone/final.mdl").read_bytes()
        assert summary(tri)["utterances"] == len(scp)


class KilledError(Exception):
    """In place of a signal."""


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_stage_goes_on(
    ladder: tuple[Corpus, Path],
    stage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After its last checkpoint, and ends in the same bytes; with other data it starts anew."""
    corpus, folder = ladder
    before = dict(zip(STAGES, (None, *STAGES), strict=False))[stage]
    more = ("--ali", folder / before) if before else ()
    report = training._report

    def killed_after(last: int) -> None:
        def told(schedule: Schedule, iteration: int, *rest: Any) -> None:
            if iteration == last:
                raise KilledError
            report(schedule, iteration, *rest)

        monkeypatch.setattr(training, "_report", told)

    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    kept = tmp_path / f".{stage}.checkpoint"
    late = 10 if stage == "mono" else 5  # what follows the tenth is not aligned anew
    for last in (2, late):
        killed_after(last)
        with pytest.raises(KilledError):
            corpus.run(stage, tmp_path / stage, *more)
        assert kept.is_dir()
    told = capsys.readouterr().err
    assert f"{stage}: goes on after iteration 2" in told
    monkeypatch.setattr(training, "_report", report)
    assert corpus.run(stage, tmp_path / stage, *more) == 0
    told = capsys.readouterr().err
    assert f"{stage}: goes on after iteration {late}" in told
    assert f"{stage}: iteration {late}/" not in told
    assert not kept.exists() and contents(tmp_path / stage) == contents(folder / stage)


@pytest.fixture
def kept(
    ladder: tuple[Corpus, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Corpus, Path]:
    """Monophones whose checkpoint was not removed."""
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.Checkpoint, "remove", lambda _: None)
        assert ladder[0].run("mono", tmp_path / "mono") == 0
    return ladder[0], tmp_path / ".mono.checkpoint"


@pytest.mark.parametrize("other", ["settings", "speakers"])
def test_a_checkpoint_of_something_else_is_left(
    kept: tuple[Corpus, Path], other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of other settings or data: what the training begins with differs."""
    corpus, folder = kept
    settings: Any = json.loads(corpus.config.read_text())
    if other == "settings":
        settings["alignment"]["mono"]["gaussians"] = 210
    else:
        shutil.copytree(corpus.data, folder.parent / "data")
        corpus = replace(corpus, data=folder.parent / "data")
        for name in ("utt2spk", "cmvn.scp"):
            text = (corpus.data / name).read_text()
            (corpus.data / name).write_text(re.sub(r"\bfclc(?=$| )", "fclz", text, flags=re.M))
    (config := folder.parent / "other.yaml").write_text(json.dumps(settings))
    assert replace(corpus, config=config).run("mono", folder.parent / "mono") == 0
    told = capsys.readouterr().err
    assert "goes on" not in told and "is not used: the stage begins with other data" in told
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["gone", "short", "state"])
def test_a_damaged_checkpoint_is_left(
    kept: tuple[Corpus, Path],
    ladder: tuple[Corpus, Path],
    damage: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The stage starts anew, with its own random numbers, and ends in the same bytes."""
    corpus, folder = kept
    (alignment,) = folder.glob("alignment.*")
    match damage:
        case "gone":
            alignment.unlink()
        case "short":
            alignment.write_bytes(alignment.read_bytes()[:8])
        case _:
            (folder / "state.npz").write_bytes(b"PK")
    assert corpus.run("mono", folder.parent / "mono") == 0
    told = capsys.readouterr().err
    assert "goes on" not in told and f"{folder} is not used: " in told
    assert contents(folder.parent / "mono") == contents(ladder[1] / "mono")


def test_a_checkpoint_that_cannot_be_written_stops_nothing(
    ladder: tuple[Corpus, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is said; what a kill in the middle of writing left goes with the next one."""
    corpus, folder = ladder
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
    (tmp_path / ".mono.checkpoint").write_text("a file")
    assert corpus.run("mono", tmp_path / "mono") == 0
    assert "warning: no checkpoint could be written: " in capsys.readouterr().err
    assert contents(tmp_path / "mono") == contents(folder / "mono")


def test_what_a_kill_left_of_a_checkpoint_goes_with_the_next(kept: tuple[Corpus, Path]) -> None:
    corpus, folder = kept
    (left := folder / ".alignment.9.0badcafe.tmp").write_text("much")
    assert corpus.run("tri", folder.parent / "tri", "--ali", folder.parent / "mono") == 0
    assert left.exists(), "of another stage"
    seen = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "_report", lambda *_: seen.append(left.exists()))
        (folder / "state.npz").unlink()
        assert corpus.run("mono", folder.parent / "mono") == 0
    assert seen and not any(seen)


def contents(folder: Path) -> dict[str, bytes]:
    """Of all files, alignments unpacked."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return found | {"ali.1.gz": gzip.decompress(found["ali.1.gz"])}
