"""Why two neighbouring kernels are not one: for people who read a plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.ir.plan import Kernel, Launch, Plan, Reinterpret, Take, TorchCall
from kernelwright.schedule.families import family_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A result that one step writes for another to read."""

    producer: str
    consumer: str
    """Names of kernels, or of calls left to PyTorch."""
    result: str
    bytes: int
    """Written and read at the captured sizes."""
    why: str

    def __str__(self) -> str:
        return (
            f"{self.producer} -> {self.consumer} through {self.result} "
            f"({self.bytes / 1e6:,.1f} MB): {self.why}"
        )


def kept_apart(plan: Plan) -> Iterator[Apart]:
    """Every pair of a producer and a consumer, at least one a kernel of ours, with the reason."""
    origin: dict[str, Launch | TorchCall] = {}
    shown: dict[str, str] = {}
    for step in plan.steps:
        match step:
            case Reinterpret(result=result, input=source) | Take(result=result, input=source):
                shown[result] = shown.get(source, source)
                continue
            case Launch() | TorchCall():
                for name in dict.fromkeys(_operands(step)):
                    maker = origin.get(shown.get(name, name))
                    if maker and (isinstance(maker, Launch) or isinstance(step, Launch)):
                        yield _apart(plan, maker, step, name)
                results = step.results if isinstance(step, Launch) else (step.result,)
                origin |= dict.fromkeys(results, step)


def _operands(step: Launch | TorchCall) -> Sequence[str]:
    """What a step computes with."""
    if isinstance(step, TorchCall):
        return step.call.refs
    return step.inputs[: len(step.kernel.operands)]


def _apart(plan: Plan, maker: Launch | TorchCall, reader: Launch | TorchCall, name: str) -> Apart:
    return Apart(
        producer=_title(maker),
        consumer=_title(reader),
        result=name,
        bytes=plan.graph[name].tensor.bytes_hint,
        why=_why(plan, maker, reader, name),
    )


def _title(step: Launch | TorchCall) -> str:
    return f"{step.kernel.name}_kernel" if isinstance(step, Launch) else step.name


def _why(plan: Plan, maker: Launch | TorchCall, reader: Launch | TorchCall, name: str) -> str:
    if isinstance(maker, TorchCall) or isinstance(reader, TorchCall):
        left = maker if isinstance(maker, TorchCall) else reader
        return f"{_title(left)} is left to PyTorch"
    others = len(plan.graph.users()[name]) > 1 or name in plan.graph.results
    return _families(maker.kernel, reader.kernel) or (
        "other steps read the result as well, so it has to be written"
        if others
        else "the joint expression would be too long, or the result has another shape"
    )


def _families(first: Kernel, second: Kernel) -> str | None:
    """The reason that the families of the two kernels give."""
    return family_of(second).apart(first, second) or family_of(first).holds
