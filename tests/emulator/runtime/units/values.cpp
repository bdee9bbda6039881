// Kernels whose results are checked, and honest patterns that nobody may be accused of.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define LAUNCH(kernel, grid, block, bytes, ...)                         \
  ::kwemu::launch(                                                      \
      #kernel, __FILE__, __LINE__, ::kwemu::config(grid, block, bytes), \
      [&](auto... kwemu_args) { kernel(kwemu_args...); }, __VA_ARGS__)

namespace cg = cooperative_groups;

namespace {

__global__ void hidden() {}

}  // namespace

__global__ void shuffles(const int* in, int* out) {
  const int lane = threadIdx.x;
  const int v = in[lane];
  out[lane] = __shfl_sync(0xffffffffu, v, 5);
  out[32 + lane] = __shfl_up_sync(0xffffffffu, v, 3);
  out[64 + lane] = __shfl_down_sync(0xffffffffu, v, 7, 16);
  out[96 + lane] = __shfl_xor_sync(0xffffffffu, v, 9);
  out[128 + lane] = static_cast<int>(__ballot_sync(0xffffffffu, v % 3 == 0));
  out[160 + lane] = __any_sync(0xffffffffu, v == 4) + 2 * __all_sync(0xffffffffu, v < 4);
  out[192 + lane] = static_cast<int>(__match_any_sync(0xffffffffu, v % 4));
  out[224 + lane] = __reduce_max_sync(0xffffffffu, v) + __reduce_add_sync(0xffffffffu, v);
  const unsigned half_mask = lane < 16 ? 0xffffu : 0xffff0000u;
  out[256 + lane] = __shfl_xor_sync(half_mask, v, 1);
  if (lane % 2 == 0) out[288 + lane] = static_cast<int>(__activemask());
  out[320 + lane] = static_cast<int>(__shfl_down_sync(0xffffffffu, double(v), 1));
}

__global__ void counts(const int* in, int* out) {
  const int i = threadIdx.y * blockDim.x + threadIdx.x;
  const int v = in[i];
  out[i] = __syncthreads_count(v % 2) * 100 + __syncthreads_and(v >= 0) * 10 +
           __syncthreads_or(v == 1000);
}

__global__ void atomics(int* counters, float* sum, unsigned* wrapped) {
  atomicAdd(&counters[0], 1);
  atomicMax(&counters[1], int(threadIdx.x + blockIdx.x * blockDim.x));
  atomicMin(&counters[2], -int(threadIdx.x));
  atomicOr(&counters[3], 1 << (threadIdx.x % 31));
  atomicCAS(&counters[4], 0, 7);
  atomicAdd(sum, 0.5f);
  atomicInc(wrapped, 9u);
}

// float in[n] -> half sums and fused products, as bits
__global__ void rounds(const float* in, const float* other, unsigned short* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const __half a = __float2half_rn(in[i]), b = __float2half_rn(other[i]);
  const __nv_bfloat16 c = __float2bfloat16_rn(in[i]), d = __float2bfloat16_rn(other[i]);
  out[i] = __half_as_ushort(a);
  out[n + i] = __half_as_ushort(__hadd(a, b));
  out[2 * n + i] = __half_as_ushort(a * b);
  out[3 * n + i] = __half_as_ushort(__hdiv(a, b));
  out[4 * n + i] = __bfloat16_as_ushort(c);
  out[5 * n + i] = __bfloat16_as_ushort(c + d);
  out[6 * n + i] = __bfloat16_as_ushort(__hmul(c, d));
  out[7 * n + i] = __half_as_ushort(__hfma(a, b, a));
}

__device__ unsigned blocks_done = 0;

// The last block to finish adds up what all blocks left behind.
__global__ void last_block_sums(const float* in, float* partial, float* total) {
  static constinit::kwemu::SharedSite is_last_site{"is_last", __LINE__};
  typedef bool Flag;
  auto& is_last = ::kwemu::shared<Flag>(is_last_site);
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  const float sum = cg::reduce(tile, in[blockIdx.x * 32 + threadIdx.x], cg::plus<float>());
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicAdd(&blocks_done, 1u) == gridDim.x - 1;
  }
  block.sync();
  if (!is_last) return;
  const float mine = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0.0f;
  const float all = cg::reduce(tile, mine, cg::plus<float>());
  if (threadIdx.x == 0) {
    *total = all;
    blocks_done = 0;
  }
}

// Decoupled look-back: every block waits for the one before it.
__global__ void look_back(const float* in, float* prefix, volatile int* ready) {
  if (threadIdx.x != 0) return;
  float before = 0;
  if (blockIdx.x > 0) {
    while (ready[blockIdx.x - 1] == 0) {
    }
    __threadfence();
    before = prefix[blockIdx.x - 1];
  }
  prefix[blockIdx.x] = before + in[blockIdx.x];
  __threadfence();
  ready[blockIdx.x] = 1;
}

// A lock in shared memory: increments under it are no race.
__global__ void locked(int* out) {
  struct State {
    int lock, value;
  };
  static constinit::kwemu::SharedSite state_site{"state", __LINE__};
  auto& state = ::kwemu::shared<State>(state_site);
  if (threadIdx.x == 0) state.lock = state.value = 0;
  __syncthreads();
  while (atomicCAS(&state.lock, 0, 1) != 0) {
  }
  __threadfence_block();
  state.value += 1;
  __threadfence_block();
  atomicExch(&state.lock, 0);
  __syncthreads();
  if (threadIdx.x == 0) *out = state.value;
}

