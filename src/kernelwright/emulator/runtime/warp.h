// Warps: lanes that call a warp-wide operation wait for each other.
#pragma once

#include <cstdint>

#include "kwemu/abi.h"

namespace kwemu {

// One lane's part in a warp-wide operation.
struct LaneCall {
  WarpOp op = WarpOp::kSync;
  unsigned mask = 0;
  uint64_t value = 0;
  unsigned operand = 0;
  unsigned width = 32;
  uint64_t result = 0;
};

struct Warp {
  unsigned first = 0;      // linear index of lane 0
  unsigned live = 0;       // lanes that have not exited, started or not
  unsigned waiting = 0;    // lanes inside a warp-wide operation
  unsigned blocked = 0;    // lanes waiting for anything, these included
  uint32_t sync_time = 0;  // of the last __syncwarp
};

// The value a lane gets from one that took no part: the device leaves it undefined.
constexpr uint64_t kUndefinedLane = 0x7ff97ff97ff97ff9ull;

// Fills in the results of all lanes of `together`, which all called the same op with the same mask.
// `lanes[i]` is lane i; entries outside `together` are not looked at.
void compute_lanes(LaneCall* const lanes[32], unsigned together);

}  // namespace kwemu
