#pragma once
// Rows that a team of threads holds on chip: read once, written once.
//
// A team is a warp, a block, or a cluster of blocks; it walks from row to row. Each thread copies
// its vectors of a row to places of its own in shared memory, asynchronously and some rows ahead,
// and needs no barrier to read them. Results are written as soon as the totals that they need are
// there, with the next fold, which often takes the same of an element. A config has
//   THREADS   of a block
//   TEAM      threads of a block that share a row: 32, or all
//   CLUSTER   blocks that share a row
//   VECTORS   of WIDTH elements that a thread holds of each row
//   STAGES    rows under way at once; of one stage each vector is replaced by the next row's when
//             it has been finished, and a row is folded while the rest of it is under way
//   RESIDENT  blocks on a multiprocessor at one time

#include "async_copy.cuh"
#include "row_exchange.cuh"
#include "row_launch.cuh"
#include "row_vectors.cuh"

template <class Program, class Config>
struct RingRows : VectorRows<Program, Config::WIDTH> {
  using Base = VectorRows<Program, Config::WIDTH>;
  using Types = RowTypes<Program>;
  static constexpr int THREADS = Config::THREADS, TEAM = Config::TEAM, WIDTH = Config::WIDTH;
  static constexpr int CLUSTER = Config::CLUSTER, VECTORS = Config::VECTORS;
  static constexpr int STAGES = Config::STAGES, TEAMS = THREADS / TEAM;
  static_assert(TEAM == 32 || TEAM == THREADS, "a team is a warp or all of the block");
  static_assert(CLUSTER == 1 || TEAM == THREADS, "only whole blocks join in clusters");

  // Inputs that differ within a row and are wanted before the first totals, or more than once. What
  // all rows share is in the caches, and would take as much room again for each row.
  static constexpr unsigned held() {
    unsigned held = reads_when_due<Program>(0), seen = 0;
    for (int level = 0; level <= Program::LEVELS; ++level) {
      held |= seen & reads_when_due<Program>(level);
      seen |= reads_when_due<Program>(level);
    }
    return held & Program::STREAMED & ~Program::ALIKE;
  }
  static constexpr unsigned HELD = held();

  // Bytes in front of an input's vectors in a stage.
  static constexpr int bytes_before(int input) {
    int bytes = 0;
    for (int i = 0; i < input; ++i) {
      if ((HELD >> i & 1) != 0) bytes += operand_bytes<Program>(i) * WIDTH * VECTORS * THREADS;
    }
    return bytes;
  }
  static constexpr int STAGE_BYTES = bytes_before(Types::INPUTS);
  using Exchange = TeamExchange<TEAM / 32, CLUSTER, LargestState<typename Program::Folds>::BYTES>;
  static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + Exchange::BYTES;
};

template <class Program, class Config>
struct RingTeam {
  using Rows = RingRows<Program, Config>;
  using Types = RowTypes<Program>;
  using Run = RowRun<Program, Config::WIDTH>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, Config::WIDTH>::type;
  static constexpr int WIDTH = Config::WIDTH, VECTORS = Config::VECTORS;
  static constexpr unsigned HELD = Rows::HELD;
  static constexpr int STEP =
      Rows::CLUSTER * Rows::TEAM;  // vectors from one of a thread's to its next
  // Vectors that are folded together: of more inputs fewer fit registers.
  static constexpr int MOST = ((HELD & (HELD - 1)) == 0 ? 16 : 8) / WIDTH;
  static constexpr int TOGETHER = MOST < 1 ? 1 : MOST < VECTORS ? MOST : VECTORS >= 2 ? 2 : 1;
  // Of the vectors of the only stage that are committed together; there are up to four such groups.
  static constexpr int QUARTER = (VECTORS + 3) / 4;
  static constexpr int GROUP = TOGETHER > QUARTER ? TOGETHER : QUARTER;

  const Rows& rows;
  char* ring;
  int rank, thread;  // the block's in the cluster, the thread's in its team
  int64_t team, teams;

  __device__ __forceinline__ RingTeam(const Rows& rows, char* ring) : rows(rows), ring(ring) {
    rank = Rows::CLUSTER > 1 ? cluster_rank() : 0;
    thread = static_cast<int>(threadIdx.x) % Rows::TEAM;
    team =
        static_cast<int64_t>(blockIdx.x / Rows::CLUSTER) * Rows::TEAMS + threadIdx.x / Rows::TEAM;
    teams = static_cast<int64_t>(gridDim.x / Rows::CLUSTER) * Rows::TEAMS;
  }

