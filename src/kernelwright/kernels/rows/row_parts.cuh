#pragma once
// Long rows, and few: cut in parts that blocks walk in vectors.
//
// For each level of folds a kernel writes the states of all parts to the workspace; a last one
// combines them and writes the results. It begins where the one before ended: what that read last
// is still in the L2 cache. Blocks next to each other take the same part of all rows: what rows
// share, such as weights, they read together; where it is the same for all of a number of lines of
// memory (row_lines.cuh), a block takes these lines together. Of many elements and nothing shared
// but within pieces of a row, two kernels do what the last one does: totals, and results in slices
// (row_slices.cuh). A config has
//   THREADS   of a block
//   UNROLL    vectors of WIDTH elements that a thread has in flight
//   RESIDENT  blocks on a multiprocessor at one time

#include "dependent_launch.cuh"
#include "row_exchange.cuh"
#include "row_launch.cuh"
#include "row_lines.cuh"
#include "row_slices.cuh"
#include "row_states.cuh"

template <class Program, class Config_>
struct PartRows : VectorRows<Program, Config_::WIDTH> {
  using Config = Config_;
  using Base = VectorRows<Program, Config::WIDTH>;
  using RowLines = Lines<Program, Config::WIDTH>;
  static constexpr int OPERANDS = Base::Types::OPERANDS;
  using Exchange =
      TeamExchange<Config::THREADS / 32, 1, LargestState<typename Program::Folds>::BYTES>;

  char* workspace;
  RowTotals<Program>* row_totals;     // where a kernel of its own combines the parts
  uint32_t parts;                     // of each row: states of its folds
  uint32_t slices;                    // parts of each of its runs
  int part_vectors;                   // vectors in each, but for the last of a run
  RowLines fold_lines, finish_lines;  // these cut rows in another way

  __device__ __forceinline__ PartStates<Program> states(int64_t row) const {
    return {workspace, this->space.kept.count, parts, row};
  }

  // Whether who folds a row has its results.
  __host__ __device__ __forceinline__ bool is_finished_early() const {
    return Program::LEVELS == 1 && results_mask<Program, true>() == 0 && parts == 1;
  }
};

// A block at work on a part of a row.
template <class Program, class Config>
struct PartBlock {
  using Rows = PartRows<Program, Config>;
  using Types = RowTypes<Program>;
  using Run = RowRun<Program, Config::WIDTH>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, Config::WIDTH>::type;
  static constexpr int WIDTH = Config::WIDTH, THREADS = Config::THREADS, UNROLL = Config::UNROLL;

  const Rows& rows;
  typename Rows::Exchange& exchange;

  __device__ __forceinline__ Run part_of(int64_t row, uint32_t part) const {
    const uint32_t segment = rows.slices == 1 ? part : part / rows.slices;
    const int64_t from = static_cast<int64_t>(part - segment * rows.slices) * rows.part_vectors;
    return Run(rows, row, segment, from, rows.part_vectors);
  }

  // Calls body(count, is_whole, v) for `count` of this thread's vectors, THREADS apart from v on.
  template <int COUNT, class Body>
  __device__ __forceinline__ void walk(const Run& run, const Body& body) const {
    int v = static_cast<int>(threadIdx.x);
    if (v < run.whole_begin) {
      body(Index<1>(), Index<0>(), v);
      v += THREADS;
    }
    for (; v + (COUNT - 1) * THREADS < run.whole_end; v += COUNT * THREADS) {
      body(Index<COUNT>(), Index<1>(), v);
    }
    if constexpr (COUNT > 1) {
#pragma unroll 1
      for (; v < run.whole_end; v += THREADS) body(Index<1>(), Index<1>(), v);
    }
#pragma unroll 1
    for (; v < run.vectors(); v += THREADS) body(Index<1>(), Index<0>(), v);
  }

