#pragma once
// The steps of a lane in float32, for numbers that planes do not carry: weights come from device
// memory, and so do the hidden states of the other blocks. Right, and slow.

#include "recurrent_states.cuh"
#include "recurrent_weights.cuh"

template <class Tile>
struct PlainLane {
  const RecurrentParameters& p;
  RecurrentLane lane;
  int rank;

  using States = UnitStates<Tile>;
  using Stored = typename Tile::Stored;

  // The weights of the tile with this thread's unit, and its place there.
  __device__ __forceinline__ WeightSource<Tile> source_of_thread() const {
    return {p.problem, lane, rank * Tile::UNITS + States::slot() - tile_slot()};
  }
  __device__ __forceinline__ static int tile_slot() { return States::slot() % Tile::TILE_UNITS; }

  // Element k of a record of float32: units, then the batch's rows.
  __device__ __forceinline__ static const float* element(const unsigned char* record, int k,
                                                         int row) {
    return reinterpret_cast<const float*>(record) + k * Tile::BATCH + row;
  }

  // Sums of a unit's gates; sums over inputs and over the hidden state are one where a row takes
  // both.
  __device__ __forceinline__ void sum(const States& states, int pair, int step,
                                      float (&sums)[4]) const {
    const LaneRecords<Tile> records = {p, lane};
    const WeightSource<Tile> source = source_of_thread();
    const int time = lane.time(step, p.problem.steps), row = States::row(pair);
    const int before = step > 0 ? lane.time(step - 1, p.problem.steps) : 0;
    for (int k = 0; k < source.inputs(); ++k) {
      const int direction = k / p.problem.hidden, unit = k % p.problem.hidden;
      const float input =
          lane.layer == 0
              ? p.problem.x.template read<Stored>(time, states.batch(pair), k)
              : __ldcg(element(records.record(records.number(lane.layer - 1, direction), time),
                               unit, row));
      const int place = lane.layer == 0 ? k : direction * Tile::PART + unit;
      add(
          source, tile_slot(), input, sums, [&](int from) { return source.of_input(from, place); },
          [](int gate) { return Tile::Rule::takes_input(gate); });
    }
    for (int k = 0; k < p.problem.hidden; ++k) {
      float state = 0.0f;
      if (step > 0) {
        state = __ldcg(element(records.record(lane.number, before), k, row));
      } else if (p.problem.first_hidden.data != nullptr) {
        state = p.problem.first_hidden.template read<Stored>(states.layer(), states.batch(pair), k);
      }
      add(
          source, tile_slot(), state, sums, [&](int from) { return source.of_hidden(from, k); },
          [](int gate) { return Tile::Rule::takes_hidden(gate); });
    }
  }

  template <class Weight, class Takes>
  __device__ __forceinline__ static void add(const WeightSource<Tile>&, int slot, float factor,
                                             float (&sums)[4], const Weight& weight,
                                             const Takes& takes) {
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      if (takes(gate)) sums[gate] += weight(Tile::row_of(gate, slot)) * factor;
    }
  }

  // Waits for the other blocks of the lane, which are all running, and for those below.
  __device__ __forceinline__ void wait_for(int step, uint32_t (&seen)[2]) const {
    const LaneRecords<Tile> records = {p, lane};
    if (threadIdx.x < 32) {
      if (threadIdx.x < Tile::CLUSTER) {
        LaneRecords<Tile>::wait_flag(records.flag(lane.number, static_cast<int>(threadIdx.x)),
                                     static_cast<uint32_t>(step), seen[0]);
      }
      __syncwarp();
      if (lane.layer > 0) records.wait_below(lane.time(step, p.problem.steps), seen[1]);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void run() const {
    const LaneRecords<Tile> records = {p, lane};
    const WeightSource<Tile> source = source_of_thread();
    States states = {p.problem, lane, rank};
    if (States::has_pairs()) states.start();
    uint32_t seen[2] = {0, 0};
    for (int step = 0; step < p.problem.steps; ++step) {
      wait_for(step, seen);
#pragma unroll
      for (int i = 0; i < States::EACH; ++i) {
        if (!states.is_there(i)) continue;
        float sums[4];
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) {
          sums[gate] = source.bias(Tile::row_of(gate, tile_slot()));
        }
        sum(states, i, step, sums);
        states.states[i] = Tile::Rule::next(sums, states.states[i]);
        unsigned char* const record = records.record(lane.number, lane.time(step, p.problem.steps));
        *const_cast<float*>(element(record, states.unit(), States::row(i))) =
            states.states[i].hidden;
      }
      states.store(step);
      __syncthreads();
      if (threadIdx.x == 0) {
        store_release(records.flag(lane.number, rank), static_cast<uint32_t>(step + 1));
      }
    }
  }
};
