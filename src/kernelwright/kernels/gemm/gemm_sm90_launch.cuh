#pragma once
// Host side of gemm_sm90.cuh: what it admits, the workspace, and the launches of one product:
// the kernel that splits the factors, the product, the kernel that finishes.

#include <algorithm>

#include "gemm_finish.cuh"
#include "gemm_sm90.cuh"
#include "gemm_sm90_cut.cuh"

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

// For products that no kernel finishes.
struct NoVariant {};

// A __global__ function that runs gemm_sm90<Config>, and the one that finishes.
template <class Config, class Problem, class Finishing = NoVariant>
struct Sm90Variant {
  using Tile = Sm90Tile<Config, Problem>;
  using Parameters = Sm90Parameters<Problem>;
  static constexpr int THREADS = Tile::THREADS;
  static constexpr bool IS_PAIRS = Tile::PLANES == 2;
  // The tensor memory accelerator rounds to the nearest number of TF32; the tensor cores would
  // truncate.
  static constexpr bool ROUNDS = std::is_same_v<typename Tile::Element, float>;
  static constexpr bool SPLITS_BEFORE = IS_PAIRS && !Tile::SPLITS_INSIDE;  // rhs at least

  void (*kernel)(Parameters);
  [[maybe_unused]] Finishing finishing = {};

  static bool admits(const Problem& given) {
    const bool has_wgmma = DeviceLimits::current().has_wgmma;
    if constexpr (!ANY_OTHER_SIZES) return has_wgmma;
    if constexpr (ANY_TF32 && ROUNDS) {
      if (!given.may_round) return false;
    }
    constexpr int64_t MAX_SIZE = int64_t{1} << 30;  // coordinates of boxes are 32-bit
    const Problem problem = turned(given);
    // Compared as floating point: the product of four sizes may not fit an integer.
    const double products = static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                            static_cast<double>(problem.k) * static_cast<double>(problem.batches);
    if (problem.k == 0 || products < static_cast<double>(Config::MIN_PRODUCTS)) return false;
    if (problem.m > MAX_SIZE || problem.n > MAX_SIZE || problem.k > MAX_SIZE) return false;
    const double tiles = static_cast<double>(problem.m / Tile::BLOCK_M + 1) *
                         static_cast<double>(problem.n / Tile::BLOCK_N + 1) *
                         static_cast<double>(problem.batches) * Config::SLICES;
    if (tiles > static_cast<double>(MAX_SIZE) || !has_wgmma) return false;
    if constexpr (Tile::SPLITS_INSIDE) {
      if (ANY_TRIANGLES && problem.triangle != Triangle::NONE) return false;
      if (ANY_BATCHES && problem.batch_rank > 1) return false;
    }
    if constexpr (Tile::FEED == Feed::BAND) {
      return problem.patches.has_whole(problem.m) && problem.patches.taps() == Tile::TAPS &&
             problem.patches.has_band(Tile::LHS_ROWS - Tile::BLOCK_M) && problem.is_filter_boxed();
    } else if constexpr (ANY_PATCHES && Problem::HAS_PATCHES) {
      return problem.patches.is_boxed() && problem.is_filter_boxed();
    } else {
      return (Tile::HAS_PLANES || is_boxed(lhs_factor(problem))) &&
             (SPLITS_BEFORE || is_boxed(rhs_factor(problem)));
    }
  }

  static int64_t workspace_bytes(const Problem& given) {
    const Problem problem = turned(given);
    int64_t bytes = HEADER_BYTES;
    if constexpr (Tile::HAS_PLANES) bytes += plane_bytes(lhs_factor(problem));
    if constexpr (SPLITS_BEFORE) bytes += plane_bytes(rhs_factor(problem));
    if constexpr (Config::SLICES > 1) bytes += partial_bytes(problem);
    return bytes;
  }

