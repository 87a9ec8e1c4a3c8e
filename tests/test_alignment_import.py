"""Kaldi's alignments imported: taken over whole, or refused in one line that says why."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gmm_toy import STATES, toy

from hadpsgd.alignment.archives import read_alignments
from hadpsgd.alignment.kaldi_import import import_alignments
from hadpsgd.cli import main
from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError
from hadpsgd.gmm import event_map
from hadpsgd.kaldi_io import iterate, write_archive


@pytest.fixture
def kaldi(shared: Path, tmp_path: Path) -> Path:
    """A copy of Kaldi's alignment folder that a test may spoil."""
    return Path(shutil.copytree(shared / "kaldi_an4/exp/tri3b_ali", tmp_path / "tri3b_ali"))


@pytest.fixture
def lengths(kaldi: Path) -> dict[str, int]:
    return {utt: len(ids) for path in kaldi.glob("ali.*.gz") for utt, ids in iterate(path, "ints")}


def test_an_import_keeps_what_belongs_to_the_data_set(
    kaldi: Path, shared: Path, lengths: dict[str, int], tmp_path: Path
) -> None:
    wanted = dict(list(lengths.items())[::3])
    done = import_alignments(
        sources=[kaldi],
        lang=shared / "kaldi_an4/lang",
        num_frames=wanted,
        max_failed=0.0,
        out=tmp_path / "ali",
    )
    assert (done.utterances, done.pdfs) == (len(wanted), 424)
    _, alignments = read_alignments(tmp_path / "ali")
    taken = dict(alignments)
    assert taken.keys() == wanted.keys()
    before = {utt: ids for path in kaldi.glob("ali.*.gz") for utt, ids in iterate(path, "ints")}
    assert all(np.array_equal(ids, before[utt]) for utt, ids in taken.items())
    for name in ("final.mdl", "tree", "final.mat", "splice_opts"):
        assert (tmp_path / "ali" / name).read_bytes() == (kaldi / name).read_bytes()


def test_pdf_ids_equal_kaldis(shared: Path) -> None:
    model, alignments = read_alignments(shared / "kaldi_an4/exp/tri3b_ali")
    golden = read_table(shared / "kaldi_an4/golden/ali_pdf_train50.txt")
    ours = dict(alignments)
    assert golden
    for utterance, pdfs in golden.items():
        assert model.pdf[ours[utterance]].tolist() == [int(pdf) for pdf in pdfs.split()]


def _cut(folder: Path) -> None:
    path = folder / "ali.1.gz"
    path.write_bytes(path.read_bytes()[:20_000])


def _other_ids(folder: Path) -> None:
    items = list(iterate(folder / "ali.1.gz", "ints"))
    items[3] = (items[3][0], np.full_like(items[3][1], 99_999))
    write_archive(folder / "ali.1.gz", items)


def _other_phones(folder: Path) -> None:
    path = folder / "phones.txt"
    path.write_text(path.read_text().replace("AA_B ", "AX_B "))


def _other_numbers(folder: Path) -> None:
    path = folder / "phones.txt"
    numbers = dict(line.split() for line in path.read_text().splitlines())
    numbers["AA_B"], numbers["AA_E"] = numbers["AA_E"], numbers["AA_B"]
    path.write_text("".join(f"{phone} {number}\n" for phone, number in numbers.items()))


def _other_tree(folder: Path, phones: int) -> None:
    tree = toy(np.zeros((phones, STATES, 1))).tree
    (folder / "tree").write_bytes(event_map.content(tree))


def _no_archives(folder: Path) -> None:
    for path in folder.glob("ali.*.gz"):
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_cut, "ali.1.gz"),
        (_other_ids, "to 99999, and final.mdl has 1 to "),
        (_other_phones, "phone AA_B is None here and"),
        (_other_numbers, "phone AA_B is"),
        (lambda folder: _other_tree(folder, 2), "the tree has 6 pdf-ids and final.mdl 424"),
        (lambda folder: _other_tree(folder, 200), "the tree has 600 pdf-ids and final.mdl 424"),
        (_no_archives, "no ali.*.gz"),
        (lambda folder: (folder / "final.mdl").unlink(), "final.mdl"),
        (lambda folder: (folder / "tree").unlink(), "tree"),
        (lambda folder: (folder / "tree").write_bytes(b"\0BXYZ"), "tree"),
    ],
    ids=[
        "cut",
        "ids",
        "phones",
        "numbers",
        "smaller tree",
        "larger tree",
        "none",
        "no model",
        "no tree",
        "broken tree",
    ],
)
def test_a_spoiled_folder_is_refused(
    spoil: Callable[[Path], object],
    message: str,
    kaldi: Path,
    shared: Path,
    lengths: dict[str, int],
    tmp_path: Path,
) -> None:
    spoil(kaldi)
    with pytest.raises(UserError) as refusal:
        import_alignments(
            sources=[kaldi],
            lang=shared / "kaldi_an4/lang",
            num_frames=lengths,
            max_failed=0.05,
            out=tmp_path / "ali",
        )
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "ali").exists()


def test_alignments_of_another_data_set_are_refused(
    kaldi: Path, shared: Path, lengths: dict[str, int], tmp_path: Path
) -> None:
    lang = shared / "kaldi_an4/lang"
    other = {f"other-{utt}": frames for utt, frames in lengths.items()}
    with pytest.raises(UserError, match="948 of 948 utterances have no alignment: other-"):
        import_alignments(
            sources=[kaldi], lang=lang, num_frames=other, max_failed=0.05, out=tmp_path / "ali"
        )
    utterance = next(iter(lengths))
    for longer, fits in ((1, True), (2, False)):
        data = lengths | {utterance: lengths[utterance] + longer}
        if fits:
            import_alignments(
                sources=[kaldi], lang=lang, num_frames=data, max_failed=0.0, out=tmp_path / "ali"
            )
        else:
            with pytest.raises(UserError, match=f"utterance {utterance}: .* frames of alignment"):
                import_alignments(
                    sources=[kaldi],
                    lang=lang,
                    num_frames=data,
                    max_failed=0.0,
                    out=tmp_path / "ali",
                )


def test_some_missing_alignments_are_counted_and_named(
    kaldi: Path,
    shared: Path,
    lengths: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = lengths | {"zz-new": 100}
    import_alignments(
        sources=[kaldi],
        lang=shared / "kaldi_an4/lang",
        num_frames=data,
        max_failed=0.01,
        out=tmp_path / "ali",
    )
    assert "1 of 949 utterances have no alignment: zz-new" in capsys.readouterr().err


def test_the_command_refuses_a_config_of_another_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("name: x\ncorpus: {kind: builtin}\n")
    there = ["--feats", str(tmp_path), "--lang", str(tmp_path), "--out", str(tmp_path / "ali")]
    assert main(["import-alignment", "--config", str(config), *there]) == 2
    assert "alignment.kind is not 'kaldi'" in capsys.readouterr().err
