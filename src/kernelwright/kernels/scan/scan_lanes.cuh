#pragma once
// Running totals of short rows whose elements are neighbours in memory, and that may begin
// anywhere: a warp reads a row at once, element by element, each lane adds up a run of it, and
// shared memory stands between both orders. A config has
//   ITEMS  elements of a lane; odd, so that lanes read different banks
//   WARPS  warps of a block

#include "scan.cuh"
#include "scan_row.cuh"

template <class Config, class Problem>
struct LaneScan {
  using Value = typename Problem::Value;
  using Operation = typename Problem::Operation;
  static constexpr Running RUNNING = Problem::RUNNING;
  static constexpr int ITEMS = Config::ITEMS, WARPS = Config::WARPS, THREADS = 32 * WARPS;
  static constexpr int LONGEST = 32 * ITEMS;
  static_assert(RUNNING == Running::SUM, "parts of products are wider than their elements");
  static_assert(ITEMS % 2 == 1, "lanes read different banks");
  using Row = ScanRow<Problem, 1>;

  // Place in the order of the scan.
  __device__ __forceinline__ static int in_order(int at, int length) {
    return Operation::REVERSE ? length - 1 - at : at;
  }

  __device__ __forceinline__ static void run(const Problem& problem, const Row& row, Value* places,
                                             int lane) {
    const int length = static_cast<int>(row.length);
    typename Problem::template BeforeVectors<1> inputs[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int at = k * 32 + lane;
      if (at < length) {
        row.template load_all<false, 1>(inputs[k], at, 1, typename Problem::BeforeIndices());
      }
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int at = k * 32 + lane;
      if (at < length) {
        Value value[1];
        problem.template accumulated<1>(value, row.element + at, inputs[k],
                                        typename Problem::BeforeIndices());
        places[in_order(at, length)] = value[0];
      }
    }
    __syncwarp();
    add_up(places + lane * ITEMS, length - lane * ITEMS, lane);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int at = k * 32 + lane;
      if (at >= length) continue;
      typename Problem::template AfterVectors<1> others;
      row.template load_all<false, Problem::FIRST_AFTER>(others, at, 1,
                                                         typename Problem::AfterIndices());
      const Value total[1] = {places[in_order(at, length)]};
      row.template store<false>(at, 1,
                                problem.template results<1>(total, row.element + at, others,
                                                            typename Problem::AfterIndices()));
    }
  }

 private:
  // Makes a lane's run, of which `count` elements are there, totals of the row.
  __device__ __forceinline__ static void add_up(Value* run, int count, int lane) {
    Value values[ITEMS];
    Value own = neutral_total<RUNNING, Value>();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      values[i] = i < count ? run[i] : neutral_total<RUNNING, Value>();
      own = i == 0 ? values[0] : combine<RUNNING>(own, values[i]);
      values[i] = own;
    }
    const Value to_left = __shfl_up_sync(0xffffffff, warp_running_total<RUNNING>(own, lane), 1);
    const Value before = lane == 0 ? neutral_total<RUNNING, Value>() : to_left;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const Value total = Operation::EXCLUSIVE
                              ? i == 0 ? before : combine<RUNNING>(before, values[i - 1])
                              : combine<RUNNING>(before, values[i]);
      if (i < count) run[i] = total;
    }
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void scan_lanes(const Problem& problem) {
  wait_for_previous_kernel();
  using Scan = LaneScan<Config, Problem>;
  __shared__ typename Scan::Value shared[Scan::WARPS][Scan::LONGEST];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t number = blockIdx.x * int64_t{Scan::WARPS} + warp;
  if (number >= problem.rows) return;
  Scan::run(problem, typename Scan::Row(problem, number), shared[warp], lane);
}
