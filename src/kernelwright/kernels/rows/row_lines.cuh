#pragma once
// Lines of memory that share inputs: rows that have weights in common, or the runs of a row that
// all meet the same vector. A thread stays at one place of the line and walks from line to line:
// what they share is read once, and not by each line through the L2 cache.

#include "row_vectors.cuh"

// Inputs that folds read, and that runs of a row may share.
template <class Program>
__host__ __device__ constexpr unsigned shared_by_runs() {
  unsigned mask = 0;
  for (int level = 0; level < Program::LEVELS; ++level) mask |= Program::READS[level];
  return mask & other_inputs<Program>();
}

// Those that results have an element for each of, and that are the same for all rows.
template <class Program>
__host__ __device__ constexpr unsigned shared_by_rows() {
  if (results_mask<Program, true>() == 0) return 0;
  return Program::READS[Program::LEVELS] & Program::ALIKE & ~Program::SHARED;
}

template <class Program, int WIDTH>
struct Lines {
  static constexpr int OPERANDS = RowTypes<Program>::OPERANDS;

  int64_t count = 0;             // 0: there are no such lines
  int64_t vectors = 0;           // of each
  int64_t slice_vectors = 0;     // of a block
  int64_t group = 0;             // lines of a block
  uint32_t slices = 0;           // blocks along a line
  int64_t steps[OPERANDS] = {};  // bytes from a line to the next

  // Lines along `axis` (of which they are one step each) that hold `inside`, if all is aligned and
  // the inputs in COMMON are the same for all.
  template <unsigned COMMON>
  static Lines find(const typename RowTypes<Program>::Space& space, const Axes<OPERANDS>& axis,
                    const Axes<OPERANDS>& inside) {
    constexpr unsigned WALKED = streamed<Program>() | COMMON;
    Lines lines;
    bool fits = axis.rank == 1 && inside.rank == 1 && inside.is_short();
    fits = fits && inside.count % WIDTH == 0;
    repeat<OPERANDS>([&](auto o) {
      constexpr int64_t BYTES = operand_bytes<Program>(o);
      constexpr int64_t ALIGNMENT = access_bytes(WIDTH * BYTES);
      lines.steps[o] = fits ? axis.strides[0][o] * BYTES : 0;
      if constexpr ((WALKED >> o & 1) != 0) {
        fits = fits && inside.strides[0][o] == 1 && lines.steps[o] % ALIGNMENT == 0;
        fits = fits && reinterpret_cast<uintptr_t>(space.data[o]) % ALIGNMENT == 0;
        for (int d = 0; d < space.kept.rank; ++d) {
          fits = fits && space.kept.strides[d][o] * BYTES % ALIGNMENT == 0;
        }
      }
      if constexpr ((COMMON >> o & 1) != 0) fits = fits && lines.steps[o] == 0;
    });
    if (!fits) return {};
    lines.count = axis.count;
    lines.vectors = inside.count / WIDTH;
    return lines;
  }

  // Cuts them for about `blocks` blocks that take `step` vectors at once and `most` lines.
  void cut(int64_t blocks, int64_t step, int64_t most) {
    const int64_t possible = (vectors + step - 1) / step;
    const int64_t steps_each = (possible + blocks - 1) / blocks;
    slice_vectors = steps_each * step;
    slices = static_cast<uint32_t>((vectors + slice_vectors - 1) / slice_vectors);
    int64_t wanted = blocks / slices;
    if (wanted * most < count) wanted = (count + most - 1) / most;
    group = (count + wanted - 1) / wanted;
  }
  int64_t groups() const { return (count + group - 1) / group; }
  int64_t blocks() const { return groups() * slices; }
};

// A block at work on a slice of some lines.
template <class Program, int WIDTH, int THREADS, int UNROLL>
struct LineBlock {
  using Run = RowRun<Program, WIDTH>;
  using Types = RowTypes<Program>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, WIDTH>::type;

  const Lines<Program, WIDTH>& lines;
  const Run& first;  // line 0
  int64_t begin_line, end_line, begin, end;

  __device__ __forceinline__ LineBlock(const Lines<Program, WIDTH>& lines, const Run& first,
                                       uint32_t block)
      : lines(lines), first(first) {
    const uint32_t group = block / lines.slices;
    begin_line = group * lines.group;
    end_line = begin_line + lines.group < lines.count ? begin_line + lines.group : lines.count;
    begin = (block - group * lines.slices) * lines.slice_vectors;
    end = begin + lines.slice_vectors < lines.vectors ? begin + lines.slice_vectors : lines.vectors;
  }

  __device__ __forceinline__ Run run(int64_t line) const {
    Run result = first;
#pragma unroll
    for (int o = 0; o < Types::OPERANDS; ++o) result.at[o] += line * lines.steps[o];
    return result;
  }

  // Calls body(count, line, v, vectors) with vectors of the inputs in READS of `count` lines from
  // `line` on; those in COMMON are the same for all lines.
  template <unsigned READS, unsigned COMMON, class Body>
  __device__ __forceinline__ void walk(const Body& body) const {
#pragma unroll 1
    for (int64_t at = begin + threadIdx.x; at < end; at += THREADS) {
      const int v = static_cast<int>(at);
      Vectors shared;
      repeat<Types::INPUTS>([&](auto input) {
        if constexpr ((READS & COMMON & 1u << input) != 0) {
          using In = pack_item_t<input, typename Program::Inputs>;
          get<input>(shared) =
              load_vector<WIDTH>(reinterpret_cast<const In*>(first.template address<input>(v)));
        }
      });
      const auto some = [&](auto count, int64_t line) {
        Vectors vectors[count];
#pragma unroll
        for (int k = 0; k < count; ++k) {
          vectors[k] = shared;
          load_inputs<READS & ~(COMMON | Program::SHARED), true>(run(line + k), v, vectors[k]);
        }
        body(count, line, v, vectors);
      };
      int64_t line = begin_line;
#pragma unroll 1
      for (; line + UNROLL <= end_line; line += UNROLL) some(Index<UNROLL>(), line);
#pragma unroll 1
      for (; line < end_line; ++line) some(Index<1>(), line);
    }
  }
};
