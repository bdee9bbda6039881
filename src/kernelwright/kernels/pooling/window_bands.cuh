#pragma once
// Products with weights in windows of two dimensions, of planes whose rows are short: a block
// copies bands of planes to shared memory, or whole planes, and each thread
// goes down the rows of a band for a few neighbouring columns of the result. What it keeps are sums
// of the rows of the result that a row of the source is in, so that every element is converted once
// and no element stays. The results go to memory as they come, or, where rows are no whole vectors,
// through shared memory as one run.
// The operation has
//   Staged     the type that has what the prologue gives, without rounding
//   IS_COPIED  whether that is the element of its one operand
//   IS_UPPER_HALF  whether Staged is the upper half of Value
// A config has
//   THREADS    threads of a block
//   VECTOR     elements of the source that one access moves
//   OUTPUTS    columns of the result that a thread has
//   STORE      neighbouring ones of them that one access writes: if not all, results are one run
//   STEPS      rows of the result of a band, at most
//   BYTES      of shared memory, at most
//   REPEATED   a bit for each operand (the result is 0) of the prologue of which one element is for
//              all columns, and of the epilogue of which one is for a plane

#include <algorithm>
#include <cstring>

#include "async_copy.cuh"
#include "divide.cuh"
#include "window_plane.cuh"

template <class Config, class Problem_>
struct BandParameters {
  using Problem = Problem_;
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Out = typename Problem::Out;
  using Staged = typename Operation::Staged;
  using Rows = typename Operation::Height;
  using Columns = typename Operation::Width;
  static_assert(Problem::HAS_WEIGHTS && Operation::DIMS == 2, "planes and their filters");
  static constexpr int THREADS = Config::THREADS, VECTOR = Config::VECTOR;
  static constexpr int OUTPUTS = Config::OUTPUTS, STORE = Config::STORE;
  static constexpr bool IS_DIRECT = STORE == OUTPUTS;

  static constexpr int rounded_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

  // Neighbouring threads start ACROSS columns of the source apart, OFFSET before their own, at
  // whole accesses to shared memory: each of these is inside of a row or outside.
  static constexpr int ACROSS = OUTPUTS * Columns::STRIDE;
  static constexpr int WIDEST = MAX_ACCESS_BYTES / static_cast<int>(sizeof(Staged));
  static constexpr int WHOLE = VECTOR < WIDEST ? VECTOR : WIDEST;
  static constexpr int ACCESS = (ACROSS & -ACROSS) < WHOLE ? (ACROSS & -ACROSS) : WHOLE;
  static constexpr int OFFSET = rounded_up(Columns::PADDING, ACCESS) - Columns::PADDING;
  static constexpr int ACCESSES =
      rounded_up(OFFSET + (OUTPUTS - 1) * Columns::STRIDE + Columns::SPAN, ACCESS) / ACCESS;
  // Copies of whole accesses come in so many parts, of which each has some rows of every band:
  // while later ones are on their way, a thread goes down the first.
  static constexpr int BYTES = VECTOR * static_cast<int>(sizeof(Staged));
  static constexpr bool IS_ASYNC =
      Operation::IS_COPIED && (BYTES == 4 || BYTES == 8 || BYTES == 16);
  static constexpr int PARTS = IS_ASYNC ? 4 : 1;
  static constexpr int TAPS = Rows::SIZE * Columns::SIZE;
  // Elements from one filter to the next.
  static constexpr int FILTER = rounded_up(TAPS, 4);

  // What a block knows of one band.
  struct Band {
    int64_t offsets[Problem::OPERANDS];  // of its plane
    int plane, begin, end;               // rows of the result
    int from, to;                        // rows of the source
  };

  // How a block copies what it needs: as one run of whole planes, band by band in parts, or access
  // by access through registers.
  enum class Staging { RUN, PARTS, ACCESSES };

  Problem problem;
  Divisor plane_sizes[MAX_RANK];
  Divisor groups, bands, vectors;  // of a row; of a plane; of a row of the source
  Divisor team;                    // threads that copy a band
  Staging staging;
  int staged_rows, part_rows;                  // of a band, and of a part of it
  int steps;                                   // rows of the result of a band
  int own;                                     // bands of a block
  uint32_t count;                              // of all
  int filters_at, tile_at, results_at, bytes;  // of shared memory