  cudaError_t launch(const Problem& given, cudaStream_t stream, void* workspace) const {
    const DeviceLimits device = DeviceLimits::current();
    Problem problem = turned(given);
    if constexpr (Tile::FEED == Feed::BAND) problem.patches = problem.patches.as_band();
    const Factor lhs = lhs_factor(problem), rhs = rhs_factor(problem);
    char* const lhs_planes = static_cast<char*>(workspace) + HEADER_BYTES;
    char* const rhs_planes = lhs_planes + (Tile::HAS_PLANES ? plane_bytes(lhs) : 0);
    Parameters p = {};
    p.problem = problem;
    p.header = static_cast<GemmHeader*>(workspace);
    if constexpr (ANY_BATCHES) {
      set_batch_steps(problem, problem.lhs(), p.lhs_batch_steps);
      set_batch_steps(problem, problem.rhs(), p.rhs_batch_steps);
    }
    p.steps = steps(problem);
    p.steps_per_slice = (p.steps + Config::SLICES - 1) / Config::SLICES;
    // Without those that would have no step.
    const int slices =
        Config::SLICES > 1 ? (p.steps + p.steps_per_slice - 1) / p.steps_per_slice : 1;
    constexpr int BOX_M = Tile::LHS_ROWS;
    constexpr int BOX_N = Tile::PLANES == 2 ? Tile::BLOCK_N : Tile::BLOCK_N / Tile::CLUSTER;
    if constexpr (Config::SLICES > 1) {
      p.partials = reinterpret_cast<float*>(rhs_planes + (SPLITS_BEFORE ? plane_bytes(rhs) : 0));
      p.partial_pitch = partial_pitch(problem);
      p.problem.rest.slices = slices;
      p.problem.rest.partials = p.partials;
      p.problem.rest.partial_pitch = p.partial_pitch;
    }
    cudaError_t status = encode_lhs<BOX_M>(p, lhs, lhs_planes);
    if (status == cudaSuccess) status = encode_rhs<BOX_N>(p, rhs, rhs_planes);
    if (status == cudaSuccess && Tile::BUFFERED) status = encode_results(p);
    if (status != cudaSuccess) return status;
    int at_once = device.multiprocessors * Tile::RESIDENT / Tile::CLUSTER;
    if constexpr (Tile::CLUSTER > 2) {
      // Clusters of four do not fill every part of the card.
      static const int found = most_clusters(kernel, THREADS, Tile::SHARED_BYTES, Tile::CLUSTER);
      if (found > 0 && found < at_once) at_once = found;
    }
    if constexpr (Tile::FEED == Feed::BAND) {
      // Tiles have padded pixels.
      problem.m = problem.patches.places() / problem.batches;
      p.band_rows = static_cast<int>(problem.m);
    }
    const Tiles all = all_tiles<Tile>(problem);
    Sm90Cut cut = {all, {}};
    if constexpr (Tile::SPLITS_AHEAD) cut = find_cut<Config, Tile>(problem, lhs, rhs, at_once);
    p.units = number_units<Tile>(problem, slices, cut.first);
    GemmRest& rest = p.problem.rest;
    if constexpr (IS_PAIRS) rest.header = p.header;
    rest.small_elements = SMALL_ELEMENTS + ((elements(lhs) + elements(rhs)) >> SMALL_SHARE_BITS);
    int& words = rest.guard_words;
    if constexpr (Tile::SPLITS_INSIDE) {
      p.factors[0] = lhs;
      p.factors[1] = rhs;
    }
    if constexpr (SPLITS_BEFORE) {
      const SplitParameters split = describe_split(p, lhs, lhs_planes, rhs, rhs_planes, cut.first);
      const int64_t tiles = static_cast<int64_t>(split.sides[0].tiles) + split.sides[1].tiles;
      const int64_t most = int64_t{SPLIT_BLOCKS} * device.multiprocessors;
      words = static_cast<int>(std::min({tiles, most, int64_t{MAX_GUARD_WORDS} / 2}));
      status = launch_dependent(split_factors_kernel, static_cast<unsigned>(words), SPLIT_THREADS,
                                stream, split);
      if (status != cudaSuccess) return status;
    }
    if constexpr (Tile::FEED == Feed::CONVERT || Tile::SPLITS_INSIDE || Tile::SPLITS_AHEAD) {
      p.guard_word = words;
    }
    if (Tile::FEED == Feed::CONVERT || Tile::SPLITS_INSIDE) words += blocks(p, at_once);
    if constexpr (Tile::FALLS_BACK) p.all = number_units<Tile>(problem, 1, all);
    if constexpr (Tile::SPLITS_AHEAD) {
      if (!cut.rest.is_empty()) {
        words += blocks(p, at_once);
        p.splits_ahead = true;
        p.ahead_side = cut.rest.first_column > 0 ? 1 : 0;
        p.ahead = describe_split(p, lhs, lhs_planes, rhs, rhs_planes, cut.rest).sides[p.ahead_side];
        status = launch_units(p, at_once, stream);
        if (status != cudaSuccess) return status;
        p.splits_ahead = false;
        p.units = number_units<Tile>(problem, slices, cut.rest);
      }
    }
    if constexpr (Tile::FALLS_BACK) p.falls_back = true;
    status = launch_units(p, at_once, stream);
    if constexpr (Config::SLICES > 1 || (IS_PAIRS && !Tile::FALLS_BACK)) {
      if (status != cudaSuccess) return status;
      return finishing.launch_rest(p.problem, stream, device.multiprocessors);
    } else {
      return status;
    }
  }

