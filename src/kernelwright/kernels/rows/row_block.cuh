#pragma once
// Rows that lie in short runs of memory the same way apart, as a channel of a batch of images does:
// a block for each row, whose threads walk the vectors of all its runs as if they were one. A
// config has
//   THREADS   of a block
//   VECTORS   of WIDTH elements that a thread has in flight; all that it has of a row, if it HOLDS
//             them in registers from the first level of folds to the results
//   RESIDENT  blocks on a multiprocessor at one time

#include "row_launch.cuh"
#include "row_team.cuh"

template <class Program, class Config_>
struct BlockRows : VectorRows<Program, Config_::WIDTH> {
  using Config = Config_;
  using Base = VectorRows<Program, Config::WIDTH>;
  using Exchange =
      TeamExchange<Config::THREADS / 32, 1, LargestState<typename Program::Folds>::BYTES>;
  static constexpr int STEP = Config::THREADS * Config::VECTORS;

  RowStarts<Program> starts;
  int vectors;          // of a row
  Divisor run_vectors;  // of a run
  // From one of a thread's vectors to the next: vectors within a run, and elements in memory where
  // that stays in as many runs as it can, or is in one more.
  int step_inside;
  uint32_t strides[Base::Types::OPERANDS];  // from run to run
  uint32_t steps[Base::Types::OPERANDS], long_steps[Base::Types::OPERANDS];
};

// A thread at work on the block's row.
template <class Rows>
struct BlockThread {
  using Program = decltype(Rows::program);
  using Config = typename Rows::Config;
  using Types = RowTypes<Program>;
  using Run = RowRun<Program, Config::WIDTH>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, Config::WIDTH>::type;
  static constexpr int THREADS = Config::THREADS, WIDTH = Config::WIDTH, VECTORS = Config::VECTORS;
  static constexpr bool HOLDS = Config::HOLDS;
  // Vectors that are folded together.
  static constexpr int MOST = WIDTH >= 8 ? 1 : 8 / WIDTH;
  static constexpr int TOGETHER = VECTORS < MOST ? VECTORS : MOST;
  static_assert(VECTORS % TOGETHER == 0, "a thread folds all of its vectors");

  const Rows& rows;
  const Program program = rows.program;
  const Run first;  // the row's first vector
  typename Program::Inputs shared = {};
  Vectors vectors[VECTORS];

  __device__ __forceinline__ BlockThread(const Rows& rows, int64_t row)
      : rows(rows), first(rows, rows.starts, row) {
    load_shared_inputs<Program::SHARED & all_reads<Program>()>(first, shared);
  }

  // Where a vector stands: its place in its run, and from the row's first element in memory.
  struct Spot {
    int inside;
    uint32_t offsets[Types::OPERANDS];
  };

  __device__ __forceinline__ Spot first_spot() const {
    const uint32_t run = rows.run_vectors.quotient(threadIdx.x);
    const uint32_t inside = threadIdx.x - run * rows.run_vectors.value();
    Spot spot = {static_cast<int>(inside), {}};
#pragma unroll
    for (int o = 0; o < Types::OPERANDS; ++o) {
      spot.offsets[o] = run * rows.strides[o] + inside * WIDTH;
    }
    return spot;
  }

  // From one of this thread's vectors to the next: nothing is divided.
  __device__ __forceinline__ void step(Spot& spot) const {
    const auto of_run = static_cast<int>(rows.run_vectors.value());
    spot.inside += rows.step_inside;
    const bool is_long = spot.inside >= of_run;
    spot.inside -= is_long ? of_run : 0;
#pragma unroll
    for (int o = 0; o < Types::OPERANDS; ++o) {
      spot.offsets[o] += is_long ? rows.long_steps[o] : rows.steps[o];
    }
  }

  // Calls body(begin, spot) for each STEP vectors of the row; `spot`: this thread's first of them.
  template <class Body>
  __device__ __forceinline__ void each_step(const Body& body) const {
    Spot spot = first_spot();
    if constexpr (HOLDS) {
      body(0, spot);
    } else {
#pragma unroll 1
      for (int begin = 0; begin < rows.vectors; begin += Rows::STEP) body(begin, spot);
    }
  }

  // This thread's vector number `k` of those from `begin` on.
  __device__ __forceinline__ int vector(int begin, int k) const {
    return begin + static_cast<int>(threadIdx.x) + k * THREADS;
  }

  // Vector `v` of the row, which stands at a spot, as a run of its own.
  __device__ __forceinline__ Run run(int v, const Spot& spot) const {
    Run result = first;
    repeat<Types::OPERANDS>([&](auto o) {
      if constexpr ((Run::STREAMED >> o & 1) != 0) {
        result.at[o] += int64_t{spot.offsets[o]} * operand_bytes<Program>(o);
      }
    });
    result.first = int64_t{v} * WIDTH;
    return result;
  }

