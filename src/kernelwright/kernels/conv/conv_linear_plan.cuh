#pragma once
// Host side of conv_linear.cuh: what it takes, and its tiles.

#include "conv_linear.cuh"
#include "conv_request.cuh"

template <class Tile, class Request>
class LinearPlanner {
  using Result = std::remove_pointer_t<decltype(Request::out)>;

 public:
  static bool takes(const Request& request, const ConvShape& shape) {
    if (request.direction != ConvDirection::USUAL || request.groups > 1 ||
        request.in_channels > Tile::CHUNK)
      return false;
    if (shape.taps() < 2 || shape.rows() > Tile::BLOCK_CHANNELS) return false;
    for (const ConvCall& call : request.calls) {
      if (call.stride != 1 || call.padding != 0) return false;
    }
    const ConvDimension &w = shape.dimensions[0], &h = shape.dimensions[1];
    if (w.out > 1 && request.out_strides.spatial[0] != 1) return false;
    if (h.out > 1 && request.out_strides.spatial[1] != w.out) return false;
    const int64_t slice = int64_t{w.out} * h.out, count = pixels(shape);
    const int64_t bytes = count * shape.dimensions[2].taps[0] * Tile::CHUNK_BYTES;
    return w.in >= Tile::PART_POSITIONS / 2 && slice < (1 << 30) && count < (1 << 14) &&
           bytes <= Tile::PATCH_BYTES / Tile::PLANES &&
           reach(shape) <= shape.images * w.in * h.in * shape.dimensions[2].in &&
           step(request, shape) > 0 && (pairs(shape) + 1) / 2 <= Tile::STAGES &&
           2 * pairs(shape) * 4 <= Tile::PLACE_BYTES;
  }

  static LinearPlan plan(const Request& request, const ConvShape& shape, const void* planes) {
    const ConvDimension &w = shape.dimensions[0], &h = shape.dimensions[1];
    LinearPlan made = {};
    made.planes = static_cast<const __half*>(planes);
    made.in_width = w.in;
    made.in_slice = int64_t{w.in} * h.in;
    made.in_image = made.in_slice * shape.dimensions[2].in;
    made.plane_pixels = made.in_image * shape.images;
    made.step = static_cast<int>(step(request, shape));
    made.slice = w.out * h.out;
    made.tiles = Divisor(static_cast<uint32_t>((made.slice + made.step - 1) / made.step));
    made.depths = Divisor(static_cast<uint32_t>(shape.dimensions[2].out));
    made.width = Divisor(static_cast<uint32_t>(w.out));
    made.pixels = static_cast<int>(pixels(shape));
    made.reach = reach(shape);
    made.pairs = pairs(shape);
    return made;
  }

 private:
  // Pixels that a tile's taps meet.
  static int64_t pixels(const ConvShape& shape) {
    const ConvDimension &w = shape.dimensions[0], &h = shape.dimensions[1];
    return Tile::PART_POSITIONS + h.last_offset() * w.in + w.last_offset();
  }
  // From the first of them to the last: of all D.
  static int64_t reach(const ConvShape& shape) {
    const int64_t slice = int64_t{shape.dimensions[0].in} * shape.dimensions[1].in;
    return shape.dimensions[2].last_offset() * slice + pixels(shape);
  }
  static int pairs(const ConvShape& shape) { return (shape.taps() + 3) / 4; }
  // Outputs from a tile's first to the next one's: whole sectors, those that are shared aside.
  static int64_t step(const Request& request, const ConvShape& shape) {
    constexpr int SECTOR = SECTOR_ELEMENTS<Result>;
    const ConvDimension& w = shape.dimensions[0];
    const int64_t rows = (Tile::PART_POSITIONS + w.in - 1) / w.in;
    const int64_t outputs = Tile::PART_POSITIONS - rows * (w.in - w.out);
    const ImageStrides& strides = request.out_strides;
    const bool are_aligned = reinterpret_cast<uintptr_t>(request.out) % SECTOR_BYTES == 0 &&
                             strides.channel % SECTOR == 0 && strides.image % SECTOR == 0 &&
                             (shape.dimensions[2].out == 1 || strides.spatial[2] % SECTOR == 0);
    return (outputs - (are_aligned ? 0 : SECTOR)) / SECTOR * SECTOR;
  }
};
