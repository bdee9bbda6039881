#pragma once
// Depthwise convolutions of planes whose rows are short: a block copies bands of planes to shared
// memory, or whole planes, and each thread goes down the rows of a band for a few neighbouring
// columns of the result. It keeps the sums of those rows of the result that a row of the source is
// in, so that an element is converted once for a thread, and none stays in registers. The results
// go to memory as they come, or, where rows are no whole vectors, through shared memory as one run.
// The operation has
//   Staged         the type that has what the prologue gives, without rounding
//   IS_COPIED      whether that is the element of its one operand
//   IS_UPPER_HALF  whether Staged is the upper half of Value
// A config has
//   THREADS    threads of a block
//   VECTOR     elements of the source that one access moves
//   OUTPUTS    columns of the result that a thread has
//   STORE      neighbouring ones of them that one access writes: if not all, results are one run
//   STEPS      rows of the result of a band, at most
//   BYTES      of shared memory, at most
//   REPEATED   a bit for each operand (the result is 0) of the prologue of which one element is for
//              all columns, and of the epilogue of which one is for a plane

#include <algorithm>

#include "divide.cuh"
#include "window_plane.cuh"

template <class Config, class Problem_>
struct BandParameters {
  using Problem = Problem_;
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Out = typename Problem::Out;
  using Staged = typename Operation::Staged;
  using Rows = typename Operation::Height;
  using Columns = typename Operation::Width;
  static_assert(Problem::HAS_WEIGHTS && Operation::DIMS == 2, "planes and their filters");
  static constexpr int THREADS = Config::THREADS, VECTOR = Config::VECTOR;
  static constexpr int OUTPUTS = Config::OUTPUTS, STORE = Config::STORE;
  static constexpr bool IS_DIRECT = STORE == OUTPUTS;

  static constexpr int rounded_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

  // Neighbouring threads start ACROSS columns of the source apart, OFFSET before their own, at
  // whole accesses to shared memory: each of these is inside of a row or outside.
  static constexpr int ACROSS = OUTPUTS * Columns::STRIDE;
  static constexpr int WIDEST = MAX_ACCESS_BYTES / static_cast<int>(sizeof(Staged));
  static constexpr int WHOLE = VECTOR < WIDEST ? VECTOR : WIDEST;
  static constexpr int ACCESS = (ACROSS & -ACROSS) < WHOLE ? (ACROSS & -ACROSS) : WHOLE;
  static constexpr int OFFSET = rounded_up(Columns::PADDING, ACCESS) - Columns::PADDING;
  static constexpr int ACCESSES =
      rounded_up(OFFSET + (OUTPUTS - 1) * Columns::STRIDE + Columns::SPAN, ACCESS) / ACCESS;
  // Copies of whole accesses come in so many parts, of which each has some rows of every band:
  // while later ones are on their way, a thread goes down the first.
  static constexpr int BYTES = VECTOR * static_cast<int>(sizeof(Staged));
  static constexpr bool IS_ASYNC =
      Operation::IS_COPIED && (BYTES == 4 || BYTES == 8 || BYTES == 16);
  static constexpr int PARTS = IS_ASYNC ? 4 : 1;
  static constexpr int TAPS = Rows::SIZE * Columns::SIZE;
  // Elements from one filter to the next.
  static constexpr int FILTER = rounded_up(TAPS, 4);

  // What a block knows of one band.
  struct Band {
    int64_t offsets[Problem::OPERANDS];  // of its plane
    int plane, begin, end;               // rows of the result
    int from, to;                        // rows of the source
  };

  // How a block copies what it needs: as one run of whole planes, band by band in parts, or access
  // by access through registers.
  enum class Staging { RUN, PARTS, ACCESSES };

  Problem problem;
  Divisor plane_sizes[MAX_RANK];
  Divisor groups, bands, vectors;  // of a row; of a plane; of a row of the source
  Divisor item_rows;               // of a band
  Divisor team;                    // threads that copy a band
  Staging staging;
  bool is_gathered;                            // results come to shared memory, as one run
  int staged_rows, part_rows;                  // of a band, and of a part of it
  int steps;                                   // rows of the result of a band
  int own;                                     // bands of a block
  uint32_t count;                              // of all
  int filters_at, tile_at, results_at, bytes;  // of shared memory

