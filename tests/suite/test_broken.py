"""The real process on problems that break it: each costs itself alone, and says so in one line."""

from dataclasses import replace

import pytest

from kernelwright.emulator.compile import build_shared
from kernelwright.report.row import Ending, Row
from kernelwright.suite.pool import LocalPool, Pool, Watcher
from kernelwright.suite.problems import find_problems, tasks_of
from kernelwright.suite.progress import row_line
from kernelwright.suite.run import Run

from .conftest import SETTINGS, Audience

GOOD = """\
import ctypes

import torch
from torch import nn

N = 8
# module level


class Model(nn.Module):
    def forward(self, x):
        # forward
        return x * 2.0


def get_inputs():
    # inputs
    return [torch.rand(N, N)]


def get_init_inputs():
    return []
"""
PROBLEMS = {
    "flood": ("# module level", "for _ in range(3000):\n    print('x' * 10000)"),
    "syntax": ("class Model(nn.Module):", "class Model(nn.Module:"),
    "endless": ("    # inputs", "    while True: pass"),
    "terabyte": ("torch.rand(N, N)", "torch.rand(1 << 38)"),
    "segfault": ("        # forward", "        ctypes.string_at(0)"),
}
ENDLESS_SECONDS = 4.0

pytestmark = pytest.mark.timeout(400)  # the first test that needs the emulator builds it


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """The row of every problem, from one run over all of them."""
    folder = tmp_path_factory.mktemp("problems")
    for name, (old, new) in PROBLEMS.items():
        (folder / f"{name}.py").write_text(GOOD.replace(old, new))
    build_shared()
    settings = replace(SETTINGS, timeout=300.0)
    short = replace(settings, timeout=ENDLESS_SECONDS)
    tasks = [
        replace(task, settings=short) if task.problem == "endless" else task
        for task in tasks_of(find_problems([folder]), settings)
    ]
    # The longest first: two at a time end sooner.
    tasks.sort(key=lambda task: list(PROBLEMS).index(task.problem))
    run = Run(tmp_path_factory.mktemp("run"), settings)

    def make_pool(slots: int, watcher: Watcher) -> Pool:
        return LocalPool([""], slots, watcher)

    run.work(tasks, make_pool, slots=2, facts={}, audience=Audience())
    return {row.problem: row for row in run.rows(tasks)}


@pytest.mark.parametrize(
    ("problem", "ending", "words", "line"),
    [
        ("syntax", Ending.REFUSED, "invalid syntax", 10),
        ("endless", Ending.TIMED_OUT, "within 4 s", 17),
        ("terabyte", Ending.REFUSED, "can't allocate memory", 18),
        ("segfault", Ending.CRASHED, "SIGSEGV", 12),
    ],
)
def test_a_broken_problem_is_one_clear_line(
    rows: dict[str, Row], problem: str, ending: Ending, words: str, line: int
) -> None:
    row = rows[problem]
    assert (row.ending, row.verified) == (ending, False)
    text = row_line(row)
    assert words in text
    assert f"{problem}.py:{line}" in text
    assert "Next: " in text
    assert "\n" not in text


def test_who_prints_a_lot_is_verified_all_the_same(rows: dict[str, Row]) -> None:
    row = rows["flood"]
    assert (row.ending, row.verified) == (Ending.JUDGED, True), row.summary
    assert row.kernels == ("mul_kernel",)
    assert {"capture", "build", "verify"} <= set(row.seconds)
