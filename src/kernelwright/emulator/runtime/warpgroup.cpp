#include "warpgroup.h"

#include <algorithm>

#include "async_checks.h"
#include "tensor_core.h"

namespace kwemu {
namespace {

// Thread t has of each 8 columns two neighbours, in rows t / 4 of its warp's 16 and 8 below.
size_t place_in_tile(unsigned thread, unsigned register_number, unsigned n) {
  const unsigned row = thread / 32 * 16 + thread % 32 / 4 + register_number / 2 % 2 * 8;
  const unsigned column = register_number / 4 * 8 + thread % 4 * 2 + register_number % 2;
  return size_t{row} * n + column;
}

// Of the 16 rows of its warp thread t has rows t / 4 and 8 below, and of each 8 of K two
// neighbours.
void bring_lhs(const uint32_t* registers, unsigned thread, std::vector<uint16_t>& elements) {
  elements.resize(size_t{64} * MatrixOperand::kDepth);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
    const unsigned k = thread % 4 * 2 + i / 2 * 8;
    uint16_t* place = &elements[size_t{row} * MatrixOperand::kDepth + k];
    place[0] = static_cast<uint16_t>(registers[i]);
    place[1] = static_cast<uint16_t>(registers[i] >> 16);
  }
}

// What the registers hold while instructions add to them.
const float kInFlightSum = __builtin_bit_cast(float, kPoison32);

bool is_poison(float value) { return __builtin_bit_cast(uint32_t, value) == kPoison32; }

}  // namespace

void Warpgroup::report(const void* caller, FindingKind kind, const std::string& message) {
  const Place place = Place::of(caller);
  if (!block_.is_reported(kind, place)) block_.report(kind, place, message);
}

void Warpgroup::fence() {
  WgmmaThread& mine = block_.current->products;
  mine.is_fenced = true;
  for (ThreadSums& sums : mine.sums()) sums.is_touched = false;
}

// The instruction that the running thread is at: new, or what others of the warpgroup are at.
Warpgroup::Instruction& Warpgroup::join(const ProductCall& call) {
  Thread& thread = *block_.current;
  const uint64_t number = thread.products.issued++ - executed_;
  if (number == instructions_.size()) {
    Instruction fresh;
    fresh.call = call;
    fresh.group = thread.products.groups() + 1;
    instructions_.push_back(std::move(fresh));
  }
  Instruction& instruction = instructions_[number];
  const bool is_same =
      instruction.call.is_same(call) && instruction.group == thread.products.groups() + 1;
  if (!is_same) {
    report(call.caller, FindingKind::kBarrierDivergence,
           "threads of a warpgroup issue different wgmma instructions, or with different matrices");
    block_.abandon(719 /* cudaErrorLaunchFailure */);
  }
  Cluster& cluster = block_.cluster();
  if (cluster.has_clocks() && thread.linear % 32 == 0) {
    const Clock& clock = block_.clock_of(thread);
    if (instruction.seen.empty()) {
      instruction.seen = clock;
    } else {
      instruction.seen.meet(clock);
    }
  }
  ++instruction.arrivals;
  return instruction;
}

// The registers become the instruction's.
void Warpgroup::enter(ThreadSums& sums, const Instruction& instruction) {
  const unsigned thread = block_.current->linear % kThreads;
  sums.last_group = instruction.group;
  if (sums.is_pending()) return;
  if (sums.is_touched) {
    report(instruction.call.caller, FindingKind::kRace,
           "wgmma adds to registers that ordinary code has used since the last wgmma.fence");
  }
  sums.tile = instruction.tile;
  for (unsigned i = 0; i < sums.registers.size(); ++i) {
    const size_t place = place_in_tile(thread, i, instruction.call.n);
    sums.tile->values[place] = std::exchange(*sums.registers[i], kInFlightSum);
  }
}

// The registers become the thread's again.
void Warpgroup::leave(ThreadSums& sums, const void* caller) {
  const unsigned thread = block_.current->linear % kThreads;
  bool is_written = false;
  for (unsigned i = 0; i < sums.registers.size(); ++i) {
    is_written |= !is_poison(*sums.registers[i]);
    *sums.registers[i] = sums.tile->values[place_in_tile(thread, i, sums.tile->n)];
  }
  if (is_written) {
    report(caller, FindingKind::kRace,
           "the sums waited for here were written by ordinary code while wgmma added to them");
  }
  sums.tile = nullptr;
}

