"""compute-sanitizer's reports, as it prints them."""

from kernelwright.emulator.findings import FindingKind
from kernelwright.verify.sanitizer_report import Tool, read_report, was_refused

_MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at swish_kernel(const float *, float *, long)+0xb0 in cuda.cu:7
=========     by thread (255,0,0) in block (15,0,0)
=========     Access at 0x7f2c6c004000 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: swish [0x1234] in swish.so
=========
========= Invalid __global__ read of size 4 bytes
=========     at swish_kernel(const float *, float *, long)+0xb0 in cuda.cu:7
=========     by thread (254,0,0) in block (15,0,0)
=========
========= Invalid __global__ read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<4>(int)+0x10
=========
========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 4 errors
"""
_RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at row_sum_kernel(const float *, float *, \
int)+0x4a0 in cuda.cu:12
=========     and Read access at row_sum_kernel(const float *, float *, int)+0x470 in cuda.cu:12
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_findings_name_kernel_line_and_thread_once_for_each_kernel() -> None:
    (finding,) = read_report(Tool.MEMCHECK, _MEMCHECK)
    assert finding.kind is FindingKind.OUT_OF_BOUNDS
    for word in ("swish_kernel", "cuda.cu:7", "thread (255,0,0) in block (15,0,0)"):
        assert word in finding.message


def test_a_race_is_read_from_its_headline() -> None:
    (finding,) = read_report(Tool.RACECHECK, _RACECHECK)
    assert finding.kind is FindingKind.RACE
    assert "row_sum_kernel" in finding.message
    assert "and Read access" in finding.message


def test_the_other_tools_are_read_too() -> None:
    uninitialised = (
        "========= Uninitialized __global__ memory read of size 4 bytes\n"
        "=========     at row_sum_kernel(float *)+0x90\n========= ERROR SUMMARY: 1 error\n"
    )
    barrier = (
        "========= Barrier error detected. Divergent thread(s) in block.\n"
        "=========     at row_sum_kernel(float *)+0x90\n========= ERROR SUMMARY: 1 error\n"
    )
    assert [it.kind for it in read_report(Tool.INITCHECK, uninitialised)] == [
        FindingKind.UNINITIALISED_READ
    ]
    assert [it.kind for it in read_report(Tool.SYNCCHECK, barrier)] == [
        FindingKind.BARRIER_DIVERGENCE
    ]


def test_a_tool_that_could_not_look_is_no_all_clear() -> None:
    assert was_refused("========= ERROR SUMMARY: 0 errors\n") == ""
    assert was_refused("========= Error: Device not supported. Please refer to ...\n")
    assert was_refused("") == "it printed no summary"
