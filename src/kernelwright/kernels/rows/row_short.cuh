#pragma once
// Short rows of neighbours in memory: some lanes of a warp hold one in registers, the others the
// rows after it, so that the warp reads whole lines of all of them at once. What rows share, as
// weights, is read from the cache for each level of folds and for the results, and takes no
// registers in between. Results that need no total are written first. A config has
//   THREADS   of a block
//   LANES     threads that share a row: a power of two, up to a warp
//   VECTORS   of WIDTH elements that a thread holds of it
//   RESIDENT  blocks on a multiprocessor at one time

#include "row_exchange.cuh"
#include "row_launch.cuh"
#include "row_vectors.cuh"

template <class Program, class Config>
struct ShortRows : VectorRows<Program, Config::WIDTH> {
  using Base = VectorRows<Program, Config::WIDTH>;
  static constexpr int THREADS = Config::THREADS, LANES = Config::LANES;
  static constexpr int WIDTH = Config::WIDTH, VECTORS = Config::VECTORS;
  static constexpr int ROWS = THREADS / LANES;  // of a block
  static_assert(32 % LANES == 0 && THREADS % 32 == 0, "a warp has as many rows as the others");
  static_assert(VECTORS * WIDTH <= 32, "a word has a bit for each element of a thread");
};

// Where the elements of a lane stand: all of them a known way after the first.
template <int WIDTH, int LANES>
struct LanePlaces {
  int64_t first;

  __device__ __forceinline__ int64_t at(int element) const { return first + past(element); }
  __device__ __forceinline__ static constexpr int past(int element) {
    return element / WIDTH * (LANES * WIDTH) + element % WIDTH;
  }
};

// Loads the inputs in READS that rows share of the thread's vector `k`, if it has that many.
template <unsigned READS, int LANES, int WIDTH, class Program, class Vectors>
__device__ __forceinline__ void load_alike(const RowRun<Program, WIDTH>& own, int k, int count,
                                           Vectors& vectors) {
  constexpr unsigned ALIKE = READS & alike_inputs<Program>();
  if constexpr (ALIKE != 0) {
    if (k * LANES < count) load_inputs<ALIKE, true, WIDTH == 1>(own, k * LANES, vectors);
  }
}

// Writes results of a row: those in RESULTS, which read READS.
template <unsigned RESULTS, unsigned READS, int LANES, int WIDTH, int VECTORS, class Program,
          class Vectors>
__device__ __forceinline__ void store_lanes(const RowRun<Program, WIDTH>& own, int count,
                                            const typename Program::Totals& totals,
                                            const typename Program::Inputs& shared,
                                            const Vectors (&held)[VECTORS]) {
  if constexpr (RESULTS != 0) {
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      if (k * LANES >= count) break;
      Vectors vectors = held[k];
      load_alike<READS, LANES>(own, k, count, vectors);
      store_vectors<true, RESULTS>(own, k * LANES, totals, shared, vectors);
    }
  }
}

// The totals of a level of a row whose vectors LANES neighbouring threads hold; `own`: from this
// thread's first one on, `count` of all threads.
template <int LEVEL, int LANES, int WIDTH, int VECTORS, class Program, class Vectors>
__device__ __forceinline__ void total_lanes(const RowRun<Program, WIDTH>& own, int count,
                                            typename Program::Totals& totals,
                                            const typename Program::Inputs& shared,
                                            const Vectors (&held)[VECTORS], unsigned valid) {
  using Types = RowTypes<Program>;
  constexpr int N = VECTORS * WIDTH;
  const LanePlaces<WIDTH, LANES> places = {own.place(0)};
  const auto& space = own.rows.space;
  typename Program::Inputs elements[N];
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    Vectors vectors = held[k];
    load_alike<Program::READS[LEVEL], LANES>(own, k, count, vectors);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      elements[k * WIDTH + i] = shared;
      pick_element<Program::READS[LEVEL] & ~Program::SHARED>(vectors, i, elements[k * WIDTH + i]);
    }
  }
  typename Program::Totals found = totals;
  each_fold<Program, LEVEL>([&](auto fold) {
    using Fold = typename Types::template FoldAt<fold>;
    using Value =
        decltype(take_element<fold>(own.rows.program, totals, RowPlace{space.coordinates, 0, 0},
                                    elements[0], typename Types::InputIndices()));
    Value values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const RowPlace place = {space.coordinates, own.row, places.at(i), places.past(i)};
      values[i] = take_element<fold>(own.rows.program, totals, place, elements[i],
                                     typename Types::InputIndices());
    }
    const int length = static_cast<int>(space.reduced.count);
    set_totals<Program, fold>(state_of_lanes<LANES>(Fold(), values, valid, places, length), found);
  });
  totals = found;
}

