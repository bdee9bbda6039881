#pragma once
// A block at work on bands of planes (window_band_parameters.cuh).

#include <cstring>

#include "window_band_staging.cuh"

template <class Config, class Problem>
struct WindowBands : BandStaging<Config, Problem> {
  using Base = BandStaging<Config, Problem>;
  using Parameters = BandParameters<Config, Problem>;
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Out = typename Problem::Out;
  using Place = typename Problem::Place;
  using Staged = typename Parameters::Staged;
  using Band = typename Parameters::Band;
  using Rows = typename Parameters::Rows;
  using Columns = typename Parameters::Columns;
  static constexpr int THREADS = Config::THREADS;
  static constexpr int OUTPUTS = Config::OUTPUTS, STORE = Config::STORE;
  static constexpr int ACCESS = Parameters::ACCESS, ACCESSES = Parameters::ACCESSES;
  static constexpr int FILTER = Parameters::FILTER, PARTS = Parameters::PARTS;
  // Rows of the result before the newest of which a row of the source is in a window.
  static constexpr int OLDER = (Rows::SPAN - 1) / Rows::STRIDE;

  template <class T>
  using One = T;
  using AfterValues = typename Problem::template AfterPack<One>;
  using Totals = Value[OUTPUTS];

  using Base::Base;

  // Bit e: a window takes element e of a thread's accesses.
  __host__ __device__ static constexpr uint64_t used_columns() {
    uint64_t used = 0;
    for (int x = 0; x < OUTPUTS; ++x) {
      for (int k = 0; k < Columns::SIZE; ++k) {
        used |= uint64_t{1} << (Parameters::OFFSET + x * Columns::STRIDE + k * Columns::DILATION);
      }
    }
    return used;
  }
  static_assert(ACCESSES * ACCESS <= 64 && ACCESSES <= 32, "a word has a bit for each of them");
  __device__ static constexpr unsigned used(int access) {
    constexpr uint64_t COLUMNS = used_columns();
    return static_cast<unsigned>(COLUMNS >> (access * ACCESS)) & ((1u << ACCESS) - 1);
  }

  // Short elements stay two in a register: taken apart, each would be chosen by itself.
  __device__ __forceinline__ static Vector<Staged, ACCESS> load_or_zeros(const Staged* address,
                                                                         bool is_inside) {
    if constexpr (sizeof(Staged) == 2 && ACCESS % 2 == 0) {
      Vector<unsigned, ACCESS / 2> words = {};
      if (is_inside) {
        words = load_vector<ACCESS / 2>(reinterpret_cast<const unsigned*>(address));
      }
      Vector<Staged, ACCESS> own;
#pragma unroll
      for (int i = 0; i < ACCESS / 2; ++i) {
        unsigned word = words.element[i];
        asm volatile("" : "+r"(word));
        memcpy(&own.element[2 * i], &word, sizeof(word));
      }
      return own;
    } else {
      Vector<Staged, ACCESS> own = {};
      if (is_inside) own = load_vector<ACCESS>(address);
      return own;
    }
  }

  // What a thread reads of a row, computed with. `inside`: a bit for each access; others are zeros.
  __device__ __forceinline__ static void load_row(Value (&values)[ACCESSES * ACCESS],
                                                  const Staged* row, unsigned inside) {
#pragma unroll
    for (int v = 0; v < ACCESSES; ++v) {
      Vector<Staged, ACCESS> own = {};
      const bool is_inside = (inside >> v & 1) != 0;
      if ((used(v) & (used(v) - 1)) != 0) own = load_or_zeros(row + v * ACCESS, is_inside);
#pragma unroll
      for (int i = 0; i < ACCESS; ++i) {
        // One element alone is used.
        if (is_inside && used(v) == 1u << i) own.element[i] = row[v * ACCESS + i];
        if ((used(v) >> i & 1) != 0) values[v * ACCESS + i] = widened(own, i);
      }
    }
  }

  // One of two numbers in a register is where float has it but for a shift or a mask: taken out by
  // itself, it needs one instruction more.
  __device__ __forceinline__ static Value widened(const Vector<Staged, ACCESS>& vector, int i) {
    if constexpr (Operation::IS_UPPER_HALF && ACCESS % 2 == 0) {
      unsigned word;
      memcpy(&word, &vector.element[i / 2 * 2], sizeof(word));
      return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    } else {
      return static_cast<Value>(widen(vector.element[i]));
    }
  }

  // The sums of one thread's columns: [m] is that of the row m before the newest.
  struct Sums {
    Value weights[Rows::SIZE][Columns::SIZE];
    Totals totals[OLDER + 1];

