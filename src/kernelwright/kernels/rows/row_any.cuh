#pragma once
// Row programs over operands of any strides and alignment, and rows of any length.
//
// The threads of a block form a rectangle: LANES of them stand at neighbouring rows, the others at
// places of these rows. Who is next to whom in a warp is what lies next to each other in memory.
// One kernel does whole rows; long rows are cut in parts for which blocks write the states of folds
// to the workspace, level by level, and a last kernel combines them and writes the results.

#include "row_launch.cuh"
#include "row_states.cuh"

constexpr int ANY_THREADS = 256;
// Of a multiprocessor. Where it is not said, compilers spill to have more.
constexpr int ANY_BLOCKS = 2;

template <class Program>
struct AnyRows {
  using Types = RowTypes<Program>;
  static constexpr int THREADS = ANY_THREADS;
  static constexpr int UNROLL = 8;  // elements of a row that a thread has in flight

  Program program;
  typename Types::Space space;
  char* workspace;
  uint32_t parts;        // of each row
  int64_t part_places;   // places in each, but for the last
  uint32_t slices;       // of each row for its results: more than parts, whose states all read
  int64_t slice_places;  // places in each, but for the last
  int lanes_log2;        // rows of a block
  bool along;            // neighbouring threads stand at neighbouring places, not rows
};

// A thread's place in its block, and its row.
template <class Program>
struct AnyThread {
  const AnyRows<Program>& rows;
  int lane, place, places;
  int64_t first_row;  // of the block
  int64_t row;
  bool has_row;

  __device__ __forceinline__ AnyThread(const AnyRows<Program>& rows, int64_t tile) : rows(rows) {
    const int lanes = 1 << rows.lanes_log2;
    const int thread = static_cast<int>(threadIdx.x);
    places = ANY_THREADS >> rows.lanes_log2;
    lane = rows.along ? thread / places : thread & (lanes - 1);
    place = rows.along ? thread & (places - 1) : thread >> rows.lanes_log2;
    first_row = tile * lanes;
    const int64_t wanted = first_row + lane;
    has_row = wanted < rows.space.kept.count;
    // Others take part in what threads do together.
    row = has_row ? wanted : rows.space.kept.count - 1;
  }

  // The state of all threads of the row.
  template <class Fold>
  __device__ __forceinline__ typename Fold::State combine(typename Fold::State state) const {
    return combine_places<Fold>(state, lane * places + place);
  }

  // The same where thread number `own`, counted along places first, has `state`.
  template <class Fold>
  __device__ __forceinline__ typename Fold::State combine_places(typename Fold::State state,
                                                                 int own) const {
    __shared__ typename Fold::State shared[ANY_THREADS];
    __syncthreads();
    shared[own] = state;
    __syncthreads();
    for (int width = places / 2; width > 0; width /= 2) {
      if ((own & (places - 1)) < width) {
        state = Fold::combine(state, shared[own + width]);
        shared[own] = state;
      }
      __syncthreads();
    }
    return shared[lane * places];
  }
};

template <class Program>
struct AnyElements {
  using Types = RowTypes<Program>;
  using Element = typename Types::Element;
  const AnyThread<Program>& thread;
  int64_t row_offsets[Types::OPERANDS] = {};

  __device__ __forceinline__ explicit AnyElements(const AnyThread<Program>& thread)
      : thread(thread) {
    thread.rows.space.kept.locate(thread.row, ~0u, row_offsets);
  }

