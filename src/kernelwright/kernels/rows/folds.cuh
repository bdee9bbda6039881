#pragma once
// What the elements of a row are reduced to. A fold has
//   State       what some of the elements come to
//   TOTALS      how many values a row is reduced to
//   COUNTS_PLACES  whether the order of the elements matters
//   identity()  the state of no elements
//   of()        the state of N elements, those of which is_valid(valid, element)
//   combine()   the state of the elements of two
//   add()       of a fold that counts places: of a state and N elements
//   total()     value number INDEX
// A state is made of 4-byte or of 8-byte words, without gaps. Sums of many elements stay as good as
// pairwise ones: the elements of a state are summed in a tree, states with the rounding error kept.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "math.cuh"

// A number as a type, so that what is chosen by it is chosen when the kernel is compiled.
template <int INDEX>
struct Index {
  __host__ __device__ constexpr operator int() const { return INDEX; }
};

// Where elements stand in their row: `first`, `first + step`, and so on.
struct Places {
  int64_t first, step;

  __device__ __forceinline__ int64_t at(int element) const { return first + element * step; }
  __device__ __forceinline__ static constexpr int past(int) { return 0; }
};

// The same in vectors of WIDTH neighbours: the first of each stand at `first`, `first + step`, ...
template <int WIDTH>
struct VectorPlaces {
  int64_t first, step;

  __device__ __forceinline__ int64_t at(int element) const {
    return first + element / WIDTH * step + element % WIDTH;
  }
  // How far it stands from the first of its vector.
  __device__ __forceinline__ static constexpr int past(int element) { return element % WIDTH; }
};

__device__ __forceinline__ constexpr bool is_valid(unsigned valid, int element) {
  return (valid >> element & 1) != 0;
}

// Which elements of a lane count that has vectors of WIDTH, each LANES after the one before: those
// of the vectors that are there, of which the first CERTAIN are. One comparison for a vector.
template <int WIDTH, int LANES, int CERTAIN = 0>
struct LaneValid {
  int count;  // vectors from the lane's first one on, of all lanes
};

template <int WIDTH, int LANES, int CERTAIN>
__device__ __forceinline__ constexpr bool is_valid(LaneValid<WIDTH, LANES, CERTAIN> valid,
                                                   int element) {
  return element / WIDTH < CERTAIN || element / WIDTH * LANES < valid.count;
}

// N values combined in a tree.
template <int N, class T, class Combine>
__device__ __forceinline__ T combine_tree(const T (&values)[N], const Combine& combine) {
  constexpr int HALF = (N + 1) / 2;
  if constexpr (N == 1) {
    return values[0];
  } else {
    T halves[HALF];
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
      halves[i] = i + HALF < N ? combine(values[i], values[i + HALF]) : values[i];
    }
    return combine_tree(halves, combine);
  }
}

template <int N, class T>
__device__ __forceinline__ T tree_sum(const T (&values)[N]) {
  return combine_tree(values, [](T a, T b) { return a + b; });
}

template <int N, class T>
__device__ __forceinline__ T sum_of_valid(const T (&x)[N], unsigned valid) {
  T terms[N];
#pragma unroll
  for (int i = 0; i < N; ++i) terms[i] = is_valid(valid, i) ? x[i] : T(0);
  return tree_sum(terms);
}

// One selection for a vector.
template <int N, class T, int WIDTH, int LANES, int CERTAIN>
__device__ __forceinline__ T sum_of_valid(const T (&x)[N], LaneValid<WIDTH, LANES, CERTAIN> valid) {
  T sums[N / WIDTH];
#pragma unroll
  for (int k = 0; k < N / WIDTH; ++k) {
    T terms[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) terms[i] = x[k * WIDTH + i];
    sums[k] = is_valid(valid, k * WIDTH) ? tree_sum(terms) : T(0);
  }
  return tree_sum(sums);
}

// A sum and what rounding took from it (Knuth, "The art of computer programming" 2, 4.2.2).
template <class T>
struct LongSum {
  T sum, rest;

