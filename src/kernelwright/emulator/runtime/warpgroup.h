// Products of a warpgroup (PTX wgmma): 128 threads issue an instruction together, and it reads
// shared memory and adds to their registers while they go on.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clocks.h"
#include "matrix_operand.h"
#include "report.h"
#include "wgmma_thread.h"

namespace kwemu {

class Block;
struct Thread;
struct View;

// One thread's part in an instruction.
struct ProductCall {
  float* const* registers = nullptr;        // n / 2 of them
  const uint32_t* lhs_registers = nullptr;  // four; null where lhs lies in shared memory
  unsigned n = 0;
  ProductElement element = ProductElement::kHalf;
  MatrixOperand lhs, rhs;
  bool accumulates = true;
  const void* caller = nullptr;

  bool is_same(const ProductCall& other) const {
    const bool in_registers = lhs_registers != nullptr;
    return in_registers == (other.lhs_registers != nullptr) && n == other.n &&
           element == other.element && lhs == other.lhs && rhs == other.rhs &&
           accumulates == other.accumulates;
  }
};

class Warpgroup {
 public:
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kWarps = 4;

  Warpgroup(Block& block, unsigned number) : block_(block), number_(number) {}

  // All by the running thread.
  void fence();
  void multiply(const ProductCall& call);
  void commit();
  // Waits until at most `pending` of the youngest groups are unfinished.
  void wait(unsigned pending, const void* caller);

  // Whether `view` knows that all four warps have waited for a group.
  bool is_known_done(const View& view, const Block& home, uint32_t group) const;

 private:
  struct Instruction {
    ProductCall call;
    std::shared_ptr<SumTile> tile;
    std::vector<uint16_t> lhs;  // [64][16], where the threads bring it
    uint32_t group = 0;
    unsigned arrivals = 0;
    Clock seen;  // by all warps
  };

  Instruction& join(const ProductCall& call);
  void enter(ThreadSums& sums, const Instruction& instruction);
  void leave(ThreadSums& sums, const void* caller);
  void execute(Instruction& instruction);
  void read(const Instruction& instruction, const MatrixOperand& operand, unsigned rows,
            std::vector<uint16_t>& elements);
  void report(const void* caller, FindingKind kind, const std::string& message);

  Block& block_;
  unsigned number_;
  std::deque<Instruction> instructions_;  // issued by some threads and not yet by all
  uint64_t executed_ = 0;
  std::vector<Thread*> waiting_;
  // For each warp: a group up to which all are done, and when the warp knew.
  std::array<std::vector<std::pair<uint32_t, uint32_t>>, kWarps> done_;
};

}  // namespace kwemu
