#pragma once
// Recurrent layers in one launch (compute capability 9.0a): the weights of a lane stay in the
// registers of a cluster, which takes all steps. See recurrent_problem.cuh.
//
// A step of a block: two warpgroups multiply their halves of K, inputs first, which have come long
// before, then the hidden state, as soon as all blocks of the cluster have sent their units; the
// 256 threads compute cells and send 16 units to all. One warp brings the inputs of later steps,
// one stores the planes of hidden states for the layer above.

#include "recurrent_plain.cuh"
#include "recurrent_products.cuh"
#include "recurrent_shared.cuh"
#include "recurrent_states.cuh"
#include "tma.cuh"

template <class Config>
struct RecurrentBlock {
  using Tile = RecurrentTile<Config>;
  using Shared = RecurrentShared<Tile>;
  using Sums = StepSums<Tile>;

  const RecurrentParameters& p;
  Shared& shared;
  unsigned char* memory;
  RecurrentLane lane;
  int rank;
  PlaneScales scales;

  __device__ __forceinline__ unsigned char* x_stage(int stage) const {
    return memory + stage * Tile::X_BYTES;
  }
  __device__ __forceinline__ unsigned char* h_buffer(int buffer) const {
    return memory + Tile::STAGES * Tile::X_BYTES + buffer * Tile::H_BYTES;
  }
  __device__ __forceinline__ unsigned char* own_slice(int buffer) const {
    return h_buffer(buffer) + rank * Tile::SLICE_BYTES;
  }
  __device__ __forceinline__ unsigned char* away_tiles() const { return h_buffer(2); }
  __device__ __forceinline__ float* sums() const {
    return reinterpret_cast<float*>(away_tiles() + Tile::AWAY_BYTES);
  }
  __device__ __forceinline__ bool has_reader() const { return lane.layer + 1 < p.problem.layers; }

  // --- Before the first step ---

