#pragma once
// A pointwise kernel some of whose operands lie along another dimension than the result: in memory
// they are its transpose. A block reads its part of them as they lie, keeps it in shared memory and
// writes the result as that lies, so that both sides move whole lines.
//
// The sides of a tile are powers of two: no thread divides to find its elements. Both sides move 16
// bytes at once where sizes and addresses allow it, each for itself.

#include "pointwise.cuh"

// `Pointwise` with one more kernel. Columns are the dimension along which neighbours of the result
// lie, rows the one along which those of the turned operands do.
template <class Config, class Operation, class Out, class... In>
struct TiledPointwise : Pointwise<Config, Operation, Out, In...> {
  using Base = Pointwise<Config, Operation, Out, In...>;
  using Space = typename Base::Space;
  using InputIndices = typename Base::InputIndices;
  static constexpr int THREADS = Base::THREADS;
  static constexpr int OPERANDS = Base::OPERANDS;
  static constexpr int TILE_LOG = 12, TILE = 1 << TILE_LOG;  // elements
  static constexpr int RUN_LOG = 2, RUN = 1 << RUN_LOG;      // neighbours moved by one access
  static constexpr int LINE_LOG = 5;  // 32 neighbours of 4 bytes are a line of memory
  static constexpr int BANKS_LOG = 5;
  static constexpr int BROUGHT = 16;  // elements of a turned operand in flight in a thread
  static constexpr int FLIGHT = 2;    // runs that a thread computes at once
  static constexpr int SHARED_BYTES = 48 * 1024;
  static constexpr int LEAST_MATRIX = 1024;  // elements that are worth a tile
  static constexpr int64_t ELEMENT_BYTES[OPERANDS] = {sizeof(Out), sizeof(In)...};
  static constexpr int64_t MAX_COUNT = (int64_t{1} << 31) - 1;  // what Divisor can divide
  static_assert(TILE % (THREADS * RUN) == 0 && (THREADS & (THREADS - 1)) == 0,
                "threads take as many runs each, all of them the same way apart");

  // Of a power of two.
  static constexpr int log_of(int value) { return value == 1 ? 0 : 1 + log_of(value / 2); }
  static constexpr int THREADS_LOG = log_of(THREADS);

  // Neighbours in a tile: `first` and those after it, on the line of this number.
  struct Run {
    int line, first;
  };

  // The run of N elements with this number, in lines of 2^log elements. Of a sum of two numbers
  // that have no bit in common it is the sum of both runs: a thread's own, and the step's, which is
  // the same for all.
  template <int N>
  __device__ __forceinline__ static Run run_at(int number, int log) {
    const int per_line = N == 1 ? log : log - RUN_LOG;
    return {number >> per_line, (number & ((1 << per_line) - 1)) * N};
  }

  // The tile of a block: its rows, the columns of it that shared memory holds, how many of them
  // come before the tile's own, and the offsets of its first element there.
  struct Corner {
    int tall, held, before;
    int64_t offsets[OPERANDS];
  };

  struct Tiled {
    Operation operation;
    Matrices matrices;
    void* data[OPERANDS];
    unsigned turned;      // a bit for each operand that lies along the rows
    unsigned in_runs;     // a bit for each operand that is read in runs
    int place[OPERANDS];  // in shared memory, in bytes
    int rows, columns;
    int rows_log, columns_log;  // of the size of a tile
    int pitch;                  // elements of shared memory from column to column
    int before;  // columns in front of a tile, for runs of rows that begin between two of them
    Divisor row_tiles, column_tiles;  // how many there are
    int64_t row_strides[OPERANDS];
    int64_t column_strides[OPERANDS];
    OuterDimensions<OPERANDS> outer;

    __device__ __forceinline__ Corner corner() const {
      const uint32_t above = row_tiles.quotient(blockIdx.x);
      const uint32_t matrix = column_tiles.quotient(above);
      const int row = static_cast<int>(blockIdx.x - above * row_tiles.value()) << rows_log;
      const int column = static_cast<int>(above - matrix * column_tiles.value()) << columns_log;
      Corner found;
      found.tall = min(1 << rows_log, rows - row);
      found.before = min(before, column);
      const int from = column - found.before;
      found.held = min(1 << columns_log, columns - column) + found.before;
#pragma unroll
      for (int o = 0; o < OPERANDS; ++o) {
        found.offsets[o] = row * row_strides[o] + from * column_strides[o];
      }
      outer.move(matrix, found.offsets);
      return found;
    }

    template <class T>
    __device__ __forceinline__ T* tile(char* memory, int operand) const {
      return reinterpret_cast<T*>(memory + place[operand]);
    }

