"""Thresholds by set: what a config may say, and that a stage takes its set's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from corpus_data import make_data

from hadpsgd.cli import main
from hadpsgd.config import Config
from hadpsgd.config.limits import Limits
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion


def config(limit: object) -> Config:
    content = {"name": "t", "corpus": {"kind": "an4"}, "features": {"max_skipped": limit}}
    return Config.model_validate(content)


def test_a_share_for_all_or_for_each() -> None:
    assert config(0.2).features.max_skipped.of("train") == 0.2
    limits = config({"default": 0.1, "train": 0.5}).features.max_skipped
    shares = [limits.of(name) for name in ("train", "train_perturbed", "dev", "anything")]
    assert shares == [0.5, 0.5, 0.1, 0.1]


def test_what_was_given_is_what_is_written() -> None:
    for given in (0.2, {"default": 0.1, "train": 0.5}):
        made = json.loads(config(given).model_dump_json())
        assert made["features"]["max_skipped"] == given
        assert Config.model_validate(made) == config(given)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"train": 0.1}, "a mapping of sets needs `default` too"),
        ({"default": 0.1, "trian": 0.2}, "no set 'trian'; there are train, dev, test, default"),
        ({"default": 2}, "less than or equal to 1"),
        ("most", "a share from 0 to 1, or a mapping of sets to shares"),
        (True, "a share from 0 to 1, or a mapping of sets to shares"),
    ],
)
def test_nonsense_is_named(
    limit: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {"name": "t", "corpus": {"kind": "an4"}, "features": {"max_skipped": limit}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content))
    assert main(["config", str(tmp_path / "c.yaml")]) == 2
    said = capsys.readouterr().err
    assert message in said and "max_skipped" in said and said.count("\n") == 1


def test_a_stage_takes_the_limit_of_its_set(tmp_path: Path) -> None:
    """Features of one of four utterances are missing."""
    data = DataDir.read(make_data(tmp_path))
    arguments = ["--config", str(tmp_path / "c.yaml"), "--stream", "logmel", "--jobs", "1"]
    (tmp_path / "c.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    folder = tmp_path / "feats/logmel/train"
    assert main(["features", *arguments, "--data", str(data.path), "--out", str(folder)]) == 0
    lines = (folder / "feats.scp").read_text().splitlines()
    (folder / "feats.scp").write_text("".join(f"{line}\n" for line in lines[1:]))
    found = Fusion(config({"default": 0.0, "train": 0.3}), tmp_path / "feats", data)
    assert len(found.missing) == 1
    with pytest.raises(UserError, match="1 of 4 utterances have no features"):
        Fusion(config({"default": 0.3, "train": 0.1}), tmp_path / "feats", data)
    assert Limits({"default": 0.3}).sets == frozenset()
