#pragma once
// Long rows that fit the L2 cache: folded in parts and finished soon after, while they are there.
//
// One launch does both. Blocks draw tickets: in turn a part of a row to fold, and a part to finish
// of a row that was folded some tickets ago. Who folds the last part of a row combines the states
// of all. A ticket waits for tickets before it only, which somebody holds who runs: so there is no
// deadlock, however many blocks run at one time. A config is one of row_parts.cuh with
//   PART          vectors of a part

#include "row_parts.cuh"

template <class Program, class Config>
struct RelayRows : PartRows<Program, Config> {
  uint32_t* counters;  // tickets drawn; then for each row parts folded, and whether all are
  char* row_states;    // of whole rows, fold by fold
  uint32_t lag;        // parts that are folded ahead of those that are finished

  __device__ __forceinline__ PartStates<Program> row_state(int64_t row) const {
    return {row_states, this->space.kept.count, 1, row};
  }
};

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(uint32_t* address, uint32_t value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

template <class Rows>
struct RelayBlock {
  using Program = decltype(Rows::program);
  using Config = typename Rows::Config;
  using Types = RowTypes<Program>;

  const Rows& rows;
  const PartBlock<Program, Config>& block;
  uint32_t* shared;  // two words

  // Folds a part; with the last one of its row, the row.
  __device__ __forceinline__ void fold(uint32_t row, uint32_t part) const {
    block.template fold<0>(row, part, {});
    const auto count = static_cast<uint32_t>(rows.space.kept.count);
    if (threadIdx.x == 0) {
      __threadfence();
      shared[1] = atomicAdd(rows.counters + 1 + row, 1u);
    }
    __syncthreads();
    if (shared[1] + 1 != rows.parts) return;
    __threadfence();
    repeat<Types::FOLDS>([&](auto fold) {
      const auto state = block.template combine_states<fold>(row);
      if (threadIdx.x == 0) *rows.row_state(row).template of<fold>() = state;
    });
    if (threadIdx.x == 0) store_release(rows.counters + 1 + count + row, 1);
  }

  __device__ __forceinline__ void finish(uint32_t row, uint32_t part) const {
    const auto count = static_cast<uint32_t>(rows.space.kept.count);
    if (threadIdx.x == 0) {
      while (load_acquire(rows.counters + 1 + count + row) == 0) {
      }
    }
    __syncthreads();
    typename Types::Totals totals = {};
    repeat<Types::FOLDS>([&](auto fold) {
      const auto state = load_state(rows.row_state(row).template of<fold>());
      set_totals<Program, fold>(state, totals);
    });
    block.finish(row, part, totals);
  }
};

template <class Rows>
__device__ __forceinline__ void relay_parts(const Rows& rows) {
  using Program = decltype(rows.program);
  __shared__ __align__(16) char memory[Rows::Exchange::BYTES + 16];
  __shared__ uint32_t shared[2];
  typename Rows::Exchange exchange = {memory};
  const PartBlock<Program, typename Rows::Config> block = {rows, exchange};
  const RelayBlock<Rows> relay = {rows, block, shared};
  const auto parts = static_cast<uint32_t>(rows.space.kept.count) * rows.parts;
  // Even tickets fold, odd ones finish what was folded `lag` even ones before.
  const uint32_t tickets = 2 * (parts + rows.lag);
  uint32_t drawn = 0;
  if (threadIdx.x == 0) drawn = atomicAdd(rows.counters, 1u);
  while (true) {
    __syncthreads();
    if (threadIdx.x == 0) shared[0] = drawn;
    __syncthreads();
    const uint32_t ticket = shared[0];
    if (ticket >= tickets) return;
    // The next one comes while this one is at work.
    if (threadIdx.x == 0) drawn = atomicAdd(rows.counters, 1u);
    const uint32_t item = ticket / 2;
    if (ticket % 2 == 0) {
      if (item < parts) relay.fold(item / rows.parts, item % rows.parts);
    } else if (item >= rows.lag) {
      relay.finish((item - rows.lag) / rows.parts, (item - rows.lag) % rows.parts);
    }
  }
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct RelayVariant {
  using Parameters = RelayRows<Program, Config>;
  static_assert(Program::LEVELS == 1, "a row is read twice: for its folds, and for its results");
  void (*kernel)(Parameters);
  int multiprocessors;

  static bool takes(const typename Parameters::Space& space) {
    if (!Parameters::can_walk(space)) return false;
    const auto rows = Parameters::describe({}, space);
    // Tickets are counted in 32 bits.
    const int64_t slices = (rows.run_vectors() + Config::PART - 1) / Config::PART;
    return slices * rows.segments.count * space.kept.count < int64_t{1} << 29;
  }

  int64_t workspace(const RowCall<Program>& call) const {
    const Parameters rows = plan(call);
    const int64_t count = call.space.kept.count;
    return counter_bytes(count) + states_bytes(count) + states_bytes(count * rows.parts);
  }

  cudaError_t launch(const RowCall<Program>& call, char* workspace, cudaStream_t stream) const {
    Parameters rows = plan(call);
    const int64_t count = call.space.kept.count;
    rows.counters = reinterpret_cast<uint32_t*>(workspace);
    rows.row_states = workspace + counter_bytes(count);
    rows.workspace = rows.row_states + states_bytes(count);
    const cudaError_t status =
        cudaMemsetAsync(workspace, 0, static_cast<size_t>(counter_bytes(count)), stream);
    if (status != cudaSuccess) return status;
    const auto launched = kernel;
    launched<<<static_cast<unsigned>(multiprocessors * Config::RESIDENT), Config::THREADS, 0,
               stream>>>(rows);
    return cudaGetLastError();
  }

 private:
  static int64_t counter_bytes(int64_t count) { return ((1 + 2 * count) * 4 + 15) / 16 * 16; }
  static int64_t states_bytes(int64_t states) {
    return state_bytes<Program, Parameters::Types::FOLDS>(states);
  }

  Parameters plan(const RowCall<Program>& call) const {
    Parameters rows;
    static_cast<typename Parameters::Base&>(rows) = Parameters::describe(call.program, call.space);
    const int64_t vectors = rows.run_vectors();
    rows.part_vectors = Config::PART;
    rows.slices = static_cast<uint32_t>((vectors + rows.part_vectors - 1) / rows.part_vectors);
    rows.parts = static_cast<uint32_t>(rows.segments.count * rows.slices);
    // When a part is finished, all of its row are folded: what the card has at work is behind.
    rows.lag = rows.parts + static_cast<uint32_t>(multiprocessors * Config::RESIDENT / 2);
    return rows;
  }
};
