#pragma once
// How a block copies bands of planes, and their filters, to shared memory.

#include "async_copy.cuh"
#include "window_band_parameters.cuh"

template <class Config, class Problem>
struct BandStaging {
  using Parameters = BandParameters<Config, Problem>;
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Out = typename Problem::Out;
  using Place = typename Problem::Place;
  using Staged = typename Parameters::Staged;
  using Band = typename Parameters::Band;
  using Rows = typename Parameters::Rows;
  using Columns = typename Parameters::Columns;
  static constexpr int THREADS = Config::THREADS, VECTOR = Config::VECTOR;
  static constexpr int FILTER = Parameters::FILTER, PARTS = Parameters::PARTS;

  template <class T>
  using OneVector = Vector<T, VECTOR>;
  using Inputs = typename Problem::template BeforePack<OneVector>;

  const Parameters& parameters;
  char* const memory;
  const uint32_t first;  // band
  const int bands;       // of this block

  __device__ __forceinline__ BandStaging(const Parameters& parameters, char* memory)
      : parameters(parameters),
        memory(memory),
        first(blockIdx.x * static_cast<uint32_t>(parameters.own)),
        bands(static_cast<int>(
            min(static_cast<uint32_t>(parameters.own), parameters.count - first))) {}

  __device__ __forceinline__ Band* table() const { return reinterpret_cast<Band*>(memory); }
  __device__ __forceinline__ Value* filters() const {
    return reinterpret_cast<Value*>(memory + parameters.filters_at);
  }
  __device__ __forceinline__ Out* results() const {
    return reinterpret_cast<Out*>(memory + parameters.results_at);
  }

  __host__ __device__ static constexpr bool is_repeated(int operand) {
    return (Config::REPEATED >> operand & 1) != 0;
  }

  // Finds the bands.
  __device__ __forceinline__ void prepare() const {
    const Problem& problem = parameters.problem;
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x); at < bands; at += THREADS) {
      Band& band = table()[at];
      const uint32_t index = first + static_cast<uint32_t>(at);
      const uint32_t plane = parameters.bands.quotient(index);
      locate(plane, band.offsets);
      band.plane = static_cast<int>(plane);
      band.begin = static_cast<int>(index - plane * parameters.bands.value()) * parameters.steps;
      band.end = min(band.begin + parameters.steps, static_cast<int>(problem.result.height));
      band.from = max(band.begin * Rows::STRIDE - Rows::PADDING, 0);
      band.to = min((band.end - 1) * Rows::STRIDE - Rows::PADDING + Rows::SPAN,
                    static_cast<int>(problem.source.height));
    }
  }

  // `Window::locate` of numbers that are small.
  __device__ __forceinline__ void locate(uint32_t plane,
                                         int64_t (&offsets)[Problem::OPERANDS]) const {
    const Problem& problem = parameters.problem;
#pragma unroll
    for (int o = 0; o < Problem::OPERANDS; ++o) offsets[o] = 0;
#pragma unroll 1
    for (int d = problem.plane_rank - 1; d >= 0; --d) {
      const uint32_t above = parameters.plane_sizes[d].quotient(plane);
      const auto index = static_cast<int>(plane - above * parameters.plane_sizes[d].value());
      plane = above;
#pragma unroll
      for (int o = 0; o < Problem::OPERANDS; ++o) offsets[o] += index * problem.plane_strides[d][o];
    }
  }

  template <class T, int OPERAND>
  __device__ __forceinline__ const T* address(const Band& band, int row, int column) const {
    const Extents& stride = parameters.problem.strides[OPERAND];
    return reinterpret_cast<const T*>(parameters.problem.data[OPERAND]) + band.offsets[OPERAND] +
           row * stride.height + (is_repeated(OPERAND) ? 0 : column);
  }
  template <class T, int OPERAND>
  __device__ __forceinline__ void load(Vector<T, VECTOR>& vector, const Band& band, int row,
                                       int column) const {
    const T* const source = address<T, OPERAND>(band, row, column);
    if constexpr (is_repeated(OPERAND)) {
      const T value = load_constant(source);
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) vector.element[i] = value;
    } else {
      vector = load_constant_vector<VECTOR>(source);
    }
  }
  template <class... Ts, size_t... AT>
  __device__ __forceinline__ void load_all(Pack<Vector<Ts, VECTOR>...>& inputs, const Band& band,
                                           int row, int column, std::index_sequence<AT...>) const {
    (load<Ts, 1 + static_cast<int>(AT)>(get<AT>(inputs), band, row, column), ...);
  }
  template <size_t... AT>
  __device__ __forceinline__ Value staged(const Place& at, const Inputs& inputs, int i,
                                          std::index_sequence<AT...>) const {
    return parameters.problem.operation.prologue(at, widen(get<AT>(inputs).element[i])...);
  }

  // One access of a row that is staged: which it is, and whether the source has it.
  struct Item {
    int band, row, column, to;
    bool is_inside;
  };
  __device__ __forceinline__ Item item(int at, int count) const {
    Item it;
    const auto index = static_cast<uint32_t>(min(at, count - 1));
    const uint32_t row = parameters.vectors.quotient(index);
    it.band = static_cast<int>(parameters.item_rows.quotient(row));
    it.column = static_cast<int>(index - row * parameters.vectors.value()) * VECTOR;
    it.row = table()[it.band].from + static_cast<int>(row) - it.band * parameters.staged_rows;
    it.to = static_cast<int>(index) * VECTOR;
    it.is_inside = at < count && it.row < table()[it.band].to;
    return it;
  }

  // Starts the copies; `wait_for_part` waits for them.
  __device__ __forceinline__ void stage() const {
    if (parameters.staging == Parameters::Staging::RUN) {
      if constexpr (Operation::IS_COPIED) stage_run();
    } else if (parameters.staging == Parameters::Staging::PARTS) {
      if constexpr (Parameters::IS_ASYNC) stage_parts();
    } else {
      const int count =
          bands * parameters.staged_rows * static_cast<int>(parameters.vectors.value());
#pragma unroll 1
      for (int at = static_cast<int>(threadIdx.x); at < count; at += BATCH * THREADS) {
        stage_some(at, count);
      }
    }
  }

  // Where the tile begins: a run begins as far past an aligned address as it does in memory.
  __device__ __forceinline__ Staged* tile() const {
    Staged* const aligned = reinterpret_cast<Staged*>(memory + parameters.tile_at);
    if constexpr (Operation::IS_COPIED) {
      const auto run = reinterpret_cast<uintptr_t>(address<Staged, 1>(*table(), 0, 0));
      const bool is_run = parameters.staging == Parameters::Staging::RUN;
      return aligned + (is_run ? run % MAX_ACCESS_BYTES / sizeof(Staged) : 0);
    } else {
      return aligned;
    }
  }

  __device__ __forceinline__ void stage_run() const {
    constexpr int WIDE = Parameters::WIDEST;
    const Staged* const source = address<Staged, 1>(*table(), 0, 0);
    Staged* const to = tile();
    const int shift = static_cast<int>(to - reinterpret_cast<Staged*>(memory + parameters.tile_at));
    const int count =
        bands * parameters.staged_rows * static_cast<int>(parameters.problem.source.width);
    // The first and the last vector may be partly outside. Nothing is unrolled that runs once: its
    // instructions would have to come from memory first.
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x) * WIDE - shift; at < count; at += THREADS * WIDE) {
      if (at >= 0 && at + WIDE <= count) {
        copy_async<MAX_ACCESS_BYTES>(to + at, source + at, true);
      } else {
#pragma unroll 1
        for (int i = max(at, 0); i < min(at + WIDE, count); ++i) to[i] = source[i];
      }
    }
    // It is the first of as many groups as parts would be.