  __device__ __forceinline__ Run row(int64_t number) const {
    return Run(rows, number, 0, 0, VECTORS * Rows::TEAM * Rows::CLUSTER);
  }

  // The thread's vector number `u` of a row.
  __device__ __forceinline__ int vector(int u) const {
    return u * STEP + rank * Rows::TEAM + thread;
  }

  // Calls whole(count, u) for COUNT of the thread's vectors at once, from u on, that one access
  // moves, one by one for those left, and edge(u) for each other.
  template <int COUNT, class Whole, class Edge>
  __device__ __forceinline__ void walk(const Run& run, const Whole& whole, const Edge& edge) const {
    const int first = vector(0);
    int u = 0;
    if (first < run.whole_begin && first < run.vectors()) {
      edge(0);
      u = 1;
    }
    const int past = run.whole_end - first;
    const int end = past <= 0 ? 0 : (past + STEP - 1) / STEP;
#pragma unroll 1
    for (; u + COUNT <= end; u += COUNT) whole(Index<COUNT>(), u);
    if constexpr (COUNT > 1) {
#pragma unroll 1
      for (; u < end; ++u) whole(Index<1>(), u);
    }
#pragma unroll 1
    for (; vector(u) < run.vectors(); ++u) edge(u);
  }

  template <int INPUT>
  __device__ __forceinline__ auto slot(int stage, int u) const {
    using In = pack_item_t<INPUT, typename Program::Inputs>;
    char* const first = ring + stage * Rows::STAGE_BYTES + Rows::bytes_before(INPUT);
    return reinterpret_cast<Vector<In, WIDTH>*>(first) + u * Rows::THREADS + threadIdx.x;
  }

  // Begins to copy a row to a stage, if there is such a row.
  __device__ __forceinline__ void start(int64_t number, int stage) const {
    if (number < rows.space.kept.count) {
      const Run run = row(number);
      walk<1>(
          run, [&](auto, int u) { copy<true>(run, vector(u), stage, u); },
          [&](int u) { copy<false>(run, vector(u), stage, u); });
    }
    commit_copies();
  }

  // Begins to copy vector `u` of a row to the only stage, and with the last one of a group commits
  // that.
  __device__ __forceinline__ void start_vector(const Run& next, int u) const {
    const int v = vector(u);
    if (next.is_whole(v)) {
      copy<true>(next, v, 0, u);
    } else if (v < next.vectors()) {
      copy<false>(next, v, 0, u);
    }
    if ((u + 1) % GROUP == 0 || u + 1 == VECTORS) commit_copies();
  }

  // The same for all from `u` on.
  __device__ __forceinline__ void start_rest(const Run& next, int u) const {
#pragma unroll 1
    for (; u < VECTORS; ++u) start_vector(next, u);
  }

  // Waits for vectors up to `u` of the row on the only stage.
  __device__ __forceinline__ void wait_vectors(int u) const {
    const int groups_after = (VECTORS - 1) / GROUP - u / GROUP;
    if (groups_after == 0) {
      wait_copies<0>();
    } else if (groups_after == 1) {
      wait_copies<1>();
    } else if (groups_after == 2) {
      wait_copies<2>();
    } else {
      wait_copies<3>();
    }
  }

