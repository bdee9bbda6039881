#pragma once
// Host side of gemm_sm90.cuh: what it admits, the workspace, and the launches of one product:
// the kernel that splits the factors, the product, the kernel that finishes.

#include "gemm_finish.cuh"
#include "gemm_sm90.cuh"

// What a launch needs to know of a device.
struct DeviceLimits {
  int multiprocessors;
  bool has_wgmma;

  static DeviceLimits current() {
    int device = 0, count = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return {count, major == 9};
  }
};

constexpr int64_t aligned_bytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// A __global__ function that runs gemm_sm90<Config>, and the general one that finishes.
template <class Config, class Problem, class General>
struct Sm90Variant {
  using Tile = Sm90Tile<Config, Problem>;
  using Parameters = Sm90Parameters<Problem>;
  static constexpr int THREADS = Tile::THREADS;
  static constexpr bool IS_PAIRS = Tile::FEED != Feed::DIRECT;

  void (*kernel)(Parameters);
  General general;

  static bool admits(const Problem& problem) {
    constexpr int64_t MAX_SIZE = int64_t{1} << 30;  // coordinates of boxes are 32-bit
    if (problem.k == 0 || problem.m > MAX_SIZE || problem.n > MAX_SIZE || problem.k > MAX_SIZE) {
      return false;
    }
    // Compared as floating point: the product of four sizes may not fit an integer.
    const double products = static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                            static_cast<double>(problem.k) * static_cast<double>(problem.batches);
    if (products < static_cast<double>(Config::MIN_PRODUCTS)) return false;
    if (units(problem) > MAX_SIZE || !DeviceLimits::current().has_wgmma) return false;
    const Factor lhs = lhs_factor(problem), rhs = rhs_factor(problem);
    if (lhs.batches > MAX_SIZE / 2 || rhs.batches > MAX_SIZE / 2) return false;
    return Tile::FEED == Feed::SPLIT || (is_boxed(lhs) && is_boxed(rhs));
  }

  static int64_t workspace_bytes(const Problem& problem) {
    return plane_bytes(lhs_factor(problem)) + plane_bytes(rhs_factor(problem)) +
           partial_bytes(problem) + HEADER_BYTES;
  }

  cudaError_t launch(Problem problem, cudaStream_t stream, void* workspace) const {
    const DeviceLimits device = DeviceLimits::current();
    char* const bytes = static_cast<char*>(workspace);
    Parameters p = {};
    p.problem = problem;
    p.header = reinterpret_cast<GemmHeader*>(bytes);
    p.lhs = lhs_factor(problem);
    p.rhs = rhs_factor(problem);
    char* const lhs_planes = bytes + HEADER_BYTES;
    char* const rhs_planes = lhs_planes + plane_bytes(p.lhs);
    p.partials = reinterpret_cast<float*>(rhs_planes + plane_bytes(p.rhs));
    p.partial_pitch = partial_pitch(problem);
    set_batch_steps(problem, problem.lhs(), p.lhs_batch_steps);
    set_batch_steps(problem, problem.rhs(), p.rhs_batch_steps);
    p.cluster_rows = cluster_rows(problem);
    p.columns = columns(problem);
    p.units = static_cast<int>(units(problem));
    p.steps = static_cast<int>((problem.k + Tile::BLOCK_K - 1) / Tile::BLOCK_K);
    p.steps_per_slice = (p.steps + Config::SLICES - 1) / Config::SLICES;

    cudaError_t status = encode<Config::LHS, Tile::BLOCK_M, 1>(&p.lhs_map, p.lhs, lhs_planes);
    if (status == cudaSuccess) {
      status = encode<Config::RHS, Tile::BLOCK_N, Tile::PLANES == 2 ? 1 : Tile::CLUSTER>(
          &p.rhs_map, p.rhs, rhs_planes);
    }
    if (status != cudaSuccess) return status;
    int guard_words = 0;
    if constexpr (Tile::FEED == Feed::SPLIT) {
      guard_words = split_factors(p, lhs_planes, rhs_planes, device, stream);
      status = cudaGetLastError();
      if (status != cudaSuccess) return status;
    }
    const int at_once = device.multiprocessors / Tile::CLUSTER;
    const int clusters = p.units < at_once ? p.units : at_once;
    if (Tile::FEED == Feed::CONVERT) guard_words = clusters;
    status = launch_dependent(kernel, clusters * Tile::CLUSTER, THREADS, Tile::SHARED_BYTES,
                              Tile::CLUSTER, stream, p, Tile::FEED == Feed::SPLIT);
    if (status != cudaSuccess || (!IS_PAIRS && Config::SLICES == 1)) return status;
    problem.rest.header = p.header;
    problem.rest.guard_words = guard_words;
    problem.rest.small_elements =
        SMALL_ELEMENTS + (elements(p.lhs) + elements(p.rhs) >> SMALL_SHARE_BITS);
    problem.rest.slices = Config::SLICES;
    problem.rest.partials = p.partials;
    problem.rest.partial_pitch = p.partial_pitch;
    return general.launch_rest(problem, stream, device.multiprocessors);
  }

 private:
  static constexpr int64_t HEADER_BYTES = aligned_bytes(sizeof(GemmHeader));

