#pragma once
// What a thread reads of neighbouring channels (window_channel_parameters.cuh): rows of the source,
// the next one on its way while the one before is multiplied, and weights through shared memory.

#include "window_channel_access.cuh"
#include "window_channel_parameters.cuh"

template <class Config, class Problem>
struct ChannelReads {
  using Parameters = ChannelParameters<Config, Problem>;
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Place = typename Problem::Place;
  using Rows = typename Parameters::Rows;
  using Columns = typename Parameters::Columns;
  static constexpr int THREADS = Config::THREADS, VECTOR = Config::VECTOR;
  static constexpr int OUTPUTS = Config::OUTPUTS, READS = Parameters::READS;
  static constexpr int LANES = Parameters::LANES;
  static constexpr int TAPS = Rows::SIZE * Columns::SIZE;
  // Rows of the result before the newest of which a row of the source is in a window.
  static constexpr int OLDER = (Rows::SPAN - 1) / Rows::STRIDE;
  // Products of a row of the window. Where they are many, those for rows of the result that are
  // another segment's are left out, which takes a branch.
  static constexpr bool SKIPS = Columns::SIZE * OUTPUTS * VECTOR >= 32;
  // Whether the source has every row that a step takes.
  static constexpr bool HAS_ROWS = Rows::STRIDE == 1 && Rows::PADDING <= OLDER;
  // Weights of a thread, and from those of one to those of the next in shared memory: a number of
  // vectors that is odd, so that lanes find theirs in different banks.
  static constexpr int WEIGHTS = TAPS * VECTOR, WIDE = MAX_ACCESS_BYTES / sizeof(Value);
  static constexpr int VECTORS = (WEIGHTS + WIDE - 1) / WIDE | 1;
  static constexpr int PITCH = VECTORS * WIDE;
  static_assert(LANES * PITCH * sizeof(Value) <= 48 << 10, "static shared memory");

  template <class T>
  struct SourceRow {
    ChannelAccess<T, VECTOR> at[READS];
  };
  using Inputs = typename Problem::template BeforePack<SourceRow>;
  using Values = Value[READS][VECTOR];

  const Parameters& parameters;
  // Addresses of the first element that the thread reads or writes of a row: of operands of the
  // prologue in the next row that it asks for, of others in the next one that it writes.
  char* at[Problem::WEIGHTS];
  int plane, begin, end;  // rows of the result
  int column, channel;    // of the result
  int columns;            // of the result, from there on
  int limit;              // end of the rows of the source
  unsigned inside;        // a bit for each column that is read: whether the source has it
  Value weights[Rows::SIZE][Columns::SIZE][VECTOR];

  __device__ __forceinline__ explicit ChannelReads(const Parameters& parameters)
      : parameters(parameters) {}

  // Whether a window takes row `s` of those that it moves by.
  __host__ __device__ static constexpr bool takes(int s) {
    bool is = false;
    for (int m = 0; m <= OLDER; ++m) is = is || tap_at(m * Rows::STRIDE + s) >= 0;
    return is;
  }
  // Row of the window that stands there; -1: none.
  __host__ __device__ static constexpr int tap_at(int position) {
    const int tap = position / Rows::DILATION;
    return position % Rows::DILATION == 0 && tap < Rows::SIZE ? tap : -1;
  }
  // From a row that is taken to the next one; every step takes its first.
  __host__ __device__ static constexpr int next_taken(int s) {
    int next = Rows::STRIDE;
    for (int later = Rows::STRIDE - 1; later > s; --later) {
      if (takes(later)) next = later;
    }
    return next - s;
  }
  // Bit v: some window takes column v of those that are read.
  __host__ __device__ static constexpr unsigned used_columns() {
    unsigned used = 0;
    for (int x = 0; x < OUTPUTS; ++x) {
      for (int k = 0; k < Columns::SIZE; ++k) {
        used |= 1u << (x * Columns::STRIDE + k * Columns::DILATION);
      }
    }
    return used;
  }
  static constexpr unsigned USED = used_columns();

