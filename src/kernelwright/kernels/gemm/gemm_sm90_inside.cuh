#pragma once
// Both factors of a product of pairs split where they are multiplied, so that no plane is ever in
// device memory: two warpgroups turn boxes of fp32 numbers into the planes of a stage, as the
// tensor cores want them, and send the other blocks of the cluster what they share.
//
// A factor's part of a stage is two halves of 64 along its own dimension by BLOCK_K. The blocks of
// a row of the cluster share lhs, those of a column rhs: each splits one half and sends it to the
// other. A warp has 8 rows of 64 numbers of either half, whatever the layout, for planes have rows
// of 64 in both.

#include "bulk_copy.cuh"
#include "gemm_sm90_tile.cuh"

// The box of one side that is fetched next. One thread's: in shared memory it takes no registers.
struct RawCursor {
  int unit, steps;  // that are left of the unit
  int x, y, z;
};

// Of both sides.
__device__ __forceinline__ RawCursor* raw_cursors() {
  __shared__ RawCursor cursors[2];
  return cursors;
}

template <class Config, class Tile, class Problem>
class InsideSplitter {
 public:
  using Place = Sm90Place<Tile>;
  static constexpr int RUN = SplitTile::RUN, RUNS = 4;  // of a thread
  static constexpr int ROW = 64, ROWS = 8;              // numbers, of a warp
  static constexpr int BOX_BYTES = ROW * ROW * 4;
  static constexpr int PLANE_ROW_BYTES = ROW * 2;
  static constexpr int WARP_BYTES = ROWS * PLANE_ROW_BYTES;
  static constexpr int HALF_BYTES = ROW * PLANE_ROW_BYTES;
  static constexpr int STEPS_AHEAD = 4;                // that are on their way to the L2
  static constexpr int TOGETHER = 2;                   // barrier of the warps that split
  static constexpr int INCOMING = 2 * 2 * HALF_BYTES;  // from other blocks, for a stage
  static_assert(!Tile::SPLITS_INSIDE || Tile::CLUSTER == 4, "two rows of two blocks share");
  static_assert(Tile::LHS_PLANE == Tile::RHS_PLANE, "the low plane is as far in both");

  __device__ __forceinline__ InsideSplitter(const Sm90Parameters<Problem>& p,
                                            const Sm90Shared<Tile>& shared, RawCursor* cursors)
      : p_(p), shared_(shared), cursors_(cursors) {}

  // The first boxes are on their way before other barriers may be used.
  __device__ __forceinline__ void start() const {
    if (fetches<0>()) start_side<0>();
    if (fetches<1>()) start_side<1>();
  }

  __device__ __forceinline__ void run(const int (&exponents)[SCALES], GuardWord& word) const {
    Guard<RUN> guard;
    Ring<Tile::STAGES> ring;
    int raw_phase = 0;
    for (int unit = Place::cluster(); unit < p_.units.count; unit += Place::clusters()) {
      const Sm90Work work = locate_work<Tile>(p_, p_.units, unit);
      // Each element is looked at once, however many tiles it is split for.
      const bool looks_left =
          work.column < Tile::BLOCK_N * Tile::CLUSTER_COLUMNS && is_first(work, p_.lhs_batch_steps);
      const bool looks_right =
          work.row < Tile::BLOCK_M * Tile::CLUSTER_ROWS && is_first(work, p_.rhs_batch_steps);
#pragma unroll 1
      for (int step = 0; step < work.steps; ++step) {
        wait(shared_.empty + ring.stage, ring.phase ^ 1);
        split_half<0>(raw_phase, exponents, ring.stage, looks_left, guard);
        split_half<1>(raw_phase, exponents, ring.stage, looks_right, guard);
        hand_over(ring.stage);
        raw_phase ^= 1;
        ring.advance();
      }
    }
    word.add(guard.word());
  }

 private:
  using Values = Vector<float, RUN>[RUNS];

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ static int warp() { return threadIdx.x / 32; }

  template <int SIDE>
  __device__ __forceinline__ static constexpr bool along_k() {
    return (SIDE == 0 ? Config::LHS : Config::RHS) == Major::K;
  }

  // Whether this thread fetches the boxes of a side.
  template <int SIDE>
  __device__ __forceinline__ static bool fetches() {
    return threadIdx.x == SIDE * 128;
  }

  // The half that this block splits.
  template <int SIDE>
  __device__ __forceinline__ static int half() {
    return SIDE == 0 ? Place::rank() % 2 : Place::rank() / 2;
  }

  __device__ __forceinline__ bool is_first(const Sm90Work& work,
                                           const int (&steps)[MAX_BATCH_RANK]) const {
    return p_.problem.batch_rank == 0 || steps[0] != 0 || work.batch == 0;
  }

  template <int SIDE>
  __device__ __forceinline__ void start_side() const {
    init_barrier(shared_.raw_full + SIDE, 1);
    init_barrier(shared_.raw_empty + SIDE, Tile::FEEDER_WARPS);
    fence_barrier_init();
    RawCursor& cursor = cursors_[SIDE];
    cursor.unit = Place::cluster();
    begin_unit<SIDE>(cursor);
    fetch<SIDE>(cursor);
  }

