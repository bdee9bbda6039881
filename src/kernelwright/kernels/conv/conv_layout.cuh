#pragma once
// Where the operands of conv_sm90.cuh lie: the shape that a call has for the tensor cores, the
// planes of pixels and of the filter that are written for it, and the boxes that copies bring of
// them.

#include "conv_facts.cuh"
#include "conv_request.cuh"
#include "conv_sm90.cuh"
#include "gemm_sm90_launch.cuh"

// Of a config of ConvVariant.
template <class Config, class Input, class Result, class Epilogue>
struct ConvLayout {
  using Tile = ConvTile<Config>;
  using Request = ConvRequest<Input, Result>;
  static constexpr RowTaps ROW_TAPS = Config::ROW_TAPS;
  static constexpr int PLANE_CHANNELS = Tile::PLANE_CHANNELS;
  static constexpr bool HAS_WINDOWS = ANY_WINDOWS && Epilogue::WINDOWS != ConvFold::NONE;
  static constexpr int FILTER_PLANES = (Tile::HAS_FILTER_SETS ? SETS : 1) * Tile::PLANES;

  static int64_t channel_pitch(int64_t channels) { return (channels + 7) / 8 * 8; }
  // The call along W of which each output is a position: the user's, or of neighbouring outputs.
  static ConvCall row_call(const Request& request) {
    return Config::OUTPUTS > 1 ? request.calls[0].joining(Config::OUTPUTS) : request.calls[0];
  }
  // Taps of a row that are the channels of one.
  static int row_window(const Request& request) {
    const int kernel = row_call(request).kernel;
    if (ROW_TAPS == RowTaps::FOLDED) return kernel;
    if (ROW_TAPS == RowTaps::APART) return 1;
    const int64_t fit = Config::CHUNK / channel_pitch(request.in_channels);
    return fit < kernel ? static_cast<int>(fit) : kernel;
  }
  static RowFold describe_fold(const Request& request) {
    const ConvCall row = row_call(request);
    const int in = static_cast<int>(row.in);
    if (ROW_TAPS == RowTaps::FOLDED) return {row.kernel, in, row.stride, row.padding, row.dilation};
    return {1, in, 1, row.padding, 1};
  }

  // With all taps apart, of the same positions.
  static ConvShape describe_plain(const Request& request) {
    ConvShape shape = describe_apart(request);
    if (Config::OUTPUTS > 1) {
      shape.dimensions[0] = ConvDimension::side_by_side(shape.dimensions[0], Config::OUTPUTS);
    }
    return in_windows(request, shape);
  }
  static ConvShape in_windows(const Request& request, ConvShape shape) {
    for (int d = 0; HAS_WINDOWS && d < MAX_SPATIAL; ++d) {
      shape.dimensions[d] = ConvDimension::windows(shape.dimensions[d], request.windows[d]);
    }
    return shape;
  }
  static ConvShape describe_apart(const Request& request) {
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
    return in_windows(request, describe_planes(request));
  }
  // The same without windows, as the kernel that writes the planes has it.
  static ConvShape describe_planes(const Request& request) {
    ConvShape shape = describe_apart(request);
    for (int d = 0; d < Config::JOINED; ++d) {
      shape.dimensions[d] = ConvDimension::joined_phases(request.calls[d]);
    }
    if (ROW_TAPS == RowTaps::APART && Config::OUTPUTS == 1) return shape;
    const ConvCall row = row_of_planes(request);
    if (ROW_TAPS == RowTaps::FOLDED) shape.in_channels *= row_window(request);
    if (ROW_TAPS == RowTaps::OVERLAPPING) {
      shape.in_channels =
          static_cast<int>(row_window(request) * channel_pitch(request.in_channels));
    }
    shape.dimensions[0] =
        Config::OUTPUTS > 1 ? ConvDimension::joined_outputs(request.calls[0], Config::OUTPUTS, row)
                            : ConvDimension::usual(row);
    return shape;
  }
  // The call along W that remains when taps are channels.
  static ConvCall row_of_planes(const Request& request) {
    const ConvCall row = row_call(request);
    if (ROW_TAPS == RowTaps::APART) return row;
    const int window = row_window(request);
    const int64_t width = plane_width(request);
    if (ROW_TAPS == RowTaps::FOLDED) return {width, row.out};
    return {width - (window - 1), row.out, (row.kernel + window - 1) / window,
            row.stride,           0,       window};
  }