    // Brings the tile of a turned operand to shared memory, N elements at once.
    template <int N, class T>
    __device__ __forceinline__ void bring(int operand, const Corner& corner, char* memory) const {
      constexpr int MOST = TILE / (N * THREADS);
      constexpr int FLIGHT = MOST < BROUGHT / N ? MOST : BROUGHT / N;
      const int steps = MOST + ((before << rows_log) + N * THREADS - 1) / (N * THREADS);
      const Run own = run_at<N>(threadIdx.x, rows_log);
      const T* source = static_cast<const T*>(data[operand]) + corner.offsets[operand] +
                        own.line * column_strides[operand] + own.first;
      T* target = tile<T>(memory, operand) + own.line * pitch + own.first;
#pragma unroll 1
      for (int first = 0; first < steps; first += FLIGHT) {
        Vector<T, N> values[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
          const Run step = run_at<N>((first + i) * THREADS, rows_log);
          if (own.line + step.line < corner.held && own.first + step.first < corner.tall) {
            values[i] = load_vector<N>(source + step.line * column_strides[operand] + step.first);
          }
        }
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
          const Run step = run_at<N>((first + i) * THREADS, rows_log);
          if (own.line + step.line < corner.held && own.first + step.first < corner.tall) {
#pragma unroll
            for (int n = 0; n < N; ++n) {
              target[step.line * pitch + step.first + n] = values[i].element[n];
            }
          }
        }
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

    // What an operand has for N neighbours on a row of the tile, the first of them in column
    // `first` of those that shared memory holds. `from`: its element in column 0; `value`: that,
    // where it is the same for the row.
    template <int N, class T>
    __device__ __forceinline__ Vector<T, N> read(int operand, int line, int first, const T* from,
                                                 T value, char* memory) const {
      Vector<T, N> values;
      const int64_t stride = column_strides[operand];
      if ((turned >> operand & 1) != 0) {
        const T* source = tile<T>(memory, operand) + first * pitch + line;
#pragma unroll
        for (int n = 0; n < N; ++n) values.element[n] = source[n * pitch];
      } else if (stride == 0) {
#pragma unroll
        for (int n = 0; n < N; ++n) values.element[n] = value;
      } else if (N > 1 && (in_runs >> operand & 1) != 0) {
        values = load_vector<N>(from + first);
      } else {
#pragma unroll
        for (int n = 0; n < N; ++n) values.element[n] = from[(first + n) * stride];
      }
      return values;
    }

    // Computes and writes what this thread has of one row of the tile: every 2^lanes_log-th run.
    template <size_t... INPUT>
    __device__ __forceinline__ void finish_row(const Corner& corner, char* memory, int line,
                                               int lane, int lanes_log,
                                               std::index_sequence<INPUT...>) const {
      Out* result = static_cast<Out*>(data[0]) + corner.offsets[0] + line * row_strides[0];
      Pack<const In*...> from;
      ((get<INPUT>(from) = static_cast<const In*>(data[INPUT + 1]) + corner.offsets[INPUT + 1] +
                           line * row_strides[INPUT + 1]),
       ...);
      Pack<In...> value = {};
      ((get<INPUT>(value) = column_strides[INPUT + 1] == 0 ? *get<INPUT>(from) : In()), ...);
      // Runs begin where memory is aligned.
      const auto begins = reinterpret_cast<uintptr_t>(result + corner.before) / sizeof(Out);
      const int begin = corner.before - static_cast<int>(begins % RUN) + lane * RUN;
      const int runs = 1 << (columns_log - RUN_LOG - lanes_log);
#pragma unroll 1
      for (int run = 0; run < runs; run += FLIGHT) {
        Pack<Vector<In, RUN>...> values[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
          const int first = begin + ((run + i) << (lanes_log + RUN_LOG));
          if (run + i < runs && first >= 0 && first + RUN <= corner.held) {
            ((get<INPUT>(values[i]) = read<RUN, In>(INPUT + 1, line, first, get<INPUT>(from),
                                                    get<INPUT>(value), memory)),
             ...);
          }
        }
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
          const int first = begin + ((run + i) << (lanes_log + RUN_LOG));
          if (run + i >= runs) break;
          if (first >= 0 && first + RUN <= corner.held) {
            Base::template compute<RUN>(result + first, operation, matrices, values[i],
                                        InputIndices());
          } else {
            // The ends of the rows.
#pragma unroll 1
            for (int column = max(first, 0); column < min(first + RUN, corner.held); ++column) {
              Pack<Vector<In, 1>...> single;
              ((get<INPUT>(single) = read<1, In>(INPUT + 1, line, column, get<INPUT>(from),
                                                 get<INPUT>(value), memory)),
               ...);
              Base::template compute<1>(result + column, operation, matrices, single,
                                        InputIndices());
            }
          }
        }
      }
    }

