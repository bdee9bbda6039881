// Kernels with one mistake each, as the translator leaves them. The lines that tests look for carry
// a mark at their end.
#include <cuda_runtime.h>

#define SHARED(name, type)                                          \
  static constinit::kwemu::SharedSite name##_site{#name, __LINE__}; \
  auto& name = ::kwemu::shared<type>(name##_site)
#define LAUNCH(kernel, grid, block, bytes, ...)                         \
  ::kwemu::launch(                                                      \
      #kernel, __FILE__, __LINE__, ::kwemu::config(grid, block, bytes), \
      [&](auto... kwemu_args) { kernel(kwemu_args...); }, __VA_ARGS__)

typedef float Tile[16][16];
typedef float Row[32];

template <bool kSecondBarrier>
__global__ void matmul(const float* a, const float* b, float* c, int n) {
  SHARED(tile_a, Tile);
  SHARED(tile_b, Tile);
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];  // MARK overwrites
    tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i) {
      sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];  // MARK multiplies
    }
    if constexpr (kSecondBarrier) __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void past_the_end(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 1.0f;  // MARK past the end
}

__global__ void shared_past_the_end(float* out) {
  SHARED(row, Row);
  row[threadIdx.x] = 1.0f;  // MARK shared past the end
  out[threadIdx.x] = row[threadIdx.x];
}

__global__ void dynamic_past_the_end(float* out) {
  float* buffer = ::kwemu::dynamic_shared<float>();
  buffer[threadIdx.x] = 1.0f;  // MARK dynamic past the end
  out[threadIdx.x] = buffer[threadIdx.x];
}

__global__ void misaligned(const float* in, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(in + 1);  // MARK misaligned
  out[0] = v.x + v.w;
}

__global__ void reads_unwritten_shared(float* out) {
  SHARED(row, Row);
  if (threadIdx.x != 5) row[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = row[threadIdx.x];  // MARK unwritten shared
}

__global__ void reads_unwritten_global(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x];  // MARK unwritten global
}

__global__ void different_barriers(float* out) {
  if (threadIdx.x < 16) {
    __syncthreads();  // MARK first barrier
  } else {
    __syncthreads();  // MARK second barrier
  }
  out[threadIdx.x] = 1.0f;
}

__global__ void leaves_before_the_barrier(float* out, int n) {
  if (threadIdx.x >= n) return;
  __syncthreads();  // MARK not all come
  out[threadIdx.x] = 1.0f;
}

__global__ void waits_for_nobody(volatile int* flag) {
  while (*flag == 0) {  // MARK spins
  }
}

__global__ void lanes_and_barrier(float* out) {
  if (threadIdx.x == 0) {
    __syncthreads();  // MARK one lane
  } else {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 1);
  }
}

__global__ void blocks_write_one_place(float* out) {
  if (threadIdx.x == 0) out[0] = float(blockIdx.x);  // MARK between blocks
}

__global__ void neighbours_in_global(float* data) {
  data[threadIdx.x] = 1.0f;
  data[64 + threadIdx.x] = data[threadIdx.x ^ 1];  // MARK neighbours
}

__global__ void warp_reads_without_sync(float* out, int synced) {
  SHARED(row, Row);
  row[threadIdx.x] = 2.0f;  // MARK writes row
  if (synced) __syncwarp();
  out[threadIdx.x] = row[threadIdx.x ^ 1];  // MARK without syncwarp
}

__global__ void halves_of_a_word(unsigned short* out, int overlap) {
  out[threadIdx.x + (overlap ? threadIdx.x & 1 : 0)] = 1;  // MARK halves
}

template <int kWait>
__global__ void copies_asynchronously(const float* in, float* out) {
  SHARED(row, Row);
  namespace ptx = ::kwemu::ptx;
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&row[threadIdx.x * 4]));
  ptx::cp_async_cg_shared_global(to, in + threadIdx.x * 4, 16, threadIdx.x == 7 ? 4 : 16);
  ptx::cp_async_commit_group();
  if constexpr (kWait == 1) ptx::cp_async_wait_group(0);
  if constexpr (kWait == 2) ptx::cp_async_wait_group(1);
  __syncthreads();
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = row[threadIdx.x * 4 + i];  // MARK copied
}

extern "C" {
int run_matmul(const float* a, const float* b, float* c, int n, int second_barrier) {
  const dim3 grid(n / 16, n / 16), block(16, 16);
  return second_barrier ? LAUNCH(matmul<true>, grid, block, 0, a, b, c, n)
                        : LAUNCH(matmul<false>, grid, block, 0, a, b, c, n);
}
int run_past_the_end(float* out, int n) {
  return LAUNCH(past_the_end, (n + 31) / 32, 32, 0, out, n);
}
int run_shared_past_the_end(float* out) { return LAUNCH(shared_past_the_end, 1, 64, 0, out); }
int run_dynamic_past_the_end(float* out) { return LAUNCH(dynamic_past_the_end, 1, 64, 128, out); }
int run_misaligned(const float* in, float* out) { return LAUNCH(misaligned, 1, 1, 0, in, out); }
int run_unwritten_shared(float* out) { return LAUNCH(reads_unwritten_shared, 1, 32, 0, out); }
int run_unwritten_global(const float* in, float* out) {
  return LAUNCH(reads_unwritten_global, 1, 32, 0, in, out);
}
int run_different_barriers(float* out) { return LAUNCH(different_barriers, 1, 32, 0, out); }
int run_leaves(float* out, int n) { return LAUNCH(leaves_before_the_barrier, 1, 32, 0, out, n); }
int run_waits(int* flag) { return LAUNCH(waits_for_nobody, 1, 1, 0, flag); }
int run_lanes_and_barrier(float* out) { return LAUNCH(lanes_and_barrier, 1, 32, 0, out); }
int run_between_blocks(float* out) { return LAUNCH(blocks_write_one_place, 4, 32, 0, out); }
int run_neighbours(float* data) { return LAUNCH(neighbours_in_global, 1, 64, 0, data); }
int run_warp(float* out, int synced) {
  return LAUNCH(warp_reads_without_sync, 1, 32, 0, out, synced);
}
int run_halves(unsigned short* out, int overlap) {
  return LAUNCH(halves_of_a_word, 1, 32, 0, out, overlap);
}
int run_async(const float* in, float* out, int wait) {
  if (wait == 0) return LAUNCH(copies_asynchronously<0>, 1, 8, 0, in, out);
  if (wait == 1) return LAUNCH(copies_asynchronously<1>, 1, 8, 0, in, out);
  return LAUNCH(copies_asynchronously<2>, 1, 8, 0, in, out);
}
int run_bad_configuration(float* out, int grid, int block, int bytes) {
  return LAUNCH(past_the_end, grid, block, bytes, out, 1);
}
int allow_shared(int bytes) {
  return cudaFuncSetAttribute(past_the_end, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
int take_error() { return cudaGetLastError(); }
}
