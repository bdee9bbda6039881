// What is known to have happened, to a thread or to all warps that issue one product.
#pragma once

#include "cluster.h"

namespace kwemu {

struct View {
  static constexpr unsigned kNoThread = ~0u;

  const Block* block;
  const Clock* clock;           // null: of a cluster without clocks
  unsigned thread = kNoThread;  // the one that knows of itself

  static View of_current(const Block& block) {
    Cluster& cluster = block.cluster();
    const bool kept = cluster.has_clocks();
    const unsigned thread = block.current->linear;
    return View{&block, kept ? &cluster.clocks().of(block.rank, thread) : nullptr, thread};
  }

  // What a thread of `home` did at `time`.
  bool sees(const Block& home, unsigned other, uint32_t time) const {
    if (block == &home && (time < home.barrier_time || other == thread)) return true;
    if (clock == nullptr) return false;
    return clock->at(home.cluster().kept_clocks().thread_entry(home.rank, other)) >= time;
  }

  // What landed at a barrier of `home` at `time`.
  bool sees_landed(const Block& home, unsigned slot, uint32_t time) const {
    if (clock == nullptr) return false;
    return clock->at(home.cluster().kept_clocks().barrier_entry(home.rank, slot)) >= time;
  }
};

}  // namespace kwemu
