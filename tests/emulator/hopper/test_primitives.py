"""Bulk copies, clusters, products of warpgroups and barriers give what the hardware gives."""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch

Build = Callable[..., Any]

SWIZZLE_NONE, SWIZZLE_32, SWIZZLE_64, SWIZZLE_128 = range(4)
_SPANS = {SWIZZLE_NONE: 16, SWIZZLE_32: 32, SWIZZLE_64: 64, SWIZZLE_128: 128}


def _box(data: torch.Tensor, place: list[int], box: list[int], swizzle: int) -> torch.Tensor:
    """The box as it must lie in shared memory; data [z][y][x], zeros around it."""
    pad = 300
    padded = torch.nn.functional.pad(data, [pad] * 6)
    x, y, z = (at + pad for at in place)
    inside = padded[z : z + box[2], y : y + box[1], x : x + box[0]]
    chunks = inside.contiguous().view(torch.uint8).view(-1, 16)
    number = torch.arange(len(chunks))
    moved = number ^ (number // 8 % (_SPANS[swizzle] // 16))
    return chunks[torch.argsort(moved)].flatten()


@pytest.mark.parametrize(
    ("dtype", "box", "place", "swizzle"),
    [
        (torch.float16, [64, 8, 1], [0, 0, 0], SWIZZLE_128),
        (torch.float16, [64, 20, 2], [32, 5, 1], SWIZZLE_128),
        (torch.float16, [64, 16, 1], [-8, -3, 0], SWIZZLE_128),
        (torch.float16, [32, 16, 1], [72, 2, 0], SWIZZLE_64),
        (torch.float16, [16, 16, 1], [0, 20, 2], SWIZZLE_32),
        (torch.float32, [32, 16, 2], [24, 17, 1], SWIZZLE_128),
        (torch.float32, [4, 3, 1], [79, 22, 0], SWIZZLE_NONE),
    ],
)
def test_box_with_swizzle_and_zeros_outside(
    build: Build, dtype: torch.dtype, box: list[int], place: list[int], swizzle: int
) -> None:
    unit = build("primitives")
    sizes = [80, 23, 3]
    data = torch.randn(sizes[2], sizes[1], sizes[0]).to(dtype)
    size = box[0] * box[1] * box[2] * dtype.itemsize
    out = torch.zeros(size, dtype=torch.uint8)
    arguments = (data, dtype.itemsize, sizes, box, place, swizzle, out)
    assert unit.run("run_fetch_box", *arguments) == 0
    assert torch.equal(out, _box(data, place, box, swizzle))
    assert unit.session.findings == ()


@pytest.mark.parametrize(
    "change",
    [
        {"address": 8},
        {"strides": (100, 3200)},
        {"box": (257, 1, 1)},
        {"box": (128, 8, 1)},
        {"box": (4, 8, 1)},
        {"sizes": (0, 8, 1)},
    ],
    ids=str,
)
def test_maps_that_the_driver_refuses(build: Build, change: dict[str, Any]) -> None:
    unit = build("primitives")
    data = torch.zeros(80 * 40, dtype=torch.float16)
    target = torch.zeros(256, dtype=torch.uint8)
    aligned = target.data_ptr() + -target.data_ptr() % 64
    given: dict[str, Any] = {"address": 0, "sizes": (80, 20, 1), "strides": (160, 3200)}
    given |= {"box": (64, 8, 1)}

    def encode(values: dict[str, Any]) -> int:
        sizes = (ctypes.c_uint64 * 3)(*values["sizes"])
        strides = (ctypes.c_uint64 * 2)(*values["strides"])
        box = (ctypes.c_uint32 * 3)(*values["box"])
        address = ctypes.c_void_p(data.data_ptr() + values["address"])
        fp16 = 6
        map_ = ctypes.c_void_p(aligned)
        return int(unit.run("encode", map_, address, fp16, sizes, strides, box, SWIZZLE_128))

    assert encode(given) == 0
    assert encode(given | change) == 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_multicast_in_a_cluster(build: Build, seed: int) -> None:
    unit = build("primitives", order_seed=seed)
    data = torch.randn(6, 64)
    out = torch.zeros(3, 4, 2, 64)
    assert unit.run("run_share_rows", data, 6, 4, out) == 0
    assert torch.equal(out, data.view(3, 1, 2, 64).expand(3, 4, 2, 64))
    assert unit.session.findings == ()


def test_blocks_send_each_other_their_shared_memory(build: Build) -> None:
    unit = build("primitives")
    out = torch.zeros(4, 64)
    assert unit.run("run_send_rows", 1, out) == 0
    assert out.tolist() == [[(1 - block % 2) * 100 + i for i in range(64)] for block in range(4)]
    assert unit.session.findings == ()
    unit.run("run_send_rows", 0, out)
    assert "fence" in unit.session.findings[0].message


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_runs_of_memory_and_words_between_blocks(build: Build, seed: int) -> None:
    unit = build("primitives", order_seed=seed)
    data = torch.randn(3 * 64)
    exact = data + torch.tensor([2.0, 3.0, 1.0]).repeat_interleave(64)
    assert unit.run("run_add_next", 3, 1, 0, data, torch.zeros(3, dtype=torch.int64)) == 0
    assert torch.equal(data, exact)
    assert unit.session.findings == ()


@pytest.mark.parametrize(("fenced", "shift", "message"), [(0, 0, "fence"), (1, 1, "16 bytes")])
def test_runs_of_memory_that_a_device_may_not_move(
    build: Build, fenced: int, shift: int, message: str
) -> None:
    unit = build("primitives")
    data = torch.zeros(3 * 64)
    unit.run("run_add_next", 2, fenced, shift, data, torch.zeros(2, dtype=torch.int64))
    assert message in unit.session.findings[0].message


def test_blocks_that_do_not_run_at_the_same_time(build: Build) -> None:
    unit = build("primitives")
    words = torch.zeros(2**14, dtype=torch.int64)
    assert unit.run("run_add_next", 2**14, 1, 0, torch.zeros(2**20), words) == 720


def test_places_in_clusters(build: Build) -> None:
    unit = build("primitives")
    out = torch.zeros(12, 3, dtype=torch.int32)
    assert unit.run("run_tell_place", out, 12, 4) == 0
    assert out.tolist() == [[block % 4, 4, block // 4] for block in range(12)]
    assert unit.session.findings == ()


@pytest.mark.parametrize(("blocks", "cluster"), [(3, 2), (32, 32)])
def test_clusters_that_a_device_refuses(build: Build, blocks: int, cluster: int) -> None:
    # 16 blocks are refused as well, unless a kernel without a symbol was allowed them before.
    unit = build("primitives")
    out = torch.zeros(3 * blocks, dtype=torch.int32)
    assert unit.run("run_tell_place", out, blocks, cluster) == 912


def _product(
    unit: Any, function: str, lhs: torch.Tensor, rhs: torch.Tensor, before: torch.Tensor, depth: int
) -> torch.Tensor:
    out = torch.zeros_like(before)
    assert unit.run(function, lhs, rhs, before, out, depth, 0, 0) == 0
    return out


@pytest.mark.parametrize("transpose_rhs", [0, 1])
@pytest.mark.parametrize("transpose_lhs", [0, 1])
@pytest.mark.parametrize(
    ("function", "n", "dtype"),
    [
        ("run_f16_64", 64, torch.float16),
        ("run_f16_128", 128, torch.float16),
        ("run_bf16_64", 64, torch.bfloat16),
    ],
)
def test_products_against_float64(
    build: Build, function: str, n: int, dtype: torch.dtype, transpose_lhs: int, transpose_rhs: int
) -> None:
    unit = build("primitives")
    lhs, rhs = torch.randn(64, 64).to(dtype), torch.randn(n, 64).to(dtype)
    before, out = torch.randn(64, n), torch.zeros(64, n)
    arguments = (lhs, rhs, before, out, 64, transpose_lhs, transpose_rhs)
    assert unit.run(function, *arguments) == 0
    exact = before.double() + lhs.double() @ rhs.double().T
    assert (out - exact).abs().max() < 1e-4
    assert (out - exact).abs().max() > 0
    assert unit.session.findings == ()


def _image(matrix: torch.Tensor, span: int, leading: int, stride: int, transposed: int) -> Any:
    """Shared memory with a 64 x 16 matrix in the layout of a descriptor (PTX ISA, "Matrix
    descriptor"): rows of `span` bytes, 16 without a swizzle."""
    image = torch.zeros(4096, dtype=torch.float16)
    for row in range(64):
        for k in range(16):
            if transposed:
                across, next_k = (stride, leading) if span == 16 else (leading, stride)
                place = row // (span // 2) * across + k // 8 * next_k
                place += k % 8 * span + row % (span // 2) * 2
            else:
                place = row // 8 * stride + row % 8 * span + k % 8 * 2
                place += k // 8 * (leading if span == 16 else 16)
            chunk = place // 128 % 8 % (span // 16)
            image[(place ^ chunk * 16) // 2] = matrix[row, k]
    return image


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("span", "code"), [(16, 0), (32, 3), (64, 2), (128, 1)])
def test_layouts_of_matrices(build: Build, span: int, code: int, transposed: int) -> None:
    unit = build("primitives")
    lhs, rhs = torch.randn(64, 16).half(), torch.randn(64, 16).half()
    leading, stride = (1024, 128) if span == 16 else (2 * 8 * span, 8 * span)
    out = torch.zeros(64, 64)
    images = [_image(matrix, span, leading, stride, transposed) for matrix in (lhs, rhs)]
    descriptor = leading // 16 << 16 | stride // 16 << 32 | code << 62
    matrix = (ctypes.c_uint64 * 1)(descriptor)
    assert unit.run("run_multiply_images", *images, 8192, matrix, transposed, out) == 0
    assert (out - lhs.double() @ rhs.double().T).abs().max() < 1e-5
    assert unit.session.findings == ()


def test_product_with_a_factor_in_registers(build: Build) -> None:
    unit = build("primitives")
    lhs, rhs = torch.randn(64, 16).half(), torch.randn(64, 16).half()
    out = torch.zeros(64, 64)
    image = _image(rhs, 128, 16, 1024, 0)
    assert unit.run("run_multiply_fragments", lhs, image, out) == 0
    assert (out - lhs.double() @ rhs.double().T).abs().max() < 1e-5
    assert unit.session.findings == ()


def _bits(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)


@pytest.mark.parametrize(
    ("products", "before", "expected"),
    [
        # Below 2^-25 of the largest each term is lost, however many there are of them.
        ([(1.0, 1.0), *[(2.0**-13, 2.0**-13)] * 15], 0.0, 1.0),
        # Four terms of 2^-25 make one unit of the 23 places that are left.
        ([(1.0, 1.0), *[(2.0**-12, 2.0**-13)] * 7], 0.0, 1.0 + 2.0**-23),
        # The sum is truncated, not rounded: 1 - 2^-25 becomes the number below 1.
        ([(-(2.0**-12), 2.0**-13)], 1.0, 1.0 - 2.0**-24),
        # Terms are truncated toward zero before they are added, whatever their sign.
        ([(1.0, 1.0), (-(2.0**-13), 2.0**-13)], 0.0, 1.0),
        # 1.5 * 1.5 has exponent 0 for the alignment, though it is more than 2.
        ([(1.5, 1.5), *[(2.0**-12, 2.0**-13)] * 8], 0.0, 2.25 + 2.0**-22),
        # Subnormal factors and sums are numbers.
        ([(2.0**-24, 2.0**-24)], 0.0, 2.0**-48),
        ([], 2.0**-149, 2.0**-149),
        ([(65504.0, 65504.0)], 0.0, 65504.0**2),
        ([(float("inf"), 1.0)], 0.0, float("inf")),
    ],
)
def test_truncation_bit_by_bit(
    build: Build, products: list[tuple[float, float]], before: float, expected: float
) -> None:
    unit = build("primitives")
    lhs, rhs = torch.zeros(64, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16)
    for k, (a, b) in enumerate(products):
        lhs[5, k], rhs[9, k] = a, b
    sums = torch.zeros(64, 64)
    sums[5, 9] = before
    out = _product(unit, "run_f16_64", lhs, rhs, sums, 16)
    assert _bits(out[5, 9].item()) == _bits(expected)


def test_not_a_number(build: Build) -> None:
    unit = build("primitives")
    lhs, rhs = torch.zeros(64, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16)
    lhs[0, 3] = float("inf")
    out = _product(unit, "run_f16_64", lhs, rhs, torch.zeros(64, 64), 16)
    assert (out.view(torch.int32)[0] == 0x7FFFFFFF).all()
    assert (out[1:] == 0).all()


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_producer_and_consumer(build: Build, seed: int) -> None:
    unit = build("primitives", order_seed=seed)
    data = torch.randint(100, (9, 32), dtype=torch.int32)
    out = torch.zeros_like(data)
    assert unit.run("run_pass_on", data, out, 9) == 0
    assert torch.equal(out, data[:, torch.arange(32) ^ 1] + 1)
    assert unit.session.findings == ()


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_named_barriers_of_some_warps(build: Build, seed: int) -> None:
    unit = build("primitives", order_seed=seed)
    out = torch.zeros(128, dtype=torch.int32)
    assert unit.run("run_meet_in_pairs", out) == 0
    assert out.tolist() == [i + (2 if i < 64 else 4) for i in range(128)]
    assert unit.session.findings == ()


def test_registers_move_and_one_lane_is_elected(build: Build) -> None:
    unit = build("primitives")
    elected = torch.zeros(1, dtype=torch.int32)
    assert unit.run("run_move_registers", elected) == 0
    assert elected.item() == 8
    assert unit.session.findings == ()
