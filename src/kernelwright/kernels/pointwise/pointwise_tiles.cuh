#pragma once
// A pointwise kernel some of whose operands lie along another dimension than the result: in memory
// they are its transpose. A block reads its part of them as they lie, keeps it in shared memory and
// writes the result as that lies, so that both sides move whole lines. Lines may begin anywhere, so
// neighbours share what lies across an edge: those along the result are at work at one time.
//
// Tiles are small and many, and all that a thread reads is on its way before any of it is used. A
// result that the caches do not keep takes less time if what is turned is read first, and then the
// rest: threads need fewer registers, and a multiprocessor has all that it can.
//
// The sides of a tile are powers of two: no thread divides to find its elements. Both sides move
// runs of neighbours where sizes and addresses allow it, each for itself.
//
// A config has, besides those of pointwise.cuh,
//   IS_LARGE  whether the caches do not keep the result

#include "pointwise.cuh"

// `Pointwise` with one more kernel. Columns are the dimension along which neighbours of the result
// lie, rows the one along which those of the turned operands do.
template <class Config, class Operation, class Out, class... In>
struct TiledPointwise : Pointwise<Config, Operation, Out, In...> {
  using Base = Pointwise<Config, Operation, Out, In...>;
  using Space = typename Base::Space;
  using InputIndices = typename Base::InputIndices;
  static constexpr int THREADS = Config::IS_LARGE ? 256 : Base::THREADS;  // of a block
  static constexpr int OPERANDS = Base::OPERANDS;

  // Of a power of two.
  static constexpr int log_of(int value) { return value == 1 ? 0 : 1 + log_of(value / 2); }

  static constexpr int RUN_LOG = 2, RUN = 1 << RUN_LOG;  // neighbours moved by one access
  static constexpr int OWN = 2 * RUN;                    // elements of a thread, at most
  static constexpr int TILE = THREADS * OWN, TILE_LOG = log_of(TILE);
  static constexpr int LINE_LOG = 5;  // 32 neighbours of 4 bytes are a line of memory
  static constexpr int BANKS_LOG = 5;
  static constexpr int STRIP = Config::IS_LARGE ? 4 : 1;  // rows of tiles side by side
  static constexpr int SHARED_BYTES = 48 * 1024;
  static constexpr int LEAST_MATRIX = 1024;  // elements that are worth a tile
  static constexpr int64_t ELEMENT_BYTES[OPERANDS] = {sizeof(Out), sizeof(In)...};
  static constexpr int64_t MAX_COUNT = (int64_t{1} << 31) - 1;  // what Divisor can divide
  static constexpr int THREADS_LOG = log_of(THREADS);
  static_assert((TILE & (TILE - 1)) == 0, "the sides of a tile are powers of two");

  // A thread's places in a tile: N neighbours from `first` on, on each line from `line` on that is
  // there, `step` lines apart.
  struct Walk {
    int line, first, step, count;
  };

  // In so many lines of `length` elements, of a tile whose lines have 2^log.
  template <int N>
  __device__ __forceinline__ static Walk walk(int lines, int length, int log) {
    const int per_line = N == 1 ? log : log - RUN_LOG;
    const int line = static_cast<int>(threadIdx.x >> per_line);
    const int first = static_cast<int>(threadIdx.x & ((1u << per_line) - 1)) * N;
    const int step_log = THREADS_LOG - per_line, step = 1 << step_log;
    return {line, first, step, first < length ? (lines - line + step - 1) >> step_log : 0};
  }

  // The tile of a block: its rows and columns, and the offsets of its first element.
  struct Corner {
    int tall, wide;
    int64_t offsets[OPERANDS];
  };

