#pragma once
// The results of long rows whose totals are known: blocks of a vector for each thread, in the order
// of memory.
//
// What such a block begins with is paid for by few bytes, so its kernel has parameters of its own:
// addresses and steps, and nothing to search for. It moves as many bytes in a second as a copy.
// Memory is walked from the end: what the folds read last is still in the L2 cache.

#include "row_lines.cuh"

// What the folds of a row come to.
template <class Program>
struct alignas(8) RowTotals {
  typename Program::Totals totals;
};

template <class Program_, int WIDTH_>
struct RowSlices {
  using Program = Program_;
  using Types = RowTypes<Program>;
  using Rows = VectorRows<Program, WIDTH_>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, WIDTH_>::type;
  static constexpr int WIDTH = WIDTH_, OPERANDS = Types::OPERANDS, INPUTS = Types::INPUTS;
  static constexpr unsigned READS = Program::READS[Program::LEVELS];
  static constexpr unsigned WALKED = READS & streamed<Program>();
  static constexpr int THREADS = 128, RESIDENT = 16;
  // Of a multiprocessor: for fewer it is not worth a launch to combine the parts of rows before.
  static constexpr int64_t FEWEST_BLOCKS = 128;
  // Of a piece: nearly all of them are full.
  static constexpr int64_t FEWEST_SLICES = 8;

  Program program;
  const RowTotals<Program>* totals;
  char* at[OPERANDS];                  // of the first row
  int64_t group_steps[OPERANDS];       // bytes from a group of rows to the next,
  int64_t run_steps[OPERANDS];         // from run to run of a row,
  int64_t row_steps[OPERANDS];         // from row to row of a group,
  int64_t piece_steps[OPERANDS];       // and from piece to piece of a run: in each, inputs that are
                                       // not walked in vectors are the same
  int piece_vectors;                   // of each
  Divisor runs, rows, pieces, slices;  // of a row; of a group; of a run; of a piece
  int64_t blocks = 0;                  // 0: not the way for these rows

  static RowSlices find(const Rows& rows, int multiprocessors) {
    RowSlices result = {rows.program};
    const int64_t piece = piece_of(rows);
    if (piece == 0) return result;
    const auto& space = rows.space;
    const int64_t vectors = piece / WIDTH, slices = (vectors + THREADS - 1) / THREADS;
    const int64_t pieces = rows.run / piece;
    const int64_t blocks = space.kept.count * rows.segments.count * pieces * slices;
    // 31 bits count the blocks, and the vectors of a piece.
    if (vectors < FEWEST_SLICES * THREADS || vectors > MOST || blocks > MOST) return result;
    if (blocks < FEWEST_BLOCKS * multiprocessors) return result;
    const int64_t group = space.kept.rank > 1 ? space.kept.sizes[1] : space.kept.count;
    result.set_steps(rows, piece);
    result.piece_vectors = static_cast<int>(vectors);
    result.runs = Divisor(static_cast<uint32_t>(rows.segments.count));
    result.rows = Divisor(static_cast<uint32_t>(group));
    result.pieces = Divisor(static_cast<uint32_t>(pieces));
    result.slices = Divisor(static_cast<uint32_t>(slices));
    result.blocks = blocks;
    return result;
  }

 private:
  static constexpr int64_t MOST = (int64_t{1} << 30) - 1;

  // Elements of a piece, which begins and ends where vectors do; 0 where rows have none.
  static int64_t piece_of(const Rows& rows) {
    const auto& space = rows.space;
    // What rows share is better walked in lines (row_lines.cuh).
    if (Program::LOCATED || (WALKED & Program::ALIKE) != 0) return 0;
    if (!rows.is_even || space.kept.rank > 2 || rows.segments.rank > 1) return 0;
    int64_t piece = rows.run;
    bool fits = true;
    repeat<INPUTS>([&](auto input) {
      if constexpr ((READS & other_inputs<Program>() & 1u << input) != 0) {
        fits = fits && space.reduced.inner_stride(input) == 0;
        piece = space.reduced.sizes[space.reduced.rank - 1];
      }
    });
    // At most one dimension between that of the runs and that of a piece.
    const int most = rows.segments.rank + (piece < rows.run ? 2 : 1);
    fits = fits && piece % WIDTH == 0 && rows.run % piece == 0 && space.reduced.rank <= most;
    return fits ? piece : 0;
  }

