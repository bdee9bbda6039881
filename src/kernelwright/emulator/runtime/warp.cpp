#include "warp.h"

#include <algorithm>

namespace kwemu {
namespace {

// PTX shfl: the lane to read, or the lane itself where the source falls out of its segment.
unsigned shuffle_source(const LaneCall& call, unsigned lane) {
  const unsigned width = call.width;
  const unsigned first = lane & ~(width - 1);
  switch (call.op) {
    case WarpOp::kShuffle:
      return first + (call.operand & (width - 1));
    case WarpOp::kShuffleUp:
      return lane - first >= call.operand ? lane - call.operand : lane;
    case WarpOp::kShuffleDown:
      return lane - first + call.operand < width ? lane + call.operand : lane;
    default: {
      // Lanes of later segments cannot be reached; those of earlier ones can.
      const unsigned source = lane ^ call.operand;
      return source < first + width ? source : lane;
    }
  }
}

void shuffle(LaneCall* const lanes[32], unsigned together) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (((together >> lane) & 1) == 0) continue;
    const unsigned source = shuffle_source(*lanes[lane], lane) & 31;
    lanes[lane]->result = ((together >> source) & 1) != 0 ? lanes[source]->value : kUndefinedLane;
  }
}

unsigned ballot(LaneCall* const lanes[32], unsigned together) {
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (((together >> lane) & 1) != 0 && lanes[lane]->value != 0) result |= 1u << lane;
  }
  return result;
}

unsigned lanes_equal(LaneCall* const lanes[32], unsigned together, uint64_t value) {
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (((together >> lane) & 1) != 0 && lanes[lane]->value == value) result |= 1u << lane;
  }
  return result;
}

uint32_t combine(WarpOp op, uint32_t a, uint32_t b) {
  switch (op) {
    case WarpOp::kReduceAdd:
      return a + b;
    case WarpOp::kReduceMin:
      return std::min(a, b);
    case WarpOp::kReduceMax:
      return std::max(a, b);
    case WarpOp::kReduceMinSigned:
      return static_cast<uint32_t>(std::min(static_cast<int32_t>(a), static_cast<int32_t>(b)));
    case WarpOp::kReduceMaxSigned:
      return static_cast<uint32_t>(std::max(static_cast<int32_t>(a), static_cast<int32_t>(b)));
    case WarpOp::kReduceAnd:
      return a & b;
    case WarpOp::kReduceOr:
      return a | b;
    default:
      return a ^ b;
  }
}

uint32_t reduce(LaneCall* const lanes[32], unsigned together, WarpOp op) {
  const unsigned first = static_cast<unsigned>(__builtin_ctz(together));
  auto result = static_cast<uint32_t>(lanes[first]->value);
  for (unsigned lane = first + 1; lane < 32; ++lane) {
    if (((together >> lane) & 1) == 0) continue;
    result = combine(op, result, static_cast<uint32_t>(lanes[lane]->value));
  }
  return result;
}

}  // namespace

void compute_lanes(LaneCall* const lanes[32], unsigned together) {
  const unsigned first = static_cast<unsigned>(__builtin_ctz(together));
  const WarpOp op = lanes[first]->op;
  uint64_t common = 0;
  switch (op) {
    case WarpOp::kShuffle:
    case WarpOp::kShuffleUp:
    case WarpOp::kShuffleDown:
    case WarpOp::kShuffleXor:
      return shuffle(lanes, together);
    case WarpOp::kMatchAny:
      for (unsigned lane = first; lane < 32; ++lane) {
        if (((together >> lane) & 1) != 0) {
          lanes[lane]->result = lanes_equal(lanes, together, lanes[lane]->value);
        }
      }
      return;
    case WarpOp::kMatchAll:
      common = lanes_equal(lanes, together, lanes[first]->value) == together ? together : 0;
      break;
    case WarpOp::kBallot:
      common = ballot(lanes, together);
      break;
    case WarpOp::kSync:
    case WarpOp::kActiveMask:
      common = together;
      break;
    default:
      common = reduce(lanes, together, op);
  }
  for (unsigned lane = first; lane < 32; ++lane) {
    if (((together >> lane) & 1) != 0) lanes[lane]->result = common;
  }
}

}  // namespace kwemu
