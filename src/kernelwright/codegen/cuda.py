"""The CUDA text of a plan: the device library in use, and one section for each kernel."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from kernelwright import kernels
from kernelwright.codegen.families import writer_of
from kernelwright.codegen.kernel_text import TEMPLATES, KernelText
from kernelwright.codegen.segments import segment_text
from kernelwright.codegen.spelling import HEADERS
from kernelwright.ir.plan import Kernel, Launch, Plan, Reinterpret, Room
from kernelwright.ir.program import Program
from kernelwright.ir.types import DType, TensorType
from kernelwright.program import program_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaText:
    """What nvcc compiles, in two parts; no torch header."""

    library: str
    """Includes, and the hand-written declarations that the kernels use."""
    kernels: str
    """The plan's kernels with their entry points, `launch_<kernel>`."""
    with_workspace: frozenset[str] = frozenset()
    """Kernels and segments whose launch may need device memory for itself."""

    @property
    def whole(self) -> str:
        """One text that compiles."""
        return f"{self.library}\n{self.kernels}"


def cuda_source(plan: Plan) -> str:
    """Everything that nvcc compiles."""
    return cuda_text(program_of(plan)).whole


def cuda_text(program: Program) -> CudaText:
    """The program's kernels and segments, and of the device library what they use."""
    return _text(_sections(program), program.plan, _Errors.NAMED)


def translation_units(program: Program) -> Iterator[str]:
    """The text in parts that compile side by side and link together: a kernel each, and the rest.

    A kernel of the same text is the same unit in every program. Each unit can be compiled while the
    next one is made; first come those with most of their own, which mostly take longest, and after
    the first one the calls of all, which take longer than many a kernel and no time to write.
    """
    plan, sections = program.plan, _sections(program)
    names = [kernel.name for kernel in plan.kernels_to_write]
    ordered = sorted(names, key=lambda name: len(sections[name].section), reverse=True)
    for name in ordered[:1]:
        yield _unit(name, sections[name], plan)
    segments = {it.name: sections[it.name] for it in program.segments}
    declared = "".join(_declaration(it, sections[it.name]) for it in plan.kernels_to_write)
    rest = _text(segments, plan, _Errors.NAMED)
    yield f"{rest.library}\n{declared}\n{rest.kernels}"
    for name in ordered[1:]:
        yield _unit(name, sections[name], plan)


def kernel_unit(plan: Plan, name: str) -> str:
    """The unit of the plan's kernel of this name."""
    (kernel,) = (it for it in plan.kernels_to_write if it.name == name)
    return _unit(name, kernel_text(kernel), plan)


def _unit(name: str, text: KernelText, plan: Plan) -> str:
    return _text({name: text}, plan, _Errors.ELSEWHERE).whole


def _declaration(kernel: Kernel, text: KernelText) -> str:
    """What a segment calls of a kernel in another unit."""
    launches = [f'extern "C" int launch_{kernel.name}(const int64_t* words);\n']
    if writer_of(kernel).early(kernel):
        launches.append(f'extern "C" int launch_settled_{kernel.name}(const int64_t* words);\n')
    if text.has_workspace:
        launches.append(f'extern "C" int64_t workspace_{kernel.name}(const int64_t* words);\n')
    return "".join(launches)


class _Errors(Enum):
    """Where the function that names errors stands."""

    NAMED = "in this text"
    ELSEWHERE = "in another text that is linked with it"


def _sections(program: Program) -> dict[str, KernelText]:
    """Kernels and then segments, by name."""
    plan = program.plan
    parts = _writing_parts(plan)
    by_name = {it.name: _text_of(it, is_new=it.name not in parts) for it in plan.kernels_to_write}
    of_kernels = frozenset(name for name, text in by_name.items() if text.has_workspace)
    for segment in program.segments:
        by_name[segment.name] = segment_text(segment, plan.graph, of_kernels, program.reshaped)
    return by_name


def _writing_parts(plan: Plan) -> frozenset[str]:
    """Names of kernels that write into other tensors, or update what the module keeps."""
    parts = {it.result for it in plan.steps if isinstance(it, Room) and it.within is not None}
    parts.update(update.value for update in plan.graph.updates)
    for step in reversed(plan.steps):
        if isinstance(step, Reinterpret) and step.result in parts:
            parts.add(step.input)
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return frozenset(it.kernel.name for it in launches if not parts.isdisjoint(it.results))


def _text_of(kernel: Kernel, *, is_new: bool) -> KernelText:
    """The text of a kernel whose results are known to be new tensors, or are not."""
    text = kernel_text(kernel)
    return replace(text, absent=text.absent | text.absent_if_new) if is_new else text


def _text(by_name: Mapping[str, KernelText], plan: Plan, errors: _Errors) -> CudaText:
    texts = by_name.values()
    files = [name for text in texts for name in text.sources]
    files += sorted({HEADERS[dtype] for dtype in _dtypes(plan) if dtype in HEADERS})
    sections = [text.section for text in texts]
    asserted = _asserted(texts) | _absent(texts)
    if not any(kernel.pairs for kernel in plan.kernels if kernel.name in by_name):
        asserted["ANY_PAIRED"] = False
    by = kernels.User(code="\n".join(sections), asserted=asserted)
    headers, library = kernels.in_use(by, *files, "math.cuh")
    template = TEMPLATES.get_template("library.cu.jinja")
    return CudaText(
        library=template.render(
            headers=headers, library=library, names_errors=errors is _Errors.NAMED
        ),
        kernels="".join(f"{section}\n" for section in sections),
        with_workspace=frozenset(name for name, text in by_name.items() if text.has_workspace),
    )


def _asserted(texts: Iterable[KernelText]) -> dict[str, bool]:
    """Constants that every kernel which asserts one says the same of."""
    found: dict[str, set[bool]] = {}
    for text in texts:
        for name, value in text.asserted.items():
            found.setdefault(name, set()).add(value)
    return {name: value for name, (value, *more) in found.items() if not more}


def _absent(texts: Iterable[KernelText]) -> dict[str, bool]:
    """Facts that are false of every kernel whose device code asks for them."""
    asked = [set(kernels.facts(*text.sources)) - text.absent for text in texts]
    return dict.fromkeys(sorted(set(kernels.facts(*kernels.names())).difference(*asked)), False)


def kernel_text(kernel: Kernel) -> KernelText:
    """The text of one kernel, whatever its family."""
    return writer_of(kernel).emit(kernel)


def _dtypes(plan: Plan) -> set[DType]:
    types = [kind for kernel in plan.kernels for kind in (*kernel.inputs, *kernel.outputs)]
    return {kind.dtype for kind in types if isinstance(kind, TensorType)}
