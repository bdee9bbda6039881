#pragma once
// Host side of conv_sm90.cuh: what it admits, the workspace, and the two launches: the kernel that
// writes the planes, and the convolution.

#include "conv_sm90.cuh"
#include "gemm_sm90_launch.cuh"
#include "launch.cuh"

enum class ConvDirection { USUAL, TRANSPOSED };

// One call. Channels of the filter are those of a group; a bias belongs to the epilogue.
template <class Input, class Result>
struct ConvRequest {
  ConvDirection direction;
  int spatial, groups;
  int64_t images, in_channels, out_channels;  // channels of all groups
  ConvCall calls[MAX_SPATIAL];                // W, H, D
  const Input* data;
  const Input* filter;
  Result* out;
  ImageStrides data_strides, out_strides;
  FilterStrides filter_strides;

  bool is_empty() const {
    return images * out_channels * calls[0].out * calls[1].out * calls[2].out == 0;
  }

  // Tensors as PyTorch has them: images, channels, and D, H, W as far as there are; the filter of a
  // transposed convolution has input channels first. Strides, paddings and dilations W first.
  static ConvRequest of(ConvDirection direction, int groups, const Tensor& out, const Tensor& data,
                        const Tensor& filter, const int (&strides)[MAX_SPATIAL],
                        const int (&paddings)[MAX_SPATIAL], const int (&dilations)[MAX_SPATIAL]) {
    const bool is_usual = direction == ConvDirection::USUAL;
    ConvRequest request = {};
    request.direction = direction;
    request.spatial = data.rank - 2;
    request.groups = groups;
    request.images = data.sizes[0];
    request.in_channels = data.sizes[1];
    request.out_channels = out.sizes[1];
    request.data = static_cast<const Input*>(data.data);
    request.filter = static_cast<const Input*>(filter.data);
    request.out = static_cast<Result*>(out.data);
    request.data_strides.image = data.strides[0];
    request.data_strides.channel = data.strides[1];
    request.out_strides.image = out.strides[0];
    request.out_strides.channel = out.strides[1];
    const int64_t of_group = (is_usual ? out.sizes[1] : data.sizes[1]) / groups;
    request.filter_strides.group = of_group * filter.strides[0];
    request.filter_strides.out_channel = filter.strides[is_usual ? 0 : 1];
    request.filter_strides.in_channel = filter.strides[is_usual ? 1 : 0];
    for (int d = 0; d < request.spatial; ++d) {
      const int axis = data.rank - 1 - d;
      request.calls[d] = {data.sizes[axis], out.sizes[axis], static_cast<int>(filter.sizes[axis]),
                          strides[d],       paddings[d],     dilations[d]};
      request.data_strides.spatial[d] = data.strides[axis];
      request.out_strides.spatial[d] = out.strides[axis];
      request.filter_strides.taps[d] = filter.strides[axis];
    }
    request.turn();
    return request;
  }

 private:
  // A transposed convolution without strides is a usual one with the filter's taps in reverse.
  void turn() {
    for (const ConvCall& call : calls) {
      if (direction == ConvDirection::USUAL || call.stride != 1) return;
    }
    direction = ConvDirection::USUAL;
    for (int d = 0; d < spatial; ++d) {
      ConvCall& call = calls[d];
      call.padding = call.dilation * (call.kernel - 1) - call.padding;
      filter += (call.kernel - 1) * filter_strides.taps[d];
      filter_strides.taps[d] = -filter_strides.taps[d];
    }
  }
};

