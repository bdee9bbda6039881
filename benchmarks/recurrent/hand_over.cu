// The smallest hand-overs in shared memory: 256 threads write an array, a warp of its own reads it,
// four times over two buffers. Every way but NOTHING orders each write before its reads and each
// read before the next write. The argument picks the way.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

enum class Way {
  NOTHING,
  ONE_ARRIVES,     // the writers meet at a barrier of theirs, one arrives at an mbarrier
  EACH_ARRIVES,    // each arrives there
  WARPS_ARRIVE,    // one of each warp does, after __syncwarp
  ONE_HANDS_BACK,  // each arrives; one reader arrives for its warp, after __syncwarp
  BARRIERS,        // named barriers of writers and readers
};

constexpr int STEPS = 4, WRITERS = 256, ALL = WRITERS + 32;

__device__ uint32_t address_of(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(arrivals)
               : "memory");
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(barrier)) : "memory");
}
__device__ void wait(uint64_t* barrier, int parity) {
  uint32_t complete = 0;
  while (complete == 0) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}\n"
        : "=r"(complete)
        : "r"(address_of(barrier)), "r"(parity)
        : "memory");
  }
}
__device__ void sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ void announce(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

struct Shared {
  int data[2][WRITERS];
  uint64_t written[2], read[2];
};

template <Way WAY>
__device__ void write_all(Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int step = 0; step < STEPS; ++step) {
    const int buffer = step & 1;
    if (WAY == Way::BARRIERS) {
      sync(4 + buffer, ALL);
    } else if (WAY != Way::NOTHING && step >= 2) {
      wait(shared.read + buffer, (step - 2) / 2 & 1);
    }
    shared.data[buffer][thread] = step + thread;
    if (WAY == Way::BARRIERS) announce(2 + buffer, ALL);
    if (WAY == Way::EACH_ARRIVES || WAY == Way::ONE_HANDS_BACK) arrive(shared.written + buffer);
    if (WAY == Way::ONE_ARRIVES) {
      sync(1, WRITERS);
      if (thread == 0) arrive(shared.written + buffer);
    }
    if (WAY == Way::WARPS_ARRIVE) {
      __syncwarp();
      if (thread % 32 == 0) arrive(shared.written + buffer);
    }
  }
}

template <Way WAY>
__device__ void read_all(Shared& shared, int* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = 0;
  for (int step = 0; WAY == Way::BARRIERS && step < 2; ++step) announce(4 + step, ALL);
  for (int step = 0; step < STEPS; ++step) {
    const int buffer = step & 1;
    if (WAY == Way::BARRIERS) {
      sync(2 + buffer, ALL);
    } else if (WAY != Way::NOTHING) {
      wait(shared.written + buffer, step / 2 & 1);
    }
    for (int i = 0; i < WRITERS / 32; ++i) sum += shared.data[buffer][lane + i * 32];
    if (WAY == Way::BARRIERS) {
      if (step + 2 < STEPS) announce(4 + buffer, ALL);
    } else if (WAY == Way::ONE_HANDS_BACK) {
      __syncwarp();
      if (lane == 0) arrive(shared.read + buffer);
    } else if (WAY != Way::NOTHING) {
      arrive(shared.read + buffer);
    }
  }
  sums[lane] = sum;
}

template <Way WAY>
__global__ void hand_over(int* sums) {
  __shared__ Shared shared;
  if (threadIdx.x == 0) {
    const int writers = WAY == Way::ONE_ARRIVES ? 1 : WAY == Way::WARPS_ARRIVE ? 8 : WRITERS;
    for (int i = 0; i < 2; ++i) {
      init_barrier(shared.written + i, writers);
      init_barrier(shared.read + i, WAY == Way::ONE_HANDS_BACK ? 1 : 32);
    }
  }
  __syncthreads();
  if (threadIdx.x < WRITERS) {
    write_all<WAY>(shared);
  } else {
    read_all<WAY>(shared, sums);
  }
}

template <Way WAY>
int run(int* sums) {
  hand_over<WAY><<<1, ALL>>>(sums);
  const cudaError_t status = cudaDeviceSynchronize();
  std::printf("%s, sum %d\n", cudaGetErrorString(status), sums[0]);
  return status == cudaSuccess ? 0 : 1;
}

int main(int count, char** words) {
  int* sums = nullptr;
  cudaMallocManaged(&sums, 32 * sizeof(int));
  switch (static_cast<Way>(count > 1 ? std::atoi(words[1]) : 0)) {
    case Way::ONE_ARRIVES:
      return run<Way::ONE_ARRIVES>(sums);
    case Way::EACH_ARRIVES:
      return run<Way::EACH_ARRIVES>(sums);
    case Way::WARPS_ARRIVE:
      return run<Way::WARPS_ARRIVE>(sums);
    case Way::ONE_HANDS_BACK:
      return run<Way::ONE_HANDS_BACK>(sums);
    case Way::BARRIERS:
      return run<Way::BARRIERS>(sums);
    default:
      return run<Way::NOTHING>(sums);
  }
}
