"""The kernels' files as package data, and as the one text that an emitted file holds."""

import pytest

from kernelwright import kernels


def test_dependencies_come_first_and_once() -> None:
    order = kernels.closure("gemm_simt.cuh", "pointwise.cuh")
    assert len(set(order)) == len(order)
    for position, name in enumerate(order):
        needed = {
            line.split('"')[1]
            for line in kernels.source(name).splitlines()
            if line.startswith('#include "')
        }
        assert needed <= set(order[:position])


def test_inline_is_self_contained() -> None:
    text = kernels.inline(*kernels.names())
    assert '#include "' not in text and "#pragma once" not in text
    includes = [line for line in text.splitlines() if line.startswith("#include")]
    assert len(set(includes)) == len(includes)
    assert text.startswith("\n".join(includes))
    # No name of CUDA's C++ library, of cooperative groups or of PyTorch.
    assert not [line for line in includes if "cuda/" in line or "torch" in line or "coop" in line]


def test_dynamic_shared_memory_has_a_name_of_its_own_in_each_file() -> None:
    # Declarations of one name, in whatever function, are of one variable: they must be alike.
    declared = [
        line.strip().removesuffix("[];").split()[-1]
        for name in kernels.names()
        for line in kernels.source(name).splitlines()
        if line.strip().startswith("extern __shared__")
    ]
    assert len(declared) == len(set(declared)) > 3


def test_only_what_is_asked_for_is_inlined() -> None:
    text = kernels.inline("pointwise.cuh")
    assert "cp.async" not in text and "cuda_fp16" not in text and "gelu" not in text


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(KeyError, match=r"softmax\.cuh.*pointwise\.cuh"):
        kernels.source("softmax.cuh")


def test_device_code_has_no_macros() -> None:
    lines = [line for name in kernels.names() for line in kernels.source(name).splitlines()]
    assert not [line for line in lines if line.startswith("#define")]
    # Only what other cards and toolkits lack is left out, which nothing else can do.
    conditions = [line for line in lines if line.startswith("#if")]
    assert all("__CUDA_ARCH" in line or "CUDART_VERSION" in line for line in conditions)
    assert max(map(len, lines)) <= 100


def test_every_kernel_may_start_while_the_one_before_it_ends() -> None:
    lines = [line.strip() for name in kernels.names() for line in kernels.source(name).splitlines()]
    # One that the kernel after it need not wait for would not let that one come early: it waits for
    # all before it.
    usual = [line for line in lines if "<<<" in line]
    assert [line.split("<<<")[0] for line in usual] == ["clear_counters_kernel"]


def test_types_and_constants_of_two_files_have_two_names() -> None:
    # A file that is written may hold kernels of every family. Functions may be overloaded.
    owner: dict[str, str] = {}
    for name in kernels.names():
        code = "\n".join(
            line for line in kernels.source(name).splitlines() if not line.startswith("#")
        )
        for line in code.splitlines():
            words = line.split()
            if line.startswith(("struct ", "class ", "enum ", "constexpr ", "using ")):
                kept = [word for word in words if word not in ("struct", "class", "enum")]
                if line.startswith("constexpr "):
                    if "(" in line.split("=")[0]:
                        continue
                    kept = line.split("=")[0].split()[-1:]
                declared = kept[0].strip("{;").split("<")[0] if "<" not in kept[0] else ""
                if (declared and not line.rstrip().endswith(";")) or line.startswith("constexpr "):
                    assert owner.setdefault(declared, name) == name, declared


def test_who_does_not_need_what_a_row_updates_does_not_read_it() -> None:
    """A result by row may take the memory of an input, which only its writer may read then."""
    for name in kernels.names():
        assert "load_shared_inputs<Program::SHARED>(" not in kernels.source(name), name
