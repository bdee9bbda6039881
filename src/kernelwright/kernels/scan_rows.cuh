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

#include "scan.cuh"

// One row as the vectors of WIDTH elements that hold it; all methods count vectors in memory.
template <class Problem, int WIDTH>
struct ScanRow {
  static constexpr int OPERANDS = Problem::OPERANDS;

  // Addresses of what would be the first element of vector 0.
  char* data[OPERANDS];
  bool is_aligned[OPERANDS];
  bool is_repeated[OPERANDS];
  // The first vector begins that many elements before the row.
  int shift;
  int64_t length;
  int64_t vectors;
  // Of the first element of vector 0 in the result.
  int64_t element;

  __device__ __forceinline__ ScanRow(const Problem& problem, int64_t row) {
    int64_t offsets[OPERANDS];
    problem.locate(row, offsets);
    length = problem.length;
    const auto first = reinterpret_cast<uintptr_t>(problem.data[0]) / Problem::element_bytes(0);
    shift = static_cast<int>((first + offsets[0]) % WIDTH);
    vectors = (shift + length + WIDTH - 1) / WIDTH;
    element = offsets[0] - shift;
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) {
      constexpr int64_t NOWHERE = 0;
      is_repeated[o] = o > 0 && problem.steps[o] == 0;
      const int64_t before = is_repeated[o] ? NOWHERE : shift;
      data[o] = problem.data[o] + (offsets[o] - before) * Problem::element_bytes(o);
      const auto alignment = access_bytes(WIDTH * static_cast<int>(Problem::element_bytes(o)));
      is_aligned[o] = reinterpret_cast<uintptr_t>(data[o]) % alignment == 0;
    }
  }

  __device__ __forceinline__ bool holds(int64_t vector, int i) const {
    const int64_t at = vector * WIDTH + i - shift;
    return at >= 0 && at < length;
  }
  __device__ __forceinline__ bool holds_all(int64_t vector) const {
    return holds(vector, 0) && holds(vector, WIDTH - 1);
  }

  // Whether every operand begins its vectors where whole accesses may.
  __device__ __forceinline__ bool is_all_aligned() const {
    bool all = true;
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) all = all && (is_aligned[o] || is_repeated[o]);
    return all;
  }

  // WHOLE: the vector is inside of the row, and aligned in every operand.
  template <bool WHOLE, class T, int OPERAND>
  __device__ __forceinline__ Vector<T, WIDTH> load(int64_t vector) const {
    const T* address = reinterpret_cast<const T*>(data[OPERAND]);
    Vector<T, WIDTH> result;
    if (is_repeated[OPERAND]) {
      const T value = load_constant(address);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) result.element[i] = value;
      return result;
    }
    address += vector * WIDTH;
    if constexpr (WHOLE) return load_constant_vector<WIDTH>(address);
    if (is_aligned[OPERAND] && holds_all(vector)) return load_constant_vector<WIDTH>(address);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      result.element[i] = holds(vector, i) ? load_constant(address + i) : T();
    }
    return result;
  }

  template <bool WHOLE, int FIRST, class... Ts, size_t... AT>
  __device__ __forceinline__ void load_all(Pack<Vector<Ts, WIDTH>...>& inputs, int64_t vector,
                                           std::index_sequence<AT...>) const {
    ((get<AT>(inputs) = load<WHOLE, Ts, FIRST + static_cast<int>(AT)>(vector)), ...);
  }

  template <bool WHOLE, class Out>
  __device__ __forceinline__ void store(int64_t vector, const Vector<Out, WIDTH>& result) const {
    Out* address = reinterpret_cast<Out*>(data[0]) + vector * WIDTH;
    if (WHOLE || holds_all(vector)) {
      store_vector(address, result);
      return;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      if (holds(vector, i)) address[i] = result.element[i];
    }
  }
};

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
  // Totals of the warps, of two chunks, so that a barrier for each chunk is enough.
  using Shared = Part[2][WARPS];

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
        row.template load_all<WHOLE, 1>(inputs[v], in_memory(row, vector),
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
    Value read[WIDTH];
    problem.template accumulated<WIDTH>(read, row.element + at * WIDTH, inputs,
                                        typename Problem::BeforeIndices());
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const bool counts = WHOLE || (vector < end && row.holds(at, in_order(i)));
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
    typename Problem::template AfterVectors<WIDTH> inputs;
    row.template load_all<WHOLE, Problem::FIRST_AFTER>(inputs, at,
                                                       typename Problem::AfterIndices());
    row.template store<WHOLE>(
        at, problem.template results<WIDTH>(totals, row.element + at * WIDTH, inputs,
                                            typename Problem::AfterIndices()));
  }

  // Whether that holds in any of the threads that share the row.
  __device__ __forceinline__ static bool holds_somewhere(bool mine) {
    return ROW_WARPS > 1 ? __syncthreads_or(mine) != 0 : __any_sync(0xffffffff, mine) != 0;
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
                                                     Part (&warp_totals)[WARPS],
                                                     const Problem& problem, const Row& row,
                                                     int64_t chunk, int64_t end, int warp,
                                                     int lane) {
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
    if (ROW_WARPS > 1 && lane == 0) warp_totals[warp] = signed_as(__popc(odd), Part(1));
    if (holds_somewhere(!is_finite)) return false;
    Part before = carry.high;
    if constexpr (ROW_WARPS > 1) {
      Part total = before;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        if (w == warp) before = total;
        total *= warp_totals[w];
      }
      carry.high = total;
    } else {
      carry.high = signed_as(__popc(odd), before);
    }
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
                                                   Part (&warp_totals)[WARPS],
                                                   const Problem& problem, const Row& row,
                                                   int64_t chunk, int64_t end, int warp, int lane) {
    if constexpr (Total::IS_PRODUCT) {
      if (carry.high == 0 &&
          add_to_zero<WHOLE>(inputs, carry, warp_totals, problem, row, chunk, end, warp, lane)) {
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
      if (lane == 0) warp_totals[warp] = warp_sum;
      __syncthreads();
      total = nothing;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        if constexpr (Total::IS_PRODUCT) {
          if (w == warp) start = carry;
          carry.add(warp_totals[w]);
        } else {
          if (w == warp) before_warp = total;
          total = combine<RUNNING>(total, warp_totals[w]);
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

  // The vectors [begin, end) of a row, after what sums to `carry`.
  __device__ __forceinline__ static void run(const Problem& problem, const Row& row, int64_t begin,
                                             int64_t end, Total carry, Shared& shared, int& turn,
                                             int warp, int lane) {
    int64_t at = begin;
    while (at < end) {
      const int64_t whole = whole_until(row, at, end);
      if (whole > at) {
        // One chunk is on its way while another is added up.
        Inputs now[VECTORS], next[VECTORS];
        load<true>(now, row, at, end, warp, lane);
        for (; at < whole; at += CHUNK) {
          if (at + CHUNK < whole) load<true>(next, row, at + CHUNK, end, warp, lane);
          add_chunk<true>(now, carry, shared[turn], problem, row, at, end, warp, lane);
          turn ^= 1;
#pragma unroll
          for (int v = 0; v < VECTORS; ++v) now[v] = next[v];
        }
      } else {
        Inputs inputs[VECTORS];
        load<false>(inputs, row, at, end, warp, lane);
        add_chunk<false>(inputs, carry, shared[turn], problem, row, at, end, warp, lane);
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
