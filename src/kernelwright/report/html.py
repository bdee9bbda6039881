"""One HTML file with everything about a run: no network, no library, readable without a script.

The script only opens what would be too much at once (sources and graphs, packed), sorts the table
and filters it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kernelwright.report.breakdown import (
    Breakdown,
    breakdown_of,
    count_families,
    families_of,
    shortened,
)
from kernelwright.report.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart
from kernelwright.report.pictures import (
    anchor,
    error_chart,
    floor_chart,
    roofline_chart,
    speedup_charts,
    worst_errors,
)
from kernelwright.report.row import BEST, Row
from kernelwright.report.run_data import Change, RunData, changes_between
from kernelwright.report.summary import baselines_of, summarise
from kernelwright.report.texts import Shelf

_NOTICEABLE = 1.03
"""Ratio of times between two runs below which nothing is said."""
_LONGEST_TEXT = 200_000
"""Characters of a source or graph; more is cut, the run's folder has it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckGroup:
    """All checks of one name."""

    name: str
    counts: Mapping[str, int]
    """By outcome."""
    evidence: str
    """Evidence of the first one that matters most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One problem as the page shows it."""

    row: Row
    anchor: str
    plan: Mapping[str, Any]
    before: Sequence[Mapping[str, Any]]
    """Operators as captured: name, operators, source."""
    checks: Sequence[CheckGroup]
    failures: Sequence[Mapping[str, Any]]
    errors: tuple[float, float] | None
    families: Sequence[str]
    """Families of its kernels, and "library" where calls stay PyTorch's."""
    time: Breakdown | None
    """Where the time of a call goes, if one was watched."""
    texts: str
    """Sources and graphs for the script, as JSON: title, language, paragraphs; "" without any."""


def render_page(run: RunData, old: RunData | None = None) -> str:
    """The page of a run, compared with an older one where there is one."""
    environment = _environment()
    shelf = Shelf()
    sections = [_section(row, run.details.get(row.problem, {}), shelf) for row in run.rows]
    return environment.get_template("page.html.jinja").render(
        run=run,
        summary=summarise(run.rows),
        best=BEST,
        baselines=baselines_of(run.rows),
        speedups=speedup_charts(run.rows),
        charts=_others(run),
        sections=sections,
        families=count_families(section.families for section in sections),
        paragraphs=shelf.packed(),
        comparison=None if old is None else Comparison.of(old, run),
        canvas={
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "top": TOP,
            "bottom": HEIGHT - BOTTOM,
        },
        style=_text(environment, "style.css"),
        script=_text(environment, "script.js"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changed since an older run."""

    name: str
    facts: Mapping[str, Any]
    lost: tuple[Change, ...]
    slower: tuple[Change, ...]
    faster: tuple[Change, ...]
    """The fastest first."""
    won: tuple[Change, ...]
    same: int
    """Problems timed in both runs with no difference worth a word."""

    @classmethod
    def of(cls, old: RunData, new: RunData) -> "Comparison":
        """Everything that differs between two runs."""
        changes = changes_between(old, new)
        timed = [(it, it.ratio) for it in changes if it.ratio is not None and not it.lost]
        faster = [it for it, ratio in timed if ratio * _NOTICEABLE < 1]
        return cls(
            name=old.name,
            facts=old.facts,
            lost=tuple(it for it in changes if it.lost),
            slower=tuple(it for it, ratio in timed if ratio > _NOTICEABLE),
            faster=tuple(reversed(faster)),
            won=tuple(it for it in changes if it.won),
            same=sum(1 / _NOTICEABLE <= ratio <= _NOTICEABLE for _, ratio in timed),
        )


def _others(run: RunData) -> list[Chart]:
    return [floor_chart(run.rows), roofline_chart(run), error_chart(run)]


def _section(row: Row, details: Mapping[str, Any], shelf: Shelf) -> Section:
    checks = details.get("verdict", {}).get("checks", ())
    return Section(
        row=row,
        anchor=anchor(row.problem),
        plan=details.get("plan", {}),
        before=details.get("before", ()),
        checks=list(_grouped(checks)),
        failures=[check for check in checks if check["outcome"] in ("failed", "warning")],
        errors=worst_errors(details),
        families=families_of(row, details),
        time=breakdown_of(row, details),
        texts=_texts(details, shelf),
    )


_TELLING = ("failed", "warning", "passed", "skipped")
"""Outcomes, the one that matters most first."""


def _grouped(checks: Sequence[Mapping[str, Any]]) -> Iterator[CheckGroup]:
    for name in dict.fromkeys(check["name"] for check in checks):
        group = [check for check in checks if check["name"] == name]
        counts = {
            outcome: sum(check["outcome"] == outcome for check in group) for outcome in _TELLING
        }
        first = min(group, key=lambda check: _TELLING.index(check["outcome"]))
        present = {outcome: count for outcome, count in counts.items() if count}
        yield CheckGroup(name=name, counts=present, evidence=first["evidence"])


def _texts(details: Mapping[str, Any], shelf: Shelf) -> str:
    """Titles, languages and where the texts are on the shelf."""
    graphs = details.get("graphs", {})
    texts = [
        ("Kernels", "cuda", details.get("cuda", "")),
        ("File", "python", "" if details.get("cuda") else details.get("emitted", "")),
        ("Graph as captured", "graph", graphs.get("captured", "")),
        ("Plan", "graph", graphs.get("planned", "")),
        ("Problem", "python", details.get("source", "")),
        ("What it printed", "log", details.get("log", "")),
        ("Traceback", "log", details.get("traceback", "") or details.get("stack", "")),
    ]
    present = [
        (title, language, shelf.put(text[:_LONGEST_TEXT]))
        for title, language, text in texts
        if text
    ]
    return json.dumps(present) if present else ""


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kernelwright.report", "page"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["share"] = lambda value: "–" if value is None else f"{value:.0%}"
    environment.filters["times"] = lambda value: "–" if value is None else f"{value:.2f}x"
    environment.filters["ms"] = lambda value: "–" if value is None else f"{value:.4g}"
    environment.filters["short"] = lambda value: "–" if value is None else f"{value:.3g}"
    environment.filters["shortened"] = shortened
    environment.filters["anchor"] = anchor
    environment.filters["amount"] = _amount
    environment.filters["breakable"] = lambda name: escape(name).replace("_", Markup("_<wbr>"))
    environment.filters["with_code"] = _with_code
    environment.filters["counted"] = lambda count, word: (
        f"{count} {word}{'' if count == 1 else 's'}"
    )
    return environment


def _amount(value: float) -> str:
    """Three digits and the letter of a unit: "134 M" of 134217728, " " after a small number."""
    for letter in ("", "k", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.3g} {letter}"
        value /= 1000
    return f"{value:.4g} T"


def _with_code(text: str) -> Markup:
    """A sentence whose names between backquotes become code."""
    pieces = [escape(piece) for piece in text.split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else piece
        for at, piece in enumerate(pieces)
    )


def _text(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
