#pragma once
// Rows side by side (row_columns.cuh) that are few and long: cut in parts, so that all of the card
// has some. For each level of folds one kernel writes the states of all parts to the workspace, and
// another one makes totals of them; where elements have results, a last one writes these. It begins
// where the folds ended: what they read last is still in the L2 cache.
//
// Of a row that the L2 cache holds, launches take longer than elements. So its blocks are narrow,
// and each that writes results makes the totals of its own few rows itself, while the elements are
// on their way. The kernel that made the elements may have made the states, too. Beside what others
// have, a config says
//   JOINED  whether blocks that finish make totals

#include <cstring>

#include "dependent_launch.cuh"
#include "row_columns.cuh"
#include "row_slices.cuh"
#include "row_states.cuh"

template <class Program, class Config>
struct ColumnPartRows : ColumnRows<Program, Config> {
  char* workspace;
  RowTotals<Program>* row_totals;
  uint32_t tiles;          // rectangles that stand side by side
  uint32_t parts, slices;  // of a row: for its folds, for its results
  int64_t pitch;           // states from those of a part to those of the next one
  int part_places, slice_places;
  int lanes;  // neighbouring rows of a block that makes totals, a power of two

  // States of a row that a thread loads together to make totals.
  static constexpr int LOADED = Config::JOINED ? 8 : 4;
  // Whether blocks that write results make the totals of the last level.
  static constexpr bool IS_JOINED = Config::JOINED && results_mask<Program, true>() != 0;
  static constexpr int COLUMNS = Config::LANES * Config::WIDTH;  // rows of a block

  // The states of all rows in a part; neighbouring rows lie side by side.
  template <int FOLD>
  __device__ __forceinline__ auto states(uint32_t part) const {
    using State = typename RowTypes<Program>::template FoldAt<FOLD>::State;
    const int64_t rows = this->space.kept.count;
    char* const first = workspace + state_bytes<Program, FOLD>(rows * parts);
    return reinterpret_cast<State*>(first) + part * pitch;
  }
};

template <class Rows, class Thread, int WIDTH, class Totals>
__device__ __forceinline__ void load_column_totals(const Rows& rows, const Thread& thread,
                                                   Totals (&totals)[WIDTH]) {
#pragma unroll
  for (int c = 0; c < WIDTH; ++c) totals[c] = load_state(rows.row_totals + thread.row + c).totals;
}

// The state of the lane that is so many further.
template <class State>
__device__ __forceinline__ State state_further(const State& state, int lanes) {
  static_assert(sizeof(State) % 4 == 0, "states are made of words");
  uint32_t words[sizeof(State) / 4];
  memcpy(words, &state, sizeof(State));
#pragma unroll
  for (uint32_t& word : words) word = __shfl_down_sync(0xffffffff, word, lanes);
  State found;
  memcpy(&found, words, sizeof(State));
  return found;
}

// Combines the states that groups of threads have in shared memory, `lanes` of them side by side,
// two by two: a power of two of groups. The first one has what it comes to.
template <class Fold, class State>
__device__ __forceinline__ State combine_halves(State* shared, State state, int lane, int lanes,
                                                int group, int groups) {
  for (int half = groups / 2; half > 0; half /= 2) {
    __syncthreads();
    if (group < half) {
      state = Fold::combine(state, shared[(group + half) * lanes + lane]);
      shared[threadIdx.x] = state;
    }
  }
  return state;
}

// --- Folds of parts ----------------------------------------------------------------------------

// The state of row number `threadIdx.x` of a block no wider than a warp, from those of all threads.
template <class Fold, class Thread, class State, int WIDTH>
__device__ __forceinline__ State combine_narrow(const State (&own)[WIDTH]) {
  constexpr int LANES = Thread::LANES, COLUMNS = LANES * WIDTH;
  constexpr int WARPS = LANES * Thread::SPLIT / 32, GROUPS = LANES * Thread::SPLIT / COLUMNS;
  static_assert(LANES < 32 && WARPS <= GROUPS, "a warp has several threads of each row");
  __shared__ State shared[GROUPS * COLUMNS];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int c = 0; c < WIDTH; ++c) {
    // In the first lanes, which have the warp's first places.
    State state = own[c];
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2) {
      state = Fold::combine(state, state_further(state, distance));
    }
    if (lane < LANES) shared[warp * COLUMNS + lane * WIDTH + c] = state;
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % COLUMNS;
  const int group = static_cast<int>(threadIdx.x) / COLUMNS;
  const State state = group < WARPS ? shared[threadIdx.x] : Fold::identity();
  return combine_halves<Fold>(shared, state, column, COLUMNS, group, WARPS);
}

