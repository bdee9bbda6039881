"""`torch.utils.cpp_extension.load_inline` and `load`, for the emulator.

They take what PyTorch's take in any release, and give what those give: a Python module, or the
path of a library whose operators are registered. CUDA is translated, everything is compiled by the
host's C++ compiler, flags that only nvcc has are dropped.
"""

import importlib.machinery
import importlib.util
import os.path
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any

import torch

from kernelwright.emulator.compile import Part, Unit, compile_unit, load_runtime
from kernelwright.emulator.errors import fault_of
from kernelwright.emulator.headers import headers_of, torch_headers_of
from kernelwright.emulator.translate import translate
from kernelwright.errors import UnsupportedError

Texts = str | Sequence[str] | None

_CXX_FILE = "main.cpp"
_CUDA_FILE = "cuda.cu"
_KEPT_FLAGS = ("-D", "-U", "-I", "-include", "-isystem")
"""Beginnings of the flags that count here. -std does not: translated text is always C++20."""
_KEPT_LINK_FLAGS = ("-L", "-l", "-Wl,")
_CUDA_LIBRARIES = ("-lcu", "-lnv")


def load_inline(
    name: str,
    cpp_sources: Texts,
    cuda_sources: Texts = None,
    sycl_sources: Texts = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,  # noqa: FBT001, FBT002 - PyTorch's signature, as all of it
    with_cuda: bool | None = None,  # noqa: FBT001
    with_sycl: bool | None = None,  # noqa: FBT001
    is_python_module: bool = True,  # noqa: FBT001, FBT002
    with_pytorch_error_handling: bool = True,  # noqa: FBT001, FBT002
    keep_intermediates: bool = True,  # noqa: FBT001, FBT002
    use_pch: bool = False,  # noqa: FBT001, FBT002
    no_implicit_headers: bool = False,  # noqa: FBT001, FBT002
) -> ModuleType | str:
    """Build from texts; see `torch.utils.cpp_extension.load_inline`.

    Raises CompileError with the compiler's first message and the line, NoCompilerError.
    """
    bindings = _bindings(functions, with_pytorch_error_handling)
    cxx, cuda = "\n".join(_texts(cpp_sources)), "\n".join(_texts(cuda_sources))
    parts = []
    if cxx.strip() or bindings:
        parts.append(_part(name, _CXX_FILE, cxx, bindings))
    if cuda.strip():
        parts.append(_part(name, _CUDA_FILE, cuda, ""))
    of_sources = headers_of if no_implicit_headers else torch_headers_of
    unit = Unit(
        name=name,
        parts=tuple(parts),
        headers=of_sources(part.source for part in parts),
        flags=_flags(name, (extra_cflags, extra_cuda_cflags), extra_include_paths),
        link_flags=_link_flags(extra_ldflags),
        candidate=_caller(),
    )
    return _load_library(compile_unit(unit), name, is_python_module=is_python_module)


def load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,  # noqa: FBT001, FBT002
    with_cuda: bool | None = None,  # noqa: FBT001
    with_sycl: bool | None = None,  # noqa: FBT001
    is_python_module: bool = True,  # noqa: FBT001, FBT002
    is_standalone: bool = False,  # noqa: FBT001, FBT002
    keep_intermediates: bool = True,  # noqa: FBT001, FBT002
) -> ModuleType | str:
    """Build from files; see `torch.utils.cpp_extension.load`.

    Headers that the files include by `#include "..."` and that lie beside them, or in
    `extra_include_paths`, are translated like the files.

    Raises CompileError with the compiler's first message and the line, NoCompilerError;
    UnsupportedError for a program (`is_standalone`).
    """
    if is_standalone:
        raise UnsupportedError(f"{name}: the emulator builds extensions, no programs of their own")
    paths = [Path(path) for path in ([sources] if isinstance(sources, str) else sources)]
    parts = _parts_of_files(name, paths, [Path(path) for path in extra_include_paths or ()])
    folders = [str(path.parent.absolute()) for path in paths]
    unit = Unit(
        name=name,
        parts=parts,
        headers=headers_of(part.source for part in parts),
        flags=_flags(
            name, (extra_cflags, extra_cuda_cflags), [*(extra_include_paths or ()), *folders]
        ),
        link_flags=_link_flags(extra_ldflags),
    )
    return _load_library(compile_unit(unit), name, is_python_module=is_python_module)


