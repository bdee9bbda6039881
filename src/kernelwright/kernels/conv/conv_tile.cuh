#pragma once
// The shape of a convolution on the tensor cores: tile, stages, units of work, and what is in
// shared memory.

#include "conv_elements.cuh"
#include "conv_facts.cuh"
#include "conv_passes.cuh"
#include "conv_planes.cuh"
#include "conv_shape.cuh"
#include "gemm_sm90_tile.cuh"
#include "wgmma.cuh"

// What follows the sum of an element: `row(channel)` gives what is the same for a channel, a
// functor of the sum; `finish` what the places of elements in the result decide, of one or of
// several.
// `WINDOWS`, `CHANNELS`: whether results are reduced between the two, see conv_reduction.cuh.
struct ConvPlain {
  static constexpr bool IS_LATE = false;  // finish does nothing
  static constexpr ConvMoments MOMENTS = ConvMoments::NONE;
  static constexpr ConvFold WINDOWS = ConvFold::NONE, CHANNELS = ConvFold::NONE;
  struct Row {
    __device__ __forceinline__ float operator()(float sum) const { return sum; }
  };
  __device__ __forceinline__ Row row(int) const { return {}; }
  __device__ __forceinline__ float finish(float value, int64_t, int) const { return value; }
  template <int COUNT>
  __device__ __forceinline__ void finish(ConvElements<COUNT>&) const {}
};

struct ConvBias {
  static constexpr bool IS_LATE = false;
  static constexpr ConvMoments MOMENTS = ConvMoments::NONE;
  static constexpr ConvFold WINDOWS = ConvFold::NONE, CHANNELS = ConvFold::NONE;
  const float* bias;
  struct Row {
    float bias;
    __device__ __forceinline__ float operator()(float sum) const { return sum + bias; }
  };
  __device__ __forceinline__ Row row(int channel) const { return {__ldg(bias + channel)}; }
  __device__ __forceinline__ float finish(float value, int64_t, int) const { return value; }
  template <int COUNT>
  __device__ __forceinline__ void finish(ConvElements<COUNT>&) const {}
};

enum class ConvSchedule {
  SHARED,     // a tile each of the same stages: the channel parts, or positions side by side
  ALTERNATE,  // units in turn: one stores what it has summed while the other multiplies
};

// How a warp's 16 channels leave for the result.
enum class ConvStore {
  LINES,  // 32 positions of each at a time
  ROWS,   // all positions of one after the other: few changes between places far apart
};

