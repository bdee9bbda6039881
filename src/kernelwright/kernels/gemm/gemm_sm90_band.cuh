#pragma once
// Products of patches whose taps share their pixels. A stage has a band of pixels that follow each
// other in the padded images, and all taps of some of their channels: a tap is a shift of the left
// factor's rows. So pixels come from the L2 once, not for each tap. Rows of such a tile are padded
// pixels, some of which have no place in the result.

#include "gemm_sm90_direct.cuh"
#include "gemm_sm90_products.cuh"

// sums = products over `steps` chunks of channels, at least one. The last stage, which is not
// released, is returned.
template <class Config, class Tile>
__device__ __forceinline__ int multiply_band(const Patches& band, const Sm90Shared<Tile>& shared,
                                             int warpgroup, Ring<Tile::STAGES>& ring, int steps,
                                             float (&sums)[Tile::REGISTERS]) {
  using Instruction = typename Tile::Instruction;
  constexpr int ROW_BYTES = Tile::ROW_BYTES, OWN_BYTES = 64 * ROW_BYTES, PARTS = 4;
  const int across = band.walk.taps[0], step_across = band.walk.dilation[0];
  const int step_down = band.walk.dilation[1] * static_cast<int>(band.positions[0]);
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = 0;
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    wait(shared.full + stage, ring.phase);
    MatrixDescriptor row = describe_matrix(shared.lhs(stage) + warpgroup * OWN_BYTES, OWN_BYTES);
    MatrixDescriptor filter = describe_matrix(shared.rhs(stage, 0), OWN_BYTES);
    fence_products();
    int next_across = 0;
#pragma unroll 1
    for (int tap = 0; tap < Tile::TAPS; ++tap) {
      const MatrixDescriptor lhs = advance_matrix(row, next_across * step_across * ROW_BYTES);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        constexpr int PART_BYTES = ROW_BYTES / PARTS;
        Instruction::template multiply<0, 0>(sums, advance_matrix(lhs, part * PART_BYTES),
                                             advance_matrix(filter, part * PART_BYTES), 1);
      }
      filter = advance_matrix(filter, Tile::RHS_PLANE);
      if (++next_across == across) {
        next_across = 0;
        row = advance_matrix(row, step_down * ROW_BYTES);
      }
    }
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

// The results of a warp's padded pixels from `first` on that have a place; `row` is this lane's
// among them. What a column has is fetched once for all of them.
template <class Config, class Problem, int COUNT>
__device__ __forceinline__ void store_band(const Sm90Parameters<Problem>& p, const Sm90Work& work,
                                           int first, int row, const float (&sums)[COUNT],
                                           RowBuffer& buffer) {
  using Masks = typename Config::Masks;
  using Lanes = RunLanes<COUNT>;
  const Problem& problem = p.problem;
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(work.batch);
  using Joining = typename decltype(epilogue)::template Joining<RUN, Masks>;
  const auto& parts = reinterpret_cast<const float (&)[1][COUNT]>(sums);
  const bool has_vectors = !ANY_EDGES || epilogue.has_vectors();
  const int end = min(COUNT * 2, static_cast<int>(problem.n) - work.column);
  const int before = work.batch * static_cast<int>(problem.m);  // rows of other batches
  int places[Lanes::RUNS];
#pragma unroll
  for (int i = 0; i < Lanes::RUNS; ++i) {
    const int pixel = work.batch * p.band_rows + first + Lanes::row() + i * Lanes::DOWN;
    const int place = problem.patches.result_row(pixel) - before;
    places[i] = place < problem.m ? place : -1;
  }
#pragma unroll 1
  for (int columns = 0; columns < end; columns += Lanes::COLUMNS) {
    const int column = work.column + columns + Lanes::column();
    const bool exists = columns + Lanes::column() < end;
    Joining of_columns = {};
    if (has_vectors && exists) {
      of_columns =
          epilogue.template fetch<RUN, Masks, Masks::BY_COLUMN>(epilogue.place(0, column), 0, 0);
    }
    __syncwarp();  // the rows before have been read
    buffer.take_from(parts, 0, columns, row);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Lanes::RUNS; ++i) {
      if (places[i] < 0 || !exists) continue;
      const float* const from = &buffer.numbers[Lanes::row() + i * Lanes::DOWN][Lanes::column()];
      const auto run = load_vector<RUN>(from);
      if (has_vectors) {
        const auto place = epilogue.place(places[i], column);
        const auto own = epilogue.template fetch<RUN, Masks, ~Masks::BY_COLUMN>(place, 0, 0);
        // Of a row and of an element alike.
        epilogue.apply_inside(run, epilogue.template merged<Masks>(own, of_columns, own), place, 0,
                              0);
      } else {
#pragma unroll
        for (int j = 0; j < RUN; ++j) {
          epilogue.apply(Vector<float, 1>{{run.element[j]}}, places[i], column + j);
        }
      }
    }
  }
}
