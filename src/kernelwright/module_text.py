"""Texts of modules in memory: written while their kernels compile, found again, and built.

source = source_of(model, plan, device, on_unit)
made = text_module(source)     # the text as a Python module, once for each process
"""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.utils.cpp_extension as extensions
from torch import nn

from kernelwright import env
from kernelwright.codegen import emit_module, translation_units
from kernelwright.collecting import uncollected
from kernelwright.ir.plan import Plan
from kernelwright.program import program_of
from kernelwright.toolchain.cache import cached_build, content_key
from kernelwright.toolchain.cuda import OnUnit, compile_together, compiled_meanwhile
from kernelwright.toolchain.extension import prepare_extension_folder
from kernelwright.toolchain.texts import MODULE, SOURCE, keep_text, known_text, own_code


def units_of(plan: Plan) -> Iterator[str]:
    """The texts that the kernels of a module with this plan are built from, side by side."""
    return translation_units(program_of(plan))


def source_of(model: nn.Module, plan: Plan, device: torch.device, on_unit: OnUnit) -> str:
    """The text of a plan's kernels. Those for a GPU are ready to be built, and on their way."""
    name, arguments = type(model).__name__, _arguments_text(model)
    is_built = bool(plan.kernels) and device.type == "cuda"
    is_kept = is_built and _is_pytorchs(extensions.load_inline)
    key = content_key(own_code(), name, arguments, repr(plan)) if is_kept else ""
    known = known_text(key) if is_kept else None
    if known is not None:
        text_module(known, on_unit=on_unit)
        return known
    with compiled_ahead(plan, device) as units:
        # First what compilers wait for: they work while the whole text is written.
        with uncollected():
            parts = units() if is_built else ()
            source = emit_module(name, arguments, plan).source
        if is_built:
            text_module(source, parts, on_unit)
            _begin_pytorchs_libraries()  # Takes a while, in which units go on beginning.
    if is_kept:
        keep_text(key, source)
    return source


@contextmanager
def compiled_ahead(plan: Plan, device: torch.device) -> Iterator[Callable[[], tuple[str, ...]]]:
    """The texts of a plan, for who asks. Inside, those that will run on a GPU are compiled already:
    to write down a whole network takes seconds."""
    if not plan.kernels or device.type != "cuda" or not _is_pytorchs(extensions.load_inline):
        yield lambda: tuple(units_of(plan))
        return
    with compiled_meanwhile(partial(units_of, plan), arch_of_device()) as texts:
        yield texts.result


def text_module(
    source: str, units: Sequence[str] = (), on_unit: OnUnit = lambda done, total: None
) -> ModuleType:
    """The text as a Python module, once for each process. It builds nothing before its first call.

    It is a file in the cache, so that tracebacks show its lines. Beside it lie `units`, the same
    kernels in parts, which are compiled side by side where they are known.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    name = f"kernelwright_module_{digest}"
    if name in sys.modules:
        return sys.modules[name]

    def write(folder: Path) -> None:
        (folder / SOURCE).write_text(source, encoding="utf-8")
        for number, unit in enumerate(units):
            (folder / f"{number}{_UNIT}").write_text(unit, encoding="utf-8")

    path = cached_build(MODULE, content_key(source), write) / SOURCE
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    _build_with_our_tools(module, path, on_unit)
    return module


_UNIT = ".cu"
"""How the name of a part of the kernels' text ends."""


def _build_with_our_tools(module: ModuleType, path: Path, on_unit: OnUnit) -> None:
    """Its kernels are built where we build, by the compiler that we find."""
    build = getattr(module, "_library", None)
    if build is None:
        return
    files = sorted(path.parent.glob(f"*{_UNIT}"), key=lambda unit: int(unit.stem))

    def link(*, name: str, **_: Any) -> None:
        units = [unit.read_text(encoding="utf-8") for unit in files]
        # The text loads what it finds here, and by itself: its symbols stay its own.
        built = compile_together(units, name, arch_of_device(), on_unit)
        torch.ops.loaded_libraries.add(str(built))

    def library() -> Any:
        if build.cache_info().currsize:
            return build()
        _begin_pytorchs_libraries()
        if files and _is_pytorchs(module.load_inline):
            with mock.patch.object(module, "load_inline", link):
                return build()
        environment = prepare_extension_folder(path)
        home = extensions.CUDA_HOME or environment.get("CUDA_HOME")
        with env.present(environment):
            extensions.CUDA_HOME = home
            return build()

    module._library = library  # type: ignore[attr-defined]


def _is_pytorchs(load_inline: Callable[..., Any]) -> bool:
    """Whether it compiles for a GPU. The emulator's takes whole texts."""
    return load_inline.__module__ == extensions.__name__


def arch_of_device() -> str:
    """The architecture that kernels are compiled for on the current CUDA device: "sm_90a"."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def _begin_pytorchs_libraries() -> None:
    """Before kernels are loaded: where cuBLAS and cuDNN began after that,
    their first call raised std::bad_alloc (torch 2.11, CUDA 13.0, H100). Why is not known."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return  # The emulator has a device for PyTorch builds without CUDA, too.
    if torch.cuda.is_current_stream_capturing():
        return
    with torch.no_grad():
        one = torch.ones(1, 1, 1, device="cuda")
        nn.functional.linear(one, one[0])
        nn.functional.conv1d(one, one)


def _arguments_text(model: nn.Module) -> str:
    """What stands between the parentheses of `def forward(...)`, the module under "self"."""
    signature = inspect.signature(type(model).forward)
    plain = [
        argument.replace(annotation=inspect.Parameter.empty)
        for argument in signature.parameters.values()
    ]
    plain[0] = plain[0].replace(name="self")
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return text[1:-1]