// A config has
//   Instruction    of wgmma_f16.cuh: a warpgroup's positions are its N
//   SPATIAL        dimensions: 1, 2, 3
//   CHUNK          channels of one tap that a copy brings: 16, 32, 48 or 64; 8: see
//                  conv_linear.cuh
//   ROW_TAPS       how they are made of few channels, see conv_planes.cuh
//   PLANES         1, or 2 for pairs of fp16 and three products
//   CHANNEL_PARTS  of 64 output channels: 1 or 2; 4 in turn
//   SCHEDULE       how the two warpgroups that multiply divide the work
//   STORE
//   STAGES, CLUSTER
//   JOINED         dimensions, W first, whose phases are rows of the filter (conv_shape.cuh), of a
//                  transposed convolution
//   OUTPUTS        neighbouring outputs along W that are such rows, of a usual one; 1: none are
//   PATCHES, PATCH_BYTES  0, or where patches hold the pixels (conv_halo.cuh)
//   FOLD_PHASES    0, or where a program runs over channels (conv_rows.cuh) the joined phases of a
//                  position: 1, 2, 4 or 8
template <class Config>
struct ConvTile {
  using Instruction = typename Config::Instruction;
  static constexpr int SPATIAL = Config::SPATIAL, PLANES = Config::PLANES;
  static constexpr int STAGES = Config::STAGES, CLUSTER = Config::CLUSTER;
  static constexpr int CHANNEL_PARTS = Config::CHANNEL_PARTS;
  static constexpr bool ALTERNATES = Config::SCHEDULE == ConvSchedule::ALTERNATE;
  static constexpr bool JOINS = ANY_JOINED && (Config::JOINED > 0 || Config::OUTPUTS > 1);
  static constexpr int CONSUMERS = 2;  // warpgroups
  static constexpr int WARPGROUP = 128;
  static constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
  static constexpr int CONSUMER_WARPS = CONSUMERS * 4;
  static constexpr int PART_CHANNELS = 64, PART_POSITIONS = Instruction::N;  // of a warpgroup
  static constexpr int BLOCK_CHANNELS = PART_CHANNELS * CHANNEL_PARTS;
  static constexpr int PARTS = ALTERNATES ? CHANNEL_PARTS : 1;  // of a warpgroup
  static constexpr bool SPLITS_POSITIONS = !ALTERNATES && CHANNEL_PARTS == 1;
  static constexpr int BLOCK_POSITIONS = PART_POSITIONS * (SPLITS_POSITIONS ? CONSUMERS : 1);
  static constexpr int RELEASES = CONSUMER_WARPS / (ALTERNATES ? 2 : 1);  // of a stage, in a block
  static constexpr int REGISTERS = Instruction::REGISTERS;
  static constexpr int BLOCK_K = 64, STEP_K = 16, ROW_BYTES = BLOCK_K * 2;
  // A stage holds several taps where one has fewer channels. Of 48 channels a copy brings 64, and
  // the last 16 are not multiplied.
  static constexpr int CHUNK = Config::CHUNK == 48 ? 64 : Config::CHUNK;
  static constexpr int CHUNK_CHANNELS = Config::CHUNK;
  // Of a tile of the kernel that writes the planes.
  static constexpr int PLANE_CHANNELS = Config::ROW_TAPS == RowTaps::OVERLAPPING ? 8 : CHUNK;
  static constexpr int CHUNK_BYTES = CHUNK * 2;
  static constexpr int CHUNKS = BLOCK_K / CHUNK;
  static constexpr int CHUNK_STEPS = Config::CHUNK / STEP_K;
  static constexpr int COPY_POSITIONS =
      BLOCK_POSITIONS < MAX_BOX_PIXELS ? BLOCK_POSITIONS : MAX_BOX_PIXELS;
  static constexpr int COPIES = BLOCK_POSITIONS / COPY_POSITIONS;
  static constexpr int FILTER_PLANE = BLOCK_CHANNELS * ROW_BYTES;
  static constexpr int CHUNK_PIXELS = BLOCK_POSITIONS * CHUNK_BYTES;
  static constexpr int PIXEL_PLANE = CHUNKS * CHUNK_PIXELS;
  static constexpr bool IS_LINEAR =
      ANY_LINEAR && CHUNK == 8;  // patches are runs of pixels (conv_linear.cuh)
  static constexpr bool HAS_PATCHES = Config::PATCHES > 0 && !IS_LINEAR;
  // Runs of pixels multiply a filter that stays: there is none of a second set.
  static constexpr bool HAS_FILTER_SETS = !IS_LINEAR;
  static constexpr int PATCHES = Config::PATCHES, PATCH_BYTES = Config::PATCH_BYTES;
  static constexpr int STAGE_BYTES = PLANES * (FILTER_PLANE + (PATCHES > 0 ? 0 : PIXEL_PLANE));
  static constexpr int ALIGNMENT = 1024;  // of what is swizzled
  // Of a warp that stores: see RowBuffer and ChannelRows.
  static constexpr bool STORES_ROWS = ANY_STORED_ROWS && Config::STORE == ConvStore::ROWS;
  static constexpr int BUFFER_ROWS = IS_LINEAR ? 8 : 4;
  static constexpr int BUFFER_PITCH = PART_POSITIONS + (IS_LINEAR ? 20 : 8);
  static constexpr int BUFFER_BYTES =
      STORES_ROWS ? BUFFER_ROWS * BUFFER_PITCH * 4 : ROW_BUFFER_BYTES;
  static constexpr bool CAN_SHARE_SECTORS = STORES_ROWS && !HAS_PATCHES && !SPLITS_POSITIONS;
  static constexpr int LEAST_PLANE = 2 * BLOCK_POSITIONS;  // of images whose tiles share sectors
  static constexpr int PLACE_BYTES = CONSUMERS * PART_POSITIONS * 8;
  static constexpr int SLOT_BYTES = IS_LINEAR ? CONSUMER_WARPS * PART_POSITIONS * 4 : 0;
  // Of what channels come to: a room for each warp, and one for those that meet (conv_rows.cuh).
  static constexpr int FOLD_PHASES = Config::FOLD_PHASES;
  static constexpr int TOTAL_ROOMS =
      CONSUMER_WARPS + (!ALTERNATES && CHANNEL_PARTS == 2 ? 1 : CONSUMERS);
  static constexpr int TOTAL_PITCH = PART_POSITIONS + 8;  // of a phase: lanes meet no other's banks
  static constexpr int TOTAL_BYTES = TOTAL_ROOMS * FOLD_PHASES * TOTAL_PITCH * 4;
  static constexpr int SHARED_BYTES = ALIGNMENT + STAGES * (STAGE_BYTES + 2 * 8) +
                                      PATCHES * (PATCH_BYTES + 2 * 8) + PLACE_BYTES +
                                      CONSUMER_WARPS * BUFFER_BYTES + SLOT_BYTES + TOTAL_BYTES;
  static constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
  // The sum of the low parts may drift by 2^-23 with each instruction (gemm_sm90_tile.cuh).
  static constexpr int FOLD_STEPS = 128;

