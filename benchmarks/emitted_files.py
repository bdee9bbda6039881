"""Emitted files in folders of their own: written without a card, compiled, and loaded with what was
compiled.

A folder has `problem.py`, `emitted.py`, `kernels.cu` and, once it is built, `kernels.so`.
"""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.utils.cpp_extension

NVCC = ("nvcc", "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a")


def build_library(folder: Path) -> Path | None:
    """The library of a file: one that lies there already, or made now; None without kernels."""
    library = folder / "kernels.so"
    if library.exists() or not (folder / "kernels.cu").read_text().strip():
        return library if library.exists() else None
    part = library.with_suffix(".part")
    command = [*NVCC, "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC", "-shared", "-o"]
    done = subprocess.run(
        [*command, str(part), str(folder / "kernels.cu")], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"nvcc: {done.stderr[-1200:]}")
    return part.rename(library)


def load(path: Path, name: str) -> ModuleType:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_library(path: Path, library: Path | None) -> ModuleType:
    """The emitted file, which finds its kernels built."""

    def load_inline(*, name: str, **others: Any) -> None:
        assert library is not None, "the file has kernels"
        built = library.with_name(f"{name}.so")
        if not built.exists():
            built.hardlink_to(library)
        torch.ops.load_library(str(built))

    original = torch.utils.cpp_extension.load_inline
    torch.utils.cpp_extension.load_inline = load_inline
    try:
        return load(path, f"emitted_{path.parent.name}")
    finally:
        torch.utils.cpp_extension.load_inline = original
