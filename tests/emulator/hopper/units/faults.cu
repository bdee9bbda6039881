// Asynchronous kernels with one mistake each, chosen by a number; 0 is the kernel done right. The
// lines that tests look for carry a mark at their end.
#include "dependent_launch.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "wgmma_f16.cuh"

enum Mistake {
  NONE,
  NO_PROXY_FENCE,
  PROXY_FENCE_TOO_EARLY,
  NO_BLOCK_BARRIER,
  NO_WAIT_GROUP,
  WAIT_FOR_OLDER_GROUP,
  WRITES_SUMS_IN_FLIGHT,
  NO_PRODUCT_FENCE,
  OVERWRITES_OPERAND,
  DIFFERENT_MATRICES,
};

// out = lhs * rhs^T for 64 x 16 fp16 matrices that ordinary stores bring to shared memory.
__global__ void multiply_stored(const __half* lhs, const __half* rhs, float* out, int mistake) {
  __shared__ alignas(1024) __half a[64 * 64];
  __shared__ alignas(1024) __half b[64 * 64];
  if (mistake == PROXY_FENCE_TOO_EARLY) fence_shared_for_async();
  for (int i = threadIdx.x; i < 64 * 16; i += 128) {
    const int row = i / 16, k = i % 16;
    const int place = (row * 128 + k * 2 ^ row % 8 << 4) / 2;
    a[place] = lhs[i];
    b[place] = rhs[i];
  }
  if (mistake != NO_PROXY_FENCE && mistake != PROXY_FENCE_TOO_EARLY) fence_shared_for_async();
  if (mistake != NO_BLOCK_BARRIER) __syncthreads();
  float sums[32];
  for (int i = 0; i < 32; ++i) sums[i] = 0;
  const int shift = mistake == DIFFERENT_MATRICES && threadIdx.x >= 96 ? 16 : 0;
  if (mistake != NO_PRODUCT_FENCE) fence_products();
  Wgmma64F16::multiply<0, 0>(sums, describe_matrix(a + shift, 0), describe_matrix(b, 0), 1);
  commit_products();
  if (mistake == OVERWRITES_OPERAND) b[threadIdx.x * 16] = __float2half_rn(0);  // MARK overwrites
  if (mistake == WRITES_SUMS_IN_FLIGHT) sums[3] = 1;                            // MARK writes sums
  if (mistake == WAIT_FOR_OLDER_GROUP) {
    wait_products<1>();
  } else if (mistake != NO_WAIT_GROUP) {
    wait_products<0>();
  }
  for (int i = 0; i < 32; ++i) {
    out[threadIdx.x * 32 + i] = sums[i];  // MARK reads sums
  }
}

extern "C" int run_multiply_stored(const __half* lhs, const __half* rhs, float* out, int mistake) {
  multiply_stored<<<1, 128>>>(lhs, rhs, out, mistake);
  return cudaGetLastError();
}

enum Slip {
  NO_SLIP,
  WRONG_PARITY,
  NO_WAIT,
  TOO_MANY_BYTES,
  TOO_FEW_BYTES,
  NO_BYTES,
  REUSED_TOO_EARLY,
  RELEASED_TOO_EARLY,
  ARRIVES_TWICE,
  NO_INIT_FENCE,
  NO_BARRIER_AFTER_INIT,
  LEAVES_COPY,
  OTHER_BARRIER,
};

struct Rows {
  CUtensorMap map;
  int count;
  float* out;
};

// One thread brings rows of 32 numbers through two stages, a warp adds 1 to them.
__global__ void pass_rows(const __grid_constant__ Rows p, int slip) {
  __shared__ alignas(1024) float stages[2][32];
  __shared__ Barrier full[2], empty[2];
  constexpr int BYTES = sizeof stages[0];
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      init_barrier(full + s, 1);
      init_barrier(empty + s, 32);
    }
    if (slip != NO_INIT_FENCE) fence_barrier_init();
  }
  if (slip != NO_BARRIER_AFTER_INIT) __syncthreads();
  for (int i = 0; i < p.count; ++i) {
    const int stage = i % 2, phase = i / 2 % 2;
    if (threadIdx.x == 32) {
      if (slip != REUSED_TOO_EARLY) {
        wait(empty + stage, phase ^ (slip == WRONG_PARITY ? 0 : 1));
      }
      if (slip == NO_BYTES) {
        arrive(full + stage);
      } else {
        const int wrong = slip == TOO_MANY_BYTES ? 16 : slip == TOO_FEW_BYTES ? -16 : 0;
        arrive_expecting(full + stage, BYTES + wrong);  // MARK expects
      }
      copy_box(stages[stage], &p.map, 0, i, 0, full + stage);
      if (slip == LEAVES_COPY && i == 0) copy_box(stages[1], &p.map, 0, i, 0, full + 1);
      if (slip == ARRIVES_TWICE) arrive(full + stage);
    } else if (threadIdx.x < 32) {
      const int watched = slip == OTHER_BARRIER ? 0 : stage;
      if (slip != NO_WAIT) wait(full + watched, phase);
      if (slip == RELEASED_TOO_EARLY) arrive(empty + stage);
      p.out[32 * i + threadIdx.x] = stages[stage][threadIdx.x] + 1;  // MARK reads row
      if (slip != RELEASED_TOO_EARLY) arrive(empty + stage);
    }
  }
}