  static BandParameters describe(const Problem& problem) {
    BandParameters it{problem};
    const auto width = static_cast<int>(problem.result.width);
    const auto height = static_cast<int>(problem.result.height);
    const auto source_width = static_cast<int>(problem.source.width);
    const int groups = (width + OUTPUTS - 1) / OUTPUTS;
    const int wanted = (height + Config::STEPS - 1) / Config::STEPS;
    it.steps = (height + wanted - 1) / wanted;
    const int bands = (height + it.steps - 1) / it.steps;
    it.staged_rows = static_cast<int>(
        std::min(problem.source.height, int64_t{(it.steps - 1) * Rows::STRIDE + Rows::SPAN}));
    for (int d = 0; d < problem.plane_rank; ++d) {
      it.plane_sizes[d] = Divisor(static_cast<uint32_t>(problem.plane_sizes[d]));
    }
    it.groups = Divisor(static_cast<uint32_t>(groups));
    it.bands = Divisor(static_cast<uint32_t>(bands));
    it.vectors = Divisor(static_cast<uint32_t>(source_width / VECTOR));
    it.count = static_cast<uint32_t>(problem.planes * bands);
    it.own = std::min(THREADS / groups, static_cast<int>(it.count));
    while (it.own > 0 && it.divide_memory(source_width, width) > Config::BYTES) --it.own;
    if (it.own == 0) return it;
    // As many for each block.
    const auto blocks = static_cast<int>(it.blocks());
    it.own = (static_cast<int>(it.count) + blocks - 1) / blocks;
    it.divide_memory(source_width, width);
    it.team = Divisor(static_cast<uint32_t>(32 * (THREADS / 32 / std::min(it.own, THREADS / 32))));
    it.staging = staging_of(problem, it.staged_rows, bands);
    const int parts = it.staging == Staging::PARTS ? PARTS : 1;
    it.part_rows = (it.staged_rows + parts - 1) / parts;
    return it;
  }

  int64_t blocks() const { return (int64_t{count} + own - 1) / own; }

  // Whether numbers are small, rows are whole accesses, and a band fits.
  static bool admits(const Problem& problem) {
    constexpr int64_t MOST = int64_t{1} << 30;
    const Extents &source = problem.source, &result = problem.result;
    const int64_t groups = (result.width + OUTPUTS - 1) / OUTPUTS;
    const int64_t row = std::max(source.width, result.width);
    if (source.width < 1 || source.width % VECTOR != 0 || result.width % STORE != 0 ||
        groups > THREADS || row * Config::STEPS > Config::BYTES || source.height >= MOST ||
        result.height >= MOST || problem.planes * result.height >= MOST) {
      return false;
    }
    for (int o = Problem::FIRST_AFTER; o < Problem::WEIGHTS; ++o) {
      const Extents& stride = problem.strides[o];
      if ((Config::REPEATED >> o & 1) != 0 && (stride.height != 0 || stride.width != 0)) {
        return false;
      }
    }
    return stores_whole(problem) && describe(problem).own > 0;
  }

 private:
  // Places the parts of shared memory; returns how many bytes they are.
  int divide_memory(int source_width, int width) {
    const auto whole = [](int64_t size) { return static_cast<int>((size + 15) / 16 * 16); };
    filters_at = whole(own * int64_t{sizeof(Band)});
    tile_at = filters_at + whole(int64_t{own} * FILTER * sizeof(Value));
    results_at = tile_at + whole(int64_t{own} * staged_rows * source_width * sizeof(Staged) + 16);
    const int64_t results = IS_DIRECT ? 0 : int64_t{own} * steps * width * sizeof(Out) + 16;
    bytes = results_at + whole(results);
    return bytes;
  }

  static Staging staging_of(const Problem& problem, int rows, int bands) {
    const Extents &source = problem.source, &stride = problem.strides[1];
    // Parts of a band that are shorter leave most of a warp without a copy.
    constexpr int64_t SHORTEST = 256;
    const int64_t part = rows * source.width * static_cast<int64_t>(sizeof(Staged)) / PARTS;
    const bool is_short = !IS_ASYNC || part < SHORTEST;
    if (Operation::IS_COPIED && is_short && bands == 1 && rows == source.height &&
        is_run_of_planes(problem, 1, source)) {
      return Staging::RUN;
    }
    const bool is_plain = stride.height == source.width || source.height == 1;
    return IS_ASYNC && is_plain ? Staging::PARTS : Staging::ACCESSES;
  }

