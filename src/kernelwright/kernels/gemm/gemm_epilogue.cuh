#pragma once
// What happens to the sums of a matrix product between registers and memory.

#include <utility>

#include "gemm_joining.cuh"
#include "located.cuh"

// Applies the epilogue to one run of a thread's sums and stores it.
template <class T, class Out, class Epilogue, class... Extra>
class GemmEpilogue {
 public:
  using Problem = Gemm<T, Out, Epilogue, Extra...>;
  static constexpr bool HAS_EXTRAS = sizeof...(Extra) > 0;
  template <int WIDTH>
  using Sums = Vector<compute_t<T>, WIDTH>;
  template <class Indices>
  struct JoiningOf;
  template <size_t... I>
  struct JoiningOf<std::index_sequence<I...>> {
    template <int WIDTH, class Masks>
    using Of = Pack<Fetched<Extra, (Masks::BY_ROW >> I & 1) != 0 ? 1 : WIDTH>...>;
  };

  // For the first batch.
  __device__ __forceinline__ explicit GemmEpilogue(const Problem& problem)
      : problem_(problem), out_(static_cast<Out*>(problem.operands[Problem::OUT].data)) {
    if constexpr (ANY_EXTRAS) set_extras(Indices());
  }

  // For another, by its index in each batch dimension.
  __device__ __forceinline__ void select(const int64_t (&batch)[MAX_BATCH_RANK]) {
    out_ = batch_base<Out>(problem_, Problem::OUT, batch);
    if constexpr (ANY_EXTRAS) select_extras(batch, Indices());
    if constexpr (ANY_EXTREMES && KeptResult::IS_ONE) keys_ = problem_.keys + rows_before(batch);
  }
  __device__ __forceinline__ void select(int64_t batch) {
    int64_t index[MAX_BATCH_RANK];
    split_batch(problem_, batch, index);
    select(index);
  }

