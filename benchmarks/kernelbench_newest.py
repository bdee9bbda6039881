"""What KernelBench's problems come to, each by the newest of the published runs that judged it.

    python benchmarks/kernelbench_newest.py RESULTS... --output FILE

RESULTS are files of docs/results, the newest first. FILE is kernelbench_newest.json, beside the
other results; `kernelwright suite --like` takes it as well. Nothing is run.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from kernelwright.report.row import Ending

Row = dict[str, Any]

BEST = "the better of both"
MEMORY = frozenset({5, 12, *range(19, 50), 51, 52, 53, *range(88, 97), 98, 99, 100})
"""Numbers of level 1 that memory limits."""
PRODUCTS = frozenset({*range(1, 5), *range(6, 12), *range(13, 19)})
"""Numbers of level 1 that are matrix products."""
_NEAR = 1.15
"""Times the floor, of which a kernel is near."""
_SLOWER = 0.98
"""Below this a problem counts as slower."""

GROUPS: dict[str, Callable[[Row], bool]] = {
    "level 1, limited by memory": lambda row: _level(row) == 1 and _number(row) in MEMORY,
    "level 1, matrix products": lambda row: _level(row) == 1 and _number(row) in PRODUCTS,
    "level 1": lambda row: _level(row) == 1,
    "level 2, with a convolution": lambda row: _level(row) == 2 and _convolves(row),
    "level 2, with a convolution, torch.compile accurate": lambda row: (
        _level(row) == 2 and _convolves(row) and "torch.compile" in _speedups(row)
    ),
    "level 2, without": lambda row: _level(row) == 2 and not _convolves(row),
    "level 2, without, not algebraic": lambda row: (
        _level(row) == 2 and not _convolves(row) and not row["algebraic"]
    ),
    "level 2": lambda row: _level(row) == 2,
    "level 3": lambda row: _level(row) == 3,
    "all": lambda row: True,
}


def main() -> None:
    """Merge, sum up, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    paths = sorted(arguments.results, key=lambda path: str(_facts(path)["date"]), reverse=True)
    newest = merged(paths)
    rows = [row for row, _ in newest.values()]
    report = {
        "runs": {path.name: _facts(path) for path in paths},
        "rows of each": Counter(name for _, name in newest.values()),
        "groups": {name: _sums([row for row in rows if has(row)]) for name, has in GROUPS.items()},
        "rows": [_shortened(*newest[problem]) for problem in sorted(newest)],
    }
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    for name, sums in report["groups"].items():
        print(f"{name}: {json.dumps({k: v for k, v in sums.items() if k != 'slower'})}")
        print(f"    slower: {sums['slower']}")


def merged(paths: Iterable[Path]) -> dict[str, tuple[Row, str]]:
    """Of each problem the row of the first file that judged it, else of the first, and whose it is.

    A run that ended in an error of ours says nothing of the problem.
    """
    rows = [(row, path.name) for path in paths for row in json.loads(path.read_text())["rows"]]
    rows.sort(key=lambda found: found[0]["ending"] == Ending.DEFECT.value)
    found: dict[str, tuple[Row, str]] = {}
    for row, name in rows:
        found.setdefault(row["problem"], (row, name))
    return found


def _shortened(row: Row, name: str) -> Row:
    """What tells which row it was; its seconds, so that a suite can begin with the longest."""
    told = ("problem", "status", "device_ms", "seconds")
    return {**{word: row[word] for word in told}, "speedups": _speedups(row), "from": name}


def _facts(path: Path) -> Row:
    facts = json.loads(path.read_text())["provenance"]
    return {name: facts.get(name) for name in ("commit", "date", "cards", "torch", "driver")}


def _level(row: Row) -> int:
    return int(row["level"].removeprefix("level"))


def _number(row: Row) -> int:
    return int(row["problem"].partition("/")[2].partition("_")[0])


def _convolves(row: Row) -> bool:
    return "conv" in row["problem"].lower()


def _speedups(row: Row) -> dict[str, float]:
    values = {it["baseline"]: it["device"]["value"] for it in row["speedups"]}
    return values | ({BEST: min(values.values())} if values else {})


def _sums(rows: Sequence[Row]) -> Row:
    timed = [(row["problem"], _speedups(row)) for row in rows if row["speedups"]]
    baselines = dict.fromkeys(name for _, values in timed for name in values)
    shares = [row["share_of_floor"] for row in rows if row["share_of_floor"]]
    return {
        "problems": len(rows),
        "verified": sum(row["verified"] for row in rows),
        "algebraic": sum(bool(row["algebraic"]) for row in rows),
        "geometric means": {
            name: round(geometric_mean(values[name] for _, values in timed if name in values), 3)
            for name in baselines
        },
        "near the floor": sum(share >= 1 / _NEAR for share in shares),
        "slower": {name: round(it[BEST], 3) for name, it in timed if it[BEST] < _SLOWER},
    }


if __name__ == "__main__":
    main()