  static Factor lhs_factor(const Problem& problem) {
    const MatrixOperand& lhs = problem.lhs();
    return Factor::of(problem, lhs, Config::LHS, problem.m, lhs.row_stride, lhs.column_stride);
  }
  static Factor rhs_factor(const Problem& problem) {
    const MatrixOperand& rhs = problem.rhs();
    return Factor::of(problem, rhs, Config::RHS, problem.n, rhs.column_stride, rhs.row_stride);
  }

  static int64_t elements(const Factor& factor) {
    return factor.inner * factor.outer * factor.batches;
  }
  static int64_t plane_bytes(const Factor& factor) {
    if (Tile::FEED != Feed::SPLIT) return 0;
    return aligned_bytes(factor.batches * 2 * factor.plane_elements() * 2);
  }
  static int64_t partial_pitch(const Problem& problem) { return (problem.n + 3) / 4 * 4; }
  static int64_t partial_bytes(const Problem& problem) {
    if (Config::SLICES == 1) return 0;
    return aligned_bytes(Config::SLICES * problem.batches * problem.m * partial_pitch(problem) * 4);
  }

  static int cluster_rows(const Problem& problem) {
    constexpr int ROWS = Tile::BLOCK_M * Tile::CLUSTER;
    return static_cast<int>((problem.m + ROWS - 1) / ROWS);
  }
  static int columns(const Problem& problem) {
    return static_cast<int>((problem.n + Tile::BLOCK_N - 1) / Tile::BLOCK_N);
  }
  static int64_t units(const Problem& problem) {
    return static_cast<int64_t>(cluster_rows(problem)) * columns(problem) * problem.batches *
           Config::SLICES;
  }

  // Whether the tensor memory accelerator can read the factor where it lies.
  static bool is_boxed(const Factor& factor) {
    constexpr int64_t SIZE = sizeof(typename Problem::Factor);
    bool boxed = reinterpret_cast<uintptr_t>(factor.data) % 16 == 0 &&
                 (factor.inner_stride == 1 || factor.inner == 1) && factor.batch_rank <= 1 &&
                 is_step(factor.outer_stride * SIZE, factor.outer);
    if (factor.batch_rank == 1) {
      boxed = boxed && is_step(factor.batch_strides[0] * SIZE, factor.batch_sizes[0]);
    }
    return boxed;
  }
  static bool is_step(int64_t bytes, int64_t count) {
    return count == 1 || (bytes > 0 && bytes % 16 == 0 && bytes < int64_t{1} << 40);
  }

  // The map of a factor's boxes of COUNT along its own dimension, in PARTS.
  template <Major MAJOR, int COUNT, int PARTS>
  static cudaError_t encode(CUtensorMap* map, const Factor& factor, void* planes) {
    constexpr bool ALONG_K = MAJOR == Major::K;
    TensorBox box = {};
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    if constexpr (Tile::FEED == Feed::CONVERT) {
      box.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
      box.box[0] = 32;
      box.box[1] = ALONG_K ? COUNT : Tile::RAW_K;
    } else {
      box.type =
          sizeof(typename Problem::Factor) == 2 && !std::is_same_v<typename Tile::Element, __half>
              ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
              : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
      box.box[0] = 64;
      box.box[1] = ALONG_K ? COUNT / PARTS : Tile::BLOCK_K;
    }
    box.box[2] = 1;
    box.sizes[0] = factor.inner;
    box.sizes[1] = factor.outer;
    if constexpr (Tile::FEED == Feed::SPLIT) {
      box.sizes[2] = factor.batches * 2;
      box.strides[0] = factor.pitch * 2;
      box.strides[1] = factor.plane_elements() * 2;
      return encode_map(map, planes, box);
    } else {
      constexpr int64_t SIZE = sizeof(typename Problem::Factor);
      box.sizes[2] = factor.batches;
      // What is never stepped over needs a stride that the driver accepts all the same.
      const int64_t row = (factor.inner * SIZE + 15) / 16 * 16;
      box.strides[0] = factor.outer > 1 ? factor.outer_stride * SIZE : row;
      box.strides[1] = factor.batch_rank == 1 && factor.batch_sizes[0] > 1
                           ? factor.batch_strides[0] * SIZE
                           : box.strides[0] * factor.outer;
      return encode_map(map, const_cast<void*>(factor.data), box);
    }
  }

  // Launches the split; the number of its blocks.
  static int split_factors(const Parameters& p, void* lhs_planes, void* rhs_planes,
                           const DeviceLimits& device, cudaStream_t stream) {
    SplitParameters split = {};
    split.header = p.header;
    split.sides[0] = SplitTile::side(p.lhs, lhs_planes);
    split.sides[1] = SplitTile::side(p.rhs, rhs_planes);
    const int64_t tiles = split.sides[0].tiles + split.sides[1].tiles;
    int64_t blocks = 8 * static_cast<int64_t>(device.multiprocessors);
    if (blocks > MAX_GUARD_WORDS) blocks = MAX_GUARD_WORDS;
    if (blocks > tiles) blocks = tiles;
    split_factors_kernel<<<static_cast<unsigned>(blocks), SPLIT_THREADS, 0, stream>>>(split);
    return static_cast<int>(blocks);
  }
};
