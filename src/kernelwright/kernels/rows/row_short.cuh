#pragma once
// Rows of neighbours in memory that a team of threads holds in registers: some lanes of a warp, of
// which the others have the rows after it, so that the warp reads whole lines of all of them at
// once, or a block. Many small blocks hide each other's waiting. What rows share, as
// weights, is read from the cache for each level of folds and for the results, and takes no
// registers in between. Results are written as soon as the totals that they need are there, with
// the next fold, which often takes the same of an element. A config has
//   THREADS   of a block
//   LANES     threads that share a row: a power of two, up to a warp, or all of the block
//   VECTORS   of WIDTH elements that a thread holds of it
//   RESIDENT  blocks on a multiprocessor at one time

#include "row_launch.cuh"
#include "row_team.cuh"

template <class Program, class Config>
struct ShortRows : VectorRows<Program, Config::WIDTH> {
  using Base = VectorRows<Program, Config::WIDTH>;
  static constexpr int THREADS = Config::THREADS, LANES = Config::LANES;
  static constexpr int WIDTH = Config::WIDTH, VECTORS = Config::VECTORS;
  static constexpr int ROWS = THREADS / LANES;  // of a block
  static_assert(THREADS % 32 == 0 && (32 % LANES == 0 || LANES == THREADS),
                "a warp has as many rows as the others, or the block one");
  using Exchange = TeamExchange<THREADS / 32, 1, LargestState<typename Program::Folds>::BYTES>;
  using Team = std::conditional_t<(LANES > 32), Exchange, LaneTeam<LANES>>;

  RowStarts<Program> starts;
  bool are_filled;  // each thread has all of its vectors but perhaps the last
};

// What a thread has of a row: VECTORS vectors, each LANES after the one before, of which the first
// CERTAIN are there.
template <int LANES, int VECTORS_, int CERTAIN_>
struct LaneVectors {
  static constexpr int VECTORS = VECTORS_, CERTAIN = CERTAIN_;
  int count;  // vectors of all threads from this one's first on

  __device__ __forceinline__ bool has(int k) const { return k < CERTAIN || k * LANES < count; }

  // Loads the inputs in READS of vector `k`, of the first one where there is none: without branches
  // all loads are on their way at once, and what is made of elements anywhere is the same.
  template <unsigned READS, int WIDTH, class Program, class Vectors>
  __device__ __forceinline__ void load(const RowRun<Program, WIDTH>& own, int k,
                                       Vectors& vectors) const {
    load_inputs<READS, true, WIDTH == 1>(own, has(k) ? k * LANES : 0, vectors);
  }
};

// The totals of a level of a row whose vectors a team of LANES threads holds, and the results that
// are due with it; `own`: from this thread's first one on.
template <int LEVEL, int LANES, int WIDTH, class Own, class Team, class Program, class Vectors>
__device__ __forceinline__ void total_lanes(Team& team, const RowRun<Program, WIDTH>& own, Own lane,
                                            bool has_row, typename Program::Totals& totals,
                                            const typename Program::Inputs& shared,
                                            const Vectors (&held)[Own::VECTORS]) {
  using Types = RowTypes<Program>;
  constexpr unsigned READS = reads_when_due<Program>(LEVEL) & alike_inputs<Program>();
  const LanePlaces<WIDTH, LANES> places = {own.place(0)};
  const LaneValid<WIDTH, LANES, Own::CERTAIN> valid = {lane.count};
  typename Program::Totals found = totals;
  Vectors vectors[Own::VECTORS];
#pragma unroll
  for (int k = 0; k < Own::VECTORS; ++k) {
    vectors[k] = held[k];
    lane.template load<READS>(own, k, vectors[k]);
  }
  store_due<LEVEL, Own::VECTORS, true>(
      own, totals, shared, vectors, [&](int k) { return k * LANES; },
      [&](int k) { return has_row && lane.has(k); },
      [&](auto fold, const auto& values) {
        using Fold = typename Types::template FoldAt<fold>;
        const auto length = static_cast<int>(own.rows.space.reduced.count);
        set_totals<Program, fold>(state_of_team(team, Fold(), values, valid, places, length),
                                  found);
      });
  total_vectors<LEVEL, true>(team, own, valid, places, totals, shared, vectors, found);
  totals = found;
}

// CERTAIN: vectors that each thread has at least.
template <int CERTAIN, class Program, class Config>
__device__ __forceinline__ void short_row(const ShortRows<Program, Config>& rows) {
  using Rows = ShortRows<Program, Config>;
  using Types = RowTypes<Program>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, Rows::WIDTH>::type;
  constexpr int LANES = Rows::LANES, VECTORS = Config::VECTORS, WIDTH = Rows::WIDTH;
  constexpr unsigned HELD = all_reads<Program>() & ~(Program::SHARED | alike_inputs<Program>());
  const int thread = static_cast<int>(Rows::ROWS == 1 ? threadIdx.x : threadIdx.x % LANES);
  int64_t wanted = blockIdx.x;
  if constexpr (Rows::ROWS > 1) wanted = wanted * Rows::ROWS + threadIdx.x / LANES;
  const bool has_row = Rows::ROWS == 1 || wanted < rows.space.kept.count;
  // Others take part in what the warp does together.
  const int64_t row = has_row ? wanted : rows.space.kept.count - 1;
  const RowRun<Program, WIDTH> run(rows, rows.starts, row);
  // Vectors from this thread's first one on: all others are a known way after it. A thread that has
  // none reads the row's first one.
  const LaneVectors<LANES, VECTORS, CERTAIN> lane = {run.vectors() - thread};
  const auto own = run.after(lane.has(0) ? thread : 0);
  typename Program::Inputs shared = {};
  load_shared_inputs<Program::SHARED & all_reads<Program>()>(run, shared);
  Vectors vectors[VECTORS];
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) lane.template load<HELD>(own, k, vectors[k]);
  typename Types::Totals totals = {};
  typename Rows::Team team = {};
  if constexpr (LANES > 32) {
    __shared__ __align__(16) char memory[Rows::Exchange::BYTES];
    team.memory = memory;
  }
  repeat<Program::LEVELS>([&](auto level) {
    total_lanes<level, LANES>(team, own, lane, has_row, totals, shared, vectors);
  });
  if (!has_row) return;
  if constexpr (due_results<Program>(Program::LEVELS) != 0) {
    const Program program = rows.program;
    constexpr unsigned LATE = reads_when_due<Program>(Program::LEVELS) & alike_inputs<Program>();
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      if (!lane.has(k)) break;
      lane.template load<LATE>(own, k, vectors[k]);
      store_vectors<true, due_results<Program>(Program::LEVELS)>(program, own, k * LANES, totals,
                                                                 shared, vectors[k]);
    }
  }
  if (thread == 0) store_row_results(run, totals);
}

template <class Program, class Config>
__device__ __forceinline__ void short_rows(const ShortRows<Program, Config>& rows) {
  wait_for_previous_kernel();
  if (rows.are_filled) {
    short_row<Config::VECTORS - 1>(rows);
  } else {
    short_row<0>(rows);
  }
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
    rows.starts = RowStarts<Program>::of(call.space);
    rows.are_filled = rows.run_vectors() >= int64_t{Config::VECTORS - 1} * Config::LANES;
    const int64_t blocks = (call.space.kept.count + Parameters::ROWS - 1) / Parameters::ROWS;
    return launch_dependent(kernel, static_cast<unsigned>(blocks), Parameters::THREADS, stream,
                            rows);
  }
};
