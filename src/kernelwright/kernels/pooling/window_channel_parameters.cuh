#pragma once
// Depthwise convolutions whose channels are neighbours in memory (rows, columns and channels are
// the window's depth, height and width): each thread has a few neighbouring channels of some
// columns of the result, and goes down the rows of a segment. The operation has
//   IS_COPIED      whether what is pooled is an element of its one operand, widened
//   IS_UPPER_HALF  whether that element is the upper half of Value
// A config has
//   THREADS  threads of a block
//   VECTOR   neighbouring channels of a thread, which one access moves
//   OUTPUTS  columns of the result that a thread has
//   STEPS    rows of the result of a segment, at most
//   ALIKE    a bit for each operand (the result is 0) of which one element is for all channels
//   PLANE    a bit for each operand of which one row and column is for all of them; not for the one
//            that is copied

#include <algorithm>

#include "divide.cuh"
#include "window.cuh"

template <class Config, class Problem_>
struct ChannelParameters {
  using Problem = Problem_;
  using Operation = typename Problem::Operation;
  using Rows = typename Operation::Depth;
  using Columns = typename Operation::Height;
  static constexpr int VECTOR = Config::VECTOR, OUTPUTS = Config::OUTPUTS;
  static constexpr int THREADS = Config::THREADS, OPERANDS = Problem::OPERANDS;
  static_assert(Operation::POOLING == Pooling::DOT_LAST && Operation::DIMS == 3,
                "rows and columns of channels");
  // Most neighbours that have all channels of a chunk: whose weights a block copies.
  static constexpr int LANES = 32;
  // Columns of the source that a thread reads of a row.
  static constexpr int READS = (OUTPUTS - 1) * Columns::STRIDE + Columns::SPAN;
  static_assert(READS <= 32 && LANES <= THREADS, "a word has a bit for each of them");

  Problem problem;
  // Bytes from one column of an operand to the next, and from one row to the next.
  int across[OPERANDS], down[OPERANDS];
  Divisor groups;        // threads of a chunk of channels
  Divisor chunks;        // of all channels
  Divisor tiles;         // groups of columns of a row
  Divisor segments;      // of a plane
  int own;               // tiles of a block
  int steps;             // rows of a segment
  bool are_weights_run;  // one filter after the other
  uint32_t count;        // tiles

  static ChannelParameters describe(const Problem& problem) {
    ChannelParameters it{problem};
    const Extents& result = problem.result;
    for (int o = 0; o < OPERANDS; ++o) {
      const int64_t bytes = Problem::element_bytes(o);
      it.across[o] = static_cast<int>(problem.strides[o].height * bytes);
      it.down[o] = static_cast<int>(problem.strides[o].depth * bytes);
    }
    const Extents& stride = problem.strides[Problem::WEIGHTS];
    constexpr int ROW = Columns::SIZE, TAPS = Rows::SIZE * ROW;
    it.are_weights_run = (stride.height == 1 || ROW == 1) &&
                         (stride.depth == ROW || Rows::SIZE == 1) &&
                         (stride.width == TAPS || result.width == 1);
    const int groups = groups_of_chunk(static_cast<int>(result.width / VECTOR));
    it.groups = Divisor(static_cast<uint32_t>(groups));
    it.chunks = Divisor(static_cast<uint32_t>(divided(result.width, groups * VECTOR)));
    it.tiles = Divisor(static_cast<uint32_t>(divided(result.height, OUTPUTS)));
    // Segments are as long as one another, but for the last.
    it.steps = divided(result.depth, divided(result.depth, Config::STEPS));
    it.segments = Divisor(static_cast<uint32_t>(divided(result.depth, it.steps)));
    it.own = THREADS / groups;
    it.count = static_cast<uint32_t>(problem.planes) * it.segments.value() * it.tiles.value();
    return it;
  }

  int64_t blocks() const { return divided(count, own) * int64_t{chunks.value()}; }

  // Whether numbers are small, and channels whole accesses.
  static bool admits(const Problem& problem) {
    const Extents &source = problem.source, &result = problem.result;
    constexpr int64_t MOST = int64_t{1} << 30, FAR = int64_t{1} << 24;
    bool is = result.width % VECTOR == 0 && result.width < FAR;
    is = is && std::max({source.depth, source.height, result.depth, result.height}) < MOST;
    is = is && problem.planes < MOST && result.depth * result.height < MOST &&
         problem.planes * result.depth * result.height < MOST;
    for (int o = 0; o < Problem::WEIGHTS; ++o) is = is && has_accesses(problem, o);
    return is && describe(problem).blocks() < MOST;
  }

  __host__ __device__ static constexpr bool is_alike(int operand) {
    return (Config::ALIKE >> operand & 1) != 0;
  }
  __host__ __device__ static constexpr bool is_of_plane(int operand) {
    return (Config::PLANE >> operand & 1) != 0;
  }

 private:
  static int divided(int64_t value, int64_t by) { return static_cast<int>((value + by - 1) / by); }

  // As many as leave the fewest threads of all without a channel; where there are several chunks,
  // each begins at a sector of memory.
  static int groups_of_chunk(int groups) {
    if (groups <= LANES) return groups;
    constexpr int BYTES = VECTOR * static_cast<int>(sizeof(typename Problem::Out));
    constexpr int SECTOR = BYTES < 32 ? 32 / BYTES : 1;
    int best = LANES;
    int64_t busy = 0, of = 1;
    for (int own = LANES; own >= LANES / 2; own -= SECTOR) {
      const int64_t threads = THREADS / own * own, all = int64_t{divided(groups, own)} * own;
      // threads / THREADS * groups / all
      if (threads * of > busy * all) {
        busy = threads;
        of = all;
        best = own;
      }
    }
    return best;
  }

  static bool has_accesses(const Problem& problem, int o) {
    const Extents& stride = problem.strides[o];
    constexpr int64_t FAR = int64_t{1} << 24;  // a thread's columns are in 31 bits
    const int64_t bytes = Problem::element_bytes(o);
    bool is = stride.height * bytes < FAR && stride.depth * bytes < FAR * 64;
    if (is_of_plane(o)) is = is && stride.height == 0 && stride.depth == 0;
    if (is_alike(o)) return is && stride.width == 0;
    if (VECTOR == 1) return is;
    const int64_t alignment = access_bytes(static_cast<int>(VECTOR * bytes));
    is = is && stride.width == 1 && reinterpret_cast<uintptr_t>(problem.data[o]) % alignment == 0 &&
         stride.height * bytes % alignment == 0 && stride.depth * bytes % alignment == 0;
    for (int d = 0; d < problem.plane_rank; ++d) {
      is = is && problem.plane_strides[d][o] * bytes % alignment == 0;
    }
    return is;
  }
};
