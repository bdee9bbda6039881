#pragma once
// Running totals of rows whose elements are neighbours in memory. Each row is read once and written
// once, in chunks one after the other: while one is added up, the next is on its way from memory.
//
// A row may begin anywhere. It is walked in vectors that are aligned in the result: the first and
// the last may be partly outside. A config has
//   WIDTH      elements of a vector
//   VECTORS    vectors of a chunk in each thread
//   WARPS      warps of a block
//   ROW_WARPS  warps that share a row: 1 or all
//   STAGES     chunks that are on their way to shared memory while one is added up; where there is
//              no room, or 0 is wanted, one is on its way to registers

#include "scan.cuh"
#include "scan_row.cuh"

// As many stages as fit the shared memory that a kernel has without asking for more.
constexpr int scan_stages(int wanted, size_t bytes) {
  constexpr size_t ROOM = 44 * 1024;
  const int fitting = static_cast<int>(ROOM / bytes);
  return fitting < wanted ? fitting : wanted;
}

// What elements make of a product that is zero: it stays, changes its sign, or may become NaN.
enum class ZeroKind { STAYS, TURNS, ENDS };

// What the threads that share a row do.
template <class Config, class Problem>
struct RowScan {
  using Value = typename Problem::Value;
  using Part = typename Problem::Part;
  using Total = RunningTotal<Problem::RUNNING, Value>;
  using Operation = typename Problem::Operation;
  static constexpr Running RUNNING = Problem::RUNNING;
  static constexpr int WIDTH = Config::WIDTH, VECTORS = Config::VECTORS;
  static constexpr int WARPS = Config::WARPS, ROW_WARPS = Config::ROW_WARPS;
  static_assert(ROW_WARPS == 1 || ROW_WARPS == WARPS, "one warp or the whole block has a row");
  static_assert(WARPS <= 32, "a block has at most 32 warps");
  static constexpr int THREADS = 32 * WARPS, ROWS = WARPS / ROW_WARPS;
  static constexpr int CHUNK = 32 * ROW_WARPS * VECTORS;

  using Row = ScanRow<Problem, WIDTH>;
  using Inputs = typename Problem::template BeforeVectors<WIDTH>;
  static constexpr int STAGES = scan_stages(Config::STAGES, sizeof(Inputs[VECTORS][THREADS]));
  // What the warps of a block have found in a chunk.
  struct Turn {
    Part totals[WARPS];
    ZeroKind kinds[Total::IS_PRODUCT ? WARPS : 1];  // of a product that is zero
  };
  // Those of two chunks, so that a barrier for each chunk is enough.
  struct Turns {
    Turn turns[2];
  };
  struct Ring : Turns {
    // A thread reads what it has copied itself, which takes no barrier.
    Inputs places[STAGES][VECTORS][THREADS];
  };
  using Shared = std::conditional_t<(STAGES > 0), Ring, Turns>;

  // Element i of a vector in the order of the scan.
  __device__ __forceinline__ static constexpr int in_order(int i) {
    return Operation::REVERSE ? WIDTH - 1 - i : i;
  }

  // A warp's vectors of a chunk lie one after the other.
  __device__ __forceinline__ static int64_t vector_of(int64_t chunk, int v, int warp, int lane) {
    return chunk + (warp * VECTORS + v) * 32 + lane;
  }

  // Vectors are counted along the scan; where they lie in memory.
  __device__ __forceinline__ static int64_t in_memory(const Row& row, int64_t vector) {
    return Operation::REVERSE ? row.vectors - 1 - vector : vector;
  }