// Two __global__ functions: write_planes and conv_sm90 of a config.
template <class Config, class Input, class Result, class Epilogue>
struct ConvVariant {
  using Tile = ConvTile<Config>;
  using Parameters = ConvParameters<Input, Result, Epilogue>;
  using Request = ConvRequest<Input, Result>;
  static constexpr int THREADS = Tile::THREADS;
  static constexpr RowTaps ROW_TAPS = Config::ROW_TAPS;
  static constexpr int PLANE_CHANNELS = Tile::PLANE_CHANNELS;

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
    if (ROW_TAPS != RowTaps::APART &&
        (request.groups > 1 || request.direction != ConvDirection::USUAL)) {
      return false;
    }
    if (ROW_TAPS == RowTaps::OVERLAPPING &&
        (request.calls[0].dilation != 1 || row_window(request) < 2)) {
      return false;
    }
    const ConvShape shape = describe(request);
    for (int d = 0; d < Config::SPATIAL; ++d) {
      if (!shape.dimensions[d].fits(Config::SPATIAL)) return false;
    }
    const double units = static_cast<double>(shape.positions()) / Tile::BLOCK_POSITIONS *
                         (shape.out_channels / Tile::BLOCK_CHANNELS + 1.0) * shape.groups *
                         shape.phases();
    return shape.positions() < MOST && plane_positions(request) < MOST && shape.taps() > 0 &&
           units < static_cast<double>(MOST) / 2 &&
           static_cast<double>(plane_positions(request)) * request.images <
               static_cast<double>(MOST);
  }

  static int64_t workspace_bytes(const Request& request) {
    const ConvShape shape = describe(request);
    return HEADER_BYTES + exponent_bytes(request) + filter_bytes(request, shape) +
           aligned_bytes(Tile::PLANES * plane_elements(request) * 2);
  }

  cudaError_t launch(const Request& request, const Epilogue& epilogue, cudaStream_t stream,
                     void* workspace) const {
    if (request.is_empty()) return cudaSuccess;
    const DeviceLimits device = DeviceLimits::current();
    const ConvShape shape = describe(request);
    char* const exponents = static_cast<char*>(workspace) + HEADER_BYTES;
    char* const rows = exponents + exponent_bytes(request);
    char* const pixels = rows + filter_bytes(request, shape);
    PlaneParameters planes = {};
    planes.header = static_cast<GemmHeader*>(workspace);
    planes.shape = shape;
    planes.pixels = describe_pixels(request, pixels);
    planes.filter = describe_filter(request, shape, rows, exponents);
    const unsigned plane_blocks = plan_blocks(planes, device);
    planes_launch(planes, plane_blocks, stream);
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;

    Parameters p = {};
    p.shape = shape;
    p.plain = describe_plain(request);
    p.divisors = PositionDivisors::make(shape);
    p.positions = static_cast<uint32_t>(shape.positions());
    p.chunks = chunks(shape);
    p.units = number_units(shape);
    p.out = request.out;
    p.out_strides = request.out_strides;
    p.epilogue = epilogue;
    const int64_t elements = plane_elements(request) + filter_elements(request, shape);
    p.rest = {planes.header,
              static_cast<int>(plane_blocks),
              SMALL_ELEMENTS + (elements >> SMALL_SHARE_BITS),
              1,
              nullptr,
              0};
    p.filter_exponents = planes.filter.exponents;
    p.data = request.data;
    p.data_strides = request.data_strides;
    p.filter = request.filter;
    p.filter_strides = request.filter_strides;
    status = encode_pixels(&p.pixel_map, pixels, pixel_box(request, shape));
    if (status == cudaSuccess) status = encode_map(&p.filter_map, rows, filter_box(request, shape));
    if (status != cudaSuccess) return status;
    const int most = device.multiprocessors / Tile::CLUSTER;
    const int clusters = p.units.count < most ? p.units.count : most;
    return launch_dependent(kernel, clusters * Tile::CLUSTER, THREADS, Tile::SHARED_BYTES,
                            Tile::CLUSTER, stream, p);
  }

 private:
  static constexpr int64_t HEADER_BYTES = aligned_bytes(sizeof(GemmHeader));

  static int64_t channel_pitch(int64_t channels) { return (channels + 7) / 8 * 8; }
  // Taps of a row that are the channels of one.
  static int row_window(const Request& request) {
    const int kernel = request.calls[0].kernel;
    if (ROW_TAPS == RowTaps::FOLDED) return kernel;
    if (ROW_TAPS == RowTaps::APART) return 1;
    const int64_t fit = Config::CHUNK / channel_pitch(request.in_channels);
    return fit < kernel ? static_cast<int>(fit) : kernel;
  }
  static RowFold describe_fold(const Request& request) {
    const ConvCall& row = request.calls[0];
    const int in = static_cast<int>(row.in);
    if (ROW_TAPS == RowTaps::FOLDED) return {row.kernel, in, row.stride, row.padding, row.dilation};
    return {1, in, 1, row.padding, 1};
  }

  static ConvShape describe_plain(const Request& request) {
    ConvShape shape = {};
    shape.images = request.images;
    shape.groups = request.groups;
    shape.in_channels = static_cast<int>(request.in_channels / request.groups);
    shape.out_channels = static_cast<int>(request.out_channels / request.groups);
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      shape.dimensions[d] = request.direction == ConvDirection::USUAL
                                ? ConvDimension::usual(request.calls[d])
                                : ConvDimension::transposed(request.calls[d]);
    }
    return shape;
  }
  // As the tensor cores compute it.
  static ConvShape describe(const Request& request) {
    ConvShape shape = describe_plain(request);
    if (ROW_TAPS == RowTaps::APART) return shape;
    ConvCall row;
    row.out = request.calls[0].out;
    row.in = plane_width(request);
    shape.in_channels *= request.calls[0].kernel;
    if (ROW_TAPS == RowTaps::OVERLAPPING) {
      const int window = row_window(request);
      shape.in_channels = static_cast<int>(window * channel_pitch(request.in_channels));
      row.in -= window - 1;
      row.kernel = (request.calls[0].kernel + window - 1) / window;
      row.stride = request.calls[0].stride;
      row.dilation = window;
    }
    shape.dimensions[0] = ConvDimension::usual(row);
    return shape;
  }

  // Pixels of a row of the planes.
  static int64_t plane_width(const Request& request) {
    const ConvCall& row = request.calls[0];
    if (ROW_TAPS == RowTaps::APART) return row.in;
    if (ROW_TAPS == RowTaps::FOLDED) return row.out;
    const int64_t window = row_window(request);
    const int64_t all = row.in + 2 * row.padding;
    const int64_t used = (row.out - 1) * row.stride + (row.kernel + window - 1) / window * window;
    return used > all ? used : all;
  }
  static int64_t plane_positions(const Request& request) {
    return plane_width(request) * request.calls[1].in * request.calls[2].in;
  }
  // Channels that a pixel of the planes has.
  static int64_t pixel_channels(const Request& request) {
    return request.in_channels * (ROW_TAPS == RowTaps::FOLDED ? request.calls[0].kernel : 1);
  }
  static int64_t pixel_pitch(const Request& request) {
    return channel_pitch(pixel_channels(request));
  }
  static int64_t plane_elements(const Request& request) {
    return request.images * plane_positions(request) * pixel_pitch(request);
  }
  static int chunks(const ConvShape& shape) {
    return (shape.in_channels + Config::CHUNK - 1) / Config::CHUNK;
  }
  static int64_t filter_pitch(const ConvShape& shape) {
    return int64_t{shape.taps()} * chunks(shape) * Tile::CHUNK;
  }
  static int64_t filter_rows(const Request& request, const ConvShape& shape) {
    return request.out_channels * shape.phases();
  }
  static int64_t filter_elements(const Request& request, const ConvShape& shape) {
    return filter_rows(request, shape) * filter_pitch(shape);
  }
  static int64_t filter_bytes(const Request& request, const ConvShape& shape) {
    return aligned_bytes(Tile::PLANES * filter_elements(request, shape) * 2);
  }
  static int64_t exponent_bytes(const Request& request) {
    return aligned_bytes(request.out_channels * 4);
  }

  static PixelPlanes describe_pixels(const Request& request, void* planes) {
    PixelPlanes p = {};
    p.data = request.data;
    p.strides = request.data_strides;
    p.images = request.images;
    p.is_contiguous = true;
    int64_t stride = 1;
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      p.in[d] = static_cast<int>(request.calls[d].in);
      p.divisors[d] = Divisor(static_cast<uint32_t>(d == 0 ? plane_width(request) : p.in[d]));
      if (p.in[d] > 1 && request.data_strides.spatial[d] != stride) p.is_contiguous = false;
      stride *= p.in[d];
    }
    p.channels = static_cast<int>(pixel_channels(request));
    p.pitch = static_cast<int>(pixel_pitch(request));
    p.real_channels = static_cast<int>(request.in_channels);
    p.of_channels = Divisor(static_cast<uint32_t>(request.in_channels));
    p.fold = describe_fold(request);
    p.planes = static_cast<__half*>(planes);
    p.plane_elements = plane_elements(request);
    p.positions = static_cast<uint32_t>(plane_positions(request));
    constexpr uint32_t OF_TILE = PLANE_ELEMENTS / PLANE_CHANNELS;
    p.channel_tiles = (p.pitch + PLANE_CHANNELS - 1) / PLANE_CHANNELS;
    p.position_tiles = (p.positions + OF_TILE - 1) / OF_TILE;
    return p;
  }

  static FilterPlanes describe_filter(const Request& request, const ConvShape& shape, void* rows,
                                      void* exponents) {
    FilterPlanes f = {};
    f.data = request.filter;
    f.strides = request.filter_strides;
    f.rows = static_cast<__half*>(rows);
    f.pitch = filter_pitch(shape);
    f.plane_elements = filter_elements(request, shape);
    f.exponents = static_cast<int*>(exponents);
    f.chunk = Tile::CHUNK;
    f.used = Config::CHUNK;
    f.channels = shape.in_channels;
    f.chunks = chunks(shape);
    f.fold = row_window(request);
    f.fold_channels = shape.in_channels / f.fold;
    f.row_taps = request.calls[0].kernel;
    f.real_channels = static_cast<int>(request.in_channels);
    f.out_channels = static_cast<int>(request.out_channels);
    return f;
  }

  // Sets how many blocks write the filter; all blocks are returned.
  static unsigned plan_blocks(PlaneParameters& planes, const DeviceLimits& device) {
    constexpr int64_t OF_PROCESSOR = 6;
    const int64_t most_filter = 2 * device.multiprocessors;
    const int64_t tiles =
        int64_t{planes.pixels.channel_tiles} * planes.pixels.position_tiles * planes.pixels.images;
    const int64_t out_channels = planes.filter.out_channels;
    planes.filter_blocks =
        static_cast<int>(out_channels < most_filter ? out_channels : most_filter);
    int64_t blocks = OF_PROCESSOR * device.multiprocessors;
    if (blocks > MAX_GUARD_WORDS - planes.filter_blocks)
      blocks = MAX_GUARD_WORDS - planes.filter_blocks;
    if (blocks > tiles) blocks = tiles;
    return static_cast<unsigned>(blocks + planes.filter_blocks);
  }
  void planes_launch(const PlaneParameters& parameters, unsigned blocks,
                     cudaStream_t stream) const {
    planes<<<blocks, PLANE_THREADS, 0, stream>>>(parameters);
  }

  static ConvUnits number_units(const ConvShape& shape) {
    constexpr int64_t POSITIONS = int64_t{Tile::BLOCK_POSITIONS} * Tile::CLUSTER;
    const int64_t tiles = (shape.positions() + POSITIONS - 1) / POSITIONS;
    const int channel_tiles =
        (shape.out_channels + Tile::BLOCK_CHANNELS - 1) / Tile::BLOCK_CHANNELS;
    return {static_cast<int>(tiles * channel_tiles * shape.groups * shape.phases()),
            Divisor(channel_tiles), Divisor(shape.groups), Divisor(shape.phases())};
  }

  static PixelBox pixel_box(const Request& request, const ConvShape& shape) {
    PixelBox box = {};
    box.spatial = Config::SPATIAL;
    box.images = request.images * Tile::PLANES;
    box.pitch = pixel_pitch(request);
    box.channels = ROW_TAPS == RowTaps::OVERLAPPING ? shape.in_channels : box.pitch;
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      box.sizes[d] = shape.dimensions[d].in;
      box.in_memory[d] = d == 0 ? plane_width(request) : request.calls[d].in;
      box.lower[d] = shape.dimensions[d].lower;
      box.upper[d] = shape.dimensions[d].upper();
      box.steps[d] = shape.dimensions[d].step;
    }
    box.box_channels = Tile::CHUNK;
    box.box_pixels = Tile::COPY_POSITIONS;
    box.swizzle = Tile::SWIZZLE;
    return box;
  }

  static TensorBox filter_box(const Request& request, const ConvShape& shape) {
    TensorBox box = {};
    box.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    box.box[0] = Tile::BLOCK_K;
    box.box[1] = Tile::BLOCK_CHANNELS / Tile::CLUSTER;
    box.box[2] = 1;
    box.sizes[0] = filter_pitch(shape);
    box.sizes[1] = filter_rows(request, shape);
    box.sizes[2] = Tile::PLANES;
    box.strides[0] = filter_pitch(shape) * 2;
    box.strides[1] = filter_elements(request, shape) * 2;
    return box;
  }
};
