#pragma once
// One row of a scan whose elements are neighbours in memory.

#include "async_copy.cuh"
#include "scan.cuh"

// The vectors of WIDTH elements that hold it; all methods count vectors in memory.
template <class Problem, int WIDTH>
struct ScanRow {
  static constexpr int OPERANDS = Problem::OPERANDS;

  // Addresses of what would be the first element of vector 0.
  char* data[OPERANDS];
  bool is_aligned[OPERANDS];
  bool is_repeated[OPERANDS];
  // The first vector begins that many elements before the row.
  int shift;
  int64_t length;
  int64_t vectors;
  // Of the first element of vector 0 in the result.
  int64_t element;

  __device__ __forceinline__ ScanRow(const Problem& problem, int64_t row) {
    int64_t offsets[OPERANDS];
    problem.locate(row, offsets);
    length = problem.length;
    const auto first = reinterpret_cast<uintptr_t>(problem.data[0]) / Problem::element_bytes(0);
    shift = static_cast<int>((first + offsets[0]) % WIDTH);
    vectors = (shift + length + WIDTH - 1) / WIDTH;
    element = offsets[0] - shift;
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) {
      constexpr int64_t NOWHERE = 0;
      is_repeated[o] = o > 0 && problem.steps[o] == 0;
      const int64_t before = is_repeated[o] ? NOWHERE : shift;
      data[o] = problem.data[o] + (offsets[o] - before) * Problem::element_bytes(o);
      const auto alignment = access_bytes(WIDTH * static_cast<int>(Problem::element_bytes(o)));
      is_aligned[o] = reinterpret_cast<uintptr_t>(data[o]) % alignment == 0;
    }
  }

  static constexpr unsigned ALL = (1u << WIDTH) - 1;

  // Which elements of a vector the row has, bit by bit.
  __device__ __forceinline__ unsigned held(int64_t vector) const {
    const int64_t first = vector * WIDTH - shift, last = length - first;
    const int begin = first < 0 ? static_cast<int>(-first) : 0;
    const int end = static_cast<int>(max(int64_t{0}, min(last, int64_t{WIDTH})));
    return (ALL << min(begin, WIDTH)) & ((1u << end) - 1);
  }

  // Whether every operand begins its vectors where whole accesses may.
  __device__ __forceinline__ bool is_all_aligned() const {
    bool all = true;
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) all = all && (is_aligned[o] || is_repeated[o]);
    return all;
  }

  // WHOLE: the vector is inside of the row, and aligned in every operand; `mask`: what `held` says.
  template <bool WHOLE, class T, int OPERAND>
  __device__ __forceinline__ Vector<T, WIDTH> load(int64_t vector, unsigned mask = ALL) const {
    const T* address = reinterpret_cast<const T*>(data[OPERAND]);
    Vector<T, WIDTH> result;
    if (is_repeated[OPERAND]) {
      const T value = load_constant(address);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) result.element[i] = value;
      return result;
    }
    address += vector * WIDTH;
    if constexpr (WHOLE) return load_constant_vector<WIDTH>(address);
    if (is_aligned[OPERAND] && mask == ALL) return load_constant_vector<WIDTH>(address);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      result.element[i] = (mask >> i & 1) != 0 ? load_constant(address + i) : T();
    }
    return result;
  }

  template <bool WHOLE, int FIRST, class... Ts, size_t... AT>
  __device__ __forceinline__ void load_all(Pack<Vector<Ts, WIDTH>...>& inputs, int64_t vector,
                                           unsigned mask, std::index_sequence<AT...>) const {
    ((get<AT>(inputs) = load<WHOLE, Ts, FIRST + static_cast<int>(AT)>(vector, mask)), ...);
  }

  // Begins to copy the elements of a whole vector to shared memory.
  template <class T, int OPERAND>
  __device__ __forceinline__ void fetch(Vector<T, WIDTH>& place, int64_t vector) const {
    constexpr int BYTES = sizeof(place);
    if constexpr (BYTES >= 4) {
      if (!is_repeated[OPERAND]) {
        const T* address = reinterpret_cast<const T*>(data[OPERAND]) + vector * WIDTH;
        copy_async<BYTES>(&place, address, true);
        return;
      }
    }
    place = load<true, T, OPERAND>(vector);
  }

  template <int FIRST, class... Ts, size_t... AT>
  __device__ __forceinline__ void fetch_all(Pack<Vector<Ts, WIDTH>...>& place, int64_t vector,
                                            std::index_sequence<AT...>) const {
    (fetch<Ts, FIRST + static_cast<int>(AT)>(get<AT>(place), vector), ...);
  }

  template <bool WHOLE, class Out>
  __device__ __forceinline__ void store(int64_t vector, unsigned mask,
                                        const Vector<Out, WIDTH>& result) const {
    Out* address = reinterpret_cast<Out*>(data[0]) + vector * WIDTH;
    if (WHOLE || mask == ALL) {
      store_vector(address, result);
      return;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      if ((mask >> i & 1) != 0) address[i] = result.element[i];
    }
  }
};