  template <unsigned READS>
  __device__ __forceinline__ void load(int64_t place, Element& element) const {
    int64_t offsets[Types::OPERANDS];
    locate(place, READS, offsets);
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((READS >> input & 1) != 0) {
        using In = pack_item_t<input, Element>;
        get<input>(element) =
            reinterpret_cast<const In*>(thread.rows.space.data[input])[offsets[input]];
      }
    });
  }

  __device__ __forceinline__ void locate(int64_t place, unsigned mask,
                                         int64_t (&offsets)[Types::OPERANDS]) const {
#pragma unroll
    for (int o = 0; o < Types::OPERANDS; ++o) offsets[o] = row_offsets[o];
    thread.rows.space.reduced.locate(place, mask, offsets);
  }

  // Adds the places from `begin` to `end` that are this thread's.
  template <int LEVEL>
  __device__ __forceinline__ void fold(int64_t begin, int64_t end,
                                       const typename Types::Totals& totals,
                                       typename Types::States& states) const {
    constexpr int UNROLL = AnyRows<Program>::UNROLL;
    const int step = thread.places;
    for (int64_t first = begin + thread.place; first < end; first += UNROLL * step) {
      Element elements[UNROLL] = {};
      unsigned valid = 0;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        // Past the end the first element again, which is there and does not count.
        const int64_t place = first + u * step;
        load<Program::READS[LEVEL]>(place < end ? place : first, elements[u]);
        valid |= place < end ? 1u << u : 0;
      }
      fold_elements<LEVEL>(thread.rows.program, totals, thread.rows.space.coordinates, thread.row,
                           Places{first, step}, elements, valid, states);
    }
  }

  // Writes the results of elements from `begin` to `end`.
  __device__ __forceinline__ void store(int64_t begin, int64_t end,
                                        const typename Types::Totals& totals) const {
    constexpr unsigned RESULTS = results_mask<Program, true>();
    constexpr int UNROLL = AnyRows<Program>::UNROLL / 2;
    if constexpr (RESULTS != 0) {
      const int step = thread.places;
      for (int64_t first = begin + thread.place; first < end; first += UNROLL * step) {
        Element elements[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
          const int64_t place = first + u * step;
          load<Program::READS[Program::LEVELS]>(place < end ? place : first, elements[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
          const int64_t place = first + u * step;
          if (place >= end || !thread.has_row) break;
          int64_t offsets[Types::OPERANDS];
          locate(place, RESULTS, offsets);
          store_results<true>(thread.rows.program, totals,
                              RowPlace{thread.rows.space.coordinates, thread.row, place},
                              elements[u], thread.rows.space.data, offsets);
        }
      }
    }
  }

  // Writes the results that the row has one of.
  __device__ __forceinline__ void store_row(const typename Types::Totals& totals) const {
    if (thread.place == 0 && thread.has_row) {
      Element element = {};
      load<Program::ROW_READS>(0, element);
      store_results<false>(thread.rows.program, totals,
                           RowPlace{thread.rows.space.coordinates, thread.row, 0}, element,
                           thread.rows.space.data, row_offsets);
    }
  }
};

// --- Rows in one piece -------------------------------------------------------------------------

template <class Program>
__device__ __forceinline__ void any_whole_rows(const AnyRows<Program>& rows) {
  wait_for_previous_kernel();
  using Types = RowTypes<Program>;
  const AnyThread<Program> thread(rows, blockIdx.x);
  const AnyElements<Program> elements(thread);
  const int64_t end = rows.space.reduced.count;
  typename Types::Totals totals = {};
  repeat<Program::LEVELS>([&](auto level) {
    typename Types::States states = no_elements<Program>();
    elements.template fold<level>(0, end, totals, states);
    each_fold<Program, level>([&](auto fold) {
      using Fold = typename Types::template FoldAt<fold>;
      set_totals<Program, fold>(thread.template combine<Fold>(get<fold>(states)), totals);
    });
  });
  elements.store(0, end, totals);
  elements.store_row(totals);
}

// --- Rows in parts -----------------------------------------------------------------------------

// Where the states of the parts of a row lie.
template <int FOLD, class Program>
__device__ __forceinline__ auto part_states(const AnyRows<Program>& rows, int64_t row) {
  const PartStates<Program> states = {rows.workspace, rows.space.kept.count, rows.parts, row};
  return states.template of<FOLD>();
}

// The totals of the folds of levels below LEVEL, from the states of their parts.
template <int LEVEL, class Program>
__device__ __forceinline__ typename Program::Totals combine_parts(
    const AnyThread<Program>& thread) {
  using Types = RowTypes<Program>;
  constexpr int UNROLL = 4;
  // Neighbouring threads at neighbouring parts, however they stand at the elements.
  const int own = static_cast<int>(threadIdx.x);
  const int64_t last = thread.rows.space.kept.count - 1;
  const int64_t wanted = thread.first_row + own / thread.places;
  const uint32_t first = own & (thread.places - 1), step = thread.places;
  typename Types::Totals totals = {};
  repeat<Types::FOLDS>([&](auto fold) {
    if constexpr (Program::LEVEL_OF[fold] < LEVEL) {
      using Fold = typename Types::template FoldAt<fold>;
      const auto* states = part_states<fold>(thread.rows, wanted < last ? wanted : last);
      typename Fold::State state = Fold::identity();
      for (uint32_t part = first; part < thread.rows.parts; part += UNROLL * step) {
        typename Fold::State next[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
          const bool is_there = part + u * step < thread.rows.parts;
          next[u] = is_there ? load_state(states + part + u * step) : Fold::identity();
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) state = Fold::combine(state, next[u]);
      }
      set_totals<Program, fold>(thread.template combine_places<Fold>(state, own), totals);
    }
  });
  return totals;
}

template <int LEVEL, class Program>
__device__ __forceinline__ void any_fold_parts(const AnyRows<Program>& rows) {
  wait_for_previous_kernel();
  using Types = RowTypes<Program>;
  const AnyThread<Program> thread(rows, blockIdx.x / rows.parts);
  const AnyElements<Program> elements(thread);
  const int64_t part = blockIdx.x % rows.parts;
  const int64_t begin = part * rows.part_places;
  const int64_t last = rows.space.reduced.count - begin;
  const typename Types::Totals totals = combine_parts<LEVEL>(thread);
  typename Types::States states = no_elements<Program>();
  elements.template fold<LEVEL>(begin, begin + (last < rows.part_places ? last : rows.part_places),
                                totals, states);
  each_fold<Program, LEVEL>([&](auto fold) {
    using Fold = typename Types::template FoldAt<fold>;
    const auto state = thread.template combine<Fold>(get<fold>(states));
    if (thread.place == 0 && thread.has_row) part_states<fold>(rows, thread.row)[part] = state;
  });
}

template <class Program>
__device__ __forceinline__ void any_finish_parts(const AnyRows<Program>& rows) {
  wait_for_previous_kernel();
  // A row without results for its elements is finished by one block.
  constexpr bool HAS_ELEMENTS = results_mask<Program, true>() != 0;
  const uint32_t slices = HAS_ELEMENTS ? rows.slices : 1;
  const AnyThread<Program> thread(rows, blockIdx.x / slices);
  const auto totals = combine_parts<Program::LEVELS>(thread);
  // Nothing of the elements takes registers while states are combined.
  const AnyElements<Program> elements(thread);
  const int64_t slice = blockIdx.x % slices;
  const int64_t begin = slice * rows.slice_places;
  const int64_t last = rows.space.reduced.count - begin;
  elements.store(begin, begin + (last < rows.slice_places ? last : rows.slice_places), totals);
  if (slice == 0) elements.store_row(totals);
}

// --- Host --------------------------------------------------------------------------------------

template <class Program>
struct AnyVariant {
  using Parameters = AnyRows<Program>;
  using Kernel = void (*)(Parameters);
  Kernel whole;
  Kernel folds[Program::LEVELS];
  Kernel finish;
  int multiprocessors;

  int64_t workspace(const RowCall<Program>& call) const {
    const Parameters rows = plan(call);
    if (rows.parts == 1) return 0;
    return state_bytes<Program, Parameters::Types::FOLDS>(rows.space.kept.count * rows.parts);
  }

  cudaError_t launch(const RowCall<Program>& call, char* workspace, cudaStream_t stream) const {
    Parameters rows = plan(call);
    rows.workspace = workspace;
    const auto tiles = static_cast<unsigned>(blocks_of(rows.space, rows.lanes_log2));
    if (tiles == 0) return cudaSuccess;
    const uint32_t parts = rows.parts;
    if (parts == 1) return launch_dependent(whole, tiles, ANY_THREADS, stream, rows);
    for (const Kernel fold : folds) {
      const cudaError_t status = launch_dependent(fold, tiles * parts, ANY_THREADS, stream, rows);
      if (status != cudaSuccess) return status;
    }
    const unsigned last = results_mask<Program, true>() != 0 ? tiles * rows.slices : tiles;
    return launch_dependent(finish, last, ANY_THREADS, stream, rows);
  }

 private:
  using Space = typename Parameters::Types::Space;

  // How the kernels go about it.
  Parameters plan(const RowCall<Program>& call) const {
    const Space& space = call.space;
    const int64_t width = space.reduced.count;
    Parameters rows = {call.program, space, nullptr, 1, width, 1, width, 0, true};
    rows.along = space.lies_along();
    // As many threads at places as the row has, or at rows as there are.
    int places_log2 = rows.along ? log2_of(width, 8) : 8 - log2_of(space.kept.count, 8);
    // A few neighbouring rows fill the accesses; then more threads share each of them.
    if (!rows.along && blocks_of(space, 8 - places_log2) < 2 * multiprocessors) places_log2 = 3;
    // A few short ones take one launch, by still more threads, where parts of them would take two.
    const bool is_short = width <= (4 * Parameters::UNROLL << 5);
    const bool at_once = !rows.along && is_short && blocks_of(space, 5) < multiprocessors;
    if (at_once) places_log2 = 5;
    rows.lanes_log2 = 8 - places_log2;
    const int64_t step = int64_t{Parameters::UNROLL} << places_log2;
    const int64_t wanted = 8 * multiprocessors / (blocks_of(space, rows.lanes_log2) + 1);
    const int64_t possible = width / (2 * step);
    const int64_t parts = wanted < possible ? wanted : possible;
    if (parts > 1 && !at_once) {
      // Every slice reads the states of all parts of its rows.
      rows.part_places = cut(width, rows.along ? parts : (parts + 1) / 2, step);
      rows.parts = static_cast<uint32_t>((width + rows.part_places - 1) / rows.part_places);
      rows.slice_places = cut(width, parts, step);
      rows.slices = static_cast<uint32_t>((width + rows.slice_places - 1) / rows.slice_places);
    }
    return rows;
  }

  // Places of a row in each of about `count` pieces of whole steps.
  static int64_t cut(int64_t width, int64_t count, int64_t step) {
    return (width + count * step - 1) / (count * step) * step;
  }

  static int64_t blocks_of(const Space& space, int lanes_log2) {
    return (space.kept.count + (int64_t{1} << lanes_log2) - 1) >> lanes_log2;
  }

  // The least power of two that is at least `count`, up to 2^limit.
  static int log2_of(int64_t count, int limit) {
    int log2 = 0;
    while (log2 < limit && (int64_t{1} << log2) < count) ++log2;
    return log2;
  }
};
