#pragma once
// Turns of products of the same few rows: which columns they are, the rows in shared memory, and
// how results end.

#include <cstring>

#include "async_copy.cuh"
#include "joint_problem.cuh"
#include "mma_16x8x16.cuh"
#include "run.cuh"

// Sizes of turns, and the shared memory of a block: sums of two turns, what is under way, and rows.
template <class Config, class Problem>
struct JointTile {
  using T = typename Problem::T;
  static constexpr int WARPS = Config::WARPS, THREADS = 32 * WARPS;
  static constexpr int ROWS = 16, COLUMNS = JOINT_COLUMNS, FACTORS = Problem::FACTORS;
  static constexpr int EACH = ROWS * COLUMNS;  // elements of a turn, each a thread's in the end
  static_assert(THREADS >= EACH, "a thread has one element");
  static constexpr int SUMS = WARPS * EACH * FACTORS;  // of a turn
  static constexpr int LOADS = Config::LOADS;
  static constexpr int STAGES = FACTORS == 1 ? 2 : 1;  // steps under way
  static constexpr int RUN = 4 * JOINT_WIDTH;          // neighbours along K that four threads load
  static constexpr int STEP = LOADS * RUN;
  static constexpr int STAGE = LOADS * FACTORS * THREADS, SLOTS = STAGES * STAGE;
  static constexpr int SUM_BYTES = 2 * SUMS * static_cast<int>(sizeof(float));
  static constexpr int ROW_START = SUM_BYTES + SLOTS * 16;
  static_assert(Problem::Rows::Exchange::BYTES <= SUM_BYTES, "states take the place of sums");

  // Elements from row to row: four threads of each of two rows read 128 bytes of all banks.
  __host__ __device__ static constexpr int64_t pitch(int64_t k) { return (k + 63) / 64 * 64 + 32; }
  static int64_t shared_bytes(int64_t k, int64_t rows) {
    return ROW_START + (rows < ROWS ? rows : ROWS) * pitch(k) * int64_t{sizeof(T)};
  }
};

// Eight neighbours along K, two in each word.
struct alignas(16) JointWords {
  uint32_t word[4];
};

// A column of each factor: every four lanes have those of their own.
template <class T, int FACTORS>
struct JointColumns {
  const T* own[FACTORS];
  int64_t k_strides[FACTORS];
  bool exists = false;

  // Eight neighbours along K to where this thread alone reads them, or zeros.
  template <bool VECTORS>
  __device__ __forceinline__ void fetch(int factor, int at, int k, JointWords* to) const {
    const bool is_there = exists && at < k;
    if constexpr (VECTORS) {
      copy_async<16>(to, own[factor] + at, is_there);
    } else {
      T run[JOINT_WIDTH] = {};
#pragma unroll
      for (int i = 0; i < JOINT_WIDTH; ++i) {
        if (is_there && at + i < k) run[i] = own[factor][(at + i) * k_strides[factor]];
      }
      memcpy(to, &run, sizeof(run));
    }
  }

  // Their lines, on their way while the kernel before ends.
  __device__ __forceinline__ void ask_for(int k, int threads) const {
    if (!exists) return;
    const int thread = threadIdx.x / 32 * 4 + threadIdx.x % 4;
#pragma unroll
    for (int f = 0; f < FACTORS; ++f) prefetch_lines(own[f], 0, 1, k, thread, threads / 8);
  }
};

// This lane's columns in turn number `turn` of all results.
template <class Tile, class Problem>
__device__ __forceinline__ JointColumns<typename Problem::T, Problem::FACTORS> joint_columns(
    const Problem& problem, int turn) {
  using T = typename Problem::T;
  const int of_turn = threadIdx.x % 32 / 4;
  JointColumns<T, Problem::FACTORS> found;
  repeat<Problem::COUNT>([&](auto index) {
    const auto& result = get<index>(problem.results);
    if (turn >= 0 && turn < result.turns) {
      const int column = turn * Tile::COLUMNS + of_turn;
      found.exists = column < result.columns;
      const int run = found.exists ? result.run_of(column) : 0;
      const int place = found.exists ? column - run * result.run_columns() : 0;
#pragma unroll
      for (int f = 0; f < Problem::FACTORS; ++f) {
        const JointFactor& own = result.factors[f];
        found.own[f] =
            static_cast<const T*>(own.data) + run * own.run_stride + place * own.column_stride;
        found.k_strides[f] = own.k_stride;
      }
    }
    turn -= result.turns;
  });
  return found;
}

// A turn of a block: a tile of rows with the columns of a turn of all results. A block's next one
// comes as many units later as there are blocks.
struct JointTurn {
  int tile = 0, turn = blockIdx.x;

  template <class Tile, class Problem>
  __device__ __forceinline__ bool exists(const Problem& problem) {
#pragma unroll 1
    for (; turn >= problem.turns; turn -= problem.turns) ++tile;
    return first_row<Tile>() < problem.places.count;
  }
  template <class Tile>
  __device__ __forceinline__ int first_row() const {
    return tile * Tile::ROWS;
  }
};

