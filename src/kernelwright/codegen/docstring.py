"""The docstring of the emitted file: what it is, what was done, what was measured."""

from kernelwright.codegen.families import writer_of
from kernelwright.ir.plan import Plan
from kernelwright.problem import Problem
from kernelwright.rewrite import Applied
from kernelwright.schedule.cost import cost_of_kernel


def docstring(
    problem: Problem, plan: Plan, applied: tuple[Applied, ...], measured: tuple[str, ...]
) -> str:
    """Plain text, without the quotes; safe inside a triple-quoted string."""
    lines = [f"{problem.name}: written by kernelwright from {problem.path.name}.", ""]
    lines += ["Rewritten:"] * bool(applied)
    lines += [f"  {item}" for item in applied]
    lines += ["Kernels:"] * bool(plan.kernels)
    for kernel in plan.kernels:
        cost = cost_of_kernel(kernel)
        amount = f"{cost.bytes / 1e6:,.1f} MB, {cost.flops / 1e9:,.3f} GFLOP"
        lines.append(f"  {kernel.name}_kernel  {' + '.join(kernel.operators)}  ({amount})")
        lines += [f"    {line}" for line in writer_of(kernel).arithmetic(kernel)]
    lines.append(_left_to_pytorch(plan))
    lines += ["", *(measured or ("Speed: not measured.",))]
    lines += ["", f"Reproduce: kernelwright judge {problem.path.name} {problem.path.stem}_new.py"]
    return "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")


def _left_to_pytorch(plan: Plan) -> str:
    counts: dict[str, int] = {}
    for step in plan.left_to_pytorch:
        counts[step.name] = counts.get(step.name, 0) + 1
    calls = [f"{name}, {n} call{'s' if n > 1 else ''}" for name, n in counts.items()]
    return "Left to PyTorch: " + ("; ".join(calls) or "nothing") + "."