 private:
  static constexpr int64_t HEADER_BYTES = aligned_bytes(sizeof(GemmHeader));

  // Of the factors' elements.
  static constexpr CUtensorMapDataType TYPE =
      ROUNDS                                           ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
      : sizeof(typename Problem::Factor) == 4          ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
      : std::is_same_v<typename Tile::Element, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

  static Factor lhs_factor(const Problem& problem) {
    const MatrixOperand& lhs = problem.lhs();
    if constexpr (ANY_PAIRED && Tile::IS_PAIRED) {
      return Factor::of(problem, lhs, Config::LHS, problem.m, lhs.row_stride, lhs.column_stride)
          .paired(problem.lhs_in_pairs);
    } else {
      return Factor::of(problem, lhs, Config::LHS, problem.m, lhs.row_stride, lhs.column_stride);
    }
  }
  static Factor rhs_factor(const Problem& problem) {
    const MatrixOperand& rhs = problem.rhs();
    Factor factor =
        Factor::of(problem, rhs, Config::RHS, problem.n, rhs.column_stride, rhs.row_stride);
    if constexpr (Tile::FEED == Feed::CONVERT && Config::LHS == Major::K) {
      factor = factor.permuted(Config::RHS);
    }
    return factor;
  }

  static Problem turned(const Problem& given) {
    if constexpr (Config::TRANSPOSED) {
      return given.transposed();
    } else {
      return given;
    }
  }

  // Of K.
  static int steps(const Problem& problem) {
    if constexpr (Tile::FEED == Feed::BAND) {
      return chunks(problem.patches.channels);
    } else if constexpr (ANY_PATCHES && Problem::HAS_PATCHES) {
      return problem.patches.taps() * chunks(problem.patches.channels);
    } else {
      return chunks(problem.k);
    }
  }
  static int chunks(int64_t k) { return static_cast<int>((k + Tile::BLOCK_K - 1) / Tile::BLOCK_K); }

  template <int COUNT>
  static cudaError_t encode_lhs(Parameters& p, const Factor& lhs, void* planes) {
    if constexpr (ANY_PATCHES && Problem::HAS_PATCHES) {
      return p.problem.patches.encode(&p.lhs_map, TYPE, Tile::BLOCK_K, COUNT);
    } else if constexpr (ANY_PAIRED && Tile::IS_PAIRED) {
      const Factor floats = lhs.of_lines(planes);
      return encode_map(&p.lhs_map, const_cast<void*>(floats.data),
                        factor_box<Config::LHS, COUNT>(floats));
    } else if constexpr (Tile::HAS_PLANES) {
      return encode_map(&p.lhs_map, planes, plane_box<Config::LHS, COUNT>(lhs));
    } else {
      return encode_map(&p.lhs_map, const_cast<void*>(lhs.data),
                        factor_box<Config::LHS, COUNT>(lhs));
    }
  }
  template <int COUNT>
  static cudaError_t encode_rhs(Parameters& p, const Factor& rhs, void* planes) {
    void* const data = const_cast<void*>(rhs.data);
    if constexpr (ANY_PATCHES && Problem::HAS_PATCHES) {
      return encode_map(&p.rhs_map, data,
                        p.problem.filter_box(TYPE, Tile::BLOCK_K, COUNT, Tile::TAPS));
    } else if constexpr (SPLITS_BEFORE) {
      return encode_map(&p.rhs_map, planes, plane_box<Config::RHS, COUNT>(rhs));
    } else {
      if constexpr (ANY_TOGETHER) {
        using Element = typename Problem::Factor;
        const TensorBox box = factor_box<Config::RHS, COUNT>(rhs);
        const int maps = rhs.together > 1 ? rhs.together : 0;
        for (int i = 0; i < maps; ++i) {
          void* const own = static_cast<Element*>(data) + rhs.apart[i];
          const cudaError_t status = encode_map(p.rhs_maps + i, own, box);
          if (status != cudaSuccess) return status;
        }
      }
      return encode_map(&p.rhs_map, data, factor_box<Config::RHS, COUNT>(rhs));
    }
  }