// Warps of a producer and a consumer meet at a named barrier.
__global__ void named_barriers(int* out) {
  typedef int Numbers[32];
  static constinit::kwemu::SharedSite numbers_site{"numbers", __LINE__};
  auto& numbers = ::kwemu::shared<Numbers>(numbers_site);
  if (threadIdx.x < 32) {
    numbers[threadIdx.x] = threadIdx.x * 3;
    ::kwemu::ptx::bar_arrive(1, 64);
  } else {
    ::kwemu::ptx::bar_sync(1, 64);
    out[threadIdx.x - 32] = numbers[63 - threadIdx.x];
  }
}

__global__ void grid_sync(int* out) {
  cg::this_grid().sync();
  *out = 1;
}

__constant__ float factors[4];

__global__ void scales(const float4* in, float4* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float4 v = __ldg(in + i);
    v.x *= factors[0], v.y *= factors[1], v.z *= factors[2], v.w *= factors[3];
    __stcs(out + i, v);
  }
}

// An argument that copies itself.
struct Weights {
  float values[9];
  explicit Weights(float first) {
    for (int i = 0; i < 9; ++i) values[i] = first + i;
  }
  Weights(const Weights& other) {
    for (int i = 0; i < 9; ++i) values[i] = other.values[i];
  }
};

__global__ void takes_weights(Weights weights, float* out) {
  if (threadIdx.x < 9) out[threadIdx.x] = weights.values[threadIdx.x];
}

__global__ void copies_memory(const float* in, float* out, int bytes) {
  if (threadIdx.x == 0) memcpy(out, in, bytes);  // MARK memcpy
}

__global__ void asserts(int* out) {
  assert(threadIdx.x < 3);
  out[threadIdx.x] = 1;
}

// Everything by the runtime API: returns the sum of 1 ... n that the device computed, or an error.
float allocate_and_sum(int n) {
  float *data, *result, sum = -1;
  if (cudaMalloc(&data, n * sizeof(float)) != cudaSuccess) return -2;
  if (cudaMalloc(&result, sizeof(float)) != cudaSuccess) return -3;
  const auto fill = [](float* to, int count) {
    for (int i = 0; i < count; ++i) to[i] = i + 1.0f;
  };
  const auto add = [](const float* from, float* to, int count) {
    float total = 0;
    for (int i = 0; i < count; ++i) total += from[i];
    *to = total;
  };
  LAUNCH(fill, 1, 1, 0, data, n);
  LAUNCH(add, 1, 1, 0, data, result, n);
  cudaMemcpy(&sum, result, sizeof sum, cudaMemcpyDeviceToHost);
  cudaFree(data);
  cudaFree(result);
  return sum;
}

extern "C" {
int run_takes_weights(float* out) {
  void (*kernel)(Weights, float*) = takes_weights;
  return LAUNCH(kernel, 1, 32, 0, Weights(2), out);
}
int run_copies_memory(const float* in, float* out, int bytes) {
  return LAUNCH(copies_memory, 1, 32, 0, in, out, bytes);
}
int run_asserts(int* out) { return LAUNCH(asserts, 1, 32, 0, out); }
float run_allocate_and_sum(int n) { return allocate_and_sum(n); }
int run_typed_launch(float* out) {
  Weights weights(5);
  void* arguments[] = {&weights, &out};
  return cudaLaunchKernel(takes_weights, dim3(1), dim3(32), arguments);
}
int run_shuffles(const int* in, int* out) { return LAUNCH(shuffles, 1, 32, 0, in, out); }
int run_counts(const int* in, int* out) { return LAUNCH(counts, 1, dim3(10, 10), 0, in, out); }
int run_atomics(int* counters, float* sum, unsigned* wrapped) {
  return LAUNCH(atomics, 8, 64, 0, counters, sum, wrapped);
}
int run_rounds(const float* in, const float* other, unsigned short* out, int n) {
  return LAUNCH(rounds, (n + 255) / 256, 256, 0, in, other, out, n);
}
int run_last_block(const float* in, float* partial, float* total, int blocks) {
  return LAUNCH(last_block_sums, blocks, 32, 0, in, partial, total);
}
int run_look_back(const float* in, float* prefix, int* ready, int blocks) {
  return LAUNCH(look_back, blocks, 32, 0, in, prefix, ready);
}
int run_locked(int* out) { return LAUNCH(locked, 1, 64, 0, out); }
int run_named_barriers(int* out) { return LAUNCH(named_barriers, 1, 64, 0, out); }
int run_grid_sync(int* out) { return LAUNCH(grid_sync, 2, 32, 0, out); }
int run_scales(const float4* in, float4* out, int n) {
  const float values[] = {1, 2, 3, 4};
  cudaMemcpyToSymbol(factors, values, sizeof values);
  return LAUNCH(scales, 1, 64, 0, in, out, n);
}
int allow_hidden_shared(int bytes) {
  return cudaFuncSetAttribute(hidden, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
float rounded_sum(int up) { return up ? __fadd_ru(1.0f, 1e-10f) : __fadd_rz(1.0f, -1e-10f); }
unsigned bits(unsigned x) {
  return __brev(x) ^ static_cast<unsigned>(__popc(x) + 100 * __clz(static_cast<int>(x)));
}
}
