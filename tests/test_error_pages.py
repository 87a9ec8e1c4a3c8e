"""What pages of errors show: counts as by hand and as sclite's, stretches, noise, safe text."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest
import soundfile
from corpus_data import RATE, make_data, replace_line, tone

from hadpsgd.corpus import stm
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.snr import LOWEST, snr
from hadpsgd.corpus.stm import Segment
from hadpsgd.reports import sound
from hadpsgd.reports.causes import MODEL, UNKNOWN, Cause, utterances_of
from hadpsgd.reports.confusions import TOP, Confusion, confusions
from hadpsgd.reports.errors import SetErrors
from hadpsgd.reports.errors_command import page
from hadpsgd.reports.pieces import Silent
from hadpsgd.reports.stretches import ALIGNED, AROUND, RECOGNISED, Stretch, heard, said
from hadpsgd.scoring import formats, nist
from hadpsgd.scoring.align import Edit
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.nist import Sentence, score_ctm


def segment(channel: str, begin: float, end: float, text: str) -> Segment:
    speaker = "ann" if channel == "A" else "bob"
    return Segment(file="call", channel=channel, speaker=speaker, begin=begin, end=end, text=text)


def timed(channel: str, begin: float, word: str) -> TimedWord:
    return TimedWord(
        file="call", channel=channel, begin=begin, duration=0.2, word=word, confidence=0.5
    )


SEGMENTS = [
    segment("A", 0.5, 2.25, "AT&T <B> AND IT'S"),
    segment("A", 3.0, 4.5, "AT&T"),
    segment("B", 2.5, 3.5, "AND ON"),
    segment("B", 6.5, 9.99, ""),
]
WORDS = [
    timed("A", 0.6, "AT&T"),
    timed("A", 0.9, "IN"),
    timed("A", 1.5, "ITS"),
    # nothing is recognised in the second
    timed("B", 2.6, "IN"),
    timed("B", 2.9, "on"),
    timed("B", 3.2, "uh"),
    timed("B", 7.0, "</script>"),
]
AT_AND_T = TimedWord(file="call", channel="A", begin=3.4, duration=0.5, word="AT&T")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The data directory: both channels of a recording, upper-case texts."""
    return make_data(tmp_path)


def found(data: DataDir, *, minutes: float = 1.0, listed: int = 10) -> SetErrors:
    """Errors of the small case."""
    sentences = score_ctm(SEGMENTS, WORDS)
    causes = {
        "ann-1": Cause(UNKNOWN, None, ("<B>",)),
        "ann-2": Cause(MODEL, 2.5, said=(AT_AND_T,)),
    }
    made = SetErrors("a<b", sentences, data, utterances_of(sentences, data), causes, listed)
    with AudioReader(data, RATE) as reader:
        return made.heard(reader, minutes=minutes)


def shown(made: SetErrors) -> str:
    return page(name="<demo>", run="one & two", synthetic=True, found=[made])


def blocks(text: str, kind: str) -> list[Any]:
    """What the scripts of a page read."""
    pattern = rf'<script type="application/json" class="{kind}">(.*?)</script>'
    return [json.loads(block) for block in re.findall(pattern, text, re.DOTALL)]


def test_the_small_case_as_counted_by_hand(place: Path) -> None:
    made = found(DataDir.read(place))
    assert (made.total.words, made.total.sub, made.total.dele, made.total.ins) == (7, 3, 2, 2)
    lists = made.confusions
    assert [(c.words, c.count) for c in lists.substituted] == [
        (["and", "in"], 2),
        (["it's", "its"], 1),
    ]
    assert [(c.words, c.count) for c in lists.deleted] == [(["<b>"], 1), (["at&t"], 1)]
    assert [(c.words, c.count) for c in lists.inserted] == [(["</script>"], 1), (["uh"], 1)]
    groups = {
        kind: {b.name: (b.counts.sentences, b.counts.words, b.counts.errors) for b in rows}
        for kind, rows in made.groups.items()
    }
    assert groups["words"] == {
        "0": (1, 0, 1), "1": (1, 1, 1), "2 to 3": (1, 2, 2), "4 to 7": (1, 4, 3),
    }  # fmt: skip
    assert groups["seconds"] == {"1 to 2": (3, 7, 6), "2 to 4": (1, 0, 1)}
    # tones without pauses; the last sentence begins where no utterance does, and is cut out
    assert groups["snr"] == {"below 0": (4, 7, 7)}
    assert [(who, c.errors) for who, _, c in made.speakers] == [("bob", 3), ("ann", 4)]