  void set_steps(const Rows& rows, int64_t piece) {
    const auto& kept = rows.space.kept;
    const auto& reduced = rows.space.reduced;
    repeat<OPERANDS>([&](auto o) {
      constexpr int64_t BYTES = operand_bytes<Program>(o);
      constexpr bool STREAMS = (streamed<Program>() >> o & 1) != 0;
      at[o] = rows.space.data[o];
      group_steps[o] = kept.rank > 1 ? kept.strides[0][o] * BYTES : 0;
      row_steps[o] = kept.inner_stride(o) * BYTES;
      run_steps[o] = rows.segments.inner_stride(o) * BYTES;
      const bool is_one = piece == rows.run;
      const int64_t outer = is_one ? 0 : reduced.strides[reduced.rank - 2][o];
      piece_steps[o] = (STREAMS ? piece : outer) * BYTES;
    });
  }
};

// A block at work on a slice.
template <class Slices>
struct SliceBlock {
  using Program = typename Slices::Program;
  using Types = RowTypes<Program>;
  static constexpr int WIDTH = Slices::WIDTH, THREADS = Slices::THREADS;

  const Slices& slices;
  uint32_t row;
  bool is_inside;              // this thread's vector
  char* at[Slices::OPERANDS];  // where it is

  __device__ __forceinline__ SliceBlock(const Slices& slices, uint32_t block) : slices(slices) {
    const uint32_t all_pieces = slices.slices.quotient(block);
    const uint32_t all_runs = slices.pieces.quotient(all_pieces);
    const uint32_t groups_runs = slices.rows.quotient(all_runs);
    const uint32_t group = slices.runs.quotient(groups_runs);
    const uint32_t slice = block - all_pieces * slices.slices.value();
    const uint32_t piece = all_pieces - all_runs * slices.pieces.value();
    const uint32_t place = all_runs - groups_runs * slices.rows.value();
    const uint32_t run = groups_runs - group * slices.runs.value();
    row = group * slices.rows.value() + place;
    const int vector = static_cast<int>(slice * THREADS + threadIdx.x);
    is_inside = vector < slices.piece_vectors;
    repeat<Slices::OPERANDS>([&](auto o) {
      constexpr bool STREAMS = (streamed<Program>() >> o & 1) != 0;
      at[o] = slices.at[o] + group * slices.group_steps[o] + run * slices.run_steps[o] +
              place * slices.row_steps[o] + piece * slices.piece_steps[o];
      if (STREAMS) at[o] += int64_t{vector} * (WIDTH * operand_bytes<Program>(o));
    });
  }

  __device__ __forceinline__ void finish() const {
    typename Slices::Vectors loaded;
    typename Program::Inputs shared = {};
    repeat<Slices::INPUTS>([&](auto input) {
      using In = pack_item_t<input, typename Program::Inputs>;
      const In* address = reinterpret_cast<const In*>(at[input]);
      if constexpr ((Slices::WALKED >> input & 1) != 0) {
        get<input>(loaded) = load_vector<WIDTH>(address);
      } else if constexpr ((Slices::READS >> input & 1) != 0) {
        get<input>(shared) = *address;
      }
    });
    const auto totals = slices.totals[row].totals;
    const RowCoordinates nowhere = {};
    repeat<Types::RESULTS>([&](auto result) {
      if constexpr (Program::IS_ELEMENT[result]) {
        using Out = pack_item_t<result, typename Program::Results>;
        const auto values = results_of_vector<result, Slices::WALKED, WIDTH>(
            slices.program, totals, shared, loaded, [&](int) { return RowPlace{nowhere, row, 0}; });
        store_vector(reinterpret_cast<Out*>(at[Slices::INPUTS + result]), values);
      }
    });
  }
};

template <class Slices>
__device__ __forceinline__ void finish_slices(const Slices& slices) {
  wait_for_previous_kernel();
  const SliceBlock<Slices> block(slices, gridDim.x - 1 - blockIdx.x);
  if (block.is_inside) block.finish();
}