  static int64_t elements(const Factor& factor) {
    return factor.inner * factor.outer * factor.batches;
  }
  static int64_t plane_bytes(const Factor& factor) {
    if (ANY_PAIRED && factor.in_place) return 0;
    return aligned_bytes(factor.batches * 2 * factor.plane_elements() * 2);
  }
  // Whole blocks of 32 columns, which boxes have, or whole runs.
  static int64_t partial_pitch(const Problem& problem) {
    constexpr int64_t BLOCK = Tile::BUFFERED ? 32 : RUN;
    return (problem.n + BLOCK - 1) / BLOCK * BLOCK;
  }
  static int64_t partial_bytes(const Problem& problem) {
    return aligned_bytes(Config::SLICES * problem.batches * problem.m * partial_pitch(problem) * 4);
  }

  // Whether the tensor memory accelerator can read the factor where it lies.
  static bool is_boxed(const Factor& factor) {
    constexpr int64_t SIZE = sizeof(typename Problem::Factor);
    bool boxed = reinterpret_cast<uintptr_t>(factor.data) % 16 == 0 &&
                 (factor.inner_stride == 1 || factor.inner == 1) && factor.batch_rank <= 1 &&
                 is_step(factor.outer_stride * SIZE, factor.outer);
    if (ANY_TOGETHER && factor.together > 1) {
      // Each product's has a map of its own.
      for (int i = 0; i < factor.together; ++i) boxed = boxed && factor.apart[i] * SIZE % 16 == 0;
    } else if (factor.batch_rank == 1) {
      boxed = boxed && is_step(factor.batch_strides[0] * SIZE, factor.batch_sizes[0]);
    }
    return boxed;
  }
  static bool is_step(int64_t bytes, int64_t count) {
    return count == 1 || (bytes > 0 && bytes % 16 == 0 && bytes < int64_t{1} << 40);
  }

  // Boxes of COUNT along a factor's own dimension, in its planes.
  template <Major MAJOR, int COUNT>
  static TensorBox plane_box(const Factor& factor) {
    TensorBox box = {};
    box.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    box.box[0] = Tile::ROW_BYTES / 2;
    box.box[1] = MAJOR == Major::K ? COUNT : Tile::BLOCK_K;
    box.box[2] = 1;
    box.sizes[0] = factor.plane_inner;
    box.sizes[1] = factor.plane_outer;
    box.sizes[2] = factor.batches * 2;
    box.strides[0] = factor.pitch * 2;
    box.strides[1] = factor.plane_elements() * 2;
    return box;
  }

  // The same where the factor itself lies.
  template <Major MAJOR, int COUNT>
  static TensorBox factor_box(const Factor& factor) {
    constexpr int64_t SIZE = sizeof(typename Problem::Factor);
    TensorBox box = {};
    box.type = TYPE;
    box.swizzle = Tile::SPLITS_INSIDE ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B;
    box.box[0] = Tile::SPLITS_INSIDE ? 64 : Tile::ROW_BYTES / SIZE;
    box.box[1] = Tile::SPLITS_INSIDE ? 64 : MAJOR == Major::K ? COUNT : Tile::BLOCK_K;
    box.box[2] = 1;
    box.sizes[0] = factor.inner;
    box.sizes[1] = factor.outer;
    box.sizes[2] = own_batches(factor);
    // What is never stepped over needs a stride that the driver accepts all the same.
    const int64_t row = (factor.inner * SIZE + 15) / 16 * 16;
    box.strides[0] = factor.outer > 1 ? factor.outer_stride * SIZE : row;
    box.strides[1] =
        own_batches(factor) > 1 ? factor.batch_strides[0] * SIZE : box.strides[0] * factor.outer;
    return box;
  }
  // Of one product.
  static int64_t own_batches(const Factor& factor) {
    return ANY_TOGETHER && factor.together > 1 ? 1 : factor.batches;
  }

