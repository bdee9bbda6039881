"""Results of warp operations, atomics and sixteen-bit floats; honest patterns are not accused."""

import ctypes
from typing import Any

import pytest
import torch


def test_warp_operations(values: Any) -> None:
    lane = torch.arange(32)
    data = values.know((lane * 7 % 32).int())
    out = values.know(torch.zeros(352, dtype=torch.int32))
    assert values.run("run_shuffles", data, out) == 0
    assert values.findings() == []
    v, rows = data.tolist(), out.view(11, 32).tolist()
    lanes = range(32)
    bits = lambda chosen: sum(1 << i for i in chosen) - (1 << 32) * (31 in chosen)  # noqa: E731
    assert rows[0] == [v[5]] * 32
    assert rows[1] == [v[i - 3] if i >= 3 else v[i] for i in lanes]
    assert rows[2] == [v[i + 7] if i % 16 + 7 < 16 else v[i] for i in lanes]
    assert rows[3] == [v[i ^ 9] for i in lanes]
    assert rows[4] == [bits([i for i in lanes if v[i] % 3 == 0])] * 32
    assert rows[5] == [1] * 32
    assert rows[6] == [bits([j for j in lanes if v[j] % 4 == v[i] % 4]) for i in lanes]
    assert rows[7] == [31 + sum(v)] * 32
    assert rows[8] == [v[i ^ 1] for i in lanes]
    assert rows[9] == [0x55555555 if i % 2 == 0 else 0 for i in lanes]
    assert rows[10] == [v[min(i + 1, 31)] for i in lanes]


def test_barriers_that_count(values: Any) -> None:
    data = values.know(torch.arange(100, dtype=torch.int32))
    out = values.know(torch.zeros(100, dtype=torch.int32))
    assert values.run("run_counts", data, out) == 0
    assert out.tolist() == [5010] * 100


@pytest.mark.parametrize("threads", [1, 2])
def test_atomics(values: Any, threads: int) -> None:
    values.configure(threads=threads)
    counters = values.know(torch.zeros(5, dtype=torch.int32))
    total = values.know(torch.zeros(1))
    wrapped = values.know(torch.zeros(1, dtype=torch.int32))
    assert values.run("run_atomics", counters, total, wrapped) == 0
    assert values.findings() == []
    assert counters.tolist() == [512, 511, -63, 0x7FFFFFFF, 7]
    assert (total.item(), wrapped.item()) == (256.0, 512 % 10)


def test_sixteen_bit_rounding_is_that_of_torch(values: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.exp2(torch.randint(-26, 17, (4000,), generator=generator).float())
    a = values.know(torch.randn(4000, generator=generator) * scale)
    b = values.know(torch.randn(4000, generator=generator))
    out = values.know(torch.zeros(8 * 4000, dtype=torch.int16))
    assert values.run("run_rounds", a, b, out, 4000) == 0
    assert values.findings() == []
    got = out.view(8, 4000)
    ha, hb, ba, bb = a.half(), b.half(), a.bfloat16(), b.bfloat16()
    expected = [ha, ha + hb, ha * hb, ha / hb, ba, ba + bb, ba * bb]
    for row, want in zip(got, expected, strict=False):
        assert torch.equal(row, want.view(torch.int16))
    fused = (ha.double() * hb.double() + ha.double()).half()
    near = (got[7].view(torch.float16) == fused) | fused.isnan()
    # torch rounds double to half through float: a tie may go the other way.
    assert near.float().mean() > 0.99


@pytest.mark.parametrize("seed", [0, 1, 5])
@pytest.mark.parametrize("threads", [1, 2])
def test_last_block_reduction_is_not_accused(values: Any, seed: int, threads: int) -> None:
    values.configure(order_seed=seed, threads=threads)
    data = values.know(torch.arange(20 * 32).float())
    partial, total = values.poisoned(20), values.poisoned(1)
    assert values.run("run_last_block", data, partial, total, 20) == 0
    assert values.findings() == []
    assert total.item() == data.sum().item()


@pytest.mark.parametrize("seed", [0, 1, 5])
@pytest.mark.parametrize("threads", [1, 2])
def test_decoupled_look_back_is_not_accused(values: Any, seed: int, threads: int) -> None:
    values.configure(order_seed=seed, threads=threads)
    data = values.know(torch.arange(50).float())
    prefix, ready = values.poisoned(50), values.know(torch.zeros(50, dtype=torch.int32))
    assert values.run("run_look_back", data, prefix, ready, 50) == 0
    assert values.findings() == []
    assert torch.equal(prefix, data.cumsum(0))


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_lock_in_shared_memory_is_not_accused(values: Any, seed: int) -> None:
    values.configure(order_seed=seed)
    out = values.know(torch.zeros(1, dtype=torch.int32))
    assert values.run("run_locked", out) == 0
    assert values.findings() == []
    assert out.item() == 64


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_named_barrier_between_warps(values: Any, seed: int) -> None:
    values.configure(order_seed=seed)
    out = values.know(torch.zeros(32, dtype=torch.int32))
    assert values.run("run_named_barriers", out) == 0
    assert values.findings() == []
    assert out.tolist() == [3 * (31 - i) for i in range(32)]


def test_grid_barrier_is_unsupported(values: Any) -> None:
    out = values.know(torch.zeros(1, dtype=torch.int32))
    assert values.run("run_grid_sync", out) == 801
    assert values.the_finding()["kind"] == "UNSUPPORTED"
    assert out.item() == 0


def test_vectors_and_constants(values: Any) -> None:
    data, out = values.know(torch.arange(400.0)), values.poisoned(400)
    assert values.run("run_scales", data, out, 100) == 0
    assert values.findings() == []
    assert torch.equal(out.view(100, 4), data.view(100, 4) * torch.tensor([1.0, 2.0, 3.0, 4.0]))


def test_arguments_and_kernels_by_value(values: Any) -> None:
    out = values.know(torch.zeros(9))
    assert values.run("run_takes_weights", out) == 0
    assert out.tolist() == [2.0 + i for i in range(9)]
    assert values.run("run_typed_launch", out) == 0
    assert out.tolist() == [5.0 + i for i in range(9)]
    assert values.findings() == []


def test_memcpy_in_a_kernel_is_checked(values: Any) -> None:
    data, out = values.know(torch.arange(100.0)), values.know(torch.zeros(50))
    assert values.run("run_copies_memory", data, out, 200) == 0
    assert torch.equal(out, data[:50])
    assert values.run("run_copies_memory", data, out, 204) == 700
    finding = values.the_finding()
    assert (finding["kind"], finding["line"]) == ("OUT_OF_BOUNDS", values.line("memcpy"))


def test_assertion_in_a_kernel(values: Any, capfd: pytest.CaptureFixture[str]) -> None:
    out = values.know(torch.zeros(32, dtype=torch.int32))
    assert values.run("run_asserts", out) == 710
    assert "thread: [3,0,0] Assertion `threadIdx.x < 3` failed" in capfd.readouterr().err


def test_memory_of_the_runtime_api(values: Any) -> None:
    total = values.function("run_allocate_and_sum")
    total.restype = ctypes.c_float
    assert total(100) == 5050.0
    assert values.findings() == []


def test_intrinsics(values: Any) -> None:
    rounded = values.function("rounded_sum")
    rounded.restype = ctypes.c_float
    assert rounded(1) == 1 + 2**-23
    assert rounded(0) == 1 - 2**-24
    assert values.run("bits", 0b1011) & 0xFFFFFFFF == 0xD0000000 ^ (3 + 2800)
