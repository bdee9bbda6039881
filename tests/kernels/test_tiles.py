"""Small tiles of the CUDA-core product: on the emulator, and under nvcc."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kernelwright import kernels
from kernelwright.schedule.many_small import TILES
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

_RUN = Path(__file__).parent / "tiles" / "run.py"
_MAJORS = ("K", "MN", "NONE")

# Batch sizes, m, k, n. Empty and single ones; a tile, less than one, and some more; a step of K,
# and one more; K = 45 carries infinity and NaN; K = 513 is too long for one sum.
_CASES: tuple[tuple[list[int], int, int, int], ...] = (
    ([2], 4, 0, 5),
    ([], 1, 1, 1),
    ([3], 64, 64, 16),
    ([2, 3], 3, 3, 132),
    ([2, 3], 17, 17, 65),
    ([3], 68, 45, 36),
    ([], 65, 16, 9),
    ([2], 5, 512, 8),
    ([2], 5, 513, 8),
)
# Of one sum of up to 512 products, relative to the sum of their absolute values.
_ALLOWED = 3e-6


def _members(tile: tuple[int, ...]) -> str:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "THREAD_M", "THREAD_N", "STAGES")
    return ", ".join(f"{name} = {value}" for name, value in zip(names, tile, strict=True))


def _reads(tile: tuple[int, ...]) -> list[tuple[str, str]]:
    """In which the tile can read: of factors without neighbours its threads read whole rows."""
    block_m, block_n, _, thread_m, thread_n, _ = tile
    threads = (block_m // thread_m) * (block_n // thread_n)
    return [
        (left, right)
        for left, right in product(_MAJORS, _MAJORS)
        if (left != "NONE" or threads % block_m == 0)
        and (right != "NONE" or threads % block_n == 0)
    ]


def _ways(tile: tuple[int, ...]) -> list[tuple[str, str]]:
    """Ways with every way to read either factor, other pairs of them for the next tile.

    A side is loaded by code that does not know how the other one lies.
    """
    turn, reads = TILES.index(tile), _reads(tile)
    lefts, rights = (list(dict.fromkeys(side)) for side in zip(*reads, strict=True))
    count = max(len(lefts), len(rights))
    return [
        (lefts[place % len(lefts)], rights[(place + turn) % len(rights)]) for place in range(count)
    ]


def test_every_pair_of_ways_has_a_tile() -> None:
    assert {way for tile in TILES for way in _ways(tile)} == set(product(_MAJORS, _MAJORS))
    assert all(set(_ways(tile)) <= set(_reads(tile)) for tile in TILES)


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_small_tiles_on_the_emulator(tile: tuple[int, ...], run_script: Callable[..., Any]) -> None:
    ways = _ways(tile)
    seen = run_script(_RUN, _members(tile), json.dumps(ways), json.dumps(_CASES))
    assert seen["findings"] == []
    assert sorted(seen["worst"]) == sorted(" ".join(way) for way in ways)
    assert max(seen["worst"].values()) <= _ALLOWED, seen["worst"]
    depths = {k for cases in seen["admitted"].values() for _, _, k, _ in cases}
    assert depths == {k for _, _, k, _ in _CASES if k <= 512}


_KERNEL = """
struct Decay {
  float bound;
  __device__ float operator()(float sum, float add, float scale, float of_row) const {
    return relu(add + sum * fmaxf(scale, bound)) * of_row;
  }
};
using Problem = Gemm<float, float, Decay, float, float, float>;
template <Major L, Major R>
struct Tile {
  static constexpr int %s;
  static constexpr int PROMOTE_K = 0, MIN_TILES = 0;
  static constexpr Major LHS = L, RHS = R;
};
template <class Config>
__global__ void __launch_bounds__((GemmTile<Config, Problem>::THREADS),
                                  (GemmTile<Config, Problem>::MIN_BLOCKS))
    tile_kernel(const __grid_constant__ Problem problem) {
  gemm_simt<Config>(problem);
}
template <Major L, Major R>
cudaError_t launch(const Problem& problem) {
  return launch_gemm(problem, nullptr, nullptr,
                     GemmVariant<Tile<L, R>, Problem>{tile_kernel<Tile<L, R>>});
}
"""


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_small_tiles_spill_nothing(tile: tuple[int, ...]) -> None:
    # Of the largest one, which needs most registers, every pair.
    ways = _reads(tile) if tile == TILES[0] else _ways(tile)
    launches = "".join(
        f"template cudaError_t launch<Major::{left}, Major::{right}>(const Problem&);\n"
        for left, right in ways
    )
    text = kernels.inline("gemm_simt.cuh", "gemm_launch.cuh", "math.cuh")
    report = compile_check(text + _KERNEL % _members(tile) + launches)
    assert len(report.kernels) == len(ways)
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []
