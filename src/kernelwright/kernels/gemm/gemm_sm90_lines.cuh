#pragma once
// From the fragments of a warp to rows of 16-bit numbers. Results are made where the sums are, and
// take half of their room: two neighbours in a word, they go through shared memory 64 columns at
// a time, and leave in accesses of 16 bytes, eight of which are a line of memory.

#include "gemm_epilogue.cuh"
#include "gemm_sm90_store.cuh"

constexpr int LINE_COLUMNS = 64;     // of 16 bits: 128 bytes
constexpr int LINE_VECTOR = 8;       // columns of an access
constexpr int FRAGMENT_COLUMNS = 8;  // of which a lane has two, in two rows

// A warp's 16 rows in the room of its sums. The pitch keeps fragments and rows free of bank
// conflicts.
struct PackedRows {
  static constexpr int ROWS = RowBuffer::ROWS, PITCH = LINE_COLUMNS / 2 + 4;
  unsigned words[ROWS][PITCH];

  __device__ __forceinline__ uint4& vector(int row, int column) {
    return *reinterpret_cast<uint4*>(&words[row][column / 2]);
  }
};

// How a warp's lanes lie on those rows where they move vectors.
struct LineLanes {
  static constexpr int ACROSS = LINE_COLUMNS / LINE_VECTOR, DOWN = 32 / ACROSS;
  static constexpr int RUNS = PackedRows::ROWS / DOWN;  // of a lane

  __device__ __forceinline__ static int row() { return threadIdx.x % 32 / ACROSS; }
  __device__ __forceinline__ static int column() { return threadIdx.x % ACROSS * LINE_VECTOR; }
};

// Calls visit(half, group, pair) for a lane's sums of 64 columns from `columns` on: two neighbours
// of each group of 8 columns, in the lane's row (half 0) and in the row 8 below. AT_ONCE: columns
// that come down to registers of their own at one time.
template <int AT_ONCE, int PARTS, int COUNT, class Visit>
__device__ __forceinline__ void for_each_pair(const float (&sums)[PARTS][COUNT], int part,
                                              int columns, const Visit& visit) {
  constexpr int OWN = AT_ONCE / 2;
#pragma unroll
  for (int first = 0; first < LINE_COLUMNS; first += AT_ONCE) {
    float own[OWN];
    visit_columns<AT_ONCE>(sums, part, columns + first, [&](const float* registers) {
#pragma unroll
      for (int i = 0; i < OWN; ++i) own[i] = registers[i];
      // A branch, and no choice among all places for each register.
      asm volatile("");
    });
#pragma unroll
    for (int i = 0; i < OWN; i += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const pair = own + i + 2 * half;
        visit(half, first / FRAGMENT_COLUMNS + i / 4, Vector<float, 2>{{pair[0], pair[1]}});
      }
    }
  }
}

template <class T>
__device__ __forceinline__ unsigned word_of(const Vector<T, 2>& pair) {
  static_assert(sizeof(pair) == 4, "two numbers of 16 bits");
  return reinterpret_cast<const unsigned&>(pair);
}

// A warp's rows of a part: all operands have vectors of 16 bytes. What joins 64 columns is fetched
// while those before are computed; what an element has of its own comes by lines, and becomes
// fragments where results become lines. `rows` and `columns`, from the part's first ones on, are as
// many as exist.
template <class Config, class Epilogue, int PARTS, int COUNT>
__device__ __forceinline__ void store_lines(const Epilogue& epilogue, int first_row,
                                            int first_column, int rows, int columns,
                                            const float (&sums)[PARTS][COUNT], int part, int row,
                                            RowBuffer& buffer) {
  using Masks = typename Config::Masks;
  using Joining = typename Epilogue::template Joining<2, Masks>;
  using Lines = typename Epilogue::template Joining<LINE_VECTOR, Masks>;
  constexpr int GROUPS = LINE_COLUMNS / FRAGMENT_COLUMNS, RUNS = LineLanes::RUNS;
  static_assert(sizeof(PackedRows) <= sizeof(RowBuffer), "results take the place of sums");
  auto& packed = reinterpret_cast<PackedRows&>(buffer);
  const int own_pair = threadIdx.x % 4;
  const int line_row = LineLanes::row(), line_column = LineLanes::column();
  const auto place = epilogue.place(first_row + row, first_column + 2 * own_pair);
  const auto line = epilogue.place(first_row + line_row, first_column + line_column);
  const int end = min(COUNT * 2, columns);
  Joining of_row[2] = {}, of_columns[GROUPS] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half < rows) {
      of_row[half] = epilogue.template fetch<2, Masks, Masks::BY_ROW>(place, 8 * half, 0);
    }
  }
  const auto fetch_columns = [&](int first) {
    const auto from = epilogue.place(first_row, first_column + first + 2 * own_pair);
    const bool is_whole = first + LINE_COLUMNS <= end;
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const int column = group * FRAGMENT_COLUMNS;
      if (!is_whole && first + column >= end) continue;
      of_columns[group] = epilogue.template fetch<2, Masks, Masks::BY_COLUMN>(from, 0, column);
    }
  };
  const auto exists = [&](int i, int first) {
    return line_row + i * LineLanes::DOWN < rows && first + line_column < end;
  };
  Lines lines[RUNS] = {};
  const auto fetch_lines = [&](int first) {
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      if (!exists(i, first)) continue;
      lines[i] = epilogue.template fetch<LINE_VECTOR, Masks, Masks::BY_PLACE>(
          line, i * LineLanes::DOWN, first);
    }
  };
  fetch_columns(0);
  fetch_lines(0);
#pragma unroll 1
  for (int first = 0; first < end; first += LINE_COLUMNS) {
    Joining own[2][GROUPS] = {}, joining[GROUPS];
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) joining[group] = of_columns[group];
    fetch_columns(first + LINE_COLUMNS);
    __syncwarp();  // the results before have been read
    if constexpr (Masks::BY_PLACE != 0) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        const auto& words = get<Masks::PLACED>(lines[i]).words.element;
        packed.vector(line_row + i * LineLanes::DOWN, line_column) =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
      __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
          get<Masks::PLACED>(own[half][group]).words.element[0] =
              packed.words[row + 8 * half][group * 4 + own_pair];
        }
      }
      fetch_lines(first + LINE_COLUMNS);
    }
    for_each_pair<64>(sums, part, first, [&](int half, int group, const auto& pair) {
      const auto joined =
          epilogue.template merged<Masks>(of_row[half], joining[group], own[half][group]);
      packed.words[row + 8 * half][group * 4 + own_pair] = word_of(
          epilogue.results_inside(pair, joined, place, 8 * half, first + group * FRAGMENT_COLUMNS));
    });
    __syncwarp();
    uint4 vectors[RUNS];
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      vectors[i] = packed.vector(line_row + i * LineLanes::DOWN, line_column);
    }
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      if (exists(i, first)) epilogue.store_inside(vectors[i], line, i * LineLanes::DOWN, first);
    }
  }
}

// The same rows where those of the result may begin anywhere: each lies in shared memory as far
// behind a sector as in memory, so that vectors leave in whole sectors. Its last columns wait there
// for the next. Pairs are words: behind an odd number of elements they lie one element later.
struct ShiftedRows {
  static constexpr int SECTOR = 16;                          // elements
  static constexpr int PITCH = (LINE_COLUMNS + SECTOR) / 2;  // words
  static constexpr int WAITING = SECTOR / LINE_VECTOR;       // vectors of a row
  static_assert(WAITING * RowBuffer::ROWS == 32, "each a lane's");
  unsigned words[RowBuffer::ROWS][PITCH];

  __device__ __forceinline__ void set_pair(int row, int place, unsigned pair) {
    words[row][(place + 1) / 2] = pair;
  }
  __device__ __forceinline__ const unsigned short& number(int row, int place, bool is_odd) const {
    return reinterpret_cast<const unsigned short*>(words[row])[place + (is_odd ? 1 : 0)];
  }
  // Eight elements from a vector on, of a row behind an odd number of elements or not.
  __device__ __forceinline__ uint4 vector(int row, int place, bool is_odd) const {
    const unsigned* const from = &words[row][place / 2];
    const uint4 own = *reinterpret_cast<const uint4*>(from);
    if (!is_odd) return own;
    const unsigned next = place < 2 * PITCH - LINE_VECTOR ? from[4] : 0;
    constexpr unsigned LATER = 0x5432;  // the last element of one word, the first of the next
    return make_uint4(__byte_perm(own.x, own.y, LATER), __byte_perm(own.y, own.z, LATER),
                      __byte_perm(own.z, own.w, LATER), __byte_perm(own.w, next, LATER));
  }
  // The last columns are those before the next; at first there are none.
  __device__ __forceinline__ void move_on() { waiting(0) = waiting(LINE_COLUMNS); }
  __device__ __forceinline__ void begin() {
    waiting(0) = waiting(LINE_COLUMNS) = make_uint4(0, 0, 0, 0);
  }

 private:
  // The vector of this lane among those that wait, behind `place`.
  __device__ __forceinline__ uint4& waiting(int place) {
    const int row = threadIdx.x % RowBuffer::ROWS, which = threadIdx.x % 32 / RowBuffer::ROWS;
    return *reinterpret_cast<uint4*>(&words[row][(place + which * LINE_VECTOR) / 2]);
  }
};

