#pragma once
// A convolution of images whose channels lie last, as a product: a row of lhs is what the filter
// meets at one place of the result, tap by tap, all channels of each. No such matrix is written:
// the tensor memory accelerator's mode im2col brings the pixels that one tap meets at neighbouring
// places. The filter is [output channel][tap][channel].

#include "conv_pixels.cuh"
#include "divide.cuh"
#include "gemm_problem.cuh"

// How the filter walks: [0] along W, [1] along H, as coordinates of maps are.
struct PatchWalk {
  int taps[2], stride[2], padding[2], dilation[2];
};

// Images and what is taken of them.
struct Patches {
  PatchWalk walk;
  void* images;
  int64_t count, channels;
  int64_t sizes[2], positions[2];                  // pixels of an image, places of its result
  int64_t pixel_stride, row_stride, image_stride;  // elements
  int64_t channel_stride;
  int element_bytes;
  Divisor across, down;  // places of a row, and rows

  static Patches of(const PatchWalk& walk, const Tensor& images, const Tensor& out,
                    int element_bytes) {
    Patches patches = {walk, images.data, images.sizes[0], images.sizes[3]};
    patches.element_bytes = element_bytes;
    for (int d = 0; d < 2; ++d) {
      patches.sizes[d] = images.sizes[2 - d];
      patches.positions[d] = out.sizes[2 - d];
    }
    // Of dimensions that have one element the strides may be anything.
    const auto stride = [&](int dim, int64_t dense) {
      return images.sizes[dim] == 1 ? dense : images.strides[dim];
    };
    patches.channel_stride = stride(3, 1);
    const int64_t vector = patches.vector();
    patches.pixel_stride = stride(2, (patches.channels + vector - 1) / vector * vector);
    patches.row_stride = stride(1, patches.pixel_stride * patches.sizes[0]);
    patches.image_stride = stride(0, patches.row_stride * patches.sizes[1]);
    patches.find_divisors();
    return patches;
  }

  // The matrix, each row of which lies at the number of its place: K tells only how long it is.
  Tensor as_matrix(int64_t k) const {
    const int64_t place = positions[0] * positions[1];
    return {images, 4, {count, positions[1], positions[0], k}, {place, positions[0], 1, 1}};
  }

  int taps() const { return walk.taps[0] * walk.taps[1]; }

  // Pixels from the first tap to the last along a dimension.
  __host__ __device__ __forceinline__ int reach(int d) const {
    return (walk.taps[d] - 1) * walk.dilation[d];
  }
  // Of stride 1: the padded pixels that the first tap meets, whether the last one does or not.
  Patches as_band() const {
    Patches band = *this;
    for (int d = 0; d < 2; ++d) band.positions[d] += reach(d);
    band.find_divisors();
    return band;
  }
  bool has_band(int most) const {
    const int64_t last = reach(1) * (positions[0] + reach(0)) + reach(0);
    return walk.stride[0] == 1 && walk.stride[1] == 1 && last <= most && as_band().is_boxed();
  }
  int64_t places() const { return count * positions[0] * positions[1]; }
  // Whether so many places are those of whole images.
  bool has_whole(int64_t rows) const { return rows % (positions[0] * positions[1]) == 0; }

  // Whether the tensor memory accelerator can bring them.
  bool is_boxed() const {
    constexpr int64_t MAX_STRIDE = int64_t{1} << 37;
    bool boxed = reinterpret_cast<uintptr_t>(images) % 16 == 0 && channels % vector() == 0 &&
                 channel_stride == 1 && pixel_stride > 0 && pixel_stride % vector() == 0 &&
                 row_stride > 0 && row_stride % pixel_stride == 0 && image_stride > 0 &&
                 image_stride % row_stride == 0 && image_stride < MAX_STRIDE;
    for (int d = 0; d < 2; ++d) {
      const int most = 1 << (corner_bits(2) - 1);
      const int64_t end = upper(d);
      boxed = boxed && walk.padding[d] <= most && end >= -most && end < most &&
              int64_t{walk.taps[d] - 1} * walk.dilation[d] < 2 * most &&
              walk.stride[d] <= MAX_TRAVERSAL_STEP;
    }
    return boxed && has_divisors();
  }

