"""Every kernel compiles for Hopper without spilling a register. Needs nvcc, no GPU."""

import pytest

from kernelwright import kernels
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")

_POINTWISE = """
struct Combine {
  float s;
  __device__ float operator()(float a, float b) const { return relu(a * s + b); }
};
struct Config { static constexpr int THREADS = 256, WIDTH = %(width)d, UNROLL = %(unroll)d; };
using Kernel = Pointwise<Config, Combine, %(type)s, %(type)s, float>;
__global__ void __launch_bounds__(256) flat_kernel(Kernel::Contiguous x) { x.run(); }
__global__ void __launch_bounds__(256) rows_kernel(Kernel::Rows x) { x.run(); }
__global__ void __launch_bounds__(256) strided_kernel(Kernel::Strided x) { x.run(); }
cudaError_t launch(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Kernel::Kernels kernels = {flat_kernel, rows_kernel, strided_kernel};
  return Kernel::launch(kernels, Combine{2.0f}, nullptr, out, a, b);
}
"""

_GEMM = """
struct BiasRelu {
  __device__ %(sum)s operator()(%(sum)s sum, %(sum)s bias) const { return relu(sum + bias); }
};
using Problem = Gemm<%(type)s, %(type)s, BiasRelu, %(type)s>;
template <Major L, Major R>
struct Config {
  static constexpr int BLOCK_M = %(m)d, BLOCK_N = %(n)d, BLOCK_K = %(k)d;
  static constexpr int THREAD_M = %(tm)d, THREAD_N = %(tn)d, STAGES = %(stages)d;
  static constexpr int PROMOTE_K = %(promote)d, MIN_TILES = 0;
  static constexpr Major LHS = L, RHS = R;
};
template <class Config>
__global__ void __launch_bounds__((GemmTile<Config, Problem>::THREADS),
                                  (GemmTile<Config, Problem>::MIN_BLOCKS))
    product_kernel(Problem problem) {
  gemm_simt<Config>(problem);
}
template <Major L, Major R>
cudaError_t launch(const Problem& problem) {
  using Here = Config<L, R>;
  return launch_gemm(problem, nullptr, nullptr, GemmVariant<Here, Problem>{product_kernel<Here>});
}
"""
_LAYOUT = "template cudaError_t launch<Major::{}, Major::{}>(const Problem&);\n"

_LARGE = {"m": 128, "n": 128, "k": 16, "tm": 8, "tn": 8, "stages": 2, "promote": 512}
_WIDE = {"m": 128, "n": 256, "k": 16, "tm": 8, "tn": 16, "stages": 3, "promote": 512}
_SMALL = {"m": 64, "n": 64, "k": 16, "tm": 4, "tn": 4, "stages": 3, "promote": 512}
_FLOAT = {"type": "float", "sum": "float"}
_LAYOUTS = (("K", "MN"), ("K", "K"), ("MN", "MN"), ("MN", "K"))


def _expect_no_spills(text: str, kernel_count: int) -> None:
    report = compile_check(text)
    assert len(report.kernels) == kernel_count
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []


@pytest.mark.parametrize(("type_", "width"), [("float", 4), ("__half", 8), ("double", 2)])
def test_pointwise(type_: str, width: int) -> None:
    text = kernels.inline("pointwise.cuh", "math.cuh", "half.cuh")
    body = _POINTWISE % {"type": type_, "width": width, "unroll": 2}
    _expect_no_spills(text + body, 3)


@pytest.mark.parametrize("tile", [_LARGE, _WIDE], ids=["large", "wide"])
def test_gemm_in_every_layout(tile: dict[str, int]) -> None:
    layouts = "".join(_LAYOUT.format(*layout) for layout in _LAYOUTS)
    text = kernels.inline("gemm_simt.cuh", "gemm_launch.cuh", "math.cuh")
    _expect_no_spills(text + _GEMM % (_FLOAT | tile) + layouts, len(_LAYOUTS))


@pytest.mark.parametrize("tile", [_SMALL, _SMALL | {"m": 32}], ids=["64x64", "32x64"])
def test_small_and_general_gemm(tile: dict[str, int]) -> None:
    layouts = _LAYOUT.format("K", "K") + _LAYOUT.format("NONE", "NONE")
    text = kernels.inline("gemm_simt.cuh", "gemm_launch.cuh", "math.cuh")
    _expect_no_spills(text + _GEMM % (_FLOAT | tile) + layouts, 2)


@pytest.mark.parametrize(("type_", "sum_"), [("__nv_bfloat16", "float"), ("double", "double")])
def test_gemm_of_other_types(type_: str, sum_: str) -> None:
    names = {"type": type_, "sum": sum_} | _SMALL | {"stages": 2}
    layouts = _LAYOUT.format("MN", "K") + _LAYOUT.format("NONE", "NONE")
    text = kernels.inline("gemm_simt.cuh", "gemm_launch.cuh", "math.cuh", "bfloat16.cuh")
    _expect_no_spills(text + _GEMM % names + layouts, 2)


def test_an_illegal_tile_says_why() -> None:
    tile = _FLOAT | _LARGE | {"m": 48}
    text = kernels.inline("gemm_simt.cuh", "gemm_launch.cuh", "math.cuh") + _GEMM % tile
    with pytest.raises(Exception, match="warps of LANES_M THREAD_M rows tile BLOCK_M"):
        compile_check(text + _LAYOUT.format("K", "K"))
