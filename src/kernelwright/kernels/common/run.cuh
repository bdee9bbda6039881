#pragma once
// Host side of a native call of several launches: its memory, the views of tensors between them,
// and the words of each launch.
//
// A call of a network is a thousand of these in a row. Written out in place, most of a minute of
// the host's compiler would go there, and the call would take as long.

#include <algorithm>
#include <initializer_list>

#include "launch.cuh"

using Sizes = std::initializer_list<int64_t>;

__noinline__ int64_t elements(Sizes sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

__noinline__ bool has_sizes(const Tensor& tensor, Sizes sizes) {
  return std::equal(sizes.begin(), sizes.end(), tensor.sizes, tensor.sizes + tensor.rank);
}

__noinline__ bool has_elements(const Tensor& tensor, int64_t least) {
  int64_t count = 1;
  for (int d = 0; d < tensor.rank; ++d) count *= tensor.sizes[d];
  return count >= least;
}

// A new tensor at `data`, its elements in row-major order.
__noinline__ Tensor contiguous(void* data, Sizes sizes) {
  Tensor tensor;
  tensor.data = data;
  tensor.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), tensor.sizes);
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.strides[d] = stride;
    stride *= tensor.sizes[d] > 1 ? tensor.sizes[d] : 1;
  }
  return tensor;
}

// The same elements under other sizes, where that is a view: dimensions are split, and those of
// which the elements lie in order are joined.
__noinline__ Tensor reshaped(const Tensor& tensor, Sizes sizes) {
  Tensor view = contiguous(tensor.data, sizes);
  int from = tensor.rank - 1;
  // Elements of `from` that the dimensions so far leave, and what lies between two of them.
  int64_t left = 1, stride = 1;
  for (int d = view.rank - 1; d >= 0; --d) {
    for (; left <= 1 && from >= 0; --from) {
      left = tensor.sizes[from];
      stride = tensor.strides[from];
    }
    view.strides[d] = stride;
    stride *= view.sizes[d];
    while (left > 0 && left < view.sizes[d] && from >= 0) left *= tensor.sizes[from--];
    left /= view.sizes[d] > 0 ? view.sizes[d] : 1;
  }
  return view;
}

__noinline__ Tensor permuted(const Tensor& tensor, std::initializer_list<int> dims) {
  Tensor view = tensor;
  int d = 0;
  for (const int from : dims) {
    view.sizes[d] = tensor.sizes[from];
    view.strides[d++] = tensor.strides[from];
  }
  return view;
}

__noinline__ Tensor unsqueezed(const Tensor& tensor, int dim) {
  Tensor view = tensor;
  view.rank = tensor.rank + 1;
  for (int d = tensor.rank; d > dim; --d) {
    view.sizes[d] = tensor.sizes[d - 1];
    view.strides[d] = tensor.strides[d - 1];
  }
  view.sizes[dim] = 1;
  view.strides[dim] = dim < tensor.rank ? tensor.sizes[dim] * tensor.strides[dim] : 1;
  return view;
}

__noinline__ Tensor without(const Tensor& tensor, int dim) {
  Tensor view = tensor;
  view.rank = tensor.rank - 1;
  for (int d = dim; d < view.rank; ++d) {
    view.sizes[d] = tensor.sizes[d + 1];
    view.strides[d] = tensor.strides[d + 1];
  }
  return view;
}

inline void* moved(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

// `size` elements of one dimension, `step` apart; an element has `bytes` bytes.
__noinline__ Tensor sliced(const Tensor& tensor, int bytes, int dim, int64_t start, int64_t size,
                           int64_t step = 1) {
  Tensor view = tensor;
  view.data = moved(tensor.data, start * tensor.strides[dim] * bytes);
  view.sizes[dim] = size;
  view.strides[dim] = step * tensor.strides[dim];
  return view;
}

__noinline__ Tensor selected(const Tensor& tensor, int bytes, int dim, int64_t index) {
  return without(sliced(tensor, bytes, dim, index, 1), dim);
}

// Broadcast by trailing dimensions.
__noinline__ Tensor expanded(const Tensor& tensor, Sizes sizes) {
  Tensor view;
  view.data = tensor.data;
  view.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), view.sizes);
  const int more = view.rank - tensor.rank;
  for (int d = more; d < view.rank; ++d) {
    view.strides[d] = tensor.sizes[d - more] == view.sizes[d] ? tensor.strides[d - more] : 0;
  }
  return view;
}

