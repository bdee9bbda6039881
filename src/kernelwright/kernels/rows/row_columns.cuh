#pragma once
// Rows whose elements lie apart, while neighbours in memory are elements of neighbouring rows: the
// threads of a block form a rectangle, LANES wide along the neighbours, and read vectors of WIDTH
// of them; SPLIT threads share the rows of a column of the rectangle. A config has
//   LANES, SPLIT, WIDTH
//   VECTORS   places of a row that a thread has in flight; all that it has of a row, if it HOLDS
//             them in registers from the first level of folds to the results
//   RESIDENT  blocks on a multiprocessor at one time
// and a program, besides what others ask of it,
//   LEVELLED  the inputs that have size 1 along the last dimension in which rows differ

#include "row_launch.cuh"
#include "row_vectors.cuh"

template <class Program, class Config_>
struct ColumnRows {
  using Config = Config_;
  using Types = RowTypes<Program>;
  using Space = typename Types::Space;
  static constexpr int WIDTH = Config::WIDTH;
  static constexpr int PLACES = Config::VECTORS * Config::SPLIT;
  // Operands that have an element for each of the neighbours: nothing is asked for their vectors.
  static constexpr unsigned NEIGHBOURS =
      streamed<Program>() & ~(Program::LEVELLED | Program::ALIKE);

  Program program;
  Space space;
  unsigned adjacent;           // operands with an element for each of the neighbours
  int steps[Types::OPERANDS];  // bytes from place to place

  static ColumnRows describe(const Program& program, const Space& space) {
    ColumnRows rows = {program, space, 0, {}};
    repeat<Types::OPERANDS>([&](auto o) {
      if (space.kept.inner_stride(o) == 1) rows.adjacent |= 1u << o;
      const int64_t stride = space.reduced.inner_stride(o);
      rows.steps[o] = static_cast<int>(stride * operand_bytes<Program>(o));
    });
    return rows;
  }

  static bool can_walk(const Space& space) {
    constexpr int64_t MOST = (int64_t{1} << 31) - 1;  // what 32 bits count
    if (space.kept.rank == 0 || space.kept.count == 0 || space.reduced.count == 0) return false;
    if (space.reduced.rank > 1 || space.reduced.count > MOST / 2) return false;
    if (space.kept.inner_stride(space.leader) != 1) return false;
    bool can = space.kept.sizes[space.kept.rank - 1] % WIDTH == 0;
    repeat<Types::OPERANDS>([&](auto o) {
      const int64_t stride = space.kept.inner_stride(o);
      can = can && space.reduced.inner_stride(o) * operand_bytes<Program>(o) <= MOST;
      can =
          can && (stride == 1 || (stride == 0 && o < Types::INPUTS && (NEIGHBOURS >> o & 1) == 0));
      can = can && (stride == 0 || o >= Types::INPUTS || (Program::LEVELLED >> o & 1) == 0);
      if (stride != 1) return;
      constexpr int64_t BYTES = operand_bytes<Program>(o);
      constexpr int64_t ALIGNMENT = access_bytes(WIDTH * BYTES);
      can = can && reinterpret_cast<uintptr_t>(space.data[o]) % ALIGNMENT == 0;
      for (int d = 0; d < space.reduced.rank; ++d) {
        can = can && space.reduced.strides[d][o] * BYTES % ALIGNMENT == 0;
      }
      for (int d = 0; d + 1 < space.kept.rank; ++d) {
        can = can && space.kept.strides[d][o] * BYTES % ALIGNMENT == 0;
      }
    });
    return can;
  }
};

template <class Program_, class Config>
struct ColumnThread {
  using Program = Program_;
  using Rows = ColumnRows<Program, Config>;
  using Types = RowTypes<Program>;
  using Element = typename Program::Inputs;
  using Vectors = typename PackOfVectors<Element, Config::WIDTH>::type;
  static constexpr int WIDTH = Config::WIDTH, VECTORS = Config::VECTORS;
  static constexpr int LANES = Config::LANES, SPLIT = Config::SPLIT;
  // Places that are folded together.
  static constexpr int TOGETHER = VECTORS < 8 ? VECTORS : 8;
  static_assert(VECTORS % TOGETHER == 0, "a thread folds all of its places");