  struct Tiled {
    Operation operation;
    Matrices matrices;
    void* data[OPERANDS];
    unsigned turned;      // a bit for each operand that lies along the rows
    unsigned in_runs;     // a bit for each of them that is read in runs
    bool writes_runs;     // and whether the result is written in runs, and the others read
    int place[OPERANDS];  // in shared memory, in bytes
    int rows, columns;
    int rows_log, columns_log;      // of the size of a tile
    int pitch;                      // elements of shared memory from column to column
    Divisor tiles, strip_tiles;     // of a matrix, of a strip
    Divisor strip_rows, last_rows;  // of a strip of tiles, and of the last
    int row_tiles;
    int64_t row_strides[OPERANDS];
    int64_t column_strides[OPERANDS];
    OuterDimensions<OPERANDS> outer;

    __device__ __forceinline__ Corner corner() const {
      const uint32_t matrix = tiles.quotient(blockIdx.x);
      const uint32_t own = blockIdx.x - matrix * tiles.value();
      const uint32_t strip = strip_tiles.quotient(own),
                     in_strip = own - strip * strip_tiles.value();
      const bool is_last = static_cast<int>(strip + 1) * STRIP > row_tiles;
      const Divisor& tall = is_last ? last_rows : strip_rows;
      const uint32_t across = tall.quotient(in_strip), down = in_strip - across * tall.value();
      const int row = static_cast<int>(strip * STRIP + down) << rows_log;
      const int column = static_cast<int>(across) << columns_log;
      Corner found;
      found.tall = min(1 << rows_log, rows - row);
      found.wide = min(1 << columns_log, columns - column);
#pragma unroll
      for (int o = 0; o < OPERANDS; ++o) {
        found.offsets[o] = row * row_strides[o] + column * column_strides[o];
      }
      outer.move(matrix, found.offsets);
      return found;
    }

    template <class T>
    __device__ __forceinline__ T* tile(char* memory, int operand) const {
      return reinterpret_cast<T*>(memory + place[operand]);
    }

