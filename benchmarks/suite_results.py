"""Turn the run of a suite into what is published: a page, JSON, Markdown and tables of the docs.

    python benchmarks/suite_results.py RUN

Writes docs/results/kernelbench_report.html, kernelbench.json (every row, with provenance) and
kernelbench.md (the tables), puts the table of levels between the marks in docs/benchmarks.md and
the page into the navigation of the site. Folders of the machine that ran it are cut off; one that
is left ends the script without a file. `benchmarks/front_page.py` takes it from there to README.md.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from kernelwright.report.breakdown import breakdown_of
from kernelwright.report.html import render_page
from kernelwright.report.row import BEST, Row
from kernelwright.report.run_data import RunData
from kernelwright.report.summary import Level, Summary, summarise
from kernelwright.report.tables import markdown
from kernelwright.suite.journal import FILE
from kernelwright.suite.reading import read_run
from kernelwright.verify.records import from_plain, to_plain

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- suite: begin -->", "<!-- suite: end -->"
"""Marks in docs/benchmarks.md, each in a line of its own."""
MACHINE = ("/tmp/", "/root/", "/home/", "/work/", "/opt/", "/usr/", "/mnt/")
KEPT = ("/KernelBench/", "/site-packages/", "/dist-packages/", "/kernelwright/", "/python3")
"""What a path is cut off before, the first that it has."""
_REPORT = "_report.html"
"""Ending of the report's name: the site makes an .html of the .md, which must not be the same."""
UNFINISHED = ("log", "stack", "timeline")
"""Details that are about the machine and not about the problem."""


