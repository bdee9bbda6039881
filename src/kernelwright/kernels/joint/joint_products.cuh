#pragma once
// Products of 16-bit rows, up to 16 of them at a time, that have the rows in common: one launch in
// place of one for each product, and of one for the norm of the rows. Memory sets the speed, so the
// factors are read once and in whole lines; what they are, no kernel before has written in general,
// and the lines are asked for while it still runs: that brings them to the second-level cache, from
// where they are read when it is complete.
//
// A block has the rows in shared memory and takes turns: in each 8 columns of a result. Its warps
// share K and add their sums in order in the end, so that every run comes to the same bits.
//
// A result may be made of several products with factors of one shape, as SwiGLU is of two: they are
// the accumulators of its functor. Or its columns come in runs of two halves, and of both an
// element of each is made, as by rotary embedding: then the accumulators are a column of each half.
//
// A config has
//   LOADS            of 32 neighbours along K of each column that a warp has under way
//   WARPS            of a block
//   RESIDENT         blocks that a multiprocessor has at one time
//   MULTIPROCESSORS  of the card
//   ROOM             bytes of shared memory of a multiprocessor

#include <cstring>

#include "async_copy.cuh"
#include "dependent_launch.cuh"
#include "joint_rows.cuh"
#include "mma_16x8x16.cuh"
#include "run.cuh"

constexpr int JOINT_COLUMNS = 8;  // of a turn

// One result. Functors: for the whole or for each half, called with the sums and what joins them.
template <class Out_, class Functors_, class... Extra_>
struct JointProduct {
  using Out = Out_;
  using Functors = Functors_;
  using Extras = Pack<const Extra_*...>;
  using Indices = std::index_sequence_for<Extra_...>;
  static constexpr int OPERANDS = 1 + static_cast<int>(sizeof...(Extra_));
  static constexpr int HALVES = PackTraits<Functors>::SIZE;
};

// Which dimensions of a result are what, counted from the end; 0: none, of size 1.
struct JointLayout {
  int rows[MAX_RANK] = {};  // for each dimension of the rows
  int inner = 1;            // columns, within their half where there are halves
  int outer = 0;            // runs of two halves
  int half = 0;
};

// A factor: element k of a column is `data[column * column_stride + k * k_stride]`.
struct JointFactor {
  const void* data = nullptr;
  int64_t column_stride = 0, run_stride = 0, k_stride = 0;
};

// A result and what joins it: their row strides stand with those of all others.
template <int FACTORS, class Product>
struct JointResult {
  static constexpr int OPERANDS = Product::OPERANDS;
  typename Product::Functors functors;
  int64_t columns = 0;  // of the result, or of its halves
  int64_t inner = 1;    // of them in a run
  JointFactor factors[FACTORS];
  void* data[OPERANDS] = {};
  int64_t column_strides[OPERANDS] = {}, run_strides[OPERANDS] = {}, half_strides[OPERANDS] = {};

  __host__ __device__ __forceinline__ int64_t turns() const {
    return (columns + JOINT_COLUMNS - 1) / JOINT_COLUMNS;
  }
  // Mostly the only one: a division takes as long as many products.
  __device__ __forceinline__ int64_t run_of(int64_t column) const {
    return columns == inner ? 0 : column / inner;
  }
};

// Number of the first operand of product INDEX among those of all.
template <int INDEX, class Products>
__host__ __device__ constexpr int first_joint_operand() {
  if constexpr (INDEX == 0) {
    return 0;
  } else {
    return first_joint_operand<INDEX - 1, Products>() + pack_item_t<INDEX - 1, Products>::OPERANDS;
  }
}

// Rows_: what fills shared memory (joint_rows.cuh). FACTORS_: accumulators of an element.
template <class Rows_, int FACTORS_, class... Product>
struct JointProblem {
  using Rows = Rows_;
  using T = typename Rows::Element;
  using Products = Pack<Product...>;
  static constexpr int COUNT = sizeof...(Product), FACTORS = FACTORS_;
  static constexpr int OPERANDS = (0 + ... + Product::OPERANDS);
  static_assert(sizeof(T) == 2, "the factors have 16 bits");