  cudaError_t encode(CUtensorMap* map, CUtensorMapDataType type, int box_channels,
                     int box_pixels) const {
    PixelBox box = {2, count, channels, pixel_stride};
    box.type = type;
    box.element_bytes = element_bytes;
    for (int d = 0; d < 2; ++d) {
      box.sizes[d] = sizes[d];
      box.lower[d] = -walk.padding[d];
      box.upper[d] = static_cast<int>(upper(d));
      box.steps[d] = walk.stride[d];
    }
    box.in_memory[0] = row_stride / pixel_stride;
    box.in_memory[1] = image_stride / row_stride;
    box.box_channels = box_channels;
    box.box_pixels = box_pixels;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    return encode_pixels(map, images, box);
  }

  int64_t vector() const { return 16 / element_bytes; }  // elements of 16 bytes

  // Image and pixel that the first tap meets at place number `position`.
  __device__ __forceinline__ PixelPlace place(int position) const {
    const uint32_t row = across.quotient(position);
    const uint32_t image = down.quotient(row);
    PixelPlace place = {};
    place.image = static_cast<int>(image);
    place.at[0] =
        (position - static_cast<int>(row * across.value())) * walk.stride[0] - walk.padding[0];
    place.at[1] = static_cast<int>(row - image * down.value()) * walk.stride[1] - walk.padding[1];
    return place;
  }

  // Of a band: the row of the result that padded pixel number `position` begins, or -1.
  __device__ __forceinline__ int result_row(int position) const {
    const auto row = static_cast<int>(across.quotient(position));
    const auto image = static_cast<int>(down.quotient(row));
    const int x = position - row * static_cast<int>(across.value());
    const int y = row - image * static_cast<int>(down.value());
    const int width = static_cast<int>(positions[0]) - reach(0);
    const int height = static_cast<int>(positions[1]) - reach(1);
    const bool exists = x < width && y < height && image < count;
    return exists ? (image * height + y) * width + x : -1;
  }

 private:
  void find_divisors() {
    if (!has_divisors()) return;
    across = Divisor(static_cast<uint32_t>(positions[0]));
    down = Divisor(static_cast<uint32_t>(positions[1]));
  }

  // Whether places have numbers that are divided fast, those of tiles at the end among them.
  bool has_divisors() const {
    const double places = static_cast<double>(count) * static_cast<double>(positions[0]) *
                          static_cast<double>(positions[1]);
    return places > 0 && places < static_cast<double>(int64_t{1} << 30);
  }

  // The bounding box's corner at the end, from the last pixel.
  int64_t upper(int d) const {
    return (positions[d] - 1) * walk.stride[d] - walk.padding[d] - (sizes[d] - 1);
  }
};

template <class T, class Out, class Epilogue, class... Extra>
struct PatchGemm : Gemm<T, Out, Epilogue, Extra...> {
  using Product = Gemm<T, Out, Epilogue, Extra...>;
  static constexpr bool HAS_PATCHES = true;

  Patches patches;

  // out (N, H, W, O), images (N, H', W', C), filter (taps * C, O).
  template <class... Tensors>
  static PatchGemm describe(const Epilogue& epilogue, const PatchWalk& walk, const Tensor& out,
                            const Tensor& images, const Tensor& filter, const Tensors&... extras) {
    const Patches patches = Patches::of(walk, images, out, sizeof(T));
    const Tensor matrix = patches.as_matrix(filter.sizes[0]);
    return {Product::describe(epilogue, out, matrix, filter, extras...), patches};
  }

