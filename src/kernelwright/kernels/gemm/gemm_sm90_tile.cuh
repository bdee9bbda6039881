#pragma once
// The shape of a tensor-core product: tile, stages, units of work, and what is in shared memory.

#include <algorithm>

#include "divide.cuh"
#include "gemm_factor.cuh"
#include "gemm_problem.cuh"
#include "gemm_rest.cuh"
#include "gemm_split.cuh"
#include "gemm_tile.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

// Where the fp16 planes of the factors come from.
enum class Feed {
  SPLIT,    // a kernel before splits both
  AHEAD,    // the same, but for what a second launch reads: idle warps of the first split that
  PAIRED,   // the same, but for lhs that the kernel before wrote as pairs, see gemm_paired.cuh
  CONVERT,  // a kernel before splits rhs; lhs lies in boxes, and is split on the way into registers
  INSIDE,   // both lie in boxes; more warps of the product write their planes into its stages
  DIRECT,   // both lie in boxes and are multiplied as they come: of 16 bits, or rounded to TF32
  TURNS,    // the same, and each warpgroup has tiles of its own: one stores, the other multiplies
  BAND,     // patches, as DIRECT has them: all taps share a band of pixels (gemm_sm90_band.cuh)
};

constexpr int ROW_BUFFER_BYTES = 16 * 40 * 4;  // see RowBuffer
constexpr int MAX_SHARED_BYTES = 227 * 1024;   // of a block

// Of a thread that multiplies, where so many blocks of 384 threads are on a multiprocessor: what
// the warps beside it have given back is its own.
constexpr int direct_registers(int resident) {
  return resident == 1 ? 240 : resident == 2 ? 104 : 72;
}
constexpr int MOST_TURN_COLUMNS = 128;  // of a warpgroup's own tile of 128 rows