// The main diagonal of the last two dimensions.
__noinline__ Tensor diagonal(const Tensor& tensor) {
  const int row = tensor.rank - 2;
  Tensor view = without(tensor, row + 1);
  view.sizes[row] = std::min(tensor.sizes[row], tensor.sizes[row + 1]);
  view.strides[row] = tensor.strides[row] + tensor.strides[row + 1];
  return view;
}

// Words of at most COUNT arguments, as Arguments reads them.
template <int COUNT>
class Words {
 public:
  void put(int64_t value) { words_[count_++] = value; }
  void put(double value) { std::memcpy(&words_[count_++], &value, sizeof(value)); }
  void put(const void* address) { put(reinterpret_cast<int64_t>(address)); }
  __noinline__ void put(const Tensor& tensor) {
    put(tensor.data);
    put(int64_t{tensor.rank});
    for (int d = 0; d < tensor.rank; ++d) put(tensor.sizes[d]);
    for (int d = 0; d < tensor.rank; ++d) put(tensor.strides[d]);
  }
  const int64_t* data() const { return words_; }

 private:
  static constexpr int HEAD = 3;
  int64_t words_[HEAD + COUNT * (2 + 2 * MAX_RANK)];
  int count_ = 0;
};

// A native call: first its memory is taken, then its kernels are launched in order. The same code
// measures how much memory that is, without launching.
class Run {
 public:
  enum class Mode { MEASURE, LAUNCH };

  Run(const int64_t* words, Mode mode) : arguments_(words), mode_(mode) {}

  Arguments& arguments() { return arguments_; }
  // The first error, if any: nothing is launched after it.
  int code() const { return code_ ? code_ : static_cast<int>(arguments_.status()); }
  // Bytes of the arena: what was taken, and the largest workspace behind it.
  int64_t bytes() const { return taken_ + workspace_; }

  // Memory of the arena, for as long as the call takes.
  void* take(int64_t bytes) {
    void* const found = at_end();
    taken_ += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return found;
  }

  using Launcher = int (*)(const int64_t*);
  using Workspace = int64_t (*)(const int64_t*);

  template <class... Operands>
  __noinline__ void launch(Launcher launcher, const Operands&... operands) {
    if (mode_ == Mode::LAUNCH && code() == 0) code_ = launcher(words(operands...).data());
  }
  // A launch that may need memory for itself: the end of the arena, which the next launch reuses.
  template <class... Operands>
  __noinline__ void launch_with(Workspace workspace, Launcher launcher,
                                const Operands&... operands) {
    if (mode_ == Mode::MEASURE) {
      workspace_ = std::max(workspace_, workspace(words(operands...).data()));
    }
    launch(launcher, operands...);
  }

 private:
  static constexpr int64_t ALIGNMENT = 256;
  static constexpr int64_t CURRENT_DEVICE = -1;

  void* at_end() const {
    return reinterpret_cast<void*>(reinterpret_cast<int64_t>(arguments_.workspace()) + taken_);
  }
  template <class... Operands>
  Words<sizeof...(Operands)> words(const Operands&... operands) const {
    Words<sizeof...(Operands)> words;
    words.put(CURRENT_DEVICE);
    words.put(reinterpret_cast<int64_t>(arguments_.stream()));
    words.put(static_cast<const void*>(at_end()));
    (words.put(operands), ...);
    return words;
  }

  Arguments arguments_;
  Mode mode_;
  int64_t taken_ = 0, workspace_ = 0;
  int code_ = 0;
};
