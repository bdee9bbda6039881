"""A segment as C++ text: memory, views and launches, with no Python between them."""

from collections.abc import Iterator, Set

from kernelwright.codegen.arrange import Arrangement
from kernelwright.codegen.families import asks_for_tf32, writer_of
from kernelwright.codegen.families.writer import RoundingSizes
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import (
    Diagonal,
    Expand,
    Permute,
    Reshape,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.plan import Launch, Reinterpret, Room, sizes_used
from kernelwright.ir.program import Segment, Slot, inputs_by_kind, types_of
from kernelwright.ir.types import Dim, TensorType

_KEYWORDS = (
    "alignas alignof and asm auto bool break case catch char class compl const continue default "
    "delete do double else enum explicit export extern false float for friend goto if inline int "
    "long mutable namespace new not operator or private protected public register return short "
    "signed sizeof static struct switch template this throw true try typedef typename union "
    "unsigned using virtual void volatile while xor"
)
_OWN = (
    "arguments contiguous diagonal elements expanded has_elements has_sizes is_allowed permuted "
    "reshaped run selected sliced std unsqueezed without"
)
_TAKEN = frozenset((*_KEYWORDS.split(), *_OWN.split()))
"""Names that a value must not have in C++: it would hide what the text needs."""


def segment_text(
    segment: Segment, graph: Graph, with_workspace: Set[str], reshaped: Set[str]
) -> KernelText:
    """The text of a segment: `launch_<name>` runs it, `workspace_<name>` says what memory it needs.

    Its launchers stand before it; `with_workspace` names the kernels that may need memory,
    `reshaped` results that the caller has in another shape.
    """
    writer = _Writer(segment, graph, with_workspace, reshaped)
    has_workspace = any(slot.result is None for slot in segment.slots)
    has_workspace |= any(step.kernel.name in with_workspace for step in segment.launches)
    section = TEMPLATES.get_template("segment.cu.jinja").render(
        name=segment.name,
        launches=[launch.kernel.name for launch in segment.launches],
        lends=any(slot.result is not None for slot in segment.slots),
        arguments=list(writer.arguments()),
        memory=list(writer.memory()),
        work=list(writer.work()),
        has_workspace=has_workspace,
    )
    return KernelText(section=section, sources=("run.cuh",), has_workspace=has_workspace)


class _Writer:
    """Lines of one segment; each value is a local variable."""

    def __init__(
        self, segment: Segment, graph: Graph, with_workspace: Set[str], reshaped: Set[str]
    ) -> None:
        self._segment = segment
        self._with_workspace = with_workspace
        self._reshaped = reshaped
        updated = {update.path for update in graph.updates}
        self._updated = graph.aliases_of(updated | graph.changed_in_place())
        self._made = _made_by_launches(segment)
        self._types = types_of(segment)
        self._inputs = inputs_by_kind(segment, graph)
        self._sizes = {dim: f"size{at}" for at, dim in enumerate(segment.sizes)}
        names = (*segment.results, *segment.inputs, *self._types)
        self._names = {name: _variable(name) for name in names}

    def arguments(self) -> Iterator[str]:
        """What the caller passes, in order: results, inputs, sizes, what the module keeps."""
        tensors, reals, integers = self._inputs
        for name in (*self._segment.results, *tensors):
            text = "arguments.tensor()"
            if name in self._reshaped:
                text = f"reshaped({text}, {self._braced(self._types[name].shape)})"
            yield f"const Tensor {self._names[name]} = {text};"
        for name in reals:
            yield f"const double {self._names[name]} = arguments.real();"
        for name in integers:
            yield f"const int64_t {self._names[name]} = arguments.integer();"
        for dim, name in self._sizes.items():
            yield f"const int64_t {name} = arguments.integer();  // {dim}"
        if any(asks_for_tf32(launch.kernel) for launch in self._segment.launches):
            yield "const int64_t is_allowed = arguments.integer();  // TF32 in convolutions"
        for name in (it for it in self._segment.inputs if it in self._segment.kept):
            yield f"const Tensor {self._names[name]} = arguments.tensor();"

    def memory(self) -> Iterator[str]:
        """The values that nobody else reads."""
        arena = 0
        for slot in self._segment.slots:
            if slot.result is not None:
                data = f"{self._names[slot.result]}.data"
            else:
                data = f"slot{arena}"
                arena += 1
                yield f"void* const {data} = run.take({self._bytes(slot)});"
            for name in slot.values:
                sizes = self._braced(self._types[name].shape)
                yield f"const Tensor {self._names[name]} = contiguous({data}, {sizes});"

    def work(self) -> Iterator[str]:
        """Views and launches in order."""
        for step in self._segment.steps:
            match step:
                case Launch():
                    yield self._launch(step)
                case Reinterpret(result=result, input=source, map=how, type=kind):
                    view = self._view(how, source, kind)
                    yield f"const Tensor {self._names[result]} = {view};"
                case Room(result=result, within=within, type=kind) if within is not None:
                    part = Slice(within.dim, within.start, within.stop, 1)
                    view = self._view(part, within.whole, kind)
                    yield f"const Tensor {self._names[result]} = {view};"

    def _launch(self, step: Launch) -> str:
        kernel = step.kernel
        arranged = writer_of(kernel).arrange(kernel)
        operands = [
            _arranged(self._names[name], how)
            for name, how in zip(step.results, arranged.results, strict=True)
        ]
        operands += [_arranged(self._names[step.inputs[at]], how) for at, how in arranged.inputs]
        operands += [self._size(dim) for dim in sizes_used(kernel)]
        measured = writer_of(kernel).only_at(kernel)
        if measured is not None:
            operands += [_may_round(self._names[step.inputs[0]], measured), "is_allowed"]
        launcher = f"launch_{'settled_' * self._is_settled(step)}{kernel.name}"
        if kernel.name in self._with_workspace:
            launcher = f"workspace_{kernel.name}, {launcher}"
            return f"run.launch_with({launcher}, {', '.join(operands)});"
        return f"run.launch({launcher}, {', '.join(operands)});"

    def _is_settled(self, step: Launch) -> bool:
        """Whether what a launch reads early is the module's own, no launch here updates it, and all
        kernels of others are complete when its own begins.

        These are when a kernel has waited for them. A launch of this segment that made something
        else that this one reads has done so, for it was no empty one, where this one is not.
        """
        early = writer_of(step.kernel).early(step.kernel)
        names = [step.inputs[at] for at in early]
        others = (name for at, name in enumerate(step.inputs) if at not in early)
        own = self._segment.kept - self._updated
        return bool(names) and own.issuperset(names) and not self._made.isdisjoint(others)

    def _view(self, how: ViewMap, source: str, kind: TensorType) -> str:
        tensor, bytes_ = self._names[source], kind.dtype.itemsize
        match how:
            case Reshape():
                return f"reshaped({tensor}, {self._braced(kind.shape)})"
            case Expand():
                return f"expanded({tensor}, {self._braced(kind.shape)})"
            case Permute(dims):
                return _permuted(tensor, dims)
            case Unsqueeze(dim):
                return f"unsqueezed({tensor}, {dim})"
            case Squeeze(dims):
                for dim in sorted(dims, reverse=True):
                    tensor = f"without({tensor}, {dim})"
                return tensor
            case Slice(dim, start, _, step):
                size = self._size(kind.shape[dim])
                return f"sliced({tensor}, {bytes_}, {dim}, {self._size(start)}, {size}, {step})"
            case Select(dim, index):
                return f"selected({tensor}, {bytes_}, {dim}, {self._size(index)})"
            case Diagonal():
                return f"diagonal({tensor})"
        raise AssertionError(f"{how} is no view of strides")

    def _bytes(self, slot: Slot) -> str:
        texts = dict.fromkeys(self._bytes_of(self._types[name]) for name in slot.values)
        return texts.popitem()[0] if len(texts) == 1 else f"std::max({{{', '.join(texts)}}})"

    def _bytes_of(self, kind: TensorType) -> str:
        return f"{kind.dtype.itemsize} * elements({self._braced(kind.shape)})"

    def _braced(self, shape: tuple[Dim, ...]) -> str:
        return f"{{{', '.join(map(self._size, shape))}}}"

    def _size(self, dim: Dim) -> str:
        return dim.text if dim.is_static else self._sizes[dim]


def _made_by_launches(segment: Segment) -> frozenset[str]:
    """Results of launches, and views of them."""
    found: set[str] = set()
    for step in segment.steps:
        match step:
            case Launch(results=results):
                found.update(results)
            case Reinterpret(result=result, input=source) if source in found:
                found.add(result)
    return frozenset(found)


def _variable(name: str) -> str:
    """A name in C++ that hides nothing that the text needs."""
    is_free = name not in _TAKEN and not name.startswith(("launch_", "workspace_", "slot", "size"))
    return name if is_free else f"{name}_"


def _may_round(tensor: str, sizes: RoundingSizes) -> str:
    captured = f"has_sizes({tensor}, {{{', '.join(map(str, sizes.captured))}}})"
    if sizes.elements is None:
        return f"int64_t{{{captured}}}"
    return f"int64_t{{{captured} || has_elements({tensor}, {sizes.elements})}}"


def _arranged(name: str, how: Arrangement | None) -> str:
    if how is None:
        return name
    text = name if how.permute == tuple(range(len(how.permute))) else _permuted(name, how.permute)
    for dim in how.unsqueeze:
        text = f"unsqueezed({text}, {dim})"
    return text


def _permuted(tensor: str, dims: tuple[int, ...]) -> str:
    return f"permuted({tensor}, {{{', '.join(map(str, dims))}}})"
