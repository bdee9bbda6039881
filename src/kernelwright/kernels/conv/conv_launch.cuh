#pragma once
// Host side of conv_sm90.cuh: what it admits, the workspace, and the two launches: the kernel that
// writes the planes, and the convolution. What lies where is in conv_layout.cuh.

#include "conv_facts.cuh"
#include "conv_layout.cuh"
#include "conv_linear_plan.cuh"

// Two __global__ functions: write_planes and conv_sm90 of a config.
template <class Config, class Input, class Result, class Epilogue>
struct ConvVariant {
  using Tile = ConvTile<Config>;
  using Parameters = ConvParameters<Input, Result, Epilogue>;
  using Request = ConvRequest<Input, Result>;
  using Layout = ConvLayout<Config, Input, Result, Epilogue>;
  static constexpr int THREADS = Tile::THREADS;
  static constexpr RowTaps ROW_TAPS = Layout::ROW_TAPS;
  static constexpr int PLANE_CHANNELS = Layout::PLANE_CHANNELS;
  static constexpr bool JOINS = Tile::JOINS;

  void (*planes)(PlaneParameters);
  void (*kernel)(Parameters);

  static bool admits(const Request& request) {
    constexpr int64_t MOST = (int64_t{1} << 30);
    if (!DeviceLimits::current().has_wgmma || request.spatial > Config::SPATIAL) return false;
    if (request.in_channels == 0 || request.images > MOST || request.images < 1) return false;
    if (request.in_channels > 1 << 20 || request.out_channels > 1 << 20) return false;
    for (const ConvCall& call : request.calls) {
      if (call.in > MOST || call.out > MOST || call.in < 1 || call.kernel < 1) return false;
      if (request.direction == ConvDirection::TRANSPOSED && call.stride > MAX_PHASES) return false;
    }
    if (Tile::HAS_PATCHES && ROW_TAPS != RowTaps::APART) return false;
    if (ROW_TAPS != RowTaps::APART &&
        (request.groups > 1 || request.direction != ConvDirection::USUAL)) {
      return false;
    }
    if (Tile::JOINS && !can_join(request)) return false;
    if (ROW_TAPS == RowTaps::OVERLAPPING &&
        (Layout::row_call(request).dilation != 1 || Layout::row_window(request) < 2)) {
      return false;
    }
    if (HAS_WINDOWS && !has_phases_for_windows(request)) return false;
    const ConvShape shape = Layout::describe(request);
    if (OVER_CHANNELS && (shape.groups > 1 || shape.rows() > Tile::BLOCK_CHANNELS)) return false;
    if (IS_PROGRAM && shape.joined() != Tile::FOLD_PHASES) return false;
    if constexpr (Tile::IS_LINEAR) {
      if (HAS_WINDOWS || OVER_CHANNELS || !Linear::takes(request, shape)) return false;
    } else if constexpr (Tile::HAS_PATCHES) {
      if (!plan_halo(shape, nullptr)) return false;
    } else {
      for (int d = 0; d < Config::SPATIAL; ++d) {
        if (!shape.dimensions[d].fits(Config::SPATIAL)) return false;
      }
    }
    const double units = static_cast<double>(shape.positions()) / Tile::BLOCK_POSITIONS *
                         (shape.rows() / Tile::BLOCK_CHANNELS + 1.0) * shape.groups *
                         shape.phases();
    double elements = static_cast<double>(request.in_channels);
    for (const ConvCall& call : request.calls) elements *= call.kernel;
    if (elements >= static_cast<double>(MOST) || Layout::filter_pitch(shape) >= MOST) return false;
    return shape.positions() < MOST && Layout::plane_positions(request) < MOST &&
           shape.taps() > 0 && units < static_cast<double>(MOST) / 2 &&
           static_cast<double>(Layout::plane_positions(request)) * request.images <
               static_cast<double>(MOST) &&
           Layout::plane_elements(request) / 8 < MOST;
  }

  static int64_t workspace_bytes(const Request& request) {
    const ConvShape shape = Layout::describe(request);
    return state_offset(request, shape) + state_bytes(request, shape);
  }

  // Where the states are that the launch with the same workspace writes.
  static MomentStates moments(const Request& request, const MomentStates& results,
                              void* workspace) {
    const ConvShape shape = Layout::describe(request);
    MomentStates s = describe_states(request, shape);
    s.means = results.means;
    s.spreads = results.spreads;
    s.states =
        reinterpret_cast<Moments*>(static_cast<char*>(workspace) + state_offset(request, shape));
    return s;
  }