  const Rows& rows;
  int lane, part;
  int64_t first_row;  // of the block
  int64_t row;        // the first of WIDTH
  bool has_rows;
  char* at[Types::OPERANDS];  // the first place of the row

  __device__ __forceinline__ ColumnThread(const Rows& rows, uint32_t tile) : rows(rows) {
    lane = static_cast<int>(threadIdx.x) % LANES;
    part = static_cast<int>(threadIdx.x) / LANES;
    first_row = static_cast<int64_t>(tile) * LANES * WIDTH;
    row = first_row + lane * WIDTH;
    has_rows = row < rows.space.kept.count;
    // Others take part in what threads do together.
    if (!has_rows) row = rows.space.kept.count - WIDTH;
    int64_t offsets[Types::OPERANDS] = {};
    rows.space.kept.locate(row, ~0u, offsets);
    repeat<Types::OPERANDS>(
        [&](auto o) { at[o] = rows.space.data[o] + offsets[o] * operand_bytes<Program>(o); });
  }

  // This thread's place number `k` of those from `first` on.
  __device__ __forceinline__ int place(int first, int k) const { return first + part + k * SPLIT; }

  template <int OPERAND, class T>
  __device__ __forceinline__ T* address(int place) const {
    return reinterpret_cast<T*>(at[OPERAND] + static_cast<int64_t>(place) * rows.steps[OPERAND]);
  }

