#pragma once
// Rows whose elements lie next to each other, walked in vectors.
//
// A row is one run of memory, or some runs of a whole number of vectors. Vectors begin where memory
// is aligned: of a row that begins between two vectors, the first one has elements of the row only
// at its end, as the last one may have at its beginning.

#include "row_program.cuh"

template <class Types>
struct PackBytes;
template <class... T>
struct PackBytes<Pack<T...>> {
  __host__ __device__ static constexpr int at(int index) {
    constexpr int BYTES[] = {0, static_cast<int>(sizeof(T))...};
    return BYTES[index + 1];
  }
};

// Bytes of an element of an operand.
template <class Program>
__host__ __device__ constexpr int operand_bytes(int operand) {
  return operand < RowTypes<Program>::INPUTS
             ? PackBytes<typename Program::Inputs>::at(operand)
             : PackBytes<typename Program::Results>::at(operand - RowTypes<Program>::INPUTS);
}

template <class Program, int WIDTH_>
struct VectorRows {
  static constexpr int WIDTH = WIDTH_;
  using Types = RowTypes<Program>;
  using Space = typename Types::Space;

  Program program;
  Space space;
  Axes<Types::OPERANDS> vectors;  // of a row in runs: the innermost size counts vectors
  bool is_run;
  unsigned streamed;  // operands with an element for each of the innermost size; others repeat one

  // Whether rows can be walked so: whatever their beginnings are, if they are runs.
  static bool can_walk(const Space& space) {
    if (space.reduced.count == 0 || space.kept.count == 0) return false;
    const int64_t inner = space.reduced.rank == 0 ? 1 : space.reduced.sizes[space.reduced.rank - 1];
    if (space.reduced.inner_stride(space.leader) != 1) return false;
    bool can = space.reduced.rank == 1 || inner % WIDTH == 0;
    repeat<Types::OPERANDS>([&](auto o) {
      const int64_t stride = space.reduced.inner_stride(o);
      const bool is_result = o >= Types::INPUTS;
      const bool of_rows = is_result && (results_mask<Program, false>() >> o & 1) != 0;
      can = can && (stride == 1 || (stride == 0 && (!is_result || of_rows)));
      if (stride != 1 || space.reduced.rank == 1) return;
      // Runs begin where vectors do.
      constexpr int64_t BYTES = operand_bytes<Program>(o);
      constexpr int64_t ALIGNMENT = access_bytes(WIDTH * BYTES);
      can = can && reinterpret_cast<uintptr_t>(space.data[o]) % ALIGNMENT == 0;
      for (int d = 0; d + 1 < space.reduced.rank; ++d) {
        can = can && space.reduced.strides[d][o] * BYTES % ALIGNMENT == 0;
      }
      for (int d = 0; d < space.kept.rank; ++d) {
        can = can && space.kept.strides[d][o] * BYTES % ALIGNMENT == 0;
      }
    });
    return can;
  }

  static VectorRows describe(const Program& program, const Space& space) {
    VectorRows rows = {program, space, space.reduced, space.reduced.rank == 1, 0};
    repeat<Types::OPERANDS>([&](auto o) {
      if (space.reduced.inner_stride(o) == 1) rows.streamed |= 1u << o;
    });
    if (rows.is_run) return rows;
    const int inner = space.reduced.rank - 1;
    rows.vectors.count /= WIDTH;
    rows.vectors.sizes[inner] /= WIDTH;
    for (int64_t& stride : rows.vectors.strides[inner]) stride *= WIDTH;
    rows.vectors.prepare();
    return rows;
  }

  // Vectors that any row may have.
  int64_t most_vectors() const {
    return is_run ? (space.reduced.count + 2 * WIDTH - 2) / WIDTH : vectors.count;
  }
};

// Where a vector of a row lies.
template <int OPERANDS>
struct VectorPlace {
  int64_t first;   // place in the row of the first element, below 0 if that is in front of the row
  unsigned valid;  // which elements are the row's, bit by bit
  int64_t offsets[OPERANDS];
};

