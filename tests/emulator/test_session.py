"""Sessions: what is replaced and put back, findings, faults, compile errors, the cache."""

import copy
import ctypes
import inspect
import io
import pickle
import struct
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.cpp_extension
from torch.utils.cpp_extension import load_inline as imported_load_inline

from kernelwright.emulator import EmulatorFault, Finding, FindingKind, Session
from kernelwright.emulator.findings import finding_from_json
from kernelwright.emulator.session import Kernels
from kernelwright.errors import CompileError, UnsupportedError

_SCALE = """\
__global__ void scale(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

extern "C" int launch_scale(const long* words) {
  scale<<<(words[2] + 31) / 32, 32>>>(reinterpret_cast<const float*>(words[0]),
                                      reinterpret_cast<float*>(words[1]), words[2]);
  return cudaGetLastError();
}
"""


def _library(source: str, name: str) -> ctypes.CDLL:
    """What a file of ours does: a library without PyTorch's headers, for ctypes."""
    torch.utils.cpp_extension.load_inline(
        name=name,
        cpp_sources="",
        cuda_sources=source,
        functions=None,
        extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
        is_python_module=False,
        no_implicit_headers=True,
    )
    return ctypes.CDLL(next(path for path in torch.ops.loaded_libraries if name in path))


def _launch(library: ctypes.CDLL, x: torch.Tensor, y: torch.Tensor, n: int) -> int:
    return int(library.launch_scale(struct.pack("3q", x.data_ptr(), y.data_ptr(), n)))


def test_launches_are_counted_by_name_and_a_silent_one_writes_nothing() -> None:
    for kernels, expected in ((Kernels.RUN, 2.0), (Kernels.SILENT, 7.0)):
        with Session() as session:
            session.switch(kernels)
            x, y = torch.ones(100, device="cuda"), torch.full((100,), 7.0, device="cuda")
            library = _library(_SCALE, "scale_to_count")
            assert _launch(library, x, y, 100) == 0
            assert session.take_launches() == {"scale": 1}
            assert session.take_launches() == {}
            assert _launch(library, x, y, 100) == 0  # and a session after this one counts its own
        assert torch.equal(y, torch.full((100,), expected))
        assert not session.findings


def test_a_kernel_runs_in_any_order() -> None:
    for seed in range(3):
        with Session(order_seed=seed, threads=1) as session:
            x = torch.arange(100, dtype=torch.float32, device="cuda")
            y = torch.empty_like(x)
            before = session.launches
            assert _launch(_library(_SCALE, "order_scale"), x, y, 100) == 0
            assert session.launches == before + 1
        assert torch.equal(y, 2 * x)
        assert session.findings == ()


def test_a_fault_is_a_cuda_error_for_ctypes_and_ends_with_the_session() -> None:
    with Session() as session:
        x = torch.ones(10)
        library = _library(_SCALE, "order_scale")
        assert _launch(library, x, torch.empty(10), 11) != 0
        with pytest.raises(EmulatorFault, match="read of 4 bytes") as caught:
            torch.cuda.synchronize()
        # As on a GPU, nothing works after it.
        assert _launch(library, x, torch.empty(10), 10) != 0
    (finding,) = session.findings
    assert caught.value.findings == (finding,)
    assert caught.value.location == "order_scale/cuda.cu:3"
    assert (finding.kind, finding.kernel) == (FindingKind.OUT_OF_BOUNDS, "scale")
    assert (finding.line, finding.block, finding.thread) == (3, (0, 0, 0), (10, 0, 0))
    with Session() as following:
        assert _launch(library, x, torch.empty(10), 10) == 0
        assert following.findings == ()
    assert session.findings == (finding,)


def test_memory_of_others_may_be_touched() -> None:
    before, numbers = torch.ones(10), np.full(10, 3, np.float32)
    with Session() as session:
        library, out = _library(_SCALE, "order_scale"), torch.empty(10)
        for x in (before, torch.from_numpy(numbers), torch.as_tensor(numbers)):
            assert _launch(library, x, out, 10) == 0
            assert torch.equal(out, 2 * x)
    assert session.findings == ()


def test_memory_that_is_no_tensors_of_its_own_may_be_touched() -> None:
    before, written = torch.ones(10), io.BytesIO()
    torch.save(before, written)
    with Session() as session:
        library, out = _library(_SCALE, "order_scale"), torch.empty(10)
        ways = {
            "deep copy": copy.deepcopy(before),
            "pickle": pickle.loads(pickle.dumps(before)),
            "file": torch.load(io.BytesIO(written.getvalue())),
            "shared": torch.ones(10).share_memory_(),
            "storage of so many bytes": torch.empty(0).set_(torch.UntypedStorage(40)).fill_(1),
            "storage of a buffer": torch.empty(0).set_(
                torch.UntypedStorage.from_buffer(bytearray(before.numpy()), dtype=torch.uint8)
            ),
        }
        for way, x in ways.items():
            assert _launch(library, x, out, x.numel()) == 0, way
            assert torch.equal(out[: x.numel()], 2 * x)
        assert _launch(library, copy.deepcopy(before), torch.empty(11), 11) != 0
    assert "40 bytes" in session.findings[0].message
    assert type(copy.deepcopy(before).untyped_storage()) is torch.UntypedStorage