  // Loads the inputs in MASK of VECTORS places; past the row's end its last place again. What a row
  // has one element of is loaded once: the copies are the same registers.
  template <unsigned MASK, bool FULL>
  __device__ __forceinline__ void load(int first, Vectors (&vectors)[VECTORS]) const {
    constexpr unsigned SHARED = MASK & Program::SHARED;
    const int last = static_cast<int>(rows.space.reduced.count) - 1;
    load_place<SHARED>(0, vectors[0]);
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      const int wanted = place(first, k);
      load_place<MASK & ~SHARED>(FULL || wanted < last ? wanted : last, vectors[k]);
      repeat<Types::INPUTS>([&](auto input) {
        if constexpr ((SHARED >> input & 1) != 0) get<input>(vectors[k]) = get<input>(vectors[0]);
      });
    }
  }

  template <unsigned MASK>
  __device__ __forceinline__ void load_place(int place, Vectors& vectors) const {
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((MASK >> input & 1) != 0) {
        using In = pack_item_t<input, Element>;
        const In* from = address<input, const In>(place);
        // What is known to be one value for all neighbours is in one register.
        constexpr bool IS_ONE = (Program::LEVELLED >> input & 1) != 0;
        constexpr bool IS_NEXT = (Rows::NEIGHBOURS >> input & 1) != 0;
        if (WIDTH == 1 || IS_NEXT || (!IS_ONE && (rows.adjacent >> input & 1) != 0)) {
          if constexpr (Program::ONCE != 0 && (Program::ONCE >> input & 1) != 0) {
            get<input>(vectors) = load_vector_once<WIDTH>(from);
          } else {
            get<input>(vectors) = load_vector<WIDTH>(from);
          }
        } else {
          const In value = *from;
#pragma unroll
          for (int i = 0; i < WIDTH; ++i) get<input>(vectors).element[i] = value;
        }
      }
    });
  }

  template <int LEVEL, bool FULL>
  __device__ __forceinline__ void fold(int first, const Vectors (&vectors)[VECTORS],
                                       const typename Types::Totals (&totals)[WIDTH],
                                       typename Types::States (&states)[WIDTH]) const {
    const int count = static_cast<int>(rows.space.reduced.count);
#pragma unroll
    for (int k = 0; k < VECTORS; k += TOGETHER) {
      unsigned valid = (1u << TOGETHER) - 1;
      if (!FULL) {
        valid = 0;
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
          valid |= place(first, k + i) < count ? 1u << i : 0;
        }
      }
#pragma unroll
      for (int c = 0; c < WIDTH; ++c) {
        Element elements[TOGETHER] = {};
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
          pick_element<Program::READS[LEVEL]>(vectors[k + i], c, elements[i]);
        }
        fold_elements<LEVEL>(rows.program, totals[c], rows.space.coordinates, row + c,
                             Places{place(first, k), SPLIT}, elements, valid, states[c]);
      }
    }
  }

  // The same without what is held.
  template <int LEVEL, bool FULL>
  __device__ __forceinline__ void load_and_fold(int first,
                                                const typename Types::Totals (&totals)[WIDTH],
                                                typename Types::States (&states)[WIDTH]) const {
    Vectors vectors[VECTORS];
    load<Program::READS[LEVEL], FULL>(first, vectors);
    fold<LEVEL, FULL>(first, vectors, totals, states);
  }

  // Where a piece of so many places from `begin` on ends.
  __device__ __forceinline__ int end_of(int begin, int places) const {
    const int rest = static_cast<int>(rows.space.reduced.count) - begin;
    return begin + (rest < places ? rest : places);
  }

  // The places from `begin` on, which are whole steps or end where the row does.
  template <int LEVEL>
  __device__ __forceinline__ void fold_places(int begin, int end,
                                              const typename Types::Totals (&totals)[WIDTH],
                                              typename Types::States (&states)[WIDTH]) const {
    // One comparison for both: with two the compiler leaves a loop whose loads come in bursts.
    const int beyond = static_cast<int>(rows.space.reduced.count) - place(0, VECTORS - 1);
    const int full = end < beyond ? end : beyond;
    int first = begin;
#pragma unroll 1
    for (; first < full; first += VECTORS * SPLIT) {
      load_and_fold<LEVEL, true>(first, totals, states);
    }
    if (place(first, 0) < end) load_and_fold<LEVEL, false>(first, totals, states);
  }

  // The totals of a level from the states of all threads that share the rows.
  template <int LEVEL>
  __device__ __forceinline__ void combine(const typename Types::States (&states)[WIDTH],
                                          typename Types::Totals (&totals)[WIDTH]) const {
    each_fold<Program, LEVEL>([&](auto fold) {
      using Fold = typename Types::template FoldAt<fold>;
      typename Fold::State own[WIDTH];
#pragma unroll
      for (int c = 0; c < WIDTH; ++c) own[c] = get<fold>(states[c]);
      if constexpr (SPLIT > 1) combine_split<Fold>(own);
#pragma unroll
      for (int c = 0; c < WIDTH; ++c) set_totals<Program, fold>(own[c], totals[c]);
    });
  }

  template <class Fold>
  __device__ __forceinline__ void combine_split(typename Fold::State (&states)[WIDTH]) const {
    __shared__ typename Fold::State shared[WIDTH][SPLIT][LANES];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) shared[c][part][lane] = states[c];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) {
      states[c] = shared[c][0][lane];
#pragma unroll
      for (int p = 1; p < SPLIT; ++p) states[c] = Fold::combine(states[c], shared[c][p][lane]);
    }
  }

  template <bool FULL>
  __device__ __forceinline__ void store(int first, const Vectors (&vectors)[VECTORS],
                                        const typename Types::Totals (&totals)[WIDTH]) const {
    if (!has_rows) return;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      const int at = place(first, k);
      if (!FULL && at >= static_cast<int>(rows.space.reduced.count)) break;
      store_place<Program::READS[Program::LEVELS], true>(at, vectors[k], totals);
    }
  }

  // Computes and writes the results of one kind at a place.
  template <unsigned MASK, bool OF_ELEMENTS>
  __device__ __forceinline__ void store_place(int place, const Vectors& vectors,
                                              const typename Types::Totals (&totals)[WIDTH]) const {
    repeat<Types::RESULTS>([&](auto result) {
      if constexpr (Program::IS_ELEMENT[result] == OF_ELEMENTS) {
        using Out = pack_item_t<result, typename Program::Results>;
        Vector<Out, WIDTH> values;
#pragma unroll
        for (int c = 0; c < WIDTH; ++c) {
          Element element = {};
          pick_element<MASK>(vectors, c, element);
          const RowPlace where = {rows.space.coordinates, row + c, place};
          values.element[c] = narrow<Out>(result_of_element<result>(
              rows.program, totals[c], where, element, typename Types::InputIndices()));
        }
        store_vector(address<Types::INPUTS + result, Out>(place), values);
      }
    });
  }

  // Writes the results that each row has one of.
  __device__ __forceinline__ void store_rows(const typename Types::Totals (&totals)[WIDTH]) const {
    if constexpr (results_mask<Program, false>() != 0) {
      if (part == 0 && has_rows) {
        Vectors vectors;
        load_place<Program::ROW_READS>(0, vectors);
        store_place<Program::ROW_READS, false>(0, vectors, totals);
      }
    }
  }
};

