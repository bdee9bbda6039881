#pragma once
// The kernel before a product on the tensor cores: fp32 factors become planes of fp16 pairs.
//
// A factor is read in any strides and alignment and written as batches x 2 planes (high, low) of
// outer x pitch fp16 numbers. Reads 4 bytes and writes 4 per element. Bound by memory. Idle warps
// of other kernels do the same with split_ahead.

#include "dependent_launch.cuh"
#include "gemm_factor.cuh"
#include "gemm_guard.cuh"

constexpr int SPLIT_THREADS = 256;
constexpr int SPLIT_BLOCKS = 3;  // of a multiprocessor

struct SplitParameters {
  struct Side {
    Factor factor;
    __half* planes;
    uint32_t inner_tiles, outer_tiles, tiles;  // see SplitTile
    uint32_t first_inner, first_outer;         // of these tiles
    bool vectors;                              // runs of 4 are aligned
  } sides[2];
  GemmHeader* header;
  [[maybe_unused]] bool lhs_in_pairs = false;  // nothing of it is split, and the scale is known
};

constexpr int NEIGHBOURS = 4;  // samples in one place, which memory gives as quickly as one of them

// Those of place number `place`, of product number `product`: hashes (Knuth, TAOCP 3, 6.4), for a
// regular step would meet the same few columns where it divides a row's length, and divisions take
// longer than the samples.
__device__ __forceinline__ void load_samples(const Factor& factor, int place, int product,
                                             float (&samples)[NEIGHBOURS]) {
  const auto size = static_cast<uint32_t>(factor.inner);
  const uint32_t hash = (place + 1) * 2654435769u;
  const uint32_t inner = __umulhi(hash, size) / NEIGHBOURS * NEIGHBOURS;
  const uint32_t outer = __umulhi(hash * 2654435769u, static_cast<uint32_t>(factor.outer));
  const float* from = static_cast<const float*>(factor.data) + outer * factor.outer_stride;
  if (ANY_TOGETHER && factor.together > 1) {
    from += factor.apart[product];
  } else if (ANY_BATCHES && factor.batch_rank > 0) {
    from +=
        factor.batch_offset(__umulhi(hash * 0x85ebca6bu, static_cast<uint32_t>(factor.batches)));
  }
#pragma unroll
  for (uint32_t i = 0; i < NEIGHBOURS; ++i) {
    samples[i] = __ldg(from + min(inner + i, size - 1) * factor.inner_stride);
  }
}

// The exponents of the scales, from the largest finite |x| of SAMPLES elements each: the same in
// every block. For SPLIT_THREADS threads, all that sync() waits for; a half of them samples lhs or
// the rhs of one of the products together.
template <class Sync>
__device__ __forceinline__ void sample_exponents(const Factor& lhs, const Factor& rhs,
                                                 int (&shared)[SCALES], const Sync& sync) {
  constexpr int OF_SIDE = SPLIT_THREADS / 2, ROUNDS = SCALES / 2;
  static_assert(OF_SIDE * NEIGHBOURS == SAMPLES, "each thread samples one place");
  static_assert(SCALES % 2 == 0, "two sides in a round");
  const int thread = threadIdx.x, first = thread / OF_SIDE;
  const int last = ANY_TOGETHER ? rhs.together : 1;
  float samples[ROUNDS][NEIGHBOURS];
#pragma unroll
  for (int round = 0; round < ROUNDS; ++round) {
    // Where there are fewer, the last one again.
    const int side = min(first + 2 * round, last);
    load_samples(side == 0 ? lhs : rhs, thread % OF_SIDE, side - 1, samples[round]);
  }
  if (thread < SCALES) shared[thread] = 0;
  sync();
#pragma unroll
  for (int round = 0; round < ROUNDS; ++round) {
    uint32_t largest = 0;
#pragma unroll
    for (const float sample : samples[round]) {
      const uint32_t bits = __float_as_uint(sample) & 0x7fffffffu;
      if (bits < 0x7f800000u) largest = max(largest, bits);
    }
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (thread % 32 == 0) atomicMax(&shared[first + 2 * round], static_cast<int>(largest));
  }
  sync();
  if (thread < SCALES) shared[thread] = scale_exponent(static_cast<uint32_t>(shared[thread]));
  sync();
}