  cudaError_t launch(const Request& request, const Epilogue& epilogue, cudaStream_t stream,
                     void* workspace) const {
    if (request.result_elements() == 0) return cudaSuccess;
    const DeviceLimits device = DeviceLimits::current();
    const ConvShape shape = Layout::describe(request);
    char* const exponents = static_cast<char*>(workspace) + HEADER_BYTES;
    char* const rows = exponents + Layout::exponent_bytes(request);
    char* const pixels = rows + Layout::filter_bytes(shape);
    PlaneParameters planes = {};
    planes.header = static_cast<ConvHeader*>(workspace);
    planes.shape = Layout::describe_planes(request);
    planes.pixels = Layout::describe_pixels(request, pixels);
    planes.filter = Layout::describe_filter(request, shape, rows, exponents);
    const unsigned plane_blocks = plan_blocks(planes, device);
    cudaError_t status = launch_planes(planes, plane_blocks, stream);
    if (status != cudaSuccess) return status;

    Parameters p = {};
    p.shape = shape;
    p.plain = Layout::describe_plain(request);
    p.divisors = PositionDivisors::make(shape);
    p.positions = static_cast<uint32_t>(shape.positions());
    for (const ConvDimension& d : shape.dimensions) {
      p.has_window_parts |= int64_t{d.positions} * d.window > d.out;
    }
    p.chunks = Layout::chunks(shape);
    p.group_pitch = Layout::group_pitch(request);
    if constexpr (Tile::HAS_PATCHES) plan_halo(shape, &p.halo);
    p.runs = describe_runs(request, shape);
    p.units = number_units(shape, p.halo, p.runs);
    if constexpr (Tile::IS_LINEAR) {
      p.linear = Linear::plan(request, shape, pixels);
      p.units.count =
          static_cast<int>(shape.images * p.linear.depths.value() * p.linear.tiles.value());
    }
    p.out = request.out;
    p.out_strides = request.out_strides;
    p.epilogue = epilogue;
    if constexpr (HAS_MOMENTS) {
      p.epilogue.moments = moments(request, epilogue.moments, workspace);
    }
    const int64_t elements = Layout::plane_elements(request) + Layout::filter_elements(shape);
    p.rest = {planes.header, static_cast<int>(plane_blocks),
              SMALL_ELEMENTS + (elements >> SMALL_SHARE_BITS)};
    p.filter_exponents = planes.filter.exponents;
    p.planes = planes;
    p.data = request.data;
    p.data_strides = request.data_strides;
    p.filter = request.filter;
    p.filter_strides = request.filter_strides;
    for (int set = 0; set < SETS && status == cudaSuccess; ++set) {
      char* const first = pixels + set * Tile::PLANES * planes.pixels.plane_elements * 2;
      if constexpr (Tile::HAS_PATCHES) {
        status = encode_patch(&p.pixel_maps[set], first, Layout::patch_box(request, shape, p.halo));
      } else if constexpr (!Tile::IS_LINEAR) {
        status = encode_pixels(&p.pixel_maps[set], first, Layout::pixel_box(request, shape));
      }
    }
    if (status == cudaSuccess) status = encode_map(&p.filter_map, rows, Layout::filter_box(shape));
    if (status != cudaSuccess) return status;
    const int most = device.multiprocessors / Tile::CLUSTER;
    const int clusters = p.units.count < most ? p.units.count : most;
    return launch_dependent(kernel, clusters * Tile::CLUSTER, THREADS, stream, p,
                            Tile::SHARED_BYTES, Tile::CLUSTER);
  }

 private:
  static constexpr bool HAS_WINDOWS = Layout::HAS_WINDOWS;
  static constexpr bool OVER_CHANNELS = ANY_CHANNEL_FOLDS && Epilogue::CHANNELS != ConvFold::NONE;
  static constexpr bool IS_PROGRAM = ANY_PROGRAMS && Epilogue::CHANNELS == ConvFold::EXP_SUM;
  static constexpr bool HAS_MOMENTS = ANY_MOMENTS && Epilogue::MOMENTS != ConvMoments::NONE;
  static_assert(IS_PROGRAM == (Config::FOLD_PHASES > 0), "programs need rooms for their totals");
  using Linear = LinearPlanner<Tile, Request>;
  static constexpr int64_t HEADER_BYTES = aligned_bytes(sizeof(ConvHeader));