extern "C" int run_pass_rows(void* data, int count, float* out, int slip) {
  TensorBox box = {};
  box.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  box.sizes[0] = 32, box.sizes[1] = count, box.sizes[2] = 1;
  box.strides[0] = 128, box.strides[1] = 128 * count;
  box.box[0] = 32, box.box[1] = 1, box.box[2] = 1;
  Rows rows = {};
  const int error = encode_map(&rows.map, data, box);
  if (error != 0) return error;
  rows.count = slip == LEAVES_COPY ? 1 : count;
  rows.out = out;
  pass_rows<<<1, 64>>>(rows, slip);
  return cudaGetLastError();
}

enum Lapse {
  NO_LAPSE,
  NO_FENCE_OF_STORES,
  NO_WARP_BARRIER,
  OVERWRITES_STORED,
  LEAVES_STORE,
};

// A warp leaves rows of 32 numbers in shared memory and one lane stores each.
__global__ void store_rows(const __grid_constant__ Rows p, int lapse) {
  __shared__ alignas(1024) float row[32];
  __shared__ Barrier unused;  // with one the order inside of warps is watched
  if (threadIdx.x == 0) init_barrier(&unused, 1);
  __syncthreads();
  for (int i = 0; i < p.count; ++i) {
    if (threadIdx.x == 0 && lapse != OVERWRITES_STORED) wait_bulk_stores_read<0>();
    __syncwarp();
    row[threadIdx.x] = p.out[32 * i + threadIdx.x];
    if (lapse != NO_FENCE_OF_STORES) fence_shared_for_async();
    if (lapse != NO_WARP_BARRIER) __syncwarp();
    if (threadIdx.x == 0) store_box(&p.map, row, 0, i, 0, 0);  // MARK stores
  }
  if (threadIdx.x == 0 && lapse != LEAVES_STORE) wait_bulk_stores_read<0>();
}

extern "C" int run_store_rows(float* from, void* to, int count, int lapse) {
  TensorBox box = {};
  box.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  box.rank = 4;
  box.sizes[0] = 32, box.sizes[1] = count, box.sizes[2] = 1, box.sizes[3] = 1;
  box.strides[0] = 128, box.strides[1] = box.strides[2] = 128 * count;
  box.box[0] = 32, box.box[1] = 1, box.box[2] = 1, box.box[3] = 1;
  Rows rows = {};
  const int error = encode_map(&rows.map, to, box);
  if (error != 0) return error;
  rows.count = count;
  rows.out = from;
  store_rows<<<1, 32>>>(rows, lapse);
  return cudaGetLastError();
}

// ---- Registers, named barriers, clusters, launches that overlap ----

template <int TAKEN>
__global__ void take_too_much() {
  if (threadIdx.x < 128) {
    give_registers_back<64>();
  } else {
    take_registers<TAKEN>();
  }
}

extern "C" int run_take(int taken) {
  const auto kernel = taken == 240   ? take_too_much<240>
                      : taken == 248 ? take_too_much<248>
                      : taken == 100 ? take_too_much<100>
                                     : take_too_much<264>;
  kernel<<<1, 384>>>();
  return cudaGetLastError();
}

__global__ void meet_unequally(int* out) {
  sync_warps(1, threadIdx.x < 32 ? 64 : 96);  // MARK meets
  out[threadIdx.x] = 1;
}

extern "C" int run_meet_unequally(int* out) {
  meet_unequally<<<1, 64>>>(out);
  return cudaGetLastError();
}

__global__ void leave_cluster(int leaves) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    init_barrier(&barrier, 1);
    fence_barrier_init();
  }
  sync_cluster();
  if (cluster_rank() == 0 && threadIdx.x == 0) arrive_at_rank(&barrier, 1);  // MARK arrives
  if (!leaves) sync_cluster();
}

extern "C" int run_leave_cluster(int leaves) {
  // The block that leaves runs first in reverse order.
  return launch_dependent(leave_cluster, 2u, 32u, nullptr, leaves, 0, 2);
}

// A block of a cluster sends four words to its own memory.
__global__ void send_words(float* out) {
  __shared__ Barrier barrier;
  __shared__ float4 received;
  if (threadIdx.x == 0) {
    init_barrier(&barrier, 1);
    fence_barrier_init();
    arrive_expecting(&barrier, sizeof(received));
  }
  sync_cluster();
  if (threadIdx.x == 0) {
    store_quad_at_rank(&received, cluster_rank(), make_float4(1, 2, 3, 4), &barrier);
  }
  wait(&barrier, 0);
  if (threadIdx.x == 0) out[blockIdx.x] = received.w;
}

extern "C" int run_send_words(float* out, int cluster) {
  return launch_dependent(send_words, 2u, 32u, nullptr, out, 0, cluster);
}

__global__ void write_one(int* flag) {
  let_next_kernel_start();
  *flag = 1;
}

__global__ void read_one(int* flag) {
  if (flag[1] != 0) wait_for_previous_kernel();
  flag[2] = flag[0];  // MARK reads flag
}

extern "C" int run_dependent(int* flag, int waits) {
  cudaMemset(flag, 0, 3 * sizeof(int));
  flag[1] = waits;
  write_one<<<1, 1>>>(flag);
  return launch_dependent(read_one, 1u, 1u, nullptr, flag);
}