def test_memory_given_back_is_forgotten() -> None:
    before = [torch.ones(2000) for _ in range(400)]
    with Session() as session:
        library, places = _library(_SCALE, "order_scale"), [x.data_ptr() for x in before]
        del before
        tensors = [torch.ones(6000) for _ in range(60)]
        there = [x for x in tensors if any(x.data_ptr() < p < x.data_ptr() + 24000 for p in places)]
        assert there  # The allocator gives the same memory again, else this shows nothing.
        for x in there:
            assert _launch(library, x, torch.empty(6000), 6000) == 0
    assert session.findings == ()


def test_what_nobody_wrote_is_no_number() -> None:
    with Session():
        assert torch.empty(8).isnan().all()
        assert torch.empty(8, dtype=torch.bfloat16).isnan().all()


def test_everything_is_put_back() -> None:
    library, here = torch.utils.cpp_extension, sys.modules[__name__]
    originals = library.load_inline, library.load, torch.cuda.is_available, torch.from_numpy
    with pytest.raises(ZeroDivisionError), Session():
        assert library.load_inline is not originals[0]
        # Also for those who had imported it before.
        assert here.__dict__["imported_load_inline"] is library.load_inline
        raise ZeroDivisionError
    assert (library.load_inline, library.load) == originals[:2]
    assert (torch.cuda.is_available, torch.from_numpy) == originals[2:]
    assert imported_load_inline is originals[0]


def test_load_inline_takes_what_pytorchs_takes() -> None:
    theirs = inspect.signature(torch.utils.cpp_extension.load_inline).parameters
    load = inspect.signature(torch.utils.cpp_extension.load).parameters
    with Session():
        ours = inspect.signature(torch.utils.cpp_extension.load_inline).parameters
        assert set(theirs) <= set(ours)
        assert set(load) <= set(inspect.signature(torch.utils.cpp_extension.load).parameters)
    assert [name for name in ours if name in theirs] == list(theirs)


@pytest.fixture
def candidate(tmp_path: Path) -> Callable[[str], ModuleType]:
    """Runs the text of a Python file as a module of its own."""

    def run(text: str) -> ModuleType:
        path = tmp_path / "candidate.py"
        path.write_text(textwrap.dedent(text))
        module = ModuleType("candidate")
        exec(compile(path.read_text(), str(path), "exec"), vars(module))
        return module

    return run


def test_a_compile_error_names_the_line_of_the_python_file(
    candidate: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    text = """\
    from torch.utils.cpp_extension import load_inline

    SOURCE = '''
    __global__ void broken(float* y) {
      y[threadIdx.x] = undeclared;
    }
    '''
    load_inline("broken", "", SOURCE, is_python_module=False, no_implicit_headers=True)
    """
    with Session(), pytest.raises(CompileError, match="undeclared") as caught:
        candidate(text)
    assert caught.value.location == f"{tmp_path / 'candidate.py'}:5"
    assert caught.value.log_path is not None
    assert "undeclared" in caught.value.log_path.read_text()


def test_files_are_translated_with_the_headers_beside_them(tmp_path: Path) -> None:
    (tmp_path / "twice.cuh").write_text(
        "template <class T> __global__ void twice(T* x) {\n"
        "  __shared__ T one;\n  if (threadIdx.x == 0) one = *x;\n  __syncthreads();\n"
        "  if (threadIdx.x == 1) *x = 2 * one;\n}\n"
    )
    (tmp_path / "twice.cu").write_text(
        '#include <cuda_runtime.h>\n#include "twice.cuh"\n'
        'extern "C" int run(float* x) { twice<float><<<1, 2>>>(x); return cudaGetLastError(); }\n'
    )
    with Session() as session:
        path = torch.utils.cpp_extension.load(
            "from_files", [str(tmp_path / "twice.cu")], is_python_module=False
        )
        x = torch.full((1,), 21.0)
        assert ctypes.CDLL(path).run(ctypes.c_void_p(x.data_ptr())) == 0
        with pytest.raises(UnsupportedError):
            torch.utils.cpp_extension.load("program", [], is_standalone=True)
    assert x.item() == 42.0
    assert session.findings == ()


def test_functions_must_be_a_list_or_a_dictionary() -> None:
    wrong: Any = 3
    with Session(), pytest.raises(ValueError, match="list or dict"):
        torch.utils.cpp_extension.load_inline("nothing", "", functions=wrong)


def test_a_finding_survives_json() -> None:
    finding = Finding(
        kind=FindingKind.RACE,
        kernel="k",
        file="k/cuda.cu",
        line=3,
        block=(1, 0, 0),
        thread=(2, 0, 0),
        other=(3, 0, 0),
        other_block=(1, 0, 0),
        other_line=None,
        count=4,
        message="reads",
    )
    assert finding_from_json(finding.to_json()) == finding
    assert finding.location == "k/cuda.cu:3"