// A part of a factor's own dimension.
struct Stretch {
  int64_t first, end;

  // `count` from number `first` on of `size` elements each; there are `all` elements.
  static Stretch of(int first, int count, int64_t size, int64_t all) {
    const int64_t end = (int64_t{first} + count) * size;
    return {first * size, end < all ? end : all};
  }
};

// A block moves tiles of 32 outer by 256 inner elements, a thread 8 runs of 4.
class SplitTile {
 public:
  static constexpr int RUN = 4, RUNS = 8;
  static constexpr int INNER = 256, OUTER = 32;
  static constexpr int PITCH = OUTER + 1;  // of a tile in shared memory, [INNER][PITCH]
  using Seen = Guard<RUN, 3>;              // of 8 x 4 numbers two meet by chance

  // Two stretches one after the other have each tile once.
  static SplitParameters::Side side(const Factor& factor, void* planes, Major major,
                                    const Stretch& own) {
    SplitParameters::Side side = {factor, static_cast<__half*>(planes)};
    const bool is_inner = major != Major::K;
    const Stretch inner = is_inner ? own : Stretch{0, factor.plane_inner};
    const Stretch outer = is_inner ? Stretch{0, factor.plane_outer} : own;
    side.first_inner = tiles_until(inner.first, INNER);
    side.first_outer = tiles_until(outer.first, OUTER);
    side.inner_tiles = tiles_until(inner.end, INNER) - side.first_inner;
    side.outer_tiles = tiles_until(outer.end, OUTER) - side.first_outer;
    side.tiles = side.inner_tiles * side.outer_tiles * static_cast<uint32_t>(factor.batches);
    side.vectors = are_aligned(factor);
    return side;
  }

  // Whether runs are contiguous and aligned.
  static bool are_aligned(const Factor& factor) {
    bool vectors = factor.inner_stride == 1 && factor.inner % RUN == 0 &&
                   factor.outer_stride % RUN == 0 &&
                   reinterpret_cast<uintptr_t>(factor.data) % 16 == 0;
    if (ANY_TOGETHER && factor.together > 1) {
      for (int p = 0; p < factor.together; ++p) vectors = vectors && factor.apart[p] % RUN == 0;
    } else if constexpr (ANY_BATCHES) {
      for (int d = 0; d < factor.batch_rank; ++d) {
        vectors = vectors && factor.batch_strides[d] % RUN == 0;
      }
    }
    return vectors;
  }

  using Values = float[RUNS][RUN];

  // Of a run.
  struct Pairs {
    Halves first, second;
  };
  __device__ __forceinline__ static Pairs split_run(const float (&values)[RUN], float scale,
                                                    Seen& guard) {
    float scaled[RUN];
#pragma unroll
    for (int i = 0; i < RUN; ++i) scaled[i] = values[i] * scale;
    guard.see(values, scaled);
    return {split(scaled[0], scaled[1]), split(scaled[2], scaled[3])};
  }
  __device__ __forceinline__ static void store_pairs(const Pairs& pairs, __half* high,
                                                     __half* low) {
    *reinterpret_cast<uint2*>(high) = {bits(pairs.first.high), bits(pairs.second.high)};
    *reinterpret_cast<uint2*>(low) = {bits(pairs.first.low), bits(pairs.second.low)};
  }

  // Tile number `tile` of both sides.
  __device__ __forceinline__ SplitTile(const SplitParameters& parameters, uint32_t tile)
      : number_(tile >= parameters.sides[0].tiles),
        side_(parameters.sides[number_]),
        factor_(side_.factor) {
    const SplitParameters::Side& side = side_;
    if (number_ == 1) tile -= parameters.sides[0].tiles;
    const uint32_t above = tile / side.inner_tiles;
    const uint32_t batch = above / side.outer_tiles;
    inner_ = static_cast<int64_t>(side.first_inner + tile - above * side.inner_tiles) * INNER;
    outer_ = static_cast<int64_t>(side.first_outer + above - batch * side.outer_tiles) * OUTER;
    source_ = static_cast<const float*>(factor_.data);
    if constexpr (ANY_BATCHES) source_ += factor_.batch_offset(batch);
    if constexpr (ANY_TOGETHER) product_ = factor_.together > 1 ? static_cast<int>(batch) : 0;
    planes_ = side.planes + batch * 2 * factor_.plane_elements();
  }