  static bool stores_whole(const Problem& problem) {
    if (!IS_DIRECT) return is_run_of_planes(problem, 0, problem.result) && is_aligned(problem, 0);
    const Extents& stride = problem.strides[0];
    bool is = is_aligned(problem, 0) && (stride.width == 1 || OUTPUTS == 1);
    is = is && (stride.height % STORE == 0 || problem.result.height == 1);
    for (int d = 0; d < problem.plane_rank; ++d) {
      is = is && problem.plane_strides[d][0] % STORE == 0;
    }
    return is;
  }
  static bool is_aligned(const Problem& problem, int operand) {
    return reinterpret_cast<uintptr_t>(problem.data[operand]) % access_bytes(STORE * sizeof(Out)) ==
           0;
  }
};

// A block at work on its bands.
template <class Config, class Problem>
struct WindowBands {
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
  static constexpr int OUTPUTS = Config::OUTPUTS, STORE = Config::STORE;
  static constexpr int ACCESS = Parameters::ACCESS;
  static constexpr int ACCESSES = Parameters::ACCESSES, FILTER = Parameters::FILTER;
  static constexpr int PARTS = Parameters::PARTS;
  // Rows of the result before the newest of which a row of the source is in a window.
  static constexpr int OLDER = (Rows::SPAN - 1) / Rows::STRIDE;

  template <class T>
  using OneVector = Vector<T, VECTOR>;
  using Inputs = typename Problem::template BeforePack<OneVector>;
  template <class T>
  using One = T;
  using AfterValues = typename Problem::template AfterPack<One>;
  using Totals = Value[OUTPUTS];

  const Parameters& parameters;
  char* const memory;
  const uint32_t first;  // band
  const int bands;       // of this block

