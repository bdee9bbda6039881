// Each instruction of compute capability 9.0 by itself, through the kernels' own primitives.
#include "bulk_copy.cuh"
#include "dependent_launch.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "wgmma_bf16.cuh"
#include "wgmma_f16.cuh"

// ---- Bulk copies ----

struct BoxArguments {
  CUtensorMap map;
  int x, y, z, bytes;
  unsigned char* out;
};

// out = the shared memory that one box fills, as it lies there.
__global__ void fetch_box(const __grid_constant__ BoxArguments a) {
  extern __shared__ unsigned char shared[];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    prefetch_map(&a.map);
    init_barrier(&barrier, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(&barrier, a.bytes);
    copy_box(shared, &a.map, a.x, a.y, a.z, &barrier);
  }
  wait(&barrier, 0);
  for (int i = threadIdx.x; i < a.bytes; i += blockDim.x) a.out[i] = shared[i];
}

extern "C" int encode(CUtensorMap* map, void* data, int type, const uint64_t* sizes,
                      const uint64_t* strides, const uint32_t* box, int swizzle) {
  TensorBox tensor = {};
  tensor.type = static_cast<CUtensorMapDataType>(type);
  for (int d = 0; d < 3; ++d) tensor.sizes[d] = sizes[d];
  for (int d = 0; d < 2; ++d) tensor.strides[d] = strides[d];
  for (int d = 0; d < 3; ++d) tensor.box[d] = box[d];
  tensor.swizzle = static_cast<CUtensorMapSwizzle>(swizzle);
  return encode_map(map, data, tensor);
}

// The map of a 3-D tensor of `element_bytes` (2: fp16, 4: fp32) without gaps.
static int encode_dense(CUtensorMap* map, void* data, int element_bytes, const int* sizes,
                        const int* box, int swizzle) {
  const uint64_t wide[3] = {uint64_t(sizes[0]), uint64_t(sizes[1]), uint64_t(sizes[2])};
  const uint64_t strides[2] = {wide[0] * element_bytes, wide[0] * wide[1] * element_bytes};
  const uint32_t counts[3] = {uint32_t(box[0]), uint32_t(box[1]), uint32_t(box[2])};
  const auto type =
      element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return encode(map, data, type, wide, strides, counts, swizzle);
}

extern "C" int run_fetch_box(void* data, int element_bytes, const int* sizes, const int* box,
                             const int* place, int swizzle, unsigned char* out) {
  BoxArguments a = {};
  const int error = encode_dense(&a.map, data, element_bytes, sizes, box, swizzle);
  if (error != 0) return error;
  a.x = place[0], a.y = place[1], a.z = place[2];
  a.bytes = box[0] * box[1] * box[2] * element_bytes;
  a.out = out;
  fetch_box<<<1, 128, a.bytes>>>(a);
  return cudaGetLastError();
}

// ---- Clusters ----

// Each of two blocks fetches its row of 64 numbers for both; out[block][2][64].
__global__ void share_rows(const __grid_constant__ BoxArguments a, float* out) {
  __shared__ alignas(1024) float rows[2][64];
  __shared__ Barrier full, empty;
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    init_barrier(&full, 1);
    init_barrier(&empty, 2);
    fence_barrier_init();
  }
  sync_cluster();
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x == 0) {
      wait(&empty, (round & 1) ^ 1);
      arrive_expecting(&full, sizeof rows);
      copy_box_to_cluster(rows[rank], &a.map, 0, rank + 2 * round, 0, &full, 3);
    }
    wait(&full, round & 1);
    for (int i = threadIdx.x; i < 128; i += blockDim.x) {
      out[(round * gridDim.x + blockIdx.x) * 128 + i] = rows[i / 64][i % 64];
    }
    __syncthreads();
    if (threadIdx.x < 2) arrive_at_rank(&empty, threadIdx.x);
  }
  sync_cluster();
}

