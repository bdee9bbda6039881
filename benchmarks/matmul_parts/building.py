"""From a case to an imported file: through the public door, built by many processes beforehand."""

import ast
import hashlib
import importlib.util
import multiprocessing
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import ModuleType

import torch

from kernelwright.compiling import compile_problem, write_candidate
from kernelwright.errors import KernelwrightError
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Contract
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.schedule import Library
from kernelwright.toolchain.cuda import compile_check

_MESSAGE = 1500
"""Characters kept of an error: a failed build's output has pages."""


class Naming(Enum):
    """Which emitted files share a compiled library."""

    AS_EMITTED = "as emitted"
    SHARED = "shared"
    """Comments in the CUDA text are left out, so that files differing only in the sizes that a
    comment shows are compiled once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """The file for one problem, or why there is none."""

    name: str
    problem: Path
    path: Path
    library: str = ""
    """Name of the compiled library; "" where everything is left to PyTorch."""
    kernels: tuple[str, ...] = ()
    """The kernels with their configurations."""
    left: tuple[str, ...] = ()
    """Calls left to PyTorch, with the reasons."""
    is_product: bool = False
    """Whether `forward` has a contraction, ours or not, and no convolution."""
    error: str = ""


def describe(error: BaseException) -> str:
    """The type and the beginning of the text."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _MESSAGE else text[:_MESSAGE] + " ..."


def emit(problem: Path, path: Path, library: Library, naming: Naming) -> Emitted:
    """Compile the problem file for the H200 and write the file that replaces it."""
    emitted = Emitted(name=problem.stem, problem=problem, path=path)
    try:
        compiled = compile_problem(load_problem(problem), H200, library)
        write_candidate(compiled, path)
    except Exception as error:
        return replace(emitted, error=describe(error))
    if naming is Naming.SHARED:
        path.write_text(_without_sizes(path.read_text()))
    plan = compiled.plan
    return replace(
        emitted,
        library=_library(path.read_text()),
        kernels=tuple(f"{kernel.name}: {kernel.config}" for kernel in plan.kernels),
        left=tuple(f"{step.name}: {step.why}" for step in plan.left_to_pytorch),
        is_product=_is_product(compiled.captured),
    )


def _is_product(graph: Graph) -> bool:
    calls = [node.origin.target for node in graph.nodes if node.origin is not None]
    contracts = any(isinstance(node.kind, Contract) for node in graph.nodes)
    return contracts and not any("conv" in call for call in calls)


def _library(source: str) -> str:
    """The name under which the file has its kernels built."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Dict(keys=[ast.Constant("name"), *_], values=[ast.Constant(str(name)), *_]):
                return name
    return ""


def _without_sizes(source: str) -> str:
    """The emitted file with no comments in its CUDA text, and the library named after the rest."""
    lines = source.splitlines(keepends=True)
    cuda: list[str] = []
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name("KERNELS" | "DEVICE_LIBRARY")]):
                for at in range(node.lineno - 1, node.end_lineno or node.lineno):
                    lines[at] = "" if lines[at].lstrip().startswith("//") else lines[at]
                    cuda.append(lines[at])
    digest = hashlib.sha256("".join(cuda).encode()).hexdigest()[:12]
    name = _library(source)
    return "".join(lines).replace(name, f"kernelwright_shared_{digest}") if cuda else source


def load(path: Path) -> ModuleType:
    """Import an emitted file: its kernels are found built, or built."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- Many at a time ----------------------------------------------------------------------------


class Workshop:
    """A pool of processes that emit and build; torch is imported once in each."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder = folder
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
        extensions = folder / "extensions"
        for baton in extensions.glob("*/lock"):
            baton.unlink()  # Of a run that was killed: load_inline would wait on it for ever.
        # Read by load_inline, in the pool's processes and in those that measure.
        os.environ["TORCH_EXTENSIONS_DIR"] = str(extensions)
        os.environ.setdefault("MAX_JOBS", "2")

    def close(self) -> None:
        """End the processes, so that none is on the card while it is measured."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def emit_all(
        self, problems: Iterable[Path], library: Library, naming: Naming
    ) -> dict[str, Emitted]:
        """The file for each problem file, by its stem."""
        futures = [
            self._pool.submit(
                emit, problem, self._folder / f"{problem.stem}_new.py", library, naming
            )
            for problem in problems
        ]
        found = [future.result() for future in futures]
        return {emitted.name: emitted for emitted in found}

    def build(self, emitted: Mapping[str, Emitted]) -> dict[str, Emitted]:
        """The same, every library compiled, the errors of those that do not compile filled in.

        Without a GPU they are compiled for the H200 all the same, and what ptxas says is printed.
        """
        build = _build if torch.cuda.is_available() else _report
        first = {it.library: it for it in emitted.values() if it.library and not it.error}
        futures = {name: self._pool.submit(build, it.path) for name, it in first.items()}
        errors: dict[str, str] = {}
        for name, future in futures.items():
            try:
                errors[name] = future.result()
            except BrokenProcessPool as error:
                errors[name] = describe(error)
        built = {
            name: replace(it, error=it.error or errors.get(it.library, ""))
            for name, it in emitted.items()
        }
        for file in built.values():
            if file.error:
                print(f"{file.name}: {file.error}", flush=True)
        return built


def _build(path: Path) -> str:
    """Import the file; "" or why that failed."""
    try:
        load(path)
    except Exception as error:
        return describe(error)
    return ""


def _report(path: Path) -> str:
    """Compile without importing, and print registers and spills; "" or why that failed."""
    source = _cuda_source_of(path)
    assert source is not None, "only files with kernels are built"
    try:
        kernels = compile_check(source).kernels
    except KernelwrightError as error:
        return describe(error)
    print(f"{path.stem}:", *kernels, sep="\n  ", flush=True)
    return ""


def write_problems(sources: Sequence[tuple[str, str]], folder: Path) -> dict[str, Path]:
    """Problem files of (name, text) pairs; names may hold what file names may not."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, text in sources:
        stem = "".join(char if char.isalnum() else "_" for char in name).strip("_")
        paths[name] = folder / f"p_{stem}.py"
        paths[name].write_text(text)
    assert len(set(paths.values())) == len(paths), "two names give one file"
    return paths


def _cuda_source_of(path: Path) -> str | None:
    """The CUDA text that an emitted file carries in two constants; None if there is none.

    Reads the file, never runs it.
    """
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(str(text))):
                found[name] = text
    parts = [found.get(name) for name in ("DEVICE_LIBRARY", "KERNELS")]
    return None if None in parts else "".join(filter(None, parts))