  // Columns [column, column + WIDTH) of a row, WIDTH at most COLUMN_VECTOR; those beyond N do not
  // exist.
  template <int WIDTH>
  __device__ __forceinline__ void apply(const Sums<WIDTH>& sums, int64_t row,
                                        int64_t column) const {
    static_assert(WIDTH <= Problem::COLUMN_VECTOR, "only so many columns are known to be aligned");
    if (row >= problem_.m || column >= problem_.n) return;
    const MatrixOperand* operands = problem_.operands;
    Vector<Out, WIDTH> values;
    if constexpr (ANY_EXTRAS) {
      values = joined_results(sums, row, column, Indices());
    } else {
      values = compute(sums, row, column);
    }
    if constexpr (ANY_EXTREMES && KeptResult::IS_ONE) {
      keep_in_row(row, best_of(values, valid(column, WIDTH)));
    } else {
      Out* address = out_ + offset(operands[Problem::OUT], row, column);
      if (operands[Problem::OUT].has_column_vectors) {
        store_vector(address, values);
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
          if (i < valid(column, WIDTH))
            address[i * operands[Problem::OUT].column_stride] = values.element[i];
        }
      }
    }
  }

  // The extras of a row, which have one value for all of its columns.
  using RowJoining = Pack<Extra...>;
  __device__ __forceinline__ RowJoining row_joining(int64_t row) const {
    return load_row_joining(row, Indices());
  }
  // The result for a sum in that row, not rounded yet: rounding keeps the order.
  __device__ __forceinline__ float row_result(float sum, const RowJoining& joining) const {
    return row_result(sum, joining, Indices());
  }
  // A result of this row joins those that are there already, one of which is kept.
  __device__ __forceinline__ void keep_in_row(int64_t row, float result) const {
    atomicMax(keys_ + row, KeptResult::key(result));
  }

  // The results for the same columns, of which only those that exist mean anything.
  template <int WIDTH>
  __device__ __forceinline__ Vector<Out, WIDTH> results(const Sums<WIDTH>& sums, int64_t row,
                                                        int64_t column) const {
    static_assert(WIDTH <= Problem::COLUMN_VECTOR, "only so many columns are known to be aligned");
    if (row >= problem_.m || column >= problem_.n) return {};
    if constexpr (ANY_EXTRAS) {
      return joined_results(sums, row, column, Indices());
    } else {
      return compute(sums, row, column);
    }
  }

  using Place = ProductPlace<Out, Extra...>;

  __device__ __forceinline__ Place place(int row, int column) const {
    Place found = {row, column, out_ + offset(problem_.operands[Problem::OUT], row, column)};
    if constexpr (ANY_EXTRAS) found.joining = extras_at(row, column, Indices());
    return found;
  }

  // Whether out has column vectors, and all extras that differ from column to column.
  __device__ __forceinline__ bool has_vectors() const {
    if constexpr (ANY_EXTRAS) {
      if (!extras_have_vectors(Indices())) return false;
    }
    return problem_.operands[Problem::OUT].has_column_vectors;
  }

  // Whether results of 16 bits may leave in lines (gemm_sm90_lines.cuh): of what joins them, one at
  // most has its own for each, of as many bits.
  template <class Masks>
  __host__ __device__ static constexpr bool leaves_in_lines() {
    constexpr unsigned KNOWN = Masks::BY_ROW | Masks::BY_COLUMN | Masks::BY_PLACE;
    constexpr bool IS_ONE = (Masks::BY_PLACE & (Masks::BY_PLACE - 1)) == 0;
    return IS_ONE && are_known<KNOWN, Masks::BY_PLACE>(Indices());
  }

  // Whether out has vectors of 16 bytes, and the extra that has its own for each; and those that
  // differ by column have theirs.
  template <class Masks>
  __device__ __forceinline__ bool has_lines() const {
    if constexpr (ANY_EXTRAS) {
      if (!extras_have_lines<Masks>(Indices())) return false;
    }
    return !ANY_EDGES || problem_.operands[Problem::OUT].has_wide_vectors;
  }

  // The results for WIDTH columns, `rows` below and from `columns` after `place`: all exist, in
  // column vectors.
  template <int WIDTH>
  __device__ __forceinline__ Vector<Out, WIDTH> results_at(const Sums<WIDTH>& sums,
                                                           const Place& place, int rows,
                                                           int columns) const {
    if constexpr (ANY_EXTRAS) {
      return joined_at(sums, place, rows, columns, Indices());
    } else {
      return compute(sums, place.row + rows, place.column + columns);
    }
  }

  // They are stored.
  template <int WIDTH>
  __device__ __forceinline__ void store_at(const Sums<WIDTH>& sums, const Place& place, int rows,
                                           int columns) const {
    static_assert(!ANY_EXTREMES || !KeptResult::IS_ONE, "the result has all columns");
    Vector<Out, WIDTH> values;
    if constexpr (ANY_EXTRAS) {
      values = results_at(sums, place, rows, columns);
    } else {
      values = compute(sums, place.row + rows, place.column + columns);
    }
    const int64_t below = rows * problem_.operands[Problem::OUT].row_stride;
    store_vector(place.out + below + columns, values);
  }

  // Asks the L2 for what an element reads of extras that have one for each.
  __device__ __forceinline__ void ask_for(int row, int column) const {
    if constexpr (ANY_EXTRAS) ask_for(row, column, Indices());
  }

  // WIDTH columns of the extras, for who loads them before there are sums.
  template <int WIDTH, class Masks>
  using Joining = typename JoiningOf<std::index_sequence_for<Extra...>>::template Of<WIDTH, Masks>;
  // Those of the bits WHICH, which have vectors of so many; the others are nothing yet.
  template <int WIDTH, class Masks, unsigned WHICH>
  __device__ __forceinline__ Joining<WIDTH, Masks> fetch(const Place& place, int rows,
                                                         int columns) const {
    return fetch_joining<WIDTH, Masks, WHICH>(place, rows, columns, Indices());
  }
  // The same of one row, of which the first `valid` columns exist, and lie anywhere.
  template <int WIDTH, class Masks, unsigned WHICH>
  __device__ __forceinline__ Joining<WIDTH, Masks> fetch_each(const Place& place, int columns,
                                                              int valid) const {
    return fetch_each_joining<WIDTH, Masks, WHICH>(place, columns, valid, Indices());
  }
  // Those of a row, of columns and of their own together.
  template <class Masks, class Joined>
  __device__ __forceinline__ static Joined merged(const Joined& of_row, const Joined& of_columns,
                                                  const Joined& own) {
    return merge_joining<Masks>(of_row, of_columns, own, Indices());
  }
  // Bytes of a thread's registers that the extras of a row take which differ by column, too.
  template <int WIDTH, class Masks>
  __host__ __device__ static constexpr int own_bytes() {
    return count_own_bytes<WIDTH, Masks>(Indices());
  }

  // The same where what joins has been fetched.
  template <int WIDTH, class Joined>
  __device__ __forceinline__ Vector<Out, WIDTH> results_inside(const Sums<WIDTH>& sums,
                                                               const Joined& joining,
                                                               const Place& place, int rows,
                                                               int columns) const {
    return joined_inside(sums, joining, place, rows, columns, Indices());
  }
  template <int WIDTH, class Joined>
  __device__ __forceinline__ void apply_inside(const Sums<WIDTH>& sums, const Joined& joining,
                                               const Place& place, int rows, int columns) const {
    store_inside(results_inside(sums, joining, place, rows, columns), place, rows, columns);
  }
  // A vector of results.
  template <class Results>
  __device__ __forceinline__ void store_inside(const Results& results, const Place& place, int rows,
                                               int columns) const {
    const int64_t below = rows * problem_.operands[Problem::OUT].row_stride;
    *reinterpret_cast<Results*>(place.out + below + columns) = results;
  }

 private:
  using Indices = std::index_sequence_for<Extra...>;
  using KeptResult = Kept<Epilogue>;

  // Those of the batches before this one.
  __device__ __forceinline__ int64_t rows_before(const int64_t (&batch)[MAX_BATCH_RANK]) const {
    int64_t number = 0;
#pragma unroll
    for (int d = 0; d < MAX_BATCH_RANK; ++d) {
      if (d < problem_.batch_rank) number = number * problem_.batch_sizes[d] + batch[d];
    }
    return number * problem_.m;
  }

  template <int WIDTH>
  __device__ __forceinline__ static float best_of(const Vector<Out, WIDTH>& values, int valid) {
    float found = KeptResult::NONE;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      if (i < valid) found = KeptResult::better(found, widen(values.element[i]));
    }
    return found;
  }

  template <size_t... I>
  __device__ __forceinline__ RowJoining load_row_joining(int64_t row,
                                                         std::index_sequence<I...>) const {
    const MatrixOperand* extras = problem_.operands + Problem::FIRST_EXTRA;
    return {{{load_constant(get<I>(extras_) + row * extras[I].row_stride)}...}};
  }
  template <size_t... I>
  __device__ __forceinline__ float row_result(float sum, const RowJoining& joining,
                                              std::index_sequence<I...>) const {
    static_assert(!IsLocated<Epilogue>::value, "it is not told where its elements stand");
    return problem_.epilogue(sum, widen(get<I>(joining))...);
  }

  __device__ __forceinline__ static int64_t offset(const MatrixOperand& operand, int64_t row,
                                                   int64_t column) {
    return row * operand.row_stride + column * operand.column_stride;
  }

  template <size_t... I>
  __device__ __forceinline__ void set_extras(std::index_sequence<I...>) {
    ((get<I>(extras_) =
          static_cast<const Extra*>(problem_.operands[Problem::FIRST_EXTRA + I].data)),
     ...);
  }
  template <size_t... I>
  __device__ __forceinline__ void select_extras(const int64_t (&batch)[MAX_BATCH_RANK],
                                                std::index_sequence<I...>) {
    ((get<I>(extras_) = batch_base<const Extra>(problem_, Problem::FIRST_EXTRA + I, batch)), ...);
  }

  __device__ __forceinline__ int valid(int64_t column, int width) const {
    return problem_.n - column < width ? static_cast<int>(problem_.n - column) : width;
  }

  template <int WIDTH, size_t... I>
  __device__ __forceinline__ Vector<Out, WIDTH> joined_results(const Sums<WIDTH>& sums, int64_t row,
                                                               int64_t column,
                                                               std::index_sequence<I...>) const {
    const MatrixOperand* operands = problem_.operands;
    const Pack<Vector<Extra, WIDTH>...> extras = {{{load_columns<Extra, WIDTH>(
        get<I>(extras_) + offset(operands[Problem::FIRST_EXTRA + I], row, column),
        operands[Problem::FIRST_EXTRA + I], valid(column, WIDTH))}...}};
    return compute_joined<WIDTH>(sums, row, column, extras, Indices());
  }

  template <size_t... I>
  __device__ __forceinline__ Pack<const Extra*...> extras_at(int row, int column,
                                                             std::index_sequence<I...>) const {
    const MatrixOperand* extras = problem_.operands + Problem::FIRST_EXTRA;
    return {{{get<I>(extras_) + offset(extras[I], row, column)}...}};
  }

  template <size_t... I>
  __device__ __forceinline__ bool extras_have_vectors(std::index_sequence<I...>) const {
    if constexpr (ANY_REPEATED) {
      const MatrixOperand* extras = problem_.operands + Problem::FIRST_EXTRA;
      return (true && ... && (extras[I].has_column_vectors || extras[I].column_stride == 0));
    } else {
      return (true && ... && problem_.operands[Problem::FIRST_EXTRA + I].has_column_vectors);
    }
  }

  template <unsigned KNOWN, unsigned BY_PLACE, size_t... I>
  __host__ __device__ static constexpr bool are_known(std::index_sequence<I...>) {
    return (true && ... &&
            ((KNOWN >> I & 1) != 0 && ((BY_PLACE >> I & 1) == 0 || sizeof(Extra) == 2)));
  }
  template <class Masks, size_t... I>
  __device__ __forceinline__ bool extras_have_lines(std::index_sequence<I...>) const {
    const MatrixOperand* extras = problem_.operands + Problem::FIRST_EXTRA;
    return (true && ... &&
            ((Masks::BY_PLACE >> I & 1) != 0    ? extras[I].has_wide_vectors
             : (Masks::BY_COLUMN >> I & 1) != 0 ? extras[I].has_column_vectors
                                                : true));
  }
  template <int WIDTH, class Joined, size_t... I>
  __device__ __forceinline__ Vector<Out, WIDTH> joined_inside(const Sums<WIDTH>& sums,
                                                              const Joined& joining,
                                                              const Place& place, int rows,
                                                              int columns,
                                                              std::index_sequence<I...>) const {
    const Pack<Vector<Extra, WIDTH>...> extras = {{{get<I>(joining).template all<WIDTH>()}...}};
    return compute_joined(sums, place.row + rows, place.column + columns, extras, Indices());
  }
  template <int WIDTH, size_t... I>
  __device__ __forceinline__ Vector<Out, WIDTH> joined_at(const Sums<WIDTH>& sums,
                                                          const Place& place, int rows, int columns,
                                                          std::index_sequence<I...>) const {
    const MatrixOperand* operands = problem_.operands + Problem::FIRST_EXTRA;
    const Pack<Vector<Extra, WIDTH>...> extras = {{{load_inner_columns<Extra, WIDTH>(
        get<I>(place.joining) + rows * operands[I].row_stride, operands[I], columns)}...}};
    return compute_joined(sums, place.row + rows, place.column + columns, extras, Indices());
  }
  template <size_t... I>
  __device__ __forceinline__ void ask_for(int row, int column, std::index_sequence<I...>) const {
    const MatrixOperand* extras = problem_.operands + Problem::FIRST_EXTRA;
    ((extras[I].row_stride == 0 || extras[I].column_stride == 0
          ? void()
          : prefetch(get<I>(extras_) + offset(extras[I], row, column))),
     ...);
  }
  template <int WIDTH, class Masks, unsigned WHICH, size_t... I>
  __device__ __forceinline__ Joining<WIDTH, Masks> fetch_joining(const Place& place, int rows,
                                                                 int columns,
                                                                 std::index_sequence<I...>) const {
    return {{{fetch_extra<I, Extra, WIDTH, Masks, WHICH>(place, rows, columns)}...}};
  }
  template <size_t I, class E, int WIDTH, class Masks, unsigned WHICH>
  __device__ __forceinline__ auto fetch_extra(const Place& place, int rows, int columns) const {
    constexpr bool BY_ROW = (Masks::BY_ROW >> I & 1) != 0;
    constexpr bool BY_COLUMN = (Masks::BY_COLUMN >> I & 1) != 0;
    constexpr bool HAS_COLUMNS = BY_COLUMN || (Masks::BY_PLACE >> I & 1) != 0;
    constexpr int COUNT = BY_ROW ? 1 : WIDTH;
    if constexpr ((WHICH >> I & 1) == 0) {
      return Fetched<E, COUNT>{};
    } else {
      const MatrixOperand& extra = problem_.operands[Problem::FIRST_EXTRA + I];
      const int64_t below = BY_COLUMN ? 0 : rows * extra.row_stride;
      return fetch_columns<E, COUNT, HAS_COLUMNS>(get<I>(place.joining) + below, extra, columns);
    }
  }
  template <int WIDTH, class Masks, unsigned WHICH, size_t... I>
  __device__ __forceinline__ Joining<WIDTH, Masks> fetch_each_joining(
      const Place& place, int columns, int valid, std::index_sequence<I...>) const {
    return {{{fetch_each_extra<I, Extra, WIDTH, Masks, WHICH>(place, columns, valid)}...}};
  }
  template <size_t I, class E, int WIDTH, class Masks, unsigned WHICH>
  __device__ __forceinline__ auto fetch_each_extra(const Place& place, int columns,
                                                   int valid) const {
    using Found = Fetched<E, (Masks::BY_ROW >> I & 1) != 0 ? 1 : WIDTH>;
    if constexpr ((WHICH >> I & 1) == 0) {
      return Found{};
    } else {
      const MatrixOperand& extra = problem_.operands[Problem::FIRST_EXTRA + I];
      const E* const from = get<I>(place.joining) + columns * extra.column_stride;
      Vector<E, WIDTH> values = {};
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        if (i < valid) values.element[i] = load_constant(from + i * extra.column_stride);
      }
      static_assert(sizeof(Found) == sizeof(values), "as they are in memory");
      return reinterpret_cast<const Found&>(values);
    }
  }
  template <class Masks, class Joined, size_t... I>
  __device__ __forceinline__ static Joined merge_joining(const Joined& of_row,
                                                         const Joined& of_columns,
                                                         const Joined& own,
                                                         std::index_sequence<I...>) {
    return {{{get<I>((Masks::BY_ROW >> I & 1) != 0      ? of_row
                     : (Masks::BY_COLUMN >> I & 1) != 0 ? of_columns
                                                        : own)}...}};
  }
  template <int WIDTH, class Masks, size_t... I>
  __host__ __device__ static constexpr int count_own_bytes(std::index_sequence<I...>) {
    constexpr unsigned SHARED = Masks::BY_ROW | Masks::BY_COLUMN;
    return (0 + ... + ((SHARED >> I & 1) != 0 ? 0 : Fetched<Extra, WIDTH>::WORDS * 4));
  }

  template <int WIDTH>
  __device__ __forceinline__ Vector<Out, WIDTH> compute(const Sums<WIDTH>& sums, int64_t row,
                                                        int64_t column) const {
    Vector<Out, WIDTH> values;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      values.element[i] = element(row, column + i, sums.element[i]);
    }
    return values;
  }

  template <int WIDTH, size_t... I>
  __device__ __forceinline__ Vector<Out, WIDTH> compute_joined(
      const Sums<WIDTH>& sums, int64_t row, int64_t column,
      const Pack<Vector<Extra, WIDTH>...>& extras, std::index_sequence<I...>) const {
    Vector<Out, WIDTH> values;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      values.element[i] =
          element(row, column + i, sums.element[i], widen(get<I>(extras).element[i])...);
    }
    return values;
  }

  template <class... Values>
  __device__ __forceinline__ Out element(int64_t row, int64_t column, Values... read) const {
    if constexpr (ANY_LOCATED) {
      const bool turned = problem_.is_transposed;
      return narrow<Out>(
          apply_at(problem_.epilogue, turned ? column : row, turned ? row : column, read...));
    } else {
      return narrow<Out>(problem_.epilogue(read...));
    }
  }

  const Problem& problem_;
  Out* out_;
  [[maybe_unused]] uint32_t* keys_ = problem_.keys;
  [[maybe_unused]] Pack<const Extra*...> extras_ = {};
};
