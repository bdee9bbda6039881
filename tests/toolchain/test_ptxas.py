"""The report of ptxas, as nvcc 13.0 prints it."""

import pytest

from kernelwright.toolchain.ptxas import KernelReport, demangle, read_remarks, read_report

_OUTPUT = """ptxas info    : 64 bytes gmem
ptxas info    : Compiling entry function '_Z12scale_kernelILi64EEvPfPKffl' for 'sm_90a'
ptxas info    : Function properties for _Z12scale_kernelILi64EEvPfPKffl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 256 bytes smem, 380 bytes cmem[0]
ptxas info    : Compile time = 14.101 ms
ptxas info    : Compiling entry function '_Z6spillyPfi' for 'sm_90a'
ptxas info    : Function properties for _Z6spillyPfi
    4080 bytes stack frame, 4068 bytes spill stores, 5544 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 4080 bytes cumulative stack size
ptxas info    : Function properties for _Z6helperPf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


def test_read_report() -> None:
    assert read_report(_OUTPUT) == (
        KernelReport(
            symbol="_Z12scale_kernelILi64EEvPfPKffl", registers=12, shared_bytes=256, barriers=1
        ),
        KernelReport(
            symbol="_Z6spillyPfi",
            registers=32,
            stack_bytes=4088,
            spill_store_bytes=4072,
            spill_load_bytes=5548,
        ),
    )


def test_spills() -> None:
    scale, spilly = read_report(_OUTPUT)
    assert not scale.spills and spilly.spills
    assert str(scale) == "scale_kernel<64>: 12 registers, 256 bytes shared"
    assert str(spilly) == "spilly: 32 registers, 0 bytes shared, 4072 bytes spilled"


def test_nothing_compiled() -> None:
    assert read_report("ptxas info    : 0 bytes gmem\n") == ()


def test_remarks_are_kept_once() -> None:
    serialized = "(C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    output = f"ptxas info    : {serialized}\n" * 2 + _OUTPUT
    assert read_remarks(output) == (serialized,)
    assert read_remarks(_OUTPUT) == ()


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z12scale_kernelILi64EEvPfPKffl", "scale_kernel<64>"),
        ("_ZN12_GLOBAL__N_13fooEi", "foo"),
        ("_ZN2kw3addIfLi4EEEvPT_", "kw::add<float, 4>"),
        ("scale_launch", "scale_launch"),
        ("_Znonsense", "_Znonsense"),
    ],
)
def test_demangle(symbol: str, name: str) -> None:
    assert demangle(symbol) == name
