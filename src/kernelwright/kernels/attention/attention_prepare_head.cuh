#pragma once
// Heads of float32 operands that a warp or a block has to itself: their largest numbers and their
// planes in one kernel.

#include "async_copy.cuh"
#include "attention_prepared.cuh"

// A head that THREADS threads prepare: one warp or all of the block.
template <int THREADS>
struct PreparedHead {
  static constexpr int HEADS = ATTENTION_PREPARE_THREADS / THREADS;  // of a block
  static constexpr int RUN = PreparedTurns::RUN;
  static constexpr int BATCH = 4;  // runs that a thread loads at a time

  const PrepareParameters& p;
  const int number;
  const AttentionOperand& operand;
  const PreparedTurns shape;
  const int thread, row, column;      // of the first turn
  const int rows_read, rows_written;  // none right of the columns, or of the planes'
  const int head;                     // attention has at most 2^30
  const float* const first;           // of the head's numbers
  const float* from;                  // of this thread's
  int64_t step;                       // to the next turn

  __device__ __forceinline__ PreparedHead(const PrepareParameters& p_, int number_, int64_t block)
      : p(p_),
        number(number_),
        operand(p.problem.operands[number]),
        shape(p, number, THREADS),
        thread(static_cast<int>(threadIdx.x) % THREADS),
        row(thread / shape.lanes),
        column(thread % shape.lanes * RUN),
        rows_read(column < operand.columns ? operand.rows : 0),
        rows_written(column < p.pitch[number] ? operand.rows : 0),
        head(static_cast<int>(block) * HEADS + static_cast<int>(threadIdx.x) / THREADS),
        first(static_cast<const float*>(operand.data) + head / operand.heads * operand.strides[0] +
              head % operand.heads * operand.strides[1]),
        from(first + row * operand.strides[2] + column),
        step(shape.rows_at_once * operand.strides[2]) {}

  __device__ __forceinline__ int row_of(int turn) const { return row + turn * shape.rows_at_once; }
  __device__ __forceinline__ bool has_run(int turn) const { return row_of(turn) < rows_read; }

  // Copies the head to shared memory, and reads it there from now on: each thread its own runs, or,
  // of a turned head, what the others have brought.
  __device__ __forceinline__ void keep() {
    extern __shared__ float4 prepared_memory[];
    float4* const kept = prepared_memory + static_cast<int>(threadIdx.x) / THREADS * shape.runs();
    float4* const own = kept + row * shape.pitch + column / RUN;
    const int further = shape.rows_at_once * shape.pitch;
    if (p.is_turned[number]) {
      copy_turned(reinterpret_cast<float*>(kept));
    } else {
      const float* next = from;
      for (int turn = 0; turn < shape.turns; ++turn, next += step) {
        copy_async<16>(own + turn * further, next, has_run(turn));
      }
    }
    commit_copies();
    wait_copies<0>();
    if (p.is_turned[number]) sync();
    from = reinterpret_cast<const float*>(own);
    step = further * RUN;
  }

  // A column after the other, neighbouring lanes neighbouring rows.
  __device__ __forceinline__ void copy_turned(float* kept) const {
    const int lane = thread % 32, pitch = shape.pitch * RUN;
    for (int c = thread / 32; c < operand.columns; c += THREADS / 32) {
      const float* const next = first + c * operand.strides[3];
      for (int r = lane; r < operand.rows; r += 32) {
        copy_async<4>(kept + r * pitch + c, next + r * operand.strides[2], true);
      }
    }
  }

  // The head's threads.
  __device__ __forceinline__ static void sync() {
    if constexpr (HEADS == 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  // Hands all turns to `take`, with zeros where there is no run. Warps stay together.
  template <class Take>
  __device__ __forceinline__ void each(const Take& take) const {
    const float* next = from;
    for (int first = 0; first < shape.turns; first += BATCH, next += BATCH * step) {
      float4 runs[BATCH];
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        runs[i] = make_float4(0, 0, 0, 0);
        if (!has_run(first + i)) continue;
        runs[i] = *reinterpret_cast<const float4*>(next + i * step);
      }
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        if (first + i < shape.turns) take(first + i, runs[i]);
      }
    }
  }