    __device__ __forceinline__ void begin_row() {
#pragma unroll
      for (int m = OLDER; m >= 0; --m) {
#pragma unroll
        for (int x = 0; x < OUTPUTS; ++x) totals[m][x] = m == 0 ? Value(0) : totals[m - 1][x];
      }
    }
    // Whether a window takes row S of those that it moves by.
    __host__ __device__ static constexpr bool takes(int s) {
      bool is = false;
      for (int j = 0; j < Rows::SIZE; ++j) {
        is = is || (j * Rows::DILATION >= s && (j * Rows::DILATION - s) % Rows::STRIDE == 0);
      }
      return is;
    }
    // Adds such a row.
    __device__ __forceinline__ void add(int s, const Value (&row)[ACCESSES * ACCESS]) {
#pragma unroll
      for (int j = Rows::SIZE - 1; j >= 0; --j) {
        if (j * Rows::DILATION < s || (j * Rows::DILATION - s) % Rows::STRIDE != 0) continue;
        Totals& own = totals[(j * Rows::DILATION - s) / Rows::STRIDE];
#pragma unroll
        for (int k = 0; k < Columns::SIZE; ++k) {
#pragma unroll
          for (int x = 0; x < OUTPUTS; ++x) {
            own[x] += weights[j][k] *
                      row[Parameters::OFFSET + x * Columns::STRIDE + k * Columns::DILATION];
          }
        }
      }
    }
  };

  // Where a thread writes.
  struct Target {
    const Band& band;
    int column;
    Out* results;  // of the band's first row
    AfterValues after;
  };

  template <size_t AT, class T>
  __device__ __forceinline__ void load_after(const Target& target, T& value) const {
    constexpr int OPERAND = Problem::FIRST_AFTER + static_cast<int>(AT);
    if constexpr (Base::is_repeated(OPERAND)) {
      value = load_constant(reinterpret_cast<const T*>(this->parameters.problem.data[OPERAND]) +
                            target.band.offsets[OPERAND]);
    }
  }
  template <size_t... AT>
  __device__ __forceinline__ void load_after_all(Target& target, std::index_sequence<AT...>) const {
    (load_after<AT>(target, get<AT>(target.after)), ...);
  }
  template <size_t AT, class T>
  __device__ __forceinline__ auto after_value(const Target& target, const Place& at,
                                              const T& value) const {
    constexpr int OPERAND = Problem::FIRST_AFTER + static_cast<int>(AT);
    if constexpr (Base::is_repeated(OPERAND)) return widen(value);
    return widen(
        this->parameters.problem.template load<T, OPERAND>(target.band.offsets[OPERAND], at));
  }
  template <size_t... AT>
  __device__ __forceinline__ Out result(const Target& target, const Place& at, Value total,
                                        std::index_sequence<AT...>) const {
    return narrow<Out>(this->parameters.problem.operation.epilogue(
        at, total, after_value<AT>(target, at, get<AT>(target.after))...));
  }

  __device__ __forceinline__ void write(const Target& target, const Totals& totals, int row) const {
    const Problem& problem = this->parameters.problem;
    const auto width = static_cast<int>(problem.result.width);
    const bool is_gathered = !Parameters::IS_DIRECT && this->parameters.is_gathered;
    const int64_t stride = is_gathered ? width : problem.strides[0].height;
    Out* const to = target.results + (row - target.band.begin) * stride + target.column;
#pragma unroll
    for (int x = 0; x < OUTPUTS; x += STORE) {
      Vector<Out, STORE> own;
#pragma unroll
      for (int i = 0; i < STORE; ++i) {
        const Place at{problem.plane_shape, target.band.plane, 0, row,
                       min(target.column + x + i, width - 1)};
        own.element[i] = result(target, at, totals[x + i], typename Problem::AfterIndices());
      }
      if (target.column + x < width) store_vector(to + x, own);
    }
  }

  // The first element of the run of results, in memory; elements of it before an aligned address.
  __device__ __forceinline__ Out* run(int& shift) const {
    const Extents& size = this->parameters.problem.result;
    Out* const out = reinterpret_cast<Out*>(this->parameters.problem.data[0]) +
                     (this->table()->plane * size.height + this->table()->begin) * size.width;
    shift = static_cast<int>(reinterpret_cast<uintptr_t>(out) % MAX_ACCESS_BYTES / sizeof(Out));
    return out;
  }
  // Rows of the run before a row of a band.
  __device__ __forceinline__ int rows_before(const Band& band, int row) const {
    const int planes = band.plane - this->table()->plane;
    return planes * static_cast<int>(this->parameters.problem.result.height) + row -
           this->table()->begin;
  }

  __device__ __forceinline__ Target target_of(int band, int group) const {
    const Problem& problem = this->parameters.problem;
    Target target{this->table()[band], group * OUTPUTS};
    load_after_all(target, typename Problem::AfterIndices());
    const int begin = target.band.begin;
    if (Parameters::IS_DIRECT || !this->parameters.is_gathered) {
      target.results = reinterpret_cast<Out*>(problem.data[0]) + target.band.offsets[0] +
                       begin * problem.strides[0].height;
    } else {
      int shift;
      run(shift);
      const int rows = rows_before(target.band, begin);
      target.results = this->results() + shift + rows * static_cast<int>(problem.result.width);
    }
    return target;
  }