  // Of WHOLE chunks every vector is whole.
  template <bool WHOLE>
  __device__ __forceinline__ static void load(Inputs (&inputs)[VECTORS], const Row& row,
                                              int64_t chunk, int64_t end, int warp, int lane) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int64_t vector = vector_of(chunk, v, warp, lane);
      if (WHOLE || vector < end) {
        const int64_t at = in_memory(row, vector);
        row.template load_all<WHOLE, 1>(inputs[v], at, WHOLE ? Row::ALL : row.held(at),
                                        typename Problem::BeforeIndices());
      }
    }
  }

  // What is accumulated of one vector, in the order of the scan; neutral outside of the row.
  template <bool WHOLE>
  __device__ __forceinline__ static void read(Value (&values)[WIDTH], const Problem& problem,
                                              const Row& row, int64_t vector, int64_t end,
                                              const Inputs& inputs) {
    const int64_t at = in_memory(row, vector);
    const unsigned mask = WHOLE ? Row::ALL : vector < end ? row.held(at) : 0;
    Value read[WIDTH];
    problem.template accumulated<WIDTH>(read, row.element + at * WIDTH, inputs,
                                        typename Problem::BeforeIndices());
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const bool counts = WHOLE || (mask >> in_order(i) & 1) != 0;
      values[i] = counts ? read[in_order(i)] : neutral_total<RUNNING, Value>();
    }
  }

  // Makes elements of a vector their running products after what comes `before` it.
  __device__ __forceinline__ static void multiply(Value (&values)[WIDTH], Part before) {
    Value products[WIDTH], product = static_cast<Value>(before);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) products[i] = product *= values[i];
    // What has left the range of a float stays outside, but a small element after it brings the
    // exact product back. Converting from double is slow, so only where that may be.
    if (!std::is_same_v<Value, Part> &&
        !(std::fabs(product) <= std::numeric_limits<Value>::max())) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) products[i] = static_cast<Value>(before *= values[i]);
    }
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) values[i] = products[i];
  }

  // Writes the results of one vector: its running totals after what comes before it.
  template <bool WHOLE>
  __device__ __forceinline__ static void write(const Value (&inclusive)[WIDTH], Value before,
                                               const Problem& problem, const Row& row,
                                               int64_t vector) {
    Value totals[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      totals[in_order(i)] = !Operation::EXCLUSIVE ? inclusive[i]
                            : i == 0              ? before
                                                  : inclusive[i - 1];
    }
    const int64_t at = in_memory(row, vector);
    const unsigned mask = WHOLE ? Row::ALL : row.held(at);
    typename Problem::template AfterVectors<WIDTH> inputs;
    row.template load_all<WHOLE, Problem::FIRST_AFTER>(inputs, at, mask,
                                                       typename Problem::AfterIndices());
    row.template store<WHOLE>(
        at, mask,
        problem.template results<WIDTH>(totals, row.element + at * WIDTH, inputs,
                                        typename Problem::AfterIndices()));
  }

  // With the sign of a product of so many negative numbers.
  __device__ __forceinline__ static Part signed_as(int negatives, Part value) {
    return negatives % 2 != 0 ? -value : value;
  }

  // A chunk of finite elements after a product that is zero: zeros follow, whose signs alone are
  // left to find. False, and nothing written, where an infinity or a NaN is among the elements.
  // Products of many numbers vanish soon, so that most of a long row is like this.
  template <bool WHOLE>
  __device__ __forceinline__ static bool add_to_zero(const Inputs (&inputs)[VECTORS], Total& carry,
                                                     Turn& turn, const Problem& problem,
                                                     const Row& row, int64_t chunk, int64_t end,
                                                     int warp, int lane) {
    bool is_finite = true;
    unsigned lanes[VECTORS], odd = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      Value values[WIDTH];
      read<WHOLE>(values, problem, row, vector_of(chunk, v, warp, lane), end, inputs[v]);
      bool is_odd = false;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        is_odd ^= std::signbit(values[i]);
        is_finite = is_finite && std::fabs(values[i]) <= std::numeric_limits<Value>::max();
      }
      lanes[v] = __ballot_sync(0xffffffff, is_odd);
      odd ^= lanes[v];
    }
    constexpr unsigned ALL = 0xffffffff;
    bool is_all_finite = __all_sync(ALL, is_finite);
    unsigned warps = static_cast<unsigned>(__popc(odd)) & 1;
    if constexpr (ROW_WARPS > 1) {
      const ZeroKind own = warps != 0 ? ZeroKind::TURNS : ZeroKind::STAYS;
      if (lane == 0) turn.kinds[warp] = is_all_finite ? own : ZeroKind::ENDS;
      __syncthreads();
      const ZeroKind kind = lane < WARPS ? turn.kinds[lane] : ZeroKind::STAYS;
      is_all_finite = __all_sync(ALL, kind != ZeroKind::ENDS);
      warps = __ballot_sync(ALL, kind == ZeroKind::TURNS);
    }
    if (!is_all_finite) return false;
    const Part before = signed_as(__popc(warps & ((1u << warp) - 1)), carry.high);
    carry.high = signed_as(__popc(warps), carry.high);
    odd = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int below = __popc(odd) + __popc(lanes[v] & ((1u << lane) - 1));
      const Value first = static_cast<Value>(signed_as(below, before));
      const int64_t vector = vector_of(chunk, v, warp, lane);
      Value values[WIDTH], product = first;
      read<WHOLE>(values, problem, row, vector, end, inputs[v]);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) values[i] = product *= values[i];
      if (WHOLE || vector < end) write<WHOLE>(values, first, problem, row, vector);
      odd ^= lanes[v];
    }
    return true;
  }

  // One chunk, whose inputs are there: `carry` grows by its total.
  template <bool WHOLE>
  __device__ __forceinline__ static void add_chunk(const Inputs (&inputs)[VECTORS], Total& carry,
                                                   Turn& turn, const Problem& problem,
                                                   const Row& row, int64_t chunk, int64_t end,
                                                   int warp, int lane) {
    if constexpr (Total::IS_PRODUCT) {
      if (carry.high == 0 &&
          add_to_zero<WHOLE>(inputs, carry, turn, problem, row, chunk, end, warp, lane)) {
        return;
      }
    }
    const Part nothing = neutral_total<RUNNING, Part>();
    // Of a sum running totals of each vector, and what comes before it in the warp; of a product
    // its elements, what comes before it in the neighbours of the other lanes, and these together.
    Value values[VECTORS][WIDTH];
    Part before[VECTORS], together[VECTORS], warp_sum = nothing;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      read<WHOLE>(values[v], problem, row, vector_of(chunk, v, warp, lane), end, inputs[v]);
      Part own = values[v][0];
#pragma unroll
      for (int i = 1; i < WIDTH; ++i) {
        own = combine<RUNNING>(own, static_cast<Part>(values[v][i]));
        if constexpr (!Total::IS_PRODUCT) values[v][i] = own;
      }
      const Part to_lane = warp_running_total<RUNNING>(own, lane);
      const Part to_left = __shfl_up_sync(0xffffffff, to_lane, 1);
      const Part first = Total::IS_PRODUCT ? nothing : warp_sum;
      before[v] = lane == 0 ? first : combine<RUNNING>(first, to_left);
      together[v] = __shfl_sync(0xffffffff, to_lane, 31);
      warp_sum = combine<RUNNING>(warp_sum, together[v]);
    }
    Total start = carry;
    Part before_warp = nothing, total = warp_sum;
    if constexpr (ROW_WARPS > 1) {
      if (lane == 0) turn.totals[warp] = warp_sum;
      __syncthreads();
      total = nothing;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        if constexpr (Total::IS_PRODUCT) {
          if (w == warp) start = carry;
          carry.add(turn.totals[w]);
        } else {
          if (w == warp) before_warp = total;
          total = combine<RUNNING>(total, turn.totals[w]);
        }
      }
    } else if constexpr (Total::IS_PRODUCT) {
      carry.add(total);
    }
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const Part offset = combine<RUNNING>(before_warp, before[v]);
      const Value first = start.with(offset);
      if constexpr (Total::IS_PRODUCT) {
        multiply(values[v], start.high * offset);
        start.add(together[v]);
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
          values[v][i] = start.with(combine<RUNNING>(offset, values[v][i]));
        }
      }
      const int64_t vector = vector_of(chunk, v, warp, lane);
      if (WHOLE || vector < end) write<WHOLE>(values[v], first, problem, row, vector);
    }
    // Not before: until here `start` is the same, in the same registers.
    if constexpr (!Total::IS_PRODUCT) carry.add(total);
  }

  // Begins to copy a whole chunk, if there is one before `end`.
  __device__ __forceinline__ static void fetch(Inputs (&places)[VECTORS][THREADS], const Row& row,
                                               int64_t chunk, int64_t end, int warp, int lane) {
    if (chunk < end) {
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        row.template fetch_all<1>(places[v][threadIdx.x],
                                  in_memory(row, vector_of(chunk, v, warp, lane)),
                                  typename Problem::BeforeIndices());
      }
    }
    commit_copies();
  }

  // The whole chunks from `at` to `end`.
  __device__ __forceinline__ static void run_whole(const Problem& problem, const Row& row,
                                                   int64_t at, int64_t end, Total& carry,
                                                   Shared& shared, int& turn, int warp, int lane) {
    const auto add = [&](const Inputs(&inputs)[VECTORS]) {
      add_chunk<true>(inputs, carry, shared.turns[turn], problem, row, at, end, warp, lane);
      turn ^= 1;
    };
    if constexpr (STAGES > 0) {
#pragma unroll
      for (int s = 0; s < STAGES; ++s) {
        fetch(shared.places[s], row, at + s * CHUNK, end, warp, lane);
      }
      for (int stage = 0; at < end; at += CHUNK) {
        wait_copies<STAGES - 1>();
        Inputs inputs[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) inputs[v] = shared.places[stage][v][threadIdx.x];
        fetch(shared.places[stage], row, at + STAGES * CHUNK, end, warp, lane);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        add(inputs);
      }
    } else {
      Inputs now[VECTORS], next[VECTORS];
      load<true>(now, row, at, end, warp, lane);
      for (; at < end; at += CHUNK) {
        if (at + CHUNK < end) load<true>(next, row, at + CHUNK, end, warp, lane);
        add(now);
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) now[v] = next[v];
      }
    }
  }

  // The vectors [begin, end) of a row, after what sums to `carry`.
  __device__ __forceinline__ static void run(const Problem& problem, const Row& row, int64_t begin,
                                             int64_t end, Total carry, Shared& shared, int& turn,
                                             int warp, int lane) {
    int64_t at = begin;
    while (at < end) {
      const int64_t whole = whole_until(row, at, end);
      if (whole > at) {
        run_whole(problem, row, at, whole, carry, shared, turn, warp, lane);
        at = whole;
      } else {
        Inputs inputs[VECTORS];
        load<false>(inputs, row, at, end, warp, lane);
        add_chunk<false>(inputs, carry, shared.turns[turn], problem, row, at, end, warp, lane);
        turn ^= 1;
        at += CHUNK;
      }
    }
  }

  // Where the chunks from `at` on end that have only whole vectors.
  __device__ __forceinline__ static int64_t whole_until(const Row& row, int64_t at, int64_t end) {
    if (!row.is_all_aligned()) return at;
    const int64_t before = row.shift > 0 ? 1 : 0, after = (row.shift + row.length) / WIDTH;
    const int64_t first = Operation::REVERSE ? row.vectors - after : before;
    const int64_t last = Operation::REVERSE ? row.vectors - before : after;
    if (at < first) return at;
    return at + max(min(last, end) - at, int64_t{0}) / CHUNK * CHUNK;
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void scan_rows(const Problem& problem) {
  wait_for_previous_kernel();
  using Scan = RowScan<Config, Problem>;
  using Value = typename Scan::Value;
  __shared__ typename Scan::Shared shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int turn = 0;
  if constexpr (Scan::ROW_WARPS == 1) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * Scan::ROWS;
    for (int64_t number = blockIdx.x * int64_t{Scan::ROWS} + warp; number < problem.rows;
         number += stride) {
      const typename Scan::Row row(problem, number);
      Scan::run(problem, row, 0, row.vectors, {}, shared, turn, 0, lane);
    }
  } else {
    for (int64_t part = blockIdx.x; part < problem.rows * problem.segments; part += gridDim.x) {
      const int64_t number = part / problem.segments, segment = part - number * problem.segments;
      const typename Scan::Row row(problem, number);
      const int64_t begin = segment * problem.segment_slots;
      const int64_t end = min(row.vectors, begin + problem.segment_slots);
      typename Scan::Total carry;
      if (problem.totals != nullptr) {
        // Every thread adds them up, in the same order.
        const typename Scan::Part* totals = problem.totals + number * problem.segments;
        for (int64_t s = 0; s < segment; ++s) carry.add(load_constant(totals + s));
      }
      Scan::run(problem, row, begin, end, carry, shared, turn, warp, lane);
    }
  }
}