    template <size_t... INPUT>
    __device__ __forceinline__ void run_on(char* memory,
                                           std::index_sequence<INPUT...> inputs) const {
      const Corner found = corner();
      (turn<In>(INPUT + 1, found, memory), ...);
      __syncthreads();
      // A thread stays on its row; a warp writes whole lines of some.
      const int lanes_log = min(columns_log - RUN_LOG, max(3, THREADS_LOG - rows_log));
      const int lane = static_cast<int>(threadIdx.x) & ((1 << lanes_log) - 1);
      for (int line = static_cast<int>(threadIdx.x) >> lanes_log; line < found.tall;
           line += THREADS >> lanes_log) {
        finish_row(found, memory, line, lane, lanes_log, inputs);
      }
    }

    __device__ __forceinline__ void run() const {
      wait_for_previous_kernel();
      extern __shared__ __align__(16) char memory[];
      run_on(memory, InputIndices());
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

  // Of the least power of two that is as large, but for runs and for `most`.
  static int side_log(int64_t size, int most) {
    int log = RUN_LOG;
    while (log < most && (int64_t{1} << log) < size) ++log;
    return log;
  }

  // Lines of rows and as many columns as a tile has room for; more rows where columns are few.
  // Returns the number of tiles.
  static int64_t set_tiles(const Space& space, int rows, Tiled& parameters) {
    const int last = space.rank - 1;
    const int64_t tall = space.sizes[rows], wide = space.sizes[last];
    const int columns_log = side_log(wide, TILE_LOG - side_log(tall, LINE_LOG));
    const int rows_log = TILE_LOG - columns_log;
    parameters.rows = static_cast<int>(tall);
    parameters.columns = static_cast<int>(wide);
    parameters.rows_log = rows_log;
    parameters.columns_log = columns_log;
    // Neighbours of either side are in different banks.
    parameters.pitch =
        (1 << rows_log) + (columns_log < BANKS_LOG ? 1 << (BANKS_LOG - columns_log) : 1);
    parameters.before = begins_aligned(space) ? 0 : RUN;
    const int64_t row_tiles = (tall + (1 << rows_log) - 1) >> rows_log;
    // The runs of a row begin up to so much before the tile's own columns.
    const int64_t reached = wide + (parameters.before > 0 ? RUN - 1 : 0);
    const int64_t column_tiles = (reached + (1 << columns_log) - 1) >> columns_log;
    parameters.row_tiles = Divisor(static_cast<uint32_t>(row_tiles));
    parameters.column_tiles = Divisor(static_cast<uint32_t>(column_tiles));
    for (int o = 0; o < OPERANDS; ++o) {
      parameters.data[o] = space.data[o];
      parameters.row_strides[o] = space.strides[rows][o];
      parameters.column_strides[o] = space.strides[last][o];
    }
    // Sizes that are too large to divide make too many.
    int64_t tiles = row_tiles * column_tiles;
    for (int d = 0; d < last; ++d) {
      if (d == rows) continue;
      tiles *= space.sizes[d];
      if (tiles > MAX_COUNT) return tiles;
      parameters.outer.add(space.sizes[d], space.strides[d]);
    }
    return tiles;
  }

  // Whether all rows of the result begin at a multiple of a run's bytes.
  static bool begins_aligned(const Space& space) {
    bool aligned = reinterpret_cast<uintptr_t>(space.data[0]) % (RUN * sizeof(Out)) == 0;
    for (int d = 0; d + 1 < space.rank; ++d) aligned = aligned && space.strides[d][0] % RUN == 0;
    return aligned;
  }

  // Returns the bytes of shared memory.
  static int set_turned(const Space& space, int rows, Tiled& parameters) {
    const int columns = (1 << parameters.columns_log) + parameters.before;
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

  // Which operands are read in runs: turned ones along the rows, others as the result is written.
  static void set_runs(const Space& space, int rows, Tiled& parameters) {
    for (int o = 1; o < OPERANDS; ++o) {
      const bool is_turned = (parameters.turned >> o & 1) != 0;
      if (is_turned ? is_in_runs(space, o, rows) : lies_as_result(space, o)) {
        parameters.in_runs |= 1u << o;
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

  // Whether the operand is aligned wherever the result is.
  static bool lies_as_result(const Space& space, int operand) {
    if (space.inner_stride(operand) != 1) return false;
    const auto runs_at = [&](int o) {
      return reinterpret_cast<uintptr_t>(space.data[o]) / ELEMENT_BYTES[o] % RUN;
    };
    bool same = runs_at(operand) == runs_at(0);
    for (int d = 0; d + 1 < space.rank; ++d) {
      same = same && (space.strides[d][operand] - space.strides[d][0]) % RUN == 0;
    }
    return same;
  }
};