  Rows rows;
  Axes<OPERANDS> places;  // of rows, in results and what joins them
  int64_t k;
  int64_t turns = 0;  // of all results
  bool has_vectors;   // eight neighbours along K are one aligned access
  Pack<JointResult<FACTORS, Product>...> results;

  // How operands move along each dimension of the rows.
  struct Lines {
    int64_t sizes[MAX_RANK];
    int64_t steps[MAX_RANK][OPERANDS] = {};
    Lines() {
      for (int64_t& size : sizes) size = 1;
    }
  };

  // Result number INDEX, whose factors are (n, k); what joins it broadcasts to it.
  template <int INDEX, size_t GIVEN, size_t TENSORS>
  void describe(const Tensor (&factors)[GIVEN], const Tensor (&tensors)[TENSORS],
                const JointLayout& layout, Lines& lines) {
    using Own = pack_item_t<INDEX, Products>;
    static_assert(TENSORS == Own::OPERANDS, "a result has a tensor for each operand");
    static_assert(GIVEN == (Own::HALVES == 1 ? FACTORS : 1), "halves have one factor");
    auto& result = get<INDEX>(results);
    const Tensor& out = tensors[0];
    result.inner = size_of(out, layout.inner);
    result.columns = result.inner * size_of(out, layout.outer);
    turns += result.turns();
    for (int f = 0; f < FACTORS; ++f) {
      const Tensor& own = factors[Own::HALVES == 1 ? f : 0];
      const int64_t step = own.strides[0];
      const int64_t shift = Own::HALVES == 1 ? 0 : f * result.inner * step;
      result.factors[f] = {static_cast<const T*>(own.data) + shift, step,
                           Own::HALVES * result.inner * step, own.strides[1]};
      has_vectors = has_vectors && own.strides[1] == 1 && step % JOINT_WIDTH == 0 &&
                    reinterpret_cast<uintptr_t>(own.data) % 16 == 0;
    }
    for (size_t o = 0; o < TENSORS; ++o) {
      result.data[o] = tensors[o].data;
      result.column_strides[o] = stride_of(tensors[o], layout.inner);
      result.run_strides[o] = stride_of(tensors[o], layout.outer);
      result.half_strides[o] = stride_of(tensors[o], layout.half);
      for (int d = 0; d < MAX_RANK; ++d) {
        constexpr int FIRST = first_joint_operand<INDEX, Products>();
        lines.steps[d][FIRST + o] = stride_of(tensors[o], layout.rows[d]);
        if (o == 0 && layout.rows[d] > 0) lines.sizes[d] = size_of(out, layout.rows[d]);
      }
    }
  }

  // To be called once, when all results are there.
  void set_places(const Lines& lines) {
    for (int d = 0; d < MAX_RANK; ++d) places.append(lines.sizes[d], lines.steps[d]);
    places.prepare();
  }

 private:
  // Of a dimension counted from the end; one that is not there and one of size 1 never move.
  static int64_t stride_of(const Tensor& tensor, int from_end) {
    const int own = tensor.rank - from_end;
    return from_end == 0 || own < 0 || tensor.sizes[own] == 1 ? 0 : tensor.strides[own];
  }
  static int64_t size_of(const Tensor& tensor, int from_end) {
    return from_end == 0 ? 1 : tensor.sizes[tensor.rank - from_end];
  }
};

template <class Config, class Problem>
struct JointTile {
  using T = typename Problem::T;
  static constexpr int ROWS = 16, COLUMNS = JOINT_COLUMNS, FACTORS = Problem::FACTORS;
  static constexpr int LOADS = Config::LOADS, WARPS = Config::WARPS, THREADS = 32 * WARPS;
  static constexpr int RUN = 4 * JOINT_WIDTH;  // neighbours along K that four threads load
  static constexpr int STEP = LOADS * RUN;
  static constexpr int SUMS = WARPS * ROWS * COLUMNS * FACTORS;  // of a turn
  // What threads have under way: two steps, of which one may be of the next turn, or one of two
  // factors, which are as many bytes.
  static constexpr int STAGES = FACTORS == 1 ? 2 : 1;
  static constexpr int STAGE = LOADS * FACTORS * THREADS, SLOTS = STAGES * STAGE;