// The total of every segment, for the scan that follows.
template <class Config, class Problem>
__device__ __forceinline__ void scan_segment_totals(const Problem& problem) {
  wait_for_previous_kernel();
  using Scan = RowScan<Config, Problem>;
  using Value = typename Scan::Value;
  using Part = typename Scan::Part;
  constexpr Running RUNNING = Scan::RUNNING;
  __shared__ Part warp_totals[Scan::WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64_t part = blockIdx.x; part < problem.rows * problem.segments; part += gridDim.x) {
    const int64_t number = part / problem.segments, segment = part - number * problem.segments;
    const typename Scan::Row row(problem, number);
    const int64_t begin = segment * problem.segment_slots;
    const int64_t end = min(row.vectors, begin + problem.segment_slots);
    Part sum = neutral_total<RUNNING, Part>();
    for (int64_t chunk = begin; chunk < end; chunk += Scan::CHUNK) {
      typename Scan::Inputs inputs[Scan::VECTORS];
      Scan::template load<false>(inputs, row, chunk, end, warp, lane);
#pragma unroll
      for (int v = 0; v < Scan::VECTORS; ++v) {
        Value values[Scan::WIDTH];
        Scan::template read<false>(values, problem, row, Scan::vector_of(chunk, v, warp, lane), end,
                                   inputs[v]);
        Part own = values[0];
#pragma unroll
        for (int i = 1; i < Scan::WIDTH; ++i) {
          own = combine<RUNNING>(own, static_cast<Part>(values[i]));
        }
        sum = combine<RUNNING>(sum, own);
      }
    }
    sum = warp_total<RUNNING>(sum);
    if (lane == 0) warp_totals[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      sum = warp_totals[0];
      for (int w = 1; w < Scan::WARPS; ++w) sum = combine<RUNNING>(sum, warp_totals[w]);
      problem.totals[part] = sum;
    }
    __syncthreads();
  }
}