// Rows whose places the threads keep. FULL: each has as many as it can keep.
template <bool FULL, class Thread>
__device__ __forceinline__ void column_rows_held(const Thread& thread) {
  using Program = typename Thread::Program;
  using Types = RowTypes<Program>;
  typename Thread::Vectors vectors[Thread::VECTORS];
  typename Types::Totals totals[Thread::WIDTH] = {};
  thread.template load<all_reads<Program>(), FULL>(0, vectors);
  repeat<Program::LEVELS>([&](auto level) {
    typename Types::States states[Thread::WIDTH];
#pragma unroll
    for (int c = 0; c < Thread::WIDTH; ++c) states[c] = no_elements<Program>();
    thread.template fold<level, FULL>(0, vectors, totals, states);
    thread.template combine<level>(states, totals);
  });
  if constexpr (results_mask<Program, true>() != 0) thread.template store<FULL>(0, vectors, totals);
  thread.store_rows(totals);
}

// Rows of any length, read again for each level and for the results.
template <class Thread>
__device__ __forceinline__ void column_rows_read(const Thread& thread) {
  using Program = typename Thread::Program;
  using Types = RowTypes<Program>;
  constexpr int STEP = Thread::VECTORS * Thread::SPLIT;
  const int count = static_cast<int>(thread.rows.space.reduced.count);
  typename Types::Totals totals[Thread::WIDTH] = {};
  repeat<Program::LEVELS>([&](auto level) {
    typename Types::States states[Thread::WIDTH];
#pragma unroll
    for (int c = 0; c < Thread::WIDTH; ++c) states[c] = no_elements<Program>();
    thread.template fold_places<level>(0, count, totals, states);
    thread.template combine<level>(states, totals);
  });
  if constexpr (results_mask<Program, true>() != 0) {
#pragma unroll 1
    for (int first = 0; first < count; first += STEP) {
      typename Thread::Vectors vectors[Thread::VECTORS];
      thread.template load<Program::READS[Program::LEVELS], false>(first, vectors);
      thread.template store<false>(first, vectors, totals);
    }
  }
  thread.store_rows(totals);
}

template <class Rows>
__device__ __forceinline__ void column_rows(const Rows& rows) {
  wait_for_previous_kernel();
  const ColumnThread<decltype(rows.program), typename Rows::Config> thread(rows, blockIdx.x);
  if constexpr (!Rows::Config::HOLDS) {
    column_rows_read(thread);
  } else if (thread.rows.space.reduced.count == Rows::PLACES) {
    column_rows_held<true>(thread);
  } else {
    column_rows_held<false>(thread);
  }
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct ColumnVariant {
  using Parameters = ColumnRows<Program, Config>;
  void (*kernel)(Parameters);
  int multiprocessors;

  bool takes(const typename Parameters::Space& space) const {
    if (!Parameters::can_walk(space)) return false;
    constexpr int PLACES = Parameters::PLACES;
    if (Config::HOLDS && (space.reduced.count > PLACES || space.reduced.count * 4 < PLACES)) {
      return false;
    }
    // With few rows the card would be idle.
    return blocks(space) * 2 >= multiprocessors || space.reduced.count <= 4 * PLACES;
  }

  static int64_t workspace(const RowCall<Program>&) { return 0; }

  cudaError_t launch(const RowCall<Program>& call, char*, cudaStream_t stream) const {
    const Parameters rows = Parameters::describe(call.program, call.space);
    return launch_dependent(kernel, static_cast<unsigned>(blocks(call.space)), Config::THREADS,
                            stream, rows);
  }

 private:
  static int64_t blocks(const typename Parameters::Space& space) {
    constexpr int64_t TILE = int64_t{Config::LANES} * Config::WIDTH;
    return (space.kept.count + TILE - 1) / TILE;
  }
};
