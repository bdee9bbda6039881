"""What would be done to a problem: rewrites, kernels, what stays PyTorch's, bytes, FLOPs, floor."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from kernelwright.ir.plan import Plan
from kernelwright.ir.types import ValueType
from kernelwright.machine import Machine
from kernelwright.rewrite import Rewritten
from kernelwright.schedule import cost_of_kernel, cost_of_plan, kept_apart, least_cost


def plan_lines(rewritten: Rewritten, plan: Plan, machine: Machine) -> Iterator[str]:
    """One fact a line, the order of the pipeline."""
    for item in rewritten.applied:
        label = "  [algebraic]" if item.algebraic else ""
        yield f"rewritten   {item}{label}"
    for kernel in plan.kernels:
        cost = cost_of_kernel(kernel)
        floor = cost.floor_seconds(machine) * 1e3
        yield f"kernel      {kernel.name}_kernel = {' + '.join(kernel.operators)}"
        yield f"            {_kinds(kernel.inputs)} -> {_kinds(kernel.outputs)}"
        yield (
            f"            {cost.bytes / 1e6:,.1f} MB, {cost.flops / 1e9:,.3f} GFLOP, "
            f"floor {floor:.3g} ms; {kernel.config}"
        )
    for step in plan.left_to_pytorch:
        where = f" ({step.source})" if step.source else ""
        yield f"PyTorch     {step.name}{where}: {step.why}"
    for note in plan.graph.notes:
        yield f"note        {note}"
    for pair in kept_apart(plan):
        yield f"apart       {pair}"
    total, least = cost_of_plan(plan), least_cost(plan)
    yield (
        f"moved       {total.bytes / 1e6:,.1f} MB by kernels and calls; the fewest possible are "
        f"{least.bytes / 1e6:,.1f} MB"
    )
    yield (
        f"in all      {total.bytes / 1e6:,.1f} MB, {total.flops / 1e9:,.3f} GFLOP, modelled floor "
        f"{total.floor_seconds(machine) * 1e3:.3g} ms on {machine.name}"
    )


def _kinds(kinds: Iterable[ValueType]) -> str:
    return ", ".join(map(str, kinds))


def plan_json(rewritten: Rewritten, plan: Plan, machine: Machine) -> dict[str, Any]:
    """The same facts as JSON values; bytes, FLOPs and seconds at the captured sizes."""
    total = cost_of_plan(plan)
    return {
        "rewrites": [
            {
                "rule": item.rule,
                "operators": list(item.operators),
                "source": item.source,
                "algebraic": item.algebraic,
            }
            for item in rewritten.applied
        ],
        "kernels": [
            {
                "name": f"{kernel.name}_kernel",
                "family": kernel.family,
                "operators": list(kernel.operators),
                "inputs": [str(kind) for kind in kernel.inputs],
                "outputs": [str(kind) for kind in kernel.outputs],
                "config": str(kernel.config),
                "bytes": cost_of_kernel(kernel).bytes,
                "flops": cost_of_kernel(kernel).flops,
                "sources": list(kernel.sources),
            }
            for kernel in plan.kernels
        ],
        "left_to_pytorch": [
            {"operator": step.name, "why": step.why} for step in plan.left_to_pytorch
        ],
        "notes": list(plan.graph.notes),
        "apart": [asdict(pair) for pair in kept_apart(plan)],
        "bytes": total.bytes,
        "least_bytes": least_cost(plan).bytes,
        "flops": total.flops,
        "floor_seconds": total.floor_seconds(machine),
        "machine": machine.name,
    }