  template <int SIDE>
  __device__ __forceinline__ void begin_unit(RawCursor& cursor) const {
    if (cursor.unit >= p_.units.count) return;
    const Sm90Work work = locate_work<Tile>(p_, p_.units, cursor.unit);
    cursor.steps = work.steps;
    const int first = (SIDE == 0 ? work.row : work.column) + half<SIDE>() * ROW;
    const int k = work.first_step * Tile::BLOCK_K;
    cursor.x = along_k<SIDE>() ? k : first;
    cursor.y = along_k<SIDE>() ? first : k;
    cursor.z = 0;
    if constexpr (ANY_BATCHES) {
      cursor.z =
          plane_batch(p_.problem, work.batch, SIDE == 0 ? p_.lhs_batch_steps : p_.rhs_batch_steps);
    }
  }

  // The cursor's box, and moves it on.
  template <int SIDE>
  __device__ __forceinline__ void fetch(RawCursor& cursor) const {
    if (cursor.unit >= p_.units.count) return;
    const CUtensorMap* const map = SIDE == 0 ? &p_.lhs_map : &p_.rhs_map;
    const int x = cursor.x, y = cursor.y, z = cursor.z, steps = cursor.steps;
    arrive_expecting(shared_.raw_full + SIDE, BOX_BYTES);
    copy_box(shared_.raw + SIDE * BOX_BYTES, map, x, y, z, shared_.raw_full + SIDE);
    if (steps > STEPS_AHEAD) {
      constexpr int AHEAD = STEPS_AHEAD * Tile::BLOCK_K;
      prefetch_box(map, along_k<SIDE>() ? x + AHEAD : x, along_k<SIDE>() ? y : y + AHEAD, z);
    }
    (along_k<SIDE>() ? cursor.x : cursor.y) += Tile::BLOCK_K;
    cursor.steps = steps - 1;
    if (steps > 1) return;
    cursor.unit += Place::clusters();
    begin_unit<SIDE>(cursor);
  }

  // Of this warp's rows in the high plane, from the stages' begin on: a multiple of 1024.
  template <int SIDE>
  __device__ __forceinline__ static int place(int stage) {
    return stage * Tile::STAGE_BYTES + SIDE * Tile::LHS_BYTES + half<SIDE>() * HALF_BYTES +
           warp() * WARP_BYTES;
  }

  template <class See>
  __device__ __forceinline__ void write_runs(const Values& values, float scale, int own,
                                             const See& see) const {
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      float scaled[RUN];
#pragma unroll
      for (int j = 0; j < RUN; ++j) scaled[j] = values[i].element[j] * scale;
      see(values[i].element, scaled);
      const SplitTile::Pairs pairs = {split(scaled[0], scaled[1]), split(scaled[2], scaled[3])};
      unsigned char* const target = shared_.stages + ((own ^ i * 32) + i * 2 * PLANE_ROW_BYTES);
      SplitTile::store_pairs(pairs, reinterpret_cast<__half*>(target),
                             reinterpret_cast<__half*>(target + Tile::LHS_PLANE));
    }
  }

  template <int SIDE>
  __device__ __forceinline__ void split_half(int phase, const int (&exponents)[SCALES], int stage,
                                             bool looks, Guard<RUN>& guard) const {
    wait(shared_.raw_full + SIDE, phase);
    const unsigned char* const box =
        shared_.raw + SIDE * BOX_BYTES + warp() * (ROWS * ROW * 4) + lane() * 16;
    Values values;
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      values[i] = load_vector<RUN>(reinterpret_cast<const float*>(box + i * 512));
    }
    const float scale = power_of_two(exponents[SIDE]);
    // A row of a plane has 8 chunks of 16 bytes, swizzled with the row's number.
    const int own = place<SIDE>(stage) + lane() / 16 * PLANE_ROW_BYTES +
                    (lane() % 16 / 2 ^ lane() / 16) * 16 + lane() % 2 * 8;
    hand_to_copies(shared_.raw_empty + SIDE);
    if (looks) {
      write_runs(values, scale, own, [&](const float (&numbers)[RUN], const float (&scaled)[RUN]) {
        guard.see(numbers, scaled);
      });
    } else {
      write_runs(values, scale, own, [](const float (&)[RUN], const float (&)[RUN]) {});
    }
    guard.end_block();
    // The next step's box, as soon as all warps have read this one.
    if (fetches<SIDE>()) {
      wait(shared_.raw_empty + SIDE, phase);
      fetch<SIDE>(cursors_[SIDE]);
    }
  }

  // The halves of a stage are written, when all warps come here: the blocks that share them get
  // them, too.
  __device__ __forceinline__ void hand_over(int stage) const {
    fence_shared_for_async();
    Barrier* const full = shared_.full + stage;
    sync_warps(TOGETHER, SPLIT_THREADS);
    // Another warp each time, and not one that fetches.
    if (warp() == stage * 2 + 1 && lane() < 4) {
      const int half = (lane() < 2 ? place<0>(stage) : place<1>(stage)) - warp() * WARP_BYTES;
      send_to_rank(shared_.stages + half + lane() % 2 * Tile::LHS_PLANE, HALF_BYTES, full,
                   Place::rank() ^ (lane() < 2 ? 1 : 2));
    }
    if (lane() == 0) {
      if (warp() == 0) {
        arrive_expecting(full, INCOMING);
      } else {
        arrive(full);
      }
    }
  }

  const Sm90Parameters<Problem>& p_;
  const Sm90Shared<Tile>& shared_;
  RawCursor* cursors_;
};