template <class Config, class Problem>
struct Sm90Tile {
  using Instruction = typename Config::Instruction;
  using Element = typename Instruction::Element;
  static constexpr Feed FEED = Config::FEED;
  static constexpr int STAGES = Config::STAGES, CLUSTER = Config::CLUSTER;
  static constexpr int RESIDENT = Config::RESIDENT;
  static constexpr bool TAKES_TURNS = FEED == Feed::TURNS;
  static constexpr int ROW_BYTES = 128;  // of a box
  static constexpr int BLOCK_N = Instruction::N, BLOCK_K = ROW_BYTES / sizeof(Element);
  // A warpgroup that has tiles of its own multiplies their rows 64 by 64, as many as have room.
  static constexpr int PARTS = TAKES_TURNS && BLOCK_N <= MOST_TURN_COLUMNS ? 2 : 1;
  static constexpr int BLOCK_M = TAKES_TURNS ? PARTS * 64 : 128;
  static constexpr int CONSUMERS = 2;  // warpgroups
  static constexpr int CONSUMER_WARPS = CONSUMERS * 4;
  static constexpr int TILE_WARPS = TAKES_TURNS ? 4 : CONSUMER_WARPS;  // that multiply a tile
  static constexpr int WARPGROUP = 128;
  static constexpr bool SPLITS_INSIDE = FEED == Feed::INSIDE;
  // Clusters of four have two rows of two blocks, which is for those that split inside alone.
  static constexpr int CLUSTER_COLUMNS = CLUSTER == 4 ? 2 : 1;
  static constexpr int CLUSTER_ROWS = CLUSTER / CLUSTER_COLUMNS;
  static constexpr int FEEDERS = SPLITS_INSIDE ? 2 : 1;  // warpgroups that do not multiply
  static constexpr int FEEDER_WARPS = FEEDERS * 4;
  static constexpr int THREADS = (CONSUMERS + FEEDERS) * WARPGROUP;
  static constexpr int RAW_BOX_BYTES = 64 * BLOCK_K * 4;  // of what splits inside: one of each side
  static constexpr int RAW_BYTES = SPLITS_INSIDE ? 2 * (RAW_BOX_BYTES + 2 * 8) : 0;
  // Arrivals that fill a stage, and blocks whose warps empty it.
  static constexpr int FILLERS = SPLITS_INSIDE ? FEEDER_WARPS : 1;
  static constexpr int SHARERS = CLUSTER == 4 ? 3 : CLUSTER;
  static constexpr int STEP_K = 32 / sizeof(Element);  // of one instruction
  static constexpr int REGISTERS = Instruction::REGISTERS;
  static constexpr bool IS_BAND = FEED == Feed::BAND;
  static constexpr int PLANES = FEED == Feed::DIRECT || TAKES_TURNS || IS_BAND ? 1 : 2;
  static constexpr int TAPS = Config::TAPS;
  static constexpr int LHS_ROWS = IS_BAND ? Config::PIXELS : BLOCK_M;
  // Of two planes, or of the fp32 numbers.
  static constexpr int LHS_BYTES = PLANES * LHS_ROWS * ROW_BYTES;
  static constexpr int LHS_PLANE = LHS_ROWS * ROW_BYTES, RHS_PLANE = BLOCK_N * ROW_BYTES;
  static constexpr int STAGE_BYTES = LHS_BYTES + PLANES * TAPS * RHS_PLANE;
  static constexpr int ALIGNMENT = 1024;  // of what is swizzled
  static constexpr int RING_BYTES = ALIGNMENT + STAGES * (STAGE_BYTES + 2 * 8) + RAW_BYTES;
  // Room that the stages leave is for whole rows of results (or of this slice's sums): asynchronous
  // copies store them from there while the next unit is multiplied.
  static constexpr int STRIP_BYTES = 16 * BLOCK_N * 4;  // of a warp
  static constexpr bool BUFFERED = PLANES == 2 && !SPLITS_INSIDE &&
                                   (Config::SLICES > 1 || sizeof(typename Problem::Result) == 4) &&
                                   RING_BYTES + CONSUMER_WARPS * STRIP_BYTES <= MAX_SHARED_BYTES;
  // Who splits inside leaves no room: results leave through lhs in the stage that was read last.
  static constexpr int BUFFER_BYTES = BUFFERED        ? STRIP_BYTES
                                      : SPLITS_INSIDE ? 0
                                                      : ROW_BUFFER_BYTES;  // of a warp
  static constexpr int SHARED_BYTES = RING_BYTES + CONSUMER_WARPS * BUFFER_BYTES;
  // Warps of the first warpgroup that split what the next launch reads, while the others multiply:
  // all but that of the thread that fetches.
  static constexpr bool SPLITS_AHEAD = FEED == Feed::AHEAD;
  static constexpr int SPLITTERS = WARPGROUP / 32 - 1;
  // Of 384 threads at 168, or 512 at 128: whoever multiplies needs up to three sums.
  static constexpr int PRODUCER_REGISTERS = SPLITS_INSIDE ? 48 : SPLITS_AHEAD ? 72 : 24;
  static constexpr int CONSUMER_REGISTERS = SPLITS_INSIDE  ? 208
                                            : SPLITS_AHEAD ? 216
                                                           : direct_registers(RESIDENT);
  // The sum of the low parts may drift by 2^-23 with each instruction: after so many steps of
  // BLOCK_K that is still under one rounding of fp32.
  static constexpr int FOLD_STEPS = 128;
  // With so few steps in a unit the two warpgroups take turns: one stores while the other
  // multiplies. The stages must hold a whole unit, which one warpgroup is done with before the
  // other begins.
  static constexpr int FEW_STEPS = STAGES < 4 ? STAGES : 4;

  // The last launch reads what kernels before have split, so what the guard says is known from the
  // start: where the pairs do not carry the factors, it multiplies on the CUDA cores.
  static constexpr bool IS_PAIRED = FEED == Feed::PAIRED;  // lhs, whose planes share lines
  static constexpr bool HAS_PLANES =
      FEED == Feed::SPLIT || FEED == Feed::AHEAD || IS_PAIRED;  // of both
  static constexpr bool FALLS_BACK = HAS_PLANES;

  // Whether tiles with a result can be told from those without by counting: a diagonal passes whole
  // tiles from one row of a cluster to the next.
  static constexpr bool SORTS = BLOCK_M * CLUSTER % BLOCK_N == 0;

  static_assert(SPLITS_INSIDE ? CLUSTER == 4 : CLUSTER == 1 || CLUSTER == 2,
                "blocks of a cluster fetch a half of rhs each, or split halves of both");
  static_assert(SHARED_BYTES <= MAX_SHARED_BYTES / RESIDENT, "a block has no more shared memory");
  static_assert(RESIDENT == 1 || FEED == Feed::DIRECT && CLUSTER == 1 && RESIDENT <= 3,
                "several blocks are for factors as they are");
  static_assert(PLANES == 1 || BLOCK_N <= 128, "three sums of 64 x 256 do not fit registers");
};

