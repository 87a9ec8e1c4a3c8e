"""What a stage replaces with its output: what was made here, and nothing else."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from corpus_data import make_data

from hadpsgd.cli import USER_ERROR, main
from hadpsgd.corpus.dictdir import write_dict
from hadpsgd.egs.partial import partial_folder
from hadpsgd.errors import UserError
from hadpsgd.files import MADE, WORKFLOW_LOCK, atomic_file, atomic_folder

CONFIG = "name: t\ncorpus: {kind: builtin, train_minutes: 0.2, dev_minutes: 0.1}\n"


@pytest.fixture
def lang(tmp_path: Path) -> list[str]:
    """`hadpsgd lang` on a small dictionary, but for where to."""

    write_dict(tmp_path / "dict", {"a": [("AH",)], "b": [("B", "IY")]})
    (tmp_path / "config.yaml").write_text(CONFIG)
    return ["lang", "--config", f"{tmp_path}/config.yaml", "--dict", f"{tmp_path}/dict", "--out"]


def tree(folder: Path) -> dict[str, bytes]:
    """All files by their paths."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("out", [".", "..", "../work", "thesis", "../dict"])
def test_what_is_the_users_stays(
    lang: list[str],
    out: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where they work, what is above, a folder of theirs, and what the stage reads."""
    (tmp_path / "work/thesis").mkdir(parents=True)
    (tmp_path / "work/thesis/chapter.txt").write_text("all of it")
    monkeypatch.chdir(tmp_path / "work")
    before = tree(tmp_path)
    assert main([*lang, out]) == USER_ERROR
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Name a new folder" in said
    assert tree(tmp_path) == before


def test_what_was_made_here_is_replaced(lang: list[str], tmp_path: Path) -> None:
    """An empty folder, too; and what a former version left in results, which has no mark."""
    (out := tmp_path / "lang").mkdir()
    for _ in range(2):
        assert main([*lang, str(out)]) == 0
        assert (out / "words.txt").is_file() and (out / MADE).is_file()
        (out / "stale").touch()
    (former := tmp_path / "results/t/lang").mkdir(parents=True)
    (former / "words.txt").write_text("of before")
    assert main([*lang, str(former)]) == USER_ERROR
    (tmp_path / "results/t" / WORKFLOW_LOCK).touch()
    assert main([*lang, str(former)]) == 0
    assert (former / "L.fst").is_file()


def test_links_stay_and_are_followed(lang: list[str], tmp_path: Path) -> None:
    """To a folder, and to one that is not there yet."""
    (tmp_path / "disk/there").mkdir(parents=True)
    for name in ("there", "new"):
        (link := tmp_path / name).symlink_to(tmp_path / "disk" / name)
        assert main([*lang, str(link)]) == 0
        assert link.is_symlink() and (tmp_path / "disk" / name / "L.fst").is_file()


def test_sets_of_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each takes the place of its own folder, if that was made so."""
    make_data(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    command = ["corpus", "--config", f"{tmp_path}/config.yaml", "--only", "data", "--set", "dev"]
    before = tree(tmp_path / "data")
    (tmp_path / "data/train").rename(tmp_path / "data/dev")
    assert main([*command, "--out", str(tmp_path)]) == USER_ERROR
    assert "was not made by hadpsgd: it holds" in capsys.readouterr().err
    assert {f"train{name[3:]}" for name in tree(tmp_path / "data")} == {*before}
    for _ in range(2):
        assert main([*command, "--out", f"{tmp_path}/made"]) == 0
    (tmp_path / "file").touch()
    assert main([*command, "--out", f"{tmp_path}/file"]) == USER_ERROR
    assert "is a file, where a folder is needed" in capsys.readouterr().err


def test_examples(tmp_path: Path) -> None:
    (tmp_path / "egs").mkdir()
    (tmp_path / "egs/mine").touch()
    with pytest.raises(UserError, match="holds 'mine'"), partial_folder(tmp_path / "egs"):
        pytest.fail("it began")


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o700), (0o002, 0o775)])
def test_who_may_read_a_folder(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        with atomic_folder(tmp_path / "a"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode


def test_a_pipe_takes_what_is_written(tmp_path: Path) -> None:
    """As devices do: `--out /dev/stdout`. It stays what it is."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    os.mkfifo(pipe := tmp_path / "pipe")
    taken: list[str] = []
    reader = threading.Thread(target=lambda: taken.append(pipe.read_text()))
    reader.start()
    assert main(["config", f"{tmp_path}/config.yaml", "--out", str(pipe)]) == 0
    reader.join(10)
    assert taken and "train_minutes: 0.2" in taken[0] and pipe.is_fifo()


def test_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/file").write_text("old")
    (link := tmp_path / "link").symlink_to("disk/file")
    with atomic_file(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink() and (tmp_path / "disk/file").read_text() == "new"