  __device__ __forceinline__ static LongSum add(const LongSum& a, const LongSum& b) {
    const T sum = a.sum + b.sum;
    if constexpr (std::is_floating_point_v<T>) {
      const T taken = sum - a.sum;
      return {sum, a.rest + b.rest + ((a.sum - (sum - taken)) + (b.sum - taken))};
    } else {
      return {sum, T(0)};
    }
  }
  // Where the sum is infinite or NaN, what rounding took from it says nothing.
  __device__ __forceinline__ T value() const {
    const T whole = sum + rest;
    return whole - whole == T(0) ? whole : sum;
  }
};

template <class T>
struct SumFold {
  using State = LongSum<T>;
  static constexpr int TOTALS = 1;
  static constexpr bool COUNTS_PLACES = false;

  __device__ __forceinline__ static State identity() { return {T(0), T(0)}; }
  template <int N, class Valid, class Where>
  __device__ __forceinline__ static State of(const T (&x)[N], Valid valid, const Where&) {
    return {sum_of_valid(x, valid), T(0)};
  }
  __device__ __forceinline__ static State combine(const State& a, const State& b) {
    return State::add(a, b);
  }
  __device__ __forceinline__ static T total(Index<0>, const State& state) { return state.value(); }
};

template <class T>
struct ProductFold {
  struct State {
    T product;
  };
  static constexpr int TOTALS = 1;
  static constexpr bool COUNTS_PLACES = false;

  __device__ __forceinline__ static State identity() { return {T(1)}; }
  template <int N, class Valid, class Where>
  __device__ __forceinline__ static State of(const T (&x)[N], Valid valid, const Where&) {
    T product = T(1);
#pragma unroll
    for (int i = 0; i < N; ++i) product = is_valid(valid, i) ? product * x[i] : product;
    return {product};
  }
  __device__ __forceinline__ static State combine(const State& a, const State& b) {
    return {a.product * b.product};
  }
  __device__ __forceinline__ static T total(Index<0>, const State& state) { return state.product; }
};

// --- Extremes: NaN goes through ----------------------------------------------------------------

// Small types are kept in a whole word.
template <class T>
using word_t = std::conditional_t<(sizeof(T) < 4), int32_t, T>;

template <class T>
struct Largest {
  // Not larger than any value.
  __device__ __forceinline__ static constexpr T least() {
    using Limits = std::numeric_limits<T>;
    constexpr T LEAST = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    return LEAST;
  }
  // Whether `a` is to be preferred: NaN to all others.
  __device__ __forceinline__ static bool beats(T a, T b) { return a > b || (a != a && b == b); }
  __device__ __forceinline__ static T better(T a, T b) { return maximum(a, b); }
};

template <class T>
struct Smallest {
  __device__ __forceinline__ static constexpr T least() {
    using Limits = std::numeric_limits<T>;
    constexpr T LEAST = Limits::has_infinity ? Limits::infinity() : Limits::max();
    return LEAST;
  }
  __device__ __forceinline__ static bool beats(T a, T b) { return a < b || (a != a && b == b); }
  __device__ __forceinline__ static T better(T a, T b) { return minimum(a, b); }
};

template <class Order, int N, class T, class Valid>
__device__ __forceinline__ T extreme(const T (&x)[N], Valid valid) {
  T values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = is_valid(valid, i) ? x[i] : Order::least();
  return combine_tree(values, [](T a, T b) { return Order::better(a, b); });
}

template <class T, class Order>
struct ExtremeFold {
  struct State {
    word_t<T> value;
  };
  static constexpr int TOTALS = 1;
  static constexpr bool COUNTS_PLACES = false;

  __device__ __forceinline__ static State identity() { return {Order::least()}; }
  template <int N, class Valid, class Where>
  __device__ __forceinline__ static State of(const T (&x)[N], Valid valid, const Where&) {
    return {extreme<Order>(x, valid)};
  }
  __device__ __forceinline__ static State combine(const State& a, const State& b) {
    return {Order::better(static_cast<T>(a.value), static_cast<T>(b.value))};
  }
  __device__ __forceinline__ static T total(Index<0>, const State& state) {
    return static_cast<T>(state.value);
  }
};