// The tiles of a matrix on both sides of a diagonal, in rows of clusters: `slope` more of each row
// than of the row before are on the left.
struct Sides {
  int first;  // of row 0 on the left, if there were as many
  int slope, columns;

  __host__ __device__ __forceinline__ int left_of(int row) const {
    const int left = first + slope * row;
    return left < 0 ? 0 : left > columns ? columns : left;
  }
  // Of the first `rows` rows together.
  __host__ __device__ __forceinline__ int left_above(int rows) const {
    const int begin = rows_until(1 - first, rows);      // some are on the left from here on
    const int end = rows_until(columns - first, rows);  // all are
    const int some = end - begin;
    return some * first + slope * (begin + end - 1) * some / 2 + columns * (rows - end);
  }

 private:
  __host__ __device__ __forceinline__ int rows_until(int more, int rows) const {
    const int row = more <= 0 ? 0 : (more + slope - 1) / slope;
    return row < rows ? row : rows;
  }
};

// A rectangle of tiles: rows are those of clusters, which have several, one below the other.
struct Tiles {
  int first_row, first_column, rows, columns;

  bool is_empty() const { return rows == 0 || columns == 0; }
};

// How units are numbered: divisors, and the sides of a triangle.
struct Sm90Units {
  int count;
  Tiles tiles;
  Divisor tiles_of_slice, tiles_of_batch, tiles_of_group, rows_of_group, rows_of_last_group;
  [[maybe_unused]] Sides triangle_sides = {};
};

constexpr int PRODUCT_MAPS = ANY_TOGETHER ? MOST_TOGETHER : 1;

template <class Problem>
struct Sm90Parameters {
  CUtensorMap lhs_map, rhs_map;
  // Of products together whose factors are read where they lie.
  [[maybe_unused]] CUtensorMap rhs_maps[PRODUCT_MAPS] = {};
  // BUFFERED, where is_boxed: 32 columns, blocks of columns, rows, batches. Of each product.
  [[maybe_unused]] CUtensorMap result_maps[PRODUCT_MAPS] = {};
  [[maybe_unused]] bool is_boxed = false;
  Problem problem;
  [[maybe_unused]] int lhs_batch_steps[MAX_BATCH_RANK] = {}, rhs_batch_steps[MAX_BATCH_RANK] = {};
  Sm90Units units;
  int steps_per_slice, steps;
  [[maybe_unused]] float* partials = nullptr;  // [slice][batch][m][partial_pitch]
  [[maybe_unused]] int64_t partial_pitch = 0;
  GemmHeader* header;
  [[maybe_unused]] Factor factors[2] = {};  // of what splits inside, to find the scales
  [[maybe_unused]] int guard_word = 0;      // of a kernel that splits: its first
  // What it splits for the next launch, if anything; 0 for lhs, 1 for rhs.
  [[maybe_unused]] SplitParameters::Side ahead = {};
  [[maybe_unused]] int ahead_side = 0;
  [[maybe_unused]] bool splits_ahead = false;
  [[maybe_unused]] int band_rows = 0;        // padded pixels of a batch
  [[maybe_unused]] Sm90Units all = {};       // of all launches
  [[maybe_unused]] bool falls_back = false;  // what the guard says is known from the start
};

// Unit of work: a tile of this block, and the steps of K to sum over.
struct Sm90Work {
  int slice, batch;  // linear
  int row, column;
  int first_step, steps;
};

// Which units a block works on: those of its cluster, from its number on.
template <class Tile>
struct Sm90Place {
  __device__ __forceinline__ static int rank() { return Tile::CLUSTER > 1 ? cluster_rank() : 0; }
  __device__ __forceinline__ static int cluster() { return blockIdx.x / Tile::CLUSTER; }
  __device__ __forceinline__ static int clusters() { return gridDim.x / Tile::CLUSTER; }
};

constexpr int GROUP_ROWS = 8;  // of clusters: blocks that run at one time share boxes in the L2