  // The largest among the head's threads.
  __device__ __forceinline__ static uint32_t join(uint32_t most) {
    most = __reduce_max_sync(0xffffffffu, most);
    if constexpr (HEADS == 1) {
      constexpr int WARPS = THREADS / 32;
      __shared__ uint32_t of_warps[WARPS];
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < WARPS; ++i) most = max(most, of_warps[i]);
    }
    return most;
  }

  __device__ __forceinline__ static bool join_fits(bool fits) {
    if constexpr (HEADS == 1) return __syncthreads_and(static_cast<int>(fits)) != 0;
    return __all_sync(0xffffffffu, fits) != 0;
  }

  // The largest absolute values of the thread's columns, as the bits of floats.
  __device__ __forceinline__ void find_largest(uint32_t (&most)[RUN]) const {
    each([&](int, const float4& run) {
      const float numbers[RUN] = {run.x, run.y, run.z, run.w};
#pragma unroll
      for (int i = 0; i < RUN; ++i) {
        most[i] = max(most[i], __float_as_uint(numbers[i]) & 0x7fffffffu);
      }
    });
  }

  // Writes the planes. False where a row of this thread's has small numbers alone.
  __device__ __forceinline__ bool write(float scale) const {
    const int pitch = p.pitch[number];
    const int64_t plane = int64_t{operand.rows} * pitch;
    __half* const planes =
        static_cast<__half*>(p.room.planes[number]) + int64_t{head} * 2 * plane + column;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t own = (0xffffffffu >> (32 - shape.lanes)) << (lane / shape.lanes * shape.lanes);
    bool fits = true;
    each([&](int turn, const float4& run) {
      const float most =
          fmaxf(fmaxf(fabsf(run.x), fabsf(run.y)), fmaxf(fabsf(run.z), fabsf(run.w)));
      const uint32_t some = __ballot_sync(0xffffffffu, most != 0) & own;
      const uint32_t large = __ballot_sync(0xffffffffu, most * scale >= PLANE_SMALL) & own;
      fits = fits && (some == 0 || large != 0);
      if (row_of(turn) >= rows_written) return;
      alignas(8) __half2 high[2], low[2];
      const float2 scaled[2] = {make_float2(run.x * scale, run.y * scale),
                                make_float2(run.z * scale, run.w * scale)};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        high[i] = __floats2half2_rn(scaled[i].x, scaled[i].y);
        const float2 taken = __half22float2(high[i]);
        low[i] = __floats2half2_rn(scaled[i].x - taken.x, scaled[i].y - taken.y);
      }
      __half* const to = planes + int64_t{row_of(turn)} * pitch;
      *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(high);
      *reinterpret_cast<uint2*>(to + plane) = *reinterpret_cast<const uint2*>(low);
    });
    return fits;
  }
};

// Planes, the largest number, and whether planes carry the head, of every head of a block.
template <int THREADS>
__device__ __forceinline__ void prepare_head(const PrepareParameters& p, int number,
                                             int64_t block) {
  using Head = PreparedHead<THREADS>;
  Head head(p, number, block);
  if (head.head >= head.operand.head_count()) return;
  if (p.is_kept[number]) head.keep();
  uint32_t columns[Head::RUN] = {};
  head.find_largest(columns);
  uint32_t largest = 0;
#pragma unroll
  for (const uint32_t column : columns) largest = max(largest, column);
  largest = Head::join(largest);
  const float scale = plane_power(plane_exponent(largest));
  bool fits = head.write(scale) && largest < 0x7f800000u;
  // Of few rows one small number says nothing.
  const bool has_rows = head.has_run(3);
#pragma unroll
  for (const uint32_t column : columns) {
    const bool is_small = column != 0 && __uint_as_float(column) * scale < PLANE_SMALL;
    fits = fits && !(has_rows && is_small);
  }
  fits = Head::join_fits(fits);
  if (head.thread == 0) {
    p.room.largest[number][head.head] = largest;
    p.room.unfit[number][head.head] = fits ? 0 : 1;
  }
}
