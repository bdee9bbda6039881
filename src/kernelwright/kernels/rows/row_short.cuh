#pragma once
// Short rows of neighbours in memory: some lanes of a warp hold one in registers, the others the
// rows after it, so that the warp reads whole lines of all of them at once. A config has
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

template <class Program, class Config>
__device__ __forceinline__ void short_rows(const ShortRows<Program, Config>& rows) {
  using Rows = ShortRows<Program, Config>;
  using Types = RowTypes<Program>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, Rows::WIDTH>::type;
  constexpr int LANES = Rows::LANES, VECTORS = Rows::VECTORS, WIDTH = Rows::WIDTH;
  constexpr unsigned FULL = (1u << WIDTH) - 1;
  const int lane = static_cast<int>(threadIdx.x) % LANES;
  const int64_t wanted = static_cast<int64_t>(blockIdx.x) * Rows::ROWS + threadIdx.x / LANES;
  const bool has_row = wanted < rows.space.kept.count;
  // Others take part in what the warp does together.
  const int64_t row = has_row ? wanted : rows.space.kept.count - 1;
  const RowRun<Program, WIDTH> run(rows, row, 0, 0, LANES * VECTORS);
  const int count = run.vectors();
  typename Program::Inputs shared = {};
  load_shared_inputs<Program::SHARED & all_reads<Program>()>(run, shared);
  Vectors vectors[VECTORS];
  unsigned valid = 0;
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    const int v = lane + k * LANES;
    valid |= v < count ? FULL << k * WIDTH : 0;
    // Past the end the last one again, which does not count.
    load_inputs<all_reads<Program>() & ~Program::SHARED, true>(run, v < count ? v : count - 1,
                                                               vectors[k]);
  }
  typename Types::Totals totals = {};
  const VectorPlaces<WIDTH> places = {run.place(lane), int64_t{LANES} * WIDTH};
  repeat<Program::LEVELS>([&](auto level) {
    typename Types::States states = no_elements<Program>();
    fold_vectors<level, VECTORS>(run, totals, shared, places, vectors, valid, states);
    each_fold<Program, level>([&](auto fold) {
      using Fold = typename Types::template FoldAt<fold>;
      set_totals<Program, fold>(combine_lanes<Fold, LANES>(get<fold>(states)), totals);
    });
  });
  if (!has_row) return;
  if constexpr (results_mask<Program, true>() != 0) {
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      const int v = lane + k * LANES;
      if (v < count) store_vectors<true>(run, v, totals, shared, vectors[k]);
    }
  }
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
    const auto launched = kernel;
    launched<<<static_cast<unsigned>(blocks), Parameters::THREADS, 0, stream>>>(rows);
    return cudaGetLastError();
  }
};
