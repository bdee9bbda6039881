// Copies in the mode im2col, and what several warps read between barriers of some warps.
#include <cuda_runtime.h>

#include "conv_pixels.cuh"

struct PixelArguments {
  CUtensorMap map;
  PixelPlace place;
  unsigned char* out;
  int bytes;
};

// out = the shared memory that one copy fills, as it lies there.
template <int SPATIAL>
__global__ void fetch_pixels(const __grid_constant__ PixelArguments a) {
  extern __shared__ unsigned char dynamic[];
  __shared__ Barrier full;
  unsigned char* const shared = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  if (threadIdx.x == 0) {
    init_barrier(&full, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(&full, a.bytes);
    copy_pixels<SPATIAL>(shared, &a.map, a.place, &full);
  }
  wait(&full, 0);
  for (int i = threadIdx.x; i < a.bytes; i += blockDim.x) a.out[i] = shared[i];
}

// numbers: images, channels, pitch; sizes, lower, upper, steps (three of each); channels and pixels
// of the box, swizzle; channel, image, place and offset of the first pixel (three of each).
extern "C" int run_fetch_pixels(void* data, int spatial, const int* numbers, unsigned char* out) {
  const int* next = numbers;
  PixelBox box = {};
  box.spatial = spatial;
  box.images = *next++;
  box.channels = *next++;
  box.pitch = *next++;
  for (int d = 0; d < 3; ++d) box.sizes[d] = box.in_memory[d] = *next++;
  for (int d = 0; d < 3; ++d) box.lower[d] = *next++;
  for (int d = 0; d < 3; ++d) box.upper[d] = *next++;
  for (int d = 0; d < 3; ++d) box.steps[d] = *next++;
  box.box_channels = *next++;
  box.box_pixels = *next++;
  box.swizzle = static_cast<CUtensorMapSwizzle>(*next++);
  PixelArguments a = {};
  a.place.channel = *next++;
  a.place.image = *next++;
  for (int d = 0; d < 3; ++d) a.place.at[d] = *next++;
  for (int d = 0; d < 3; ++d) a.place.offset[d] = *next++;
  a.out = out;
  a.bytes = box.box_channels * box.box_pixels * 2;
  const cudaError_t status = encode_pixels(&a.map, data, box);
  if (status != cudaSuccess) return status;
  void (*const kernels[])(PixelArguments) = {fetch_pixels<1>, fetch_pixels<2>, fetch_pixels<3>};
  kernels[spatial - 1]<<<1, 64, a.bytes + 1024>>>(a);
  return cudaDeviceSynchronize();
}

// Two warps of three write words, all of them read all, and they are written again; without the
// barrier of the two in between where `slips`.
__global__ void share_words(int slips, int* out) {
  __shared__ int words[64];
  constexpr int SHARERS = 64;
  if (threadIdx.x >= SHARERS) return;
  sync_warps(1, SHARERS);
  int sum = 0;
  for (int turn = 0; turn < 3; ++turn) {
    words[threadIdx.x] = turn;  // MARK words
    sync_warps(1, SHARERS);
    for (int i = 0; i < 64; ++i) sum += words[i];
    if (!slips) sync_warps(1, SHARERS);
  }
  out[threadIdx.x] = sum;
}

extern "C" int run_share_words(int slips, int* out) {
  share_words<<<1, 96>>>(slips, out);
  return cudaDeviceSynchronize();
}
