"""Settings of search, graph and alignment come to what they are settings of, each as it is."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hadpsgd.config.decoding import Decoding
from hadpsgd.decoding import search
from hadpsgd.decoding.token_passing import Beams
from hadpsgd.gmm import session
from hadpsgd.graph import command as graph_command
from hadpsgd.graph.compile import Scales


class Heard(Exception):  # noqa: N818
    """What was to be heard was; the rest need not be done."""


def config(folder: Path, **sections: Any) -> Path:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"name": "x", "corpus": {"kind": "builtin"}, **sections}))
    return file


def test_a_search_has_the_beams_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[Any, ...]] = []

    def all_paths(*args: Any) -> list[Any]:
        heard.append(args)
        return []

    monkeypatch.setattr(search, "all_paths", all_paths)
    searcher: Any = search.Searcher.__new__(search.Searcher)
    searcher.options = Decoding(beam=5.5, lattice_beam=2.5, max_active=321, acoustic_scale=0.3)
    searcher._graph = searcher._columns = searcher._rescorer = None
    monkeypatch.setattr(search, "Lanes", lambda _, count, room: (count, room))
    assert list(searcher._all(iter([]), together=3, room=7.0)) == []
    beams = Beams(beam=5.5, lattice_beam=2.5, max_active=321)
    assert heard == [(None, None, (3, 7.0), 0.3, beams)]


def test_a_graph_has_the_scales_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_graph(*args: Any) -> None:
        assert args[4] == Scales(transition=0.7, self_loop=0.2) and args[6] is False
        raise Heard

    for module, name in (("event_map", "read"), ("transition_model", "read")):
        monkeypatch.setattr(getattr(graph_command, module), name, lambda _: Namespace(width=3))
    monkeypatch.setattr(graph_command, "read_fst", lambda path: path)
    monkeypatch.setattr(graph_command, "refuse_too_large", lambda *_: None)
    monkeypatch.setattr(graph_command, "compile_graph", compile_graph)
    settings = {"transition_scale": 0.7, "self_loop_scale": 0.2, "determinised": False}
    given: dict[str, Any] = dict.fromkeys(("lang", "ali", "g", "out"), tmp_path)
    left_out = dict.fromkeys(("arpa", "first_pass", "spelling"))
    args = Namespace(config=config(tmp_path, graph=settings), **given, **left_out)
    with pytest.raises(Heard):
        graph_command.run(args)


@pytest.mark.parametrize("kind", ["mono", "sat"])
def test_an_alignment_has_the_beams_of_the_config(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(**settings: Any) -> None:
        assert settings == {"beam": 7.0, "retry_beam": 33.0, "boost": 1.6, "quiet": 4}
        raise Heard

    monkeypatch.setattr(session.DataDir, "read", lambda *_, **__: None)
    monkeypatch.setattr(session, "Lang", lambda _: Namespace(optional_silence=4))
    monkeypatch.setattr(session, "Search", made)
    settings = {"kind": kind, "beam": 7.0, "retry_beam": 33.0, "boost_silence": 1.6}
    args = Namespace(config=config(tmp_path, alignment=settings), data=tmp_path, lang=tmp_path)
    with pytest.raises(Heard), session.session(args):
        pass
