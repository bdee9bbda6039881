"""Meaning of a Program: its parts computed in plain PyTorch, in the memory that segments have.

Memory that is handed on is filled with NaN first: a value that is read after its bytes were given
away is not what it was.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import nn

from kernelwright.ir.interpreter import TORCH_DTYPES, bound_arguments
from kernelwright.ir.plan import Launch, Reinterpret, Room
from kernelwright.ir.plan_interpreter import PlanRun
from kernelwright.ir.program import Program, Segment, Slot, types_of
from kernelwright.ir.types import TensorType


def run_program(
    program: Program,
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """What `module(*args, **kwargs)` returns according to the program."""
    return ProgramRun(program, module, bound_arguments(module, args, kwargs or {})).result()


class ProgramRun(PlanRun):
    """One call of a module, computed part by part."""

    def __init__(self, program: Program, module: nn.Module, arguments: Mapping[str, Any]) -> None:
        super().__init__(program.plan, module, arguments)
        self.program = program

    def steps(self) -> None:
        for part in self.program.parts:
            if isinstance(part, Segment):
                self.segment(part)
            else:
                self.step(part)
        for step in self.plan.steps:  # Views that only updates of buffers read.
            if isinstance(step, Reinterpret) and step.result not in self.values:
                self.step(step)

    @torch.no_grad()
    def segment(self, segment: Segment) -> None:
        """Take the memory of all slots, then compute the steps in it."""
        types = types_of(segment)
        rooms = {step.result for step in segment.steps if isinstance(step, Room)}
        given = {slot.result for slot in segment.slots if slot.result is not None}
        for name in segment.results:
            if name in rooms | given:
                self.values[name] = self.memory(self.bytes_of(types[name]), types[name])
        for slot in segment.slots:
            memory = self.slot(slot, types)
            for name in slot.values:
                self.values[name] = self.placed(memory, types[name])
        for step in segment.steps:
            match step:
                case Room(within=None):
                    continue
                case Launch(results=results):
                    for name in results:
                        poison(self.values.get(name))
            self.step(step)

    def slot(self, slot: Slot, types: Mapping[str, TensorType]) -> torch.Tensor:
        """Bytes of a slot: its own, or those of a result."""
        if slot.result is not None:
            result: torch.Tensor = self.values[slot.result]
            return result.view(-1).view(torch.uint8)
        return self.memory(max(self.bytes_of(types[name]) for name in slot.values))

    def bytes_of(self, kind: TensorType) -> int:
        return kind.dtype.itemsize * prod(self.size(dim) for dim in kind.shape)

    def memory(self, count: int, kind: TensorType | None = None) -> torch.Tensor:
        """New bytes, all of them set; as a tensor of a type."""
        memory = torch.full((count,), 255, dtype=torch.uint8)
        return memory if kind is None else self.placed(memory, kind)

    def placed(self, memory: torch.Tensor, kind: TensorType) -> torch.Tensor:
        """A tensor at the beginning of memory."""
        part = memory[: self.bytes_of(kind)].view(TORCH_DTYPES[kind.dtype])
        return part.view([self.size(dim) for dim in kind.shape])


def poison(memory: torch.Tensor | None) -> None:
    """Overwrite what a launch is to write all of, with what no result is by chance."""
    if memory is not None:
        memory.fill_(torch.nan if memory.is_floating_point() else True)