template <int LEVEL, class Rows>
__device__ __forceinline__ void fold_column_parts(const Rows& rows) {
  using Thread = ColumnThread<decltype(rows.program), typename Rows::Config>;
  using Program = typename Thread::Program;
  using Types = RowTypes<Program>;
  constexpr int WIDTH = Thread::WIDTH;
  wait_for_previous_kernel();
  const uint32_t part = blockIdx.x / rows.tiles;
  const Thread thread(rows, blockIdx.x - part * rows.tiles);
  typename Types::Totals totals[WIDTH] = {};
  if constexpr (LEVEL > 0) load_column_totals(rows, thread, totals);
  typename Types::States states[WIDTH];
#pragma unroll
  for (int c = 0; c < WIDTH; ++c) states[c] = no_elements<Program>();
  const int begin = static_cast<int>(part) * rows.part_places;
  thread.template fold_places<LEVEL>(begin, thread.end_of(begin, rows.part_places), totals, states);
  each_fold<Program, LEVEL>([&](auto fold) {
    using Fold = typename Types::template FoldAt<fold>;
    typename Fold::State own[WIDTH];
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) own[c] = get<fold>(states[c]);
    auto* const to = rows.template states<fold>(part);
    if constexpr (Rows::IS_JOINED) {
      const auto state = combine_narrow<Fold, Thread>(own);
      const int64_t row = thread.first_row + threadIdx.x;
      if (threadIdx.x < Rows::COLUMNS && row < rows.space.kept.count) to[row] = state;
    } else {
      if constexpr (Thread::SPLIT > 1) thread.template combine_split<Fold>(own);
      if (thread.part > 0 || !thread.has_rows) return;
#pragma unroll
      for (int c = 0; c < WIDTH; ++c) to[thread.row + c] = own[c];
    }
  });
}

// --- Totals ------------------------------------------------------------------------------------

// The state of a row from those of its parts, which groups of threads share; in the first group.
template <int FOLD, class Rows>
__device__ __forceinline__ auto combine_groups(const Rows& rows, int64_t row, int lane, int lanes) {
  using Fold = typename RowTypes<decltype(rows.program)>::template FoldAt<FOLD>;
  using State = typename Fold::State;
  constexpr int LOADED = Rows::LOADED, THREADS = Rows::Config::THREADS;
  static_assert((THREADS & (THREADS - 1)) == 0, "groups are combined two by two");
  __shared__ State shared[THREADS];
  const int groups = THREADS / lanes, group = static_cast<int>(threadIdx.x) / lanes;
  State state = Fold::identity();
  for (uint32_t first = group; first < rows.parts; first += LOADED * groups) {
    State next[LOADED];
#pragma unroll
    for (int u = 0; u < LOADED; ++u) {
      const uint32_t part = first + u * groups;
      const bool is_there = part < rows.parts;
      next[u] = is_there ? load_state(rows.template states<FOLD>(part) + row) : Fold::identity();
    }
    const auto combine = [](const State& a, const State& b) { return Fold::combine(a, b); };
    state = Fold::combine(state, combine_tree(next, combine));
  }
  shared[threadIdx.x] = state;
  return combine_halves<Fold>(shared, state, lane, lanes, group, groups);
}

// The totals of `lanes` neighbouring rows from `first` on, each in one thread of a block's first
// ones, which calls body(row, totals).
template <int LEVEL, class Rows, class Body>
__device__ __forceinline__ void combine_rows(const Rows& rows, int64_t first, int lanes,
                                             const Body& body) {
  using Program = decltype(rows.program);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool has_row = first + lane < rows.space.kept.count;
  const int64_t row = has_row ? first + lane : rows.space.kept.count - 1;
  typename Program::Totals totals = {};
  if constexpr (LEVEL > 0) totals = load_state(rows.row_totals + row).totals;
  each_fold<Program, LEVEL>([&](auto fold) {
    set_totals<Program, fold>(combine_groups<fold>(rows, row, lane, lanes), totals);
  });
  if (static_cast<int>(threadIdx.x) < lanes && has_row) body(row, totals);
}