// Tiles on the left of the diagonal are those without a result (UPPER), or those with one.
template <class Tile, class Problem>
Sides divide_tiles(const Problem& problem, int columns) {
  constexpr int ROWS = Tile::BLOCK_M * Tile::CLUSTER, COLUMNS = Tile::BLOCK_N;
  const bool is_upper = problem.triangle == Triangle::UPPER;
  const int64_t most = int64_t{1} << 30;
  const int64_t diagonal =
      std::min(std::max(problem.diagonal + (is_upper ? 0 : ROWS - 1), -most), most);
  const int64_t first = diagonal >= 0 ? diagonal / COLUMNS : -((-diagonal - 1) / COLUMNS) - 1;
  return {static_cast<int>(first) + (is_upper ? 0 : 1), ROWS / COLUMNS, columns};
}

template <class Tile, class Problem>
Tiles all_tiles(const Problem& problem) {
  constexpr int64_t ROWS = Tile::BLOCK_M * Tile::CLUSTER_ROWS;
  constexpr int64_t COLUMNS = Tile::BLOCK_N * Tile::CLUSTER_COLUMNS;
  return {0, 0, static_cast<int>((problem.m + ROWS - 1) / ROWS),
          static_cast<int>((problem.n + COLUMNS - 1) / COLUMNS)};
}

// Only all tiles together may be those of a triangle.
template <class Tile, class Problem>
Sm90Units number_units(const Problem& problem, int slice_count, const Tiles& tiles) {
  const uint32_t rows = tiles.rows, columns = tiles.columns;
  const auto of_slice = static_cast<uint32_t>(rows * columns * problem.batches);
  const uint32_t last = rows % GROUP_ROWS;
  Sm90Units units = {static_cast<int>(of_slice * slice_count),
                     tiles,
                     Divisor(of_slice),
                     Divisor(rows * columns),
                     Divisor(GROUP_ROWS * columns),
                     Divisor(GROUP_ROWS),
                     Divisor(last == 0 ? GROUP_ROWS : last)};
  if constexpr (ANY_TRIANGLES) units.triangle_sides = divide_tiles<Tile>(problem, tiles.columns);
  return units;
}

// The cluster row and the column of tile number `tile` of a batch: those with a result come first,
// so that all blocks have as many of them, one or none more.
__device__ __forceinline__ void locate_in_triangle(const Sm90Units& units, bool is_upper, int tile,
                                                   int& cluster_row, int& column) {
  const Sides& sides = units.triangle_sides;
  const int left = sides.left_above(units.tiles.rows);
  const int with_result = is_upper ? sides.columns * units.tiles.rows - left : left;
  const bool on_left = (tile < with_result) != is_upper;
  if (tile >= with_result) tile -= with_result;
  const auto above = [&](int row) {
    return on_left ? sides.left_above(row) : sides.columns * row - sides.left_above(row);
  };
  int low = 0, high = units.tiles.rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (above(middle) <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  cluster_row = low;
  column = tile - above(low) + (on_left ? 0 : sides.left_of(low));
}

// Unit number `unit` of `units`.
template <class Tile, class Problem>
__device__ __forceinline__ Sm90Work locate_work(const Sm90Parameters<Problem>& p,
                                                const Sm90Units& units, int unit) {
  Sm90Work work;
  uint32_t left = unit;
  work.slice = units.tiles_of_slice.quotient(left);
  left -= work.slice * units.tiles_of_slice.value();
  work.batch = units.tiles_of_batch.quotient(left);
  left -= work.batch * units.tiles_of_batch.value();
  int cluster_row, column;
  if (ANY_TRIANGLES && Tile::SORTS && p.problem.triangle != Triangle::NONE) {
    locate_in_triangle(units, p.problem.triangle == Triangle::UPPER, left, cluster_row, column);
  } else {
    const int group = units.tiles_of_group.quotient(left);
    left -= group * units.tiles_of_group.value();
    const bool is_last = (group + 1) * GROUP_ROWS > units.tiles.rows;
    const Divisor& rows = is_last ? units.rows_of_last_group : units.rows_of_group;
    column = rows.quotient(left);
    cluster_row = group * GROUP_ROWS + left - column * rows.value();
    cluster_row += units.tiles.first_row;
    column += units.tiles.first_column;
  }
  const int rank = Sm90Place<Tile>::rank();
  const int row_of_cluster = Tile::CLUSTER_COLUMNS > 1 ? rank / Tile::CLUSTER_COLUMNS : rank;
  work.row = (cluster_row * Tile::CLUSTER_ROWS + row_of_cluster) * Tile::BLOCK_M;
  if constexpr (Tile::CLUSTER_COLUMNS > 1) {
    column = column * Tile::CLUSTER_COLUMNS + rank % Tile::CLUSTER_COLUMNS;
  }
  work.column = column * Tile::BLOCK_N;
  work.first_step = work.slice * p.steps_per_slice;
  // At least one, which may lie outside the factors: they are zero there.
  work.steps = max(1, min(p.steps_per_slice, p.steps - work.first_step));
  if constexpr (ANY_TRIANGLES) {
    // The blocks of a cluster share steps, and so skip them together; never those that look at lhs
    // for the guard.
    constexpr int ROWS = Tile::CLUSTER * Tile::BLOCK_M;
    const bool looks = Tile::FEED == Feed::CONVERT && work.column == 0;
    if (!looks && p.problem.is_zero(cluster_row * ROWS, ROWS, work.column, Tile::BLOCK_N)) {
      work.steps = 1;
    }
  }
  return work;
}

// The number of the first plane of a batch: `steps` of its index in each batch dimension.
template <class Problem>
__device__ __forceinline__ int plane_batch(const Problem& problem, int batch,
                                           const int (&steps)[MAX_BATCH_RANK]) {
  int plane = 0;
  if (problem.batch_rank == 0) return 0;
#pragma unroll
  for (int d = MAX_BATCH_RANK - 1; d >= 0; --d) {
    if (d < problem.batch_rank) {
      const int size = static_cast<int>(problem.batch_sizes[d]);
      plane += batch % size * steps[d];
      batch /= size;
    }
  }
  return plane;
}

// A place in a ring of COUNT buffers, and how often it went round, modulo 2.
template <int COUNT>
struct Ring {
  int stage = 0;
  int phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == COUNT) {
      stage = 0;
      phase ^= 1;
    }
  }
  // Goes on by `count` buffers.
  __device__ __forceinline__ void skip(int count) {
    const int rounds = (stage + count) / COUNT;
    stage += count - rounds * COUNT;
    phase ^= rounds & 1;
  }
};