  // Number of its scale: 0 for lhs, then one for the rhs of each product.
  __device__ __forceinline__ int scale() const { return number_ + product_; }

  __device__ __forceinline__ void load(Values& values) const {
    if (!ANY_TURNED || factor_.inner_stride == 1) {
      const int64_t column = inner_ + thread_column();
      const int64_t stride = ANY_TURNED ? 1 : factor_.inner_stride;
#pragma unroll
      for (int r = 0; r < RUNS; ++r) {
        const int64_t row = outer_ + thread_row() + r;
        const float* const source = source_ + row * factor_.outer_stride + column * stride;
        const bool exists = row < factor_.outer;
        if (side_.vectors) {
          const bool whole = exists && column < factor_.inner;
          const float4 run = whole ? __ldg(reinterpret_cast<const float4*>(source)) : float4{};
          values[r][0] = run.x;
          values[r][1] = run.y;
          values[r][2] = run.z;
          values[r][3] = run.w;
        } else {
#pragma unroll
          for (int i = 0; i < RUN; ++i) {
            values[r][i] = exists && column + i < factor_.inner ? __ldg(source + i * stride) : 0.0f;
          }
        }
      }
    } else {
      load_transposed(values);
    }
  }

  __device__ __forceinline__ void store(const Values& values, float scale, Seen& guard) const {
    const int64_t column = inner_ + thread_column();
    if (column >= factor_.plane_inner) return;
#pragma unroll
    for (int r = 0; r < RUNS; ++r) {
      const int64_t row = outer_ + thread_row() + r;
      if (row >= factor_.plane_outer) break;
      if (ANY_PAIRED && factor_.in_lines) {
        __half* const high = planes_ + 2 * row * factor_.pitch + column + column / LINE * LINE;
        store_pairs(split_run(values[r], scale, guard), high, high + LINE);
        continue;
      }
      const int64_t place = ANY_PERMUTED && factor_.permutes_outer ? permuted_k(row) : row;
      store_run(values[r], scale, planes_ + place * factor_.pitch, column, guard);
    }
    guard.end_block();
  }

 private:
  static constexpr int LINE = PAIRED_LINE;