// The 16-bit result of a warp's rows from `first_row` on, some of which exist, and whose columns
// are neighbours in memory.
template <class Config, class Problem, class Epilogue, int PARTS, int COUNT>
__device__ __forceinline__ void store_shifted(const Problem& problem, const Epilogue& epilogue,
                                              int first_row, int first_column,
                                              const float (&sums)[PARTS][COUNT], int part, int row,
                                              RowBuffer& buffer) {
  using Result = typename Problem::Result;
  using Masks = typename Config::Masks;
  using Joining = typename Epilogue::template Joining<2, Masks>;
  constexpr int GROUPS = LINE_COLUMNS / FRAGMENT_COLUMNS;
  constexpr bool FETCHES = Epilogue::template leaves_in_lines<Masks>() && Masks::BY_PLACE == 0;
  constexpr int AT_ONCE = Epilogue::HAS_EXTRAS ? 32 : 64;  // or registers do not suffice
  static_assert(sizeof(ShiftedRows) <= sizeof(RowBuffer), "results take the place of sums");
  auto& shifted = reinterpret_cast<ShiftedRows&>(buffer);
  const int own_pair = threadIdx.x % 4;
  const int rows = min(static_cast<int>(problem.m) - first_row, RowBuffer::ROWS);
  const int columns = static_cast<int>(problem.n) - first_column;
  const int end = min(COUNT * 2, columns);
  const int64_t pitch = problem.operands[Problem::OUT].row_stride;
  const auto place = epilogue.place(first_row + row, first_column + 2 * own_pair);
  Result* const tile = epilogue.place(first_row, first_column).out;
  const auto after_sector = [&](int r) {
    const auto address = reinterpret_cast<uintptr_t>(tile + r * pitch);
    return static_cast<int>(address / sizeof(Result) % ShiftedRows::SECTOR);
  };
  // Of columns before `limit`: a vector of row r, which is `after` elements behind a sector. Its
  // elements one by one take fewer instructions in a loop, and less time out of registers: beside
  // what joins a result there are none left.
  const auto store = [&](int r, int after, int at, int first, int limit) {
    const int column = first + at - after, end = min(LINE_VECTOR, limit - column);
    const bool is_odd = after % 2 != 0;
    Result* const to = tile + r * pitch + column;
    if (column >= 0 && end == LINE_VECTOR) {
      *reinterpret_cast<uint4*>(to) = shifted.vector(r, at, is_odd);
    } else if constexpr (Epilogue::HAS_EXTRAS) {
#pragma unroll 1
      for (int i = max(0, -column); i < end; ++i) {
        to[i] = reinterpret_cast<const Result&>(shifted.number(r, at + i, is_odd));
      }
    } else if (column > -LINE_VECTOR && end > 0) {
      const uint4 vector = shifted.vector(r, at, is_odd);
      const auto& elements = reinterpret_cast<const Vector<Result, LINE_VECTOR>&>(vector).element;
#pragma unroll
      for (int i = 0; i < LINE_VECTOR; ++i) {
        if (column + i >= 0 && i < end) to[i] = elements[i];
      }
    }
  };
  const int after[2] = {after_sector(row), after_sector(row + 8)};
  int line_after[LineLanes::RUNS];
#pragma unroll
  for (int i = 0; i < LineLanes::RUNS; ++i) {
    line_after[i] = after_sector(LineLanes::row() + i * LineLanes::DOWN);
  }
  Joining of_row[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (FETCHES && row + 8 * half < rows) {
      of_row[half] = epilogue.template fetch<2, Masks, Masks::BY_ROW>(place, 8 * half, 0);
    }
  }
  __syncwarp();  // the rows before have been read
  shifted.begin();
  int first = 0;
#pragma unroll 1
  while (true) {
    Joining of_columns[GROUPS] = {};
#pragma unroll
    for (int group = 0; FETCHES && group < GROUPS; ++group) {
      const int column = first + group * FRAGMENT_COLUMNS;
      of_columns[group] = epilogue.template fetch_each<2, Masks, Masks::BY_COLUMN>(
          place, column, columns - column - 2 * own_pair);
    }
    __syncwarp();  // the columns before are in their place
    for_each_pair<AT_ONCE>(
        sums, part, first, [&](int half, int group, const Vector<float, 2>& pair) {
          const int column = group * FRAGMENT_COLUMNS;
          Vector<Result, 2> both;
          if constexpr (FETCHES) {
            const auto joining =
                epilogue.template merged<Masks>(of_row[half], of_columns[group], Joining{});
            both = epilogue.results_inside(pair, joining, place, 8 * half, first + column);
          } else {
            both = epilogue.results(pair, place.row + 8 * half, place.column + first + column);
          }
          shifted.set_pair(row + 8 * half, after[half] + column + 2 * own_pair, word_of(both));
        });
    __syncwarp();
#pragma unroll
    for (int i = 0; i < LineLanes::RUNS; ++i) {
      const int r = LineLanes::row() + i * LineLanes::DOWN;
      if (r < rows) store(r, line_after[i], LineLanes::column(), first, columns);
    }
    if (first + LINE_COLUMNS >= end) break;
    first += LINE_COLUMNS;
    __syncwarp();  // they have been read
    shifted.move_on();
  }
  // What is left of rows that begin between sectors.
  const int r = threadIdx.x % RowBuffer::ROWS, which = threadIdx.x % 32 / RowBuffer::ROWS;
  if (r < rows) {
    store(r, after_sector(r), LINE_COLUMNS + which * LINE_VECTOR, first,
          min(columns, first + LINE_COLUMNS));
  }
}
