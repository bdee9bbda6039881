"""Convolutions of an emitted file: at sizes that were not planned for they are the original."""

import ast
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.codegen import emit
from kernelwright.compiling import compile_problem
from kernelwright.machine import A100
from kernelwright.problem import load_problem

_PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(16, 16, 3)
        self.second = nn.Conv2d(16, 16, 3)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))

def get_inputs():
    return [torch.rand(8, 16, 128, 128)]

def get_init_inputs():
    return []
"""


class _Convolutions(TorchDispatchMode):
    """What convolutions are called on."""

    def __init__(self) -> None:
        super().__init__()
        self.operands: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if operator is torch.ops.aten.convolution.default:
            self.operands.append(args[0])
        return operator(*args, **(kwargs or {}))


def _launch(kernel: str, out: torch.Tensor, source: torch.Tensor, *rest: torch.Tensor) -> None:
    """In place of the two kernels that the file has: one copies, one adds the bias."""
    out.copy_(torch.relu(source + rest[0]) if rest else source)


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    path = tmp_path_factory.mktemp("convolve") / "two.py"
    path.write_text(_PROBLEM)
    compiled = compile_problem(load_problem(path), A100)
    tree = ast.parse(emit(compiled.problem, compiled.plan, compiled.rewritten.applied).source)
    tree.body = [it for it in tree.body if getattr(it, "name", "") in ("ModelNew", "_convolve")]
    names = {"torch": torch, "nn": nn, "_launch": _launch, "_expect": lambda *arguments: None}
    names["_is_compiling"] = torch.compiler.is_compiling
    exec(compile(tree, "two", "exec"), names)
    torch.manual_seed(0)
    return names["ModelNew"]()


def _operands(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    want = torch.relu(module.second(torch.relu(module.first(x))))
    with _Convolutions() as seen:
        result = module(x)
    assert result.is_contiguous()
    torch.testing.assert_close(result, want)
    return seen.operands


def test_operands_are_channels_last_at_the_sizes_of_the_plan(emitted: nn.Module) -> None:
    x = torch.rand(8, 16, 128, 128)
    for operand in _operands(emitted, x):
        assert operand.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("sizes", [(3, 16, 6, 6), (7, 16, 128, 128)])
def test_at_other_sizes_it_is_the_original_call(emitted: nn.Module, sizes: tuple[int, ...]) -> None:
    x = torch.rand(sizes)
    first, second = _operands(emitted, x)
    assert first.data_ptr() == x.data_ptr() and first.stride() == x.stride()
    assert second.is_contiguous()


def test_a_misaligned_operand_stays_as_it_is(emitted: nn.Module) -> None:
    x = torch.rand(8 * 16 * 128 * 128 + 1)[1:].view(8, 16, 128, 128)
    first, second = _operands(emitted, x)
    assert first.data_ptr() == x.data_ptr()
    assert second.is_contiguous(memory_format=torch.channels_last)


def test_torch_compile_sees_one_graph(emitted: nn.Module) -> None:
    x = torch.rand(8, 16, 128, 128)
    compiled = torch.compile(emitted, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), emitted(x))