def main(arguments: Sequence[str]) -> int:
    """Write everything; 1 if a folder of the machine is left somewhere."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--navigation", type=Path, default=ROOT / "mkdocs.yml")
    parser.add_argument("--name", default="kernelbench")
    asked = parser.parse_args(arguments)
    run = published(read_run(asked.run), asked.name)
    summary, walls = summarise(run.rows), wall_seconds(asked.run / FILE)
    table = [*headline(run, summary, walls), "", *level_table(summary)]
    texts = {
        _REPORT: render_page(run),
        ".json": json.dumps(as_json(run, summary, walls), indent=1) + "\n",
        ".md": page(run, table, asked.name),
    }
    for ending, text in texts.items():
        if left := [mark for mark in MACHINE if mark in text]:
            print(f"{asked.name}{ending} still has {left[0]}{text.partition(left[0])[2][:60]!r}")
            return 1
    asked.output.mkdir(parents=True, exist_ok=True)
    for ending, text in texts.items():
        path = asked.output / f"{asked.name}{ending}"
        path.write_text(text, encoding="utf-8")
        print(f"{path}: {len(text.encode()) / 2**20:.2f} MiB")
    _put(asked.page, "\n".join([*table, "", *_links(asked.name, "results/")]))
    _into_navigation(asked.navigation, f"results/{asked.name}.md")
    print("\n".join(table))
    return 0


def published(run: RunData, name: str) -> RunData:
    """The run without folders of the machine, and without what is about the machine only."""
    details = {
        problem: without_folders({k: v for k, v in kept.items() if k not in UNFINISHED})
        for problem, kept in run.details.items()
    }
    rows = tuple(from_plain(Row, without_folders(to_plain(row))) for row in run.rows)
    facts = {key: without_folders(value) for key, value in run.facts.items()}
    return replace(run, name=name, rows=rows, details=details, facts=facts)


def without_folders(value: Any) -> Any:
    """The same value, its paths beginning at what is known everywhere."""
    match value:
        case str():
            return _cut(value) if any(mark in value for mark in MACHINE) else value
        case dict():
            return {key: without_folders(item) for key, item in value.items()}
        case list() | tuple():
            return [without_folders(item) for item in value]
    return value


def _cut(text: str) -> str:
    for mark in MACHINE:
        before, found, rest = text.partition(mark)
        pieces = []
        while found:
            path, end, _ = _word(rest)
            pieces.append(before + _known(f"{mark}{path}"))
            before, found, rest = rest[end:].partition(mark)
        text = "".join([*pieces, before])
    return text


def _word(text: str) -> tuple[str, int, str]:
    """What belongs to a path, and where it ends."""
    end = next((i for i, letter in enumerate(text) if letter in " \n\t\"'`,;:()[]"), len(text))
    return text[:end], end, text[end:]


def _known(path: str) -> str:
    for mark in KEPT:
        if mark in path:
            return mark.strip("/").removesuffix("python3") + "/" + path.partition(mark)[2]
    return path.rpartition("/")[2]


def wall_seconds(journal: Path) -> dict[str, float]:
    """From each start of the suite to its last result: the sum for each machine that it ran on."""
    starts: list[tuple[str, list[datetime]]] = []
    for line in journal.read_text(encoding="utf-8").splitlines():
        match json.loads(line):
            case {"event": "run", "provenance": {"date": date, **facts}}:
                starts.append((_machine(facts), [datetime.fromisoformat(date)]))
            case {"event": "done", "date": date}:
                starts[-1][1].append(datetime.fromisoformat(date))
    walls: dict[str, float] = {}
    for machine, dates in starts:
        seconds = (max(dates) - dates[0]).total_seconds()
        walls[machine] = walls.get(machine, 0.0) + seconds
    return walls


def _machine(facts: Mapping[str, Any]) -> str:
    cards = facts.get("cards") or ["no GPU"]
    return f"{len(cards)} x {cards[0]} and {facts.get('cores')} cores"


def headline(run: RunData, summary: Summary, walls: Mapping[str, float]) -> Iterator[str]:
    """What ran, where, and how much of it was right."""
    facts, settings, everything = run.facts, run.settings, summary.all
    spent = " and ".join(f"{seconds:.0f} s on {machine}" for machine, seconds in walls.items())
    asked = facts.get("problems", everything.problems)
    count = "all" if asked == everything.problems else f"{everything.problems} of"
    yield (
        f"{_title(run)}, `--effort {settings['effort']} "
        f"--seeds {settings.get('seeds')}`, "
        f"{count} {asked} problems in {spent}: {everything.verified} verified, of them "
        f"{everything.algebraic} with an algebraic rewrite and {everything.left_to_pytorch} "
        f"that leave calls to PyTorch. torch {facts.get('torch')}, CUDA {facts.get('cuda')}, "
        f"driver {facts.get('driver')}, commit {facts.get('commit')}, {facts.get('date')}."
    )
    others = [f"{count} {status}" for status, count in summary.endings]
    yield ""
    yield f"How they ended: {', '.join(others)}."


def level_table(summary: Summary) -> Iterator[str]:
    """Levels against each baseline: geometric means of those verified, shares of all problems."""
    yield (
        "| level | verified | over | timed | geometric mean | faster | slower | fast_1 | fast_1.5 "
        "| fast_2 |"
    )
    yield f"|{' --- |' * 10}"
    for level in summary.levels:
        yield from _level(level)


def _level(level: Level) -> Iterator[str]:
    for it in level.against:
        fast = {entry.p: f"{entry.share:.0%}" for entry in it.fast}
        mean = "" if it.geomean is None else f"{it.geomean:.2f}x"
        over = "the better of both" if it.baseline == BEST else it.baseline
        cells = [level.name, f"{level.verified} of {level.problems}", over, it.measured, mean]
        cells += [it.faster, it.slower, fast[1.0], fast[1.5], fast[2.0]]
        yield f"| {' | '.join(map(str, cells))} |"


def _title(run: RunData) -> str:
    """Which of the levels there are problems of."""
    folders = sorted({row.problem.partition("/")[0] for row in run.rows})
    return f"KernelBench {', '.join(it.replace('level', 'level ') for it in folders)}"


def page(run: RunData, table: Sequence[str], name: str) -> str:
    """The page of the documentation."""
    all_tables = markdown(run)
    problems = all_tables[all_tables.index("## Problems") :]
    return "\n".join(
        [
            f"# {_title(run)}",
            "",
            *table,
            "",
            "fast_p is the share of *all* problems that are verified and more than p times as "
            "fast; *faster* and *slower* count those whose 95 % interval lies wholly above or "
            "below 1.",
            "",
            f"Command: `{run.facts.get('command')}`",
            "",
            *_links(name, ""),
            "",
            *_not_counted(run),
            *_where_time_went(run),
            problems,
        ]
    )


_WORDS = 12
"""Lines of the table below; the rest is one more."""


def _where_time_went(run: RunData) -> Iterator[str]:
    """What the judgements waited for, all problems together."""
    total: Counter[str] = Counter()
    for row in run.rows:
        total.update(row.spent)
    if not total:
        return
    everything = sum(total.values())
    most = total.most_common(_WORDS)
    rest = ("everything else", everything - sum(seconds for _, seconds in most))
    yield "## What the judgements waited for"
    yield ""
    yield "| process and question | seconds | share |"
    yield "| --- | --- | --- |"
    for word, seconds in (*most, rest):
        yield f"| {word} | {seconds:.0f} | {seconds / everything:.0%} |"
    yield ""


def _not_counted(run: RunData) -> Iterator[str]:
    """Baselines without a time, and why: they are beaten nowhere above."""
    lost = [(row, name, why) for row in run.rows for name, why in row.lost.items()]
    if not lost:
        return
    yield "## Baselines that do not count"
    yield ""
    yield (
        "Every result of a timed call is compared with the reference's, a baseline's as well. One "
        "that is less accurate than a candidate is allowed to be has no time: the problem counts "
        "against the baselines that are left."
    )
    yield ""
    for row, name, why in lost:
        yield f"* {row.problem}, {name}: {why}"
    yield ""


def _links(name: str, folder: str) -> Iterator[str]:
    links = {"report with pictures, kernels and checks": _REPORT, "every number as JSON": ".json"}
    if folder:
        links["every problem in a table"] = ".md"
    words = ", ".join(f"[{text}]({folder}{name}{ending})" for text, ending in links.items())
    yield f"{words[:1]}{words[1:2].upper()}{words[2:]}."


def as_json(run: RunData, summary: Summary, walls: Mapping[str, float]) -> dict[str, Any]:
    """Provenance, settings, summary, rows, and the kernels of each problem with their times."""
    return {
        "provenance": {**run.facts, "wall_seconds": walls},
        "settings": run.settings,
        "summary": to_plain(summary),
        "rows": [row.to_json() for row in run.rows],
        "where_the_time_goes": dict(_breakdowns(run)),
    }


def _breakdowns(run: RunData) -> Iterator[tuple[str, Any]]:
    """The largest kernels of each problem whose call was watched."""
    for row in run.rows:
        spent = breakdown_of(row, run.details.get(row.problem, {}))
        if spent is not None:
            yield row.problem, spent.to_json()


def _put(page: Path, text: str) -> None:
    """Replace what is between the marks, where there are any."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _into_navigation(settings: Path, place: str) -> None:
    """Put the page behind that of measured facts, once."""
    text = settings.read_text(encoding="utf-8")
    line = next(it for it in text.splitlines() if it.strip() == "- measured/index.md")
    if place not in text:
        added = line.replace("measured/index.md", place)
        settings.write_text(text.replace(line, f"{line}\n{added}", 1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