void Warpgroup::multiply(const ProductCall& call) {
  Thread& thread = *block_.current;
  const unsigned count = call.n / 2;
  Instruction& instruction = join(call);
  ThreadSums& sums = thread.products.find(call.registers, count);
  block_.note_sums(thread);
  if (instruction.tile == nullptr) {
    instruction.tile = sums.tile;
    if (instruction.tile == nullptr) {
      instruction.tile = std::make_shared<SumTile>();
      instruction.tile->n = call.n;
      instruction.tile->values.resize(size_t{64} * call.n);
    }
  }
  if (sums.is_pending() && sums.tile != instruction.tile) {
    report(call.caller, FindingKind::kBarrierDivergence,
           "threads of a warpgroup name different registers in one wgmma instruction");
  }
  enter(sums, instruction);
  if (call.lhs_registers != nullptr) {
    bring_lhs(call.lhs_registers, thread.linear % kThreads, instruction.lhs);
  }
  if (instructions_.front().arrivals < kThreads) return;
  execute(instructions_.front());
  instructions_.pop_front();
  ++executed_;
  ++block_.activity;
  for (Thread* waiting : waiting_) block_.wake(*waiting);
  waiting_.clear();
}

// An operand from shared memory, with the checks of what is read.
void Warpgroup::read(const Instruction& instruction, const MatrixOperand& operand, unsigned rows,
                     std::vector<uint16_t>& elements) {
  const View view{&block_, instruction.seen.empty() ? nullptr : &instruction.seen};
  std::vector<size_t> chunks;
  operand.read(reinterpret_cast<const char*>(block_.shared_low), rows, elements, chunks);
  for (const size_t chunk : chunks) {
    check_product_read(block_, view, chunk, instruction.call.caller);
    block_.async_shadow.note_reader(chunk, number_, instruction.group);
  }
}

void Warpgroup::execute(Instruction& instruction) {
  const ProductCall& call = instruction.call;
  std::vector<uint16_t> rhs;
  if (call.lhs_registers == nullptr) read(instruction, call.lhs, 64, instruction.lhs);
  read(instruction, call.rhs, call.n, rhs);
  const bool is_negated = call.lhs.is_negated != call.rhs.is_negated;
  multiply_tile({instruction.lhs, rhs, call.n, call.element, call.accumulates, is_negated},
                instruction.tile->values.data());
}

void Warpgroup::commit() {
  WgmmaThread& mine = block_.current->products;
  mine.issued_at_commit.push_back(mine.issued);
}

void Warpgroup::wait(unsigned pending, const void* caller) {
  Thread& thread = *block_.current;
  WgmmaThread& mine = thread.products;
  // The lanes of a warp wait together: what any has read before, all have.
  block_.warp_call(WarpOp::kSync, ~0u, 0, 0, 32, Place::of(caller));
  if (mine.groups() <= pending) return;
  const uint32_t group = mine.groups() - pending;
  while (executed_ < mine.issued_at_commit[group - 1]) {
    waiting_.push_back(&thread);
    block_.wait_for(Wait::kProducts, Place::of(caller));
  }
  for (ThreadSums& sums : mine.sums()) {
    if (sums.is_pending() && sums.last_group <= group) leave(sums, caller);
  }
  mine.is_fenced = false;
  auto& done = done_[thread.linear / 32 % kWarps];
  if (done.empty() || done.back().first < group) {
    done.emplace_back(group, block_.now());
    block_.tick();
  }
}

bool Warpgroup::is_known_done(const View& view, const Block& home, uint32_t group) const {
  for (unsigned warp = 0; warp < kWarps; ++warp) {
    const auto& done = done_[warp];
    const auto found = std::lower_bound(
        done.begin(), done.end(), group,
        [](const std::pair<uint32_t, uint32_t>& entry, uint32_t g) { return entry.first < g; });
    if (found == done.end()) return false;
    const unsigned first = number_ * kThreads + warp * 32;
    bool is_known = false;
    for (unsigned lane = 0; lane < 32 && !is_known; ++lane) {
      is_known = view.sees(home, first + lane, found->second);
    }
    if (!is_known) return false;
  }
  return true;
}

}  // namespace kwemu