// Writes the results that a row has one of.
template <class Rows, class Totals>
__device__ __forceinline__ void store_column_results(const Rows& rows, int64_t row,
                                                     const Totals& totals) {
  using Program = decltype(rows.program);
  using Types = RowTypes<Program>;
  int64_t offsets[Types::OPERANDS] = {};
  rows.space.kept.locate(row, ~0u, offsets);
  typename Program::Inputs element = {};
  repeat<Types::INPUTS>([&](auto input) {
    if constexpr ((Program::ROW_READS >> input & 1) != 0) {
      using In = pack_item_t<input, typename Program::Inputs>;
      get<input>(element) = reinterpret_cast<const In*>(rows.space.data[input])[offsets[input]];
    }
  });
  store_results<false>(rows.program, totals, RowPlace{rows.space.coordinates, row, 0}, element,
                       rows.space.data, offsets);
}

// A block has some neighbouring rows.
template <int LEVEL, class Rows>
__device__ __forceinline__ void combine_column_parts(const Rows& rows) {
  using Program = decltype(rows.program);
  wait_for_previous_kernel();
  combine_rows<LEVEL>(rows, int64_t{blockIdx.x} * rows.lanes, rows.lanes,
                      [&](int64_t row, const auto& totals) {
                        constexpr bool IS_LAST = LEVEL + 1 == Program::LEVELS;
                        if constexpr (!IS_LAST || results_mask<Program, true>() != 0) {
                          rows.row_totals[row].totals = totals;
                        }
                        if constexpr (IS_LAST) store_column_results(rows, row, totals);
                      });
}

// --- Results of elements -----------------------------------------------------------------------

// The totals of a thread's rows, which the block makes of the states of all parts.
template <class Rows, class Thread, int WIDTH, class Totals>
__device__ __forceinline__ void join_column_totals(const Rows& rows, const Thread& thread,
                                                   bool is_first, Totals (&totals)[WIDTH]) {
  using Program = typename Thread::Program;
  __shared__ __align__(16) char memory[Rows::COLUMNS * sizeof(Totals)];
  auto* const joined = reinterpret_cast<Totals*>(memory);
  combine_rows<Program::LEVELS - 1>(rows, thread.first_row, Rows::COLUMNS,
                                    [&](int64_t row, const Totals& found) {
                                      joined[threadIdx.x] = found;
                                      if (is_first) store_column_results(rows, row, found);
                                    });
  __syncthreads();
  if (!thread.has_rows) return;
#pragma unroll
  for (int c = 0; c < WIDTH; ++c) totals[c] = joined[thread.lane * WIDTH + c];
}