  // The filter as boxes of one tap, or of all.
  bool is_filter_boxed() const {
    const MatrixOperand& filter = this->rhs();
    return reinterpret_cast<uintptr_t>(filter.data) % 16 == 0 && filter.row_stride == 1 &&
           (this->n == 1 ||
            (filter.column_stride > 0 && filter.column_stride % patches.vector() == 0));
  }
  TensorBox filter_box(CUtensorMapDataType type, int channels, int columns, int taps) const {
    TensorBox box = {};
    box.type = type;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    box.sizes[0] = patches.channels;
    box.sizes[1] = this->n;
    box.sizes[2] = patches.taps();
    box.strides[0] = (this->n == 1 ? this->k : this->rhs().column_stride) * sizeof(T);
    box.strides[1] = patches.channels * sizeof(T);
    box.box[0] = channels;
    box.box[1] = columns;
    box.box[2] = taps;
    return box;
  }
};

// The taps and the chunks of CHANNELS of their channels, one after the other.
template <int CHANNELS>
class PatchSteps {
 public:
  __device__ __forceinline__ PatchSteps(const Patches& patches, int position)
      : patches_(patches), place_(patches.place(position)) {}

  __device__ __forceinline__ const PixelPlace& place() const { return place_; }
  __device__ __forceinline__ int tap() const { return tap_; }

  // Where they begin, instead of at the first one.
  __device__ __forceinline__ void begin_at(int step) {
    const int chunks = (patches_.channels + CHANNELS - 1) / CHANNELS;
    tap_ = step / chunks;
    place_.channel = (step - tap_ * chunks) * CHANNELS;
    const int down = tap_ / patches_.walk.taps[0];
    across_ = tap_ - down * patches_.walk.taps[0];
    place_.offset[0] += across_ * patches_.walk.dilation[0];
    place_.offset[1] += down * patches_.walk.dilation[1];
  }

  __device__ __forceinline__ void advance() {
    place_.channel += CHANNELS;
    if (place_.channel < patches_.channels) return;
    place_.channel = 0;
    ++tap_;
    place_.offset[0] += patches_.walk.dilation[0];
    if (++across_ < patches_.walk.taps[0]) return;
    across_ = place_.offset[0] = 0;
    place_.offset[1] += patches_.walk.dilation[1];
  }

 private:
  const Patches& patches_;
  PixelPlace place_;
  int tap_ = 0, across_ = 0;
};

// For the CUDA cores: the same interface as PlainCopy's, one element of a patch at a time.
template <class T, class Tile, int SIZE>
struct PatchCopy {
  static constexpr int STEP = Tile::STEP, THREADS = Tile::THREADS, COUNT = SIZE * STEP / THREADS;

  const Patches& patches;
  int64_t position, size;  // of the first row; rows that exist
  int64_t next, k_size;    // of K
  float values[COUNT];

  __device__ __forceinline__ int own(int i) const {
    return threadIdx.x / STEP + i * (THREADS / STEP);
  }
  __device__ __forceinline__ int k() const { return threadIdx.x % STEP; }

  __device__ __forceinline__ void load_step() {
    const int64_t at = next + k();
    const auto tap = static_cast<int>(at / patches.channels);
    const int64_t channel = at - tap * patches.channels;
    const PatchWalk& walk = patches.walk;
    const int64_t along[2] = {tap % walk.taps[0], tap / walk.taps[0]};
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      values[i] = 0;
      if (own(i) >= size || at >= k_size) continue;
      int64_t left = position + own(i), pixel[2];
      bool exists = true;
      for (int d = 0; d < 2; ++d) {
        pixel[d] = left % patches.positions[d] * walk.stride[d] - walk.padding[d] +
                   along[d] * walk.dilation[d];
        exists = exists && pixel[d] >= 0 && pixel[d] < patches.sizes[d];
        left /= patches.positions[d];
      }
      if (!exists) continue;
      values[i] = widen(static_cast<const T*>(
          patches.images)[left * patches.image_stride + pixel[1] * patches.row_stride +
                          pixel[0] * patches.pixel_stride + channel * patches.channel_stride]);
    }
    next += STEP;
  }
  __device__ __forceinline__ void store_step(float (&shared)[STEP][SIZE + Tile::OWN]) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) shared[k()][own(i)] = values[i];
  }
};