def test_each_word_is_played_where_it_is(place: Path) -> None:
    """Of both channels: the second is a tone twice as high."""
    made = found(DataDir.read(place))
    substituted = made.plays(made.confusions.substituted[0])
    assert [play["sentence"] for play in substituted] == ["bob-000", "ann-000"]
    (deleted,) = made.plays(made.confusions.deleted[1])
    text = shown(made)
    (clips,) = blocks(text, "clips")
    for play, channel, begin, end in (
        (substituted[0]["recognised"], 1, 2.6, 2.8),
        (substituted[0]["said"], 1, 2.5, 2.9),  # from the segment's beginning to `on`
        (deleted["said"], 0, 3.4, 3.9),  # as aligned
    ):
        assert f'data-play="{play}"' in text
        number, first, last = map(float, play.split(","))
        samples, rate = soundfile.read(io.BytesIO(base64.b64decode(clips[int(number)])))
        start = {0: 3.0, 1: 2.5}[channel]
        assert (first + start, last + start) == pytest.approx((begin - 0.04, end + 0.04), abs=0.006)
        assert last <= len(samples) / rate
        spectrum = np.abs(np.fft.rfft(samples))
        assert np.argmax(spectrum) * rate / len(samples) == pytest.approx(
            (440, 880)[channel], abs=2
        )
    assert deleted["recognised"] == ""


def test_the_audio_is_the_recordings(place: Path) -> None:
    data = DataDir.read(place)
    made = found(data)
    rows = {row["name"]: row for row in made.rows()}
    with AudioReader(data, RATE) as reader:
        wanted = reader.read(data.utterances["bob-1"])
    samples, rate = soundfile.read(
        io.BytesIO(base64.b64decode(made.clips[rows["bob-1"]["clip"]])), dtype="int16"
    )
    assert rate == RATE
    np.testing.assert_array_equal(samples, np.rint(wanted))


def test_what_the_page_leaves_out_is_counted(place: Path) -> None:
    data = DataDir.read(place)
    text = shown(found(data, listed=3, minutes=2 / 60))
    assert "1 more are wrong and not listed" in text and "of those listed have no audio" in text
    (rows,) = blocks(text, "rows")
    (clips,) = blocks(text, "clips")
    assert len(rows) == 3 and len(clips) == sum(row["clip"] is not None for row in rows) == 1
    none = found(data, minutes=0)
    assert none.clips == [] and none.silent == Silent(beyond=4)
    assert "data-play" not in shown(none).split("<script>")[0]


def test_utterances_without_audio(place: Path) -> None:
    """One recording of two is missing, or wav.scp: the page is made, and says so."""
    replace_line(place / "wav.scp", "call-B audio/call.wav", "call-B audio/gone.wav")
    half = found(DataDir.read(place))
    assert len(half.clips) == 2 and set(half.sound.failed) == {"bob-1", "bob-2 6.50-9.99"}
    assert "2 sentences could not be heard" in shown(half) and "gone.wav" in shown(half)
    for name in ("wav.scp", "segments", "reco2file_and_channel"):
        (place / name).unlink()
    bare = DataDir.read(place, audio=False)
    none = found(bare)
    assert none.clips == [] and none.silent == Silent(nowhere=4)
    assert "4 of those listed have no audio here" in shown(none)
    assert sound.listen(AudioReader(bare, RATE), bare, set()).reason == sound.NO_AUDIO


def test_text_stays_text(place: Path) -> None:
    text = shown(found(DataDir.read(place)))
    assert "<title>&lt;demo&gt;, one &amp; two: errors</title>" in text
    assert "<b>" not in text.split("<section")[1] and '<td class="left">&lt;b&gt;</td>' in text
    assert text.count("</script>") == 3  # two of data, one that runs
    assert not re.search(r"(src|href)=\"(?!#)", text)
    (rows,) = blocks(text, "rows")
    said_ = {cell[0] for row in rows for column in row["columns"] for cell in column}
    assert {"at&t", "<b>", "it's", "</script>", "uh"} <= said_
    patterns = [json.loads(html.unescape(p)) for p in re.findall(r'data-pattern="([^"]*)"', text)]
    assert [["it's", None], ["its", "S"]] in patterns and [["<b>", "D"]] in patterns


