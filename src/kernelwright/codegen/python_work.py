"""The work of an emitted `forward`: launches, views and the calls left to PyTorch."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from kernelwright.codegen.arrange import Arrangement
from kernelwright.codegen.families import writer_of
from kernelwright.codegen.families.writer import RoundingSizes
from kernelwright.codegen.python_names import Values
from kernelwright.codegen.python_text import (
    TORCH_DTYPE,
    number,
    quoted,
    tuple_text,
    view_text,
    words,
    wrapped,
)
from kernelwright.ir.calls import Argument, Code, Instance, Record, Ref, Text
from kernelwright.ir.graph import Node, Update
from kernelwright.ir.kinds import Parameter, Slice
from kernelwright.ir.library_calls import function_of
from kernelwright.ir.plan import (
    Einsum,
    Launch,
    Reinterpret,
    Room,
    Take,
    TorchCall,
    Within,
    sizes_used,
)
from kernelwright.ir.program import (
    Part,
    Program,
    Segment,
    inputs_by_kind,
    part_reads,
    types_of,
)
from kernelwright.ir.types import DType, ScalarType, TensorType


class Work(Values):
    """Parts as lines; values that are one short expression are written in place."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._uses = _count_uses(program)
        self._unread = _unread_views(program)
        self._rooms = {step.result for step in program.plan.steps if isinstance(step, Room)}
        self._in_place = program.in_place

    def work(self) -> Iterator[str]:
        """The steps in order, the buffer updates, and the return."""
        lines = [list(self._part(part)) for part in self._program.parts]
        dead = self._last_mentions(lines)
        for position, text in enumerate(lines):
            yield from text
            if position in dead and position + 1 < len(lines):
                yield f"del {', '.join(dead[position])}"
        written = [update.path for update in self._in_place.values()]
        for update in (it for it in self._graph.updates if it.path not in written):
            yield from self._update(update)
        yield f"return {self._argument(self._graph.returns)}"

    def _update(self, update: Update) -> Iterator[str]:
        place, value = self._place(update.path), self._text[update.value]
        if not update.is_assigned:
            yield f"{place}.copy_({value})"
            return
        # An attribute that was left on the host when the module moved would take each call's copy.
        yield f"if {place}.device == {value}.device:"
        yield f"    {place}.copy_({value})"
        yield "else:"
        yield f"    {place} = {value}.clone()"

    def _last_mentions(self, lines: list[list[str]]) -> dict[int, list[str]]:
        """For each step the results that nothing mentions after it.

        A view keeps its base alive by itself, so that a deleted name never frees what is in use.
        """
        final = [self._argument(self._graph.returns)]
        final += [self._text[update.value] for update in self._graph.updates]
        kept = words(" ".join(final))
        mentions = [words(" ".join(text)) for text in lines]
        found: dict[int, list[str]] = {}
        results = (name for part in self._program.parts for name in _results(part))
        for name in dict.fromkeys(results):
            # A view that nobody reads has no line, though a method may have its name.
            if self._text[name] != name or name in self._unread:
                continue
            places = [at for at, mentioned in enumerate(mentions) if name in mentioned]
            if places and name not in kept:
                found.setdefault(places[-1], []).append(name)
        return found

    def _part(self, step: Part) -> Iterator[str]:
        match step:
            case Launch():
                yield from self._launch(step)
            case Segment():
                yield from self._segment(step)
            case Room(result=result, type=kind, within=None):
                yield self._allocation(result, kind)
            case Room(result=result, within=Within(whole=whole, dim=dim, start=start, stop=stop)):
                part = view_text(Slice(dim, start, stop, 1), step.type)
                yield f"{result} = {self._text[whole]}{part}"
            case Reinterpret(result=result) if result in self._unread:
                return
            case Reinterpret(result=result, input=source, map=index_map):
                text = f"{self._text[source]}{view_text(index_map, step.type)}"
                yield from self._name_or_inline(result, text)
            case TorchCall():
                yield self._assign(step.result, self._call(step))
            case Einsum(result=result, contract=contract, inputs=(lhs, rhs)):
                operands = f"{self._text[lhs]}, {self._text[rhs]}"
                yield self._assign(result, f'torch.einsum("{contract.equation}", {operands})')
            case Take(result=result, input=source, index=index):
                yield from self._name_or_inline(result, f"{self._text[source]}[{index}]")

    def _launch(self, step: Launch) -> Iterator[str]:
        kernel = step.kernel
        for name, output in zip(step.results, kernel.outputs, strict=True):
            yield from self._memory(name, output)
        given = [self._operand(name) for name in step.inputs]
        results = [self._text[name] for name in step.results]
        arranged = writer_of(kernel).arrange(kernel)
        results = [_viewed(it, how) for it, how in zip(results, arranged.results, strict=True)]
        operands = [_viewed(given[at], how) for at, how in arranged.inputs]
        numbers = [dim.text for dim in sizes_used(kernel)]
        measured = writer_of(kernel).only_at(kernel)
        if measured is not None:
            numbers.append(_may_round(given[0], measured))
        arguments = ", ".join([*results, *operands, *numbers])
        yield f'_launch("launch_{kernel.name}", {arguments})'

    def _segment(self, segment: Segment) -> Iterator[str]:
        types = types_of(segment)
        rooms = {step.result for step in segment.steps if isinstance(step, Room)}
        for name in segment.results:
            if name in rooms:
                yield self._allocation(name, types[name])
            elif name in self._in_place:  # As it is: the native call reshapes it.
                self._text[name] = self._owner(self._in_place[name].path)[1]
            else:
                yield from self._memory(name, types[name])
        lists = [[self._text[name] for name in segment.results]]
        for names in inputs_by_kind(segment, self._graph):
            lists.append([self._operand(name) for name in names])
        lists[-1] += [dim.text for dim in segment.sizes]
        yield "_launch("
        yield f'    "launch_{segment.name}",'
        for items in filter(None, lists):
            yield from wrapped(items)
        if segment.kept:
            yield f'    {self._kept}["launch_{segment.name}"],'
        yield ")"

    def _memory(self, name: str, output: TensorType) -> Iterator[str]:
        """What a launch writes to: a buffer, a room that is there, or something new."""
        if name in self._in_place:
            self._text[name] = self._buffer(self._in_place[name].path, output)
        elif name not in self._rooms:
            yield self._allocation(name, output)

    def _allocation(self, name: str, kind: TensorType) -> str:
        sizes = tuple_text([dim.text for dim in kind.shape])
        return f"{name} = torch.empty({sizes}, dtype={TORCH_DTYPE[kind.dtype]}, device=device)"

    def _buffer(self, path: str, output: TensorType) -> str:
        """A buffer in the shape of the result that it takes."""
        owner, text = self._owner(path)
        sizes = ", ".join(dim.text for dim in output.shape)
        return text if owner.tensor.shape == output.shape else f"{text}.view({sizes})"

    def _owner(self, path: str) -> tuple[Node, str]:
        """The node of a buffer, and its text."""
        owner = next(n for n in self._graph.nodes if n.kind == Parameter(path))
        return owner, self._text[owner.name]

    def _call(self, step: TorchCall) -> str:
        arguments = [self._argument(arg) for arg in step.call.args]
        arguments += [f"{key}={self._argument(arg)}" for key, arg in step.call.kwargs]
        operator = function_of(step.call.target)
        if step.channels_last is None:
            return f"{operator}({', '.join(arguments)})"
        given = self._text[step.channels_last.given]
        return f"_convolve({operator}, {step.channels_last.sizes}, {given}, {', '.join(arguments)})"

    def _operand(self, name: str) -> str:
        node, text = self._graph.find(name), self._text[name]
        is_real = node is not None and node.type == ScalarType(DType.F64)
        return f"float({text})" if is_real else text

    def _assign(self, result: str, text: str) -> str:
        return f"{result} = {text}" if self._uses.get(result, 0) else text

    def _name_or_inline(self, result: str, text: str) -> Iterator[str]:
        if self._uses.get(result, 0) == 1 and len(text) < 60:
            self._text[result] = text
        else:
            yield f"{result} = {text}"

    def _argument(self, arg: Argument) -> str:
        match arg:
            case Ref(name):
                return self._text[name]
            case Record(kind, items, keys):
                inside = Record(kind, tuple(Code(self._argument(item)) for item in items), keys)
                return str(inside)
            case Instance():
                args = tuple(Code(self._argument(item)) for item in arg.args)
                kwargs = tuple((key, Code(self._argument(item))) for key, item in arg.kwargs)
                return str(replace(arg, args=args, kwargs=kwargs))
            case Text(value):
                return quoted(value)
            case float():
                return number(arg)
        return str(arg)


