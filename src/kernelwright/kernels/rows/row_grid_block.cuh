#pragma once
// A block of row_grid.cuh at work: the warps that copy, fold, exchange and finish, and what they
// tell each other and the other blocks.

#include "bulk_copy.cuh"
#include "row_exchange.cuh"
#include "row_launch.cuh"
#include "row_lines.cuh"

// Words of the states that a block tells of a row, of all folds before FOLD.
template <class Program, int FOLD>
constexpr int told_words() {
  if constexpr (FOLD == 0) {
    return 0;
  } else {
    using Fold = typename RowTypes<Program>::template FoldAt<FOLD - 1>;
    return told_words<Program, FOLD - 1>() + static_cast<int>(sizeof(typename Fold::State) / 4);
  }
}

template <class Program, class Config_>
struct GridRows : VectorRows<Program, Config_::WIDTH> {
  using Config = Config_;
  using Base = VectorRows<Program, Config::WIDTH>;
  using Types = RowTypes<Program>;
  using Space = typename Types::Space;
  static constexpr int WIDTH = Config::WIDTH;
  static constexpr unsigned FOLDED = Program::READS[0], FINISHED = Program::READS[Program::LEVELS];
  // What all rows share is read from the cache where results want it, rather than held.
  static constexpr unsigned HELD = Program::STREAMED & (FOLDED | (FINISHED & ~Program::ALIKE));
  static constexpr unsigned OTHERS = FINISHED & other_inputs<Program>();
  static constexpr int MOST_BLOCKS = 160, MOST_SLOTS = 64;
  // Rows that a block may be ahead of its own results, and rows of flags: who is ahead of another
  // block's exchange by as many has not passed its own by more than half of them.
  static constexpr int AHEAD = 8, FLAG_ROWS = 2 * AHEAD;
  static constexpr int WORDS = told_words<Program, Types::FOLDS>();
  static constexpr int FLAG_WORDS = (WORDS + 3) / 4 * 4;  // whole sectors for each block
  static constexpr int64_t FLAG_BYTES = int64_t{FLAG_ROWS} * MOST_BLOCKS * FLAG_WORDS * 8;

  // Bytes of a slot, for each of its vectors, in front of those of an input.
  static constexpr int bytes_before(int input) {
    int bytes = 0;
    for (int i = 0; i < input; ++i) {
      if ((HELD >> i & 1) != 0) bytes += operand_bytes<Program>(i) * WIDTH;
    }
    return bytes;
  }
  static constexpr int VECTOR_BYTES = bytes_before(Types::INPUTS);

  // The held input in whose place a result leaves the ring: the first one of its size that no
  // result before it has; -1 where there is none.
  static constexpr int home_of(int result) {
    const int bytes = operand_bytes<Program>(Types::INPUTS + result);
    int before = 0;
    for (int r = 0; r < result; ++r) {
      const bool is_alike = operand_bytes<Program>(Types::INPUTS + r) == bytes;
      before += Program::IS_ELEMENT[r] && is_alike ? 1 : 0;
    }
    for (int i = 0; i < Types::INPUTS && Program::IS_ELEMENT[result]; ++i) {
      const bool is_home = (HELD >> i & 1) != 0 && operand_bytes<Program>(i) == bytes;
      if (is_home && before-- == 0) return i;
    }
    return -1;
  }
  static constexpr bool has_home() {
    for (int r = 0; r < Types::RESULTS; ++r) {
      if (home_of(r) >= 0) return true;
    }
    return false;
  }

  // What the kernel can do at all: bulk copies move 16 bytes at a time.
  static constexpr bool can_hold() {
    bool can = Program::LEVELS == 1 && HELD != 0 && (FOLDED & other_inputs<Program>()) == 0;
    for (int i = 0; i < Types::INPUTS; ++i) {
      can = can && ((HELD >> i & 1) == 0 || operand_bytes<Program>(i) * WIDTH % 16 == 0);
    }
    return can;
  }