// One thread's view of a row.
template <class Program, int WIDTH>
struct RowVectors {
  using Rows = VectorRows<Program, WIDTH>;
  using Types = RowTypes<Program>;
  using Place = VectorPlace<Types::OPERANDS>;
  static constexpr unsigned FULL = (1u << WIDTH) - 1;

  const Rows& rows;
  int64_t row;
  int64_t offsets[Types::OPERANDS] = {};
  int64_t count;     // vectors
  int shift = 0;     // elements by which the first vector begins in front of the row
  unsigned aligned;  // operands whose vectors one access can move

  __device__ __forceinline__ RowVectors(const Rows& rows, int64_t row) : rows(rows), row(row) {
    rows.space.kept.locate(row, ~0u, offsets);
    count = rows.vectors.count;
    aligned = rows.streamed;
    if (!rows.is_run) return;
    repeat<Types::OPERANDS>([&](auto o) {
      if (o != rows.space.leader) return;
      shift = static_cast<int>(address<o>(offsets[o]) / operand_bytes<Program>(o) % WIDTH);
    });
    count = (rows.space.reduced.count + shift + WIDTH - 1) / WIDTH;
    repeat<Types::OPERANDS>([&](auto o) {
      constexpr int ALIGNMENT = access_bytes(WIDTH * operand_bytes<Program>(o));
      if (address<o>(offsets[o] - shift) % ALIGNMENT != 0) aligned &= ~(1u << o);
    });
  }

  // Of vector `v` < count; offsets of the operands in `mask`.
  __device__ __forceinline__ Place locate(int64_t v, unsigned mask) const {
    Place place;
    place.first = v * WIDTH - shift;
    place.valid = FULL;
    const int64_t behind = rows.space.reduced.count - place.first;
    if (behind < WIDTH) place.valid = (1u << behind) - 1;
    if (place.first < 0) place.valid &= FULL << -place.first;
#pragma unroll
    for (int o = 0; o < Types::OPERANDS; ++o) {
      place.offsets[o] = offsets[o];
      if (rows.is_run && (rows.streamed >> o & 1) != 0) place.offsets[o] += place.first;
    }
    if (!rows.is_run) rows.vectors.locate(v, mask, place.offsets);
    return place;
  }

  // Whether one access moves the whole vector.
  template <int OPERAND>
  __device__ __forceinline__ bool is_whole(const Place& place) const {
    return (aligned >> OPERAND & 1) != 0 && place.valid == FULL;
  }

  // WHOLE: it is known that one access moves the vector, or that its elements are one.
  template <int INPUT, bool WHOLE>
  __device__ __forceinline__ auto load(const Place& place) const {
    using In = pack_item_t<INPUT, typename Program::Inputs>;
    const In* from = input<INPUT>(place.offsets[INPUT]);
    if constexpr (WHOLE) {
      if ((rows.streamed >> INPUT & 1) != 0) return load_vector<WIDTH>(from);
      return repeat_element(*from);
    }
    if (is_whole<INPUT>(place)) return load_vector<WIDTH>(from);
    return load_elements(from, place.valid, (rows.streamed >> INPUT & 1) != 0);
  }

  template <int INPUT>
  __device__ __forceinline__ auto input(int64_t offset) const {
    using In = pack_item_t<INPUT, typename Program::Inputs>;
    return reinterpret_cast<const In*>(rows.space.data[INPUT]) + offset;
  }

