"""nvcc at work: reports, libraries, errors. Skipped where there is no nvcc."""

import ctypes
import time
from pathlib import Path
from threading import Event

import pytest

from kernelwright.errors import CompileError, NoCompilerError
from kernelwright.toolchain import cuda
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import (
    compile_check,
    compile_libraries,
    compile_library,
    compile_together,
    compiled_meanwhile,
)

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")

_SOURCE = """#include <cstdint>
template <int N>
__global__ void scale_kernel(float* y, const float* x, float s, int64_t n) {
  __shared__ float table[N];
  table[threadIdx.x % N] = s;
  __syncthreads();
  int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i] * table[i % N];
}
extern "C" int scale(const int64_t* words) {
  scale_kernel<64><<<1, 64>>>(nullptr, nullptr, 2.f, words[0]);
  return cudaGetLastError();
}
extern "C" int answer(const int64_t* words) { return static_cast<int>(words[0] + words[1]); }
"""


@needs_nvcc
def test_check_then_library(cache: Path) -> None:
    report = compile_check(_SOURCE)
    assert report.path.read_bytes().startswith(b"\x7fELF")
    (kernel,) = report.kernels
    assert (kernel.name, kernel.shared_bytes) == ("scale_kernel<64>", 256)
    assert 4 <= kernel.registers <= 64
    assert report.arch == "sm_90a" and report.spilling == ()

    started = time.monotonic()
    assert compile_check(_SOURCE) == report
    assert time.monotonic() - started < 0.1, "compiled again"
    assert compile_check(_SOURCE, "sm_80").path != report.path

    library = ctypes.CDLL(str(compile_library(_SOURCE)))
    assert library.answer((ctypes.c_int64 * 2)(40, 2)) == 42


@needs_nvcc
def test_spills_are_reported(cache: Path) -> None:
    source = """__global__ void __launch_bounds__(1024, 2) spilling(float* y, int n) {
  float a[120];
#pragma unroll
  for (int i = 0; i < 120; ++i) a[i] = y[i * n];
#pragma unroll
  for (int i = 0; i < 120; ++i) y[i * n + 1] = a[119 - i] * a[i];
}
"""
    (kernel,) = compile_check(source).spilling
    assert kernel.name == "spilling" and kernel.spill_store_bytes > 0


@needs_nvcc
def test_error_has_first_message_line_and_log(cache: Path) -> None:
    with pytest.raises(CompileError) as raised:
        compile_check(_SOURCE.replace("table[i % N]", "tabel[i % N]"))
    error = raised.value
    assert error.message == 'nvcc: identifier "tabel" is undefined'
    assert error.location is not None and error.log_path is not None
    file, _, line = error.location.rpartition(":")
    assert "tabel[i % N]" in Path(file).read_text().splitlines()[int(line) - 1]
    assert "1 error detected" in error.log_path.read_text()
    assert list((cache / "built").glob("*/*")) == []


@needs_nvcc
def test_many_at_a_time_each_with_its_own_outcome(cache: Path) -> None:
    sources = ["int good;", "int bad", _SOURCE.replace("scale", "other")]
    outcomes = dict(compile_libraries(sources, timeout=60.0))
    assert sorted(outcomes) == [0, 1, 2]
    assert isinstance(outcomes[1], CompileError)
    assert isinstance(outcomes[0], Path) and isinstance(outcomes[2], Path)
    assert outcomes[2] == compile_library(sources[2])


@needs_nvcc
def test_units_call_each_other_and_are_compiled_once(cache: Path) -> None:
    one = 'extern "C" int one(int value) { return value + 1; }'
    two = 'extern "C" int one(int value);\nextern "C" int two(int v) { return one(one(v)); }'
    heard: list[tuple[int, int]] = []
    library = compile_together([one, two], "both", on_unit=lambda *it: heard.append(it))
    assert library.name == "both.so"
    assert ctypes.CDLL(str(library)).two(40) == 42
    assert heard == [(1, 2), (2, 2)]
    made = set(cache.glob("built/object/*"))
    with pytest.raises(CompileError, match="undefined"):  # the linker, which has no text
        compile_together([one, one, two.replace("one", "none")], "other", on_unit=lambda *it: None)
    assert made < set(cache.glob("built/object/*")) and len(made) == 2
    assert len(set(cache.glob("built/object/*"))) == 3


def test_stops_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def slow(source: str, arch: str) -> Path:
        started.append(source)
        time.sleep(0.2)
        return Path(source)

    monkeypatch.setenv("KERNELWRIGHT_THREADS", "1")
    monkeypatch.setattr(cuda, "compile_library", slow)
    begun = time.monotonic()
    outcomes = list(compile_libraries([str(i) for i in range(20)], timeout=0.3))
    assert time.monotonic() - begun < 2.0
    assert [index for index, _ in outcomes] in ([], [0])
    time.sleep(0.4)
    assert len(started) <= 2, "went on compiling after the caller had what it wanted"


def test_texts_are_compiled_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    first = Event()

    def compile_object(text: str, arch: str) -> Path:
        begun.append(text)
        first.set()
        if text == "bad":
            raise CompileError("nvcc: no")
        time.sleep(0.1)
        return Path(text)

    monkeypatch.setenv("KERNELWRIGHT_THREADS", "1")
    monkeypatch.setattr(cuda, "_compile_object", compile_object)
    with compiled_meanwhile(lambda: ["bad", *map(str, range(20))]):
        assert first.wait(timeout=30)
    at_the_end = len(begun)
    time.sleep(0.4)
    assert len(begun) <= at_the_end + 1 < 20, "went on after the end"


def test_long_texts_begin_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores wait for the text that ends last: one that takes long must not begin at the end."""
    begun: list[str] = []

    def compile_object(text: str, arch: str) -> Path:
        begun.append(text)
        return Path(f"{text}.o")

    monkeypatch.setenv("KERNELWRIGHT_THREADS", "1")
    monkeypatch.setattr(cuda, "_compile_object", compile_object)
    made = dict(cuda._objects(["b", "cccc", "aa"], "sm_90a"))
    assert begun == ["cccc", "aa", "b"]
    assert made == {text: Path(f"{text}.o") for text in begun}


def test_no_nvcc_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("KERNELWRIGHT_NVCC", "/no/such/nvcc")
    with pytest.raises(NoCompilerError, match="/no/such/nvcc"):
        compile_check("int x;")
