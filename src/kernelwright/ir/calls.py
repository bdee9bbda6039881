"""Calls of PyTorch operators and their arguments, enough to make them again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from kernelwright.ir.types import Dim


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of the node of this name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Code:
    """A literal Python expression, such as `torch.float32` or `device` (the inputs' device)."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Record:
    """A list, tuple or dict of arguments; `keys` is empty unless `kind` is "dict"."""

    kind: str
    """"list", "tuple" or "dict"."""
    items: "tuple[Argument, ...]"
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "list":
                return f"[{', '.join(map(str, self.items))}]"
            case "tuple":
                return f"({', '.join(map(str, self.items))}{',' if len(self.items) == 1 else ''})"
            case _:
                pairs = zip(self.keys, self.items, strict=True)
                return "{" + ", ".join(f"{key!r}: {item}" for key, item in pairs) + "}"


@dataclass(frozen=True, slots=True)
class Text:
    """A string argument."""

    value: str

    def __str__(self) -> str:
        return repr(self.value)


Argument = Ref | Code | Record | Text | Dim | bool | int | float | None


@dataclass(frozen=True, slots=True)
class AtenCall:
    """One call of an ATen operator, enough to make the same call again in PyTorch."""

    target: str
    """Overload name as under torch.ops, for example `"aten.conv2d.default"`."""
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...] = ()

    def __str__(self) -> str:
        parts = [str(arg) for arg in self.args] + [f"{key}={arg}" for key, arg in self.kwargs]
        return f"{self.target}({', '.join(parts)})"

    @property
    def refs(self) -> tuple[str, ...]:
        """Names of the nodes it reads, in order, each once."""
        found: dict[str, None] = {}
        for arg in (*self.args, *(value for _, value in self.kwargs)):
            found.update(dict.fromkeys(refs(arg)))
        return tuple(found)


class Multiplier(Enum):
    """Which of PyTorch's libraries does a product that is left to it."""

    CUBLAS = "cuBLAS"
    CUDNN = "cuDNN"


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call that the user made and that several nodes stand for."""

    result: str
    """The node that holds the value of the call in the captured graph."""
    call: AtenCall
    """Reads nodes by the names of the captured graph."""
    multiplier: Multiplier


def refs(arg: Argument) -> Iterator[str]:
    """Names of the nodes an argument reads."""
    match arg:
        case Ref(name):
            yield name
        case Record(items=items):
            for item in items:
                yield from refs(item)


def rename(arg: Argument, names: Mapping[str, str]) -> Argument:
    """The argument with the nodes it reads renamed."""
    match arg:
        case Ref(name):
            return Ref(names.get(name, name))
        case Record(kind, items, keys):
            return Record(kind, tuple(rename(item, names) for item in items), keys)
    return arg


def rename_call(call: AtenCall, names: Mapping[str, str]) -> AtenCall:
    """The call with the nodes it reads renamed."""
    args = tuple(rename(arg, names) for arg in call.args)
    kwargs = tuple((key, rename(arg, names)) for key, arg in call.kwargs)
    return AtenCall(call.target, args, kwargs)