  static bool has_phases_for_windows(const Request& request) {
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const int size = request.windows[d];
      const int apart = request.direction == ConvDirection::USUAL ? 1 : request.calls[d].stride;
      if (size > MAX_PHASES || size % apart != 0) return false;
    }
    return true;
  }

  static bool can_join(const Request& request) {
    if (Config::OUTPUTS > 1) return !HAS_WINDOWS && !OVER_CHANNELS && can_join_outputs(request);
    int joined = 1;
    for (int d = 0; d < Config::JOINED; ++d) joined *= request.calls[d].stride;
    return request.direction == ConvDirection::TRANSPOSED && joined <= FILTER_RUN;
  }
  static bool can_join_outputs(const Request& request) {
    constexpr int64_t MOST = 1 << 16;
    const ConvCall& row = request.calls[0];
    if (request.direction != ConvDirection::USUAL || row.stride > MAX_TRAVERSAL_STEP) return false;
    const int64_t reach = int64_t{row.kernel - 1} * row.dilation;
    return reach < MOST && reach * request.in_channels < MOST * MOST / 8;
  }

  // Sets how many blocks write the filter; all blocks are returned.
  static unsigned plan_blocks(PlaneParameters& planes, const DeviceLimits& device) {
    constexpr int64_t OF_PROCESSOR = 6;
    const int64_t most_filter = 6 * device.multiprocessors;
    const int64_t tiles = int64_t{planes.pixels.channel_tiles.value()} *
                          planes.pixels.position_tiles.value() * planes.pixels.images;
    planes.filter.parts = Divisor(filter_parts(planes.filter, device));
    const int64_t shares = int64_t{planes.filter.out_channels} * planes.filter.parts.value();
    planes.filter_blocks = static_cast<int>(shares < most_filter ? shares : most_filter);
    int64_t blocks = OF_PROCESSOR * device.multiprocessors;
    if (blocks > MAX_GUARD_WORDS - planes.filter_blocks)
      blocks = MAX_GUARD_WORDS - planes.filter_blocks;
    if (blocks > tiles) blocks = tiles;
    return static_cast<unsigned>(blocks + planes.filter_blocks);
  }
  // Blocks that write an output channel's rows: where there are few channels, so many that a
  // thread has two runs at the most.
  static uint32_t filter_parts(const FilterPlanes& f, const DeviceLimits& device) {
    constexpr int64_t OF_BLOCK = 2 * StagedRow::RUN * PLANE_THREADS;
    const int64_t wanted = (f.pitch + OF_BLOCK - 1) / OF_BLOCK;
    const int64_t most = 2 * device.multiprocessors / f.out_channels;
    if (Tile::JOINS || !f.is_staged || most < 1) return 1;
    return static_cast<uint32_t>(wanted < most ? wanted : most);
  }
  // Of shared memory; what is always so small needs no permission.
  static unsigned plane_shared_bytes(const FilterPlanes& f) {
    using Pixels = PlaneTile<Input, PLANE_CHANNELS, Tile::PLANES, ROW_TAPS>;
    constexpr unsigned OF_PIXELS = sizeof(typename Pixels::Words);
    static_assert(OF_PIXELS <= 48 << 10 && StagedRow::ELEMENTS * sizeof(float) <= 48 << 10);
    const unsigned of_filter =
        !Tile::JOINS && f.is_staged ? static_cast<unsigned>(f.elements * sizeof(float)) : 0;
    return of_filter > OF_PIXELS ? of_filter : OF_PIXELS;
  }
  cudaError_t launch_planes(const PlaneParameters& parameters, unsigned blocks,
                            cudaStream_t stream) const {
    return launch_dependent(planes, blocks, PLANE_THREADS, stream, parameters,
                            plane_shared_bytes(parameters.filter));
  }

  static ConvRuns describe_runs(const Request& request, const ConvShape& shape) {
    constexpr int SECTOR = SECTOR_ELEMENTS<Result>;
    int64_t plane = 1;
    bool are_runs = Tile::CAN_SHARE_SECTORS && !OVER_CHANNELS && phases_apart(shape) == 1 &&
                    shape.joined() == 1;
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const int64_t out = shape.dimensions[d].positions;
      are_runs &= out == 1 || request.out_strides.spatial[d] == plane;
      plane *= out;
    }
    const bool are_aligned = reinterpret_cast<uintptr_t>(request.out) % SECTOR_BYTES == 0 &&
                             request.out_strides.channel % SECTOR == 0 &&
                             request.out_strides.image % SECTOR == 0;
    const bool share = are_runs && !are_aligned && plane >= Tile::LEAST_PLANE;
    return {Tile::BLOCK_POSITIONS - (share ? SECTOR : 0), Divisor(static_cast<uint32_t>(plane))};
  }

  static int64_t state_offset(const Request& request, const ConvShape& shape) {
    return HEADER_BYTES + Layout::exponent_bytes(request) + Layout::filter_bytes(shape) +
           aligned_bytes(SETS * Tile::PLANES * Layout::plane_elements(request) * 2);
  }
  static int64_t state_bytes(const Request& request, const ConvShape& shape) {
    if constexpr (!HAS_MOMENTS) return 0;
    const MomentStates s = describe_states(request, shape);
    const int64_t tiles =
        s.image_tiles > 0 ? s.image_tiles * shape.images : (s.positions + s.step - 1) / s.step;
    const int64_t count = tiles * s.phases * s.parts * s.segments * s.rows;
    return aligned_bytes(count * int64_t{sizeof(Moments)});
  }
  static MomentStates describe_states(const Request& request, const ConvShape& shape) {
    MomentStates s = {};
    s.parts = Tile::SPLITS_POSITIONS ? Tile::CONSUMERS : 1;
    s.part_positions = Tile::PART_POSITIONS;
    s.phases = phases_apart(shape);
    s.step = describe_runs(request, shape).step;
    s.positions = shape.positions();
    s.plane = s.positions / shape.images;
    s.segments = static_cast<int>((Tile::PART_POSITIONS + s.plane - 2) / s.plane) + 1;
    if constexpr (Tile::IS_LINEAR) {
      const LinearPlan plan = Linear::plan(request, shape, nullptr);
      s.image_tiles = static_cast<int>(plan.depths.value() * plan.tiles.value());
    } else if constexpr (Tile::HAS_PATCHES) {
      HaloPlan halo = {};
      plan_halo(shape, &halo);
      s.image_tiles = 1;
      for (const Divisor& along : halo.tiles) s.image_tiles *= static_cast<int>(along.value());
    }
    if (s.image_tiles > 0) s.segments = 1;
    s.group_rows = shape.rows();
    s.rows = s.group_rows * shape.groups;
    s.group_channels = shape.out_channels;
    s.joined = Tile::JOINS ? shape.joined() : 1;
    s.run_channels = Tile::JOINS ? shape.run_channels() : FILTER_RUN;
    return s;
  }

  static ConvUnits number_units(const ConvShape& shape, const HaloPlan& halo,
                                const ConvRuns& runs) {
    const int64_t positions = int64_t{runs.step} * Tile::CLUSTER;
    int64_t tiles = (shape.positions() + positions - 1) / positions;
    if (Tile::HAS_PATCHES) {
      tiles = shape.images;
      for (const Divisor& along : halo.tiles) tiles *= along.value();
    }
    const int channel_tiles = (shape.rows() + Tile::BLOCK_CHANNELS - 1) / Tile::BLOCK_CHANNELS;
    const int phases = phases_apart(shape);
    return {static_cast<int>(tiles * channel_tiles * shape.groups * phases), Divisor(channel_tiles),
            Divisor(shape.groups), Divisor(phases)};
  }
  // Phases that are units of work of their own.
  static int phases_apart(const ConvShape& shape) { return HAS_WINDOWS ? 1 : shape.phases(); }

  // The widths and heights of a block's positions that need the fewest blocks; false where no patch
  // of the taps fits.
  static bool plan_halo(const ConvShape& shape, HaloPlan* plan) {
    const ConvDimension &w = shape.dimensions[0], &h = shape.dimensions[1];
    if (w.step != 1 || h.step != 1 || h.phases > MAX_PHASES || w.phases > MAX_PHASES) return false;
    if (Tile::CHUNKS > 1 && Layout::chunks(shape) > 1) return false;
    const int64_t halo_w = w.last_offset(), halo_h = h.last_offset();
    const int64_t block = Tile::BLOCK_POSITIONS;
    double best = 0;
    for (int64_t tiles_w = 1; tiles_w <= w.positions; ++tiles_w) {
      const int64_t columns = (w.positions + tiles_w - 1) / tiles_w, pitch = columns + halo_w;
      if (columns > block || pitch > MAX_BOX_SIDE) continue;
      if (columns < 8 && best > 0) break;
      int64_t rows = (block - columns) / pitch + 1;
      if (rows > h.positions) rows = h.positions;
      const int64_t patch_rows = (block + halo_h * pitch + halo_w + pitch - 1) / pitch;
      if (patch_rows > MAX_BOX_SIDE || patch_rows * pitch * Tile::CHUNK_BYTES > Tile::PATCH_BYTES) {
        continue;
      }
      const int64_t tiles_h = (h.positions + rows - 1) / rows;
      const double cost = static_cast<double>(tiles_w * tiles_h) *
                          (1 + 0.0001 * static_cast<double>(patch_rows * pitch));
      if (best > 0 && cost >= best) continue;
      best = cost;
      if (plan == nullptr) return true;
      plan->columns = static_cast<int>(columns);
      plan->rows = static_cast<int>(rows);
      plan->patch_rows = static_cast<int>(patch_rows);
      plan->pitch = Divisor(static_cast<uint32_t>(pitch));
      plan->tiles[0] = Divisor(static_cast<uint32_t>(tiles_w));
      plan->tiles[1] = Divisor(static_cast<uint32_t>(tiles_h));
      plan->tiles[2] = Divisor(static_cast<uint32_t>(shape.dimensions[2].positions));
    }
    return best > 0;
  }
};
