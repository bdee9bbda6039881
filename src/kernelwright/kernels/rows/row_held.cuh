#pragma once
// Rows that a team of threads holds in registers: the ring of row_ring.cuh with one stage, whose
// places take the next row as soon as one is folded for the first time. So the next row is under
// way while totals are exchanged and results written, and not only then begun.

#include "row_ring.cuh"

template <class Program_, class Config>
struct HeldTeam : RingTeam<Program_, Config> {
  using Program = Program_;
  using Base = RingTeam<Program, Config>;
  using Run = typename Base::Run;
  using Types = typename Base::Types;
  using Vectors = typename Base::Vectors;
  static constexpr int WIDTH = Base::WIDTH, VECTORS = Base::VECTORS, GROUP = Base::GROUP;
  static constexpr int GROUPS = (VECTORS + GROUP - 1) / GROUP;
  static constexpr unsigned HELD = Base::HELD;
  // Rows with inputs of fewer elements have whole vectors alone.
  static constexpr bool EVENLY = other_inputs<Program>() != 0;
  static_assert(Config::STAGES == 1, "the next row takes the place of this one");

  Vectors held[VECTORS];

  using Base::Base;

  // Of a group, which is copied and waited for together.
  __device__ static constexpr int vectors_in(int group) {
    return group + 1 < GROUPS ? GROUP : VECTORS - group * GROUP;
  }

  template <int G>
  __device__ __forceinline__ bool is_whole(const Run& run) const {
    return run.is_whole(this->vector(G * GROUP)) &&
           run.is_whole(this->vector(G * GROUP + vectors_in(G) - 1));
  }

  // Calls body(is_whole, u) for the vectors of a group that are there.
  template <int G, class Body>
  __device__ __forceinline__ void each(const Run& run, const Body& body) const {
    if (is_whole<G>(run)) {
      repeat<vectors_in(G)>([&](auto k) { body(Index<1>(), Index<G * GROUP + k>()); });
    } else {
      repeat<vectors_in(G)>([&](auto k) {
        if (this->vector(G * GROUP + k) < run.vectors()) {
          body(Index<EVENLY>(), Index<G * GROUP + k>());
        }
      });
    }
  }

  // Waits for a group and takes it from the ring.
  template <int G>
  __device__ __forceinline__ void take(const Run& run) {
    wait_copies<GROUPS - 1>();
    each<G>(run, [&](auto, auto u) {
      repeat<Types::INPUTS>([&](auto input) {
        if constexpr ((HELD >> input & 1) != 0) {
          get<input>(held[u]) = *this->template slot<input>(0, u);
        }
      });
    });
  }

  // Begins to copy a group of the next row, if there is one.
  template <int G>
  __device__ __forceinline__ void start(const Run& next, bool has_next) const {
    if (has_next) {
      each<G>(next, [&](auto is_whole, auto u) {
        this->template copy<is_whole>(next, this->vector(u), 0, u);
      });
    }
    commit_copies();
  }

  // The vectors from U on with those of the inputs in MASK that are not held.
  template <unsigned MASK, bool WHOLE, int U, int COUNT>
  __device__ __forceinline__ void complete(const Run& run, Vectors (&vectors)[COUNT]) const {
    repeat<COUNT>([&](auto k) {
      vectors[k] = held[U + k];
      // Code for each vector: only the shortest way to find what is not held.
      load_inputs<MASK & ~HELD & ~Program::SHARED, WHOLE, EVENLY>(run, this->vector(U + k),
                                                                  vectors[k]);
    });
  }

  template <int LEVEL, int U, int COUNT, bool WHOLE>
  __device__ __forceinline__ void fold_some(const Run& run, const typename Types::Totals& totals,
                                            const typename Program::Inputs& shared,
                                            typename Types::States& states) const {
    Vectors vectors[COUNT];
    complete<reads_when_due<Program>(LEVEL), WHOLE, U>(run, vectors);
    this->template add_and_store<LEVEL, WHOLE>(run, U, totals, shared, vectors, states);
  }

