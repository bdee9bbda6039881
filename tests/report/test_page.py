"""The page of a run: whole, self-contained, readable by everybody, and small enough."""

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kernelwright.report.breakdown import (
    SHOWN,
    breakdown_of,
    count_families,
    families_of,
    shortened,
)
from kernelwright.report.html import render_page
from kernelwright.report.run_data import RunData
from kernelwright.report.tables import comma_separated, markdown
from kernelwright.report.texts import Shelf
from kernelwright.suite.journal import JournalError
from kernelwright.suite.reading import read_run

from .synthetic import write_run

SMALL = {"level1": 30, "level2": 12}
_VOID = {"meta", "input", "br", "wbr"}
STYLE = Path(__file__).parents[2] / "src" / "kernelwright" / "report" / "page" / "style.css"


class Page(HTMLParser):
    """Checks that elements are closed, and collects what the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def values(self, name: str) -> list[str]:
        """All values of one attribute."""
        return [found[name] for _, found in self.attributes if name in found]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return read_run(write_run(tmp_path_factory.mktemp("new"), seed=1, levels=SMALL))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return read_run(write_run(tmp_path_factory.mktemp("old"), seed=2, levels=SMALL))


@pytest.fixture(scope="module")
def text(run: RunData, old: RunData) -> str:
    return render_page(run, old)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_every_element_is_closed_and_every_name_is_there_once(page: Page) -> None:
    assert page.open == []
    names = page.values("id")
    assert len(names) == len(set(names))
    assert {it[1:] for it in page.values("href")} <= set(names)
    assert set(page.values("aria-labelledby")) <= set(names)


def test_nothing_is_fetched(page: Page, text: str) -> None:
    assert all(value.startswith("#") for value in page.values("href"))
    assert not page.values("src")
    assert "http:" not in text and "https:" not in text
    assert "@import" not in text and "url(" not in text


def test_every_problem_is_there_with_its_numbers(page: Page, run: RunData) -> None:
    words = "".join(page.words)
    for row in run.rows:
        assert row.problem in words
        for it in row.speedups:
            assert f"{it.device.value:.2f}x" in words
    assert f"{sum(row.verified for row in run.rows)} of {len(run.rows)}" in words


def test_text_of_strangers_stays_text(text: str) -> None:
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_pictures_say_what_they_show(page: Page) -> None:
    charts = [found for tag, found in page.attributes if found.get("class") == "chart"]
    # Two baselines and the best of them; floor, roofline, errors.
    assert len(charts) == 6
    assert all(chart["role"] == "img" and chart["aria-labelledby"] for chart in charts)
    titles = [word for word in page.words if " over eager" in word and "[" in word]
    assert titles, "values are shown when the mouse is on a bar"


def test_what_scrolls_can_be_reached_with_the_keyboard(page: Page) -> None:
    wide = [found for _, found in page.attributes if found.get("class") == "wide"]
    assert wide
    assert all(it["tabindex"] == "0" and it["aria-label"] for it in wide)


def unpacked(text: str) -> list[str]:
    """The paragraphs that a page carries."""
    packed = text.partition('id="paragraphs">')[2].partition("<")[0]
    paragraphs: list[str] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return paragraphs


def put_together(paragraphs: list[str], places: str) -> str:
    """What the script does with "0-2,7"."""
    found: list[str] = []
    for place in places.split(","):
        first, _, last = place.partition("-")
        found += paragraphs[int(first) : int(last or first) + 1]
    return "\n\n".join(found)


def test_each_problem_says_where_its_time_goes(text: str, run: RunData) -> None:
    sections = text.split('<details class="problem"')[1:]
    shared = 0
    for section, row in zip(sections, run.rows, strict=True):
        spent = breakdown_of(row, run.details[row.problem])
        assert (spent is not None) == row.verified == ("Where the time goes" in section)
        if spent is None:
            continue
        words = "".join(Page(f"<details{section.partition('</details>')[0]}").words)
        table = words[words.index("Where the time goes") :]
        for term in spent.terms:
            assert shortened(term.name) in table
            assert f"{term.milliseconds:.3g}" in table
            assert f"{term.milliseconds / spent.whole_ms:.0%}" in table
            if term.floor_ms is not None:
                assert f"{term.floor_ms:.3g}" in table
        assert f"Next: {spent.next_step.replace('`', '')}" in table
        assert ("no time is scaled" in table) == spent.shares_card
        shared += spent.shares_card
    assert 0 < shared < sum(row.verified for row in run.rows)


def test_a_long_list_of_kernels_ends_with_their_sum(run: RunData) -> None:
    row = next(row for row in run.rows if row.verified)
    kernels = [
        {"name": f"k{at}_kernel", "maker": "its own", "calls": 2, "milliseconds": 1.0}
        for at in range(SHOWN + 4)
    ]
    verdict = {"checks": [], "ran": {"kernels": kernels, "note": ""}}
    details = {row.problem: {**run.details[row.problem], "verdict": verdict}}
    text = render_page(replace(run, rows=(row,), details=details))
    assert text.count("_<wbr>kernel</code>") == SHOWN
    rest = text[text.index(">4 more<") :].partition("</tr>")[0]
    assert [it for it in Page(f"<tr><th{rest}</tr>").words if it.strip("> ")] == [
        "4 more",
        "8",
        "4",
        "25%",
    ]


def test_problems_are_filtered_by_family(page: Page, text: str, run: RunData) -> None:
    counts = count_families(families_of(row, run.details[row.problem]) for row in run.rows)
    assert {"gemm", "rows", "library"} <= set(counts)
    options = text[text.index('<select id="family"') :].partition("</select>")[0]
    assert f">any ({len(run.rows)})<" in options
    of_rows = [it.split() for it in page.values("data-families")]
    assert len(of_rows) == len(run.rows)
    for family, count in counts.items():
        assert f'<option value="{family}">{family} ({count})</option>' in options
        assert sum(family in it for it in of_rows) == count


def test_names_in_sentences_are_code_and_nothing_else(run: RunData) -> None:
    row = next(row for row in run.rows if row.verified)
    kernel = {"name": "a<b>&_kernel", "maker": "its own", "calls": 1, "milliseconds": 1.0}
    verdict = {"checks": [], "ran": {"kernels": [kernel], "note": ""}}
    details = {row.problem: {**run.details[row.problem], "verdict": verdict}}
    text = render_page(replace(run, rows=(row,), details=details))
    assert "<b>Next:</b> <code>a&lt;b&gt;&amp;_kernel</code> takes 1 ms" in text
    assert "a<b>" not in text


def test_sources_and_graphs_are_packed_into_the_page(page: Page, text: str, run: RunData) -> None:
    places = page.values("data-texts")
    assert len(places) == len(run.rows)
    verified = next(index for index, row in enumerate(run.rows) if row.verified)
    paragraphs = unpacked(text)
    by_title = {
        title: put_together(paragraphs, places) for title, _, places in json.loads(places[verified])
    }
    details = run.details[run.rows[verified].problem]
    assert by_title["Kernels"] == details["cuda"]
    assert by_title["Graph as captured"] == details["graphs"]["captured"]


def test_what_texts_have_in_common_is_there_once() -> None:
    shelf = Shelf()
    texts = ["a\n\nb\n\nc", "b\n\nc\n\na\n\nd\n", "", "\n\n\n\n", "c"]
    places = [shelf.put(text) for text in texts]
    assert places[:2] == ["0-2", "1-2,0,3"]
    paragraphs = unpacked(f'id="paragraphs">{shelf.packed()}<')
    assert sorted(paragraphs) == sorted(set(paragraphs))
    assert [put_together(paragraphs, it) for it in places] == texts


def test_what_got_slower_comes_first(text: str, run: RunData, old: RunData) -> None:
    before = {row.problem: row.device_ms for row in old.rows}
    ratios = {
        row.problem: row.device_ms / was
        for row in run.rows
        if row.device_ms and (was := before.get(row.problem))
    }
    changes = text[text.index('id="changes"') : text.index('id="speed"')].replace("<wbr>", "")
    slower = changes[changes.index(">Slower: ") : changes.index(">Faster: ")]
    expected = sorted((it for it in ratios if ratios[it] > 1.03), key=lambda it: -ratios[it])
    places = [slower.index(f">{it}<") for it in expected]
    assert len(places) > 3
    assert places == sorted(places)
    assert f">Slower: {len(expected)}<" in changes
    assert changes.index(">Not verified any more") < changes.index(">Slower: ")


def test_a_page_of_250_problems_has_less_than_ten_megabytes(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, levels={"level1": 50}))
    assert len(run.rows) == 50
    assert len(render_page(run).encode()) < (10 << 20) * 50 / 250


def test_the_same_run_gives_the_same_page(run: RunData, old: RunData, text: str) -> None:
    assert render_page(run, old) == text


def _colours() -> Iterator[tuple[str, dict[str, str]]]:
    """The colours of both schemes; dark keeps what it does not replace."""
    light, _, rest = STYLE.read_text().partition("@media (prefers-color-scheme: dark)")
    dark = rest[: rest.index("}")]
    found: dict[str, str] = {}
    for name, part in (("light", light), ("dark", dark)):
        for piece in part.split(";"):
            key, _, value = piece.rpartition("--")[2].partition(":")
            if value.strip().startswith("#"):
                found[key.strip()] = value.strip()
        yield name, dict(found)


def _luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_marks_stand_out_in_light_and_dark() -> None:
    """WCAG 2.2: 4.5 for text, 3 for parts of pictures."""
    schemes = dict(_colours())
    assert set(schemes) == {"light", "dark"}
    words = ("ink", "soft", "link", "good", "bad", "keyword", "comment", "string", "numeral")
    marks = ("faster", "even", "slower", "own", "left", "algebraic")
    for colours in schemes.values():
        for ground in ("page", "panel"):
            for name in (*words, *marks):
                pair = sorted(_luminance(colours[it]) for it in (name, ground))
                ratio = (pair[1] + 0.05) / (pair[0] + 0.05)
                assert ratio >= (4.5 if name in words else 3.0), (name, ground, ratio)


def test_a_run_without_times_has_a_page(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, levels={"": 1, "level1": 0}))
    bare = RunData(
        name="bare",
        facts={},
        settings={},
        rows=tuple(row for row in run.rows if not row.verified),
        details={},
    )
    words = "".join(Page(render_page(bare)).words)
    assert "No times were taken" in words


def test_markdown_and_csv_have_the_same_numbers(run: RunData, old: RunData) -> None:
    table = comma_separated(run).splitlines()
    assert len(table) == len(run.rows) + 1
    lines = markdown(run, old).splitlines()
    assert f"## Changes since {old.name}" in lines
    for row in run.rows:
        assert any(line.startswith(f"{row.problem},") for line in table)
        found = row.speedup("eager")
        if found is not None:
            expected = f"{found.device.value:.2f} [{found.device.low:.2f}"
            assert any(row.problem in line and expected in line for line in lines)
    assert any(line.startswith("- commit: synthetic") for line in lines)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no run"):
        read_run(tmp_path)
