"""Sizes that have to be equal: what follows from it, at capture, in the graph and in the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch import nn
from torch.utils._sympy.functions import FloorDiv, Mod

from kernelwright.capture import capture_module, capturing, exporting
from kernelwright.capture.relations import Values, simplest, solved
from kernelwright.compiling import compile_problem, write_candidate
from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import RefusedCallError
from kernelwright.ir.kinds import Contract, Opaque
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.schedule import Library

EMULATED = Path(__file__).parent / "emulated"

Run = Callable[..., Any]

S, T, U = sympy.symbols("s t u", integer=True, positive=True)
BLOCKS = FloorDiv(S, 64)


# --- Equations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equations", "values"),
    [
        ([(2, BLOCKS)], {BLOCKS: 2}),
        ([(2, BLOCKS), (S * T, 64 * T * BLOCKS)], {BLOCKS: 2, S: 128}),
        ([(S * T, 64 * T * BLOCKS), (2, BLOCKS)], {BLOCKS: 2, S: 128}),
        ([(16 * BLOCKS + 16, 48)], {BLOCKS: 2}),
        ([(16 * T * BLOCKS + 16 * T, 48 * T)], {}),  # a T of 0 is let in with any S
        ([(FloorDiv(S, BLOCKS), 64), (BLOCKS, 2)], {BLOCKS: 2, FloorDiv(S, BLOCKS): 64}),
        ([(BLOCKS, 2), (FloorDiv(S, BLOCKS), 64)], {BLOCKS: 2, FloorDiv(S, BLOCKS): 64}),
        ([(FloorDiv(T, 64), BLOCKS)], {FloorDiv(T, 64): BLOCKS}),
        ([(FloorDiv(T, 64), BLOCKS), (BLOCKS, 3)], {FloorDiv(T, 64): 3, BLOCKS: 3}),
        ([(Mod(S, 64), 0)], {}),
        ([(S, 2 * T)], {}),
        ([(S * T, 64 * T * BLOCKS)], {}),
        ([(S * BLOCKS, 128 * BLOCKS)], {}),  # of a tensor without blocks
        ([(S * (T - 5), 128 * (T - 5))], {}),
        ([(S * T, S * U)], {}),
        ([(2 * S, 3 * T)], {}),
    ],
    ids=str,
)
def test_what_follows_from_equations(equations: list[tuple[Any, Any]], values: Values) -> None:
    relations = [sympy.Eq(left, right, evaluate=False) for left, right in equations]
    found = solved([sympy.Lt(S, T), *relations])
    assert {size: simplest(size, found) for size in values} == values
    assert bool(found) == bool(values)
    assert not {S, T, U} & (found.keys() - values.keys())


# --- Graphs ------------------------------------------------------------------------------------


class Cut(nn.Module):
    """A function of blocks of 4 of a sequence, and of a parameter made for 12."""

    def __init__(self, function: Callable[..., torch.Tensor], *shape: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.rand(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blocks = x.shape[1] // 4
        return self.function(x.reshape(x.shape[0], blocks, 4, x.shape[2]), self.weight)


def _same(run: Run, graph: Graph, module: nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(run(graph, module, inputs, {}), module(*inputs))


@pytest.mark.parametrize(
    ("product", "shape"),
    [
        (lambda x, w: torch.einsum("bclp,cln,cl->bnp", x, w, w[..., 0]), (3, 4, 2)),
        (lambda x, w: torch.tensordot(x, w, ([1, 2], [0, 1])), (3, 4, 2)),
        (lambda x, w: x.transpose(1, 3) @ w, (3, 7)),
        (lambda x, w: torch.bmm(x[:, :, 0].transpose(0, 1), w), (3, 5, 2)),
    ],
)
def test_only_sizes_that_must_be_equal_to_a_number_are_held_fast(
    product: Callable[..., torch.Tensor], shape: tuple[int, ...], run: Run
) -> None:
    module = Cut(product, *shape)
    graph = capture_module(module, (torch.rand(2, 12, 5),))
    channels = "5" if shape == (3, 5, 2) else "s1"
    assert str(graph["x"].type) == f"f32[s0, 12, {channels}]"
    assert any(isinstance(node.kind, Contract) for node in graph.nodes)
    assert not any(isinstance(node.kind, Opaque) for node in graph.nodes)
    assert graph.notes == ()
    conditions = [guard.condition for guard in graph.guards]
    assert "x.shape[1] == 12" in conditions
    _same(run, graph, module, torch.rand(6, 12, 5))
    for length in (4, 8, 24):  # of one block, PyTorch would stretch a matrix
        with pytest.raises(RefusedCallError, match="size 1 of x must be 12"):
            run(graph, module, (torch.rand(6, length, 5),), {})


def test_a_size_of_which_not_all_is_used_stays_open(run: Run) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3, 4, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            blocks = x.shape[1] // 4
            cut = x[:, : blocks * 4].reshape(x.shape[0], blocks, 4)
            return torch.einsum("bcl,cln,cl->bn", cut, self.weight, self.weight[..., 0])

    module = Model()
    graph = capture_module(module, (torch.rand(2, 13),))
    assert str(graph["x"].type) == "f32[s0, s1]"
    assert not any(isinstance(node.kind, Opaque) for node in graph.nodes)
    for length in (12, 14, 15):
        _same(run, graph, module, torch.rand(5, length))
    for length in (11, 16):
        with pytest.raises(RefusedCallError, match="sizes must satisfy"):
            run(graph, module, (torch.rand(5, length),), {})


def test_sizes_that_must_be_equal_to_each_other_stay_open(run: Run) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            a, b, c = (t.reshape(t.shape[0], t.shape[1] // 4, 4) for t in (x, y, z))
            return torch.einsum("mcl,ncl,kcl->mnk", a, b, c)

    def inputs(*lengths: int) -> tuple[torch.Tensor, ...]:
        return tuple(torch.rand(2 + at, length) for at, length in enumerate(lengths))

    module = Model()
    graph = capture_module(module, inputs(12, 12, 12))
    assert all(dim.text.startswith("s") for node in graph.inputs for dim in node.tensor.shape)
    assert not any(isinstance(node.kind, Opaque) for node in graph.nodes)
    _same(run, graph, module, *inputs(20, 20, 20))
    for lengths in ((20, 20, 4), (12, 20, 20)):
        with pytest.raises(RefusedCallError, match="sizes must satisfy"):
            run(graph, module, inputs(*lengths), {})


def test_other_sizes_stay_open(run: Run) -> None:
    module = Cut(lambda x, w: torch.einsum("bclp,nl,bcnq->bcpq", x, w, x[:, :, :3]), 3, 4)
    graph = capture_module(module, (torch.rand(2, 12, 5),))
    assert str(graph["x"].type) == "f32[s0, s1, s2]"
    assert [guard.condition for guard in graph.guards if "shape" in guard.condition] == []
    _same(run, graph, module, torch.rand(3, 20, 6))


def test_a_number_that_is_a_size_is_held_fast_too(run: Run) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3, 5))

        def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
            return x[:, : count * 2].reshape(x.shape[0], count, 2).transpose(1, 2) @ self.weight

    module, x = Model(), torch.rand(4, 9)
    graph = capture_module(module, (x, 3))
    assert "isinstance(count, int) and count == 3" in [guard.condition for guard in graph.guards]
    torch.testing.assert_close(run(graph, module, (x, 3), {}), module(x, 3))
    with pytest.raises(RefusedCallError, match="count = 3"):
        run(graph, module, (x, 2), {})


def test_a_module_is_exported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[object] = []

    def trace(*arguments: Any, **options: Any) -> Any:
        traced.append(options["sizes"])
        return original(*arguments, **options)

    original = exporting.trace
    monkeypatch.setattr(capturing, "trace", trace)
    module = Cut(lambda x, w: torch.einsum("bclp,cln,cl->bnp", x, w, w[..., 0]), 3, 4, 2)
    capture_module(module, (torch.rand(2, 12, 5),))
    assert len(traced) == 1


# --- Files -------------------------------------------------------------------------------------


def test_the_file_on_the_emulator(tmp_path: Path, run_script: Callable[..., Any]) -> None:
    problem = EMULATED / "blocks.py"
    compiled = compile_problem(load_problem(problem), H200, Library.NEVER)
    assert [kernel.family for kernel in compiled.plan.kernels].count("gemm") == 1
    assert compiled.plan.left_to_pytorch == ()
    emitted = tmp_path / "emitted.py"
    write_candidate(compiled, emitted)
    shapes = [(3, 12, 5), (1, 12, 1), (7, 12, 17), (0, 12, 5), (3, 4, 5)]
    seen = run_script(EMULATED / "run_blocks.py", problem, emitted, json.dumps(shapes))
    assert seen["findings"] == []
    *differences, refusal = seen["seen"]
    assert max(differences) <= 2e-6
    # The reference takes one block, whose size 1 it stretches.
    assert refusal == "x: expected shape (any, 12, any), got (3, 4, 5)"