def aligned_by_sclite(path: Path) -> Counter[tuple[str | None, str | None]]:
    """Errors of a .pra report, by (word said, word recognised)."""
    counts: Counter[tuple[str | None, str | None]] = Counter()
    ref: list[str] = []
    hyp: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("REF:"):
            ref = line.removeprefix("REF:").split()
        elif line.startswith("HYP:"):
            hyp = line.removeprefix("HYP:").split()
        elif line.startswith("Eval:"):
            pairs = [
                tuple(None if set(w) == {"*"} else w.lower() for w in p)
                for p in zip(ref, hyp, strict=True)
            ]
            counts.update((a, b) for a, b in pairs if a != b)
    return counts


def counted(lists: Any) -> Counter[tuple[str | None, str | None]]:
    rows: list[Confusion] = [row for kind in lists.kinds.values() for row in kind]
    return Counter({(row.ref, row.hyp): row.count for row in rows})


def bare(counts: Counter[tuple[str | None, str | None]]) -> Counter[tuple[str | None, str | None]]:
    """Without the tags of words, which sclite prints and does not compare."""
    found_: Counter[tuple[str | None, str | None]] = Counter()
    for (ref, hyp), number in counts.items():
        a, b = (word and word.partition(";")[0] for word in (ref, hyp))
        if a != b:
            found_[a, b] += number
    return found_


def test_confusions_are_those_of_sclite(shared: Path) -> None:
    """sclite's own alignments, of transcripts and of timed words."""
    folder = shared / "sctk/sclite"
    texts = []
    for side in ("ref", "hyp"):
        lines = (folder / f"csrnab.{side}").read_text().splitlines()
        pairs = (line.rstrip().rstrip(")").rsplit("(", 1) for line in lines)
        texts.append({name.lower(): text for text, name in pairs})
    ref, hyp = texts
    sentences = [
        Sentence(name=n, speaker=n[:3], edits=nist.align_texts(t, hyp[n], nist.Options()))
        for n, t in ref.items()
    ]
    assert counted(confusions(sentences)) == aligned_by_sclite(folder / "test1.pra")
    words = formats.read_ctm(folder / "lvc_hyp.ctm")
    sentences = score_ctm(stm.read(folder / "lvc_ref.stm"), words)
    ours, theirs = counted(confusions(sentences)), bare(aligned_by_sclite(folder / "test3.pra"))
    assert ours == theirs and sum(ours.values()) > 500
    for kind, _, rows in ((k, TOP, r) for k, r in confusions(sentences).kinds.items()):
        assert [r.count for r in rows] == sorted((r.count for r in rows), reverse=True), kind


def test_stretches_of_alternatives() -> None:
    """Marks of alternatives in a CTM are no words: places count the words alone."""
    marks = [
        TimedWord(file="f", channel="1", begin=0.0, duration=0.0, word=m)
        for m in ("<ALT_BEGIN>", "<ALT>", "<ALT_END>")
    ]
    at = {
        word: TimedWord(file="f", channel="1", begin=begin, duration=0.1, word=word)
        for begin, word in enumerate(["a", "b", "c", "d"])
    }
    words = [at["a"], marks[0], at["b"], marks[1], at["c"], marks[2], at["d"]]
    reference = Segment(file="f", channel="1", speaker="s", begin=0, end=9, text="a c x")
    (sentence,) = score_ctm([reference], words)
    assert [s and s.begin for s in heard(sentence)] == [0, 2, 3]
    assert said(sentence) == [
        Stretch(0, 0.1, RECOGNISED), Stretch(2, 2.1, RECOGNISED), Stretch(2.1, 9, AROUND),
    ]  # fmt: skip