def _may_round(tensor: str, sizes: RoundingSizes) -> str:
    captured = f"{tensor}.shape == {sizes.captured}"
    if sizes.elements is None:
        return captured
    return f"{captured} or {tensor}.numel() >= {sizes.elements}"


def _viewed(text: str, how: Arrangement | None) -> str:
    return text if how is None else how.text(text)


def _unread_views(program: Program) -> frozenset[str]:
    """Views of what the module keeps that are read where segments' parameters are listed only."""
    views = {part.result: part.input for part in program.parts if isinstance(part, Reinterpret)}
    kept = {name for segment in program.segments for name in segment.kept}
    read = set(program.plan.graph.results)
    read |= {update.value for update in program.plan.graph.updates}
    for part in program.parts:
        match part:
            case Segment(inputs=inputs, kept=own):
                read.update(name for name in inputs if name not in own)
            case Reinterpret():
                pass
            case _:
                read.update(part_reads(part))
    found = set()
    for result, source in reversed(views.items()):
        if result in read:
            read.add(source)
        elif result in kept:
            found.add(result)
            kept.add(source)
        else:
            read.add(source)
    return frozenset(found)


def _results(part: Part) -> tuple[str, ...]:
    return part.results if isinstance(part, Launch | Segment) else (part.result,)


def _count_uses(program: Program) -> dict[str, int]:
    read = (name for part in program.parts for name in part_reads(part))
    return Counter([*read, *program.plan.graph.results])