  __device__ __forceinline__ void clear() const {
    constexpr int WORDS = (Tile::STAGES * Tile::X_BYTES + 2 * Tile::H_BYTES) / 16;
    for (int i = static_cast<int>(threadIdx.x); i < WORDS; i += Tile::THREADS) {
      reinterpret_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);
    }
  }

  // Places of a unit and a row of the batch in a buffer of hidden states, high plane.
  __device__ __forceinline__ static int place(int unit, int row) {
    return unit / 8 * Tile::GROUP_BYTES + row * 16 + unit % 8 * 2;
  }
  __device__ __forceinline__ void write_state(unsigned char* buffer, int unit, int row,
                                              float value) const {
    const PlanePair pair = split_planes<typename Tile::Plane>(value * scales.hidden);
    *reinterpret_cast<uint16_t*>(buffer + place(unit, row)) = pair.high;
    if (Tile::PLANES == 2) {
      *reinterpret_cast<uint16_t*>(buffer + place(unit, row) + Tile::BATCH * 16) = pair.low;
    }
  }

  __device__ __forceinline__ void fill_first() const {
    const RecurrentProblem& problem = p.problem;
    if (problem.first_hidden.data == nullptr) return;
    const int layer = lane.layer * Tile::DIRECTIONS + lane.direction;
    for (int i = static_cast<int>(threadIdx.x); i < problem.hidden * Tile::BATCH;
         i += Tile::THREADS) {
      const int unit = i % problem.hidden, row = i / problem.hidden;
      const int64_t batch = int64_t{lane.slice} * Tile::BATCH + row;
      if (batch >= problem.batch) continue;
      write_state(h_buffer(0), unit, row,
                  problem.first_hidden.template read<typename Tile::Stored>(layer, batch, unit));
    }
  }

  // --- The loader's warp ---

  __device__ __forceinline__ void load() const {
    const LaneRecords<Tile> records = {p, lane};
    uint32_t seen = 0;
    for (int step = 0; step < p.problem.steps; ++step) {
      const int stage = step % Tile::STAGES, round = step / Tile::STAGES;
      const int time = lane.time(step, p.problem.steps);
      wait(shared.x_empty + stage, (round & 1) ^ 1);
      if (lane.layer > 0) records.wait_below(time, seen);
      if (threadIdx.x % 32 != 0) continue;
      Barrier* const full = shared.x_full + stage;
      if (lane.layer == 0) {
        arrive_expecting(full, Tile::X_BYTES);
        copy_bulk(x_stage(stage), records.input_record(time), Tile::X_BYTES, full);
        continue;
      }
      fence_for_async();
      arrive_expecting(full, Tile::DIRECTIONS * Tile::PART_BYTES);
      for (int i = 0; i < Tile::DIRECTIONS; ++i) {
        copy_bulk(x_stage(stage) + i * Tile::PART_BYTES,
                  records.record(records.number(lane.layer - 1, i), time), Tile::PART_BYTES, full);
      }
    }
    __syncwarp();
  }

  // --- The courier's warp ---

  // Barriers of it and the warpgroups, one for even steps and one for odd ones: the block's own
  // units are written; those of two steps before have been read.
  static constexpr int COMPUTE = 1, STAGED = 2, KEPT = 4;

  __device__ __forceinline__ static void give_back(int step) {
    arrive_warps(KEPT + (step & 1), Tile::COMPUTE_THREADS + 32);
  }

  __device__ __forceinline__ void store_records() const {
    const LaneRecords<Tile> records = {p, lane};
    constexpr int RUNS = Tile::SLICE_BYTES / 16, EACH = (RUNS + 31) / 32;
    const int own = threadIdx.x % 32;
    for (int step = 0; step < 2 && step < p.problem.steps; ++step) give_back(step);
    for (int step = 0; step < p.problem.steps; ++step) {
      sync_warps(STAGED + (step & 1), Tile::COMPUTE_THREADS + 32);
      const auto* const from = reinterpret_cast<const uint4*>(own_slice((step & 1) ^ 1));
      uint4 runs[EACH];
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        if (own + i * 32 < RUNS) runs[i] = from[own + i * 32];
      }
      if (step + 2 < p.problem.steps) give_back(step + 2);
      unsigned char* const record = records.record(lane.number, lane.time(step, p.problem.steps));
      auto* const to = reinterpret_cast<uint4*>(record + rank * Tile::SLICE_BYTES);
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        if (own + i * 32 < RUNS) to[own + i * 32] = runs[i];
      }
      __syncwarp();
      if (own == 0) {
        store_release(records.flag(lane.number, rank), static_cast<uint32_t>(step + 1));
      }
    }
  }

  // --- The warpgroups ---

  __device__ __forceinline__ static void sync_compute() {
    sync_warps(COMPUTE, Tile::COMPUTE_THREADS);
  }

  // What this thread uses in each step, computed once: from the last product to the copies all
  // blocks wait for each instruction.
  struct Places {
    CoreMatrices x, hidden;         // of its warpgroup's part of K, in the first buffers
    uint32_t given, taken;          // sums
    uint32_t state;                 // of its first pair, in the first buffer
    uint32_t source, target, full;  // of the copy that it sends from the first buffer
    uint32_t pairs;                 // a bit for each that is there
    bool sends;
  };

  __device__ __forceinline__ Places find_places(const UnitStates<Tile>& states) const {
    const int thread = static_cast<int>(threadIdx.x), warpgroup = thread / 128;
    const int part = warpgroup % Tile::PARTS_OF_K, of_thread = thread % 128 * 16;
    Places places = {};
    places.x = describe_cores(x_stage(0) + part * Tile::X_STEPS * 2 * Tile::GROUP_BYTES,
                              Tile::GROUP_BYTES);
    places.hidden = describe_cores(h_buffer(0) + part * Tile::H_STEPS * 2 * Tile::GROUP_BYTES,
                                   Tile::GROUP_BYTES);
    const uint32_t first = shared_address(sums()) + of_thread;
    places.given = first + (warpgroup == 0 ? Tile::EIGHT_SUM_BYTES : 0);
    places.taken = first + (warpgroup == 0 ? 0 : Tile::EIGHT_SUM_BYTES);
    places.state = shared_address(h_buffer(0)) + place(states.unit(), UnitStates<Tile>::row(0));
    // The lanes of a warp send one after the other, some 45 cycles each: all warps share them.
    const int to = thread / 32 + thread % 32 * Tile::COMPUTE_WARPS;
    places.sends = to < Tile::CLUSTER && to != rank;
    places.source = shared_address(own_slice(0));
    if (Tile::CLUSTER > 1) {
      places.target = address_at_rank(places.source, places.sends ? to : rank);
      places.full = address_at_rank(shared_address(shared.h_full), places.sends ? to : rank);
    }
#pragma unroll
    for (int i = 0; i < Tile::PAIRS_EACH; ++i) places.pairs |= states.is_there(i) << i;
    for (uint32_t* it : {&places.given, &places.taken, &places.state, &places.source,
                         &places.target, &places.full, &places.pairs}) {
      keep(*it);
    }
    return places;
  }

  // This block's units of the next state, which all have written, to the other blocks.
  __device__ __forceinline__ void send_slice(const Places& places, int buffer) const {
    if (Tile::CLUSTER == 1 || !places.sends) return;
    const int bytes = buffer * Tile::H_BYTES;
    copy_to_cluster(places.target + bytes, places.source + bytes, Tile::SLICE_BYTES,
                    places.full + buffer * static_cast<int>(sizeof(Barrier)));
  }

  // Announces what the other blocks will send after `step`; they may have begun.
  __device__ __forceinline__ void expect_state(int step) const {
    if (Tile::CLUSTER == 1 || threadIdx.x != 0 || step + 1 >= p.problem.steps) return;
    arrive_expecting(shared.h_full + ((step & 1) ^ 1), (Tile::CLUSTER - 1) * Tile::SLICE_BYTES);
  }

  // Returns when the state before `step` has come from all blocks.
  __device__ __forceinline__ void wait_state(int step) const {
    if (Tile::CLUSTER > 1) wait(shared.h_full + (step & 1), (step - 1) / 2 & 1);
  }

  // One step's sums over this warpgroup's part of K.
  template <class HighX, class HighH, class LowX, class LowH>
  __device__ __forceinline__ void multiply(int step, const Places& places, Sums& sums_,
                                           StepTotals<Tile>& totals, const HighX& x, const HighH& h,
                                           const LowX& low_x, const LowH& low_h) const {
    const int stage = step % Tile::STAGES;
    CoreMatrices hidden = advance_cores(places.hidden, (step & 1) * Tile::H_BYTES);
    wait(shared.x_full + stage, step / Tile::STAGES & 1);
    fence_products();
    multiply_steps<Tile, Tile::X_STEPS>(sums_, x, low_x,
                                        advance_cores(places.x, stage * Tile::X_BYTES), 0);
    commit_products();
    wait_products<0>();
    sums_.pin_all();
    if (threadIdx.x % 32 == 0) arrive(shared.x_empty + stage);
    totals.set(sums_, lane.layer == 0 ? scales.hidden / scales.x : 1.0f);
    expect_state(step);
    // All of this before the wait, which ends what is not waited for.
    pin(totals.value);
    keep(hidden.low);
    if (step > 0) wait_state(step);
    fence_products();
    multiply_steps<Tile, Tile::H_STEPS>(sums_, h, low_h, hidden, 0);
    commit_products();
    wait_products<0>();
    sums_.pin_all();
    totals.add(sums_);
  }

  // Before cells: both parts of K are there, and the courier has read what cells overwrite.
  __device__ __forceinline__ void sync_sums(int step) const {
    if (has_reader()) {
      sync_warps(KEPT + (step & 1), Tile::COMPUTE_THREADS + 32);
    } else if (Tile::PARTS_OF_K == 2) {
      sync_compute();
    }
  }

  // From the sums to the next state in all blocks.
  __device__ __forceinline__ void hand_over(const Places& places, UnitStates<Tile>& states,
                                            const StepTotals<Tile>& totals, const float (&bias)[4],
                                            float inverse, int step) const {
    const int next = (step & 1) ^ 1;
    float own[Tile::PAIRS_EACH][4];
    join_parts<Tile>(places.given, places.taken, totals, [&] { sync_sums(step); }, own);
    if (Tile::PARTS_OF_K == 1 || Tile::BATCH > 8 || threadIdx.x < 128) {
#pragma unroll
      for (int i = 0; i < Tile::PAIRS_EACH; ++i) {
        float gates[4];
        gather_gates(own[i], gates);
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) gates[gate] = gates[gate] * inverse + bias[gate];
        // A choice is quicker than a branch.
        const UnitState after = Tile::Rule::next(gates, states.states[i]);
        const bool is_there = places.pairs >> i & 1;
        states.states[i].hidden = is_there ? after.hidden : 0.0f;
        states.states[i].cell = is_there ? after.cell : 0.0f;
        const PlanePair pair =
            split_planes<typename Tile::Plane>(states.states[i].hidden * scales.hidden);
        const uint32_t to = places.state + next * Tile::H_BYTES +
                            (UnitStates<Tile>::row(i) - UnitStates<Tile>::row(0)) * 16;
        write_shared(to, pair.high);
        if (Tile::PLANES == 2) write_shared(to + Tile::BATCH * 16, pair.low);
      }
    }
    fence_shared_for_async();
    sync_compute();
    if (step + 1 < p.problem.steps) send_slice(places, next);
    if (has_reader()) arrive_warps(STAGED + (step & 1), Tile::COMPUTE_THREADS + 32);
  }

  template <class HighX, class HighH, class LowX, class LowH>
  __device__ __forceinline__ void step_all(const HighX& x, const HighH& h, const LowX& low_x,
                                           const LowH& low_h) const {
    const int slot = UnitStates<Tile>::slot();
    const WeightSource<Tile> source = {p.problem, lane, first_unit(slot / Tile::TILE_UNITS)};
    UnitStates<Tile> states = {p.problem, lane, rank};
    float bias[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      bias[gate] = source.bias(Tile::row_of(gate, slot % Tile::TILE_UNITS));
    }
    states.start();
    const float inverse = 1.0f / scales.hidden / scales.weights;
    Sums sums_;
    StepTotals<Tile> totals;
    const Places places = find_places(states);
#pragma unroll 1
    for (int step = 0; step < p.problem.steps; ++step) {
      multiply(step, places, sums_, totals, x, h, low_x, low_h);
      hand_over(places, states, totals, bias, inverse, step);
      states.store(step);
    }
  }

  __device__ __forceinline__ int first_unit(int tile) const {
    return rank * Tile::UNITS + tile * Tile::TILE_UNITS;
  }

  __device__ __forceinline__ void compute() const {
    using Plane = typename Tile::Plane;
    constexpr bool AWAY = Tile::PLANES_AWAY > 0, ALL_AWAY = Tile::PLANES_AWAY == Tile::PLANES;
    const int warpgroup = static_cast<int>(threadIdx.x) / 128;
    const int part = warpgroup % Tile::PARTS_OF_K;
    const WeightSource<Tile> source = {p.problem, lane, first_unit(warpgroup / Tile::PARTS_OF_K)};
    Fragments<Tile::X_STEPS> x, low_x;
    Fragments<Tile::H_STEPS> h, low_h;
    unsigned char* const away = away_tiles() + warpgroup * (Tile::AWAY_BYTES / 2);
    const AwayTiles<Tile> low_tiles = {away};
    const AwayTiles<Tile> high_tiles = {away + (Tile::PLANES - 1) * Tile::AWAY_PLANE_BYTES};
    const uint32_t zero = static_cast<uint32_t>(p.problem.steps) >> 30;
    const auto of_input = [&](int row, int k) { return source.of_input(row, k); };
    const auto of_hidden = [&](int row, int k) { return source.of_hidden(row, k); };
    load_fragments<Plane, Tile::X_STEPS>(
        part * Tile::X_STEPS, scales.weights, zero, of_input,
        [&](int i, int j, int row, int k, uint32_t high, uint32_t low) {
          if constexpr (ALL_AWAY) {
            high_tiles.keep(i, row, k, high);
          } else {
            x.step[i][j] = high;
          }
          if constexpr (AWAY && Tile::PLANES == 2) {
            low_tiles.keep(i, row, k, low);
          } else {
            low_x.step[i][j] = low;
          }
        });
    load_fragments<Plane, Tile::H_STEPS>(part * Tile::H_STEPS, scales.weights, zero, of_hidden,
                                         [&](int i, int j, int, int, uint32_t high, uint32_t low) {
                                           h.step[i][j] = high;
                                           low_h.step[i][j] = low;
                                         });
    if constexpr (AWAY) {
      fence_shared_for_async();
      sync_compute();
    }
    CoreMatrices high_away, low_away;
    const auto tile_of = [](const AwayTiles<Tile>& tiles, CoreMatrices& plane, int i) {
      if (i == 0) plane = tiles.describe();
      return static_cast<uint64_t>(advance_cores(plane, i * Tile::AWAY_TILE_BYTES));
    };
    step_all(
        [&](int i, const auto& product) {
          if constexpr (ALL_AWAY) {
            product(tile_of(high_tiles, high_away, i));
          } else {
            product(x.step[i]);
          }
        },
        [&](int i, const auto& product) { product(h.step[i]); },
        [&](int i, const auto& product) {
          if constexpr (AWAY) {
            product(tile_of(low_tiles, low_away, i));
          } else {
            product(low_x.step[i]);
          }
        },
        [&](int i, const auto& product) { product(low_h.step[i]); });
  }

  __device__ __forceinline__ void run() const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    clear();
    __syncthreads();
    fill_first();
    fence_shared_for_async();
    // Nobody sends before all have made room.
    sync_cluster();
    if (warp < Tile::COMPUTE_WARPS) {
      take_registers<Tile::COMPUTE_REGISTERS>();
      compute();
    } else {
      give_registers_back<Tile::OTHER_REGISTERS>();
      if (warp == Tile::LOADER) {
        load();
      } else if (warp == Tile::COURIER && has_reader()) {
        store_records();
      }
    }
  }
};

