#pragma once
// Rows whose elements lie next to each other, walked in vectors.
//
// A row is one run of memory, or some runs.

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

// Operands that have an element for each of the program's: they are walked in vectors.
template <class Program>
__host__ __device__ constexpr unsigned streamed() {
  return Program::STREAMED | results_mask<Program, true>();
}

// Inputs that are neither walked in vectors nor one for each row.
template <class Program>
__host__ __device__ constexpr unsigned other_inputs() {
  return ~(streamed<Program>() | Program::SHARED) & ((1u << RowTypes<Program>::INPUTS) - 1);
}

// Inputs that rows share, such as weights: the caches have them.
template <class Program>
__host__ __device__ constexpr unsigned alike_inputs() {
  return (other_inputs<Program>() | (Program::STREAMED & Program::ALIKE)) & ~Program::SHARED;
}

// Those of them that only results read: whoever keeps a row in registers loads them when results
// are due.
template <class Program>
__host__ __device__ constexpr unsigned late_inputs() {
  unsigned folded = 0;
  for (int level = 0; level < Program::LEVELS; ++level) folded |= Program::READS[level];
  return alike_inputs<Program>() & Program::READS[Program::LEVELS] & ~folded;
}

template <class Program, int WIDTH_>
struct VectorRows {
  static constexpr int WIDTH = WIDTH_;
  using Types = RowTypes<Program>;
  using Space = typename Types::Space;
  using Segments = Axes<Types::OPERANDS>;

  Program program;
  Space space;
  Segments segments;  // the runs of a row
  int64_t run;        // elements of each
  bool is_even;       // runs begin and end where vectors do
  bool steps_evenly;  // a vector's elements lie a stride apart in every input

  // Whether streamed operands are runs of memory that vectors can walk.
  static bool can_walk(const Space& space) {
    if (space.reduced.count == 0 || space.kept.count == 0) return false;
    const Segments merged = space.reduced.merged(streamed<Program>());
    if (merged.rank == 0) return false;
    // Such inputs are found by division, with 32 bits.
    bool can = other_inputs<Program>() == 0 || space.reduced.is_short();
    repeat<Types::OPERANDS>([&](auto o) {
      if ((streamed<Program>() >> o & 1) != 0) can = can && merged.inner_stride(o) == 1;
      if ((other_inputs<Program>() >> o & 1) != 0) can = can && space.reduced.is_within_reach(o);
    });
    return can;
  }

  static VectorRows describe(const Program& program, const Space& space) {
    VectorRows rows = {program, space, space.reduced.merged(streamed<Program>())};
    rows.run = rows.segments.sizes[rows.segments.rank - 1];
    rows.is_even = begins_even(space, rows.segments);
    const int inner = space.reduced.rank - 1;
    rows.steps_evenly = rows.is_even && space.reduced.sizes[inner] % WIDTH == 0;
    --rows.segments.rank;
    rows.segments.count /= rows.run;
    rows.segments.prepare();
    return rows;
  }

  // Vectors that a run may touch.
  int64_t run_vectors() const { return is_even ? run / WIDTH : (run + 2 * WIDTH - 2) / WIDTH; }

 private:
  static bool begins_even(const Space& space, const Segments& merged) {
    bool is_even = merged.sizes[merged.rank - 1] % WIDTH == 0;
    repeat<Types::OPERANDS>([&](auto o) {
      if ((streamed<Program>() >> o & 1) == 0) return;
      constexpr int64_t BYTES = operand_bytes<Program>(o);
      constexpr int64_t ALIGNMENT = access_bytes(WIDTH * BYTES);
      is_even = is_even && reinterpret_cast<uintptr_t>(space.data[o]) % ALIGNMENT == 0;
      for (int d = 0; d + 1 < merged.rank; ++d) {
        is_even = is_even && merged.strides[d][o] * BYTES % ALIGNMENT == 0;
      }
      for (int d = 0; d < space.kept.rank; ++d) {
        is_even = is_even && space.kept.strides[d][o] * BYTES % ALIGNMENT == 0;
      }
    });
    return is_even;
  }
};

// What tells where rows begin, in one place: the first blocks of a multiprocessor wait for each
// line of a kernel's parameters that they read.
template <class Program>
struct RowStarts {
  static constexpr int OPERANDS = RowTypes<Program>::OPERANDS;
  char* data[OPERANDS];
  int64_t steps[OPERANDS];  // bytes from row to row, if these are all the same
  bool are_even;            // whether they are
  int length;               // elements of a row

