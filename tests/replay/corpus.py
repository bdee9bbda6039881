"""Problems that are replayed, and the texts that the compiler makes of each."""

import hashlib
import pickle
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

# First, alone: what these import decides what a captured graph is.
import kernelwright.capture
import kernelwright.problem

_MADE_BY = sorted(name for name in sys.modules if name.split(".")[0] == "kernelwright")

from kernelwright.codegen import emit  # noqa: E402
from kernelwright.codegen.cuda import kernel_text  # noqa: E402
from kernelwright.compiling import Compiled, compile_captured  # noqa: E402
from kernelwright.errors import KernelwrightError  # noqa: E402
from kernelwright.ir.graph import Graph  # noqa: E402
from kernelwright.ir.plan import Kernel  # noqa: E402
from kernelwright.machine import H200  # noqa: E402
from kernelwright.problem.loading import parse_problem  # noqa: E402
from kernelwright.schedule import Library, print_plan, ranked_configs  # noqa: E402
from kernelwright.suite.problems import find_problems  # noqa: E402
from kernelwright.tune.plans import with_configs  # noqa: E402

ROOT = Path(__file__).parents[2]
_PLACES = ("examples", "tests/replay/modules", "tests/capture/corpus")
_FAMILIES = (
    *("attention", "gemm", "loops", "pointwise", "recurrent", "rows_apart", "several_sizes"),
    *("triangle_of_product", "triangles"),
)
_RANDOM_MODULES = 4
_GRAPHS_OF_A_MODULE = 40
_VARIANTS = 6
"""Configurations of each kernel, besides one of every type, whose text is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One problem by a name that no other has: `capture/corpus/gru`."""

    name: str
    path: Path
    source: str


def committed() -> Iterator[Item]:
    """Problems of this repository: hand-written ones of every family, and random graphs."""
    for place in _PLACES:
        yield from found(ROOT / place, f"{place.removeprefix('tests/')}/")
    families = ROOT / "tests" / "families"
    for name in _FAMILIES:
        path = families / f"{name}.py"
        yield Item(name=f"families/{name}", path=path, source=path.read_text())
    path = families / "random_graphs.py"
    for seed in range(_RANDOM_MODULES):
        source = path.read_text().replace("PROGRAMS = []", f"PROGRAMS = {_programs(seed)}")
        yield Item(name=f"families/random_graphs_{seed}", path=path, source=source)


def found(folder: Path, prefix: str = "") -> Iterator[Item]:
    """Problems below a folder."""
    for problem in find_problems([folder]):
        source = problem.path.read_text(encoding="utf-8")
        yield Item(name=f"{prefix}{problem.name}", path=problem.path, source=source)


def texts(item: Item, captures: Path) -> dict[str, str]:
    """Each stage's text by its name; `captures`: a folder that remembers captured graphs."""
    try:
        graph = _captured(item, captures)
    except KernelwrightError as error:
        return {"refused": f"{error}\n".replace(str(item.path.parent), "")}
    made = {"captured": f"{graph}\n"}
    for library in (Library.WHERE_FASTER, Library.NEVER):
        stages = _stages(item, graph, library)
        made |= {f"{stage}, {library.name.lower()}": text for stage, text in stages.items()}
    return made


def _stages(item: Item, graph: Graph, library: Library) -> dict[str, str]:
    """Texts of a captured problem; the error alone of one that the compiler breaks on."""
    try:
        compiled = compile_captured(_problem(item), graph, H200, library)
        return {"plan": _plan(compiled), "file": _file(compiled), "variants": _variants(compiled)}
    except Exception as error:
        return {"broken": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}\n"}


def _problem(item: Item) -> kernelwright.problem.Problem:
    return parse_problem(item.path, item.source)


def _captured(item: Item, captures: Path) -> Graph:
    path = captures / f"{_key(item)}.pickle"
    if path.is_file():
        graph = pickle.loads(path.read_bytes())
        assert isinstance(graph, Graph)
        return graph
    graph = kernelwright.capture.capture(_problem(item))
    captures.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(pickle.dumps(graph))
    unfinished.replace(path)
    return graph


def _key(item: Item) -> str:
    """Hash of the problem, of PyTorch's version and of all modules that take part in capturing."""
    digest = hashlib.sha256(f"{item.path}{item.source}{torch.__version__}".encode())
    for name in _MADE_BY:
        digest.update(Path(str(sys.modules[name].__file__)).read_bytes())
    return digest.hexdigest()[:24]


def _plan(compiled: Compiled) -> str:
    """Rewrites, the graph after them, the plan, what stays apart, bytes and seconds."""
    return f"{compiled.rewritten.graph}\n{print_plan(compiled.plan)}\n{compiled.explanation}\n"


def _file(compiled: Compiled) -> str:
    return emit(compiled.problem, compiled.plan, compiled.rewritten.applied).source


def _variants(compiled: Compiled) -> str:
    """Ranked configurations of every kernel, and its text in some of them."""
    lines: list[str] = []
    for kernel in compiled.plan.kernels:
        ranked = ranked_configs(kernel, compiled.machine)
        lines += [f"==== {kernel.name}", *map(str, ranked)]
        kinds = {(type(it), type(getattr(it, "tuned", None))): it for it in reversed(ranked)}
        for config in dict.fromkeys([*ranked[:_VARIANTS], *kinds.values()]):
            plan = with_configs(compiled.plan, {kernel.name: config})
            lines += [f"---- {config}", kernel_text(_named(plan.kernels, kernel)).section]
    return "\n".join(lines) + "\n"


def _named(kernels: tuple[Kernel, ...], kernel: Kernel) -> Kernel:
    return next(it for it in kernels if it.name == kernel.name)


def _programs(seed: int) -> list[list[tuple[int, ...]]]:
    draw = random.Random(seed).randrange
    return [
        [(draw(100), draw(8), draw(8), draw(8)) for _ in range(1 + draw(12))]
        for _ in range(_GRAPHS_OF_A_MODULE)
    ]
