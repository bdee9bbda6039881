"""Every mistake is reported with its line and thread; the same kernel done right is not."""

import time
from typing import Any

import pytest
import torch

ILLEGAL_ADDRESS, MISALIGNED, TIMEOUT = 700, 716, 702


def _matrices(device: Any, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b = (device.know(torch.randint(-4, 5, (n, n)).float()) for _ in range(2))
    return a, b, device.know(torch.zeros(n, n))


def test_correct_matmul_has_no_findings_and_is_fast(faults: Any) -> None:
    a, b, c = _matrices(faults, 128)
    start = time.perf_counter()
    assert faults.run("run_matmul", a, b, c, 128, 1) == 0
    assert time.perf_counter() - start < 2
    assert faults.findings() == []
    assert torch.equal(c, a @ b)


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("threads", [1, 2])
def test_order_and_threads_change_nothing_in_a_correct_kernel(
    faults: Any, seed: int, threads: int
) -> None:
    faults.configure(order_seed=seed, threads=threads)
    a, b, c = _matrices(faults, 32)
    assert faults.run("run_matmul", a, b, c, 32, 1) == 0
    assert faults.findings() == []
    assert torch.equal(c, a @ b)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_matmul_without_second_barrier_is_a_race(faults: Any, seed: int) -> None:
    faults.configure(order_seed=seed)
    a, b, c = _matrices(faults, 32)
    assert faults.run("run_matmul", a, b, c, 32, 0) == 0
    found = faults.findings()
    assert {f["kind"] for f in found} == {"RACE"}
    reads = next(f for f in found if f["line"] == faults.line("multiplies"))
    assert reads["kernel"] == "matmul<false>"
    assert reads["other_line"] in (
        faults.line("overwrites"),
        faults.line("overwrites") + 1,
    )
    assert reads["thread"] != reads["other"]
    assert reads["file"].endswith("faults.cpp")


def test_write_past_the_end_of_a_tensor(faults: Any) -> None:
    out = faults.know(torch.zeros(40))
    assert faults.run("run_past_the_end", out, 40) == ILLEGAL_ADDRESS
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("OUT_OF_BOUNDS", faults.line("past the end"))
    assert (finding["block"], finding["thread"]) == ([1, 0, 0], [8, 0, 0])
    assert "0 bytes past the end of 'argument 0' (160 bytes)" in finding["message"]
    assert faults.run("take_error") == ILLEGAL_ADDRESS
    assert faults.run("run_past_the_end", out, 32) == ILLEGAL_ADDRESS  # the context is lost


@pytest.mark.parametrize(
    ("function", "mark"),
    [
        ("run_shared_past_the_end", "shared past the end"),
        ("run_dynamic_past_the_end", "dynamic past the end"),
    ],
)
def test_write_past_the_end_of_shared_memory(faults: Any, function: str, mark: str) -> None:
    out = faults.know(torch.zeros(64))
    assert faults.run(function, out) == ILLEGAL_ADDRESS
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("OUT_OF_BOUNDS", faults.line(mark))
    assert finding["thread"] == [32, 0, 0]


def test_null_pointer(faults: Any) -> None:
    out = faults.know(torch.zeros(64))
    assert faults.run("run_unwritten_global", 0, out) == ILLEGAL_ADDRESS
    assert "null pointer" in faults.the_finding()["message"]


def test_misaligned_vector(faults: Any) -> None:
    data, out = faults.know(torch.zeros(64)), faults.know(torch.zeros(4))
    assert faults.run("run_misaligned", data, out) == MISALIGNED
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("MISALIGNED", faults.line("misaligned"))
    assert "16 bytes" in finding["message"]


def test_unwritten_shared_memory(faults: Any) -> None:
    out = faults.know(torch.zeros(32))
    assert faults.run("run_unwritten_shared", out) == 0
    finding = faults.the_finding()
    assert finding["kind"] == "UNINITIALISED_READ"
    assert (finding["line"], finding["thread"]) == (faults.line("unwritten shared"), [5, 0, 0])
    assert out.isnan().nonzero().tolist() == [[5]]


def test_unwritten_tensor(faults: Any) -> None:
    data, out = faults.poisoned(32), faults.know(torch.zeros(32))
    data[:30] = 1.0
    assert faults.run("run_unwritten_global", data, out) == 0
    finding = faults.the_finding()
    assert finding["kind"] == "UNINITIALISED_READ"
    assert (finding["line"], finding["thread"]) == (faults.line("unwritten global"), [30, 0, 0])
    assert finding["count"] == 2


def test_threads_in_different_barriers(faults: Any) -> None:
    out = faults.know(torch.zeros(32))
    assert faults.run("run_different_barriers", out) == 0
    finding = faults.the_finding()
    assert finding["kind"] == "BARRIER_DIVERGENCE"
    assert finding["line"] == faults.line("second barrier")
    assert finding["other_line"] == faults.line("first barrier")


def test_threads_that_exit_before_a_barrier(faults: Any) -> None:
    out = faults.know(torch.zeros(32))
    assert faults.run("run_leaves", out, 20) == 0
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == (
        "BARRIER_DIVERGENCE",
        faults.line("not all come"),
    )
    assert finding["message"].startswith("12 threads")
    faults.reset()
    faults.know(out)
    assert faults.run("run_leaves", out, 32) == 0
    assert faults.findings() == []


def test_barrier_against_warp_operation(faults: Any) -> None:
    out = faults.know(torch.zeros(32))
    assert faults.run("run_lanes_and_barrier", out) == TIMEOUT
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("BARRIER_DIVERGENCE", faults.line("one lane"))


def test_waiting_for_a_flag_that_nobody_sets(faults: Any) -> None:
    faults.configure(stall_limit=0.1)
    flag = faults.know(torch.zeros(1, dtype=torch.int32))
    assert faults.run("run_waits", flag) == TIMEOUT
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("DEADLOCK", faults.line("spins"))


def test_time_limit(faults: Any) -> None:
    faults.configure(stall_limit=60, time_limit=0.1)
    flag = faults.know(torch.zeros(1, dtype=torch.int32))
    assert faults.run("run_waits", flag) == TIMEOUT
    assert "0.1" in faults.the_finding()["message"]


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_that_write_one_place(faults: Any, threads: int) -> None:
    faults.configure(threads=threads)
    out = faults.know(torch.zeros(4))
    assert faults.run("run_between_blocks", out) == 0
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("RACE", faults.line("between blocks"))
    assert finding["block"] != finding["other_block"]


def test_threads_that_read_neighbours_in_global_memory(faults: Any) -> None:
    data = faults.know(torch.zeros(128))
    assert faults.run("run_neighbours", data) == 0
    assert "RACE" in {f["kind"] for f in faults.findings()}
    assert {f["line"] for f in faults.findings()} <= {
        faults.line("neighbours"),
        faults.line("neighbours") - 1,
    }


def test_lanes_need_syncwarp(faults: Any) -> None:
    out = faults.know(torch.zeros(32))
    assert faults.run("run_warp", out, 1) == 0
    assert faults.findings() == []
    assert faults.run("run_warp", out, 0) == 0
    finding = next(f for f in faults.findings() if f["kind"] == "RACE")
    lines = {faults.line("writes row"), faults.line("without syncwarp")}
    assert {finding["line"], finding["other_line"]} == lines


def test_halves_of_one_word_do_not_race(faults: Any) -> None:
    out = faults.know(torch.zeros(64, dtype=torch.int16))
    assert faults.run("run_halves", out, 0) == 0
    assert faults.findings() == []
    assert faults.run("run_halves", out, 1) == 0
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("RACE", faults.line("halves"))
    assert (finding["thread"], finding["other"]) == ([2, 0, 0], [1, 0, 0])
    shifted = out.view(torch.uint8)[1:]
    assert faults.run("run_halves", shifted, 0) == MISALIGNED


def test_asynchronous_copy_waited_for(faults: Any) -> None:
    data, out = faults.know(torch.arange(32.0)), faults.know(torch.zeros(32))
    assert faults.run("run_async", data, out, 1) == 0
    assert faults.findings() == []
    expected = torch.arange(32.0)
    expected[29:] = 0  # the last copy takes 4 of 16 bytes
    assert torch.equal(out, expected)


@pytest.mark.parametrize("wait", [0, 2])
def test_asynchronous_copy_not_waited_for(faults: Any, wait: int) -> None:
    data, out = faults.know(torch.arange(32.0)), faults.know(torch.zeros(32))
    assert faults.run("run_async", data, out, wait) == 0
    finding = faults.the_finding()
    assert (finding["kind"], finding["line"]) == ("RACE", faults.line("copied"))
    assert "cp.async" in finding["message"]
    assert out.isnan().all()


@pytest.mark.parametrize(
    ("grid", "block", "shared_bytes", "error"),
    [(0, 32, 0, 9), (1, 0, 0, 9), (1, 1025, 0, 9), (1, 32, 50000, 1), (1, 1, 49152, 0)],
)
def test_launches_that_a_device_refuses(
    faults: Any, grid: int, block: int, shared_bytes: int, error: int
) -> None:
    out = faults.know(torch.zeros(4))
    assert faults.run("run_bad_configuration", out, grid, block, shared_bytes) == error
    assert faults.run("take_error") == error
    assert faults.run("take_error") == 0


def test_more_shared_memory_on_request(faults: Any, values: Any) -> None:
    out = faults.know(torch.zeros(4))
    assert values.run("allow_hidden_shared", 200000) == 0  # another library's, without a symbol
    assert faults.run("allow_shared", 228 << 10) == 1
    assert faults.run("run_bad_configuration", out, 1, 1, 150000) == 1
    assert faults.run("allow_shared", 200000) == 0
    assert faults.run("run_bad_configuration", out, 1, 1, 150000) == 0
