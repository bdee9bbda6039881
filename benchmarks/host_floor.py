"""What a call on this host cannot be cheaper than: launches from C, and functions of PyTorch.

    python benchmarks/host_floor.py --output benchmarks/results/host_floor_h200.json

Microseconds of wall time. An empty kernel is launched by a loop in C, so often that none waits for
the card; what Python calls is the least of many calls.
"""

import argparse
import ctypes
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from provenance import provenance

_SOURCE = r"""
#include <chrono>
#include <cuda_runtime.h>

struct Large { int64_t words[64]; };
__global__ void empty() {}
__global__ void large(const __grid_constant__ Large) {}

template <class F>
static double microseconds(int count, F work) {
  cudaDeviceSynchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) work();
  const auto end = std::chrono::steady_clock::now();
  cudaDeviceSynchronize();
  return std::chrono::duration<double, std::micro>(end - start).count() / count;
}
template <class F>
static double least(F work) {
  double found = 1e9;
  for (int i = 0; i < 50; ++i) {
    const double now = microseconds(30, work);
    found = now < found ? now : found;
  }
  return found;
}

extern "C" void nothing(const char*) {}
extern "C" void measure(void* stream, double* out) {
  const auto on = static_cast<cudaStream_t>(stream);
  int device;
  out[0] = least([&] { empty<<<1, 32, 0, on>>>(); });
  out[1] = least([&] { large<<<1, 32, 0, on>>>(Large{}); });
  out[2] = least([&] { cudaGetDevice(&device); });
  out[3] = least([&] {
    cudaFuncSetAttribute(empty, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
  });
  out[4] = least([&] { cudaGetLastError(); });
}
"""
_IN_C = ("launch", "launch, 512 bytes of arguments", "cudaGetDevice", "cudaFuncSetAttribute")
_IN_C += ("cudaGetLastError",)


def main() -> None:
    """Measure and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    library = _built()
    x = torch.rand(64, 64, device="cuda")
    p = torch.nn.Parameter(x)
    results = (ctypes.c_double * len(_IN_C))()
    stream = torch.cuda.current_stream().cuda_stream
    library.measure(ctypes.c_void_p(stream), results)
    rows = dict(zip(_IN_C, (round(it, 2) for it in results), strict=True))
    for name, function in _calls(library, x, p).items():
        rows[name] = _least(function)
    print(rows, flush=True)
    report = {"provenance": provenance(), "microseconds": rows}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def _calls(
    library: ctypes.CDLL, x: torch.Tensor, p: torch.nn.Parameter
) -> dict[str, Callable[[], object]]:
    device = x.device
    raw = torch._C._cuda_getCurrentRawStream
    return {
        "Python function": lambda: None,
        "ctypes": lambda: library.nothing(b"12345678"),
        "torch.empty": lambda: torch.empty((64, 64), dtype=torch.float32, device=device),
        "torch.empty_like": lambda: torch.empty_like(x),
        "torch.cuda.current_stream": lambda: torch.cuda.current_stream(device).cuda_stream,
        "raw stream": lambda: raw(0),
        "address, sizes, strides, dtype": lambda: (p.data_ptr(), p.shape, p.stride(), p.dtype),
        "torch.relu": lambda: torch.relu(x),
    }


def _least(function: Callable[[], object]) -> float:
    found = float("inf")
    for turn in range(2000):
        start = time.perf_counter_ns()
        function()
        found = min(found, time.perf_counter_ns() - start)
        if turn % 100 == 0:
            torch.cuda.synchronize()
    return round(found / 1e3, 2)


def _built() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "floor.cu"), Path(folder, "floor.so")
        source.write_text("#include <cstdint>\n" + _SOURCE)
        options = ["-O3", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-fPIC", "-shared"]
        subprocess.run(["nvcc", *options, "-o", str(library), str(source)], check=True)
        return ctypes.CDLL(str(library))


if __name__ == "__main__":
    main()
