#pragma once
// What a kernel over rows computes. A program is a struct, written for each kernel, with
//   Inputs, Results   Pack of the stored types of its tensors
//   Folds             Pack of the folds (folds.cuh) that it makes of each row
//   Totals            Pack of the types of what they give, in order
//   LEVELS, LEVEL_OF  a fold of level n needs totals of folds of lower levels
//   READS             by level the inputs that its folds read, bit by bit; last those of results
//                     that have an element for each of the row's
//   ROW_READS         those of results that have one for each row: the same along the row
//   RESULT_READS      those of each result that has an element for each of the row's
//   DUE               the level with whose folds each of these can be written: that of the last
//                     total that it needs, and one more
//   TAKES             for each fold the result that is the same as what it takes of an element and
//                     due at its level; -1 for none
//   SHARED            the inputs of which a row has one element
//   STREAMED          those of which it has as many as it has elements
//   ALIKE             those that are the same for all rows
//   ONCE              those that leave the caches first: more than these hold, each element of
//                     which one thread reads once
//   IS_ELEMENT        which results are of the first kind
//   LOCATED           whether anything depends on where its element stands
//   SHAPE             RowShape
//   take(Index, ...)    what a fold takes of an element
//   result(Index, ...)  the element of a result
// Both of these take the totals, the place and the element of each input.

#include "convert.cuh"
#include "dependent_launch.cuh"
#include "folds.cuh"
#include "pack.cuh"
#include "paired_facts.cuh"
#include "row_space.cuh"
#include "vector.cuh"

template <class Types>
struct PackTraits;
template <class... T>
struct PackTraits<Pack<T...>> {
  static constexpr int SIZE = sizeof...(T);
  using Indices = std::index_sequence_for<T...>;
  static constexpr bool ANY_COUNTS_PLACES = (false || ... || T::COUNTS_PLACES);
};

template <class Types>
struct PackOfStates;
template <class... Fold>
struct PackOfStates<Pack<Fold...>> {
  using type = Pack<typename Fold::State...>;
};

template <class Types>
struct LargestState;
template <class... Fold>
struct LargestState<Pack<Fold...>> {
  static constexpr int bytes() {
    int most = 0;
    for (const size_t bytes : {sizeof(typename Fold::State)...}) {
      if (static_cast<int>(bytes) > most) most = static_cast<int>(bytes);
    }
    return most;
  }
  static constexpr int BYTES = bytes();
};

template <size_t INDEX, class T>
T pack_item(const PackItem<INDEX, T>&);
template <int INDEX, class Types>
using pack_item_t = decltype(pack_item<INDEX>(std::declval<const Types&>()));

template <class Program>
struct RowTypes {
  using Element = typename Program::Inputs;
  using States = typename PackOfStates<typename Program::Folds>::type;
  using Totals = typename Program::Totals;
  static constexpr int INPUTS = PackTraits<Element>::SIZE;
  static constexpr int RESULTS = PackTraits<typename Program::Results>::SIZE;
  static constexpr int FOLDS = PackTraits<typename Program::Folds>::SIZE;
  static constexpr int OPERANDS = INPUTS + RESULTS;
  using InputIndices = typename PackTraits<Element>::Indices;
  template <int FOLD>
  using FoldAt = pack_item_t<FOLD, typename Program::Folds>;
  using Space = RowSpace<OPERANDS>;
};

// Calls body(Index<0>()), ..., body(Index<COUNT - 1>()).
template <int COUNT, int FIRST = 0, class Body>
__host__ __device__ __forceinline__ void repeat(const Body& body) {
  if constexpr (FIRST < COUNT) {
    body(Index<FIRST>());
    repeat<COUNT, FIRST + 1>(body);
  }
}

// Calls body(fold's Index) for the folds of a level.
template <class Program, int LEVEL, class Body>
__device__ __forceinline__ void each_fold(const Body& body) {
  repeat<RowTypes<Program>::FOLDS>([&](auto fold) {
    if constexpr (Program::LEVEL_OF[fold] == LEVEL) body(fold);
  });
}

template <class Program>
__device__ __forceinline__ typename RowTypes<Program>::States no_elements() {
  typename RowTypes<Program>::States states;
  repeat<RowTypes<Program>::FOLDS>(
      [&](auto fold) { get<fold>(states) = RowTypes<Program>::template FoldAt<fold>::identity(); });
  return states;
}

// Index of the first of a fold's totals.
template <class Program, int FOLD>
__device__ __forceinline__ constexpr int first_total() {
  if constexpr (FOLD == 0) {
    return 0;
  } else {
    return first_total<Program, FOLD - 1>() + RowTypes<Program>::template FoldAt<FOLD - 1>::TOTALS;
  }
}

template <class Program, int FOLD, class State>
__device__ __forceinline__ void set_totals(const State& state, typename Program::Totals& totals) {
  using Fold = typename RowTypes<Program>::template FoldAt<FOLD>;
  repeat<Fold::TOTALS>([&](auto index) {
    get<first_total<Program, FOLD>() + index>(totals) = Fold::total(index, state);
  });
}

template <int FOLD, class Program, size_t... INPUT>
__device__ __forceinline__ auto take_element(const Program& program,
                                             const typename Program::Totals& totals,
                                             const RowPlace& place,
                                             const typename Program::Inputs& element,
                                             std::index_sequence<INPUT...>) {
  return program.take(Index<FOLD>(), totals, place, widen(get<INPUT>(element))...);
}

template <int RESULT, class Program, size_t... INPUT>
__device__ __forceinline__ auto result_of_element(const Program& program,
                                                  const typename Program::Totals& totals,
                                                  const RowPlace& place,
                                                  const typename Program::Inputs& element,
                                                  std::index_sequence<INPUT...>) {
  return program.result(Index<RESULT>(), totals, place, widen(get<INPUT>(element))...);
}

