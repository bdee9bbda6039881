"""The allocator with guard zones, over a runtime whose device is the host's memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

from kernelwright.toolchain.guards import guards_library
from kernelwright.toolchain.launches import launches_library

_RUNTIME = """
#include <cstdlib>
#include <cstring>
extern "C" {
int room = 1000, captures = 0;
int cudaMalloc(void** p, size_t n) { return room-- > 0 ? (*p = std::malloc(n), 0) : 2; }
int cudaFree(void* p) { ++room; std::free(p); return 0; }
int cudaMemsetAsync(void* p, int value, size_t n, void*) { std::memset(p, value, n); return 0; }
int cudaMemcpy(void* to, const void* from, size_t n, int) { std::memcpy(to, from, n); return 0; }
int cudaDeviceSynchronize() { return captures ? 900 : 0; }
int cudaStreamSynchronize(void*) { return 0; }
int cudaStreamIsCapturing(void*, int* status) { *status = captures; return 0; }
int cudaThreadExchangeStreamCaptureMode(int*) { return 0; }
int cudaStreamCreateWithFlags(void** stream, unsigned) { *stream = nullptr; return 0; }
int cudaGetLastError() { return 0; }
char* target = nullptr;
int cudaLaunchKernel(const void*, unsigned long, unsigned, unsigned long, unsigned, void**,
                     unsigned long, void*) { *target = 1; return 0; }
int cudaFuncGetName(const char** name, const void*) { *name = "_Z12scale_kernelPf"; return 0; }
}
"""
_STRANGER = """
struct Dim3 { unsigned x, y, z; };
extern "C" int cudaLaunchKernel(const void*, Dim3, Dim3, void**, unsigned long, void*);
extern "C" int launch() { return cudaLaunchKernel(nullptr, {1, 1, 1}, {32, 1, 1}, nullptr, 0, 0); }
"""
_PROCESS = """
import ctypes, json, sys
runtime = ctypes.CDLL(sys.argv[1])
from kernelwright.toolchain import launches
from kernelwright.toolchain.guards import Guards
launches.known_homes = lambda: ("/nowhere/",)
library = ctypes.CDLL(sys.argv[2])
library.kw_guards_allocate.restype = ctypes.c_void_p
library.kw_guards_allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.kw_guards_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
guards = Guards(sys.argv[2])
allocate = lambda size: library.kw_guards_allocate(size, 0, None)
free = lambda pointer: library.kw_guards_free(pointer, 0, 0, None)
poke = lambda address, count: ctypes.memset(address, 0, count)
number = lambda name: ctypes.c_int.in_dll(runtime, name)

def tell(name):
    found = [(o.side, o.first, o.last, o.count, o.size, o.kernel) for o in guards.look()]
    print(json.dumps([name, found]))

first, second = allocate(516), allocate(1)
print(json.dumps(["aligned", [first % 16 == second % 16 == 0]]))
print(json.dumps(["nan", [ctypes.string_at(first, 516) == b"\\xff" * 516]]))
poke(first, 516); tell("inside")
poke(first + 516, 4); poke(second - 8, 8); tell("outside")
tell("again")
poke(second + 1 + 252, 1); free(second); tell("freed")
print(json.dumps(["as large as before", [allocate(1) == second, allocate(1) != second]]))
free(first); poke(first + 516, 1); third = allocate(516)
print(json.dumps(["not before a look", [third != first]])); tell("written after it was freed")
number("captures").value = 1
kept = allocate(64); free(kept)
number("captures").value = 0
poke(kept + 64, 1); tell("of a graph"); tell("whole again")
print(json.dumps(["a graph's memory stays", [allocate(64) != kept]]))
number("room").value = 0
free(third); guards.look()
print(json.dumps(["what was kept is given back", [bool(allocate(4096))]]))
stranger = ctypes.CDLL(sys.argv[3])
ctypes.c_void_p.in_dll(runtime, "target").value = kept + 64
watch = launches.Launches.of_this_process()
with guards.blaming(watch):
    stranger.launch()
tell("blamed")
stranger.launch(); tell("not blamed")
"""


def _compile(text: str, path: Path, *flags: str) -> Path:
    source = path.with_suffix(".cpp")
    source.write_text(text)
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", path, *flags], check=True)
    return path


def test_what_is_written_outside_of_tensors_is_seen(tmp_path: Path) -> None:
    runtime = _compile(_RUNTIME, tmp_path / "libcudart.so")
    link = (f"-L{tmp_path}", "-lcudart", f"-Wl,-rpath,{tmp_path}")
    stranger = _compile(_STRANGER, tmp_path / "extension.so", *link)
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, runtime, guards_library(), stranger],
        env={**os.environ, "LD_PRELOAD": str(launches_library())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = dict(json.loads(line) for line in done.stdout.splitlines())
    assert said == {
        "aligned": [True],
        "nan": [True],
        "inside": [],
        "outside": said["outside"],
        "again": [],
        "freed": [["behind", 252, 253, 1, 1, ""]],
        "as large as before": [True, True],
        "not before a look": [True],
        "written after it was freed": [["behind", 0, 1, 1, 516, ""]],
        "of a graph": [["behind", 0, 1, 1, 64, ""]],
        "whole again": [],
        "a graph's memory stays": [True],
        "what was kept is given back": [True],
        "blamed": [["behind", 0, 1, 1, 64, "scale_kernel(float*)"]],
        "not blamed": [["behind", 0, 1, 1, 64, ""]],
    }
    assert sorted(said["outside"]) == [
        ["before", 0, 8, 8, 1, ""],
        ["behind", 0, 4, 4, 516, ""],
    ]