  uint64_t* flags;
  int slice, chunk;  // vectors of a block, of a chunk
  int slots;
  Divisor piece;  // vectors for which inputs that are not walked in vectors are the same
  int64_t piece_steps[Types::INPUTS];  // bytes from piece to piece

  // The part of a row that is a block's.
  __device__ __forceinline__ RowRun<Program, WIDTH> slice_of(int64_t row) const {
    const int64_t vectors = this->run / WIDTH, begin = int64_t{blockIdx.x} * slice;
    return RowRun<Program, WIDTH>(*this, row, 0, begin < vectors ? begin : vectors, slice);
  }

  __device__ __forceinline__ uint64_t* flags_of(int64_t row, unsigned block) const {
    return flags + (row % FLAG_ROWS * gridDim.x + block) * FLAG_WORDS;
  }
};

// What the warps of a block tell each other.
template <class Rows>
struct GridShared {
  Barrier full[Rows::MOST_SLOTS], empty[Rows::MOST_SLOTS];
  // Of a row: its totals are there, and nobody needs them any more.
  Barrier known[Rows::AHEAD], finished[Rows::AHEAD];
  typename Rows::Types::Totals totals[Rows::AHEAD];
  uint32_t states[2][Rows::Config::FOLD_WARPS][Rows::WORDS];
};

// The slots of the ring, one after the other; the phase of its barriers that a slot is in.
struct RingPlace {
  int slot, phase;

  __device__ __forceinline__ void advance(int slots) {
    if (++slot < slots) return;
    slot = 0;
    phase ^= 1;
  }
};