  // Elements from row to row: four threads of each of two rows read 128 bytes of all banks.
  __host__ __device__ static constexpr int64_t pitch(int64_t k) { return (k + 63) / 64 * 64 + 32; }
  static int64_t shared_bytes(int64_t k, int64_t rows) {
    return SLOTS * 16 + (rows < ROWS ? rows : ROWS) * pitch(k) * static_cast<int64_t>(sizeof(T));
  }
};

// Eight neighbours along K, two in each word.
struct alignas(16) JointWords {
  uint32_t word[4];
};

// The columns of a turn, of which every four lanes have one.
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

  // The lines of the columns, on their way while the kernel before ends.
  __device__ __forceinline__ void ask_for(int k, int threads) const {
    if (!exists) return;
    const int thread = threadIdx.x / 32 * 4 + threadIdx.x % 4;
#pragma unroll
    for (int f = 0; f < FACTORS; ++f) prefetch_lines(own[f], 0, 1, k, thread, threads / 8);
  }
};

// This lane's column in turn number `turn` of all results.
template <class Problem>
__device__ __forceinline__ JointColumns<typename Problem::T, Problem::FACTORS> joint_columns(
    const Problem& problem, int64_t turn) {
  using T = typename Problem::T;
  JointColumns<T, Problem::FACTORS> found;
  repeat<Problem::COUNT>([&](auto index) {
    const auto& result = get<index>(problem.results);
    const int64_t turns = result.turns();
    if (turn >= 0 && turn < turns) {
      const int64_t column = turn * JOINT_COLUMNS + threadIdx.x % 32 / 4;
      found.exists = column < result.columns;
      const int64_t run = found.exists ? result.run_of(column) : 0;
      const int64_t place = found.exists ? column - run * result.inner : 0;
#pragma unroll
      for (int f = 0; f < Problem::FACTORS; ++f) {
        const JointFactor& own = result.factors[f];
        found.own[f] =
            static_cast<const T*>(own.data) + run * own.run_stride + place * own.column_stride;
        found.k_strides[f] = own.k_stride;
      }
    }
    turn -= turns;
  });
  return found;
}

// A turn of a block: a tile of rows with the columns of a turn of all results. A block's next one
// comes as many units later as there are blocks.
struct JointTurn {
  int tile = 0, turn = blockIdx.x;

  template <class Tile, class Problem>
  __device__ __forceinline__ bool exists(const Problem& problem) {
    const auto turns = static_cast<int>(problem.turns);
    for (; turn >= turns; turn -= turns) ++tile;
    return first_row<Tile>() < problem.places.count;
  }
  template <class Tile>
  __device__ __forceinline__ int64_t first_row() const {
    return int64_t{tile} * Tile::ROWS;
  }
};

// A thread's part of a product.
template <class Tile>
struct JointWork {
  using T = typename Tile::T;
  JointWords* slots;  // this thread's first one of a stage
  float sums[Tile::FACTORS][4];

  __device__ __forceinline__ JointWords* slot(int stage, int load, int factor) const {
    return slots + stage * Tile::STAGE + (load * Tile::FACTORS + factor) * Tile::THREADS;
  }

  // Sends for what a warp reads at once of the columns, from `step` along K on.
  template <bool VECTORS>
  __device__ __forceinline__ void fetch(const JointColumns<T, Tile::FACTORS>& columns, int stage,
                                        int step, int k) const {
    const int at = step + threadIdx.x % 4 * JOINT_WIDTH;
#pragma unroll
    for (int load = 0; load < Tile::LOADS; ++load) {
#pragma unroll
      for (int f = 0; f < Tile::FACTORS; ++f) {
        columns.template fetch<VECTORS>(f, at + load * Tile::RUN, k, slot(stage, load, f));
      }
    }
  }

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int f = 0; f < Tile::FACTORS; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[f][i] = 0;
    }
  }

  // Adds the products of what was sent for. `upper` and `lower` are where two of the rows have K
  // from zero on.
  __device__ __forceinline__ void multiply(const T* upper, const T* lower, int stage, int step,
                                           int k) {
    if (step + Tile::STEP <= k) {
#pragma unroll
      for (int load = 0; load < Tile::LOADS; ++load) add(upper, lower, stage, step, load);
    } else {
#pragma unroll 1
      for (int load = 0; step + load * Tile::RUN < k; ++load) {
        add(upper, lower, stage, step, load);
      }
    }
  }
  __device__ __forceinline__ void add(const T* upper_row, const T* lower_row, int stage, int step,
                                      int load) {
    const int at = step + load * Tile::RUN;
    const JointWords upper = *reinterpret_cast<const JointWords*>(upper_row + at);
    const JointWords lower = *reinterpret_cast<const JointWords*>(lower_row + at);
#pragma unroll
    for (int f = 0; f < Tile::FACTORS; ++f) {
      const JointWords wide = *slot(stage, load, f);
#pragma unroll
      for (int half = 0; half < 4; half += 2) {
        const uint32_t pairs[4] = {upper.word[half], lower.word[half], upper.word[half + 1],
                                   lower.word[half + 1]};
        const uint32_t pair[2] = {wide.word[half], wide.word[half + 1]};
        WarpProduct<T>::add(sums[f], pairs, pair);
      }
    }
  }
};