  template <int LEVEL>
  __device__ __forceinline__ void fold(int64_t row, uint32_t part,
                                       const typename Types::Totals& totals) const {
    constexpr unsigned READS = Program::READS[LEVEL];
    const Run run = part_of(row, part);
    typename Program::Inputs shared = {};
    load_shared_inputs<Program::SHARED & READS>(run, shared);
    auto states = no_elements<Program>();
    walk<UNROLL>(run, [&](auto count, auto is_whole, int v) {
      Vectors vectors[count];
#pragma unroll
      for (int k = 0; k < count; ++k) {
        load_inputs<READS & ~Program::SHARED, is_whole>(run, v + k * THREADS, vectors[k]);
      }
      fold_loaded<LEVEL, is_whole>(run, totals, shared, v, run.place(v), int64_t{THREADS} * WIDTH,
                                   vectors, states);
    });
    write_states<LEVEL>(row, part, states);
  }

  // The same of a part that is a slice of some lines.
  template <int LEVEL>
  __device__ __forceinline__ void fold_lines(int64_t row, uint32_t part,
                                             const typename Types::Totals& totals) const {
    constexpr unsigned READS = Program::READS[LEVEL];
    const Run first(rows, row, 0, 0, 0);
    typename Program::Inputs shared = {};
    load_shared_inputs<Program::SHARED & READS>(first, shared);
    auto states = no_elements<Program>();
    const int64_t length = rows.fold_lines.vectors * WIDTH;
    const LineBlock<Program, WIDTH, THREADS, UNROLL> block(rows.fold_lines, first, part);
    block.template walk<READS, shared_by_runs<Program>()>(
        [&](auto count, int64_t line, int v, const auto& vectors) {
          fold_loaded<LEVEL, 1>(first, totals, shared, v, line * length + int64_t{v} * WIDTH,
                                length, vectors, states);
        });
    write_states<LEVEL>(row, part, states);
  }

  // Adds COUNT vectors, `step` places apart from `place` on, to the states of a level.
  template <int LEVEL, int WHOLE, int COUNT>
  __device__ __forceinline__ void fold_loaded(const Run& run, const typename Types::Totals& totals,
                                              const typename Program::Inputs& shared, int v,
                                              int64_t place, int64_t step,
                                              const Vectors (&vectors)[COUNT],
                                              typename Types::States& states) const {
    // So many elements are folded at once that a thread's registers suffice.
    constexpr int TOGETHER = COUNT % 2 == 0 && WIDTH <= 4 ? 2 : 1;
    constexpr unsigned ALL = (1u << TOGETHER * WIDTH) - 1;
#pragma unroll
    for (int k = 0; k < COUNT; k += TOGETHER) {
      fold_vectors<LEVEL, TOGETHER>(run, totals, shared,
                                    VectorPlaces<WIDTH>{place + k * step, step}, vectors + k,
                                    WHOLE ? ALL : run.valid(v), states);
    }
  }

  // Of a row in one piece the results instead, where that is all there is to know of it.
  template <int LEVEL>
  __device__ __forceinline__ void write_states(int64_t row, uint32_t part,
                                               const typename Types::States& states) const {
    typename Types::Totals totals = {};
    each_fold<Program, LEVEL>([&](auto fold) {
      using Fold = typename Types::template FoldAt<fold>;
      const auto state = exchange.template combine<Fold>(get<fold>(states));
      if (rows.is_finished_early()) {
        set_totals<Program, fold>(state, totals);
      } else if (threadIdx.x == 0) {
        rows.states(row).template of<fold>()[part] = state;
      }
    });
    if (rows.is_finished_early() && threadIdx.x == 0) {
      store_row_results(Run(rows, row, 0, 0, 0), totals);
    }
  }

  // The state of a row from the states of its parts.
  template <int FOLD>
  __device__ __forceinline__ auto combine_states(int64_t row) const {
    using Fold = typename Types::template FoldAt<FOLD>;
    const auto* states = rows.states(row).template of<FOLD>();
    typename Fold::State state = Fold::identity();
    for (uint32_t part = threadIdx.x; part < rows.parts; part += THREADS) {
      state = Fold::combine(state, load_state(states + part));
    }
    return exchange.template combine<Fold>(state);
  }

  // The totals of the folds of levels below LEVEL.
  template <int LEVEL>
  __device__ __forceinline__ typename Types::Totals combine_parts(int64_t row) const {
    typename Types::Totals totals = {};
    repeat<Types::FOLDS>([&](auto fold) {
      if constexpr (Program::LEVEL_OF[fold] < LEVEL) {
        set_totals<Program, fold>(combine_states<fold>(row), totals);
      }
    });
    return totals;
  }