// Each of two blocks sends 64 numbers to the other; out[block][64]. Without `fenced` the copy may
// read what was there before.
__global__ void send_rows(int fenced, float* out) {
  __shared__ alignas(128) float rows[2][64];
  __shared__ Barrier full;
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    init_barrier(&full, 1);
    fence_barrier_init();
  }
  sync_cluster();
  rows[rank][threadIdx.x] = rank * 100 + threadIdx.x;
  if (fenced) fence_shared_for_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(&full, sizeof rows[0]);
    send_to_rank(rows[rank], sizeof rows[rank], &full, rank ^ 1);
  }
  wait(&full, 0);
  out[blockIdx.x * 64 + threadIdx.x] = rows[rank ^ 1][threadIdx.x];
  sync_cluster();
}

template <class... Parameters, class... Arguments>
static int launch_clusters(void (*kernel)(Parameters...), int blocks, int threads, int cluster,
                           const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = cluster;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

extern "C" int run_share_rows(void* data, int rows, int blocks, float* out) {
  BoxArguments a = {};
  const int sizes[3] = {64, rows, 1}, box[3] = {64, 1, 1};
  const int error = encode_dense(&a.map, data, 4, sizes, box, CU_TENSOR_MAP_SWIZZLE_NONE);
  if (error != 0) return error;
  return launch_clusters(share_rows, blocks, 64, 2, a, out);
}

extern "C" int run_send_rows(int fenced, float* out) {
  return launch_clusters(send_rows, 4, 64, 2, fenced, out);
}

// data += what the next block, which has to run at the same time, says with its word; in the place
// where bulk copies bring them and take them from. Without `fenced` the store may take what was
// there before.
__global__ void add_next(int fenced, int shift, float* data, unsigned long long* words) {
  __shared__ alignas(128) float row[64];
  __shared__ Barrier full;
  float* const own = data + blockIdx.x * 64 + shift;
  if (threadIdx.x == 0) {
    init_barrier(&full, 1);
    fence_barrier_init();
    arrive_expecting(&full, sizeof row);
    copy_bulk(row, own, sizeof row, &full);
    const unsigned long long word = 1ull << 32 | (blockIdx.x + 1);
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(words + blockIdx.x), "l"(word));
  }
  __syncthreads();
  unsigned long long next;
  do {
    const unsigned long long* const from = words + (blockIdx.x + 1) % gridDim.x;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(next) : "l"(from));
  } while (next >> 32 != 1);
  wait(&full, 0);
  row[threadIdx.x] += static_cast<unsigned>(next);
  if (fenced) fence_shared_for_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_bulk(own, row, sizeof row);
    commit_bulk_stores();
    wait_bulk_stores_read<0>();
  }
}

extern "C" int run_add_next(int blocks, int fenced, int shift, float* data,
                            unsigned long long* words) {
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = 64;
  config.attrs = &together;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, add_next, fenced, shift, data, words);
}

// out[block] = {rank, blocks of the cluster, cluster}
__global__ void tell_place(int* out) {
  uint32_t rank, count, cluster;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = rank;
    out[3 * blockIdx.x + 1] = count;
    out[3 * blockIdx.x + 2] = cluster;
  }
}

extern "C" int run_tell_place(int* out, int blocks, int cluster) {
  return launch_clusters(tell_place, blocks, 32, cluster, out);
}

// ---- Products of a warpgroup ----

