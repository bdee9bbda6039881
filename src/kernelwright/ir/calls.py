"""Calls of PyTorch operators and their arguments, enough to make them again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Instance:
    """An object made by calling a class: `Point(a, b)`, `ModelOutput(logits=a)`."""

    module: str | None
    """Module that has the class; None for the file that the captured module is defined in."""
    name: str
    """The class in that module: "ModelOutput", "Outer.Inner"."""
    args: "tuple[Argument, ...]"
    kwargs: "tuple[tuple[str, Argument], ...]" = ()

    def __str__(self) -> str:
        parts = [str(arg) for arg in self.args] + [f"{key}={arg}" for key, arg in self.kwargs]
        return f"{self.function}({', '.join(parts)})"

    @property
    def function(self) -> str:
        """Python text of the class: what lies in torch is named in full, `import torch` has it."""
        return f"{self.module}.{self.name}" if self.is_of_torch else self.name

    @property
    def import_line(self) -> str | None:
        """The statement that brings the class into scope, None where it is there anyway."""
        if self.module is None or self.is_of_torch:
            return None
        return f"from {self.module} import {self.name.partition('.')[0]}"

    @property
    def is_of_torch(self) -> bool:
        """Whether `import torch` is enough to name the class."""
        return self.module is not None and self.module.partition(".")[0] == "torch"


Argument = Ref | Code | Record | Instance | Text | Dim | bool | int | float | None


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

    def without(self, name: str) -> "AtenCall":
        """The call with None for an argument that is the value of the node of this name."""
        args = tuple(None if arg == Ref(name) else arg for arg in self.args)
        kwargs = tuple((key, None if arg == Ref(name) else arg) for key, arg in self.kwargs)
        return AtenCall(self.target, args, kwargs)

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the nodes that are arguments themselves, in order, as often as they are."""
        given = (*self.args, *(value for _, value in self.kwargs))
        return tuple(arg.name for arg in given if isinstance(arg, Ref))

    @property
    def refs(self) -> tuple[str, ...]:
        """Names of the nodes it reads, in order, each once."""
        found: dict[str, None] = {}
        for arg in (*self.args, *(value for _, value in self.kwargs)):
            found.update(dict.fromkeys(refs(arg)))
        return tuple(found)


def refs(arg: Argument) -> Iterator[str]:
    """Names of the nodes an argument reads."""
    match arg:
        case Ref(name):
            yield name
        case Record(items=items):
            for item in items:
                yield from refs(item)
        case Instance(args=args, kwargs=kwargs):
            for item in (*args, *(value for _, value in kwargs)):
                yield from refs(item)


def instances(arg: Argument) -> Iterator[Instance]:
    """Objects of classes in an argument, the outer ones first."""
    match arg:
        case Record(items=items):
            for item in items:
                yield from instances(item)
        case Instance(args=args, kwargs=kwargs):
            yield arg
            for item in (*args, *(value for _, value in kwargs)):
                yield from instances(item)


def rename(arg: Argument, names: Mapping[str, str]) -> Argument:
    """The argument with the nodes it reads renamed."""
    match arg:
        case Ref(name):
            return Ref(names.get(name, name))
        case Record(kind, items, keys):
            return Record(kind, tuple(rename(item, names) for item in items), keys)
        case Instance(args=args, kwargs=kwargs):
            renamed = tuple((key, rename(value, names)) for key, value in kwargs)
            return replace(arg, args=tuple(rename(it, names) for it in args), kwargs=renamed)
    return arg


def rename_call(call: AtenCall, names: Mapping[str, str]) -> AtenCall:
    """The call with the nodes it reads renamed."""
    args = tuple(rename(arg, names) for arg in call.args)
    kwargs = tuple((key, rename(arg, names)) for key, arg in call.kwargs)
    return AtenCall(call.target, args, kwargs)
