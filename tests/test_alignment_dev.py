"""Development speech that is not among Kaldi's alignments: other folders, or aligned here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from small_workflow import BIN, ROOT

from hadpsgd.alignment.agreement import agreement
from hadpsgd.alignment.archives import read_alignments
from hadpsgd.cli import main
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.tables import read_counts
from hadpsgd.kaldi_io import iterate, write_archive


@pytest.fixture
def kaldi(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kaldi's results on AN4; paths in its scp files are relative to it."""
    folder = shared.resolve() / "kaldi_an4"
    monkeypatch.chdir(folder)
    return folder


def config(tmp_path: Path, kaldi: Path, ali_dir: object, **more: object) -> str:
    alignment = {"kind": "kaldi", "ali_dir": ali_dir, "lang_dir": str(kaldi / "lang"), **more}
    feats = {
        "feats": str(kaldi / "data/train/feats.scp"),
        "cmvn": str(kaldi / "data/train/cmvn.scp"),
    }
    content = {
        "name": "t",
        "corpus": {"kind": "an4"},
        "alignment": alignment,
        "features": {"imports": {"mfcc": feats}},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content))
    return str(tmp_path / "c.yaml")


@pytest.fixture
def sets(kaldi: Path, tmp_path: Path) -> dict[str, DataDir]:
    """The speech of two speakers each as train and dev, with MFCC."""
    everything = DataDir.read(kaldi / "data/train", audio=False)
    made = {}
    for name, speakers in (("train", [0, 1]), ("dev", [2, 3])):
        chosen = [sorted(everything.speakers)[number] for number in speakers]
        some = {u.id: u for u in everything if u.speaker in chosen}
        data = DataDir(tmp_path / "data" / name, some)
        data.write(data.path)
        arguments = ["--config", config(tmp_path, kaldi, "x"), "--stream", "mfcc"]
        arguments += ["--data", str(data.path), "--out", f"{tmp_path}/feats/{name}"]
        assert main(["import-features", *arguments]) == 0
        made[name] = data
    return made


def split(kaldi: Path, tmp_path: Path, sets: dict[str, DataDir]) -> dict[str, Path]:
    """Kaldi's alignments in a folder for each set."""
    source = kaldi / "exp/tri3b_ali"
    found = {u: ids for path in source.glob("ali.*.gz") for u, ids in iterate(path, "ints")}
    folders = {}
    for name, data in sets.items():
        folders[name] = tmp_path / f"ali_{name}"
        shutil.copytree(source, folders[name])
        for path in folders[name].glob("ali.*.gz"):
            path.chmod(0o644)
            path.unlink()
        items = [(u, found[u]) for u in data.utterances]
        write_archive(folders[name] / "ali.1.gz", items)
    return folders


def take(tmp_path: Path, kaldi: Path, name: str, file: str) -> int:
    arguments = ["--config", file, "--feats", f"{tmp_path}/feats/{name}"]
    arguments += ["--lang", str(kaldi / "lang"), "--out", f"{tmp_path}/out/{name}"]
    return main(["import-alignment", *arguments])


def test_several_folders_or_one_for_each_set(
    kaldi: Path, tmp_path: Path, sets: dict[str, DataDir], capsys: pytest.CaptureFixture[str]
) -> None:
    folders = split(kaldi, tmp_path, sets)
    alone = config(tmp_path, kaldi, str(folders["train"]))
    assert take(tmp_path, kaldi, "train", alone) == 0
    assert take(tmp_path, kaldi, "dev", alone) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "utterances have no alignment" in said and "alignment.align_dev" in said
    for place in ([str(folder) for folder in folders.values()], f"{tmp_path}/ali_{{set}}"):
        file = config(tmp_path, kaldi, place)
        for name, data in sets.items():
            shutil.rmtree(tmp_path / "out" / name, ignore_errors=True)
            assert take(tmp_path, kaldi, name, file) == 0
            assert sorted(dict(read_alignments(tmp_path / "out" / name)[1])) == list(
                data.utterances
            )


def test_folders_of_two_models_are_refused(
    kaldi: Path, tmp_path: Path, sets: dict[str, DataDir], capsys: pytest.CaptureFixture[str]
) -> None:
    folders = split(kaldi, tmp_path, sets)
    tree = folders["dev"] / "tree"
    content = bytearray(tree.read_bytes())
    tree.chmod(0o644)
    place = content.rindex(b"CE") + 4  # the pdf-id of a leaf
    content[place] ^= 1
    tree.write_bytes(content)
    file = config(tmp_path, kaldi, [str(folder) for folder in folders.values()])
    assert take(tmp_path, kaldi, "train", file) == 2
    said = capsys.readouterr().err
    assert "ali_dev: its alignments are of another model than those of" in said
    assert said.count("\n") == 1


def align(tmp_path: Path, kaldi: Path, model: Path, file: str) -> int:
    arguments = ["--config", file, "--model", str(model), "--data", f"{tmp_path}/data/dev"]
    arguments += ["--feats", f"{tmp_path}/feats/dev", "--lang", str(kaldi / "lang")]
    return main(["align", *arguments, "--jobs", "1", "--out", f"{tmp_path}/out/dev"])