// Writes `there` rows from `first` on, with zeros after each. `room`: of states that warps combine.
template <bool VECTORS, class Tile, class Problem>
__device__ __forceinline__ void fill_joint_rows(const Problem& problem, int first, int there,
                                                char* room, typename Problem::T* rows) {
  using T = typename Problem::T;
  constexpr int TEAM = Problem::Rows::WARPS, LANES = 32 * TEAM;
  static_assert(TEAM == 1 || TEAM == Tile::WARPS, "a warp, or all of a block");
  const int lane = threadIdx.x % LANES, k = static_cast<int>(problem.k);
  const auto pitch = static_cast<int>(Tile::pitch(k));
  typename Problem::Rows::Exchange exchange = {room};
#pragma unroll 1
  for (int row = threadIdx.x / LANES; row < there; row += Tile::WARPS / TEAM) {
    T* const to = rows + row * pitch;
    problem.rows.template fill<VECTORS>(
        first + row, lane, exchange,
        [&](int place, const auto& run) { store_vector(to + place, run); });
    const Vector<T, JOINT_WIDTH> nothing = {};
    const int place = k + lane * JOINT_WIDTH;
    if (place < pitch) store_vector(to + place, nothing);
  }
}

// Where an element of a result goes, or those of both halves, and what joins its sums.
template <class Product>
struct JointEnd {
  typename Product::Out* to[Product::HALVES];  // null where there is none
  typename Product::Joining joining[Product::HALVES];

  // `at`: where each of the operands has the element.
  template <size_t... E>
  __device__ __forceinline__ void find(void* const (&data)[Product::OPERANDS], int half,
                                       const int64_t (&at)[Product::OPERANDS],
                                       std::index_sequence<E...>) {
    using Extras = typename Product::Extras;
    to[half] = static_cast<typename Product::Out*>(data[0]) + at[0];
    ((get<E>(joining[half]) = static_cast<pack_item_t<E, Extras>>(data[1 + E])[at[1 + E]]), ...);
  }
  template <class Functor, int FACTORS, size_t... F, size_t... E>
  __device__ __forceinline__ void store(const Functor& functor, int half,
                                        const float (&sums)[FACTORS], std::index_sequence<F...>,
                                        std::index_sequence<E...>) const {
    if (to[half] == nullptr) return;
    *to[half] = narrow<typename Product::Out>(functor(sums[F]..., widen(get<E>(joining[half]))...));
  }
};

// The end of a turn for one of its elements, which is of one product. What joins it is asked for
// before the sums are there.
template <class Tile, class Problem>
struct JointEnds {
  using Products = typename Problem::Products;
  typename Problem::template Each<JointEnd> ends;

  __device__ __forceinline__ void find(const Problem& problem, int first_row, int turn) {
    const int own = threadIdx.x, row = first_row + own / Tile::COLUMNS;
    const bool is_there = own < Tile::EACH && row < problem.places.count;
    repeat<Problem::COUNT>([&](auto index) {
      using Product = pack_item_t<index, Products>;
      constexpr int FIRST = first_joint_operand<index, Products>();
      const auto& result = get<index>(problem.results);
      auto& end = get<index>(ends);
      const int column = turn * Tile::COLUMNS + own % Tile::COLUMNS;
      const bool is_own = is_there && turn >= 0 && column < result.columns;
      turn -= result.turns;
      repeat<Product::HALVES>([&](auto half) { end.to[half] = nullptr; });
      if (!is_own) return;
      int64_t offsets[Problem::OPERANDS] = {};
      problem.places.locate_short(static_cast<uint32_t>(row),
                                  ((1u << Product::OPERANDS) - 1) << FIRST, offsets);
      const int run = result.run_of(column), place = column - run * result.run_columns();
      repeat<Product::HALVES>([&](auto half) {
        int64_t at[Product::OPERANDS];
#pragma unroll
        for (int o = 0; o < Product::OPERANDS; ++o) {
          at[o] = offsets[FIRST + o] + place * result.column_strides[o] +
                  run * result.run_strides[o] + half * result.half_strides[o];
        }
        end.find(result.data, half, at, typename Product::Indices());
      });
    });
  }

  // `parts`: what each warp has summed.
  __device__ __forceinline__ void store(const Problem& problem, const float* parts) const {
    const int own = threadIdx.x;
    if (own >= Tile::EACH) return;
    float sums[Tile::FACTORS] = {};
#pragma unroll
    for (int warp = 0; warp < Tile::WARPS; ++warp) {
#pragma unroll
      for (int f = 0; f < Tile::FACTORS; ++f) {
        sums[f] += parts[(warp * Tile::FACTORS + f) * Tile::EACH + own];
      }
    }
    repeat<Problem::COUNT>([&](auto index) {
      using Product = pack_item_t<index, Products>;
      const auto& functors = get<index>(problem.results).functors;
      repeat<Product::HALVES>([&](auto half) {
        get<index>(ends).store(get<half>(functors), half, sums,
                               std::make_index_sequence<Tile::FACTORS>(),
                               typename Product::Indices());
      });
    });
  }
};
