#pragma once
// Products of factors as they are by warpgroups that have tiles of their own: while one of them
// does with its sums what follows, and stores them, the other one has the tensor cores to itself.
// Tiles come through one ring of stages, those of both in turn.

#include "gemm_sm90_direct.cuh"
#include "gemm_sm90_products.cuh"

// sums = products over `steps` steps of K, at least one. When the last stage has come, `pass_on`
// is called; that stage, which is not released, is returned.
template <class Config, class Tile, class PassOn>
__device__ __forceinline__ int multiply_turn(const Sm90Shared<Tile>& shared,
                                             Ring<Tile::STAGES>& ring, int steps,
                                             float (&sums)[Tile::PARTS][Tile::REGISTERS],
                                             const PassOn& pass_on) {
#pragma unroll
  for (int part = 0; part < Tile::PARTS; ++part) {
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS; ++i) sums[part][i] = 0;
  }
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    wait(shared.full + stage, ring.phase);
    fence_products();
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) {
      const StageProducts<Config, Tile> products(shared, part, stage);
      products.template multiply<0, 0, 0>(sums[part], 1);
      products.template multiply<0, 0, 1>(sums[part], 1);
      products.template multiply<0, 0, 2>(sums[part], 1);
      products.template multiply<0, 0, 3>(sums[part], 1);
    }
    commit_products();
    wait_products<1>();
    if (step > 0) shared.release(before);
    before = stage;
    ring.advance();
  }
  pass_on();
  wait_products<0>();
#pragma unroll
  for (int part = 0; part < Tile::PARTS; ++part) pin(sums[part]);
  return before;
}

// A warpgroup that multiplies every other tile of this block. It looks at barriers of its stages
// once the other one has seen all before: their phases are told apart by one bit.
template <class Config, class Tile, class Problem>
__device__ __forceinline__ void consume_in_turns(const Sm90Parameters<Problem>& p,
                                                 const Sm90Shared<Tile>& shared, int warpgroup) {
  using Place = Sm90Place<Tile>;
  constexpr int FIRST_TURN = 1;  // barrier of the first warpgroup
  constexpr int THREADS = Tile::CONSUMERS * Tile::WARPGROUP;
  Ring<Tile::STAGES> ring;
  int turn = 0;
  for (int unit = Place::cluster(); unit < p.units.count; unit += Place::clusters(), turn ^= 1) {
    const Sm90Work work = locate_work<Tile>(p, p.units, unit);
    if (turn != warpgroup) {
      ring.skip(work.steps);
      continue;
    }
    if (unit != Place::cluster()) sync_warps(FIRST_TURN + warpgroup, THREADS);
    const int own_row = work.row + threadIdx.x % Tile::WARPGROUP / 32 * RowBuffer::ROWS;
    if constexpr (Config::Masks::BY_PLACE != 0) {
      ask_for_direct<Tile::PARTS, Tile::BLOCK_N>(p, work, own_row);
    }
    float sums[Tile::PARTS][Tile::REGISTERS];
    const int last = multiply_turn<Config>(shared, ring, work.steps, sums, [&] {
      if (unit + Place::clusters() < p.units.count) {
        arrive_warps(FIRST_TURN + 1 - warpgroup, THREADS);
      }
    });
    shared.release(last);
    // Found here: before, their registers would be missing for sums.
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    const int warp = thread % Tile::WARPGROUP / 32;
    RowBuffer& buffer = *(reinterpret_cast<RowBuffer*>(shared.buffers) + warpgroup * 4 + warp);
    store_direct<Config>(p, work, work.row + warp * RowBuffer::ROWS, thread % 32 / 4, sums, buffer);
  }
}