  static RowStarts of(const RowSpace<OPERANDS>& space) {
    RowStarts starts = {};
    starts.are_even = space.kept.rank <= 1 && space.kept.is_short();
    starts.length = static_cast<int>(space.reduced.count);
    repeat<OPERANDS>([&](auto o) {
      starts.data[o] = space.data[o];
      starts.steps[o] = space.kept.inner_stride(o) * operand_bytes<Program>(o);
    });
    return starts;
  }
};

// One thread's view of a run of a row, or of a part of it. Vectors begin where the memory of the
// streamed operands is aligned: of a row that begins between two vectors, the first one has
// elements of the row only at its end, as the last one may have at its beginning.
template <class Program, int WIDTH>
struct RowRun {
  using Rows = VectorRows<Program, WIDTH>;
  using Types = RowTypes<Program>;
  static constexpr unsigned FULL = (1u << WIDTH) - 1;
  static constexpr unsigned STREAMED = streamed<Program>();
  template <int INPUT>
  using Input = pack_item_t<INPUT, typename Program::Inputs>;

  const Rows& rows;
  int64_t row;
  int64_t first;               // place in the row of the first element of vector 0
  char* at[Types::OPERANDS];   // vector 0 of streamed operands; of others the row's first element
  int begin, end;              // the elements that count, from the first one of vector 0 on
  int whole_begin, whole_end;  // vectors that are moved by one access

  // `count` vectors, at most, of segment `segment` from vector `from` on.
  __device__ __forceinline__ RowRun(const Rows& rows, int64_t row, int64_t segment, int64_t from,
                                    int count)
      : rows(rows), row(row) {
    int64_t offsets[Types::OPERANDS] = {};
    rows.space.kept.locate(row, ~0u, offsets);
    if (rows.segments.rank > 0) rows.segments.locate(segment, STREAMED, offsets);
    int shift = 0;
    if (!rows.is_even) {
      repeat<Types::OPERANDS>([&](auto o) {
        if (o == rows.space.leader) shift = shift_of<o>(offsets[o]);
      });
    }
    const int64_t start = from * WIDTH - shift;
    repeat<Types::OPERANDS>([&](auto o) {
      constexpr bool STREAMS = (STREAMED >> o & 1) != 0;
      at[o] = rows.space.data[o] + (offsets[o] + (STREAMS ? start : 0)) * operand_bytes<Program>(o);
    });
    first = segment * rows.run + start;
    begin = from == 0 ? shift : 0;
    const int64_t rest = rows.run - start;
    end = rest < int64_t{count} * WIDTH ? static_cast<int>(rest) : count * WIDTH;
    whole_begin = begin > 0 ? 1 : 0;
    whole_end = rows.is_even || all_aligned() ? end / WIDTH : whole_begin;
  }

  // A row in which all vectors are whole.
  __device__ __forceinline__ RowRun(const Rows& rows, const RowStarts<Program>& starts, int64_t row)
      : rows(rows), row(row), first(0), begin(0), end(starts.length), whole_begin(0) {
    if (starts.are_even) {
      repeat<Types::OPERANDS>(
          [&](auto o) { at[o] = starts.data[o] + static_cast<uint32_t>(row) * starts.steps[o]; });
    } else {
      int64_t offsets[Types::OPERANDS] = {};
      rows.space.kept.locate(row, ~0u, offsets);
      repeat<Types::OPERANDS>(
          [&](auto o) { at[o] = starts.data[o] + offsets[o] * operand_bytes<Program>(o); });
    }
    whole_end = end / WIDTH;
  }

  // The same run from vector `v` on, of which those before do not count.
  __device__ __forceinline__ RowRun after(int v) const {
    RowRun result = *this;
    result.first += v * WIDTH;
    result.end -= v * WIDTH;
    repeat<Types::OPERANDS>([&](auto o) {
      if constexpr ((STREAMED >> o & 1) != 0) result.at[o] = address<o>(v);
    });
    return result;
  }

  __device__ __forceinline__ int vectors() const { return (end + WIDTH - 1) / WIDTH; }

  __device__ __forceinline__ bool is_whole(int v) const {
    return v >= whole_begin && v < whole_end;
  }

  // Which elements of a vector count, bit by bit.
  __device__ __forceinline__ unsigned valid(int v) const {
    unsigned mask = FULL;
    if (v * WIDTH < begin) mask &= FULL << (begin - v * WIDTH);
    if (end - v * WIDTH < WIDTH) mask &= (1u << (end - v * WIDTH)) - 1;
    return mask;
  }

  __device__ __forceinline__ int64_t place(int v) const { return first + v * WIDTH; }

