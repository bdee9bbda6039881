"""What groups of KernelBench's problems come to in the published run, and tables of them.

    python benchmarks/kernelbench_groups.py

Reads docs/results/kernelbench.json. Writes benchmarks/results/kernelbench_groups.json and what
stands between the marks in docs/benchmarks.md. Nothing is run. Means are geometric, of the
speedups of verified problems; a problem may be in several groups. A baseline whose results are less
accurate than is allowed has no time: the better of both is the other one there.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).parents[1]
RUN = ROOT / "docs" / "results" / "kernelbench.json"
GROUPED = ROOT / "benchmarks" / "results" / "kernelbench_groups.json"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- groups: begin -->", "<!-- groups: end -->"
"""Marks in docs/benchmarks.md, each in a line of its own."""

Row = Mapping[str, Any]

BASELINES = ("eager", "torch.compile", "the better of both")
BEST = BASELINES[-1]
SLOWER = 0.98
"""Below this share of the better baseline's speed a problem counts as slower."""
NEAR = (1.15, 1.5)
"""Times the floor, within which problems are counted."""

MEMORY = frozenset({5, 12, *range(19, 50), 51, 52, 53, *range(88, 97), 98, 99, 100})
"""Numbers of level 1 that memory limits."""
PRODUCTS = frozenset({*range(1, 5), *range(6, 12), *range(13, 19)})
"""Numbers of level 1 that are matrix products."""
CONVOLUTIONS = frozenset({50, *range(54, 88)})
"""Numbers of level 1 that are convolutions."""
CONVOLVING = frozenset({*range(4, 28), 29, 30, 32, 45})
"""Numbers of level 3 whose networks have a convolution."""
RECURRENT = frozenset(range(33, 43))
"""Numbers of level 3 with recurrent layers or loops."""
ATTENDING = frozenset({28, 30, 31, 32, 43, 44, 50})
"""Numbers of level 3 with attention."""

GROUPS: dict[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "all, not algebraic": lambda row: not row["algebraic"],
    "level 1": lambda row: level(row) == 1,
    "level 1, limited by memory": lambda row: level(row) == 1 and number(row) in MEMORY,
    "level 1, matrix products": lambda row: level(row) == 1 and number(row) in PRODUCTS,
    "level 1, convolutions": lambda row: level(row) == 1 and number(row) in CONVOLUTIONS,
    "level 2": lambda row: level(row) == 2,
    "level 2, not algebraic": lambda row: level(row) == 2 and not row["algebraic"],
    "level 2, with a convolution": lambda row: level(row) == 2 and _convolves(row),
    "level 2, with a convolution, torch.compile accurate": lambda row: (
        level(row) == 2 and _convolves(row) and "torch.compile" not in row["lost"]
    ),
    "level 2, without": lambda row: level(row) == 2 and not _convolves(row),
    "level 2, without, not algebraic": lambda row: (
        level(row) == 2 and not _convolves(row) and not row["algebraic"]
    ),
    "level 3": lambda row: level(row) == 3,
    "level 3, not recurrent": lambda row: level(row) == 3 and number(row) not in RECURRENT,
    "level 3, with a convolution": lambda row: level(row) == 3 and number(row) in CONVOLVING,
    "level 3, recurrent": lambda row: level(row) == 3 and number(row) in RECURRENT,
    "level 3, attention": lambda row: level(row) == 3 and number(row) in ATTENDING,
}

SHOWN: dict[str, tuple[int, ...]] = {
    "layer norm, 16 x 64 x 256 x 256": (40,),
    "softmax; log-softmax, 4096 x 393216": (23, 24),
    "batch; instance; group; RMS norm": (33, 34, 35, 36),
    "L1; L2 norm of 32768 rows": (38, 39),
    "max pooling 2-D; 3-D; average pooling 3-D": (42, 43, 46),
    "cumsum; cumprod; reversed; masked cumsum": (89, 90, 91, 93),
    "cross entropy; KL divergence": (95, 98),
    "ReLU; GELU; softplus": (19, 26, 29),
    "diagonal product; matrix times vector": (12, 4),
    "sum; mean over the middle of 128 x 4096 x 4095": (47, 48),
    "convolution 2-D; 3-D; transposed 2-D; transposed 3-D": (63, 60, 65, 68),
    "depthwise convolutions": (82, 83, 84, 85),
    "attention, float32": (97,),
}
"""Numbers of level 1 that have a line of their own in docs/benchmarks.md."""


def main() -> None:
    """Sum up and write both."""
    run = json.loads(RUN.read_text(encoding="utf-8"))
    GROUPED.write_text(json.dumps(summed(run), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), run), encoding="utf-8")