  template <bool WHOLE>
  __device__ __forceinline__ void copy(const Run& run, int v, int stage, int u) const {
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((HELD >> input & 1) != 0) {
        auto* const to = slot<input>(stage, u);
        if constexpr (WHOLE) {
          constexpr int BYTES = access_bytes(sizeof(*to));
          const char* from = run.template address<input>(v);
#pragma unroll
          for (int i = 0; i < static_cast<int>(sizeof(*to)); i += BYTES) {
            copy_async<BYTES>(reinterpret_cast<char*>(to) + i, from + i, true);
          }
        } else {
          copy_edge<input>(run, v, to);
        }
      }
    });
  }

  // A vector of which some elements belong to the row: nobody waits for those, either.
  template <int INPUT, class Slot>
  __device__ __forceinline__ void copy_edge(const Run& run, int v, Slot* to) const {
    using In = pack_item_t<INPUT, typename Program::Inputs>;
    if constexpr (sizeof(In) < 4) {
      *to = run.template load<INPUT, false>(v);
    } else {
      const unsigned mask = run.valid(v);
      const int any = __ffs(static_cast<int>(mask)) - 1;
      const In* from = reinterpret_cast<const In*>(run.template address<INPUT>(v));
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        copy_async<sizeof(In)>(&to->element[i], from + (is_valid(mask, i) ? i : any), true);
      }
    }
  }

  // The inputs in MASK of the thread's vector `u`: those that are held come from the ring.
  template <unsigned MASK, bool WHOLE>
  __device__ __forceinline__ void fetch(const Run& run, int v, int stage, int u,
                                        Vectors& vectors) const {
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((MASK & HELD & 1u << input) != 0) get<input>(vectors) = *slot<input>(stage, u);
    });
    load_inputs<MASK & ~HELD & ~Program::SHARED, WHOLE>(run, v, vectors);
  }

  // Adds COUNT of the thread's vectors, from `u` on, to the states of a level, and writes what is
  // due with it.
  template <int LEVEL, int COUNT, bool WHOLE>
  __device__ __forceinline__ void fold_some(const Run& run, int stage, int u,
                                            const typename Types::Totals& totals,
                                            const typename Program::Inputs& shared,
                                            typename Types::States& states) const {
    if constexpr (Rows::STAGES == 1 && LEVEL == 0) wait_vectors(u + COUNT - 1);
    Vectors vectors[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      fetch<reads_when_due<Program>(LEVEL), WHOLE>(run, vector(u + k), stage, u + k, vectors[k]);
    }
    add_and_store<LEVEL, WHOLE>(run, u, totals, shared, vectors, states);
  }

  // The same of vectors that are there.
  template <int LEVEL, bool WHOLE, int COUNT>
  __device__ __forceinline__ void add_and_store(const Run& run, int u,
                                                const typename Types::Totals& totals,
                                                const typename Program::Inputs& shared,
                                                const Vectors (&vectors)[COUNT],
                                                typename Types::States& states) const {
    constexpr unsigned ALL = (1u << COUNT * WIDTH) - 1;
    const unsigned valid = WHOLE ? ALL : run.valid(vector(u));
    const VectorPlaces<WIDTH> places = {run.place(vector(u)), int64_t{STEP} * WIDTH};
    store_due<LEVEL, COUNT, WHOLE>(
        run, totals, shared, vectors, [&](int k) { return vector(u + k); },
        [](int) { return true; },
        [&](auto fold, const auto& values) {
          add_values<typename Types::template FoldAt<fold>>(get<fold>(states), values, valid,
                                                            places);
        });
    fold_vectors<LEVEL, COUNT, true>(run, totals, shared, places, vectors, valid, states);
  }

  template <int LEVEL>
  __device__ __forceinline__ void fold(const Run& run, int stage,
                                       const typename Types::Totals& totals,
                                       const typename Program::Inputs& shared,
                                       typename Types::States& states) const {
    walk<TOGETHER>(
        run,
        [&](auto count, int u) {
          fold_some<LEVEL, count, true>(run, stage, u, totals, shared, states);
        },
        [&](int u) { fold_some<LEVEL, 1, false>(run, stage, u, totals, shared, states); });
  }

  // Writes the results of a row that are due last. Calls after(u) when the thread's vector `u` has
  // been read for the last time; returns the first one for which it was not called.
  template <class After>
  __device__ __forceinline__ int finish(const Run& run, int stage,
                                        const typename Types::Totals& totals,
                                        const typename Program::Inputs& shared,
                                        const After& after) const {
    int next = 0;
    if constexpr (due_results<Program>(Program::LEVELS) != 0) {
      const auto finish_one = [&](auto is_whole, int u) {
        store<is_whole>(run, stage, u, totals, shared);
        after(u);
        next = u + 1;
      };
      walk<1>(
          run, [&](auto, int u) { finish_one(Index<1>(), u); },
          [&](int u) { finish_one(Index<0>(), u); });
    }
    if (thread == 0 && rank == 0) store_row_results(run, totals);
    return next;
  }

  template <bool WHOLE>
  __device__ __forceinline__ void store(const Run& run, int stage, int u,
                                        const typename Types::Totals& totals,
                                        const typename Program::Inputs& shared) const {
    Vectors vectors;
    fetch<reads_when_due<Program>(Program::LEVELS), WHOLE>(run, vector(u), stage, u, vectors);
    store_vectors<WHOLE, due_results<Program>(Program::LEVELS)>(run, vector(u), totals, shared,
                                                                vectors);
  }
};