    // Brings the tile of a turned operand to shared memory, N elements at once. Its lines are
    // columns.
    template <int N, class T>
    __device__ __forceinline__ void bring(int operand, const Corner& corner, char* memory) const {
      constexpr int STEPS = OWN / N;
      const Walk own = walk<N>(corner.wide, corner.tall, rows_log);
      const int64_t stride = column_strides[operand];
      const T* source = static_cast<const T*>(data[operand]) + corner.offsets[operand] +
                        own.line * stride + own.first;
      T* target = tile<T>(memory, operand) + own.line * pitch + own.first;
      Vector<T, N> values[STEPS];
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        if (i < own.count) values[i] = load_vector<N>(source);
        source += own.step * stride;
      }
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        if (i < own.count) {
#pragma unroll
          for (int n = 0; n < N; ++n) target[n] = values[i].element[n];
        }
        target += own.step * pitch;
      }
    }

    template <class T>
    __device__ __forceinline__ void turn(int operand, const Corner& corner, char* memory) const {
      if ((turned >> operand & 1) == 0) return;
      if ((in_runs >> operand & 1) != 0) {
        bring<RUN, T>(operand, corner, memory);
      } else {
        bring<1, T>(operand, corner, memory);
      }
    }

    // What an operand that is not turned has for a thread's places.
    template <int N, int STEPS, class T, class Values>
    __device__ __forceinline__ void load(int operand, const Corner& corner, const Walk& own,
                                         const Values& values) const {
      if ((turned >> operand & 1) != 0) return;
      const int64_t stride = column_strides[operand];
      const T* from = static_cast<const T*>(data[operand]) + corner.offsets[operand] +
                      own.line * row_strides[operand] + own.first * stride;
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        if (i < own.count) {
          if (N == 1 || stride == 1) {
            values(i) = load_vector<N>(from);
          } else {
            const T value = *from;
#pragma unroll
            for (int n = 0; n < N; ++n) values(i).element[n] = value;
          }
        }
        from += own.step * row_strides[operand];
      }
    }

    // What a turned operand has for N neighbours on a row.
    template <int N, class T>
    __device__ __forceinline__ void take(int operand, int line, int first, char* memory,
                                         Vector<T, N>& values) const {
      if ((turned >> operand & 1) == 0) return;
      const T* source = tile<T>(memory, operand) + first * pitch + line;
#pragma unroll
      for (int n = 0; n < N; ++n) values.element[n] = source[n * pitch];
    }

    // Reads all operands and writes the tile of the result, N elements at once.
    template <int N, size_t... INPUT>
    __device__ __forceinline__ void write(const Corner& corner, char* memory,
                                          std::index_sequence<INPUT...> inputs) const {
      constexpr int STEPS = OWN / N;
      const Walk own = walk<N>(corner.tall, corner.wide, columns_log);
      Pack<Vector<In, N>...> values[STEPS];
      const auto load_all = [&] {
        (load<N, STEPS, In>(INPUT + 1, corner, own,
                            [&](int i) -> Vector<In, N>& { return get<INPUT>(values[i]); }),
         ...);
      };
      if (!Config::IS_LARGE) load_all();
      (turn<In>(INPUT + 1, corner, memory), ...);
      __syncthreads();
      if (Config::IS_LARGE) load_all();
      Out* result =
          static_cast<Out*>(data[0]) + corner.offsets[0] + own.line * row_strides[0] + own.first;
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        if (i < own.count) {
          (take<N, In>(INPUT + 1, own.line + i * own.step, own.first, memory,
                       get<INPUT>(values[i])),
           ...);
          Base::template compute<N>(result, operation, matrices, values[i], inputs);
        }
        result += own.step * row_strides[0];
      }
    }

    __device__ __forceinline__ void run() const {
      wait_for_previous_kernel();
      extern __shared__ __align__(16) char memory[];
      const Corner found = corner();
      if (writes_runs) {
        write<RUN>(found, memory, InputIndices());
      } else {
        write<1>(found, memory, InputIndices());
      }
    }
  };

  // As `Pointwise::launch`; `tiled` runs `parameters.run()`, too.
  template <class... Tensors>
  static cudaError_t launch(const typename Base::Kernels& kernels, void (*tiled)(Tiled),
                            const Operation& operation, cudaStream_t stream, const Tensor& out,
                            const Tensors&... in) {
    const Tensor operands[OPERANDS] = {out, in...};
    const Space space = make_index_space(operands);
    const int rows = row_dimension(space);
    if (rows < 0) return Base::launch(kernels, operation, stream, out, in...);
    Tiled parameters{operation, Base::matrices_of(out)};
    const int64_t blocks = set_tiles(space, rows, parameters);
    const int bytes = set_turned(space, rows, parameters);
    if (bytes == 0 || blocks > MAX_COUNT) {
      return Base::launch(kernels, operation, stream, out, in...);
    }
    set_runs(space, rows, parameters);
    return launch_dependent(tiled, static_cast<unsigned>(blocks), THREADS, stream, parameters,
                            bytes);
  }

 private:
  // The dimension along which the first operand lies that does not lie along the result's, or -1
  // where no tile is worth its while.
  static int row_dimension(const Space& space) {
    const int last = space.rank - 1;
    if (space.count() == 0 || last < 1 || space.inner_stride(0) != 1) return -1;
    for (int o = 1; o < OPERANDS; ++o) {
      if (space.inner_stride(o) == 0 || space.inner_stride(o) == 1) continue;
      for (int d = 0; d < last; ++d) {
        const bool fits = space.sizes[d] <= MAX_COUNT && space.sizes[last] <= MAX_COUNT &&
                          space.sizes[d] * space.sizes[last] >= LEAST_MATRIX;
        if (space.strides[d][o] == 1 && fits) return d;
      }
    }
    return -1;
  }

  static constexpr int at_most(int most, int value) { return value < most ? value : most; }

  // Of the least power of two that is as large, but for runs and for `most`.
  static int side_log(int64_t size, int most) {
    int log = RUN_LOG;
    while (log < most && (int64_t{1} << log) < size) ++log;
    return log;
  }

  // Lines of rows and as many columns as a tile has room for; more rows where columns are few. A
  // thread moves something of no line twice. Returns the number of tiles.
  static int64_t set_tiles(const Space& space, int rows, Tiled& parameters) {
    const int inner = space.rank - 1;
    const int64_t tall = space.sizes[rows], wide = space.sizes[inner];
    const int columns_log =
        side_log(wide, at_most(THREADS_LOG, TILE_LOG - side_log(tall, LINE_LOG)));
    const int rows_log = at_most(THREADS_LOG, TILE_LOG - columns_log);
    parameters.rows = static_cast<int>(tall);
    parameters.columns = static_cast<int>(wide);
    parameters.rows_log = rows_log;
    parameters.columns_log = columns_log;
    // Neighbours of either side are in different banks.
    parameters.pitch =
        (1 << rows_log) + (columns_log < BANKS_LOG ? 1 << (BANKS_LOG - columns_log) : 1);
    const int64_t row_tiles = (tall + (1 << rows_log) - 1) >> rows_log;
    const int64_t column_tiles = (wide + (1 << columns_log) - 1) >> columns_log;
    int64_t tiles = row_tiles * column_tiles;
    if (STRIP * tiles > MAX_COUNT) return MAX_COUNT + 1;
    const int64_t last = row_tiles % STRIP;
    parameters.tiles = Divisor(static_cast<uint32_t>(tiles));
    parameters.strip_tiles = Divisor(static_cast<uint32_t>(STRIP * column_tiles));
    parameters.strip_rows = Divisor(STRIP);
    parameters.last_rows = Divisor(static_cast<uint32_t>(last == 0 ? STRIP : last));
    parameters.row_tiles = static_cast<int>(row_tiles);
    for (int o = 0; o < OPERANDS; ++o) {
      parameters.data[o] = space.data[o];
      parameters.row_strides[o] = space.strides[rows][o];
      parameters.column_strides[o] = space.strides[inner][o];
    }
    // Sizes that are too large to divide make too many.
    for (int d = 0; d < inner; ++d) {
      if (d == rows) continue;
      tiles *= space.sizes[d];
      if (tiles > MAX_COUNT) return tiles;
      parameters.outer.add(space.sizes[d], space.strides[d]);
    }
    return tiles;
  }

  // Returns the bytes of shared memory.
  static int set_turned(const Space& space, int rows, Tiled& parameters) {
    const int columns = 1 << parameters.columns_log;
    int bytes = 0;
    for (int o = 1; o < OPERANDS; ++o) {
      const bool lies_along = space.inner_stride(o) == 0 || space.inner_stride(o) == 1;
      const int own = parameters.pitch * columns * static_cast<int>(ELEMENT_BYTES[o]);
      if (lies_along || space.strides[rows][o] != 1 || bytes + own > SHARED_BYTES) continue;
      parameters.turned |= 1u << o;
      parameters.place[o] = bytes;
      bytes += own;
    }
    return bytes;
  }

  // Which sides of a tile are moved in runs.
  static void set_runs(const Space& space, int rows, Tiled& parameters) {
    const int last = space.rank - 1;
    parameters.writes_runs = true;
    for (int o = 0; o < OPERANDS; ++o) {
      if ((parameters.turned >> o & 1) != 0) {
        if (is_in_runs(space, o, rows)) parameters.in_runs |= 1u << o;
      } else if (space.inner_stride(o) != 0) {
        parameters.writes_runs =
            parameters.writes_runs && space.inner_stride(o) == 1 && is_in_runs(space, o, last);
      }
    }
  }

  // Whether each line of the operand along this dimension consists of aligned runs.
  static bool is_in_runs(const Space& space, int operand, int along) {
    if (space.sizes[along] % RUN != 0) return false;
    const int64_t alignment = access_bytes(RUN * ELEMENT_BYTES[operand]);
    bool whole = reinterpret_cast<uintptr_t>(space.data[operand]) % alignment == 0;
    for (int d = 0; d < space.rank; ++d) {
      whole = whole && (d == along || space.strides[d][operand] % RUN == 0);
    }
    return whole;
  }
};