  static constexpr CUtensorMapSwizzle SWIZZLE = CHUNK == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                                : CHUNK == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                              : CU_TENSOR_MAP_SWIZZLE_32B;

  static_assert(IS_LINEAR || Config::CHUNK == 16 || Config::CHUNK == 32 || Config::CHUNK == 48 ||
                    Config::CHUNK == 64,
                "a copy brings 16, 32, 48 or 64 channels");
  static_assert(!HAS_PATCHES || (PLANES == 1 && CLUSTER == 1 && !SPLITS_POSITIONS && SPATIAL > 1 &&
                                 PATCH_BYTES % ALIGNMENT == 0),
                "patches are for one product of images, whole blocks of positions, and aligned");
  static_assert(!IS_LINEAR || (ALTERNATES && STORES_ROWS && CLUSTER == 1 && !JOINS &&
                               PATCHES % 2 == 0 && PATCHES > 0 && PATCH_BYTES % ALIGNMENT == 0 &&
                               Config::ROW_TAPS == RowTaps::APART),
                "runs of pixels come to warpgroups in turn, each to its own");
  static_assert(!JOINS || !STORES_ROWS, "joined phases leave in lines");
  static_assert(Config::JOINED == 0 || (Config::ROW_TAPS == RowTaps::APART && Config::OUTPUTS == 1),
                "phases of a transposed convolution are joined alone, and have taps apart");
  static_assert(Config::OUTPUTS <= MAX_PHASES, "a position has no more phases");
  static_assert(!HAS_PATCHES || Config::OUTPUTS == 1, "a patch is for positions side by side");
  static_assert(PLANES == 1 || Config::CHUNK != 48, "three products take whole stages");
  static_assert(CHANNEL_PARTS < 4 || (ALTERNATES && PLANES == 1 && PATCHES == 0),
                "four parts are for one product of copies, in turn");
  static_assert(FOLD_PHASES == 0 || (!IS_LINEAR && 8 % FOLD_PHASES == 0),
                "both rows of a lane have the same phase");
  static_assert(PLANES == 1 || REGISTERS * PARTS <= 64,
                "three sums of 64 x 256 do not fit registers");
  static_assert(REGISTERS * PARTS <= 128, "sums of 128 x 256 do not fit registers");
  static_assert(CLUSTER == 1 || CLUSTER == 2,
                "blocks of a cluster fetch a half of the filter each");
  static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "a block has no more shared memory");
};

// Where patches hold the pixels: a block's positions are `rows` of an image, of `columns` each, and
// lie `pitch` apart in the patch, which has `patch_rows`.
struct HaloPlan {
  int columns, rows, patch_rows;
  Divisor pitch;
  Divisor tiles[MAX_SPATIAL];  // of positions along W, H, D
};

// Where runs of pixels hold what a tile meets (conv_linear.cuh): a slice is one D of an image.
struct LinearPlan {
  const __half* planes;
  int64_t plane_pixels;   // of all images, of one plane
  int step;               // outputs from a tile's first to the next one's
  int slice;              // outputs of a slice
  Divisor tiles, depths;  // tiles of a slice, slices of an image
  Divisor width;          // outputs of a row
  int in_width;
  int64_t in_slice, in_image;  // pixels
  int pixels;                  // of a run
  int64_t reach;               // from a tile's first pixel to the end of its last run
  int pairs;                   // of instructions: 4 taps each
};

// Positions that follow each other in the result. Where channels begin inside sectors of memory, a
// tile and the next one share SECTOR_BYTES of positions (conv_runs.cuh).
struct ConvRuns {
  int step;       // positions from a tile's first to the next one's
  Divisor plane;  // positions of an image
};

// Numbers of the units of work.
struct ConvUnits {
  int count;
  Divisor channel_tiles, groups, phases;
};

