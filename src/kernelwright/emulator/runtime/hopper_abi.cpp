// The functions of kwemu/abi.h that came with compute capability 9.0: clusters, barriers in shared
// memory, bulk copies, products of warpgroups.
#include <algorithm>
#include <cstring>

#include "access.h"
#include "bulk_copy.h"
#include "cluster.h"
#include "export.h"
#include "kwemu/abi.h"
#include "shadow.h"
#include "warpgroup.h"

using kwemu::Block;
using kwemu::current_block;
using kwemu::Place;

namespace {

// Handles of other blocks' shared memory have the block's rank + 1 above the bytes.
constexpr unsigned kRankShift = 24;

struct SharedPlace {
  Block* home;
  size_t offset;
};

SharedPlace place_of(unsigned handle) {
  const unsigned rank = handle >> kRankShift;
  Block* home = rank == 0 ? current_block : &current_block->cluster().block(rank - 1);
  return {home, handle & ((1u << kRankShift) - 1)};
}

uint3 place_in(const dim3& shape, unsigned rank) {
  return uint3{rank % shape.x, rank / shape.x % shape.y, rank / shape.x / shape.y};
}

void fail(const char* message, void* caller) {
  current_block->report(kwemu::FindingKind::kUnsupported, Place::of(caller), message);
  current_block->abandon(719 /* cudaErrorLaunchFailure */);
}

// The first pixel lies in the bounding box, its channels begin at 16 bytes (the hardware calls
// others an illegal instruction), and the offsets have as many bits as there are.
void check_pixels(const kwemu::BulkCopy& copy) {
  constexpr int kOffsetBits[] = {16, 8, 5};
  const kwemu::TensorMap& map = copy.map;
  if (copy.place[0] * map.element_bytes % 16 != 0) {
    fail("an im2col copy whose first channel lies at no multiple of 16 bytes",
         const_cast<void*>(copy.caller));
  }
  for (unsigned d = 0; d < map.spatial(); ++d) {
    const int64_t at = copy.place[d + 1], last = static_cast<int64_t>(map.sizes[d + 1]) - 1;
    if (at < map.lower[d] || at > last + map.upper[d]) {
      fail("an im2col copy whose first pixel lies outside of the map's bounding box",
           const_cast<void*>(copy.caller));
    }
    if (copy.offsets[d] >> kOffsetBits[map.spatial() - 1] != 0) {
      fail("an im2col copy with an offset of more bits than it has: 16, 8 or 5 of 1-D, 2-D or 3-D",
           const_cast<void*>(copy.caller));
    }
  }
}

// What both kinds of bulk copy say: the map, the place and the shared memory.
kwemu::BulkCopy ordered(const kwemu::BoxCopy& order, void* caller) {
  Block& block = *current_block;
  kwemu::BulkCopy copy;
  if (reinterpret_cast<uintptr_t>(order.map) % 64 != 0) {
    kwemu::fail_misaligned(block, reinterpret_cast<uintptr_t>(order.map), 64, kwemu::Access::kRead,
                           caller);
  }
  std::memcpy(&copy.map, order.map, sizeof copy.map);
  if (copy.map.magic != kwemu::TensorMap::kMagic ||
      copy.map.rank != static_cast<unsigned>(order.rank)) {
    fail("a bulk copy with what is no tensor map, or one of another rank", caller);
  }
  if (copy.map.is_im2col != order.is_im2col) {
    fail("a bulk copy in the mode im2col with a map of boxes, or the other way round", caller);
  }
  std::copy(order.place, order.place + order.rank, copy.place);
  std::copy(order.offsets, order.offsets + 3, copy.offsets);
  copy.home = &block;
  copy.offset = place_of(order.to).offset;
  copy.barrier = 0;
  copy.caller = caller;
  if (order.is_im2col) check_pixels(copy);
  return copy;
}

// A run of memory as a box of a tensor of one dimension.
kwemu::BulkCopy run_of(const void* global, unsigned bytes, size_t offset, void* caller) {
  if (reinterpret_cast<uintptr_t>(global) % 16 != 0 || offset % 16 != 0 || bytes % 16 != 0) {
    fail("a bulk copy that is not in units of 16 bytes", caller);
  }
  kwemu::BulkCopy copy = {};
  copy.map.magic = kwemu::TensorMap::kMagic;
  copy.map.rank = 1;
  copy.map.element_bytes = 16;
  copy.map.span_bytes = 16;
  copy.map.address = reinterpret_cast<uintptr_t>(global);
  copy.map.sizes[0] = bytes / 16;
  copy.map.box[0] = static_cast<uint16_t>(bytes / 16);
  copy.home = current_block;
  copy.offset = offset;
  copy.caller = caller;
  return copy;
}

}  // namespace