__device__ __forceinline__ void put_word(uint64_t* flag, uint32_t word, uint32_t tag) {
  const uint64_t value = uint64_t{tag} << 32 | word;
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t look_at(const uint64_t* flag) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

template <class Program, class Config>
struct GridBlock {
  using Rows = GridRows<Program, Config>;
  using Shared = GridShared<Rows>;
  using Types = RowTypes<Program>;
  using Run = RowRun<Program, Config::WIDTH>;
  using Vectors = typename PackOfVectors<typename Program::Inputs, Config::WIDTH>::type;
  static constexpr int WIDTH = Config::WIDTH, AHEAD = Rows::AHEAD;
  static constexpr int FOLDERS = 32 * Config::FOLD_WARPS, FINISHERS = 32 * Config::FINISH_WARPS;
  static constexpr unsigned HELD = Rows::HELD;
  // Vectors that are folded together: of more inputs fewer fit registers.
  static constexpr unsigned FOLDED = HELD & Rows::FOLDED, FINISHED = HELD & Rows::FINISHED;
  static constexpr int MOST = ((FOLDED & (FOLDED - 1)) == 0 ? 16 : 8) / WIDTH;
  static constexpr int TOGETHER = MOST < 1 ? 1 : MOST;

  const Rows& rows;
  Shared& shared;
  char* ring;
  int vectors;  // of this block's slice

  __device__ __forceinline__ static uint32_t round_of(int64_t row) {
    return static_cast<uint32_t>(row / AHEAD);
  }

  __device__ __forceinline__ int chunks() const { return (vectors + rows.chunk - 1) / rows.chunk; }
  __device__ __forceinline__ int count_of(int chunk) const {
    const int rest = vectors - chunk * rows.chunk;
    return rest < rows.chunk ? rest : rows.chunk;
  }

  // An input's vectors in a slot.
  template <int INPUT>
  __device__ __forceinline__ auto slot(int slot) const {
    using In = pack_item_t<INPUT, typename Program::Inputs>;
    char* const first = ring + (slot * Rows::VECTOR_BYTES + Rows::bytes_before(INPUT)) * rows.chunk;
    return reinterpret_cast<Vector<In, WIDTH>*>(first);
  }

  template <unsigned MASK>
  __device__ __forceinline__ void fetch(int slot, int v, Vectors& vectors) const {
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((MASK >> input & 1) != 0) {
        get<input>(vectors) = this->template slot<input>(slot)[v];
      }
    });
  }

  // One thread: brings rows to the ring.
  __device__ __forceinline__ void copy() const {
    RingPlace place = {0, 1};  // the first round finds empty slots
    for (int64_t row = 0; row < rows.space.kept.count; ++row) {
      const Run run = rows.slice_of(row);
      for (int c = 0; c < chunks(); ++c) {
        const int count = count_of(c);
        wait(shared.empty + place.slot, place.phase);
        arrive_expecting(shared.full + place.slot, count * Rows::VECTOR_BYTES);
        repeat<Types::INPUTS>([&](auto input) {
          if constexpr ((HELD >> input & 1) != 0) {
            copy_bulk(slot<input>(place.slot), run.template address<input>(c * rows.chunk),
                      count * WIDTH * operand_bytes<Program>(input), shared.full + place.slot);
          }
        });
        place.advance(rows.slots);
      }
    }
  }

  // The warps that fold.
  __device__ __forceinline__ void fold(int warp) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, thread = warp * 32 + lane;
    RingPlace place = {0, 0};
    for (int64_t row = 0; row < rows.space.kept.count; ++row) {
      const Run run = rows.slice_of(row);
      typename Program::Inputs element = {};
      load_shared_inputs<Program::SHARED & Rows::FOLDED>(run, element);
      auto states = no_elements<Program>();
      for (int c = 0; c < chunks(); ++c) {
        wait(shared.full + place.slot, place.phase);
        fold_chunk(run, place.slot, c, thread, element, states);
        place.advance(rows.slots);
      }
      if (row >= AHEAD) wait(shared.finished + row % AHEAD, (round_of(row) + 1) & 1);
      combine_warps(row, warp, lane, states);
      // Results may take the place of what this warp has read.
      if (lane == 0) arrive(shared.known + row % AHEAD);
    }
  }

  __device__ __forceinline__ void fold_chunk(const Run& run, int slot, int chunk, int thread,
                                             const typename Program::Inputs& element,
                                             typename Types::States& states) const {
    const int count = count_of(chunk);
    const auto fold_some = [&](auto together, int v) {
      constexpr int COUNT = together;
      Vectors vectors[COUNT];
#pragma unroll
      for (int k = 0; k < COUNT; ++k) fetch<FOLDED>(slot, v + k * FOLDERS, vectors[k]);
      const int64_t first = run.place(chunk * rows.chunk + v);
      constexpr unsigned ALL = (1u << COUNT * WIDTH) - 1;
      fold_vectors<0, COUNT>(run, typename Types::Totals(), element,
                             VectorPlaces<WIDTH>{first, int64_t{FOLDERS} * WIDTH}, vectors, ALL,
                             states);
    };
    int v = thread;
#pragma unroll 1
    for (; v + (TOGETHER - 1) * FOLDERS < count; v += TOGETHER * FOLDERS) {
      fold_some(Index<TOGETHER>(), v);
    }
#pragma unroll 1
    for (; v < count; v += FOLDERS) fold_some(Index<1>(), v);
  }

  // Tells all blocks what this one's slice comes to.
  __device__ __forceinline__ void combine_warps(int64_t row, int warp, int lane,
                                                const typename Types::States& states) const {
    constexpr int LANES = TeamExchange<1, 1, 4>::lanes_of(Config::FOLD_WARPS);
    auto& half = shared.states[row % 2];
    repeat<Types::FOLDS>([&](auto fold) {
      using Fold = typename Types::template FoldAt<fold>;
      const auto state = combine_warp<Fold>(get<fold>(states));
      if (lane == 0) memcpy(half[warp] + told_words<Program, fold>(), &state, sizeof(state));
    });
    // Who writes to a half again has met the first warp since it read that.
    sync_warps(1, FOLDERS);
    if (warp > 0) return;
    uint64_t* const flags = rows.flags_of(row, blockIdx.x);
    repeat<Types::FOLDS>([&](auto fold) {
      using Fold = typename Types::template FoldAt<fold>;
      constexpr int FIRST = told_words<Program, fold>();
      auto state = Fold::identity();
      const int from = lane % LANES;  // each group of so many lanes has all
      if (from < Config::FOLD_WARPS) memcpy(&state, half[from] + FIRST, sizeof(state));
      state = combine_lanes<Fold, LANES>(state);
      constexpr int COUNT = sizeof(state) / 4;
      uint32_t words[COUNT];
      memcpy(words, &state, sizeof(state));
      uint32_t own = words[0];
#pragma unroll
      for (int i = 1; i < COUNT; ++i) own = lane == i ? words[i] : own;
      if (lane < COUNT) put_word(flags + FIRST + lane, own, static_cast<uint32_t>(row + 1));
    });
  }

  // One warp: makes totals of what all blocks tell.
  __device__ __forceinline__ void exchange(int lane) const {
    for (int64_t row = 0; row < rows.space.kept.count; ++row) {
      typename Types::Totals totals = {};
      repeat<Types::FOLDS>(
          [&](auto fold) { set_totals<Program, fold>(combine_blocks<fold>(row, lane), totals); });
      if (row >= AHEAD) wait(shared.finished + row % AHEAD, (round_of(row) + 1) & 1);
      if (lane == 0) {
        shared.totals[row % AHEAD] = totals;
        arrive(shared.known + row % AHEAD);
      }
    }
  }

  template <int FOLD>
  __device__ __forceinline__ auto combine_blocks(int64_t row, int lane) const {
    using Fold = typename Types::template FoldAt<FOLD>;
    using State = typename Fold::State;
    constexpr int COUNT = sizeof(State) / 4, EACH = Rows::MOST_BLOCKS / 32;
    const uint64_t* const flags = rows.flags_of(row, 0) + told_words<Program, FOLD>();
    const auto tag = static_cast<uint32_t>(row + 1);
    uint64_t found[EACH][COUNT];
    bool has_all;
    do {
      // All of them are asked for before one is looked at.
#pragma unroll
      for (int j = 0; j < EACH; ++j) {
        const int block = lane + 32 * j;
        const int known = block < static_cast<int>(gridDim.x) ? block : 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) found[j][i] = look_at(flags + known * Rows::FLAG_WORDS + i);
      }
      has_all = true;
#pragma unroll
      for (int j = 0; j < EACH; ++j) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
          has_all = has_all && static_cast<uint32_t>(found[j][i] >> 32) == tag;
        }
      }
    } while (!__all_sync(0xffffffff, has_all));
    State state = Fold::identity();
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      if (lane + 32 * j >= static_cast<int>(gridDim.x)) continue;
      uint32_t words[COUNT];