  // The states of a row's parts become its totals, and what the row has one of.
  __device__ __forceinline__ void combine_row(int64_t row) const {
    const auto totals = combine_parts<Program::LEVELS>(row);
    if (threadIdx.x > 0) return;
    rows.row_totals[row].totals = totals;
    store_row_results(Run(rows, row, 0, 0, 0), totals);
  }

  __device__ __forceinline__ void finish(int64_t row, uint32_t part,
                                         const typename Types::Totals& totals) const {
    constexpr unsigned READS = Program::READS[Program::LEVELS];
    const Run run = part_of(row, part);
    if constexpr (results_mask<Program, true>() != 0) {
      typename Program::Inputs shared = {};
      load_shared_inputs<Program::SHARED & READS>(run, shared);
      // Of more inputs fewer vectors fit registers.
      constexpr bool HAS_ONE = (READS & (READS - 1)) == 0;
      constexpr int COUNT = HAS_ONE || UNROLL == 1 ? UNROLL : UNROLL / 2;
      walk<COUNT>(run, [&](auto count, auto is_whole, int v) {
        Vectors vectors[count];
#pragma unroll
        for (int k = 0; k < count; ++k) {
          load_inputs<READS & ~Program::SHARED, is_whole>(run, v + k * THREADS, vectors[k]);
        }
#pragma unroll
        for (int k = 0; k < count; ++k) {
          store_vectors<is_whole>(run, v + k * THREADS, totals, shared, vectors[k]);
        }
      });
    }
    if (part == 0 && threadIdx.x == 0) store_row_results(run, totals);
  }

  // The results of a slice of rows that are lines; `totals` has room for those of a group.
  __device__ __forceinline__ void finish_lines(uint32_t part,
                                               typename Types::Totals* totals) const {
    constexpr unsigned READS = Program::READS[Program::LEVELS];
    const Run first(rows, 0, 0, 0, 0);
    const LineBlock<Program, WIDTH, THREADS, UNROLL> block(rows.finish_lines, first, part);
    combine_rows(block.begin_line, block.end_line, totals);
    const auto run_of = [&](int64_t row) {
      Run run = block.run(row);
      run.row = row;
      return run;
    };
    block.template walk<READS, shared_by_rows<Program>()>(
        [&](auto count, int64_t row, int v, const auto& vectors) {
#pragma unroll
          for (int k = 0; k < count; ++k) {
            const Run run = run_of(row + k);
            typename Program::Inputs shared = {};
            load_shared_inputs<Program::SHARED & READS>(run, shared);
            store_vectors<true>(run, v, totals[row + k - block.begin_line], shared, vectors[k]);
          }
        });
    if (block.begin > 0 || threadIdx.x > 0) return;
    for (int64_t row = block.begin_line; row < block.end_line; ++row) {
      store_row_results(run_of(row), totals[row - block.begin_line]);
    }
  }

  // The totals of some rows, a warp for each.
  __device__ __forceinline__ void combine_rows(int64_t begin, int64_t end,
                                               typename Types::Totals* totals) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int64_t row = begin + threadIdx.x / 32; row < end; row += THREADS / 32) {
      typename Types::Totals found = {};
      repeat<Types::FOLDS>([&](auto fold) {
        using Fold = typename Types::template FoldAt<fold>;
        const auto* states = rows.states(row).template of<fold>();
        typename Fold::State state = Fold::identity();
        for (uint32_t part = lane; part < rows.parts; part += 32) {
          state = Fold::combine(state, load_state(states + part));
        }
        set_totals<Program, fold>(combine_warp<Fold>(state), found);
      });
      if (lane == 0) totals[row - begin] = found;
    }
    __syncthreads();
  }
};

// Rows that a block finishes together, at most.
constexpr int MOST_LINES = 32;