  static BandParameters describe(const Problem& problem) {
    BandParameters it{problem};
    const auto width = static_cast<int>(problem.result.width);
    const auto height = static_cast<int>(problem.result.height);
    const auto source_width = static_cast<int>(problem.source.width);
    const int groups = (width + OUTPUTS - 1) / OUTPUTS;
    const int wanted = (height + Config::STEPS - 1) / Config::STEPS;
    it.steps = (height + wanted - 1) / wanted;
    const int bands = (height + it.steps - 1) / it.steps;
    it.staged_rows = static_cast<int>(
        std::min(problem.source.height, int64_t{(it.steps - 1) * Rows::STRIDE + Rows::SPAN}));
    for (int d = 0; d < problem.plane_rank; ++d) {
      it.plane_sizes[d] = Divisor(static_cast<uint32_t>(problem.plane_sizes[d]));
    }
    it.groups = Divisor(static_cast<uint32_t>(groups));
    it.bands = Divisor(static_cast<uint32_t>(bands));
    it.vectors = Divisor(static_cast<uint32_t>(source_width / VECTOR));
    it.item_rows = Divisor(static_cast<uint32_t>(it.staged_rows));
    it.count = static_cast<uint32_t>(problem.planes * bands);
    it.own = std::min(THREADS / groups, static_cast<int>(it.count));
    while (it.own > 0 && it.divide_memory(source_width, width) > Config::BYTES) --it.own;
    if (it.own == 0) return it;
    // As many for each block.
    const auto blocks = static_cast<int>(it.blocks());
    it.own = (static_cast<int>(it.count) + blocks - 1) / blocks;
    it.divide_memory(source_width, width);
    it.team = Divisor(static_cast<uint32_t>(32 * (THREADS / 32 / std::min(it.own, THREADS / 32))));
    it.is_gathered = !IS_DIRECT && is_run_of_planes(problem, 0, problem.result);
    it.staging = staging_of(problem, it.staged_rows, bands);
    const int parts = it.staging == Staging::PARTS ? PARTS : 1;
    it.part_rows = (it.staged_rows + parts - 1) / parts;
    return it;
  }

  int64_t blocks() const { return (int64_t{count} + own - 1) / own; }

  // Whether numbers are small, rows are whole accesses, and a band fits.
  static bool admits(const Problem& problem) {
    constexpr int64_t MOST = int64_t{1} << 30;
    const Extents &source = problem.source, &result = problem.result;
    const int64_t groups = (result.width + OUTPUTS - 1) / OUTPUTS;
    const int64_t row = std::max(source.width, result.width);
    if (source.width < 1 || source.width % VECTOR != 0 || result.width % STORE != 0 ||
        groups > THREADS || row * Config::STEPS > Config::BYTES || source.height >= MOST ||
        result.height >= MOST || problem.planes * result.height >= MOST) {
      return false;
    }
    for (int o = Problem::FIRST_AFTER; o < Problem::WEIGHTS; ++o) {
      const Extents& stride = problem.strides[o];
      if ((Config::REPEATED >> o & 1) != 0 && (stride.height != 0 || stride.width != 0)) {
        return false;
      }
    }
    return stores_whole(problem) && describe(problem).own > 0;
  }

 private:
  // Places the parts of shared memory; returns how many bytes they are.
  int divide_memory(int source_width, int width) {
    const auto whole = [](int64_t size) { return static_cast<int>((size + 15) / 16 * 16); };
    filters_at = whole(own * int64_t{sizeof(Band)});
    tile_at = filters_at + whole(int64_t{own} * FILTER * sizeof(Value));
    results_at = tile_at + whole(int64_t{own} * staged_rows * source_width * sizeof(Staged) + 16);
    const int64_t results = IS_DIRECT ? 0 : int64_t{own} * steps * width * sizeof(Out) + 16;
    bytes = results_at + whole(results);
    return bytes;
  }

  static Staging staging_of(const Problem& problem, int rows, int bands) {
    const Extents &source = problem.source, &stride = problem.strides[1];
    // Parts of a band that are shorter leave most of a warp without a copy.
    constexpr int64_t SHORTEST = 256;
    const int64_t part = rows * source.width * static_cast<int64_t>(sizeof(Staged)) / PARTS;
    const bool is_short = !IS_ASYNC || part < SHORTEST;
    if (Operation::IS_COPIED && is_short && bands == 1 && rows == source.height &&
        is_run_of_planes(problem, 1, source)) {
      return Staging::RUN;
    }
    const bool is_plain = stride.height == source.width || source.height == 1;
    return IS_ASYNC && is_plain ? Staging::PARTS : Staging::ACCESSES;
  }

  static bool stores_whole(const Problem& problem) {
    const Extents& stride = problem.strides[0];
    bool is = is_aligned(problem, 0) && (stride.width == 1 || OUTPUTS == 1);
    is = is && (stride.height % STORE == 0 || problem.result.height == 1);
    for (int d = 0; d < problem.plane_rank; ++d) {
      is = is && problem.plane_strides[d][0] % STORE == 0;
    }
    return is;
  }
  static bool is_aligned(const Problem& problem, int operand) {
    return reinterpret_cast<uintptr_t>(problem.data[operand]) % access_bytes(STORE * sizeof(Out)) ==
           0;
  }
};