template <class Program, class Config>
__device__ __forceinline__ void ring_rows(const RingRows<Program, Config>& rows) {
  wait_for_previous_kernel();
  using Rows = RingRows<Program, Config>;
  using Types = RowTypes<Program>;
  extern __shared__ __align__(16) char ring[];
  const RingTeam<Program, Config> team(rows, ring);
  // No block writes to another one's shared memory before that runs.
  if constexpr (Rows::CLUSTER > 1) sync_cluster();
  if constexpr (Rows::STAGES == 1) {
    if (team.team < rows.space.kept.count) team.start_rest(team.row(team.team), 0);
  }
#pragma unroll 1
  for (int ahead = 0; ahead + 1 < Rows::STAGES; ++ahead) {
    team.start(team.team + ahead * team.teams, ahead);
  }
  typename Rows::Exchange exchange = {ring + Rows::STAGES * Rows::STAGE_BYTES};
  int stage = 0;
  for (int64_t number = team.team; number < rows.space.kept.count; number += team.teams) {
    if constexpr (Rows::STAGES > 1) {
      const int last = stage == 0 ? Rows::STAGES - 1 : stage - 1;
      team.start(number + (Rows::STAGES - 1) * team.teams, last);
      wait_copies<Rows::STAGES - 1>();
    }
    const auto run = team.row(number);
    typename Program::Inputs shared = {};
    load_shared_inputs<Program::SHARED & all_reads<Program>()>(run, shared);
    typename Types::Totals totals = {};
    repeat<Program::LEVELS>([&](auto level) {
      auto states = no_elements<Program>();
      team.template fold<level>(run, stage, totals, shared, states);
      each_fold<Program, level>([&](auto fold) {
        using Fold = typename Types::template FoldAt<fold>;
        const auto state = exchange.template combine<Fold>(get<fold>(states));
        set_totals<Program, fold>(state, totals);
      });
    });
    if constexpr (Rows::STAGES == 1) {
      const bool has_next = number + team.teams < rows.space.kept.count;
      const auto next = team.row(has_next ? number + team.teams : number);
      const int rest = team.finish(run, stage, totals, shared, [&](int u) {
        if (has_next) team.start_vector(next, u);
      });
      if (has_next) team.start_rest(next, rest);
    } else {
      team.finish(run, stage, totals, shared, [](int) {});
      stage = stage + 1 == Rows::STAGES ? 0 : stage + 1;
    }
  }
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct RingVariant {
  using Parameters = RingRows<Program, Config>;
  void (*kernel)(Parameters);
  int multiprocessors;

  static bool takes(const typename Parameters::Space& space) {
    constexpr int MOST_BYTES = 226 << 10;  // of a block; the compiler's own are a few
    if (Parameters::SHARED_BYTES > MOST_BYTES || !Parameters::can_walk(space)) return false;
    const int64_t room = int64_t{Parameters::VECTORS} * Parameters::TEAM * Parameters::CLUSTER;
    const auto rows = Parameters::describe({}, space);
    if (rows.segments.rank > 0) return false;
    const int64_t vectors = rows.run_vectors();
    // Rows far below the room leave most threads idle.
    return vectors <= room && vectors * 8 > room;
  }

  static int64_t workspace(const RowCall<Program>&) { return 0; }

  cudaError_t launch(const RowCall<Program>& call, char*, cudaStream_t stream) const {
    Parameters rows;
    static_cast<typename Parameters::Base&>(rows) = Parameters::describe(call.program, call.space);
    int clusters = multiprocessors * Config::RESIDENT;
    if constexpr (Parameters::CLUSTER > 1) {
      if constexpr (Parameters::CLUSTER > 8) {
        const cudaError_t status =
            cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (status != cudaSuccess) return status;
      }
      // Not every multiprocessor has neighbours enough for a cluster.
      clusters =
          most_clusters(kernel, Parameters::THREADS, Parameters::SHARED_BYTES, Parameters::CLUSTER);
      if (clusters == 0) return cudaErrorNotSupported;
    }
    const int64_t wanted = (call.space.kept.count + Parameters::TEAMS - 1) / Parameters::TEAMS;
    if (wanted < clusters) clusters = static_cast<int>(wanted);
    return launch_dependent(kernel, static_cast<unsigned>(clusters * Parameters::CLUSTER),
                            Parameters::THREADS, stream, rows, Parameters::SHARED_BYTES,
                            Parameters::CLUSTER);
  }
};