template <class Program, class Config>
__device__ __forceinline__ void short_rows(const ShortRows<Program, Config>& rows) {
  wait_for_previous_kernel();
  using Rows = ShortRows<Program, Config>;
  using Types = RowTypes<Program>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, Rows::WIDTH>::type;
  constexpr int LANES = Rows::LANES, VECTORS = Rows::VECTORS, WIDTH = Rows::WIDTH;
  constexpr unsigned FULL = (1u << WIDTH) - 1;
  constexpr unsigned HELD = all_reads<Program>() & ~(Program::SHARED | alike_inputs<Program>());
  const int lane = static_cast<int>(threadIdx.x) % LANES;
  const int64_t wanted = static_cast<int64_t>(blockIdx.x) * Rows::ROWS + threadIdx.x / LANES;
  const bool has_row = wanted < rows.space.kept.count;
  // Others take part in what the warp does together.
  const int64_t row = has_row ? wanted : rows.space.kept.count - 1;
  const RowRun<Program, WIDTH> run(rows, row, 0, 0, LANES * VECTORS);
  // Vectors from this thread's first one on: all others are a known way after it.
  const int count = run.vectors() - lane;
  const auto own = run.after(lane);
  typename Program::Inputs shared = {};
  load_shared_inputs<Program::SHARED & all_reads<Program>()>(run, shared);
  Vectors vectors[VECTORS];
  unsigned valid = 0;
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    vectors[k] = {};
    if (k * LANES >= count) continue;
    valid |= FULL << k * WIDTH;
    load_inputs<HELD, true, WIDTH == 1>(own, k * LANES, vectors[k]);
  }
  typename Types::Totals totals = {};
  if (has_row) {
    store_lanes<Program::EARLY, Program::EARLY_READS, LANES>(own, count, totals, shared, vectors);
  }
  repeat<Program::LEVELS>(
      [&](auto level) { total_lanes<level, LANES>(own, count, totals, shared, vectors, valid); });
  if (!has_row) return;
  store_lanes<late_results<Program>(), Program::LATE_READS, LANES>(own, count, totals, shared,
                                                                   vectors);
  if (lane == 0) store_row_results(run, totals);
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct ShortVariant {
  using Parameters = ShortRows<Program, Config>;
  void (*kernel)(Parameters);
  int multiprocessors;

  static bool takes(const typename Parameters::Space& space) {
    constexpr int64_t MOST_BLOCKS = (int64_t{1} << 31) - 1;
    if (!Parameters::can_walk(space)) return false;
    const auto rows = Parameters::describe({}, space);
    constexpr int64_t ROOM = int64_t{Parameters::VECTORS} * Parameters::LANES;
    const int64_t vectors = rows.run_vectors();
    // Rows far below the room leave most threads idle.
    return rows.segments.rank == 0 && rows.is_even && vectors <= ROOM && vectors * 4 > ROOM &&
           space.kept.count / Parameters::ROWS < MOST_BLOCKS;
  }

  static int64_t workspace(const RowCall<Program>&) { return 0; }

  cudaError_t launch(const RowCall<Program>& call, char*, cudaStream_t stream) const {
    Parameters rows;
    static_cast<typename Parameters::Base&>(rows) = Parameters::describe(call.program, call.space);
    const int64_t blocks = (call.space.kept.count + Parameters::ROWS - 1) / Parameters::ROWS;
    return launch_dependent(kernel, static_cast<unsigned>(blocks), Parameters::THREADS, stream,
                            rows);
  }
};
