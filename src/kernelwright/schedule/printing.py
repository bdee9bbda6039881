"""Text of a plan: its steps, and what its kernels compute in which configuration."""

from kernelwright.ir.plan import (
    Einsum,
    Launch,
    Plan,
    Reinterpret,
    Room,
    Step,
    Take,
    TorchCall,
)
from kernelwright.schedule.families import family_of


def print_plan(plan: Plan) -> str:
    """The steps, one a line, then each kernel with its expressions and configuration."""
    lines = [f"plan {plan.graph.name}"]
    lines += [f"  {_print_step(step)}" for step in plan.steps]
    lines += [f"  update {update.path} = {update.value}" for update in plan.graph.updates]
    lines += [f"  return {plan.graph.returns}"]
    for kernel in plan.kernels:
        description = family_of(kernel).describe(kernel)
        lines += [
            f"kernel {kernel.name}: {kernel.family}{description.what}",
            f"  replaces  {', '.join(kernel.operators)}",
            f"  takes     {', '.join(str(item) for item in kernel.inputs)}",
            *(f"  computes  {line}" for line in description.computes),
            f"  config    {kernel.config}",
        ]
    return "\n".join(lines) + "\n"


def _print_step(step: Step) -> str:
    match step:
        case Launch(results=results, kernel=kernel, inputs=inputs):
            made = ", ".join(f"{n}: {o}" for n, o in zip(results, kernel.outputs, strict=True))
            return f"{made} = launch {kernel.name}({', '.join(inputs)})"
        case Room(result=result, type=kind, within=within):
            return f"{result}: {kind} = room{'' if within is None else f' in {within}'}"
        case Reinterpret(result=result, input=source, map=index_map, type=kind):
            return f"{result}: {kind} = {type(index_map).__name__.lower()}({source})"
        case TorchCall(result=result, call=call, type=kind, why=why, channels_last=planned):
            when = f" at {planned.sizes}, at others on {planned.given}" if planned else ""
            return f"{result}: {kind} = torch {call}{when}  # {why}"
        case Einsum(result=result, contract=contract, inputs=inputs, type=kind, why=why):
            return f"{result}: {kind} = einsum {contract.equation}({', '.join(inputs)})  # {why}"
        case Take(result=result, input=source, index=index):
            return f"{result} = {source}[{index}]"
