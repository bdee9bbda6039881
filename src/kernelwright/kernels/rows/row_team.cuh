#pragma once
// Rows that a team of threads holds in registers, each some of it: what they come to.
//
// All elements of a row are there at once, so that sums are pairwise from the first to the last,
// and need no rounding errors kept.

#include "row_exchange.cuh"
#include "row_vectors.cuh"

// LANES neighbouring lanes of a warp.
template <int LANES>
struct LaneTeam {
  template <class Fold>
  __device__ __forceinline__ typename Fold::State combine(typename Fold::State state) const {
    return combine_lanes<Fold, LANES>(state);
  }
  template <class T, class Combine>
  __device__ __forceinline__ T reduce(T value, const Combine& combine) const {
    return reduce_lanes<LANES>(value, combine);
  }
};

template <class Team, int N, class T, class Valid>
__device__ __forceinline__ T sum_of_team(Team& team, const T (&x)[N], Valid valid) {
  return team.reduce(sum_of_valid(x, valid), [](T a, T b) { return a + b; });
}

template <class Order, class Team, int N, class T, class Valid>
__device__ __forceinline__ T extreme_of_team(Team& team, const T (&x)[N], Valid valid) {
  return static_cast<T>(
      team.reduce(static_cast<word_t<T>>(extreme<Order>(x, valid)), [](word_t<T> a, word_t<T> b) {
        return static_cast<word_t<T>>(Order::better(static_cast<T>(a), static_cast<T>(b)));
      }));
}

// The state of a row of `count` elements of which each thread of a team has some, N or fewer, in
// registers.
template <class Team, class Fold, int N, class T, class Valid, class Where>
__device__ __forceinline__ typename Fold::State state_of_team(Team& team, Fold, const T (&x)[N],
                                                              Valid valid, const Where& places,
                                                              int) {
  return team.template combine<Fold>(Fold::of(x, valid, places));
}

template <class Team, class T, int N, class Valid, class Where>
__device__ __forceinline__ typename SumFold<T>::State state_of_team(Team& team, SumFold<T>,
                                                                    const T (&x)[N], Valid valid,
                                                                    const Where&, int) {
  return {sum_of_team(team, x, valid), T(0)};
}

template <class Team, class T, class Order, int N, class Valid, class Where>
__device__ __forceinline__ typename ExtremeFold<T, Order>::State state_of_team(
    Team& team, ExtremeFold<T, Order>, const T (&x)[N], Valid valid, const Where&, int) {
  return {extreme_of_team<Order>(team, x, valid)};
}

// Exponentials are taken from the largest element of all at once: what comes of it is one of the
// results, too, and not computed twice.
template <class Team, class T, int N, class Valid, class Where>
__device__ __forceinline__ typename ExpSumFold<T>::State state_of_team(Team& team, ExpSumFold<T>,
                                                                       const T (&x)[N], Valid valid,
                                                                       const Where&, int) {
  const T largest = extreme_of_team<Largest<T>>(team, x, valid);
  T terms[N];
#pragma unroll
  for (int i = 0; i < N; ++i) terms[i] = std::exp(x[i] - largest);
  const T sum = sum_of_team(team, terms, valid);
  // Of -inf alone there is nothing to sum.
  return {largest, {largest == ExpSumFold<T>::NOTHING ? T(0) : sum, T(0)}};
}

// Distances are from the mean of all, and there is one division for the row.
template <class Team, class T, int N, class Valid, class Where>
__device__ __forceinline__ typename MomentsFold<T>::State state_of_team(Team& team, MomentsFold<T>,
                                                                        const T (&x)[N],
                                                                        Valid valid, const Where&,
                                                                        int count) {
  const T mean = sum_of_team(team, x, valid) / static_cast<T>(count);
  T squares[N];
#pragma unroll
  for (int i = 0; i < N; ++i) squares[i] = (x[i] - mean) * (x[i] - mean);
  return {static_cast<T>(count), mean, sum_of_team(team, squares, valid)};
}

// Where the elements of a lane stand: all of them a known way after the first.
template <int WIDTH, int LANES>
struct LanePlaces {
  int64_t first;

  __device__ __forceinline__ int64_t at(int element) const { return first + past(element); }
  __device__ __forceinline__ static constexpr int past(int element) {
    return element / WIDTH * (LANES * WIDTH) + element % WIDTH;
  }
};

// The totals of a level of a row, of which this thread has the vectors `held`. TAKEN: but for folds
// that take what results are.
template <int LEVEL, bool TAKEN, int WIDTH, int VECTORS, class Team, class Program, class Valid,
          class Places, class Vectors>
__device__ __forceinline__ void total_vectors(Team& team, const RowRun<Program, WIDTH>& run,
                                              const Valid& valid, const Places& places,
                                              const typename Program::Totals& totals,
                                              const typename Program::Inputs& shared,
                                              const Vectors (&held)[VECTORS],
                                              typename Program::Totals& found) {
  using Types = RowTypes<Program>;
  constexpr int N = VECTORS * WIDTH;
  const auto& space = run.rows.space;
  typename Program::Inputs elements[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    elements[i] = shared;
    pick_element<Program::READS[LEVEL] & ~Program::SHARED>(held[i / WIDTH], i % WIDTH, elements[i]);
  }
  each_fold<Program, LEVEL>([&](auto fold) {
    if constexpr (TAKEN && Program::TAKES[fold] >= 0) return;
    using Fold = typename Types::template FoldAt<fold>;
    using Value =
        decltype(take_element<fold>(run.rows.program, totals, RowPlace{space.coordinates, 0, 0},
                                    elements[0], typename Types::InputIndices()));
    Value values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const RowPlace place = {space.coordinates, run.row, places.at(i), places.past(i)};
      values[i] = take_element<fold>(run.rows.program, totals, place, elements[i],
                                     typename Types::InputIndices());
    }
    const int length = static_cast<int>(space.reduced.count);
    set_totals<Program, fold>(state_of_team(team, Fold(), values, valid, places, length), found);
  });
}