  __device__ __forceinline__ static uint32_t bits(const __half2& pair) {
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

  static uint32_t tiles_until(int64_t end, int size) {
    return static_cast<uint32_t>((end + size - 1) / size);
  }

  __device__ __forceinline__ static int thread_column() { return threadIdx.x % 64 * RUN; }
  __device__ __forceinline__ static int thread_row() { return threadIdx.x / 64 * RUNS; }

  // Neighbouring threads read along the outer dimension.
  __device__ __forceinline__ void load_transposed(Values& values) const {
    __shared__ float shared[INNER * PITCH];
    const int64_t row = outer_ + threadIdx.x % OUTER;
    for (int i = threadIdx.x / OUTER; i < INNER; i += SPLIT_THREADS / OUTER) {
      const int64_t column = inner_ + i;
      const bool exists = row < factor_.outer && column < factor_.inner;
      shared[i * PITCH + threadIdx.x % OUTER] =
          exists ? __ldg(source_ + row * factor_.outer_stride + column * factor_.inner_stride)
                 : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < RUNS; ++r) {
#pragma unroll
      for (int i = 0; i < RUN; ++i) {
        values[r][i] = shared[(thread_column() + i) * PITCH + thread_row() + r];
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ void store_run(const float (&values)[RUN], float scale, __half* high,
                                            int64_t column, Seen& guard) const {
    const Pairs pairs = split_run(values, scale, guard);
    __half* const low = high + factor_.plane_elements();
    if (ANY_PERMUTED && factor_.permutes_inner) {
      store_permuted(pairs, high + permuted_k(column), low + permuted_k(column));
    } else {
      store_pairs(pairs, high + column, low + column);
    }
  }

  __device__ __forceinline__ static void store_permuted(const Pairs& pairs, __half* high,
                                                        __half* low) {
    *reinterpret_cast<__half2*>(high) = pairs.first.high;
    *reinterpret_cast<__half2*>(high + 8) = pairs.second.high;
    *reinterpret_cast<__half2*>(low) = pairs.first.low;
    *reinterpret_cast<__half2*>(low + 8) = pairs.second.low;
  }

  int number_;
  const SplitParameters::Side& side_;
  const Factor& factor_;
  int64_t inner_, outer_;
  int product_ = 0;
  const float* source_;
  __half* planes_;
};

__global__ void __launch_bounds__(SPLIT_THREADS, SPLIT_BLOCKS)
    split_factors_kernel(const __grid_constant__ SplitParameters parameters) {
  wait_for_previous_kernel();
  __shared__ int exponents[SCALES];
  __shared__ GuardWord block_word;
  if (threadIdx.x == 0) block_word.clear();
  // The first tile is on its way while the exponents are found.
  uint32_t tile = blockIdx.x;
  const uint32_t tiles = parameters.sides[0].tiles + parameters.sides[1].tiles;
  SplitTile::Values values;
  SplitTile(parameters, tile).load(values);
  sample_exponents(parameters.sides[0].factor, parameters.sides[1].factor, exponents,
                   [] { __syncthreads(); });
  if constexpr (ANY_PAIRED) {
    if (parameters.lhs_in_pairs && threadIdx.x == 0) exponents[0] = PAIRED_EXPONENT;
    __syncthreads();
  }
  if (tile == 0 && threadIdx.x < SCALES) {
    parameters.header->exponents[threadIdx.x] = exponents[threadIdx.x];
  }
  SplitTile::Seen guard;
  while (true) {
    const SplitTile now(parameters, tile);
    now.store(values, power_of_two(exponents[now.scale()]), guard);
    tile += gridDim.x;
    if (tile >= tiles) break;
    SplitTile(parameters, tile).load(values);
  }
  block_word.add(guard.word());
  __syncthreads();
  if (threadIdx.x == 0) parameters.header->guard[blockIdx.x] = block_word.word();
  // Not before: a product that waits in its blocks begins 2 us later.
  let_next_kernel_start();
}

// The same for warp number `worker` of `workers` of other kernels, for one factor without batches
// whose runs are aligned. A warp moves 8 rows of 128 elements.
__device__ __forceinline__ void split_ahead(const SplitParameters::Side& side, float scale,
                                            uint32_t worker, uint32_t workers, GuardWord& word) {
  constexpr int RUN = SplitTile::RUN, RUNS = SplitTile::RUNS;
  constexpr int WIDE = SplitTile::INNER / (32 * RUN), WARPS = WIDE * SplitTile::OUTER / RUNS;
  const Factor& factor = side.factor;
  SplitTile::Seen guard;
#pragma unroll 1
  for (uint32_t part = worker; part < side.tiles * WARPS; part += workers) {
    const uint32_t tile = part / WARPS, above = tile / side.inner_tiles;
    const int inner = (side.first_inner + tile - above * side.inner_tiles) * SplitTile::INNER +
                      (part % WIDE * 32 + threadIdx.x % 32) * RUN;
    const int outer = (side.first_outer + above) * SplitTile::OUTER + part % WARPS / WIDE * RUNS;
    if (inner >= factor.inner) continue;
    const float* source =
        static_cast<const float*>(factor.data) + outer * factor.outer_stride + inner;
    const int rows = min(RUNS, static_cast<int>(factor.outer) - outer);
    float4 values[RUNS];
#pragma unroll
    for (int r = 0; r < RUNS; ++r) {
      values[r] = r < rows ? __ldg(reinterpret_cast<const float4*>(source)) : float4{};
      source += factor.outer_stride;
    }
    __half* high = side.planes + outer * factor.pitch + inner;
#pragma unroll
    for (int r = 0; r < RUNS; ++r) {
      const float run[RUN] = {values[r].x, values[r].y, values[r].z, values[r].w};
      const auto pairs = SplitTile::split_run(run, scale, guard);
      if (r < rows) SplitTile::store_pairs(pairs, high, high + factor.plane_elements());
      high += factor.pitch;
    }
    guard.end_block();
  }
  if (guard.word() != 0) word.add(guard.word());
}
