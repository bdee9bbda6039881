#pragma once
// What a warpgroup of a tensor-core product does with the stages: 64 rows of the tile's sums.

#include "gemm_guard.cuh"
#include "gemm_sm90_tile.cuh"

// Products of the planes of one stage, by their number.
template <class Config, class Tile>
class StageProducts {
 public:
  using Instruction = typename Tile::Instruction;
  using Sums = float[Tile::REGISTERS];

  __device__ __forceinline__ StageProducts(const Sm90Shared<Tile>& shared, int warpgroup, int stage)
      : lhs_(describe_matrix(shared.lhs(stage) + warpgroup * GROUP_BYTES, GROUP_BYTES)),
        rhs_(describe_matrix(shared.rhs(stage, 0), GROUP_BYTES)) {}

  // sums = lhs plane * rhs plane over STEP_K from STEP; added to sums unless `accumulate` is 0.
  template <int LHS_PLANE, int RHS_PLANE, int STEP>
  __device__ __forceinline__ void multiply(Sums& sums, int accumulate) const {
    constexpr int AT = ANY_PAIRED && Tile::IS_PAIRED
                           ? in_lines(LHS_PLANE, STEP)
                           : LHS_PLANE * Tile::LHS_PLANE + step_bytes(Config::LHS, STEP);
    Instruction::template multiply<Config::LHS == Major::MN, Config::RHS == Major::MN>(
        sums, advance_matrix(lhs_, AT), rhs<RHS_PLANE, STEP>(), accumulate);
  }

  // The same with lhs in registers.
  template <int RHS_PLANE, int STEP>
  __device__ __forceinline__ void multiply_registers(Sums& sums, const uint32_t (&lhs)[4],
                                                     int accumulate) const {
    Instruction::template multiply_registers<Config::RHS == Major::MN>(
        sums, lhs, rhs<RHS_PLANE, STEP>(), accumulate);
  }

 private:
  using Element = typename Tile::Element;
  static constexpr int GROUP_BYTES = 64 * Tile::ROW_BYTES;  // 64 along M or N by BLOCK_K

  __device__ __forceinline__ static constexpr int step_bytes(Major major, int step) {
    return step * Tile::STEP_K * (major == Major::K ? sizeof(Element) : Tile::ROW_BYTES);
  }

  // Where a step of a plane of lhs begins whose half of a line has two.
  __device__ __forceinline__ static constexpr int in_lines(int plane, int step) {
    return step / 2 * Tile::LHS_PLANE + plane * (Tile::ROW_BYTES / 2) +
           step_bytes(Major::K, step % 2);
  }

  template <int PLANE, int STEP>
  __device__ __forceinline__ MatrixDescriptor rhs() const {
    return advance_matrix(rhs_, PLANE * Tile::RHS_PLANE + step_bytes(Config::RHS, STEP));
  }

  MatrixDescriptor lhs_, rhs_;
};

// Two instructions' worth of K, from instruction STEP on. On return the products of the high parts
// are in `sums`, and those of the low parts are under way.
template <int STEP, class Products, class Release, int COUNT>
__device__ __forceinline__ void multiply_part(const Products& products, int accumulate,
                                              float (&sums)[COUNT], float (&high)[COUNT],
                                              float (&low)[COUNT], const Release& release_before) {
  fence_products();
  products.template multiply<0, 0, STEP>(high, 0);
  products.template multiply<0, 0, STEP + 1>(high, 1);
  commit_products();
  wait_products<1>();  // for the low parts of the part before
  release_before();
  fence_products();
  products.template multiply<1, 0, STEP>(low, accumulate);
  products.template multiply<0, 1, STEP>(low, 1);
  products.template multiply<1, 0, STEP + 1>(low, 1);
  products.template multiply<0, 1, STEP + 1>(low, 1);
  commit_products();
  wait_products<1>();  // for the high parts
  pin(high);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] += high[i];
}

// sums = products of pairs over `steps` steps of K, at least one. The last stage, which is not
// released, is returned.
template <class Config, class Tile>
__device__ __forceinline__ int multiply_pairs(const Sm90Shared<Tile>& shared, int warpgroup,
                                              Ring<Tile::STAGES>& ring, int steps,
                                              float (&sums)[Tile::REGISTERS]) {
  constexpr float LOW = 1.0f / (1 << LOW_BITS);
  float high[Tile::REGISTERS], low[Tile::REGISTERS];
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = 0;
  int before = 0;
  for (int done = 0; done < steps; done += Tile::FOLD_STEPS) {
    const int end = min(steps, done + Tile::FOLD_STEPS);
    for (int step = done; step < end; ++step) {
      const int stage = ring.stage;
      wait(shared.full + stage, ring.phase);
      const StageProducts<Config, Tile> products(shared, warpgroup, stage);
      multiply_part<0>(products, step > done, sums, high, low, [&] {
        if (step > 0) shared.release(before);
      });
      multiply_part<2>(products, 1, sums, high, low, [] {});
      before = stage;
      ring.advance();
    }
    wait_products<0>();
    pin(low);
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = fmaf(low[i], LOW, sums[i]);
  }
  return before;
}

// sums = products of numbers as they are over `steps` steps of K, at least one, in one chain. The
// last stage, which is not released, is returned.
template <class Config, class Tile>
__device__ __forceinline__ int multiply_plain(const Sm90Shared<Tile>& shared, int warpgroup,
                                              Ring<Tile::STAGES>& ring, int steps,
                                              float (&sums)[Tile::REGISTERS]) {
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = 0;
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    wait(shared.full + stage, ring.phase);
    const StageProducts<Config, Tile> products(shared, warpgroup, stage);
    fence_products();
    products.template multiply<0, 0, 0>(sums, 1);
    products.template multiply<0, 0, 1>(sums, 1);
    products.template multiply<0, 0, 2>(sums, 1);
    products.template multiply<0, 0, 3>(sums, 1);
    commit_products();
    wait_products<1>();
    if (step > 0) shared.release(before);
    before = stage;
    ring.advance();
  }
  wait_products<0>();
  pin(sums);
  return before;
}