extern "C" {

KWEMU_EXPORT void kwemu_wait_for_previous() { current_block->early_start.wait(*current_block); }

KWEMU_EXPORT void kwemu_let_next_start() {
  current_block->early_start.let_next_start(*current_block);
}

KWEMU_EXPORT uint3 kwemu_cluster_index() { return current_block->cluster().index(); }

KWEMU_EXPORT uint3 kwemu_cluster_shape() {
  const dim3& shape = current_block->launch->config.cluster;
  return uint3{shape.x, shape.y, shape.z};
}

KWEMU_EXPORT uint3 kwemu_place_in_cluster() {
  return place_in(current_block->launch->config.cluster, current_block->rank);
}

KWEMU_EXPORT unsigned kwemu_cluster_rank() { return current_block->rank; }

KWEMU_EXPORT unsigned kwemu_map_to_rank(unsigned handle, unsigned rank) {
  if (rank >= current_block->cluster().size()) {
    fail("mapa names a block that the cluster does not have", __builtin_return_address(0));
  }
  return (handle & ((1u << kRankShift) - 1)) | (rank + 1) << kRankShift;
}

// Of a race between blocks nothing is known; that the block is there, and the variable, is.
KWEMU_EXPORT void kwemu_store_cluster(unsigned handle, unsigned value, void* caller) {
  const SharedPlace place = place_of(handle);
  if (place.home->is_done()) fail("a store to a block of the cluster that has ended", caller);
  if (place.offset % 4 != 0 || place.offset + 4 > kwemu::SharedMemory::kBytes ||
      place.home->shared.word(place.offset)->write == kwemu::kRedzone) {
    current_block->report(
        kwemu::FindingKind::kOutOfBounds, Place::of(caller),
        "writes shared memory of another block " + place.home->shared.describe(place.offset));
    current_block->abandon(700 /* cudaErrorIllegalAddress */);
  }
  std::memcpy(reinterpret_cast<char*>(place.home->shared_low) + place.offset, &value, 4);
  *place.home->shared.word(place.offset) = kwemu::Cell{0, 0};
}

KWEMU_EXPORT void kwemu_cluster_arrive() { current_block->cluster().arrive(*current_block); }

KWEMU_EXPORT void kwemu_cluster_wait(const char* file, int line) {
  current_block->cluster().wait(*current_block, Place::at(file, line));
}

KWEMU_EXPORT void kwemu_mbarrier_init(unsigned barrier, unsigned count, void* caller) {
  const SharedPlace place = place_of(barrier);
  place.home->mbarriers.init(*place.home, place.offset, count, caller);
}

KWEMU_EXPORT void kwemu_mbarrier_invalidate(unsigned barrier, void* caller) {
  const SharedPlace place = place_of(barrier);
  place.home->mbarriers.invalidate(*place.home, place.offset, caller);
}

KWEMU_EXPORT int kwemu_mbarrier_arrive(unsigned barrier, unsigned count, unsigned bytes,
                                       void* caller) {
  const SharedPlace place = place_of(barrier);
  return place.home->mbarriers.arrive(*place.home, place.offset, count, bytes, caller);
}

KWEMU_EXPORT void kwemu_mbarrier_expect(unsigned barrier, unsigned bytes, void* caller) {
  const SharedPlace place = place_of(barrier);
  place.home->mbarriers.expect(*place.home, place.offset, bytes, caller);
}

KWEMU_EXPORT int kwemu_mbarrier_wait(unsigned barrier, unsigned parity, void* caller) {
  const SharedPlace place = place_of(barrier);
  if (place.home != current_block) fail("a wait for another block's barrier", caller);
  return place.home->mbarriers.wait(*place.home, place.offset, parity, caller) ? 1 : 0;
}

KWEMU_EXPORT void kwemu_proxy_fence() {
  Block& block = *current_block;
  std::vector<uint32_t>& fences = block.current->proxy_fences;
  if (fences.empty() || fences.back() != block.now()) fences.push_back(block.now());
  block.tick();
}

KWEMU_EXPORT void kwemu_copy_box(const kwemu::BoxCopy* order, void* caller) {
  Block& block = *current_block;
  kwemu::BulkCopy copy = ordered(*order, caller);
  copy.barrier = place_of(order->barrier).offset;
  kwemu::check_source(block, copy);
  kwemu::Cluster& cluster = block.cluster();
  if (order->mask >> cluster.size() != 0) {
    fail("a multicast to blocks that the cluster does not have", caller);
  }
  for (unsigned rank = 0; rank < cluster.size(); ++rank) {
    const bool is_target = order->mask == 0 ? rank == block.rank : (order->mask >> rank & 1) != 0;
    if (!is_target) continue;
    copy.home = &cluster.block(rank);
    kwemu::ask_for(block, copy);
  }
}

// As a box of a tensor that lies in shared memory.
KWEMU_EXPORT void kwemu_send_shared(unsigned to, unsigned from, unsigned bytes, unsigned barrier,
                                    void* caller) {
  Block& block = *current_block;
  const SharedPlace target = place_of(to), source = place_of(from), arrival = place_of(barrier);
  if (source.home != &block || arrival.home != target.home) {
    fail("a bulk copy from another block, or with a barrier of a third", caller);
  }
  kwemu::check_shared_source(block, source.offset, bytes, caller);
  const auto* here = reinterpret_cast<const void*>(block.shared_low + source.offset);
  kwemu::BulkCopy copy = run_of(here, bytes, target.offset, caller);
  copy.home = target.home;
  copy.barrier = arrival.offset;
  block.release_into(copy.known);
  kwemu::ask_for(block, copy);
}

// As a box of a tensor that lies in the store's own words.
KWEMU_EXPORT void kwemu_store_async(unsigned to, const unsigned* words, unsigned barrier,
                                    void* caller) {
  Block& block = *current_block;
  // Of a block alone it is a fault of the card, also to its own memory.
  if (block.cluster().size() < 2) fail("an asynchronous store in a cluster of one block", caller);
  const SharedPlace target = place_of(to), arrival = place_of(barrier);
  if (arrival.home != target.home)
    fail("an asynchronous store with another block's barrier", caller);
  const auto held = std::make_shared<std::array<uint32_t, 4>>();
  std::copy(words, words + held->size(), held->begin());
  kwemu::BulkCopy copy = run_of(held->data(), sizeof *held, target.offset, caller);
  copy.words = held;
  copy.home = target.home;
  copy.barrier = arrival.offset;
  block.release_into(copy.known);
  kwemu::ask_for(block, copy);
}

KWEMU_EXPORT void kwemu_store_box(const kwemu::BoxCopy* order, void* caller) {
  Block& block = *current_block;
  block.current->stores.ask(block, ordered(*order, caller));
}

KWEMU_EXPORT void kwemu_copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier,
                                  void* caller) {
  Block& block = *current_block;
  const SharedPlace target = place_of(to), arrival = place_of(barrier);
  if (target.home != &block || arrival.home != &block) fail("a bulk copy to another block", caller);
  kwemu::BulkCopy copy = run_of(from, bytes, target.offset, caller);
  copy.barrier = arrival.offset;
  kwemu::check_source(block, copy);
  kwemu::ask_for(block, copy);
}