// Writes `there` rows from `first` on, with zeros after each.
template <bool VECTORS, class Tile, class Problem>
__device__ __forceinline__ void fill_joint_rows(const Problem& problem, int64_t first, int there,
                                                typename Tile::T* rows) {
  using T = typename Tile::T;
  const int lane = threadIdx.x % 32;
  const int64_t pitch = Tile::pitch(problem.k);
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < there; row += Tile::WARPS) {
    T* const to = rows + row * pitch;
    problem.rows.template fill<VECTORS>(
        first + row, lane, [&](int place, const auto& run) { store_vector(to + place, run); });
    const Vector<T, JOINT_WIDTH> nothing = {};
    const int64_t place = problem.k + lane * JOINT_WIDTH;
    if (place < pitch) store_vector(to + place, nothing);
  }
}

// The result of one element: `at` is where each of the operands has it.
template <class Product, class Functor, int FACTORS, size_t... F, size_t... E>
__device__ __forceinline__ void store_joint(void* const (&data)[Product::OPERANDS],
                                            const Functor& functor, const float (&sums)[FACTORS],
                                            const int64_t (&at)[Product::OPERANDS],
                                            std::index_sequence<F...>, std::index_sequence<E...>) {
  using Out = typename Product::Out;
  using Extras = typename Product::Extras;
  static_cast<Out*>(data[0])[at[0]] = narrow<Out>(
      functor(sums[F]..., widen(static_cast<pack_item_t<E, Extras>>(data[1 + E])[at[1 + E]])...));
}

template <class Tile, class Problem>
__device__ __forceinline__ void finish_joint(const Problem& problem, const float* parts,
                                             int64_t first_row, int64_t turn) {
  using Products = typename Problem::Products;
  constexpr int EACH = Tile::ROWS * Tile::COLUMNS;
  for (int i = threadIdx.x; i < EACH; i += Tile::THREADS) {
    const int64_t row = first_row + i / Tile::COLUMNS;
    if (row >= problem.places.count) break;
    float sums[Tile::FACTORS] = {};
#pragma unroll
    for (int warp = 0; warp < Tile::WARPS; ++warp) {
#pragma unroll
      for (int f = 0; f < Tile::FACTORS; ++f) {
        sums[f] += parts[(warp * Tile::FACTORS + f) * EACH + i];
      }
    }
    int64_t own = turn;
    int64_t offsets[Problem::OPERANDS] = {};
    problem.places.locate(row, ~0u, offsets);
    repeat<Problem::COUNT>([&](auto index) {
      using Product = pack_item_t<index, Products>;
      constexpr int FIRST = first_joint_operand<index, Products>();
      const auto& result = get<index>(problem.results);
      const int64_t column = own * Tile::COLUMNS + i % Tile::COLUMNS;
      own -= result.turns();
      if (column < 0 || own >= 0 || column >= result.columns) return;
      const int64_t run = result.run_of(column), place = column - run * result.inner;
      repeat<Product::HALVES>([&](auto half) {
        int64_t at[Product::OPERANDS];
#pragma unroll
        for (int o = 0; o < Product::OPERANDS; ++o) {
          at[o] = offsets[FIRST + o] + place * result.column_strides[o] +
                  run * result.run_strides[o] + half * result.half_strides[o];
        }
        store_joint<Product>(result.data, get<half>(result.functors), sums, at,
                             std::make_index_sequence<Tile::FACTORS>(),
                             typename Product::Indices());
      });
    });
  }
}