  // The address of an operand's vector.
  template <int OPERAND>
  __device__ __forceinline__ auto address(int v) const {
    constexpr int BYTES = WIDTH * operand_bytes<Program>(OPERAND);
    return at[OPERAND] + static_cast<int64_t>(v) * BYTES;
  }

  // A vector of a streamed input. WHOLE: it is.
  template <int INPUT, bool WHOLE>
  __device__ __forceinline__ auto load(int v) const {
    const auto* from = reinterpret_cast<const Input<INPUT>*>(address<INPUT>(v));
    if constexpr (WHOLE && Program::ONCE != 0 && (Program::ONCE >> INPUT & 1) != 0) {
      return load_vector_once<WIDTH>(from);
    } else if constexpr (WHOLE) {
      return load_vector<WIDTH>(from);
    } else {
      return load_elements(from, valid(v));
    }
  }

  // Vectors of the inputs in OTHERS, which have fewer elements than the row, but more than one.
  // Where they lie is found once for all of them, and for a vector's elements together where these
  // are neighbours along the innermost dimension, as nearly all are where that is long. EVENLY: all
  // are, and there is no code for others.
  template <unsigned OTHERS, bool WHOLE, bool EVENLY, class Vectors>
  __device__ __forceinline__ void load_others(int v, Vectors& vectors) const {
    const auto first_place = static_cast<uint32_t>(place(v));
    if constexpr (EVENLY) {
      load_line<OTHERS>(first_place, vectors);
    } else {
      const unsigned mask = WHOLE ? FULL : valid(v);
      if (rows.steps_evenly || (mask == FULL && is_on_line(first_place))) {
        load_line<OTHERS>(first_place, vectors);
      } else {
        load_scattered<OTHERS>(first_place, mask, vectors);
      }
    }
  }

  template <int OPERAND, bool WHOLE, class Out>
  __device__ __forceinline__ void store(int v, const Vector<Out, WIDTH>& values) const {
    Out* to = reinterpret_cast<Out*>(address<OPERAND>(v));
    if constexpr (ANY_PAIRED && IS_PAIRED<Out>) {
      if (rows.program.in_pairs) return store_paired(to, values, WHOLE ? FULL : valid(v));
    }
    if constexpr (WHOLE) {
      store_vector(to, values);
    } else {
      const unsigned mask = valid(v);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        if (is_valid(mask, i)) to[i] = values.element[i];
      }
    }
  }

 private:
  template <int OPERAND>
  __device__ __forceinline__ int shift_of(int64_t offset) const {
    const auto begins = reinterpret_cast<uintptr_t>(rows.space.data[OPERAND]);
    return static_cast<int>((begins / operand_bytes<Program>(OPERAND) + offset) % WIDTH);
  }

  __device__ __forceinline__ bool all_aligned() const {
    uintptr_t odd = 0;
    repeat<Types::OPERANDS>([&](auto o) {
      constexpr uintptr_t ALIGNMENT = access_bytes(WIDTH * operand_bytes<Program>(o));
      if constexpr ((STREAMED >> o & 1) != 0) odd |= reinterpret_cast<uintptr_t>(at[o]) % ALIGNMENT;
    });
    return odd == 0;
  }

  // One element at a time; where one does not count, one that does stands in for it.
  template <class In>
  __device__ __forceinline__ static Vector<In, WIDTH> load_elements(const In* from, unsigned mask) {
    Vector<In, WIDTH> values;
    const int any = __ffs(static_cast<int>(mask)) - 1;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) values.element[i] = from[is_valid(mask, i) ? i : any];
    return values;
  }

  // A vector of each of the inputs in OTHERS: elements of one line of the innermost dimension.
  template <unsigned OTHERS, class Vectors>
  __device__ __forceinline__ void load_line(uint32_t first_place, Vectors& vectors) const {
    each_other<OTHERS>(first_place, [&](auto input, const auto* from) {
      load_steps(from, rows.space.reduced.inner_stride(input), get<input>(vectors));
    });
  }

  // The same of elements wherever they are; where one does not count, one that does stands in.
  template <unsigned OTHERS, class Vectors>
  __device__ __forceinline__ void load_scattered(uint32_t first_place, unsigned mask,
                                                 Vectors& vectors) const {
    const int any = __ffs(static_cast<int>(mask)) - 1;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      each_other<OTHERS>(
          first_place + (is_valid(mask, i) ? i : any),
          [&](auto input, const auto* from) { get<input>(vectors).element[i] = *from; });
    }
  }

  // Calls body(input, from) for the inputs in OTHERS: `from` is the element at a place of the row.
  template <unsigned OTHERS, class Body>
  __device__ __forceinline__ void each_other(uint32_t place, const Body& body) const {
    int32_t offsets[Types::OPERANDS] = {};
    rows.space.reduced.locate_short(place, OTHERS, offsets);
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((OTHERS >> input & 1) != 0) {
        body(input, reinterpret_cast<const Input<input>*>(at[input]) + offsets[input]);
      }
    });
  }

  // Elements a stride apart, all the same for a stride of 0.
  template <class In>
  __device__ __forceinline__ static void load_steps(const In* from, int64_t stride,
                                                    Vector<In, WIDTH>& values) {
    if (stride == 0) {
      const In value = *from;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) values.element[i] = value;
      return;
    }
    constexpr uintptr_t ALIGNMENT = access_bytes(WIDTH * sizeof(In));
    if (stride == 1 && reinterpret_cast<uintptr_t>(from) % ALIGNMENT == 0) {
      values = load_vector<WIDTH>(from);
      return;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) values.element[i] = from[i * stride];
  }

  // Whether a whole vector from a place on is part of one line of the innermost dimension.
  __device__ __forceinline__ bool is_on_line(uint32_t place) const {
    const auto& reduced = rows.space.reduced;
    return reduced.inner_place(place) + WIDTH <= reduced.inner_size();
  }
};

