#pragma once
// A pointwise kernel some of whose operands lie along another dimension than the result: in memory
// they are its transpose. A block reads its part of them as they lie, a row at a time, keeps it in
// shared memory and writes the result as that lies, so that both sides move whole lines.

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
  static constexpr int SHARE = 8;  // elements of a tile that a thread computes, all in flight
  static constexpr int TILE = THREADS * SHARE;
  static constexpr int CAPACITY = TILE + 64;  // elements of a tile, with gaps between its columns
  static constexpr int SHARED_BYTES = 48 * 1024;
  static constexpr int ROWS = 32;            // of a tile: a line of 128 bytes, of 32-bit elements
  static constexpr int LEAST_MATRIX = 1024;  // elements that are worth a tile
  static constexpr int64_t ELEMENT_BYTES[OPERANDS] = {sizeof(Out), sizeof(In)...};
  static constexpr int64_t MAX_COUNT = (int64_t{1} << 31) - 1;  // what Divisor can divide

  struct Tiled {
    Operation operation;
    Matrices matrices;
    void* data[OPERANDS];
    unsigned turned;      // a bit for each operand that lies along the rows
    int place[OPERANDS];  // in shared memory, in bytes
    int rows, columns;
    int pitch;                        // elements of shared memory from column to column
    Divisor tile_rows, tile_columns;  // their sizes
    Divisor row_tiles, column_tiles;  // how many there are
    int outer_rank;
    Divisor outer_sizes[MAX_RANK];
    int64_t row_strides[OPERANDS];
    int64_t column_strides[OPERANDS];
    int64_t outer_strides[MAX_RANK][OPERANDS];

    // The size of this block's tile, and the offsets of its first element.
    __device__ __forceinline__ void locate(int& tall, int& wide,
                                           int64_t (&offsets)[OPERANDS]) const {
      const uint32_t above = row_tiles.quotient(blockIdx.x);
      uint32_t outer = column_tiles.quotient(above);
      const auto row =
          static_cast<int>((blockIdx.x - above * row_tiles.value()) * tile_rows.value());
      const auto column =
          static_cast<int>((above - outer * column_tiles.value()) * tile_columns.value());
      tall = min(static_cast<int>(tile_rows.value()), rows - row);
      wide = min(static_cast<int>(tile_columns.value()), columns - column);
#pragma unroll
      for (int o = 0; o < OPERANDS; ++o) {
        offsets[o] = row * row_strides[o] + column * column_strides[o];
      }
      for (int d = outer_rank - 1; d >= 0; --d) {
        const uint32_t quotient = outer_sizes[d].quotient(outer);
        const int64_t index = outer - quotient * outer_sizes[d].value();
        outer = quotient;
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) offsets[o] += index * outer_strides[d][o];
      }
    }

    template <class T>
    __device__ __forceinline__ T* tile(char* memory, int operand) const {
      return reinterpret_cast<T*>(memory + place[operand]);
    }

    // Brings the tile of a turned operand to shared memory.
    template <class T>
    __device__ __forceinline__ void turn(int operand, int tall, int wide,
                                         const int64_t (&offsets)[OPERANDS], char* memory) const {
      if ((turned >> operand & 1) == 0) return;
      const T* source = static_cast<const T*>(data[operand]) + offsets[operand];
      T values[SHARE];
#pragma unroll
      for (int s = 0; s < SHARE; ++s) {
        const uint32_t element = threadIdx.x + s * THREADS;
        const auto column = static_cast<int>(tile_rows.quotient(element));
        const auto row = static_cast<int>(element - column * tile_rows.value());
        if (column < wide && row < tall) {
          values[s] = source[column * column_strides[operand] + row];
        }
      }
#pragma unroll
      for (int s = 0; s < SHARE; ++s) {
        const uint32_t element = threadIdx.x + s * THREADS;
        const auto column = static_cast<int>(tile_rows.quotient(element));
        const auto row = static_cast<int>(element - column * tile_rows.value());
        if (column < wide && row < tall) {
          tile<T>(memory, operand)[column * pitch + row] = values[s];
        }
      }
    }

    template <class T>
    __device__ __forceinline__ Vector<T, 1> read(int operand, int row, int column,
                                                 const int64_t (&offsets)[OPERANDS],
                                                 char* memory) const {
      if ((turned >> operand & 1) != 0) {
        return {{tile<T>(memory, operand)[column * pitch + row]}};
      }
      return load_vector<1>(static_cast<const T*>(data[operand]) + offsets[operand] +
                            row * row_strides[operand] + column * column_strides[operand]);
    }

    template <size_t... INPUT>
    __device__ __forceinline__ void run_on(char* memory, std::index_sequence<INPUT...>) const {
      int tall, wide;
      int64_t offsets[OPERANDS];
      locate(tall, wide, offsets);
      (turn<In>(INPUT + 1, tall, wide, offsets, memory), ...);
      __syncthreads();
      Pack<Vector<In, 1>...> values[SHARE];
#pragma unroll
      for (int s = 0; s < SHARE; ++s) {
        const uint32_t element = threadIdx.x + s * THREADS;
        const auto row = static_cast<int>(tile_columns.quotient(element));
        const auto column = static_cast<int>(element - row * tile_columns.value());
        if (row < tall && column < wide) {
          ((get<INPUT>(values[s]) = read<In>(INPUT + 1, row, column, offsets, memory)), ...);
        }
      }
#pragma unroll
      for (int s = 0; s < SHARE; ++s) {
        const uint32_t element = threadIdx.x + s * THREADS;
        const auto row = static_cast<int>(tile_columns.quotient(element));
        const auto column = static_cast<int>(element - row * tile_columns.value());
        if (row < tall && column < wide) {
          Out* address = static_cast<Out*>(data[0]) + offsets[0] + row * row_strides[0] + column;
          Base::template compute<1>(address, operation, matrices, values[s], InputIndices());
        }
      }
    }

    __device__ __forceinline__ void run() const {
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
    Tiled parameters{operation,
                     {out.data, out.rank < 2 ? 1 : out.sizes[out.rank - 2],
                      out.rank < 1 ? 1 : out.sizes[out.rank - 1]}};
    const int bytes = set_turned(space, rows, parameters);
    const int64_t blocks = set_tiles(space, rows, parameters);
    if (bytes == 0 || blocks > MAX_COUNT) {
      return Base::launch(kernels, operation, stream, out, in...);
    }
    tiled<<<static_cast<unsigned>(blocks), THREADS, bytes, stream>>>(parameters);
    return cudaGetLastError();
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

  // Returns the bytes of shared memory.
  static int set_turned(const Space& space, int rows, Tiled& parameters) {
    int64_t bytes = 0;
    for (int o = 1; o < OPERANDS; ++o) {
      const bool lies_along = space.inner_stride(o) == 0 || space.inner_stride(o) == 1;
      const int64_t own = CAPACITY * ELEMENT_BYTES[o];
      if (lies_along || space.strides[rows][o] != 1 || bytes + own > SHARED_BYTES) continue;
      parameters.turned |= 1u << o;
      parameters.place[o] = static_cast<int>(bytes);
      bytes += own;
    }
    return static_cast<int>(bytes);
  }

  // Returns the number of tiles.
  static int64_t set_tiles(const Space& space, int rows, Tiled& parameters) {
    const int last = space.rank - 1;
    const int64_t tall = space.sizes[rows], wide = space.sizes[last];
    // As many columns as there are, or about as many as keep whole lines of rows.
    const int64_t room = wide * ROWS <= TILE ? TILE / wide : ROWS;
    const int64_t parts = (tall + room - 1) / room;
    int64_t tile_rows = (tall + parts - 1) / parts;
    if (room > ROWS && parts > 1) tile_rows = room / ROWS * ROWS;
    // Neighbours of either side are in different banks.
    const int64_t pitch =
        wide < ROWS && tile_rows % ROWS == 0 ? tile_rows + (ROWS + wide - 1) / wide : tile_rows | 1;
    int64_t tile_columns = wide;
    if (tile_columns > CAPACITY / pitch) tile_columns = CAPACITY / pitch;
    if (tile_columns > TILE / tile_rows) tile_columns = TILE / tile_rows;
    if (tile_columns < wide && tile_columns > ROWS) tile_columns -= tile_columns % ROWS;
    const int64_t row_tiles = (tall + tile_rows - 1) / tile_rows;
    const int64_t column_tiles = (wide + tile_columns - 1) / tile_columns;
    parameters.rows = static_cast<int>(tall);
    parameters.columns = static_cast<int>(wide);
    parameters.pitch = static_cast<int>(pitch);
    parameters.tile_rows = Divisor(static_cast<uint32_t>(tile_rows));
    parameters.tile_columns = Divisor(static_cast<uint32_t>(tile_columns));
    parameters.row_tiles = Divisor(static_cast<uint32_t>(row_tiles));
    parameters.column_tiles = Divisor(static_cast<uint32_t>(column_tiles));
    for (int o = 0; o < OPERANDS; ++o) {
      parameters.data[o] = space.data[o];
      parameters.row_strides[o] = space.strides[rows][o];
      parameters.column_strides[o] = space.strides[last][o];
    }
    return row_tiles * column_tiles * set_outer(space, rows, parameters);
  }

  // Returns how many matrices there are; the sizes that are too large to divide make too many.
  static int64_t set_outer(const Space& space, int rows, Tiled& parameters) {
    int64_t matrices = 1;
    for (int d = 0; d + 1 < space.rank; ++d) {
      if (d == rows) continue;
      matrices *= space.sizes[d];
      if (matrices > MAX_COUNT) return matrices;
      const int at = parameters.outer_rank++;
      parameters.outer_sizes[at] = Divisor(static_cast<uint32_t>(space.sizes[d]));
      for (int o = 0; o < OPERANDS; ++o) {
        parameters.outer_strides[at][o] = space.strides[d][o];
      }
    }
    return matrices;
  }
};