  // The results, or the slices' sums, as a warp stores them; not every result lies so.
  static cudaError_t encode_results(Parameters& p) {
    constexpr int BLOCK = 32;  // columns: 128 bytes
    const Problem& problem = p.problem;
    const MatrixOperand& out = problem.operands[Problem::OUT];
    TensorBox box = {};
    box.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    box.rank = 4;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    const bool is_sliced = Config::SLICES > 1;
    const int64_t columns = is_sliced ? p.partial_pitch : problem.n;
    const int64_t pitch = is_sliced ? p.partial_pitch : out.row_stride;
    // Results of products together have a map each.
    const int maps = ANY_TOGETHER && !is_sliced ? problem.together : 1;
    const int first = maps > 1 ? 1 : 0, rank = problem.batch_rank - first;
    const int64_t batch = is_sliced || rank == 0 ? problem.m * pitch : out.batch_strides[first];
    void* const data = is_sliced ? p.partials : out.data;
    p.is_boxed =
        is_sliced || (columns % BLOCK == 0 && out.has_column_vectors && rank <= 1 && pitch > 0 &&
                      batch > 0 && pitch < int64_t{1} << 38 && batch < int64_t{1} << 38);
    if (!p.is_boxed) return cudaSuccess;
    box.sizes[0] = BLOCK;
    box.sizes[1] = columns / BLOCK;
    box.sizes[2] = problem.m;
    box.sizes[3] = problem.batches / maps * Config::SLICES;
    box.strides[0] = BLOCK * 4;
    box.strides[1] = pitch * 4;
    box.strides[2] = batch * 4;
    box.box[0] = BLOCK;
    box.box[1] = Tile::BLOCK_N / BLOCK;
    box.box[2] = 16;
    box.box[3] = 1;
    cudaError_t status = encode_map(&p.result_maps[0], data, box);
    if constexpr (ANY_TOGETHER) {
      for (int map = 1; map < maps && status == cudaSuccess; ++map) {
        status = encode_map(&p.result_maps[map], static_cast<float*>(data) + out.apart[map], box);
      }
    }
    return status;
  }

  static int blocks(const Parameters& p, int at_once) {
    return (p.units.count < at_once ? p.units.count : at_once) * Tile::CLUSTER;
  }

  cudaError_t launch_units(const Parameters& p, int at_once, cudaStream_t stream) const {
    return launch_dependent(kernel, blocks(p, at_once), THREADS, stream, p, Tile::SHARED_BYTES,
                            Tile::CLUSTER);
  }

  // What `tiles` read of the factors, and no tiles above or on the left of them.
  static SplitParameters describe_split(const Parameters& p, const Factor& lhs, void* lhs_planes,
                                        const Factor& rhs, void* rhs_planes, const Tiles& tiles) {
    const Problem& problem = p.problem;
    constexpr int64_t ROWS = Tile::BLOCK_M * Tile::CLUSTER, COLUMNS = Tile::BLOCK_N;
    const Stretch rows = Stretch::of(tiles.first_row, tiles.rows, ROWS, problem.m);
    const Stretch columns = Stretch::of(tiles.first_column, tiles.columns, COLUMNS, problem.n);
    SplitParameters split = {};
    split.header = p.header;
    split.sides[0] = SplitTile::side(lhs, lhs_planes, Config::LHS, rows);
    split.sides[1] = SplitTile::side(rhs, rhs_planes, Config::RHS, columns);
    if (!Tile::HAS_PLANES || tiles.first_column > 0) split.sides[0].tiles = 0;
    if (ANY_PAIRED && lhs.in_place) {
      split.lhs_in_pairs = true;
      split.sides[0].tiles = 0;
    }
    if (tiles.first_row > 0) split.sides[1].tiles = 0;
    return split;
  }
};
