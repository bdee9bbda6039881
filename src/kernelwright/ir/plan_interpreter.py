"""Meaning of a Plan: its steps computed in plain PyTorch, kernels by their expressions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from kernelwright.ir.anchors import (
    Convolution,
    Extent,
    PooledSource,
    Recurrence,
    RowProgram,
)
from kernelwright.ir.attending import attended
from kernelwright.ir.attention import Attention
from kernelwright.ir.expr import Accumulator, Expr, Total, transform
from kernelwright.ir.expr import Operand as OperandLeaf
from kernelwright.ir.interpreter import TORCH_DTYPES, GraphRun, bound_arguments
from kernelwright.ir.joint import JointProduct, JointProducts
from kernelwright.ir.kind_values import contracted, gathered, looped, pooled, reduced, scanned
from kernelwright.ir.kinds import Constant as ConstantKind
from kernelwright.ir.kinds import Contract, Gather, Loop, Parameter, Scan
from kernelwright.ir.plan import (
    Einsum,
    Kernel,
    Launch,
    Plan,
    Reinterpret,
    Room,
    Step,
    Take,
    TorchCall,
    Within,
)
from kernelwright.ir.recurring import recurred


def run_plan(
    plan: Plan, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Any:
    """What `module(*args, **kwargs)` returns according to the plan."""
    return PlanRun(plan, module, bound_arguments(module, args, kwargs or {})).result()


class PlanRun(GraphRun):
    """One call of a module, computed step by step; leaves, updates and returns as in the graph."""

    def __init__(self, plan: Plan, module: nn.Module, arguments: Mapping[str, Any]) -> None:
        super().__init__(plan.graph, module, arguments)
        self.plan = plan

    def work(self) -> None:
        """Compute the parameters and constants, then every step in order."""
        for node in self.graph.nodes:
            if isinstance(node.kind, Parameter | ConstantKind):
                self.values[node.name] = self.compute(node)
        self.steps()

    def steps(self) -> None:
        """Compute what follows the leaves."""
        for step in self.plan.steps:
            self.step(step)

    def step(self, step: Step) -> None:
        match step:
            case Launch():
                operands = [self.values[name] for name in step.inputs]
                for name, value in zip(
                    step.results, self.launch(step.kernel, operands), strict=True
                ):
                    self.written(name, value)
            case Room(type=kind, within=None):
                sizes = [self.size(dim) for dim in kind.shape]
                nothing = torch.empty(sizes, dtype=TORCH_DTYPES[kind.dtype])
                self.values[step.result] = nothing.fill_(torch.nan if kind.dtype.is_float else 77)
            case Room(within=Within(whole=whole, dim=dim, start=start, stop=stop)):
                first, last = self.size(start), self.size(stop)
                self.values[step.result] = self.values[whole].narrow(dim, first, last - first)
            case Reinterpret(input=source, map=index_map):
                node = self.graph[step.result]
                self.values[step.result] = self.view(index_map, self.values[source], node)
            case TorchCall():
                self.values[step.result] = self.call(step.call)
            case Einsum(contract=contract, inputs=(lhs, rhs)):
                self.values[step.result] = torch.einsum(
                    contract.equation, self.values[lhs], self.values[rhs]
                )
            case Take(input=source, index=index):
                self.values[step.result] = self.values[source][index]

    def written(self, name: str, value: torch.Tensor) -> None:
        """A launch writes to the room that its result has."""
        if self.values.get(name) is not None:
            self.values[name].copy_(value)
        else:
            self.values[name] = value

    def launch(self, kernel: Kernel, operands: list[Any]) -> list[torch.Tensor]:
        if kernel.together > 1:
            one, own = kernel.one_product, (len(operands) - 1) // kernel.together
            each = (operands[at : at + own] for at in range(1, len(operands), own))
            return [it for its in each for it in self.launch(one, [operands[0], *its])]
        if kernel.moments:
            # What is known of the columns is no more than the columns say.
            plain = replace(kernel, moments=False, inputs=kernel.operands)
            if not kernel.makes_moments:
                return self.launch(plain, operands[:-1])
            parts = [self.size(dim) for dim in kernel.outputs[-1].shape]
            results = self.launch(replace(plain, outputs=kernel.outputs[:-1]), operands)
            return [*results, torch.full(parts, torch.nan)]
        shapes = [[self.size(dim) for dim in kind.shape] for kind in kernel.outputs]
        acc = None
        if kernel.anchor is None and kernel.epilogue is None:  # copies of several tensors
            return [it.reshape(shape) for it, shape in zip(operands, shapes, strict=True)]
        match kernel.anchor:
            case RowProgram() as program:
                return self.rows(program, operands, shapes)
            case JointProducts() as joint:
                return self.joint(joint, operands, shapes)
            case Recurrence(layers=layers, results=wanted):
                found = recurred(layers, operands)
                return [found[index] for index in wanted]
            case Attention() as attention:
                return [attended(attention, operands)]
            case Gather(dim):
                return [gathered(dim, *operands)]
            case Loop(body):
                return [looped(partial(self.expression, body), shapes[0], operands)]
            case Contract() as contract:
                acc = contracted(contract, shapes[0], *operands[:2])
                if kernel.kept is not None:
                    whole = self.value(kernel.epilogue, operands, list(acc.shape), [], acc)
                    return [reduced(kernel.kept, whole, (acc.ndim - 1,))]
            case Convolution(conv=conv, has_bias=has_bias):
                own = (3 if has_bias else 2) + conv.operands
                acc = self.convolution(conv, shapes[0], operands[:own])
                if isinstance(acc, tuple):
                    return list(acc)
            case Scan() as scan:
                acc = scanned(scan, self.value(kernel.prologue, operands, shapes[0], []))
            case PooledSource(window=window):
                source = [self.size(dim) for dim in kernel.anchor.source]
                before = self.value(kernel.prologue, operands, source, [])
                weights = operands[-1:] if window.op.has_weights else []
                acc = pooled(window, before, shapes[0], *weights)
        return [self.value(kernel.epilogue, operands, shapes[0], [], acc)]

    def joint(
        self, joint: JointProducts, operands: list[Any], shapes: list[list[int]]
    ) -> list[torch.Tensor]:
        rows = operands[0]
        if joint.rows is not None:
            own = operands[: joint.row_inputs]
            (rows,) = self.rows(joint.rows, own, [[self.size(dim) for dim in joint.rows.shape]])
        results = []
        for product, shape in zip(joint.products, shapes, strict=True):
            sums = [
                contracted(product.contract, shape, rows, operands[at]) for at in product.factors
            ]
            if product.halves is not None:
                results.append(self.halves(product, sums[0], operands).reshape(shape))
                continue
            results.append(self.value(product.epilogues[0], operands, shape, [], *sums))
        return results

    def halves(
        self, product: JointProduct, whole: torch.Tensor, operands: list[Any]
    ) -> torch.Tensor:
        """A result of which both halves are made of both of the product's."""
        halves = product.halves
        assert halves is not None
        shape = [self.size(dim) for dim in halves.shape]
        shape[halves.half] = 1
        runs = whole.reshape(*whole.shape[:-1], -1, 2, halves.distance)
        dims = [*halves.rows, halves.outer, halves.inner]
        order = sorted(dim for dim in dims if dim is not None)
        sums = []
        for part in runs.unbind(-2):
            kept = part.reshape(
                [n for n, dim in zip(part.shape, dims, strict=True) if dim is not None]
            )
            given = [dim for dim in dims if dim is not None]
            sums.append(kept.permute([given.index(dim) for dim in order]).reshape(shape))
        made = []
        for number, epilogue in enumerate(product.epilogues):
            own = [_half(it, number, halves.half - len(shape)) for it in operands]
            made.append(self.value(epilogue, own, shape, [], *sums))
        return torch.cat(made, halves.half)

    def rows(
        self, program: RowProgram, operands: list[Any], shapes: list[list[int]]
    ) -> list[torch.Tensor]:
        whole = [self.size(dim) for dim in program.shape]
        totals: list[torch.Tensor] = []
        for fold in program.folds:
            found = reduced(fold.op, self.value(fold.value, operands, whole, totals), program.dims)
            totals += found if isinstance(found, tuple) else (found,)
        results = []
        for result, shape in zip(program.results, shapes, strict=True):
            if result.extent is Extent.ROW:
                assert shape == [1 if d in program.dims else n for d, n in enumerate(whole)]
            else:
                assert shape == whole
            results.append(self.value(result.value, operands, shape, totals))
        return results

    def value(
        self,
        expr: Expr | None,
        operands: list[Any],
        shape: list[int],
        totals: list[torch.Tensor],
        *accumulators: torch.Tensor | None,
    ) -> torch.Tensor:
        """The expression for every element of `shape`."""
        assert expr is not None, "a kernel without this expression"
        known = [*operands, *totals, *accumulators]

        def place(leaf: Expr) -> Expr:
            match leaf:
                case Total(index, dtype):
                    return OperandLeaf(len(operands) + index, dtype)
                case Accumulator(dtype, number):
                    return OperandLeaf(len(operands) + len(totals) + number, dtype)
            return leaf

        self.current = shape
        found = self.expression(transform(expr, place), known)
        return found.expand(shape).clone()


def _half(operand: Any, number: int, dim: int) -> Any:
    """What one half of a result reads of an operand that joins it."""
    if not isinstance(operand, torch.Tensor) or operand.dim() < -dim or operand.shape[dim] != 2:
        return operand
    return operand.narrow(dim, number, 1)