template <class Rows>
__device__ __forceinline__ void finish_column_parts(const Rows& rows) {
  using Thread = ColumnThread<decltype(rows.program), typename Rows::Config>;
  using Program = typename Thread::Program;
  constexpr int STEP = Thread::VECTORS * Thread::SPLIT;
  constexpr unsigned READS = Program::READS[Program::LEVELS];
  const uint32_t place = gridDim.x - 1 - blockIdx.x, slice = place / rows.tiles;
  const Thread thread(rows, place - slice * rows.tiles);
  const int begin = static_cast<int>(slice) * rows.slice_places;
  const int end = thread.end_of(begin, rows.slice_places);
  wait_for_previous_kernel();
  typename Program::Totals totals[Thread::WIDTH] = {};
#pragma unroll 1
  for (int first = begin; first < end; first += STEP) {
    typename Thread::Vectors vectors[Thread::VECTORS];
    thread.template load<READS, false>(first, vectors);
    if (first == begin) {  // While elements are on their way.
      if constexpr (Rows::IS_JOINED) {
        join_column_totals(rows, thread, slice == 0, totals);
      } else {
        load_column_totals(rows, thread, totals);
      }
    }
    thread.template store<false>(first, vectors, totals);
  }
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct ColumnPartVariant {
  using Parameters = ColumnPartRows<Program, Config>;
  using Kernel = void (*)(Parameters);
  Kernel folds[Program::LEVELS];
  Kernel combines[Program::LEVELS];  // null where blocks that finish do it
  Kernel finish;
  int multiprocessors;

  static bool takes(const typename Parameters::Space& space) {
    // Shorter rows are not worth more than one launch.
    return Parameters::can_walk(space) && space.reduced.count > 2 * STEP;
  }

  int64_t workspace(const RowCall<Program>& call) const {
    const Parameters rows = plan(call);
    const int64_t count = call.space.kept.count;
    return totals_bytes(count) + state_bytes<Program, Parameters::Types::FOLDS>(count * rows.parts);
  }

  cudaError_t launch(const RowCall<Program>& call, char* workspace, cudaStream_t stream) const {
    Parameters rows = plan(call);
    const int64_t count = call.space.kept.count;
    rows.row_totals = reinterpret_cast<RowTotals<Program>*>(workspace);
    rows.workspace = workspace + totals_bytes(count);
    // States of the only level.
    const bool is_given = call.given != nullptr && call.given_parts <= MOST_GIVEN;
    if (is_given) {
      rows.workspace = call.given;
      rows.parts = static_cast<uint32_t>(call.given_parts);
      rows.pitch = call.given_pitch;
      rows.lanes = combining_lanes(count, rows.parts);
    }
    const auto combining = static_cast<unsigned>((count + rows.lanes - 1) / rows.lanes);
    for (int level = 0; level < Program::LEVELS; ++level) {
      if (!is_given) {
        const cudaError_t status =
            launch_dependent(folds[level], rows.tiles * rows.parts, Config::THREADS, stream, rows);
        if (status != cudaSuccess) return status;
      }
      if (Parameters::IS_JOINED && level + 1 == Program::LEVELS) break;
      const cudaError_t status =
          launch_dependent(combines[level], combining, Config::THREADS, stream, rows);
      if (status != cudaSuccess) return status;
    }
    if (results_mask<Program, true>() == 0) return cudaSuccess;
    return launch_dependent(finish, rows.tiles * rows.slices, Config::THREADS, stream, rows);
  }

 private:
  static constexpr int STEP = Parameters::PLACES;
  // Neighbouring rows whose states one block combines; with fewer, sectors would be read in vain.
  static constexpr int MOST_LANES = 32, FEWEST_LANES = 4;
  // Parts that others made: to read more of them takes longer than to make fewer.
  static constexpr int64_t MOST_GIVEN = Parameters::IS_JOINED ? 256 : 1024;
  // Of blocks that the card runs at one time.
  static constexpr int64_t ROUNDS = 1, FINISHING_ROUNDS = Parameters::IS_JOINED ? 1 : 4;

  static int64_t totals_bytes(int64_t count) {
    return (count * int64_t{sizeof(RowTotals<Program>)} + 15) / 16 * 16;
  }

  Parameters plan(const RowCall<Program>& call) const {
    Parameters rows = {};
    static_cast<ColumnRows<Program, Config>&>(rows) =
        ColumnRows<Program, Config>::describe(call.program, call.space);
    constexpr int64_t TILE = int64_t{Config::LANES} * Config::WIDTH;
    rows.tiles = static_cast<uint32_t>((call.space.kept.count + TILE - 1) / TILE);
    rows.part_places = cut(call.space.reduced.count, ROUNDS, rows.tiles, rows.parts);
    rows.slice_places = cut(call.space.reduced.count, FINISHING_ROUNDS, rows.tiles, rows.slices);
    rows.pitch = call.space.kept.count;
    rows.lanes = combining_lanes(call.space.kept.count, rows.parts);
    return rows;
  }

  // Of few rows with many parts each has more threads, as long as there are multiprocessors.
  int combining_lanes(int64_t count, int64_t parts) const {
    int lanes = MOST_LANES;
    while (lanes > FEWEST_LANES && count < int64_t{lanes} * multiprocessors &&
           parts > Config::THREADS / lanes * Parameters::LOADED) {
      lanes /= 2;
    }
    return lanes;
  }

  // Places of each piece of a row, of whole steps, where all make up so many rounds of blocks.
  int cut(int64_t length, int64_t rounds, int64_t tiles, uint32_t& pieces) const {
    const int64_t blocks = rounds * multiprocessors * Config::RESIDENT;
    const int64_t steps = (length + STEP - 1) / STEP;
    int64_t wanted = blocks > tiles ? blocks / tiles : 1;
    // Each block that finishes reads the states of all of them.
    if (Parameters::IS_JOINED && wanted > multiprocessors) wanted = multiprocessors;
    const int64_t each = (steps + wanted - 1) / wanted;
    pieces = static_cast<uint32_t>((steps + each - 1) / each);
    return static_cast<int>(each * STEP);
  }
};