template <class Tile>
struct Sm90Shared {
  unsigned char* stages;
  unsigned char* buffers;
  Barrier* full;   // the stage holds its boxes
  Barrier* empty;  // nobody reads the stage, in any block of the cluster
  // Of what splits inside: a box of fp32 numbers of each side, which is there, or read by all.
  [[maybe_unused]] unsigned char* raw = nullptr;
  [[maybe_unused]] Barrier *raw_full = nullptr, *raw_empty = nullptr;

  __device__ __forceinline__ explicit Sm90Shared(unsigned char* shared) {
    const uint32_t address = shared_address(shared);
    stages = shared + (Tile::ALIGNMENT - address % Tile::ALIGNMENT) % Tile::ALIGNMENT;
    buffers = stages + Tile::STAGES * Tile::STAGE_BYTES;
    full = reinterpret_cast<Barrier*>(buffers + Tile::CONSUMER_WARPS * Tile::BUFFER_BYTES);
    empty = full + Tile::STAGES;
    if constexpr (Tile::SPLITS_INSIDE) {
      raw = buffers;
      full = reinterpret_cast<Barrier*>(raw + 2 * Tile::RAW_BOX_BYTES);
      empty = full + Tile::STAGES;
      raw_full = empty + Tile::STAGES;
      raw_empty = raw_full + 2;
    }
  }

  __device__ __forceinline__ void init() const {
    for (int s = 0; s < Tile::STAGES; ++s) {
      init_barrier(full + s, Tile::FILLERS);
      init_barrier(empty + s, Tile::TILE_WARPS * Tile::SHARERS);
    }
    fence_barrier_init();
  }

  __device__ __forceinline__ unsigned char* lhs(int stage) const {
    return stages + stage * Tile::STAGE_BYTES;
  }
  __device__ __forceinline__ unsigned char* rhs(int stage, int plane) const {
    return lhs(stage) + Tile::LHS_BYTES + plane * Tile::RHS_PLANE;
  }

  // A consumer's warp reads the stage no more.
  __device__ __forceinline__ void release(int stage) const {
    const int lane = threadIdx.x % 32;
    if constexpr (Tile::CLUSTER == 1) {
      if (lane == 0) arrive(empty + stage);
    } else if constexpr (Tile::SPLITS_INSIDE) {
      // The others of its row and its column.
      if (lane < Tile::SHARERS) arrive_at_rank(empty + stage, Sm90Place<Tile>::rank() ^ lane);
    } else {
      if (lane < Tile::CLUSTER) arrive_at_rank(empty + stage, lane);
    }
  }
};