def _texts(sources: Texts) -> list[str]:
    return [sources] if isinstance(sources, str) else list(sources or ())


def _part(name: str, file: str, source: str, bindings: str) -> Part:
    text = translate(source, f"{name}/{file}")
    if bindings:
        text = f'{text}\n#line 1 "{name}/bindings"\n{bindings}'
    return Part(file=file, text=text, source=source)


def _bindings(
    functions: str | Sequence[str] | Mapping[str, str] | None, with_error_handling: object
) -> str:
    """The pybind11 module that PyTorch writes for `functions`."""
    if functions is None:
        return ""
    names = [functions] if isinstance(functions, str) else functions
    if not isinstance(names, list | dict):
        # PyTorch's own words.
        raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(names)}")
    docs = names if isinstance(names, Mapping) else {name: name for name in names}
    wrap = "torch::wrap_pybind_function({})" if with_error_handling else "{}"
    lines = [
        f'm.def("{name}", {wrap.format(name)}, "{doc}");'  # as PyTorch: nothing is escaped
        for name, doc in docs.items()
    ]
    return "\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}\n"])


def _flags(
    name: str, given: Iterable[Sequence[str] | None], include_paths: Sequence[str] | None
) -> tuple[str, ...]:
    """What of the user's flags means something to the host's compiler."""
    kept = [f"-DTORCH_EXTENSION_NAME={name}", *(f"-I{path}" for path in include_paths or ())]
    for flags in given:
        words = iter(flags or ())
        for word in words:
            if word in _KEPT_FLAGS:
                kept += [word, next(words, "")]
            elif word.startswith(_KEPT_FLAGS):
                kept.append(word)
    return tuple(kept)


def _link_flags(given: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(
        flag
        for flag in given or ()
        if flag.startswith(_KEPT_LINK_FLAGS) and not flag.startswith(_CUDA_LIBRARIES)
    )


def _caller() -> Path | None:
    """The Python file that called load_inline."""
    frame = sys._getframe(2)
    path = Path(frame.f_code.co_filename)
    return path if path.is_file() else None


def _load_library(path: Path, name: str, *, is_python_module: bool) -> ModuleType | str:
    load_runtime()
    if not is_python_module:
        load_library: Callable[[str], None] = torch.ops.load_library
        load_library(str(path))
        return str(path)
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
    if spec is None:
        raise ImportError(f"{path} is not a library")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    for key, value in vars(module).items():
        if isinstance(value, BuiltinFunctionType):
            setattr(module, key, _checked(value))
    return module


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an extension, raising EmulatorFault if a launch in it was abandoned."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            fault = fault_of(load_runtime())
            if fault is not None:
                raise fault from error
            raise
        fault = fault_of(load_runtime())
        if fault is not None:
            raise fault
        return result

    return call


def _parts_of_files(name: str, paths: Sequence[Path], folders: Sequence[Path]) -> tuple[Part, ...]:
    """The files and the headers of the user's that they include."""
    parts: dict[Path, Part] = {}
    waiting = [(path, path.name, True) for path in paths]
    while waiting:
        path, file, compiled = waiting.pop(0)
        if path.absolute() in parts:
            continue
        source = path.read_text(encoding="utf-8")
        text = translate(source, f"{name}/{file}")
        parts[path.absolute()] = Part(file=file, text=text, source=source, compiled=compiled)
        for included in _quoted_includes(source):
            found = _first_file([path.parent, *folders], included)
            beside = os.path.normpath(Path(file).parent / included)
            # Above the folder of the sources a header stays where it is, and untranslated.
            if found is not None and not beside.startswith(".."):
                waiting.append((found, beside, False))
    return tuple(parts.values())


def _quoted_includes(source: str) -> list[str]:
    lines = [line.strip() for line in source.splitlines()]
    directives = [line[1:].split() for line in lines if line.startswith("#")]
    names = [words[1] for words in directives if len(words) > 1 and words[0] == "include"]
    return [name.strip('"') for name in names if name.startswith('"')]


def _first_file(folders: Iterable[Path], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)