  // Loads the inputs in MASK; past the row's end of its first vector.
  template <unsigned MASK>
  __device__ __forceinline__ void load(int begin, Spot& spot) {
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      const int v = vector(begin, k);
      const bool is_there = v < rows.vectors;
      load_inputs<MASK & ~Program::SHARED, true>(run(is_there ? v : 0, is_there ? spot : Spot{}), 0,
                                                 vectors[k]);
      step(spot);
    }
  }

  template <int LEVEL>
  __device__ __forceinline__ void fold(int begin, const typename Types::Totals& totals,
                                       typename Types::States& states) const {
    constexpr unsigned FULL = (1u << WIDTH) - 1;
#pragma unroll
    for (int k = 0; k < VECTORS; k += TOGETHER) {
      unsigned valid = 0;
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        valid |= vector(begin, k + i) < rows.vectors ? FULL << i * WIDTH : 0;
      }
      const VectorPlaces<WIDTH> places = {int64_t{vector(begin, k)} * WIDTH,
                                          int64_t{THREADS} * WIDTH};
      fold_vectors<LEVEL, TOGETHER>(first, totals, shared, places, vectors + k, valid, states);
    }
  }

  // The totals of a level of the row that the block holds.
  template <int LEVEL, class Team>
  __device__ __forceinline__ void total(Team& team, typename Types::Totals& totals) const {
    const LaneValid<WIDTH, THREADS> valid = {rows.vectors - static_cast<int>(threadIdx.x)};
    const LanePlaces<WIDTH, THREADS> places = {int64_t{threadIdx.x} * WIDTH};
    typename Types::Totals found = totals;
    total_vectors<LEVEL, false>(team, first, valid, places, totals, shared, vectors, found);
    totals = found;
  }

  // Those of the inputs in LATE are not there yet.
  template <unsigned LATE>
  __device__ __forceinline__ void store(int begin, Spot& spot,
                                        const typename Types::Totals& totals) {
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      const int v = vector(begin, k);
      if (v >= rows.vectors) break;
      const Run own = run(v, spot);
      load_inputs<LATE, true>(own, 0, vectors[k]);
      store_vectors<true>(program, own, 0, totals, shared, vectors[k]);
      step(spot);
    }
  }
};

template <class Rows>
__device__ __forceinline__ void block_rows(const Rows& rows) {
  wait_for_previous_kernel();
  using Thread = BlockThread<Rows>;
  using Program = typename Thread::Program;
  using Types = typename Thread::Types;
  __shared__ __align__(16) char memory[Rows::Exchange::BYTES + 16];
  typename Rows::Exchange exchange = {memory};
  Thread thread(rows, blockIdx.x);
  constexpr unsigned LATE = Thread::HOLDS ? late_inputs<Program>() : 0;
  if constexpr (Thread::HOLDS) {
    thread.each_step([&](int begin, auto spot) {
      thread.template load<all_reads<Program>() & ~LATE>(begin, spot);
    });
  }
  typename Types::Totals totals = {};
  repeat<Program::LEVELS>([&](auto level) {
    if constexpr (Thread::HOLDS) {
      thread.template total<level>(exchange, totals);
    } else {
      typename Types::States states = no_elements<Program>();
      thread.each_step([&](int begin, auto& spot) {
        thread.template load<Program::READS[level]>(begin, spot);
        thread.template fold<level>(begin, totals, states);
      });
      each_fold<Program, level>([&](auto fold) {
        using Fold = typename Types::template FoldAt<fold>;
        set_totals<Program, fold>(exchange.template combine<Fold>(get<fold>(states)), totals);
      });
    }
  });
  if constexpr (results_mask<Program, true>() != 0) {
    thread.each_step([&](int begin, auto& spot) {
      if constexpr (!Thread::HOLDS) {
        auto from = spot;
        thread.template load<Program::READS[Program::LEVELS]>(begin, from);
      }
      thread.template store<LATE>(begin, spot, totals);
    });
  }
  if (threadIdx.x == 0) store_row_results(thread.first, totals);
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct BlockVariant {
  using Parameters = BlockRows<Program, Config>;
  void (*kernel)(Parameters);
  int multiprocessors;

  bool takes(const typename Parameters::Space& space) const {
    constexpr int64_t MOST = (int64_t{1} << 31) - 1;  // of blocks, and what Divisor can divide
    constexpr int64_t STEP = Parameters::STEP;
    if (!Parameters::can_walk(space) || space.kept.count > MOST) return false;
    const auto rows = Parameters::describe({}, space);
    if (!rows.is_even || rows.segments.rank > 1 || space.reduced.count > MOST - STEP) return false;
    for (int o = 0; o < Parameters::Types::OPERANDS; ++o) {
      if (!space.reduced.is_within_reach(o)) return false;
    }
    const int64_t vectors = space.reduced.count / Config::WIDTH;
    // Rows far below the room leave most threads idle, and few long ones most of the card.
    if (vectors * 4 <= STEP) return false;
    if constexpr (Config::HOLDS) return vectors <= STEP;
    return space.kept.count * 2 >= multiprocessors || vectors <= 8 * STEP;
  }

  static int64_t workspace(const RowCall<Program>&) { return 0; }

  cudaError_t launch(const RowCall<Program>& call, char*, cudaStream_t stream) const {
    Parameters rows;
    static_cast<typename Parameters::Base&>(rows) = Parameters::describe(call.program, call.space);
    rows.starts = RowStarts<Program>::of(call.space);
    rows.vectors = static_cast<int>(call.space.reduced.count / Config::WIDTH);
    const auto of_run = static_cast<uint32_t>(rows.run / Config::WIDTH);
    rows.run_vectors = Divisor(of_run);
    rows.step_inside = static_cast<int>(Config::THREADS % of_run);
    for (int o = 0; o < Parameters::Types::OPERANDS; ++o) {
      const bool is_one = rows.segments.rank == 0;
      rows.strides[o] = is_one ? 0 : static_cast<uint32_t>(rows.segments.strides[0][o]);
      rows.steps[o] =
          Config::THREADS / of_run * rows.strides[o] + Config::THREADS % of_run * Config::WIDTH;
      rows.long_steps[o] = rows.steps[o] + rows.strides[o] - of_run * Config::WIDTH;
    }
    return launch_dependent(kernel, static_cast<unsigned>(call.space.kept.count), Config::THREADS,
                            stream, rows);
  }
};
