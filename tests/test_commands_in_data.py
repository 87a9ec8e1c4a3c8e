"""Data may hold commands: none runs that was not allowed, wherever a path can be a command.

Each case plants one command (or one object that runs code as it is read) that would leave a file
`ran`, and gives it to the command that reads it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus_data import make_data, replace_line, write_lines
from planted import command, config, feature_files, pipe_audio, ran
from training_data import write_egs

from hadpsgd import kaldi_io
from hadpsgd.cli import USER_ERROR, main
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.egs.dataset import Dataset
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend
from hadpsgd.files import file_name
from hadpsgd.graph.transitions import Transitions
from hadpsgd.models.build import load_model
from hadpsgd.reports.errors import SetErrors
from hadpsgd.reports.errors_command import page
from hadpsgd.scoring.align import Edit
from hadpsgd.scoring.nist import Sentence
from hadpsgd.training.saved import Saved


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A healthy data directory `data/train`, whose folder commands run in."""
    make_data(tmp_path)
    return tmp_path


class TestAudio:
    """Commands in wav.scp."""

    def test_validate(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["validate", str(pipe_audio(place)), "--threads", "4"]) == USER_ERROR
        assert not ran(place)
        said = capsys.readouterr().err
        assert "call-A" in said and "a command in wav.scp is not run" in said

    def test_validate_with_the_flag(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The command runs, and the other checks are as strict as before."""
        data = pipe_audio(place)
        assert main(["validate", str(data), "--allow-pipes"]) == 0
        assert ran(place)
        replace_line(data / "text", "ann-2 bye", "ann-2 zebra")
        lexicon = str(place / "lexicon.txt")
        assert main(["validate", str(data), "--allow-pipes", "--lexicon", lexicon]) == USER_ERROR
        assert "'zebra' is not in the lexicon" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "stage",
        [
            ["corpus", "--out", "{place}/out"],
            ["features", "--stream", "logmel", "--data", "{data}", "--out", "{place}/out"],
            ["perturb", "--data", "{data}", "--out", "{place}/out/a/b"],
        ],
        ids=lambda stage: stage[0],
    )
    def test_stages(
        self, place: Path, stage: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = pipe_audio(place)
        name, *arguments = (part.format(place=place, data=data) for part in stage)
        speeds = [0.9, 1.0] if name == "perturb" else [1.0]
        made = config(place, corpus={"speeds": speeds})
        assert main([name, "--config", made, *arguments]) == USER_ERROR
        assert not ran(place)
        assert "is not run" in capsys.readouterr().err
        allowed = config(place, corpus={"speeds": speeds, "allow_pipes": True})
        assert main([name, "--config", allowed, *arguments]) == 0
        assert ran(place)

    def test_corpus_checks_as_before(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        replace_line(pipe_audio(place) / "text", "ann-2 bye", "ann-2 zebra")
        allowed = config(place, corpus={"allow_pipes": True})
        assert main(["corpus", "--config", allowed, "--out", f"{place}/out"]) == USER_ERROR
        assert "'zebra' is not in the lexicon" in capsys.readouterr().err

    def test_pages_of_errors(self, place: Path) -> None:
        """They cut the audio of wrong sentences."""
        data = DataDir.read(pipe_audio(place))
        with AudioReader(data, 8000) as reader, pytest.raises(UserError, match="is not run"):
            reader.read(data.utterances["ann-1"])
        assert not ran(place)


def whole(place: Path, ark: Path) -> str:
    """The archive as a command."""
    return command(place, ark)


def rspecifier(place: Path, ark: Path) -> str:
    """The same as Kaldi's programs take it."""
    return f"ark:{command(place, ark)}"


def each(place: Path, ark: Path) -> str:
    """An scp file whose every line is a command."""
    lines = []
    for key, entry in kaldi_io.read_scp(ark.with_suffix(".scp")).items():
        single = place / f"{ark.stem}.{key}"
        kind = "vector" if ark.stem == "ivectors" else "matrix"
        kaldi_io.write(single, kaldi_io.read(entry, kind))  # type: ignore[arg-type]
        lines.append(f"{key} {command(place, single)}")
    write_lines(place / f"{ark.stem}_piped.scp", lines)
    return str(place / f"{ark.stem}_piped.scp")


class TestReruns:
    """The config of somebody else's run allows commands: that is not who runs it again."""

    @pytest.mark.parametrize("section", ["corpus", "features"])
    def test_rerun(self, place: Path, section: str, capsys: pytest.CaptureFixture[str]) -> None:
        pipe_audio(place)
        folder = place / "results" / "t" / "runs" / "single-00000000"
        folder.mkdir(parents=True)
        allowed: dict[str, Any] = {section: {"allow_pipes": True}}
        Path(config(place, **allowed)).rename(folder / "config.yaml")
        for name in ("provenance.json", "summary.json"):
            (folder / name).write_text("{}")
        arguments = ["rerun", str(folder), "--out", str(place / "again")]
        assert main(arguments) == USER_ERROR
        said = capsys.readouterr().err
        assert "allows commands in its data" in said and "--allow-pipes" in said
        assert not ran(place) and not (place / "again").exists()


class TestImports:
    """Kaldi's features, statistics, i-vectors and transforms."""

    @pytest.mark.parametrize("written", [whole, rspecifier, each])
    @pytest.mark.parametrize("what", ["feats", "cmvn", "ivectors", "trans"])
    def test_features(
        self,
        place: Path,
        what: str,
        written: Callable[[Path, Path], str],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        arks = feature_files(place)
        entries = {name: str(ark.with_suffix(".scp")) for name, ark in arks.items()}
        entries[what] = written(place, arks[what])
        stream = {"ivectors": "ivector", "trans": "fmllr"}.get(what, "logmel")
        Frontend(left=0, right=0).write(place / "model")
        imports = {
            "logmel": {"feats": entries["feats"], "cmvn": entries["cmvn"]},
            "ivector": {"ivectors": entries["ivectors"], "per": "speaker"},
            "fmllr": {"trans": entries["trans"], "model": str(place / "model")},
        }
        mfcc = self.mfcc(place) if stream == "fmllr" else place

        def imported(**features: Any) -> int:
            file = config(place, features={"imports": imports, **features})
            arguments = ["--config", file, "--stream", stream, "--feats", str(mfcc)]
            data = str(place / "data" / "train")
            return main(["import-features", *arguments, "--data", data, "--out", f"{place}/out"])

        assert imported() == USER_ERROR
        assert not ran(place)
        assert "running commands is not allowed" in capsys.readouterr().err
        assert imported(allow_pipes=True) == 0
        assert ran(place)

    def mfcc(self, place: Path) -> Path:
        """A folder of features that transforms are applied to."""
        for name in ("feats", "cmvn"):
            (place / "mfcc").mkdir(exist_ok=True)
            source = dict(kaldi_io.iterate(place / f"{name}.scp"))
            ark = place / "mfcc" / f"{name}.ark"
            kaldi_io.write_archive(ark, source.items(), ark.with_suffix(".scp"))
        return place / "mfcc"

    @pytest.mark.parametrize("name", ["ali_dir", "lang_dir"])
    def test_alignments(self, place: Path, name: str) -> None:
        folders = {"ali_dir": str(place), "lang_dir": str(place)}
        folders[name] = command(place, "x")
        file = config(place, alignment={"kind": "kaldi", **folders})
        arguments = ["--config", file, "--feats", str(place), "--lang", str(place)]
        assert main(["import-alignment", *arguments, "--out", f"{place}/out"]) == USER_ERROR
        assert main(["lang", "--config", file, "--dict", str(place), "--out", f"{place}/l"])
        assert not ran(place)


class TestTexts:
    """Paths of texts are paths: a command there is a file that is not there."""

    @pytest.mark.parametrize("key", ["lm_text", "dict_dir", "train"])
    def test_corpus(self, place: Path, key: str) -> None:
        file = config(place, corpus={key: command(place, "x"), "allow_pipes": True})
        assert main(["corpus", "--config", file, "--out", f"{place}/out"]) == USER_ERROR
        assert not ran(place)

    @pytest.mark.parametrize("lm", ["sources", "arpa"])
    def test_language_models(self, place: Path, lm: str) -> None:
        entry = command(place, "x")
        file = config(place, lm={lm: {"more": entry} if lm == "sources" else entry})
        write_lines(place / "words.txt", ["<eps> 0", "bye 1", "#0 2", "<s> 3", "</s> 4"])
        write_lines(place / "train.txt", ["bye"])
        texts = ["--text", str(place / "train.txt"), "--dev", str(place / "train.txt")]
        out = ["--lang", str(place), "--out", f"{place}/out"]
        assert main(["lm", "--config", file, *texts, *out]) == USER_ERROR
        assert not ran(place)

    def test_references(self, place: Path) -> None:
        write_lines(place / "ctm", ["call A 0 1 bye"])
        for stm in (command(place, "x"), f"|{command(place, 'x')}"):
            files = ["--stm", stm, "--ctm", str(place / "ctm"), "--out", f"{place}/out"]
            assert main(["score-ctm", *files, "--nist-tools"]) == USER_ERROR
            assert not ran(place)


class Planted:
    """An object whose unpickling leaves `ran`."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.place / 'ran'}",)


class TestObjects:
    """Files that could run code as they are read."""

    def test_the_plant(self, place: Path) -> None:
        pickle.loads(pickle.dumps(Planted(place)))
        assert ran(place)

    @pytest.mark.parametrize("tag", ["os.system", "subprocess.getoutput"])
    def test_configs(self, place: Path, tag: str) -> None:
        content = f"name: !!python/object/apply:{tag} ['touch {place / 'ran'}']\n"
        (place / "config.yaml").write_text(content)
        assert main(["config", str(place / "config.yaml")]) == USER_ERROR
        assert not ran(place)

    @pytest.mark.parametrize("whole", [True, False])
    def test_models(self, place: Path, whole: bool) -> None:
        planted = Planted(place)
        torch.save(planted if whole else {"format": 1, "state_dict": planted}, place / "final.pt")
        with pytest.raises(UserError):
            load_model(place / "final.pt")
        assert not ran(place)

    def test_checkpoints(self, place: Path) -> None:
        file = place / "node-0-of-1-0123456789abcdef.pt"
        torch.save({"weights": Planted(place)}, file)
        saved = Saved(place)
        assert list(saved.parts()) == [0]
        with pytest.raises(pickle.UnpicklingError):
            saved.load(0)
        assert not ran(place)

    def test_transitions(self, place: Path) -> None:
        planted = np.array([Planted(place)], dtype=object)
        file = place / "transitions.npz"
        np.savez(file, pdf=planted, phone=planted, final=planted, loop=planted)
        with pytest.raises(UserError, match="damaged"):
            Transitions.read(place / "transitions.npz")
        assert not ran(place)

    def test_counts_of_examples(self, place: Path) -> None:
        folder = write_egs(place / "egs", subsequences=4, seed=1)
        planted = np.array([Planted(place)], dtype=object)
        np.save(folder / "pdf_counts.npy", planted, allow_pickle=True)
        with pytest.raises((UserError, ValueError)):
            _ = Dataset(folder).pdf_counts
        assert not ran(place)


class _Tags(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes.update(name for name, _ in attrs)


def test_pages_run_no_transcript() -> None:
    """A transcript, a speaker or a name cannot leave its place in the page."""
    evil = "\"><script>alert(1)</script><img src=x onerror='alert(1)'>"

    def shown(text: str) -> _Tags:
        edit = Edit(kind="S", ref=text, hyp=text, ref_arc=0, hyp_arc=1)
        said = Sentence(name=text, speaker=text, edits=[edit])
        data = DataDir(Path("x"), {})
        found = SetErrors(text, [said], data, {}, {})
        tags = _Tags()
        tags.feed(page(name=text, run=text, synthetic=False, found=[found]))
        return tags

    plain, planted = shown("word"), shown(evil)
    assert planted.elements == plain.elements and planted.attributes == plain.attributes


def test_no_utterance_is_written_elsewhere(place: Path) -> None:
    """Ids become names of files; one with a path in it stays in its folder."""
    assert file_name("ann-1") == "ann-1"
    assert (place / file_name("../../x")).resolve().parent == place.resolve()
    data = place / "data" / "train"
    for file in ("wav.scp", "reco2file_and_channel", "segments"):
        text = (data / file).read_text().replace("call-A", "../call-A")
        write_lines(data / file, sorted(text.splitlines()))
    made = config(place, corpus={"speeds": [0.9, 1.0]})
    out = place / "out" / "data" / "train_perturbed"
    assert main(["perturb", "--config", made, "--data", str(data), "--out", str(out)]) == 0
    files = [path for path in place.rglob("*.wav") if path.parent != place / "audio"]
    assert files and all(out.parents[1] in path.parents for path in files)
    assert main(["validate", str(out)]) == 0
