#pragma once
// Products of the same few rows as their kernel sees them (joint_products.cuh), and the host code
// that describes one.
//
// A result may be made of several products with factors of one shape, as SwiGLU is of two: they are
// the accumulators of its functor. Or its columns come in runs of two halves, and of both an
// element of each is made, as by rotary embedding: then the accumulators are a column of each half.

#include "joint_rows.cuh"

constexpr int JOINT_COLUMNS = 8;  // of a turn

// One result. Functors: for the whole or for each half, called with the sums and what joins them.
template <class Out_, class Functors_, class... Extra_>
struct JointProduct {
  using Out = Out_;
  using Functors = Functors_;
  using Extras = Pack<const Extra_*...>;
  using Joining = Pack<Extra_...>;
  using Indices = std::index_sequence_for<Extra_...>;
  static constexpr int OPERANDS = 1 + static_cast<int>(sizeof...(Extra_));
  static constexpr int HALVES = PackTraits<Functors>::SIZE;
};

// Which dimensions of a result are what, counted from the end; 0: none, of size 1.
struct JointLayout {
  int rows[MAX_RANK] = {};  // for each dimension of the rows
  int inner = 1;            // columns, within their half where there are halves
  int outer = 0;            // runs of two halves
  int half = 0;
};

// A factor: element k of a column is `data[column * column_stride + k * k_stride]`.
struct JointFactor {
  const void* data = nullptr;
  int64_t column_stride = 0, run_stride = 0, k_stride = 0;
};

// A result and what joins it: their row strides stand with those of all others.
template <int FACTORS, class Product>
struct JointResult {
  static constexpr int OPERANDS = Product::OPERANDS;
  typename Product::Functors functors;
  int columns = 0;  // of the result, or of its halves
  int turns = 0;
  Divisor inner;  // of the columns in a run
  JointFactor factors[FACTORS];
  void* data[OPERANDS] = {};
  int64_t column_strides[OPERANDS] = {}, run_strides[OPERANDS] = {}, half_strides[OPERANDS] = {};

  // Mostly the only one.
  __device__ __forceinline__ int run_of(int column) const {
    return static_cast<int>(inner.quotient(static_cast<uint32_t>(column)));
  }
  __device__ __forceinline__ int run_columns() const { return static_cast<int>(inner.value()); }
};

// Number of the first operand of product INDEX among those of all.
template <int INDEX, class Products>
__host__ __device__ constexpr int first_joint_operand() {
  if constexpr (INDEX == 0) {
    return 0;
  } else {
    return first_joint_operand<INDEX - 1, Products>() + pack_item_t<INDEX - 1, Products>::OPERANDS;
  }
}

// Rows_: what fills shared memory (joint_rows.cuh). FACTORS_: accumulators of an element.
template <class Rows_, int FACTORS_, class... Product>
struct JointProblem {
  using Rows = Rows_;
  using T = typename Rows::Element;
  using Products = Pack<Product...>;
  template <template <class> class Of>
  using Each = Pack<Of<Product>...>;
  static constexpr int COUNT = sizeof...(Product), FACTORS = FACTORS_;
  static constexpr int OPERANDS = (0 + ... + Product::OPERANDS);
  static_assert(sizeof(T) == 2, "the factors have 16 bits");

  Rows rows;
  Axes<OPERANDS> places;  // of rows, in results and what joins them
  int64_t k;
  int turns = 0;             // of all results
  bool has_vectors;          // eight neighbours along K are one aligned access
  bool is_countable = true;  // by 31 bits
  bool is_settled = false;   // no kernel that may still run writes the factors
  Pack<JointResult<FACTORS, Product>...> results;

  // How operands move along each dimension of the rows.
  struct Lines {
    int64_t sizes[MAX_RANK];
    int64_t steps[MAX_RANK][OPERANDS] = {};
    Lines() {
      for (int64_t& size : sizes) size = 1;
    }
  };

  // Result number INDEX, whose factors are (n, k); what joins it broadcasts to it.
  template <int INDEX, size_t GIVEN, size_t TENSORS>
  void describe(const Tensor (&factors)[GIVEN], const Tensor (&tensors)[TENSORS],
                const JointLayout& layout, Lines& lines) {
    using Own = pack_item_t<INDEX, Products>;
    static_assert(TENSORS == Own::OPERANDS, "a result has a tensor for each operand");
    static_assert(GIVEN == (Own::HALVES == 1 ? FACTORS : 1), "halves have one factor");
    auto& result = get<INDEX>(results);
    const Tensor& out = tensors[0];
    const int64_t inner = size_of(out, layout.inner);
    const int64_t columns = inner * size_of(out, layout.outer);
    is_countable = is_countable && columns <= MOST_COLUMNS;
    if (!is_countable) return;
    result.columns = static_cast<int>(columns);
    result.turns = (result.columns + JOINT_COLUMNS - 1) / JOINT_COLUMNS;
    turns += result.turns;
    result.inner = Divisor(static_cast<uint32_t>(inner > 0 ? inner : 1));
    for (int f = 0; f < FACTORS; ++f) {
      const Tensor& own = factors[Own::HALVES == 1 ? f : 0];
      const int64_t step = own.strides[0];
      const int64_t shift = Own::HALVES == 1 ? 0 : f * inner * step;
      result.factors[f] = {static_cast<const T*>(own.data) + shift, step,
                           Own::HALVES * inner * step, own.strides[1]};
      has_vectors = has_vectors && own.strides[1] == 1 && step % JOINT_WIDTH == 0 &&
                    reinterpret_cast<uintptr_t>(own.data) % 16 == 0;
    }
    for (size_t o = 0; o < TENSORS; ++o) {
      result.data[o] = tensors[o].data;
      result.column_strides[o] = stride_of(tensors[o], layout.inner);
      result.run_strides[o] = stride_of(tensors[o], layout.outer);
      result.half_strides[o] = stride_of(tensors[o], layout.half);
      for (int d = 0; d < MAX_RANK; ++d) {
        constexpr int FIRST = first_joint_operand<INDEX, Products>();
        lines.steps[d][FIRST + o] = stride_of(tensors[o], layout.rows[d]);
        if (o == 0 && layout.rows[d] > 0) lines.sizes[d] = size_of(out, layout.rows[d]);
      }
    }
  }

  // To be called once, when all results are there.
  void set_places(const Lines& lines) {
    for (int d = 0; d < MAX_RANK; ++d) places.append(lines.sizes[d], lines.steps[d]);
    is_countable = is_countable && places.count <= MOST_COLUMNS && k <= MOST_COLUMNS;
    places.prepare();
  }

 private:
  static constexpr int64_t MOST_COLUMNS = (int64_t{1} << 28) - 1;

  // Of a dimension counted from the end; one that is not there and one of size 1 never move.
  static int64_t stride_of(const Tensor& tensor, int from_end) {
    const int own = tensor.rank - from_end;
    return from_end == 0 || own < 0 || tensor.sizes[own] == 1 ? 0 : tensor.strides[own];
  }
  static int64_t size_of(const Tensor& tensor, int from_end) {
    return from_end == 0 ? 1 : tensor.sizes[tensor.rank - from_end];
  }
};