template <class T>
using MaximumFold = ExtremeFold<T, Largest<T>>;
template <class T>
using MinimumFold = ExtremeFold<T, Smallest<T>>;

// The first place of the extreme element.
template <class T, class Order>
struct PlaceFold {
  struct State {
    word_t<T> value;
    uint32_t low, high;  // of the place: 64 bits would leave a gap after a value of 32

    __device__ __forceinline__ int64_t place() const {
      return static_cast<int64_t>(uint64_t{high} << 32 | low);
    }
  };
  static constexpr int TOTALS = 1;
  static constexpr bool COUNTS_PLACES = true;

  // Loses against every element, whatever its value.
  __device__ __forceinline__ static State identity() {
    return {Order::least(), 0xffffffff, 0x7fffffff};
  }
  template <int N, class Valid, class Where>
  __device__ __forceinline__ static State of(const T (&x)[N], Valid valid, const Where& places) {
    // Elements in order, so that of equal ones the first stays.
    T value = Order::least();
    int best = -1;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const bool wins = is_valid(valid, i) && (best < 0 || Order::beats(x[i], value));
      value = wins ? x[i] : value;
      best = wins ? i : best;
    }
    if (best < 0) return identity();
    const auto place = static_cast<uint64_t>(places.at(best));
    return {value, static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32)};
  }
  // Most elements change nothing: their extreme tells that, and is found in an instruction each.
  template <int N, class Where>
  __device__ __forceinline__ static void add(State& state, const T (&x)[N], unsigned valid,
                                             const Where& places) {
    if (is_second(state, extreme<Order>(x, valid), places.at(0))) {
      state = combine(state, of(x, valid, places));
    }
  }
  __device__ __forceinline__ static State combine(const State& a, const State& b) {
    const bool second = is_second(a, static_cast<T>(b.value), b.place());
    return {second ? b.value : a.value, second ? b.low : a.low, second ? b.high : a.high};
  }
  __device__ __forceinline__ static int64_t total(Index<0>, const State& state) {
    return state.place();
  }

 private:
  // Whether an element at a place is the one, and not a state's: of equal ones the first is.
  __device__ __forceinline__ static bool is_second(const State& state, T y, int64_t place) {
    const T x = static_cast<T>(state.value);
    const bool equal = x == y || (x != x && y != y);
    return equal ? place < state.place() : Order::beats(y, x);
  }
};

template <class T>
using ArgmaxFold = PlaceFold<T, Largest<T>>;
template <class T>
using ArgminFold = PlaceFold<T, Smallest<T>>;

// --- Truth -------------------------------------------------------------------------------------

template <bool OF_NONE>
struct TruthFold {
  struct State {
    int32_t value;
  };
  static constexpr int TOTALS = 1;
  static constexpr bool COUNTS_PLACES = false;

  __device__ __forceinline__ static State identity() { return {OF_NONE}; }
  template <int N, class Valid, class Where>
  __device__ __forceinline__ static State of(const bool (&x)[N], Valid valid, const Where&) {
    State state = identity();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      state = combine(state, {is_valid(valid, i) ? static_cast<int32_t>(x[i]) : OF_NONE});
    }
    return state;
  }
  __device__ __forceinline__ static State combine(const State& a, const State& b) {
    return {OF_NONE ? a.value & b.value : a.value | b.value};
  }
  __device__ __forceinline__ static bool total(Index<0>, const State& state) {
    return state.value != 0;
  }
};

using AnyFold = TruthFold<false>;
using AllFold = TruthFold<true>;

// --- Two totals --------------------------------------------------------------------------------