#pragma unroll
    for (int part = 0; part < PARTS; ++part) commit_copies();
  }

  __device__ __forceinline__ void stage_parts() const {
    const auto lanes = static_cast<int>(parameters.team.value());
    const auto team = static_cast<int>(parameters.team.quotient(threadIdx.x));
    const int lane = static_cast<int>(threadIdx.x) - team * lanes;
    const auto teams = static_cast<int>(parameters.team.quotient(THREADS));
    const auto width = static_cast<int>(parameters.problem.source.width);
#pragma unroll 1
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll 1
      for (int at = team; at < bands; at += teams) {
        const Band& band = table()[at];
        const int first_row = part * parameters.part_rows;
        const int rows = min(parameters.part_rows, band.to - band.from - first_row);
        const Staged* source = address<Staged, 1>(band, band.from + first_row, 0);
        Staged* const to = tile() + (at * parameters.staged_rows + first_row) * width;
#pragma unroll 1
        for (int i = lane * VECTOR; i < rows * width; i += lanes * VECTOR) {
          copy_async<Parameters::BYTES>(to + i, source + i, true);
        }
      }
      commit_copies();
    }
  }

  __device__ __forceinline__ static void wait_for_part(int part) {
    if (part == 0) wait_copies<PARTS - 1>();
    if (part == 1) wait_copies < PARTS<2 ? 0 : PARTS - 2>();
    if (part == 2) wait_copies < PARTS<3 ? 0 : PARTS - 3>();
    if (part == 3) wait_copies<0>();
    static_assert(PARTS <= 4, "a line for each");
    __syncthreads();
  }

  // Accesses in flight.
  static constexpr int BATCH = VECTOR > 2 ? 16 / VECTOR : 8;

  __device__ __forceinline__ void stage_some(int first_item, int count) const {
    Inputs inputs[BATCH];
    Item items[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      items[b] = item(first_item + b * THREADS, count);
      if (items[b].is_inside) {
        load_all(inputs[b], table()[items[b].band], items[b].row, items[b].column,
                 typename Problem::BeforeIndices());
      }
    }
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      const Item& it = items[b];
      if (!it.is_inside) continue;
      Vector<Staged, VECTOR> values;
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) {
        const Place place{parameters.problem.plane_shape, table()[it.band].plane, 0, it.row,
                          it.column + i};
        values.element[i] =
            narrow<Staged>(staged(place, inputs[b], i, typename Problem::BeforeIndices()));
      }
      store_vector(tile() + it.to, values);
    }
  }

  // Copies the filters, a warp for each.
  __device__ __forceinline__ void stage_filters() const {
    constexpr int TIMES = (FILTER + 31) / 32, WEIGHTS = Problem::WEIGHTS;
    const Problem& problem = parameters.problem;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int64_t own[TIMES];
#pragma unroll
    for (int i = 0; i < TIMES; ++i) {
      const int tap = min(i * 32 + lane, Parameters::TAPS - 1);
      own[i] = tap / Columns::SIZE * problem.strides[WEIGHTS].height +
               tap % Columns::SIZE * problem.strides[WEIGHTS].width;
    }
#pragma unroll 2
    for (int band = static_cast<int>(threadIdx.x) / 32; band < bands; band += THREADS / 32) {
#pragma unroll
      for (int i = 0; i < TIMES; ++i) {
        int64_t offsets[Problem::OPERANDS];
        offsets[WEIGHTS] = table()[band].offsets[WEIGHTS] + own[i];
        // Those behind the last tap have some weight, which nobody uses.
        const Value weight = problem.weight(offsets, 0, 0, 0);
        if (i * 32 + lane < FILTER) filters()[band * FILTER + i * 32 + lane] = weight;
      }
    }
  }
};
