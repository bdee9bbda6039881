#pragma once
// Rows too long for a cluster of blocks, that all blocks of the card hold: read once, written once.
//
// Each block has a slice of every row and takes it through a ring of chunks in shared memory. Some
// of its warps copy, fold and finish, each a row or more ahead of the next: while totals come from
// the other blocks, later rows are on their way. One row's totals are made of the states of all
// blocks, which find them in the workspace: words of state beside the number of their row, so that
// a word says itself whether it has come. All blocks have to run at the same time. A config has
//   FOLD_WARPS, FINISH_WARPS  of a block, beside one that copies and one that exchanges states
//   THREADS   of a block, in all
//   VECTORS   of WIDTH elements of a chunk that a lane finishes, at most
//   RING      bytes of chunks: all shared memory but 4 KB

#include "row_grid_block.cuh"

template <class Program, class Config>
__device__ __forceinline__ void grid_rows(const GridRows<Program, Config>& rows) {
  using Block = GridBlock<Program, Config>;
  if constexpr (Block::Rows::can_hold()) {
    extern __shared__ __align__(128) char grid_ring[];
    __shared__ typename Block::Shared shared;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (threadIdx.x == 0) {
      for (int s = 0; s < rows.slots; ++s) {
        init_barrier(shared.full + s, 1);
        init_barrier(shared.empty + s, Config::FINISH_WARPS);
      }
      for (int s = 0; s < Block::AHEAD; ++s) {
        init_barrier(shared.known + s, 1 + Config::FOLD_WARPS);
        init_barrier(shared.finished + s, Config::FINISH_WARPS);
      }
      fence_barrier_init();
    }
    __syncthreads();
    const int vectors = rows.slice_of(0).end / Config::WIDTH;
    const Block block = {rows, shared, grid_ring, vectors > 0 ? vectors : 0};
    if (warp == 0) {
      if (lane == 0) block.copy();
    } else if (warp == 1) {
      block.exchange(lane);
    } else if (warp < 2 + Config::FOLD_WARPS) {
      block.fold(warp - 2);
    } else {
      block.finish(warp - 2 - Config::FOLD_WARPS, lane);
    }
  }
}

// --- Host --------------------------------------------------------------------------------------

template <class Program, class Config>
struct GridVariant {
  using Parameters = GridRows<Program, Config>;
  using Types = RowTypes<Program>;
  void (*kernel)(Parameters);
  int multiprocessors;

  bool takes(const typename Parameters::Space& space) const {
    if constexpr (!Parameters::can_hold() || sizeof(GridShared<Parameters>) > 4096) return false;
    if (!Parameters::can_walk(space) || space.kept.count >= MOST) return false;
    const auto rows = Parameters::describe({}, space);
    if (rows.segments.rank > 0 || !rows.is_even || rows.run / Config::WIDTH > MOST) return false;
    const Parameters found = plan({}, space);
    // A slot is handed back when the chunk after it is finished.
    return piece_of(rows) > 0 && found.slots > (found.slice + found.chunk - 1) / found.chunk &&
           blocks() > 0;
  }

  static int64_t workspace(const RowCall<Program>&) { return Parameters::FLAG_BYTES; }

  cudaError_t launch(const RowCall<Program>& call, char* workspace, cudaStream_t stream) const {
    Parameters rows = plan(call.program, call.space);
    rows.flags = reinterpret_cast<uint64_t*>(workspace);
    // Rows count from 1 in each launch: flags of another would be taken for this one's.
    cudaError_t status = cudaMemsetAsync(workspace, 0, Parameters::FLAG_BYTES, stream);
    if (status != cudaSuccess) return status;
    const auto bytes = static_cast<unsigned>(rows.slots * rows.chunk * Parameters::VECTOR_BYTES);
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks()));
    config.blockDim = dim3(Config::THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &together;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, rows);
  }

 private:
  static constexpr int64_t MOST = (int64_t{1} << 30) - 1;

  // As many as run at the same time; 0 where nobody says so.
  int blocks() const {
    int device = 0, is_possible = 0, there = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&is_possible, cudaDevAttrCooperativeLaunch, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&there, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
      return 0;
    }
    const int most = multiprocessors < there ? multiprocessors : there;
    return is_possible == 0 ? 0 : most < Parameters::MOST_BLOCKS ? most : Parameters::MOST_BLOCKS;
  }

  // Elements of a row for which inputs that are not walked in vectors are the same; 0 where those
  // are not so simple.
  static int64_t piece_of(const typename Parameters::Base& rows) {
    if constexpr (Parameters::OTHERS == 0) return rows.run;
    const auto& reduced = rows.space.reduced;
    const int64_t piece = reduced.sizes[reduced.rank - 1];
    bool fits = reduced.rank <= 2 && piece % Config::WIDTH == 0;
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((Parameters::OTHERS >> input & 1) != 0) {
        fits = fits && reduced.inner_stride(input) == 0;
      }
    });
    return fits ? piece : 0;
  }

  Parameters plan(const Program& program, const typename Parameters::Space& space) const {
    constexpr int64_t ROOM = int64_t{Config::FINISH_WARPS} * 32 * Config::VECTORS;
    Parameters rows;
    static_cast<typename Parameters::Base&>(rows) = Parameters::describe(program, space);
    const int64_t vectors = rows.run_vectors(), here = blocks() > 0 ? blocks() : 1;
    rows.slice = static_cast<int>(in_lines((vectors + here - 1) / here));
    const int64_t chunks = (rows.slice + ROOM - 1) / ROOM;
    rows.chunk = static_cast<int>(in_lines((rows.slice + chunks - 1) / chunks));
    const int fitting = Config::RING / (rows.chunk * Parameters::VECTOR_BYTES);
    rows.slots = fitting < Parameters::MOST_SLOTS ? fitting : Parameters::MOST_SLOTS;
    const int64_t piece = piece_of(rows);
    rows.piece = Divisor(static_cast<uint32_t>(piece > 0 ? piece / Config::WIDTH : 1));
    const auto& reduced = rows.space.reduced;
    for (int i = 0; i < Types::INPUTS; ++i) {
      rows.piece_steps[i] =
          reduced.rank > 1 ? reduced.strides[reduced.rank - 2][i] * operand_bytes<Program>(i) : 0;
    }
    return rows;
  }

  // Chunks begin at 128 bytes of shared memory.
  static int64_t in_lines(int64_t vectors) { return (vectors + 7) / 8 * 8; }
};