#pragma unroll
      for (int i = 0; i < COUNT; ++i) words[i] = static_cast<uint32_t>(found[j][i]);
      State other;
      memcpy(&other, words, sizeof(State));
      state = Fold::combine(state, other);
    }
    return combine_warp<Fold>(state);
  }

  // The warps that write results: those of a chunk take the place of what they are made of, and
  // leave it by bulk stores.
  __device__ __forceinline__ void finish(int warp, int lane) const {
    const int own = warp * 32 * Config::VECTORS + lane;
    RingPlace place = {0, 0};
    int previous = -1;  // the slot that this warp has not handed back
    for (int64_t row = 0; row < rows.space.kept.count; ++row) {
      const Run run = rows.slice_of(row);
      typename Program::Inputs element = {};
      load_shared_inputs<Program::SHARED & Rows::FINISHED>(run, element);
      wait(shared.known + row % AHEAD, round_of(row) & 1);
      const auto totals = shared.totals[row % AHEAD];
      for (int c = 0; c < chunks(); ++c) {
        const int count = count_of(c);
        wait(shared.full + place.slot, place.phase);
#pragma unroll
        for (int k = 0; k < Config::VECTORS; ++k) {
          const int v = own + 32 * k;
          if (v < count) finish_vector(run, place.slot, c * rows.chunk, v, totals, element);
        }
        hand_back(run, place.slot, previous, c, warp, lane);
        previous = place.slot;
        place.advance(rows.slots);
      }
      if (warp == 0 && lane == 0 && blockIdx.x == 0) store_row_results(run, totals);
      __syncwarp();
      if (lane == 0) arrive(shared.finished + row % AHEAD);
    }
    if (Rows::has_home() && lane == 0) wait_bulk_stores_read<0>();
  }

  __device__ __forceinline__ void finish_vector(const Run& run, int slot, int begin, int v,
                                                const typename Types::Totals& totals,
                                                typename Program::Inputs element) const {
    Vectors loaded;
    fetch<FINISHED>(slot, v, loaded);
    constexpr unsigned READ = Rows::FINISHED & Program::STREAMED & ~HELD;
    load_inputs<READ, true>(run, begin + v, loaded);
    const int64_t place = run.place(begin + v);
    load_of_piece(run, static_cast<uint32_t>(place / WIDTH), element);
    repeat<Types::RESULTS>([&](auto result) {
      if constexpr (Program::IS_ELEMENT[result]) {
        using Out = pack_item_t<result, typename Program::Results>;
        constexpr unsigned LOADED = Rows::FINISHED & Program::STREAMED;
        const auto values = results_of_vector<result, LOADED, WIDTH>(
            rows.program, totals, element, loaded,
            [&](int i) { return RowPlace{rows.space.coordinates, run.row, place + i, i}; });
        constexpr int HOME = Rows::home_of(result);
        if constexpr (HOME >= 0) {
          auto* const to = reinterpret_cast<Vector<Out, WIDTH>*>(this->template slot<HOME>(slot));
          to[v] = values;
        } else {
          run.template store<Types::INPUTS + result, true>(begin + v, values);
        }
      }
    });
  }

  // Inputs that all of a vector's elements share.
  __device__ __forceinline__ void load_of_piece(const Run& run, uint32_t vector,
                                                typename Program::Inputs& element) const {
    if constexpr (Rows::OTHERS != 0) {
      const int64_t piece = rows.piece.quotient(vector);
      repeat<Types::INPUTS>([&](auto input) {
        if constexpr ((Rows::OTHERS >> input & 1) != 0) {
          using In = pack_item_t<input, typename Program::Inputs>;
          get<input>(element) =
              *reinterpret_cast<const In*>(run.at[input] + piece * rows.piece_steps[input]);
        }
      });
    }
  }

  // This warp has finished its part of a chunk. Its stores still read that when it goes on: the
  // slot before, which they have read by then, is the one that it hands back.
  __device__ __forceinline__ void hand_back(const Run& run, int slot, int previous, int chunk,
                                            int warp, int lane) const {
    if constexpr (!Rows::has_home()) {
      __syncwarp();
      if (lane == 0) arrive(shared.empty + slot);
    } else {
      fence_shared_for_async();
      __syncwarp();
      if (lane > 0) return;
      const int begin = warp * 32 * Config::VECTORS, rest = count_of(chunk) - begin;
      const int count = rest < 32 * Config::VECTORS ? rest : 32 * Config::VECTORS;
      repeat<Types::RESULTS>([&](auto result) {
        constexpr int HOME = Rows::home_of(result), OPERAND = Types::INPUTS + result;
        if constexpr (HOME >= 0) {
          if (count > 0) {
            store_bulk(run.template address<OPERAND>(chunk * rows.chunk + begin),
                       this->template slot<HOME>(slot) + begin,
                       count * WIDTH * operand_bytes<Program>(OPERAND));
          }
        }
      });
      commit_bulk_stores();
      wait_bulk_stores_read<1>();
      if (previous >= 0) arrive(shared.empty + previous);
    }
  }
};