// The type that a result is computed with.
template <class Program, int RESULT>
struct ResultValue {
  using type = decltype(result_of_element<RESULT>(
      std::declval<const Program&>(), std::declval<const typename Program::Totals&>(),
      std::declval<const RowPlace&>(), std::declval<const typename Program::Inputs&>(),
      typename RowTypes<Program>::InputIndices()));
};

// Adds what a fold takes of N elements to its state.
template <class Fold, int N, class Value, class Where>
__device__ __forceinline__ void add_values(typename Fold::State& state, const Value (&values)[N],
                                           unsigned valid, const Where& places) {
  if constexpr (Fold::COUNTS_PLACES) {
    Fold::add(state, values, valid, places);
  } else {
    state = Fold::combine(state, Fold::of(values, valid, places));
  }
}

// Adds N elements of a row to the states of the folds of a level; not those that take what results
// are, where these are TAKEN.
template <int LEVEL, bool TAKEN = false, int N, class Where, class Program>
__device__ __forceinline__ void fold_elements(const Program& program,
                                              const typename Program::Totals& totals,
                                              const RowCoordinates& coordinates, int64_t row,
                                              const Where& places,
                                              const typename Program::Inputs (&elements)[N],
                                              unsigned valid,
                                              typename RowTypes<Program>::States& states) {
  using Types = RowTypes<Program>;
  each_fold<Program, LEVEL>([&](auto fold) {
    if constexpr (TAKEN && Program::TAKES[fold] >= 0) return;
    using Fold = typename Types::template FoldAt<fold>;
    using Value = decltype(take_element<fold>(program, totals, RowPlace{coordinates, 0, 0},
                                              elements[0], typename Types::InputIndices()));
    Value values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const RowPlace place = {coordinates, row, places.at(i), places.past(i)};
      values[i] =
          take_element<fold>(program, totals, place, elements[i], typename Types::InputIndices());
    }
    add_values<Fold>(get<fold>(states), values, valid, places);
  });
}

// Whether a result with this type in memory is pairs in this launch. Asked by type, it is asked of
// no program without such results, whatever a compiler reads of branches that are not taken.
template <class Out, class Program>
__device__ __forceinline__ bool is_in_pairs(const Program& program) {
  return program.in_pairs;
}

// The results of one kind of one element, to where `offsets` say.
template <bool OF_ELEMENTS, class Program>
__device__ __forceinline__ void store_results(
    const Program& program, const typename Program::Totals& totals, const RowPlace& place,
    const typename Program::Inputs& element, char* const (&data)[RowTypes<Program>::OPERANDS],
    const int64_t (&offsets)[RowTypes<Program>::OPERANDS]) {
  using Types = RowTypes<Program>;
  repeat<Types::RESULTS>([&](auto result) {
    if constexpr (Program::IS_ELEMENT[result] == OF_ELEMENTS) {
      using Out = pack_item_t<result, typename Program::Results>;
      constexpr int OPERAND = Types::INPUTS + result;
      Out* const to = reinterpret_cast<Out*>(data[OPERAND]) + offsets[OPERAND];
      const auto value = narrow<Out>(result_of_element<result>(program, totals, place, element,
                                                               typename Types::InputIndices()));
      if constexpr (ANY_PAIRED && IS_PAIRED<Out>) {
        if (is_in_pairs<Out>(program)) return store_paired(to, Vector<Out, 1>{value}, 1);
      }
      *to = value;
    }
  });
}

// Bits of the results of one kind among the operands.
template <class Program, bool OF_ELEMENTS>
__host__ __device__ constexpr unsigned results_mask() {
  unsigned mask = 0;
  for (int r = 0; r < RowTypes<Program>::RESULTS; ++r) {
    if (Program::IS_ELEMENT[r] == OF_ELEMENTS) mask |= 1u << (RowTypes<Program>::INPUTS + r);
  }
  return mask;
}

// Results that have an element for each of the row's and are due at a level, bit by bit.
template <class Program>
__host__ __device__ constexpr unsigned due_results(int level) {
  unsigned mask = 0;
  for (int r = 0; r < RowTypes<Program>::RESULTS; ++r) {
    if (Program::IS_ELEMENT[r] && Program::DUE[r] == level) mask |= 1u << r;
  }
  return mask;
}

// Inputs that the folds of a level and what is due with them read of elements.
template <class Program>
__host__ __device__ constexpr unsigned reads_when_due(int level) {
  unsigned mask = level < Program::LEVELS ? Program::READS[level] : 0;
  for (int r = 0; r < RowTypes<Program>::RESULTS; ++r) {
    if ((due_results<Program>(level) >> r & 1) != 0) mask |= Program::RESULT_READS[r];
  }
  return mask;
}

// Inputs that anything reads of elements.
template <class Program>
constexpr unsigned all_reads() {
  unsigned mask = 0;
  for (const unsigned reads : Program::READS) mask |= reads;
  return mask;
}

// The rows of a launch; tensors: inputs, then results.
template <class Program>
typename RowTypes<Program>::Space describe_rows(
    const Tensor (&operands)[RowTypes<Program>::OPERANDS]) {
  using Types = RowTypes<Program>;
  int leader = -1;
  for (int r = 0; r < Types::RESULTS && leader < 0; ++r) {
    if (Program::IS_ELEMENT[r]) leader = Types::INPUTS + r;
  }
  constexpr bool PLACES_COUNT =
      Program::LOCATED || PackTraits<typename Program::Folds>::ANY_COUNTS_PLACES;
  return Types::Space::describe(Program::SHAPE, operands, leader, PLACES_COUNT);
}