def test_the_imported_model_aligns_as_kaldi_did(
    kaldi: Path, tmp_path: Path, sets: dict[str, DataDir]
) -> None:
    """Two passes with FMLLR: the pdfs of Kaldi's own align_fmllr.sh."""
    folders = split(kaldi, tmp_path, sets)
    file = config(tmp_path, kaldi, str(folders["train"]), align_dev=True)
    assert take(tmp_path, kaldi, "train", file) == 0
    assert align(tmp_path, kaldi, tmp_path / "out/train", file) == 0
    assert agreed(tmp_path, folders) > 0.999
    # without final.alimdl, final.mdl is taken for the first pass, as Kaldi does
    (folders["train"] / "final.alimdl").unlink()
    assert take(tmp_path, kaldi, "train", file) == 0
    assert align(tmp_path, kaldi, tmp_path / "out/train", file) == 0
    assert agreed(tmp_path, folders) > 0.95


def agreed(tmp_path: Path, folders: dict[str, Path]) -> float:
    """Share of dev's frames that have the pdf of Kaldi's alignment."""
    model, ours = read_alignments(tmp_path / "out/dev")
    share = agreement(ours, read_alignments(folders["dev"])[1], model.pdf)
    assert share is not None
    return share


def test_a_model_of_other_features_is_refused(
    kaldi: Path, tmp_path: Path, sets: dict[str, DataDir], capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as MFCC with pitch: the first columns of its matrix fitted ours in silence."""
    folders = split(kaldi, tmp_path, sets)
    file = config(tmp_path, kaldi, str(folders["train"]), align_dev=True)
    opts = folders["train"] / "splice_opts"
    opts.chmod(0o644)
    opts.write_text("--left-context=2 --right-context=2\n")
    assert take(tmp_path, kaldi, "train", file) == 0
    assert align(tmp_path, kaldi, tmp_path / "out/train", file) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "final.mat" in said and "65 spliced features" in said and "91 columns" in said
    opts.write_text("--left-context=3 --right-context=3\n")
    (folders["train"] / "final.mat").unlink()
    (folders["train"] / "final.alimdl").unlink()
    shutil.rmtree(tmp_path / "out/train")
    assert take(tmp_path, kaldi, "train", file) == 0
    assert align(tmp_path, kaldi, tmp_path / "out/train", file) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "final.mdl" in said and "40 dimensions" in said and "39" in said


def test_a_models_cmvn_is_its_own(kaldi: Path, tmp_path: Path, sets: dict[str, DataDir]) -> None:
    """cmvn_opts of the model decide how features are normalised: with another's it fits nothing."""
    folders = split(kaldi, tmp_path, sets)
    file = config(tmp_path, kaldi, str(folders["train"]), align_dev=True)
    codes = []
    for options in ("", "--norm-means=true --norm-vars=false", "--norm-vars=true"):
        path = folders["train"] / "cmvn_opts"
        path.chmod(0o644)
        path.write_text(f"{options}\n")
        assert take(tmp_path, kaldi, "train", file) == 0
        codes.append(align(tmp_path, kaldi, tmp_path / "out/train", file))
    assert codes == [0, 0, 2]


def test_dev_is_adapted_by_its_own_transforms(
    kaldi: Path, tmp_path: Path, sets: dict[str, DataDir]
) -> None:
    """Of the alignment here, though Kaldi's transforms know the same speakers."""
    folders = split(kaldi, tmp_path, sets)
    file = config(tmp_path, kaldi, str(folders["train"]), align_dev=True)
    assert take(tmp_path, kaldi, "train", file) == 0
    assert align(tmp_path, kaldi, tmp_path / "out/train", file) == 0
    content = yaml.safe_load(Path(file).read_text())
    imports = {"trans": str(kaldi / "exp/tri3b_decode_test"), "model": str(folders["train"])}
    content["features"]["imports"]["fmllr"] = imports
    Path(file).write_text(yaml.safe_dump(content))
    arguments = ["import-features", "--config", file, "--stream", "fmllr"]
    arguments += ["--data", f"{tmp_path}/data/dev", "--feats", f"{tmp_path}/feats/dev"]
    arguments += ["--out", f"{tmp_path}/feats/fmllr/dev", "--jobs", "1"]
    assert main(arguments) == 2  # tri3b_decode_test has other speakers
    assert main([*arguments, "--trans", f"{tmp_path}/out/dev"]) == 0
    counts = read_counts(tmp_path / "feats/fmllr/dev/utt2num_frames")
    assert list(counts) == list(sets["dev"].utterances)


def test_dev_is_planned_to_be_aligned(shared: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [str(BIN / "snakemake"), "-n", "--profile", "local", "--quiet", "rules", "--configfile",
         "config/an4_kaldi.yaml", "--config", f"results={tmp_path}", "alignment={align_dev: true}"],
        cwd=ROOT, env={**os.environ, "HADPSGD_SHARED": str(shared.resolve())},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    wanted = {"import_alignment": 1, "align": 1, "features": 4}  # MFCC of dev alone
    assert {name: int(counts.get(name, 0)) for name in wanted} == wanted