  // Finds the thread's part; `tile`: of columns, in some segment of some plane.
  __device__ __forceinline__ void start(uint32_t tile, int first_channel, bool is_active) {
    const Problem& problem = parameters.problem;
    const uint32_t segment = parameters.tiles.quotient(tile);
    const uint32_t own_plane = parameters.segments.quotient(segment);
    plane = static_cast<int>(own_plane);
    channel = first_channel;
    column = static_cast<int>(tile - segment * parameters.tiles.value()) * OUTPUTS;
    columns = static_cast<int>(problem.result.height) - column;
    begin = static_cast<int>(segment - own_plane * parameters.segments.value()) * parameters.steps;
    end = is_active ? min(begin + parameters.steps, static_cast<int>(problem.result.depth)) : begin;
    const int last = (end - 1) * Rows::STRIDE - Rows::PADDING + Rows::SPAN;
    limit = is_active ? min(last, static_cast<int>(problem.source.depth)) : 0;
    const int first = column * Columns::STRIDE - Columns::PADDING;
    const int row = first_step() * Rows::STRIDE - Rows::PADDING;
    int64_t offsets[Problem::OPERANDS];
    problem.locate(plane, offsets);
#pragma unroll
    for (int o = 0; o < Problem::WEIGHTS; ++o) {
      const bool is_source = o > 0 && o < Problem::FIRST_AFTER;
      if (!Parameters::is_alike(o)) {
        offsets[o] += VECTOR > 1 ? channel : channel * problem.strides[o].width;
      }
      at[o] = problem.data[o] + offsets[o] * Problem::element_bytes(o) +
              int64_t{is_source ? first : column} * parameters.across[o];
      at[o] += int64_t{is_source ? row : begin} * parameters.down[o];
    }
    inside = 0;
#pragma unroll
    for (int v = 0; v < READS; ++v) {
      const auto place = static_cast<unsigned>(first + v);
      if ((USED >> v & 1) != 0 && place < static_cast<unsigned>(problem.source.height)) {
        inside |= 1u << v;
      }
    }
  }

