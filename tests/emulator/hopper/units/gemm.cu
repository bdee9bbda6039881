// The kernels' own matrix product on the tensor cores, for one layout of the factors.
#include "bfloat16.cuh"
#include "gemm_finish.cuh"
#include "gemm_launch.cuh"
#include "gemm_sm90.cuh"
#include "gemm_sm90_launch.cuh"
#include "gemm_split.cuh"
#include "half.cuh"
#include "wgmma_bf16.cuh"
#include "wgmma_f16.cuh"
#include "wgmma_tf32.cuh"

struct Plain {
  __device__ __forceinline__ float operator()(float sum) const { return sum; }
};
// With one value for a row, one for a column and one for each element, all of the results' type.
struct Joined {
  __device__ __forceinline__ float operator()(float sum, float row, float column, float at) const {
    return sum * row + column - at;
  }
};
// What is known of these.
#ifndef MASKS_OF_TEST
#define MASKS_OF_TEST 0, 0, 0
#endif
#ifdef JOINS
using Problem = Gemm<ELEMENT, RESULT, Joined, RESULT, RESULT, RESULT>;
#else
using Problem = Gemm<ELEMENT, RESULT, Plain>;
#endif

struct General {
  static constexpr int BLOCK_M = 32, BLOCK_N = 32, BLOCK_K = 16, THREAD_M = 4, THREAD_N = 4;
  static constexpr int STAGES = 2, PROMOTE_K = 0, MIN_TILES = 0;
  static constexpr Major LHS = Major::NONE, RHS = Major::NONE;
};
using GeneralVariant = GemmVariant<General, Problem>;

struct Tuned {
  using Instruction = INSTRUCTION;
  static constexpr Feed FEED = Feed::FEED_OF_TEST;
  static constexpr int STAGES = STAGES_OF_TEST, CLUSTER = CLUSTER_OF_TEST, SLICES = SLICES_OF_TEST;
  static constexpr int RESIDENT = RESIDENT_OF_TEST, TAPS = 1, PIXELS = 0;
  static constexpr bool TRANSPOSED = TRANSPOSED_OF_TEST;
  static constexpr Major LHS = Major::LHS_OF_TEST, RHS = Major::RHS_OF_TEST;
  static constexpr int64_t MIN_PRODUCTS = 0, LEAST_AHEAD = 0;
  using Masks = JoiningMasks<MASKS_OF_TEST>;
};
using TunedVariant = Sm90Variant<Tuned, Problem, GeneralVariant>;

__global__ void __launch_bounds__(TunedVariant::THREADS, RESIDENT_OF_TEST)
    tuned_kernel(const __grid_constant__ TunedVariant::Parameters parameters) {
  gemm_sm90<Tuned, Problem>(parameters);
}

__global__ void general_kernel(const __grid_constant__ Problem problem) {
  finish_gemm<General>(problem);
}

static Triangle kept = Triangle::NONE;
static int64_t diagonal = 0;

// 0: all of the result, 1: what is above the diagonal, 2: below.
extern "C" int keep(int part, int64_t from) {
  kept = static_cast<Triangle>(part);
  diagonal = from;
  return 0;
}

// words: the three tensors as the launch ABI has them, and those that join.
static Problem read_problem(Arguments& arguments) {
  const Tensor out = arguments.tensor(), lhs = arguments.tensor(), rhs = arguments.tensor();
#ifdef JOINS
  const Tensor row = arguments.tensor(), column = arguments.tensor(), at = arguments.tensor();
  Problem problem = Problem::describe(Joined{}, out, lhs, rhs, row, column, at);
#else
  Problem problem = Problem::describe(Plain{}, out, lhs, rhs);
#endif
  problem.triangle = kept;
  problem.may_round = true;
  problem.diagonal = diagonal;
  return problem;
}

extern "C" int64_t workspace(const int64_t* words) {
  Arguments arguments(words);
  return gemm_workspace(read_problem(arguments), TunedVariant{tuned_kernel, {general_kernel}});
}

extern "C" int launch(const int64_t* words, void* memory) {
  Arguments arguments(words);
  const Problem problem = read_problem(arguments);
  return launch_gemm(problem, arguments.stream(), memory,
                     TunedVariant{tuned_kernel, {general_kernel}});
}