// The mean, and the sum of squared distances from it. Chan, Golub, LeVeque, "Algorithms for
// computing the sample variance", 1983: two states combine without cancellation. Divisions that
// round have a branch; where many threads fold a few elements each, they were half of all there is.
template <class T>
struct MomentsFold {
  struct State {
    T count, mean, squares;
  };
  static constexpr int TOTALS = 2;
  static constexpr bool COUNTS_PLACES = false;

  __device__ __forceinline__ static State identity() { return {T(0), T(0), T(0)}; }
  template <int N, class Where>
  __device__ __forceinline__ static State of(const T (&x)[N], unsigned valid, const Where&) {
    constexpr unsigned ALL = N == 32 ? ~0u : (1u << N % 32) - 1;
    const T count = valid == ALL ? T(N) : static_cast<T>(__popc(valid));
    T terms[N];
#pragma unroll
    for (int i = 0; i < N; ++i) terms[i] = is_valid(valid, i) ? x[i] : T(0);
    const T sum = tree_sum(terms);
    const T mean =
        valid == ALL ? sum * (T(1) / T(N)) : (valid == 0 ? T(0) : sum * one_over_sum(count));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const T distance = is_valid(valid, i) ? x[i] - mean : T(0);
      terms[i] = distance * distance;
    }
    return {count, mean, tree_sum(terms)};
  }
  __device__ __forceinline__ static State combine(const State& a, const State& b) {
    const T count = a.count + b.count;
    // All of it exactly: the mean moves by as much. Of a distance, two last places do not matter.
    const T share = b.count == count ? T(1) : b.count * first_of_one_over(count);
    const T distance = b.mean - a.mean;
    return {count, a.mean + distance * share,
            a.squares + b.squares + distance * distance * (a.count * share)};
  }
  // The mean of no elements is NaN.
  __device__ __forceinline__ static T total(Index<0>, const State& state) {
    constexpr T UNDEFINED = std::numeric_limits<T>::quiet_NaN();
    return state.count == T(0) ? UNDEFINED : state.mean;
  }
  __device__ __forceinline__ static T total(Index<1>, const State& state) { return state.squares; }
};

// The maximum m, and the sum of exp(x - m), in one walk over the row. Milakov, Gimelshein, "Online
// normalizer calculation for softmax", 2018.
template <class T>
struct ExpSumFold {
  struct State {
    T largest;
    LongSum<T> sum;
  };
  static constexpr int TOTALS = 2;
  static constexpr bool COUNTS_PLACES = false;
  static constexpr T NOTHING = -std::numeric_limits<T>::infinity();

  __device__ __forceinline__ static State identity() { return {NOTHING, {T(0), T(0)}}; }
  template <int N, class Valid, class Where>
  __device__ __forceinline__ static State of(const T (&x)[N], Valid valid, const Where&) {
    T terms[N];
#pragma unroll
    for (int i = 0; i < N; ++i) terms[i] = is_valid(valid, i) ? x[i] : NOTHING;
    const T largest = ExtremeFold<T, Largest<T>>::of(terms, ~0u, Places{0, 0}).value;
    const T from = origin(largest);
#pragma unroll
    for (int i = 0; i < N; ++i) terms[i] = std::exp(terms[i] - from);
    return {largest, {tree_sum(terms), T(0)}};
  }
  __device__ __forceinline__ static State combine(const State& a, const State& b) {
    const T largest = maximum(a.largest, b.largest);
    const T from = origin(largest);
    return {largest, LongSum<T>::add(scaled(a, from), scaled(b, from))};
  }
  __device__ __forceinline__ static T total(Index<0>, const State& state) { return state.largest; }
  __device__ __forceinline__ static T total(Index<1>, const State& state) {
    return state.sum.value();
  }

  // What to subtract from elements up to `largest`: nothing from -inf, whose exp is 0.
  __device__ __forceinline__ static T origin(T largest) {
    return largest == NOTHING ? T(0) : largest;
  }
  // The sum of exp(x - from).
  __device__ __forceinline__ static LongSum<T> scaled(const State& state, T from) {
    const T scale = std::exp(state.largest - from);
    return {state.sum.sum * scale, state.sum.rest * scale};
  }
};