  template <class In>
  __device__ __forceinline__ static Vector<In, WIDTH> repeat_element(In element) {
    Vector<In, WIDTH> values;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) values.element[i] = element;
    return values;
  }

  // One element at a time; what is not the row's repeats an element that is.
  template <class In>
  __device__ __forceinline__ static Vector<In, WIDTH> load_elements(const In* from, unsigned valid,
                                                                    bool streams) {
    Vector<In, WIDTH> values;
    const int first = __ffs(static_cast<int>(valid)) - 1;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      values.element[i] = from[streams ? (is_valid(valid, i) ? i : first) : 0];
    }
    return values;
  }

  template <int OPERAND, bool WHOLE, class Out>
  __device__ __forceinline__ void store(const Place& place,
                                        const Vector<Out, WIDTH>& values) const {
    Out* to = reinterpret_cast<Out*>(rows.space.data[OPERAND]) + place.offsets[OPERAND];
    if (WHOLE || is_whole<OPERAND>(place)) {
      store_vector(to, values);
    } else {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        if (is_valid(place.valid, i)) to[i] = values.element[i];
      }
    }
  }

 private:
  template <int OPERAND>
  __device__ __forceinline__ int64_t address(int64_t offset) const {
    return reinterpret_cast<int64_t>(rows.space.data[OPERAND]) +
           offset * operand_bytes<Program>(OPERAND);
  }
};

// A vector of each input.
template <class Inputs, int WIDTH>
struct PackOfVectors;
template <class... In, int WIDTH>
struct PackOfVectors<Pack<In...>, WIDTH> {
  using type = Pack<Vector<In, WIDTH>...>;
};

// Loads vectors of the inputs in MASK.
template <unsigned MASK, bool WHOLE = false, class Program, int WIDTH, class Vectors>
__device__ __forceinline__ void load_inputs(const RowVectors<Program, WIDTH>& row,
                                            const typename RowVectors<Program, WIDTH>::Place& place,
                                            Vectors& vectors) {
  repeat<RowTypes<Program>::INPUTS>([&](auto input) {
    if constexpr ((MASK >> input & 1) != 0)
      get<input>(vectors) = row.template load<input, WHOLE>(place);
  });
}

// Loads the inputs in MASK that all of the row's elements share.
template <unsigned MASK, class Program, int WIDTH>
__device__ __forceinline__ void load_shared_inputs(const RowVectors<Program, WIDTH>& row,
                                                   typename Program::Inputs& element) {
  repeat<RowTypes<Program>::INPUTS>([&](auto input) {
    if constexpr ((MASK >> input & 1) != 0) {
      get<input>(element) = *row.template input<input>(row.offsets[input]);
    }
  });
}

// Element `i` of the vectors of the inputs in MASK.
template <unsigned MASK, class Inputs, class Vectors>
__device__ __forceinline__ void pick_element(const Vectors& vectors, int i, Inputs& element) {
  repeat<PackTraits<Inputs>::SIZE>([&](auto input) {
    if constexpr ((MASK >> input & 1) != 0) {
      get<input>(element) = get<input>(vectors).element[i];
    }
  });
}

// Computes and writes the results of a vector's elements.
template <unsigned MASK, bool WHOLE = false, class Program, int WIDTH, class Vectors>
__device__ __forceinline__ void store_vectors(
    const RowVectors<Program, WIDTH>& row, const typename RowVectors<Program, WIDTH>::Place& place,
    const typename Program::Totals& totals, const typename Program::Inputs& shared,
    const Vectors& vectors) {
  using Types = RowTypes<Program>;
  repeat<Types::RESULTS>([&](auto result) {
    if constexpr (Program::IS_ELEMENT[result]) {
      using Out = pack_item_t<result, typename Program::Results>;
      Vector<Out, WIDTH> values;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        typename Program::Inputs element = shared;
        pick_element<MASK>(vectors, i, element);
        const RowPlace at = {row.rows.space.coordinates, row.row, place.first + i};
        values.element[i] = narrow<Out>(result_of_element<result>(
            row.rows.program, totals, at, element, typename Types::InputIndices()));
      }
      row.template store<Types::INPUTS + result, WHOLE>(place, values);
    }
  });
}

// Writes the results that the row has one of.
template <class Program, int WIDTH>
__device__ __forceinline__ void store_row_results(const RowVectors<Program, WIDTH>& row,
                                                  const typename Program::Totals& totals) {
  typename Program::Inputs element = {};
  load_shared_inputs<Program::ROW_READS>(row, element);
  store_results<false>(row.rows.program, totals, RowPlace{row.rows.space.coordinates, row.row, 0},
                       element, row.rows.space.data, row.offsets);
}
