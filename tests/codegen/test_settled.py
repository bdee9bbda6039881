"""What a launch reads while kernels before still run: only what none of them may write."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.codegen.cuda import cuda_text, translation_units
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.schedule import Library, plan_graph

WIDTH = 32
_LAUNCHES = re.compile(r"run\.launch(?:_with)?\((?:workspace_\w+, )?launch_(\w+),")


class Two(nn.Module):
    """Two products of a row, the second one by a factor that is its own, or made of it."""

    def __init__(
        self, *, is_made: bool = False, is_updated: bool = False, is_written: bool = False
    ) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("second", torch.rand(WIDTH, WIDTH))
        self.is_made, self.is_updated, self.is_written = is_made, is_updated, is_written
        self.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        made = self.first(x).relu()
        second = self.second
        assert isinstance(second, Tensor)
        if self.is_made:
            second = second * made.amax()
        result = nn.functional.linear(made, second)
        if self.is_updated:
            second.mul_(2)
        if self.is_written:
            second[:1] = made
        return result


class Apart(Two):
    """Products of two arguments, of which one may be empty."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.first(x).relu(), nn.functional.linear(y, self.second)


def _launches(module: nn.Module, args: Sequence[Tensor]) -> list[str]:
    plan = plan_graph(capture_module(module, tuple(args)), H200, Library.NEVER).plan
    program = program_of(plan)
    (segment,) = program.segments
    found = _LAUNCHES.findall(cuda_text(program).kernels)
    assert len(found) == len(segment.launches)
    # What a unit of its own calls of the others is declared there.
    units = list(translation_units(program))
    for name in found:
        assert any(f'extern "C" int launch_{name}(const int64_t* words);' in it for it in units)
    return found


def test_a_factor_of_the_module_is_read_early() -> None:
    args = [torch.rand(1, WIDTH).bfloat16()]
    first, second = _launches(Two(), args)
    # What ran before the call is not known.
    assert not first.startswith("settled_")
    assert second.startswith("settled_")


def test_a_factor_that_kernels_write_is_not_read_early() -> None:
    args = [torch.rand(1, WIDTH).bfloat16()]
    for module in (Two(is_made=True), Two(is_updated=True), Two(is_written=True)):
        assert not any(it.startswith("settled_") for it in _launches(module, args))


def test_a_launch_that_may_be_the_first_one_reads_nothing_early() -> None:
    # Where the first argument is empty there is no launch before.
    args = [torch.rand(rows, WIDTH).bfloat16() for rows in (2, 1)]
    assert not any(it.startswith("settled_") for it in _launches(Apart(), args))
