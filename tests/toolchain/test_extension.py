"""Candidates' own load_inline in our folder: real children, real compilers."""

import inspect
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.utils.cpp_extension import load_inline

from kernelwright.errors import CompileError, NoCompilerError
from kernelwright.toolchain.compilers import find_cxx, find_nvcc
from kernelwright.toolchain.extension import (
    build_error,
    is_being_built,
    prepare_extension_folder,
)

needs_cxx = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
# PyTorch's own headers take 20 seconds to compile; older versions always put them in front.
needs_bare_sources = pytest.mark.skipif(
    "no_implicit_headers" not in inspect.signature(load_inline).parameters,
    reason="this PyTorch includes its headers in every extension",
)

_CANDIDATE = '''import torch
from torch.utils.cpp_extension import load_inline

DEVICE_LIBRARY = """
"""
KERNELS = """
__global__ void kernel(float* x) { x[0] = {value}; }
"""
CPP = """
extern "C" int answer() {
  return {value};
}
"""
load_inline("mine", CPP, functions=None, is_python_module=False, no_implicit_headers=True)
print(*torch.ops.loaded_libraries)
'''


def _candidate(folder: Path, value: str) -> Path:
    path = folder / "new.py"
    path.write_text(_CANDIDATE.replace("{value}", value))
    return path


def _import(candidate: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(candidate)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@needs_cxx
@needs_bare_sources
def test_builds_in_our_folder_and_survives_a_stale_lock(cache: Path, tmp_path: Path) -> None:
    candidate = _candidate(tmp_path, "42")
    done = _import(candidate, prepare_extension_folder(candidate))
    assert done.returncode == 0, done.stderr
    library = Path(done.stdout.split()[-1])
    assert library.is_relative_to(cache / "extensions") and library.is_file()

    # A child that was killed while it built leaves this behind, and PyTorch waits for it for ever.
    baton = library.with_name("lock")
    baton.touch()
    built = library.stat().st_mtime_ns
    done = _import(candidate, prepare_extension_folder(candidate))
    assert done.returncode == 0, done.stderr
    assert library.stat().st_mtime_ns == built, "built again"


@needs_cxx
@needs_bare_sources
def test_compile_error_names_the_candidates_line(cache: Path, tmp_path: Path) -> None:
    candidate = _candidate(tmp_path, "fortytwo")
    done = _import(candidate, prepare_extension_folder(candidate))
    assert done.returncode != 0
    error = build_error(done.stderr, candidate)
    assert isinstance(error, CompileError)
    assert error.message.startswith("new.py does not build: ")
    assert "fortytwo" in error.message
    line = _CANDIDATE.splitlines().index("  return {value};") + 1
    assert error.location == f"{candidate}:{line}"
    assert error.log_path is not None and "ninja" in error.log_path.read_text()


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@needs_bare_sources
def test_compile_error_in_cuda_names_the_candidates_line(cache: Path, tmp_path: Path) -> None:
    candidate = _candidate(tmp_path, "fortytwo")
    text = candidate.read_text().replace("return fortytwo", "return 42")
    flags = '["-gencode=arch=compute_90a,code=sm_90a"]'
    # A PyTorch without CUDA does not look for nvcc by itself.
    look = "import os\ntorch.utils.cpp_extension.CUDA_HOME = os.environ['CUDA_HOME']\n"
    call = f'load_inline("mine", CPP, KERNELS, extra_cuda_cflags={flags}, '
    text = text.replace('load_inline("mine", CPP, ', f"{look}{call}")
    candidate.write_text(text)
    done = _import(candidate, prepare_extension_folder(candidate))
    error = build_error(done.stderr, candidate)
    assert error.message == 'new.py does not build: identifier "fortytwo" is undefined'
    assert error.location == f"{candidate}:7"


def test_a_lock_that_somebody_holds_stays(cache: Path, tmp_path: Path) -> None:
    candidate = _candidate(tmp_path, "42")
    folder = Path(prepare_extension_folder(candidate)["TORCH_EXTENSIONS_DIR"])
    for name in ("held", "stale"):
        (folder / name).mkdir()
    descriptor = os.open(folder / "held" / "lock", os.O_CREAT | os.O_EXCL)
    (folder / "stale" / "lock").touch()
    try:
        prepare_extension_folder(candidate)
        assert is_being_built(candidate)  # others wait for it, and do not hang
        assert (folder / "held" / "lock").exists()
        assert not (folder / "stale" / "lock").exists()
    finally:
        os.close(descriptor)
    assert not is_being_built(candidate)
    prepare_extension_folder(candidate)
    assert not (folder / "held" / "lock").exists()


def test_environment(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_THREADS", "3")
    candidate = _candidate(tmp_path, "1")
    environment = prepare_extension_folder(candidate)
    assert environment["MAX_JOBS"] == "3"
    assert environment["KERNELWRIGHT_CACHE_DIR"] == str(cache)
    assert environment["PATH"].endswith(os.environ["PATH"])
    if find_nvcc() is not None:
        assert (Path(environment["CUDA_HOME"]) / "include" / "cuda_runtime.h").is_file()
    other = _candidate(tmp_path, "2")
    assert (
        prepare_extension_folder(other)["TORCH_EXTENSIONS_DIR"]
        != environment["TORCH_EXTENSIONS_DIR"]
    )


def test_a_file_with_the_same_content_shares_the_folder(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = prepare_extension_folder(_candidate(tmp_path / "a", "1"))
    second = prepare_extension_folder(_candidate(tmp_path / "b", "1"))
    assert first["TORCH_EXTENSIONS_DIR"] == second["TORCH_EXTENSIONS_DIR"]


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Ninja is required to load C++ extensions (pip install ninja to get it)", "ninja"),
        ("CUDA_HOME environment variable is not set. Please set it", "KERNELWRIGHT_NVCC"),
    ],
)
def test_nothing_to_build_with(cache: Path, tmp_path: Path, said: str, advice: str) -> None:
    error = build_error(f"RuntimeError: {said}", _candidate(tmp_path, "1"))
    assert isinstance(error, NoCompilerError)
    assert advice in error.next_step


def test_output_without_a_compilers_message_is_still_an_error(cache: Path, tmp_path: Path) -> None:
    candidate = _candidate(tmp_path, "1")
    error = build_error("ImportError: undefined symbol: foo\n", candidate)
    assert isinstance(error, CompileError)
    assert error.message == "new.py does not build: ImportError: undefined symbol: foo"
    assert error.location == str(candidate)
    assert build_error("", candidate).message == "new.py does not build: no output"


def test_preparing_is_quick(cache: Path, tmp_path: Path) -> None:
    """Children start often, and mostly find no lock file to look for the owner of."""
    candidate = _candidate(tmp_path, "1")
    prepare_extension_folder(candidate)
    started = time.monotonic()
    prepare_extension_folder(candidate)
    assert time.monotonic() - started < 0.2