template <class Input, class Result, class Epilogue>
struct ConvParameters {
  using Ending = Epilogue;
  static constexpr ConvFold WINDOWS = Epilogue::WINDOWS, CHANNELS = Epilogue::CHANNELS;
  static constexpr ConvMoments MOMENTS = Epilogue::MOMENTS;
  CUtensorMap pixel_maps[SETS];  // what lies beyond the last image of one is none of the other's
  CUtensorMap filter_map;
  ConvShape shape;
  PositionDivisors divisors;
  uint32_t positions;     // of a phase
  bool has_window_parts;  // some windows reach beyond the outputs
  ConvRuns runs;
  ConvUnits units;
  HaloPlan halo;
  LinearPlan linear;
  int chunks;       // of a tap's channels
  int group_pitch;  // channels of the planes from one group to the next
  Result* out;
  ImageStrides out_strides;
  Epilogue epilogue;
  GemmRest rest;
  const int* filter_exponents;
  PlaneParameters planes;  // of the kernel before, for a second set
  // For the CUDA cores, where no planes carry the input or the filter.
  const Input* data;
  ImageStrides data_strides;
  const Input* filter;
  FilterStrides filter_strides;
  ConvShape plain;  // with all taps apart
};

// Unit of work: a tile of one phase and group; where windows are reduced, of all phases in turn.
struct ConvWork {
  ConvPhase phase;
  int group;
  int row;                     // of the filter: first, of the group
  uint32_t position;           // first; with patches,
  int at[MAX_SPATIAL], image;  // where it is
  int taps;

  __device__ __forceinline__ void begin_phase(const ConvShape& shape, const ConvPhase& of) {
    phase = of;
    taps = phase.taps(shape);
  }
  __device__ __forceinline__ void advance_phase(const ConvShape& shape) {
    phase.advance(shape);
    taps = phase.taps(shape);
  }
  // The first row of the filter.
  __device__ __forceinline__ int filter_row(const ConvShape& shape) const {
    return (phase.of_filter(shape) * shape.groups + group) * shape.rows() + row;
  }
};

// Phases that a unit of work sums in turn.
template <class Parameters>
__device__ __forceinline__ int phases_of_unit(const Parameters& p) {
  if constexpr (Parameters::WINDOWS == ConvFold::NONE) return 1;
  return p.shape.phases();
}

template <class Tile, class Parameters>
__device__ __forceinline__ ConvWork locate_conv(const Parameters& p, int unit) {
  ConvWork work;
  uint32_t rest = unit;
  uint32_t next = p.units.channel_tiles.quotient(rest);
  work.row = (rest - next * p.units.channel_tiles.value()) * Tile::BLOCK_CHANNELS;
  rest = next;
  next = p.units.groups.quotient(rest);
  work.group = rest - next * p.units.groups.value();
  rest = next;
  next = p.units.phases.quotient(rest);
  if constexpr (Parameters::WINDOWS == ConvFold::NONE) {
    const int phase = rest - next * p.units.phases.value();
    work.begin_phase(p.shape, ConvPhase::of_number(p.shape, phase));
  } else {
    work.begin_phase(p.shape, ConvPhase{});
  }
  const int rank = Tile::CLUSTER > 1 ? cluster_rank() : 0;
  if constexpr (Tile::HAS_PATCHES) {
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const uint32_t tile = next;
      next = p.halo.tiles[d].quotient(tile);
      work.at[d] = tile - next * p.halo.tiles[d].value();
    }
    work.at[0] *= p.halo.columns;
    work.at[1] *= p.halo.rows;
    work.image = next;
  } else {
    work.position = (next * Tile::CLUSTER + rank) * p.runs.step;
  }
  return work;
}

// Steps of BLOCK_K that a unit has.
template <class Tile>
__device__ __forceinline__ int conv_steps(const ConvWork& work, int chunks) {
  return (work.taps * chunks + Tile::CHUNKS - 1) / Tile::CHUNKS;
}

// Turns of the warpgroups that multiply. A stage's barrier tells two fills of it apart, not three:
// a warpgroup waits for its stages only when the one before has seen all of its own come.
class ConvTurns {
 public:
  template <class Tile>
  __device__ __forceinline__ static void wait_for(int warpgroup) {
    sync_warps(FIRST + warpgroup, Tile::CONSUMERS * Tile::WARPGROUP);
  }
  template <class Tile>
  __device__ __forceinline__ static void give_to(int warpgroup) {
    asm volatile("bar.arrive %0, %1;" ::"r"(FIRST + warpgroup),
                 "r"(Tile::CONSUMERS * Tile::WARPGROUP)
                 : "memory");
  }

 private:
  static constexpr int FIRST = 3;  // barriers of find_places come before