// A vector of each input.
template <class Inputs, int WIDTH>
struct PackOfVectors;
template <class... In, int WIDTH>
struct PackOfVectors<Pack<In...>, WIDTH> {
  using type = Pack<Vector<In, WIDTH>...>;
};

// Loads a vector of each of the inputs in MASK. EVENLY: the rows step so.
template <unsigned MASK, bool WHOLE, bool EVENLY = false, class Program, int WIDTH, class Vectors>
__device__ __forceinline__ void load_inputs(const RowRun<Program, WIDTH>& run, int v,
                                            Vectors& vectors) {
  constexpr unsigned WALKED = MASK & streamed<Program>(), OTHERS = MASK & ~WALKED;
  repeat<RowTypes<Program>::INPUTS>([&](auto input) {
    if constexpr ((WALKED >> input & 1) != 0) {
      get<input>(vectors) = run.template load<input, WHOLE>(v);
    }
  });
  if constexpr (OTHERS != 0) run.template load_others<OTHERS, WHOLE, EVENLY>(v, vectors);
}

// Loads the inputs in MASK that all of the row's elements share.
template <unsigned MASK, class Program, int WIDTH>
__device__ __forceinline__ void load_shared_inputs(const RowRun<Program, WIDTH>& run,
                                                   typename Program::Inputs& element) {
  repeat<RowTypes<Program>::INPUTS>([&](auto input) {
    if constexpr ((MASK >> input & 1) != 0) {
      using In = pack_item_t<input, typename Program::Inputs>;
      get<input>(element) = *reinterpret_cast<const In*>(run.at[input]);
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

// Adds COUNT vectors, whose first elements stand at `places`, to the states of a level; of those
// folds that do not take what results are, where these are TAKEN.
template <int LEVEL, int COUNT, bool TAKEN = false, int WIDTH, class Program, class Vectors>
__device__ __forceinline__ void fold_vectors(const RowRun<Program, WIDTH>& run,
                                             const typename Program::Totals& totals,
                                             const typename Program::Inputs& shared,
                                             VectorPlaces<WIDTH> places, const Vectors* vectors,
                                             unsigned valid,
                                             typename RowTypes<Program>::States& states) {
  typename Program::Inputs elements[COUNT * WIDTH];
#pragma unroll
  for (int i = 0; i < COUNT * WIDTH; ++i) {
    elements[i] = shared;
    pick_element<Program::READS[LEVEL] & ~Program::SHARED>(vectors[i / WIDTH], i % WIDTH,
                                                           elements[i]);
  }
  fold_elements<LEVEL, TAKEN>(run.rows.program, totals, run.rows.space.coordinates, run.row, places,
                              elements, valid, states);
}

// Result number RESULT of each of a vector's elements, of which those inputs that are in MASK were
// loaded; place_of(i) says where element i is.
template <int RESULT, unsigned MASK, int WIDTH, class Program, class Vectors, class PlaceOf>
__device__ __forceinline__ auto results_of_vector(const Program& program,
                                                  const typename Program::Totals& totals,
                                                  const typename Program::Inputs& shared,
                                                  const Vectors& vectors, const PlaceOf& place_of) {
  using Out = pack_item_t<RESULT, typename Program::Results>;
  Vector<Out, WIDTH> values;
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    typename Program::Inputs element = shared;
    pick_element<MASK>(vectors, i, element);
    values.element[i] = narrow<Out>(result_of_element<RESULT>(
        program, totals, place_of(i), element, typename RowTypes<Program>::InputIndices()));
  }
  return values;
}

// Computes and writes the results of COUNT vectors that are due with the folds of a level. Vector
// `k` is the run's number vector_of(k), and written if is_there(k). Calls taken(fold, values) for
// the folds that take the same of the elements: it is computed once.
template <int LEVEL, int COUNT, bool WHOLE, int WIDTH, class Program, class Vectors, class VectorOf,
          class IsThere, class Taken>
__device__ __forceinline__ void store_due(const RowRun<Program, WIDTH>& run,
                                          const typename Program::Totals& totals,
                                          const typename Program::Inputs& shared,
                                          const Vectors (&vectors)[COUNT],
                                          const VectorOf& vector_of, const IsThere& is_there,
                                          const Taken& taken) {
  using Types = RowTypes<Program>;
  const auto& coordinates = run.rows.space.coordinates;
  repeat<Types::RESULTS>([&](auto result) {
    if constexpr ((due_results<Program>(LEVEL) >> result & 1) != 0) {
      using Out = pack_item_t<result, typename Program::Results>;
      using Value = typename ResultValue<Program, result>::type;
      Value values[COUNT * WIDTH];
#pragma unroll
      for (int k = 0; k < COUNT; ++k) {
        Vector<Out, WIDTH> out;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
          typename Program::Inputs element = shared;
          pick_element<Program::RESULT_READS[result] & ~Program::SHARED>(vectors[k], i, element);
          const RowPlace place = {coordinates, run.row, run.place(vector_of(k)) + i};
          values[k * WIDTH + i] = result_of_element<result>(
              run.rows.program, totals, place, element, typename Types::InputIndices());
          out.element[i] = narrow<Out>(values[k * WIDTH + i]);
        }
        if (is_there(k)) run.template store<Types::INPUTS + result, WHOLE>(vector_of(k), out);
      }
      each_fold<Program, LEVEL>([&](auto fold) {
        if constexpr (Program::TAKES[fold] == result) taken(fold, values);
      });
    }
  });
}

// Computes and writes results of a vector's elements: those in RESULTS, bit by bit. `program`:
// where it is a copy, what a row shares is computed once, and not again after each store, which
// might have changed it.
template <bool WHOLE, unsigned RESULTS = ~0u, class Program, int WIDTH, class Vectors>
__device__ __forceinline__ void store_vectors(const Program& program,
                                              const RowRun<Program, WIDTH>& run, int v,
                                              const typename Program::Totals& totals,
                                              const typename Program::Inputs& shared,
                                              const Vectors& vectors) {
  using Types = RowTypes<Program>;
  constexpr unsigned READS = Program::READS[Program::LEVELS] & ~Program::SHARED;
  repeat<Types::RESULTS>([&](auto result) {
    if constexpr (Program::IS_ELEMENT[result] && (RESULTS >> result & 1) != 0) {
      const auto values = results_of_vector<result, READS, WIDTH>(
          program, totals, shared, vectors,
          [&](int i) { return RowPlace{run.rows.space.coordinates, run.row, run.place(v) + i}; });
      run.template store<Types::INPUTS + result, WHOLE>(v, values);
    }
  });
}

template <bool WHOLE, unsigned RESULTS = ~0u, class Program, int WIDTH, class Vectors>
__device__ __forceinline__ void store_vectors(const RowRun<Program, WIDTH>& run, int v,
                                              const typename Program::Totals& totals,
                                              const typename Program::Inputs& shared,
                                              const Vectors& vectors) {
  store_vectors<WHOLE, RESULTS>(run.rows.program, run, v, totals, shared, vectors);
}

// Writes the results that the row has one of.
template <class Program, int WIDTH>
__device__ __forceinline__ void store_row_results(const RowRun<Program, WIDTH>& run,
                                                  const typename Program::Totals& totals) {
  using Types = RowTypes<Program>;
  typename Program::Inputs element = {};
  load_shared_inputs<Program::ROW_READS>(run, element);
  constexpr int64_t NOWHERE_ELSE[Types::OPERANDS] = {};
  store_results<false>(run.rows.program, totals, RowPlace{run.rows.space.coordinates, run.row, 0},
                       element, run.at, NOWHERE_ELSE);
}