  template <int LEVEL, int G>
  __device__ __forceinline__ void fold_group(const Run& run, const typename Types::Totals& totals,
                                             const typename Program::Inputs& shared,
                                             typename Types::States& states) const {
    if (is_whole<G>(run)) {
      constexpr int FIRST = G * GROUP, COUNT = vectors_in(G), TOGETHER = Base::TOGETHER;
      repeat<COUNT / TOGETHER>([&](auto k) {
        fold_some<LEVEL, FIRST + k * TOGETHER, TOGETHER, true>(run, totals, shared, states);
      });
      repeat<COUNT % TOGETHER>([&](auto k) {
        fold_some<LEVEL, FIRST + COUNT - 1 - k, 1, true>(run, totals, shared, states);
      });
    } else {
      each<G>(run,
              [&](auto, auto u) { fold_some<LEVEL, u, 1, EVENLY>(run, totals, shared, states); });
    }
  }

  // Writes the results of a row that are due last.
  __device__ __forceinline__ void finish(const Run& run, const typename Types::Totals& totals,
                                         const typename Program::Inputs& shared) const {
    if constexpr (due_results<Program>(Program::LEVELS) != 0) {
      repeat<GROUPS>([&](auto group) {
        each<group>(run, [&](auto is_whole, auto u) {
          Vectors vectors[1];
          complete<reads_when_due<Program>(Program::LEVELS), is_whole, u>(run, vectors);
          store_vectors<is_whole, due_results<Program>(Program::LEVELS)>(
              run, this->vector(u), totals, shared, vectors[0]);
        });
      });
    }
    if (this->thread == 0 && this->rank == 0) store_row_results(run, totals);
  }
};

template <class Program, class Config>
__device__ __forceinline__ void held_rows(const RingRows<Program, Config>& rows) {
  wait_for_previous_kernel();
  using Rows = RingRows<Program, Config>;
  using Team = HeldTeam<Program, Config>;
  using Types = RowTypes<Program>;
  extern __shared__ __align__(16) char held_ring[];
  Team team(rows, held_ring);
  // No block writes to another one's shared memory before that runs.
  if constexpr (Rows::CLUSTER > 1) sync_cluster();
  typename Rows::Exchange exchange = {held_ring + Rows::STAGE_BYTES};
  const int64_t count = rows.space.kept.count;
  if (team.team < count) team.start_rest(team.row(team.team), 0);
  for (int64_t number = team.team; number < count; number += team.teams) {
    const auto run = team.row(number);
    const bool has_next = number + team.teams < count;
    const auto next = team.row(has_next ? number + team.teams : number);
    typename Program::Inputs shared = {};
    load_shared_inputs<Program::SHARED & all_reads<Program>()>(run, shared);
    typename Types::Totals totals = {};
    repeat<Program::LEVELS>([&](auto level) {
      auto states = no_elements<Program>();
      repeat<Team::GROUPS>([&](auto group) {
        if constexpr (level == 0) team.template take<group>(run);
        team.template fold_group<level, group>(run, totals, shared, states);
        if constexpr (level == 0) team.template start<group>(next, has_next);
      });
      each_fold<Program, level>([&](auto fold) {
        using Fold = typename Types::template FoldAt<fold>;
        const auto state = exchange.template combine<Fold>(get<fold>(states));
        set_totals<Program, fold>(state, totals);
      });
    });
    if constexpr (Team::EVENLY) {
      // Found once more: addresses of results take no registers while the row is folded.
      team.finish(team.row(number), totals, shared);
    } else {
      team.finish(run, totals, shared);
    }
  }
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct HeldVariant : RingVariant<Program, Config> {
  static bool takes(const typename RingVariant<Program, Config>::Parameters::Space& space) {
    using Parameters = typename RingVariant<Program, Config>::Parameters;
    if (!RingVariant<Program, Config>::takes(space)) return false;
    return !HeldTeam<Program, Config>::EVENLY || Parameters::describe({}, space).steps_evenly;
  }
};
