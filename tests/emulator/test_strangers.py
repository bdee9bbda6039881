"""Ordinary extensions, as other people write them, on the emulator: those of tests/strangers."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[1] / "strangers"

# Runs the candidates named on the command line; what they gave is one line of JSON each.
_CHILD = """
import importlib.util, json, sys
import torch
from pathlib import Path
from kernelwright.emulator import Session

F = torch.nn.functional
norm = lambda x: F.layer_norm(x, (48,), torch.linspace(0.5, 1.5, 48), torch.linspace(-1, 1, 48))
half = lambda x: (2 * F.gelu(x.float()), 2 * x.half())
CASES = {  # arguments of the constructor, shapes of the inputs, dtype, what must come out
    "half_scale": ((), [(300,)], "bfloat16", half),
    "vectorized": ((3.0,), [(1027,), (1027,)], "float32", lambda x, y: 3 * x + y),
}
NO_HEADERS = {
    "atomic_sum": (("total", 64), [(4, 1000)], "float64", lambda x: x.sum().reshape(1)),
    "transpose": (("transpose",), [(70, 45)], "float32", lambda x: x.T),
}
SEVERAL = {
    "add": (("add",), [(33, 50), (33, 50)], "float32", torch.add),
    "matmul_tiled": (("matmul_tiled",), [(40, 37), (37, 50)], "float32", torch.matmul),
    "softmax": (("softmax",), [(5, 300)], "float32", lambda x: x.softmax(1)),
    "layer_norm": (("layer_norm", 48), [(2, 7, 48)], "float32", norm),
}
MISTAKES = {  # what one file's constructor takes, the same for the rest
    "matmul_race": ([(40, 37), (37, 50)], torch.matmul),
    "out_of_bounds": ([(200,)], None),
    "uninitialised": ([(5, 20)], None),
    "divergent": ([(100,)], None),
    "misaligned": ([(4, 33)], None),
}

def distance(ours, theirs):
    if isinstance(theirs, tuple):
        return max(map(distance, ours, theirs))
    assert ours.shape == theirs.shape
    return (ours.double() - theirs.double()).abs().nan_to_num(nan=torch.inf).max().item()

def cases_of(name):
    if name == "mistakes":
        return {each: ((each,), shapes, "float32", ref) for each, (shapes, ref) in MISTAKES.items()}
    several = {"several_operators": SEVERAL, "no_headers": NO_HEADERS}
    return several.get(name) or {name: CASES[name]}

def run(name, module, case, seed):
    init, shapes, dtype, reference = case
    torch.manual_seed(0)
    with Session(order_seed=seed) as session:
        try:
            if module is None:
                path = Path(sys.argv[1], name + ".py")
                spec = importlib.util.spec_from_file_location(name, path)
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            inputs = [torch.rand(s, dtype=getattr(torch, dtype)) for s in shapes]
            out, error = module.ModelNew(*init).cuda()(*inputs), None
        except Exception as raised:
            out, error = None, type(raised).__name__
            text = str(raised)
    wrong = None if reference is None or out is None else distance(out, reference(*inputs))
    return module, {"error": error, "text": error and text, "wrong": wrong,
                    "findings": [finding.to_json() for finding in session.findings]}

for name in sys.argv[2:]:
    module = None
    for each, case in cases_of(name).items():
        module, first = run(name, module, case, 0)
        module, second = run(name, module, case, 1)
        print(json.dumps([each, first, second]), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one candidate did, with threads in their natural order and in reverse."""

    first: dict[str, Any]
    second: dict[str, Any]

    def kinds(self) -> set[str]:
        """Kinds of the findings of the first run."""
        return {finding["kind"] for finding in self.first["findings"]}


@pytest.fixture(scope="module")
def strangers(session_cache: Path) -> dict[str, Seen]:
    """All of them, in two processes, so that two compile at a time."""
    names = sorted(path.stem for path in _FOLDER.glob("*.py"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(_FOLDER), *names[half::2]],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for half in (0, 1)
    ]
    seen = {}
    for child in children:
        output, errors = child.communicate(timeout=600)
        assert child.returncode == 0, errors
        for line in output.splitlines():
            if line.startswith("["):
                name, first, second = json.loads(line)
                seen[name] = Seen(first=first, second=second)
    return seen


@pytest.mark.timeout(600)  # the first builds PyTorch's headers
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("add", 0.0),
        ("matmul_tiled", 1e-5),
        ("softmax", 1e-6),
        ("atomic_sum", 1e-9),
        ("half_scale", 2e-2),  # bfloat16 keeps 8 bits
        ("transpose", 0.0),
        ("vectorized", 1e-6),
        ("layer_norm", 1e-5),
    ],
)
def test_a_correct_candidate_is_right_and_clean(
    strangers: dict[str, Seen], name: str, tolerance: float
) -> None:
    for run in (strangers[name].first, strangers[name].second):
        assert run["error"] is None, run["text"]
        assert run["wrong"] <= tolerance
        assert run["findings"] == []


@pytest.mark.parametrize(
    ("name", "kind", "kernel", "lines", "error"),
    [
        ("matmul_race", "RACE", "matmul_kernel", {13, 15, 19}, None),
        ("out_of_bounds", "OUT_OF_BOUNDS", "difference_kernel", {40}, "EmulatorFault"),
        ("uninitialised", "UNINITIALISED_READ", "column_sum_kernel", {56}, None),
        ("divergent", "BARRIER_DIVERGENCE", "reverse_kernel", {73, 77}, None),
        ("misaligned", "MISALIGNED", "copy_rows_kernel", {93}, "EmulatorFault"),
    ],
)
def test_a_mistake_is_found_at_its_line(
    strangers: dict[str, Seen],
    name: str,
    kind: str,
    kernel: str,
    lines: set[int],
    error: str | None,
) -> None:
    seen = strangers[name]
    assert seen.kinds() == {kind}
    assert seen.first["error"] == error, seen.first["text"]
    for finding in seen.first["findings"]:
        assert finding["kernel"] == kernel
        assert finding["file"].endswith("/cuda.cu")
        assert finding["line"] in lines


def test_the_finding_names_block_and_thread(strangers: dict[str, Seen]) -> None:
    (finding,) = strangers["out_of_bounds"].first["findings"]
    # Element 199 of 200, in blocks of 64.
    assert finding["block"] == [3, 0, 0]
    assert finding["thread"] == [7, 0, 0]


def test_a_forgotten_barrier_gives_other_results_in_another_order(
    strangers: dict[str, Seen],
) -> None:
    race = strangers["matmul_race"]
    assert race.first["wrong"] > 1e-2 or race.second["wrong"] > 1e-2
    assert {finding["kind"] for finding in race.second["findings"]} == {"RACE"}