template <class Instruction, int TRANSPOSE_LHS, int TRANSPOSE_RHS>
__global__ void multiply_once(const uint16_t* lhs, const uint16_t* rhs, const float* before,
                              float* out, int depth) {
  // 1024-byte atoms: 64 of K by 8 rows, or 64 rows by 8 of K.
  constexpr int N = Instruction::N;
  extern __shared__ unsigned char shared[];
  unsigned char* const a = shared;
  unsigned char* const b = shared + 64 * 128;
  const auto store = [](unsigned char* base, const uint16_t* from, int rows, bool transposed) {
    for (int i = threadIdx.x; i < rows * 64; i += 128) {
      const int row = i / 64, k = i % 64;
      int place = transposed ? row / 64 * 64 * 128 + k * 128 + row % 64 * 2 : row * 128 + k * 2;
      place ^= (place >> 7 & 7) << 4;
      *reinterpret_cast<uint16_t*>(base + place) = from[i];
    }
  };
  store(a, lhs, 64, TRANSPOSE_LHS);
  store(b, rhs, N, TRANSPOSE_RHS);
  fence_shared_for_async();
  __syncthreads();
  float sums[Instruction::REGISTERS];
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane / 4;
  for (int i = 0; i < Instruction::REGISTERS; ++i) {
    sums[i] = before[(first + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2];
  }
  const MatrixDescriptor lhs_matrix = describe_matrix(a, 64 * 128),
                         rhs_matrix = describe_matrix(b, 64 * 128);
  fence_products();
  for (int k = 0; k < depth; k += 16) {
    Instruction::template multiply<TRANSPOSE_LHS, TRANSPOSE_RHS>(
        sums, advance_matrix(lhs_matrix, k * (TRANSPOSE_LHS ? 128 : 2)),
        advance_matrix(rhs_matrix, k * (TRANSPOSE_RHS ? 128 : 2)), 1);
  }
  commit_products();
  wait_products<0>();
  pin(sums);
  for (int i = 0; i < Instruction::REGISTERS; ++i) {
    out[(first + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
}

template <class Instruction, int TRANSPOSE_LHS, int TRANSPOSE_RHS>
static int run_product(const uint16_t* lhs, const uint16_t* rhs, const float* before, float* out,
                       int depth) {
  constexpr int BYTES = (64 + Instruction::N) * 128;
  const auto kernel = multiply_once<Instruction, TRANSPOSE_LHS, TRANSPOSE_RHS>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  kernel<<<1, 128, BYTES>>>(lhs, rhs, before, out, depth);
  return cudaGetLastError();
}

#define PRODUCT(NAME, INSTRUCTION)                                                               \
  extern "C" int NAME(const uint16_t* lhs, const uint16_t* rhs, const float* before, float* out, \
                      int depth, int transpose_lhs, int transpose_rhs) {                         \
    if (transpose_lhs) {                                                                         \
      return transpose_rhs ? run_product<INSTRUCTION, 1, 1>(lhs, rhs, before, out, depth)        \
                           : run_product<INSTRUCTION, 1, 0>(lhs, rhs, before, out, depth);       \
    }                                                                                            \
    return transpose_rhs ? run_product<INSTRUCTION, 0, 1>(lhs, rhs, before, out, depth)          \
                         : run_product<INSTRUCTION, 0, 0>(lhs, rhs, before, out, depth);         \
  }
PRODUCT(run_f16_64, Wgmma64F16)
PRODUCT(run_f16_128, Wgmma128F16)
PRODUCT(run_bf16_64, Wgmma64Bf16)

// Images of shared memory as they are, `bytes` each, and descriptors without the address.
template <int TRANSPOSE>
__global__ void multiply_images(const uint32_t* lhs, const uint32_t* rhs, int bytes,
                                uint64_t matrix, float* out) {
  __shared__ alignas(1024) uint32_t images[2][2048];
  for (int i = threadIdx.x; i < bytes / 4; i += 128) {
    images[0][i] = lhs[i];
    images[1][i] = rhs[i];
  }
  fence_shared_for_async();
  __syncthreads();
  float sums[32] = {};
  const auto describe = [&](const void* image) {
    return matrix | (shared_address(image) & 0x3ffff) >> 4;
  };
  fence_products();
  Wgmma64F16::multiply<TRANSPOSE, TRANSPOSE>(sums, describe(images[0]), describe(images[1]), 0);
  commit_products();
  wait_products<0>();
  pin(sums);
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane / 4;
  for (int i = 0; i < 32; ++i) {
    out[(first + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
}

extern "C" int run_multiply_images(const uint32_t* lhs, const uint32_t* rhs, int bytes,
                                   const uint64_t* matrix, int transpose, float* out) {
  const auto kernel = transpose ? multiply_images<1> : multiply_images<0>;
  kernel<<<1, 128>>>(lhs, rhs, bytes, *matrix, out);
  return cudaGetLastError();
}

// The first factor from registers, K = 16.
__global__ void multiply_fragments(const uint32_t* lhs, const uint32_t* rhs, float* out) {
  __shared__ alignas(1024) uint32_t image[2048];
  for (int i = threadIdx.x; i < 2048; i += 128) image[i] = rhs[i];
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane / 4;
  const uint32_t fragment[4] = {lhs[first * 8 + lane % 4], lhs[(first + 8) * 8 + lane % 4],
                                lhs[first * 8 + lane % 4 + 4], lhs[(first + 8) * 8 + lane % 4 + 4]};
  fence_shared_for_async();
  __syncthreads();
  float sums[32];
  fence_products();
  Wgmma64F16::multiply_registers<0>(sums, fragment, describe_matrix(image, 0), 0);
  commit_products();
  wait_products<0>();
  pin(sums);
  for (int i = 0; i < 32; ++i) {
    out[(first + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
}

extern "C" int run_multiply_fragments(const uint32_t* lhs, const uint32_t* rhs, float* out) {
  multiply_fragments<<<1, 128>>>(lhs, rhs, out);
  return cudaGetLastError();
}

// ---- Pipelines ----

// A warp produces, another consumes, through two stages: out[i] = in[i] + 1.
__global__ void pass_on(const int* in, int* out, int count) {
  __shared__ int stages[2][32];
  __shared__ Barrier full[2], empty[2];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      init_barrier(full + s, 32);
      init_barrier(empty + s, 32);
    }
  }
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    const int stage = i % 2, phase = i / 2 % 2;
    if (threadIdx.x < 32) {
      wait(empty + stage, phase ^ 1);
      stages[stage][lane] = in[32 * i + lane];
      arrive(full + stage);
    } else {
      wait(full + stage, phase);
      out[32 * i + lane] = stages[stage][lane ^ 1] + 1;
      arrive(empty + stage);
    }
  }
}

extern "C" int run_pass_on(const int* in, int* out, int count) {
  pass_on<<<1, 64>>>(in, out, count);
  return cudaGetLastError();
}

// Two pairs of warps meet by themselves, one pair twice as often.
__global__ void meet_in_pairs(int* out) {
  __shared__ int row[128];
  const int pair = threadIdx.x / 64, other = threadIdx.x ^ 32;
  int value = threadIdx.x;
  for (int i = 0; i < 2 + 2 * pair; ++i) {
    row[threadIdx.x] = value;
    sync_warps(1 + pair, 64);
    value = row[other] + 1;
    sync_warps(1 + pair, 64);
  }
  out[threadIdx.x] = value;
}

extern "C" int run_meet_in_pairs(int* out) {
  meet_in_pairs<<<1, 128>>>(out);
  return cudaGetLastError();
}

// A warpgroup gives registers back, the other takes them; one lane of each warp is elected.
__global__ void move_registers(int* elected) {
  if (threadIdx.x < 128) {
    give_registers_back<24>();
  } else {
    take_registers<240>();
  }
  uint32_t is_chosen;
  asm volatile(
      "{\n.reg .pred chosen;\nelect.sync _|chosen, 0xffffffff;\nselp.u32 %0, 1, 0, chosen;\n}"
      : "=r"(is_chosen));
  if (is_chosen) atomicAdd(elected, 1);
}

extern "C" int run_move_registers(int* elected) {
  move_registers<<<1, 256>>>(elected);
  return cudaGetLastError();
}