  // Copies the weights of the channels from `first` on, so many groups of them, for all threads of
  // the block.
  __device__ __forceinline__ void share_weights(Value* filters, int first, int groups) const {
    const Problem& problem = parameters.problem;
    const int rest = static_cast<int>(problem.result.width) - first;
    const int count = min(groups * VECTOR, rest) * TAPS;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < count; i += THREADS) {
      int64_t at = int64_t{first} * TAPS + i;
      if (!parameters.are_weights_run) {
        const Extents& stride = problem.strides[Problem::WEIGHTS];
        const int own = first + i / TAPS, tap = i % TAPS;
        at = own * stride.width + tap / Columns::SIZE * stride.depth +
             tap % Columns::SIZE * stride.height;
      }
      filters[i + i / WEIGHTS * (PITCH - WEIGHTS)] = problem.weight_at(at);
    }
  }
  __device__ __forceinline__ void load_weights(const Value* filters, int group) {
    Vector<Value, WIDE> own[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const Value* const address = filters + group * PITCH + v * WIDE;
      if (v * WIDE + WIDE <= WEIGHTS) own[v] = load_vector<WIDE>(address);
#pragma unroll
      for (int e = 0; e < WEIGHTS % WIDE; ++e) {
        if (v == WEIGHTS / WIDE) own[v].element[e] = address[e];
      }
    }
#pragma unroll
    for (int i = 0; i < WEIGHTS; ++i) {
      weights[i % TAPS / Columns::SIZE][i % TAPS % Columns::SIZE][i / TAPS] =
          own[i / WIDE].element[i % WIDE];
    }
  }

  template <int OPERAND, class T>
  __device__ __forceinline__ void load_access(ChannelAccess<T, VECTOR>& access, const char* row,
                                              int x) const {
    const char* const address = row + int64_t{x} * parameters.across[OPERAND];
    if constexpr (Parameters::is_alike(OPERAND)) {
      access.repeat(address);
    } else {
      access.load(address);
    }
  }

  // What the source has of the next row; zeros beside it.
  template <int OPERAND, class T>
  __device__ __forceinline__ void load_row(SourceRow<T>& to, bool is_there) const {
    if (Parameters::is_of_plane(OPERAND)) return;
    if (is_there && (inside & USED) == USED) {
#pragma unroll
      for (int v = 0; v < READS; ++v) {
        if ((USED >> v & 1) != 0) load_access<OPERAND>(to.at[v], at[OPERAND], v);
      }
    } else if (is_there || !HAS_ROWS) {
#pragma unroll
      for (int v = 0; v < READS; ++v) {
        to.at[v].clear();
        if (is_there && (inside >> v & 1) != 0) load_access<OPERAND>(to.at[v], at[OPERAND], v);
      }
    }
  }
  template <class... Ts, size_t... AT>
  __device__ __forceinline__ void load_rows(Pack<SourceRow<Ts>...>& to, bool is_there,
                                            std::index_sequence<AT...>) const {
    (load_row<1 + static_cast<int>(AT)>(get<AT>(to), is_there), ...);
  }
  // What the prologue reads for the whole plane.
  template <int OPERAND, class T>
  __device__ __forceinline__ void load_plane(SourceRow<T>& to) const {
    if (Parameters::is_of_plane(OPERAND)) load_access<OPERAND>(to.at[0], at[OPERAND], 0);
  }
  template <class... Ts, size_t... AT>
  __device__ __forceinline__ void load_planes(Pack<SourceRow<Ts>...>& to,
                                              std::index_sequence<AT...>) const {
    (load_plane<1 + static_cast<int>(AT)>(get<AT>(to)), ...);
  }
  __device__ __forceinline__ bool has_row(int row) const {
    return static_cast<unsigned>(row) < static_cast<unsigned>(limit);
  }
  // Asks for a row, and goes on by so many.
  __device__ __forceinline__ void fetch(Inputs& inputs, int row, int step) {
    load_rows(inputs, has_row(row), typename Problem::BeforeIndices());
#pragma unroll
    for (int o = 1; o < Problem::FIRST_AFTER; ++o) at[o] += int64_t{step} * parameters.down[o];
  }

  template <size_t... AT>
  __device__ __forceinline__ Value pooled(const Inputs& inputs, int row, int v, int c,
                                          std::index_sequence<AT...>) const {
    if constexpr (Operation::IS_COPIED) {
      return static_cast<Value>(get<0>(inputs).at[v].template value<Operation::IS_UPPER_HALF>(c));
    } else {
      const int first = column * Columns::STRIDE - Columns::PADDING;
      const Place place{parameters.problem.plane_shape, plane, row, first + v, channel + c};
      const Value value = parameters.problem.operation.prologue(
          place, get<AT>(inputs)
                     .at[Parameters::is_of_plane(1 + static_cast<int>(AT)) ? 0 : v]
                     .template value<false>(c)...);
      return (inside >> v & 1) != 0 && (HAS_ROWS || has_row(row)) ? value : Value(0);
    }
  }
  // What is converted before several branches would be converted in each of them.
  __device__ __forceinline__ static void keep(Value& value) {
    if constexpr (sizeof(Value) == sizeof(unsigned)) {
      unsigned bits;
      memcpy(&bits, &value, sizeof(bits));
      asm volatile("" : "+r"(bits));
      memcpy(&value, &bits, sizeof(bits));
    }
  }
  __device__ __forceinline__ void convert(Values& values, const Inputs& inputs, int row) const {
#pragma unroll
    for (int v = 0; v < READS; ++v) {
#pragma unroll
      for (int c = 0; c < VECTOR; ++c) {
        if ((USED >> v & 1) != 0) {
          values[v][c] = pooled(inputs, row, v, c, typename Problem::BeforeIndices());
          if constexpr (SKIPS) keep(values[v][c]);
        }
      }
    }
  }

  // Rows outside of the source add nothing: what is left out is whole steps of them.
  __device__ __forceinline__ int first_step() const {
    return max(begin, min(Rows::PADDING / Rows::STRIDE, begin + OLDER));
  }
  __device__ __forceinline__ void fetch_first(Inputs& inputs) {
    if (begin < end) load_planes(inputs, typename Problem::BeforeIndices());
    fetch(inputs, first_step() * Rows::STRIDE - Rows::PADDING, next_taken(0));
  }
};
