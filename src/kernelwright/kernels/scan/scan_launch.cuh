#pragma once
// The choice among the ways to scan, by the sizes and strides of the call.

#include <algorithm>

#include "scan_columns.cuh"
#include "scan_lanes.cuh"
#include "scan_rows.cuh"

// Blocks that a launch has at most: each then does several parts, one after the other.
constexpr int64_t MAX_SCAN_BLOCKS = (int64_t{1} << 31) - 1;

template <class Problem>
cudaError_t launch_scan_kernel(void (*kernel)(Problem), const Problem& problem, int64_t parts,
                               int threads, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min(parts, MAX_SCAN_BLOCKS));
  return launch_dependent(kernel, blocks, static_cast<unsigned>(threads), stream, problem);
}

// Whether every operand has the elements of a row side by side, or one for all of them.
template <class Problem>
bool has_rows_of_neighbours(const Problem& problem) {
  if (problem.steps[0] != 1) return false;
  for (int o = 1; o < Problem::OPERANDS; ++o) {
    if (problem.steps[o] != 0 && problem.steps[o] != 1) return false;
  }
  return true;
}

// Whole blocks, or warps, have rows of neighbours. The config has besides
//   MIN_BLOCKS  blocks that fill the card: with fewer rows than that, long ones are cut
template <class Config, class Problem>
struct RowScanVariant {
  using Parameters = Problem;
  using Scan = RowScan<Config, Problem>;
  using Part = typename Problem::Part;
  static constexpr int THREADS = Scan::THREADS;

  void (*kernel)(Problem);
  // Null where a warp has a row: long rows are then no matter.
  void (*segment_totals)(Problem);

  bool admits(const Problem& problem) const { return has_rows_of_neighbours(problem); }

  // As many equal segments of whole chunks as fill the card, if a row has that many.
  void cut(Problem& problem) const {
    if (segment_totals == nullptr || problem.rows >= Config::MIN_BLOCKS) return;
    const int64_t vectors = (problem.length + 2 * Scan::WIDTH - 2) / Scan::WIDTH;
    const int64_t chunks = (vectors + Scan::CHUNK - 1) / Scan::CHUNK;
    const int64_t wanted = std::min(chunks, Config::MIN_BLOCKS / problem.rows);
    const int64_t segment_chunks = (chunks + wanted - 1) / wanted;
    problem.segments = (chunks + segment_chunks - 1) / segment_chunks;
    problem.segment_slots = segment_chunks * Scan::CHUNK;
  }

  int64_t workspace_bytes(Problem problem) const {
    cut(problem);
    return problem.segments == 1 ? 0 : problem.rows * problem.segments * int64_t{sizeof(Part)};
  }

  cudaError_t launch(Problem problem, cudaStream_t stream, void* workspace) const {
    problem.segment_slots = problem.length + 1;
    cut(problem);
    const int64_t parts = (problem.rows * problem.segments + Scan::ROWS - 1) / Scan::ROWS;
    if (problem.segments > 1) {
      problem.totals = static_cast<Part*>(workspace);
      const cudaError_t status =
          launch_scan_kernel(segment_totals, problem, parts, THREADS, stream);
      if (status != cudaSuccess) return status;
    }
    return launch_scan_kernel(kernel, problem, parts, THREADS, stream);
  }
};

// Warps have short rows of neighbours, and their lanes have runs of these.
template <class Config, class Problem>
struct LaneScanVariant {
  using Parameters = Problem;
  using Scan = LaneScan<Config, Problem>;
  static constexpr int THREADS = Scan::THREADS;

  void (*kernel)(Problem);

  static int64_t blocks(const Problem& problem) {
    return (problem.rows + Scan::WARPS - 1) / Scan::WARPS;
  }
  bool admits(const Problem& problem) const {
    return problem.length <= Scan::LONGEST && blocks(problem) <= MAX_SCAN_BLOCKS &&
           has_rows_of_neighbours(problem);
  }
  int64_t workspace_bytes(const Problem&) const { return 0; }

  cudaError_t launch(const Problem& problem, cudaStream_t stream, void*) const {
    return launch_scan_kernel(kernel, problem, blocks(problem), THREADS, stream);
  }
};

// Lanes have columns.
template <class Config, class Problem>
struct ColumnScanVariant {
  using Parameters = Problem;
  using Scan = ColumnScan<Config, Problem>;
  static constexpr int THREADS = Scan::THREADS;

  void (*kernel)(Problem);

  // Several columns a lane: every operand has them side by side and aligned, or one for all.
  bool admits(const Problem& problem) const {
    constexpr int COLUMNS = Scan::COLUMNS;
    if (COLUMNS == 1) return true;
    const int last = problem.row_rank - 1;
    if (last < 0 || problem.row_sizes[last] % COLUMNS != 0) return false;
    for (int o = 0; o < Problem::OPERANDS; ++o) {
      if (problem.row_strides[last][o] == 0 && o > 0) continue;
      const int64_t bytes = Problem::element_bytes(o), alignment = access_bytes(COLUMNS * bytes);
      if (problem.row_strides[last][o] != 1 || problem.steps[o] * bytes % alignment != 0 ||
          reinterpret_cast<uintptr_t>(problem.data[o]) % alignment != 0) {
        return false;
      }
      for (int d = 0; d < last; ++d) {
        if (problem.row_strides[d][o] * bytes % alignment != 0) return false;
      }
    }
    return true;
  }

  int64_t workspace_bytes(const Problem&) const { return 0; }

  cudaError_t launch(const Problem& problem, cudaStream_t stream, void*) const {
    constexpr int64_t COLUMNS = 32 * Scan::COLUMNS;
    return launch_scan_kernel(kernel, problem, (problem.rows + COLUMNS - 1) / COLUMNS, THREADS,
                              stream);
  }
};

// Launches the first variant that admits the problem; the last one should admit all. An empty
// result launches nothing.
template <class Problem, class... Variants>
cudaError_t launch_scan(const Problem& problem, cudaStream_t stream, void* workspace,
                        const Variants&... variants) {
  if (problem.is_empty()) return cudaSuccess;
  cudaError_t status = cudaErrorInvalidValue;
  static_cast<void>(
      ((variants.admits(problem) && (status = variants.launch(problem, stream, workspace), true)) ||
       ...));
  return status;
}

// Bytes of the workspace that launch_scan expects with the same variants.
template <class Problem, class... Variants>
int64_t scan_workspace(const Problem& problem, const Variants&... variants) {
  if (problem.is_empty()) return 0;
  int64_t bytes = 0;
  static_cast<void>(
      ((variants.admits(problem) && (bytes = variants.workspace_bytes(problem), true)) || ...));
  return bytes;
}