  __device__ __forceinline__ void load_filter(Sums& sums, int band) const {
    Vector<Value, 4> own[FILTER / 4];
#pragma unroll
    for (int v = 0; v < FILTER / 4; ++v) {
      own[v] = load_vector<4>(this->filters() + band * FILTER + v * 4);
    }
#pragma unroll
    for (int i = 0; i < Parameters::TAPS; ++i) {
      sums.weights[i / Columns::SIZE][i % Columns::SIZE] = own[i / 4].element[i % 4];
    }
  }

  // One thread's columns of a band, as its parts come. Threads beyond the last band go along,
  // because all wait for the copies of all.
  __device__ __forceinline__ void multiply(uint32_t thread) const {
    const auto wanted = static_cast<int>(this->parameters.groups.quotient(thread));
    const int band = min(wanted, this->bands - 1);
    const int group =
        static_cast<int>(thread) - wanted * static_cast<int>(this->parameters.groups.value());
    const Target target = target_of(band, group);
    const int begin = target.band.begin, end = wanted < this->bands ? target.band.end : -OLDER;
    const int from = target.band.from, rows = target.band.to - from;
    const int column = group * Parameters::ACROSS - Columns::PADDING - Parameters::OFFSET;
    const auto width = static_cast<int>(this->parameters.problem.source.width);
    unsigned inside = 0;
#pragma unroll
    for (int v = 0; v < ACCESSES; ++v) {
      const int at = column + v * ACCESS;
      if (at >= 0 && at < width) inside |= 1u << v;
    }
    const Staged* const own = this->tile() + band * this->parameters.staged_rows * width + column;
    Sums sums;
    this->wait_for_part(0);
    load_filter(sums, band);
#pragma unroll
    for (int m = 0; m <= OLDER; ++m) {
#pragma unroll
      for (int x = 0; x < OUTPUTS; ++x) sums.totals[m][x] = Value(0);
    }
    // Rows outside of the source add nothing: what is left out is whole steps of them.
    int newest = max(begin, min(Rows::PADDING / Rows::STRIDE, begin + OLDER));
    const int last = min(end + OLDER, (from + rows - 1 + Rows::PADDING) / Rows::STRIDE + 1);
#pragma unroll 1
    for (int part = 0;;) {
      const int there = (part + 1) * this->parameters.part_rows;
      const int after = part + 1 < PARTS && there < rows
                            ? min(last, (there + from + Rows::PADDING) / Rows::STRIDE)
                            : last;
#pragma unroll 1
      for (; newest < after; ++newest) {
        sums.begin_row();
#pragma unroll
        for (int s = 0; s < Rows::STRIDE; ++s) {
          if (!Sums::takes(s)) continue;
          const int row = newest * Rows::STRIDE + s - Rows::PADDING - from;
          const bool is_inside = static_cast<unsigned>(row) < static_cast<unsigned>(rows);
          Value values[ACCESSES * ACCESS];
          load_row(values, own + row * width, is_inside ? inside : 0);
          sums.add(s, values);
        }
        if (newest - OLDER >= begin) write(target, sums.totals[OLDER], newest - OLDER);
      }
      if (++part == PARTS) break;
      this->wait_for_part(part);
    }
#pragma unroll 1
    for (; newest < end + OLDER; ++newest) {
      sums.begin_row();
      if (newest - OLDER >= begin) write(target, sums.totals[OLDER], newest - OLDER);
    }
  }

  // Copies the results, of which rows are no whole vectors, in vectors all the same.
  __device__ __forceinline__ void copy_results() const {
    constexpr int WIDE = MAX_ACCESS_BYTES / static_cast<int>(sizeof(Out));
    int shift;
    Out* const out = run(shift);
    const Band& last = this->table()[this->bands - 1];
    const int count =
        rows_before(last, last.end) * static_cast<int>(this->parameters.problem.result.width);
    const Out* const own = this->results() + shift;
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x) * WIDE - shift; at < count; at += THREADS * WIDE) {
      if (at >= 0 && at + WIDE <= count) {
        store_vector(out + at, load_vector<WIDE>(own + at));
      } else {
#pragma unroll 1
        for (int i = max(at, 0); i < min(at + WIDE, count); ++i) out[i] = own[i];
      }
    }
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void window_bands(const BandParameters<Config, Problem>& parameters) {
  wait_for_previous_kernel();
  extern __shared__ __align__(16) char band_memory[];
  const WindowBands<Config, Problem> block(parameters, band_memory);
  block.prepare();
  __syncthreads();
  block.stage();
  block.stage_filters();
  block.multiply(threadIdx.x);
  if (!BandParameters<Config, Problem>::IS_DIRECT && parameters.is_gathered) {
    __syncthreads();
    block.copy_results();
  }
}
