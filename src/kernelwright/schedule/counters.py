"""Counters of calls, which every batch norm has: many of them take one call, not a launch each."""

from collections import Counter
from dataclasses import replace

from kernelwright.ir.expr import Call, Literal, Operand
from kernelwright.ir.graph import Update
from kernelwright.ir.kinds import Parameter
from kernelwright.ir.library_calls import call_of_count
from kernelwright.ir.plan import Kernel, Launch, Plan, Step, TorchCall, reads
from kernelwright.ir.types import DType

_FEWEST = 4
"""Counters that are worth a call of PyTorch's, which takes longer than a launch of ours."""


def with_counters_together(plan: Plan) -> Plan:
    """The plan with one call, at its end, for all integers that are counted up by one number."""
    read = Counter(name for step in plan.steps for name in reads(step))
    read.update(plan.graph.results)
    updates = {update.value: update for update in plan.graph.updates}
    found: dict[int, dict[str, Launch]] = {}
    for step in plan.steps:
        amount = _amount(step)
        if amount is None or not isinstance(step, Launch) or step.result not in updates:
            continue
        if read[step.result] == read[step.inputs[0]] == 1 and _is_own(plan, step, updates):
            found.setdefault(amount, {})[step.result] = step
    for amount, launches in found.items():
        if len(launches) >= _FEWEST:
            plan = _together(plan, amount, launches)
    return plan


def _amount(step: Step) -> int | None:
    """What a launch adds to a single integer; None for any other step."""
    match step:
        case Launch(kernel=Kernel(anchor=None, epilogue=Call("add", args), outputs=(output,))):
            match args:
                case Operand(0), Literal(int() as amount) if (
                    output.dtype is DType.I64 and output.shape == () and len(step.inputs) == 1
                ):
                    return amount
    return None


def _is_own(plan: Plan, step: Launch, updates: dict[str, Update]) -> bool:
    """Whether the sum goes to the buffer that it is made of."""
    node = plan.graph[step.inputs[0]]
    is_counter = isinstance(node.kind, Parameter) and node.kind.path == updates[step.result].path
    return is_counter and node.type == step.kernel.outputs[0]


def _together(plan: Plan, amount: int, launches: dict[str, Launch]) -> Plan:
    first = next(iter(launches.values()))
    call = TorchCall(
        result=first.result,
        call=call_of_count((step.inputs[0] for step in launches.values()), amount),
        type=first.kernel.outputs[0],
        why=f"it counts for {len(launches)} modules at once",
        mutates=tuple(update.path for update in plan.graph.updates if update.value in launches),
    )
    left = tuple(update for update in plan.graph.updates if update.value not in launches)
    others = (it for it in plan.steps if not (isinstance(it, Launch) and it.result in launches))
    return Plan(graph=replace(plan.graph, updates=left), steps=(*others, call))