 public:
  static constexpr int FREE = FIRST + 2;  // the first barrier after those of turns
};

// Channels of a warp's 16 rows.
struct ConvRows {
  int first;         // of the group
  int first_of_all;  // of all groups
  int count;         // that there are; none where not above 0
};

// `part`: of the warpgroup.
template <class Tile, class Parameters>
__device__ __forceinline__ ConvRows rows_of_warp(const Parameters& p, const ConvWork& work,
                                                 int warpgroup, int part) {
  constexpr int ROWS = FILTER_RUN;
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));  // found here: before, its registers would be missing for sums
  const int warp = thread % Tile::WARPGROUP / 32;
  const int of_part = Tile::ALTERNATES ? part : Tile::SPLITS_POSITIONS ? 0 : warpgroup;
  const int row = work.row + of_part * Tile::PART_CHANNELS + warp * ROWS;  // of the group
  const int channels = p.shape.out_channels;
  const int run_channels = Tile::JOINS ? p.shape.run_channels() : ROWS;
  const int first = Tile::JOINS ? row / ROWS * run_channels : row;
  return {first, work.group * channels + first, min(run_channels, channels - first)};
}

// Passes what another warpgroup takes of the ring.
template <int COUNT>
__device__ __forceinline__ void skip_stages(Ring<COUNT>& ring, int stages) {
  const int end = ring.stage + stages;
  ring.phase ^= end / COUNT & 1;
  ring.stage = end % COUNT;
}

template <class Tile>
struct ConvShared {
  unsigned char* stages;
  unsigned char* buffers;  // one for each warp that stores, see RowBuffer
  int64_t* places;  // of each warpgroup's positions in the result; negative where there is none
  Barrier* full;    // the stage holds its copies
  Barrier* empty;   // nobody reads the stage, in any block of the cluster
  unsigned char* patches;
  Barrier *patch_full, *patch_empty;  // the same of the patches
  int* slots;                         // of runs of pixels, of each warp
  float* totals;                      // of channels, see TotalRooms

  __device__ __forceinline__ explicit ConvShared(unsigned char* shared) {
    const uint32_t address = shared_address(shared);
    stages = shared + (Tile::ALIGNMENT - address % Tile::ALIGNMENT) % Tile::ALIGNMENT;
    patches = stages + Tile::STAGES * Tile::STAGE_BYTES;
    buffers = patches + Tile::PATCHES * Tile::PATCH_BYTES;
    places = reinterpret_cast<int64_t*>(buffers + Tile::CONSUMER_WARPS * Tile::BUFFER_BYTES);
    full = reinterpret_cast<Barrier*>(places + Tile::CONSUMERS * Tile::PART_POSITIONS);
    empty = full + Tile::STAGES;
    patch_full = empty + Tile::STAGES;
    patch_empty = patch_full + Tile::PATCHES;
    slots = reinterpret_cast<int*>(patch_empty + Tile::PATCHES);
    totals = reinterpret_cast<float*>(slots + Tile::SLOT_BYTES / 4);
  }

  __device__ __forceinline__ void init() const {
    for (int s = 0; s < Tile::STAGES; ++s) {
      init_barrier(full + s, 1);
      init_barrier(empty + s, Tile::RELEASES * Tile::CLUSTER);
    }
    for (int s = 0; s < Tile::PATCHES; ++s) {
      init_barrier(patch_full + s, 1);
      init_barrier(patch_empty + s, Tile::RELEASES);
    }
    fence_barrier_init();
  }

  __device__ __forceinline__ unsigned char* filter(int stage, int plane) const {
    return stages + stage * Tile::STAGE_BYTES + plane * Tile::FILTER_PLANE;
  }
  __device__ __forceinline__ unsigned char* pixels(int stage, int plane) const {
    return filter(stage, Tile::PLANES) + plane * Tile::PIXEL_PLANE;
  }

  // A consumer's warp reads the stage no more.
  __device__ __forceinline__ void release(int stage) const {
    const int lane = threadIdx.x % 32;
    if constexpr (Tile::CLUSTER == 1) {
      if (lane == 0) arrive(empty + stage);
    } else {
      if (lane < Tile::CLUSTER) arrive_at_rank(empty + stage, lane);
    }
  }

  __device__ __forceinline__ unsigned char* patch(int number) const {
    return patches + number * Tile::PATCH_BYTES;
  }
  __device__ __forceinline__ void release_patch(int number) const {
    if (threadIdx.x % 32 == 0) arrive(patch_empty + number);
  }
};