KWEMU_EXPORT void kwemu_store_bulk(const void* to, unsigned from, unsigned bytes, void* caller) {
  Block& block = *current_block;
  block.current->stores.ask(block, run_of(to, bytes, place_of(from).offset, caller));
}

KWEMU_EXPORT void kwemu_commit_stores() { current_block->current->stores.commit(); }

KWEMU_EXPORT void kwemu_wait_stores(unsigned groups_in_flight) {
  Block& block = *current_block;
  block.current->stores.wait(block, groups_in_flight);
}

KWEMU_EXPORT void kwemu_product_fence() { current_block->warpgroup().fence(); }

KWEMU_EXPORT void kwemu_product(const kwemu::Product* product, void* caller) {
  kwemu::ProductCall call;
  call.registers = product->registers;
  call.lhs_registers = product->lhs_registers;
  call.n = product->n;
  call.element = product->element;
  call.lhs = {product->lhs, product->is_lhs_transposed, product->is_lhs_negated};
  call.rhs = {product->rhs, product->is_rhs_transposed, product->is_rhs_negated};
  call.accumulates = product->accumulates;
  call.caller = caller;
  if (call.lhs.base_offset() != 0 || call.rhs.base_offset() != 0) {
    fail("a matrix descriptor with a base offset", caller);
  }
  current_block->warpgroup().multiply(call);
}

KWEMU_EXPORT void kwemu_product_commit() { current_block->warpgroup().commit(); }

KWEMU_EXPORT void kwemu_product_wait(unsigned groups_in_flight, void* caller) {
  current_block->warpgroup().wait(groups_in_flight, caller);
}

KWEMU_EXPORT void kwemu_set_registers(unsigned count, int is_more, void* caller) {
  Block& block = *current_block;
  if (is_more != 0) {
    block.registers.take(block, count, Place::of(caller));
  } else {
    block.registers.give_back(block, count, Place::of(caller));
  }
}
}
