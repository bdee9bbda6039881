"""The library that counts launches, under a process with a runtime that is none of CUDA's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.toolchain.launches import launches_library

_RUNTIME = """
extern "C" int launched = 0;
extern "C" int cudaLaunchKernel(const void*, unsigned long, unsigned, unsigned long, unsigned,
                                void**, unsigned long, void*) { ++launched; return 0; }
extern "C" int cudaFuncGetName(const char** name, const void*) {
  *name = "_Z12scale_kernelPf";
  return 0;
}
"""
_STRANGER = """
struct Dim3 { unsigned x, y, z; };
extern "C" int cudaLaunchKernel(const void*, Dim3, Dim3, void**, unsigned long, void*);
extern "C" int launch() {
  return cudaLaunchKernel(nullptr, {1, 1, 1}, {32, 1, 1}, nullptr, 0, nullptr);
}
"""
_PROCESS = """
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
from kernelwright.toolchain import launches
launches.known_homes = lambda: (sys.argv[4],)
stranger, library = ctypes.CDLL(sys.argv[2]), ctypes.CDLL(sys.argv[3])
launched = ctypes.c_int.in_dll(runtime, "launched")
assert stranger.launch() == 0
watch = launches.Launches.of_this_process()
print(launched.value, watch.take())
assert stranger.launch() == 0 and library.launch() == 0
print(launched.value, watch.take())
watch.silence()
assert stranger.launch() == 0 and library.launch() == 0
print(launched.value, watch.take())
watch.unsilence()
assert stranger.launch() == 0
print(launched.value, watch.take())
"""


def _compile(text: str, path: Path, *flags: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    source = path.with_suffix(".cpp")
    source.write_text(text)
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", path, *flags], check=True)
    return path


def test_launches_of_strangers_are_counted_and_silenced_and_those_of_libraries_are_not(
    tmp_path: Path,
) -> None:
    runtime = _compile(_RUNTIME, tmp_path / "runtime" / "libcudart.so")
    link = (f"-L{runtime.parent}", "-lcudart", f"-Wl,-rpath,{runtime.parent}")
    stranger = _compile(_STRANGER, tmp_path / "stranger" / "extension.so", *link)
    library = _compile(_STRANGER, tmp_path / "library" / "libtorch_cuda.so", *link)
    environment = {**os.environ, "LD_PRELOAD": str(launches_library())}
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, runtime, stranger, library, f"{library.parent}/"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "1 {}",  # nobody watches yet
        "3 {'scale_kernel(float*)': 1}",
        "4 {'scale_kernel(float*)': 1}",
        "5 {'scale_kernel(float*)': 1}",
    ], done.stderr


def test_a_process_without_the_library_says_so() -> None:
    from kernelwright.toolchain.launches import Launches

    assert Launches.of_this_process() is None


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "__cudaLaunchKernel", "cuLaunchKernel"])
def test_the_library_stands_in_for_what_launches(name: str) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", launches_library()], capture_output=True, text=True
    ).stdout
    assert f" T {name}\n" in symbols