  __device__ __forceinline__ WindowBands(const Parameters& parameters, char* memory)
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
    it.band = static_cast<int>(row) / parameters.staged_rows;
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
    // The first and the last vector may be partly outside.
    for (int at = static_cast<int>(threadIdx.x) * WIDE - shift; at < count; at += THREADS * WIDE) {
      if (at >= 0 && at + WIDE <= count) {
        copy_async<MAX_ACCESS_BYTES>(to + at, source + at, true);
      } else {
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
    const auto width = static_cast<int>(parameters.problem.source.width);
#pragma unroll 1
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll 1
      for (int at = team; at < bands; at += THREADS / lanes) {
        const Band& band = table()[at];
        const int first_row = part * parameters.part_rows;
        const int rows = min(parameters.part_rows, band.to - band.from - first_row);
        const Staged* source = address<Staged, 1>(band, band.from + first_row, 0);
        Staged* const to = tile() + (at * parameters.staged_rows + first_row) * width;
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
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int band = static_cast<int>(threadIdx.x) / 32; band < bands; band += THREADS / 32) {
      const auto& offsets = table()[band].offsets;
      Value own[(FILTER + 31) / 32];
#pragma unroll
      for (int i = 0; i < (FILTER + 31) / 32; ++i) {
        const int tap = i * 32 + lane;
        own[i] = Value(0);
        if (tap < Parameters::TAPS) {
          own[i] = parameters.problem.weight(offsets, 0, tap / Columns::SIZE, tap % Columns::SIZE);
        }
      }
#pragma unroll
      for (int i = 0; i < (FILTER + 31) / 32; ++i) {
        if (i * 32 + lane < FILTER) filters()[band * FILTER + i * 32 + lane] = own[i];
      }
    }
  }

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
    if constexpr (is_repeated(OPERAND)) {
      value = load_constant(reinterpret_cast<const T*>(parameters.problem.data[OPERAND]) +
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
    if constexpr (is_repeated(OPERAND)) return widen(value);
    return widen(parameters.problem.template load<T, OPERAND>(target.band.offsets[OPERAND], at));
  }
  template <size_t... AT>
  __device__ __forceinline__ Out result(const Target& target, const Place& at, Value total,
                                        std::index_sequence<AT...>) const {
    return narrow<Out>(parameters.problem.operation.epilogue(
        at, total, after_value<AT>(target, at, get<AT>(target.after))...));
  }

  __device__ __forceinline__ void write(const Target& target, const Totals& totals, int row) const {
    const Problem& problem = parameters.problem;
    const auto width = static_cast<int>(problem.result.width);
    const int64_t stride = Parameters::IS_DIRECT ? problem.strides[0].height : width;
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
    const Extents& size = parameters.problem.result;
    Out* const out = reinterpret_cast<Out*>(parameters.problem.data[0]) +
                     (table()->plane * size.height + table()->begin) * size.width;
    shift = static_cast<int>(reinterpret_cast<uintptr_t>(out) % MAX_ACCESS_BYTES / sizeof(Out));
    return out;
  }
  // Rows of the run before a row of a band.
  __device__ __forceinline__ int rows_before(const Band& band, int row) const {
    const int planes = band.plane - table()->plane;
    return planes * static_cast<int>(parameters.problem.result.height) + row - table()->begin;
  }

  __device__ __forceinline__ Target target_of(int band, int group) const {
    const Problem& problem = parameters.problem;
    Target target{table()[band], group * OUTPUTS};
    load_after_all(target, typename Problem::AfterIndices());
    const int begin = target.band.begin;
    if constexpr (Parameters::IS_DIRECT) {
      target.results = reinterpret_cast<Out*>(problem.data[0]) + target.band.offsets[0] +
                       begin * problem.strides[0].height;
    } else {
      int shift;
      run(shift);
      const int rows = rows_before(target.band, begin);
      target.results = results() + shift + rows * static_cast<int>(problem.result.width);
    }
    return target;
  }

  __device__ __forceinline__ void load_filter(Sums& sums, int band) const {
    Vector<Value, 4> own[FILTER / 4];
#pragma unroll
    for (int v = 0; v < FILTER / 4; ++v) {
      own[v] = load_vector<4>(filters() + band * FILTER + v * 4);
    }
#pragma unroll
    for (int i = 0; i < Parameters::TAPS; ++i) {
      sums.weights[i / Columns::SIZE][i % Columns::SIZE] = own[i / 4].element[i % 4];
    }
  }

  // One thread's columns of a band, as its parts come. Threads beyond the last band go along,
  // because all wait for the copies of all.
  __device__ __forceinline__ void multiply(uint32_t thread) const {
    const auto wanted = static_cast<int>(parameters.groups.quotient(thread));
    const int band = min(wanted, bands - 1);
    const int group =
        static_cast<int>(thread) - wanted * static_cast<int>(parameters.groups.value());
    const Target target = target_of(band, group);
    const int begin = target.band.begin, end = wanted < bands ? target.band.end : -OLDER;
    const int from = target.band.from, rows = target.band.to - from;
    const int column = group * Parameters::ACROSS - Columns::PADDING - Parameters::OFFSET;
    const auto width = static_cast<int>(parameters.problem.source.width);
    unsigned inside = 0;
#pragma unroll
    for (int v = 0; v < ACCESSES; ++v) {
      const int at = column + v * ACCESS;
      if (at >= 0 && at < width) inside |= 1u << v;
    }
    const Staged* const own = tile() + band * parameters.staged_rows * width + column;
    Sums sums;
    wait_for_part(0);
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
      const int there = (part + 1) * parameters.part_rows;
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
      wait_for_part(part);
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
    const Band& last = table()[bands - 1];
    const int count =
        rows_before(last, last.end) * static_cast<int>(parameters.problem.result.width);
    const Out* const own = results() + shift;
    for (int at = static_cast<int>(threadIdx.x) * WIDE - shift; at < count; at += THREADS * WIDE) {
      if (at >= 0 && at + WIDE <= count) {
        store_vector(out + at, load_vector<WIDE>(own + at));
      } else {
        for (int i = max(at, 0); i < min(at + WIDE, count); ++i) out[i] = own[i];
      }
    }
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void window_bands(const BandParameters<Config, Problem>& parameters) {
  wait_for_previous_kernel();
  extern __shared__ __align__(16) char window_memory[];
  const WindowBands<Config, Problem> block(parameters, window_memory);
  block.prepare();
  __syncthreads();
  block.stage();
  block.stage_filters();
  block.multiply(threadIdx.x);
  if constexpr (!BandParameters<Config, Problem>::IS_DIRECT) {
    __syncthreads();
    block.copy_results();
  }
}