// The body of a kernel of Tile::THREADS threads and shared_bytes(k) of dynamic shared memory.
// VECTORS: whether eight neighbours of a factor are one access.
template <class Config, bool VECTORS, class Problem>
__device__ __forceinline__ void joint_products(const Problem& problem) {
  using Tile = JointTile<Config, Problem>;
  using T = typename Tile::T;
  constexpr int EACH = Tile::ROWS * Tile::COLUMNS;
  __shared__ __align__(16) float parts[2][Tile::SUMS];
  extern __shared__ __align__(16) unsigned char joint_memory[];
  T* const rows = reinterpret_cast<T*>(joint_memory + Tile::SLOTS * sizeof(JointWords));
  JointWork<Tile> work = {reinterpret_cast<JointWords*>(joint_memory) + threadIdx.x};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int k = static_cast<int>(problem.k), first_step = warp * Tile::STEP;
  const auto pitch = static_cast<int>(Tile::pitch(k));

  // What is sent for next.
  JointTurn ahead;
  int step_ahead = first_step;
  bool is_more = ahead.exists<Tile>(problem);
  auto columns = joint_columns(problem, ahead.turn);
  if constexpr (VECTORS) {
    columns.ask_for(k, Tile::THREADS);
    problem.rows.ask_for();
  }
  const auto fetch = [&](int stage) {
    if (is_more) {
      work.template fetch<VECTORS>(columns, stage, step_ahead, k);
      step_ahead += Tile::WARPS * Tile::STEP;
      if (step_ahead >= k) {
        step_ahead = first_step;
        ahead.turn += gridDim.x;
        is_more = ahead.exists<Tile>(problem);
        if (is_more) columns = joint_columns(problem, ahead.turn);
      }
    }
    commit_copies();
  };
  wait_for_previous_kernel();
#pragma unroll 1
  for (int stage = 0; stage < Tile::STAGES; ++stage) fetch(stage);
  let_next_kernel_start();

  int upper = 0, lower = 0;  // where two of the rows begin, for this lane
  int filled = -1;
  JointTurn at;
  for (int half = 0, stage = 0; at.exists<Tile>(problem); half = 1 - half) {
    if (at.tile != filled) {
      if (filled >= 0) __syncthreads();  // all have read the rows before
      const int64_t first_row = at.first_row<Tile>(), left = problem.places.count - first_row;
      const int there = left < Tile::ROWS ? static_cast<int>(left) : Tile::ROWS;
      fill_joint_rows<VECTORS, Tile>(problem, first_row, there, rows);
      __syncthreads();
      filled = at.tile;
      // In place of rows that are not there the last one, of which nothing is stored.
      upper = min(lane / 4, there - 1) * pitch + lane % 4 * JOINT_WIDTH;
      lower = min(lane / 4 + 8, there - 1) * pitch + lane % 4 * JOINT_WIDTH;
    }
    work.begin();
    int step = first_step;
#pragma unroll 1
    do {
      wait_copies<Tile::STAGES - 1>();
      work.multiply(rows + upper, rows + lower, stage, step, k);
      fetch(stage);
      stage = stage + 1 < Tile::STAGES ? stage + 1 : 0;
      step += Tile::WARPS * Tile::STEP;
    } while (step < k);
#pragma unroll
    for (int f = 0; f < Tile::FACTORS; ++f) {
      float* const target =
          parts[half] + (warp * Tile::FACTORS + f) * EACH + lane / 4 * Tile::COLUMNS + lane % 4 * 2;
      store_vector(target, Vector<float, 2>{{work.sums[f][0], work.sums[f][1]}});
      store_vector(target + 8 * Tile::COLUMNS,
                   Vector<float, 2>{{work.sums[f][2], work.sums[f][3]}});
    }
    __syncthreads();
    finish_joint<Tile>(problem, parts[half], at.first_row<Tile>(), at.turn);
    at.turn += gridDim.x;
  }
}