def test_words_between_their_neighbours_share_the_place() -> None:
    edits = [
        Edit(kind="C", ref="a", hyp="a", hyp_arc=1),
        Edit(kind="D", ref="b", hyp=None),
        Edit(kind="S", ref="c", hyp="x", hyp_arc=2),
        Edit(kind="I", ref=None, hyp="y", hyp_arc=3),
        Edit(kind="C", ref="d", hyp="d", hyp_arc=4),
    ]
    words = tuple(timed("A", begin, "w") for begin in (1.0, 2.0, 3.0, 4.0))
    sentence = Sentence(name="s", speaker="s", edits=edits, words=words)
    spans = [s and (s.begin, s.end, s.source) for s in said(sentence)]
    between = (1.2, 4.0, AROUND)
    assert spans == [(1.0, 1.2, RECOGNISED), between, between, None, (4.0, 4.2, RECOGNISED)]
    # an alignment that writes one word otherwise: the others have their own place
    aligned = [timed("A", 0.9 + i, word) for i, word in enumerate(["A", "B", "Sea", "D"])]
    places = [s and (s.begin, s.source) for s in said(sentence, aligned)]
    own = [(0.9 + i, ALIGNED) for i in range(4)]
    assert places == [own[0], own[1], (pytest.approx(2.1), AROUND), None, own[3]]


@pytest.mark.parametrize("wanted", [5.0, 15.0, 30.0])
def test_noise_is_measured(wanted: float) -> None:
    """Bursts of noise of known power on steady noise, speaking half of the time."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 100, 5 * RATE)
    speech = rng.normal(0, 100 * 10 ** (wanted / 20), 5 * RATE)
    speech *= np.arange(5 * RATE) // (RATE // 4) % 2
    value = snr((noise + speech).astype(np.float32), RATE)
    assert value == pytest.approx(wanted, abs=1.5)


def test_noise_of_odd_signals() -> None:
    assert snr(np.zeros(RATE, np.float32), RATE) == LOWEST
    assert snr(tone(1.0).astype(np.float32), RATE) == pytest.approx(LOWEST, abs=1)
    assert snr(tone(0.1).astype(np.float32), RATE) is None
    half = np.concatenate([np.zeros(RATE), tone(1.0)]).astype(np.float32)
    assert snr(half, RATE) == pytest.approx(10 * np.log10(8000**2 / 2 * 12), abs=0.1)


@pytest.mark.skipif(not browser.PROGRAM, reason="Chromium is not installed")
def test_a_browser_lists_the_sentences_and_decodes_the_audio(place: Path, tmp_path: Path) -> None:
    """A check that runs inside the page: filters, a click on a count, a clip's length."""
    check = """<script>(async () => {
      const section = document.querySelector("section"), seen = {};
      const names = () => [...section.querySelectorAll("article code")].map(c => c.textContent);
      seen.all = names();
      const sort = section.querySelector("[data-sort]");
      sort.value = "seconds"; sort.dispatchEvent(new Event("input"));
      seen.shortest = names();
      section.querySelector("[data-pattern]").click();
      seen.pair = names(); seen.only = section.querySelector(".only").textContent;
      section.querySelector(".only").click();
      const text = section.querySelector("[data-filter=text]");
      text.value = "IT'S"; text.dispatchEvent(new Event("input"));
      seen.word = names();
      const words = section.querySelectorAll(".words > span:not(.labels) > *");
      seen.words = [...words].map(w => w.textContent);
      const clips = JSON.parse(section.querySelector("script.clips").textContent);
      const bytes = Uint8Array.from(atob(clips[0]), c => c.charCodeAt(0)).buffer;
      const sound = await new OfflineAudioContext(1, 8000, 8000).decodeAudioData(bytes);
      seen.seconds = sound.duration;
      document.body.innerHTML = '<pre id="seen"></pre>';
      document.body.firstChild.textContent = JSON.stringify(seen);
    })();</script></body>"""
    made = tmp_path / "page.html"
    made.write_text(shown(found(DataDir.read(place))).replace("</body>", check), "utf-8")
    with browser.page(1200, 1000) as tab:
        tab.open(made.as_uri(), "document.getElementById('seen')")
        dom = tab.document()
    seen = json.loads(html.unescape(re.findall(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)[0]))
    assert seen["all"] == ["ann-1", "bob-1", "ann-2", "bob-001"]
    assert seen["shortest"] == ["bob-1", "ann-2", "ann-1", "bob-001"]
    assert sorted(seen["pair"]) == ["ann-1", "bob-1"] and "and → in" in seen["only"]
    assert seen["word"] == ["ann-1"]
    assert seen["words"] == ["at&t", "at&t", "<b>", "", "and", "in", "it's", "its"]
    assert seen["seconds"] == pytest.approx(1.75, abs=0.01)