template <class Config>
__device__ __forceinline__ void recurrent_sm90(const RecurrentParameters& p) {
  using Block = RecurrentBlock<Config>;
  using Tile = typename Block::Tile;
  extern __shared__ __align__(1024) unsigned char recurrent_memory[];
  __shared__ typename Block::Shared shared;
  const int rank = Tile::CLUSTER > 1 ? cluster_rank() : 0;
  wait_for_previous_kernel();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::STAGES; ++i) {
      init_barrier(shared.x_full + i, 1);
      init_barrier(shared.x_empty + i, Tile::COMPUTE_WARPS);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(shared.h_full + i, 1);
    }
    fence_barrier_init();
  }
  sync_cluster();  // all blocks are there
  if (threadIdx.x == 0 && rank == 0) {
    const uint32_t ticket = atomicAdd(p.room.ticket, 1u);
    for (int i = 0; i < Tile::CLUSTER; ++i) store_word_at_rank(&shared.lane, i, ticket);
  }
  __syncwarp();
  sync_cluster();
  const auto lane = RecurrentLane::of<Tile>(static_cast<int>(shared.lane), p.problem);
  const PlaneScales scales = PlaneScales::of<Tile>(*p.room.extremes);
  if (scales.fit) {
    const Block block = {p, shared, recurrent_memory, lane, rank, scales};
    block.run();
  } else {
    PlainLane<Tile>{p, lane, rank}.run();
  }
  // Nobody ends while others may still send to it.
  __syncwarp();
  sync_cluster();
}