template <int LEVEL, class Rows>
__device__ __forceinline__ void fold_parts(const Rows& rows) {
  using Program = decltype(rows.program);
  __shared__ __align__(16) char memory[Rows::Exchange::BYTES + 16];
  typename Rows::Exchange exchange = {memory};
  const PartBlock<Program, typename Rows::Config> block = {rows, exchange};
  const auto count = static_cast<uint32_t>(rows.space.kept.count);
  const int64_t row = blockIdx.x % count;
  const uint32_t part = blockIdx.x / count;
  wait_for_previous_kernel();
  const auto totals = block.template combine_parts<LEVEL>(row);
  if constexpr (shared_by_runs<Program>() != 0) {
    if (rows.fold_lines.count > 0) {
      block.template fold_lines<LEVEL>(row, part, totals);
      return;
    }
  }
  block.template fold<LEVEL>(row, part, totals);
}

// Before rows are finished in slices: a block for each.
template <class Rows>
__device__ __forceinline__ void combine_parts(const Rows& rows) {
  using Program = decltype(rows.program);
  __shared__ __align__(16) char memory[Rows::Exchange::BYTES + 16];
  typename Rows::Exchange exchange = {memory};
  const PartBlock<Program, typename Rows::Config> block = {rows, exchange};
  wait_for_previous_kernel();
  block.combine_row(blockIdx.x);
}