  // Pixels of a row of the planes.
  static int64_t plane_width(const Request& request) {
    const ConvCall row = row_call(request);
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
  // Channels of the planes from one group to the next: copies begin at 16 bytes.
  static int group_pitch(const Request& request) {
    const int64_t channels = request.in_channels / request.groups;
    return static_cast<int>(request.groups > 1 ? channel_pitch(channels) : channels);
  }
  // Channels that a pixel of the planes has.
  static int64_t pixel_channels(const Request& request) {
    const int64_t channels = int64_t{group_pitch(request)} * request.groups;
    return channels * (ROW_TAPS == RowTaps::FOLDED ? row_window(request) : 1);
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
    const int spare = Tile::IS_LINEAR ? shape.taps() % 2 : 0;
    return int64_t{shape.taps() + spare} * chunks(shape) * Tile::CHUNK;
  }
  static int64_t filter_rows(const ConvShape& shape) {
    return int64_t{shape.rows()} * shape.groups * shape.filter_phases();
  }
  static int64_t filter_elements(const ConvShape& shape) {
    return filter_rows(shape) * filter_pitch(shape);
  }
  static int64_t filter_bytes(const ConvShape& shape) {
    return aligned_bytes(FILTER_PLANES * filter_elements(shape) * 2);
  }
  static int64_t exponent_bytes(const Request& request) {
    return aligned_bytes(request.out_channels * 4);
  }

  static PixelPlanes describe_pixels(const Request& request, void* planes) {
    PixelPlanes p = {};
    p.data = request.data;
    p.strides = request.data_strides;
    p.images = request.images;
    // Also of overlapping pixels, where there is no padding along W.
    p.is_contiguous = plane_width(request) == request.calls[0].in;
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
    p.group_channels = static_cast<int>(request.in_channels / request.groups);
    p.group_pitch = group_pitch(request);
    p.of_channels = Divisor(static_cast<uint32_t>(request.in_channels));
    p.of_groups = Divisor(static_cast<uint32_t>(p.group_pitch));
    p.fold = describe_fold(request);
    p.planes = static_cast<__half*>(planes);
    p.plane_elements = plane_elements(request);
    p.positions = static_cast<uint32_t>(plane_positions(request));
    constexpr uint32_t OF_TILE = PLANE_ELEMENTS / PLANE_CHANNELS;
    p.channel_tiles = Divisor((p.pitch + PLANE_CHANNELS - 1) / PLANE_CHANNELS);
    p.position_tiles = Divisor((p.positions + OF_TILE - 1) / OF_TILE);
    return p;
  }

  static FilterPlanes describe_filter(const Request& request, const ConvShape& shape, void* rows,
                                      void* exponents) {
    FilterPlanes f = {};
    f.data = request.filter;
    f.strides = request.filter_strides;
    f.rows = static_cast<__half*>(rows);
    f.pitch = filter_pitch(shape);
    f.plane_elements = filter_elements(shape);
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
    f.elements = static_cast<uint32_t>(request.in_channels / request.groups);
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      f.kernel[d] = Divisor(static_cast<uint32_t>(request.calls[d].kernel));
      f.elements *= request.calls[d].kernel;
    }
    f.has_spare = Tile::IS_LINEAR && shape.taps() % 2 == 1;
    while (1 << f.chunk_bits < f.chunk) ++f.chunk_bits;
    f.of_chunks = Divisor(static_cast<uint32_t>(f.chunks));
    f.is_staged = !f.has_spare && f.fold == 1 && shape.phases() == 1 && is_in_one_piece(request) &&
                  f.elements <= StagedRow::ELEMENTS;
    if (f.is_staged) f.of_taps = Divisor(f.elements / f.channels);
    f.is_aligned =
        f.elements % FILTER_WIDTH == 0 && request.filter_strides.out_channel % FILTER_WIDTH == 0 &&
        request.filter_strides.group % FILTER_WIDTH == 0 &&
        reinterpret_cast<uintptr_t>(request.filter) % (FILTER_WIDTH * sizeof(Input)) == 0;
    return f;
  }

  // Whether an output channel's filter has its taps side by side, and its channels.
  static bool is_in_one_piece(const Request& request) {
    int64_t stride = 1;
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      if (request.calls[d].kernel > 1 && request.filter_strides.taps[d] != stride) return false;
      stride *= request.calls[d].kernel;
    }
    return request.in_channels == request.groups || request.filter_strides.in_channel == stride;
  }

  static PatchBox patch_box(const Request& request, const ConvShape& shape, const HaloPlan& plan) {
    PatchBox box = {};
    box.spatial = Config::SPATIAL;
    box.images = request.images;
    box.channels = pixel_pitch(request);
    for (int d = 0; d < MAX_SPATIAL; ++d) box.sizes[d] = shape.dimensions[d].in;
    box.box_channels = Tile::CHUNK;
    box.columns = plan.pitch.value();
    box.rows = plan.patch_rows;
    box.swizzle = Tile::SWIZZLE;
    return box;
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

  static TensorBox filter_box(const ConvShape& shape) {
    TensorBox box = {};
    box.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    box.box[0] = Tile::BLOCK_K;
    box.box[1] = Tile::BLOCK_CHANNELS / Tile::CLUSTER;
    box.box[2] = 1;
    box.sizes[0] = filter_pitch(shape);
    box.sizes[1] = filter_rows(shape);
    box.sizes[2] = FILTER_PLANES;
    box.strides[0] = filter_pitch(shape) * 2;
    box.strides[1] = filter_elements(shape) * 2;
    return box;
  }
};