def summed(run: Mapping[str, Any]) -> dict[str, Any]:
    """Every group, and which run it is of."""
    told = ("commit", "date", "command", "cards", "torch", "cuda", "driver")
    rows = run["rows"]
    return {
        "provenance": {name: run["provenance"][name] for name in told},
        "groups": {name: sums(list(filter(has, rows))) for name, has in GROUPS.items()},
    }


def level(row: Row) -> int:
    """Level of a problem."""
    return int(row["level"].removeprefix("level"))


def number(row: Row) -> int:
    """Number of a problem in its level."""
    return int(row["problem"].partition("/")[2].partition("_")[0])


def _convolves(row: Row) -> bool:
    return "conv" in row["problem"].lower()


def _speedups(row: Row) -> dict[str, float]:
    values = {it["baseline"]: it["device"]["value"] for it in row["speedups"]}
    return {**values, BEST: min(values.values())}


def sums(rows: Sequence[Row]) -> dict[str, Any]:
    """What a group comes to; shares and speedups are of what was verified."""
    verified = [row for row in rows if row["verified"]]
    timed = {row["problem"]: _speedups(row) for row in verified if row["speedups"]}
    shares = [row["share_of_floor"] for row in verified if row["share_of_floor"]]
    return {
        "problems": len(rows),
        "verified": len(verified),
        "algebraic": sum(bool(row["algebraic"]) for row in rows),
        "left to PyTorch, at least in part": sum(bool(row["left_to_pytorch"]) for row in rows),
        "timed": {name: sum(name in it for it in timed.values()) for name in BASELINES},
        "geometric means": {name: round(_mean(timed.values(), name), 4) for name in BASELINES},
        "within times the floor": {
            str(times): sum(share >= 1 / times for share in shares) for times in NEAR
        },
        "slower": {
            problem: round(it[BEST], 3) for problem, it in timed.items() if it[BEST] < SLOWER
        },
    }


def _mean(speedups: Iterable[Mapping[str, float]], name: str) -> float:
    return geometric_mean(it[name] for it in speedups if name in it)


def with_tables(page: str, run: Mapping[str, Any]) -> str:
    """The page with the three tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = run["rows"]
    tables = (_groups_table(summed(run)["groups"]), _shown_table(rows), _slower_table(rows))
    return before + "\n".join([BEGIN, *("\n".join([*it, ""]) for it in tables), END]) + after


def _groups_table(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield (
        f"| group | problems | over {' | over '.join(BASELINES)} "
        f"| {' | '.join(f'at most {times} floors' for times in NEAR)} | slower |"
    )
    yield f"|{' --- |' * (len(BASELINES) + len(NEAR) + 3)}"
    for name, it in groups.items():
        means = [f"{value:.2f}x" for value in it["geometric means"].values()]
        near = [str(count) for count in it["within times the floor"].values()]
        cells = [name, str(it["problems"]), *means, *near, str(len(it["slower"]))]
        yield f"| {' | '.join(cells)} |"


def _shown_table(rows: Iterable[Row]) -> Iterator[str]:
    found = {number(row): _speedups(row) for row in rows if level(row) == 1}
    yield f"| level 1 | no. | over {' | over '.join(BASELINES)} |"
    yield f"|{' --- |' * (len(BASELINES) + 2)}"
    for name, numbers in SHOWN.items():
        cells = [_joined(f"{found[it][baseline]:.2f}x" for it in numbers) for baseline in BASELINES]
        yield f"| {' | '.join([name, _joined(map(str, numbers)), *cells])} |"


def _slower_table(rows: Iterable[Row]) -> Iterator[str]:
    timed = [row for row in rows if row["verified"] and row["speedups"]]
    slower = [row for row in timed if _speedups(row)[BEST] < SLOWER]
    if not slower:
        yield f"No problem runs at less than {SLOWER} of the speed of the better of both."
        return
    yield "| slower than the better of both | kernelwright, ms | eager | torch.compile | speedup |"
    yield f"|{' --- |' * 5}"
    for row in sorted(slower, key=lambda it: (level(it), number(it))):
        times = {it["name"]: f"{it['device_ms']:.3f}" for it in row["baselines"]}
        least = min((it["device"] for it in row["speedups"]), key=lambda it: it["value"])
        ours = f"{row['device_ms']:.3f}"
        shown = [times.get(name, "-") for name in BASELINES[:2]]
        told = f"{least['value']:.3f} [{least['low']:.3f}, {least['high']:.3f}]"
        name = row["problem"].replace("_", " ").strip()
        yield f"| {' | '.join([name, ours, *shown, told])} |"


def _joined(cells: Iterable[str]) -> str:
    return "; ".join(cells)


if __name__ == "__main__":
    main()