template <class Rows>
__device__ __forceinline__ void finish_parts(const Rows& rows) {
  using Program = decltype(rows.program);
  __shared__ __align__(16) char memory[Rows::Exchange::BYTES + 16];
  typename Rows::Exchange exchange = {memory};
  const PartBlock<Program, typename Rows::Config> block = {rows, exchange};
  // A row without results for its elements is finished by one block: there are as many as rows.
  const auto count = static_cast<uint32_t>(rows.space.kept.count);
  const uint32_t place = gridDim.x - 1 - blockIdx.x;
  wait_for_previous_kernel();
  if constexpr (shared_by_rows<Program>() != 0) {
    using Totals = typename Program::Totals;
    __shared__ __align__(16) char of_rows[MOST_LINES * sizeof(Totals)];
    if (rows.finish_lines.count > 0) {
      block.finish_lines(place, reinterpret_cast<Totals*>(of_rows));
      return;
    }
  }
  const auto totals = block.template combine_parts<Program::LEVELS>(place % count);
  block.finish(place % count, place / count, totals);
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct PartVariant {
  using Parameters = PartRows<Program, Config>;
  using Slices = RowSlices<Program, Config::WIDTH>;
  using Kernel = void (*)(Parameters);
  Kernel folds[Program::LEVELS];
  Kernel finish;
  // In place of that one, where rows are finished in slices; null for results without elements.
  Kernel combine;
  void (*finish_slice)(Slices);
  int multiprocessors;

  static bool takes(const typename Parameters::Space& space) {
    if (!Parameters::can_walk(space)) return false;
    const auto rows = Parameters::describe({}, space);
    // Short runs that begin between vectors leave most threads of a block idle.
    return rows.segments.rank == 0 || rows.is_even || rows.run_vectors() >= Config::THREADS;
  }

  int64_t workspace(const RowCall<Program>& call) const {
    const Parameters rows = plan(call);
    return totals_bytes(call) +
           state_bytes<Program, Parameters::Types::FOLDS>(call.space.kept.count * rows.parts);
  }

  cudaError_t launch(const RowCall<Program>& call, char* workspace, cudaStream_t stream) const {
    Parameters rows = plan(call);
    rows.row_totals = reinterpret_cast<RowTotals<Program>*>(workspace);
    rows.workspace = workspace + totals_bytes(call);
    const auto count = static_cast<unsigned>(call.space.kept.count);
    const unsigned blocks = count * rows.parts;
    for (const Kernel fold : folds) {
      const cudaError_t status = launch_dependent(fold, blocks, Config::THREADS, stream, rows);
      if (status != cudaSuccess) return status;
    }
    if (rows.is_finished_early()) return cudaSuccess;
    if (const Slices slices = slices_of(rows); slices.blocks > 0) {
      return launch_slices(rows, slices, stream);
    }
    unsigned last = count;
    if (rows.finish_lines.count > 0) {
      last = static_cast<unsigned>(rows.finish_lines.blocks());
    } else if (results_mask<Program, true>() != 0) {
      last = count * static_cast<unsigned>(rows.segments.count) * rows.slices;
    }
    return launch_dependent(finish, last, Config::THREADS, stream, rows);
  }

 private:
  // Of blocks on the card: each that finishes a part reads the states of all of its row.
  static constexpr int ROUNDS = 4;
  // Where one for each row reads them, parts may be short: the card is idle for less of the last.
  static constexpr int SLICED_ROUNDS = 32;

  cudaError_t launch_slices(const Parameters& rows, Slices slices, cudaStream_t stream) const {
    const auto count = static_cast<unsigned>(rows.space.kept.count);
    const auto blocks = static_cast<unsigned>(slices.blocks);
    slices.totals = rows.row_totals;
    const cudaError_t status = launch_dependent(combine, count, Config::THREADS, stream, rows);
    if (status != cudaSuccess) return status;
    return launch_dependent(finish_slice, blocks, Slices::THREADS, stream, slices);
  }

  Slices slices_of(const Parameters& rows) const {
    return finish_slice == nullptr ? Slices{rows.program} : Slices::find(rows, multiprocessors);
  }

  static int64_t totals_bytes(const RowCall<Program>& call) {
    return (call.space.kept.count * int64_t{sizeof(RowTotals<Program>)} + 15) / 16 * 16;
  }

  // Parts of one size that keep the card busy for some rounds.
  Parameters plan(const RowCall<Program>& call) const {
    constexpr int64_t STEP = int64_t{Config::THREADS} * Config::UNROLL;
    Parameters rows;
    static_cast<typename Parameters::Base&>(rows) = Parameters::describe(call.program, call.space);
    const int64_t count = call.space.kept.count;
    const int64_t runs = count * rows.segments.count;
    const int64_t vectors = rows.run_vectors();
    // Never so long that 32 bits would not count a part's elements.
    const int64_t fewest = vectors / (int64_t{1} << 27) + 1;
    const int64_t rounds = slices_of(rows).blocks > 0 ? SLICED_ROUNDS : ROUNDS;
    const int64_t wanted = (rounds * multiprocessors * Config::RESIDENT + runs - 1) / runs;
    const int64_t possible = (vectors + STEP - 1) / STEP;
    int64_t slices = wanted < possible ? wanted : possible;
    if (slices < fewest) slices = fewest;
    const int64_t steps = (vectors + slices * STEP - 1) / (slices * STEP);
    rows.part_vectors = static_cast<int>(steps * STEP);
    rows.slices = static_cast<uint32_t>((vectors + rows.part_vectors - 1) / rows.part_vectors);
    rows.parts = static_cast<uint32_t>(rows.segments.count * rows.slices);
    find_lines(call.space, rows);
    return rows;
  }

  void find_lines(const typename Parameters::Space& space, Parameters& rows) const {
    constexpr unsigned BY_RUNS = shared_by_runs<Program>();
    constexpr unsigned BY_ROWS = shared_by_rows<Program>();
    const int64_t blocks = ROUNDS * multiprocessors * Config::RESIDENT;
    if constexpr (BY_RUNS != 0) {
      // The outermost dimension of the row, and what is left.
      Axes<Parameters::OPERANDS> axis, inside;
      space.reduced.merged(streamed<Program>() | BY_RUNS).split(axis, inside);
      rows.fold_lines = Parameters::RowLines::template find<BY_RUNS>(space, axis, inside);
      if (rows.fold_lines.count > 0) {
        rows.fold_lines.cut((blocks + space.kept.count - 1) / space.kept.count, Config::THREADS,
                            rows.fold_lines.count);
        rows.parts = static_cast<uint32_t>(rows.fold_lines.blocks());
      }
    }
    if constexpr (BY_ROWS != 0) {
      const auto inside = space.reduced.merged(streamed<Program>() | BY_ROWS);
      rows.finish_lines =
          Parameters::RowLines::template find<BY_ROWS>(space, space.kept.merged(~0u), inside);
      if (rows.finish_lines.count > 0) {
        rows.finish_lines.cut(2 * blocks, Config::THREADS, MOST_LINES);
      }
    }
  }
};
