#pragma once
// Division by a number that is known when the kernel is launched: a multiplication and a shift in
// place of some twenty instructions. Granlund and Montgomery, "Division by invariant integers using
// multiplication", PLDI 1994, figure 4.1.

#include <cstdint>

class Divisor {
 public:
  Divisor() = default;
  // 1 <= divisor < 2^31.
  explicit Divisor(uint32_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << shift_) < divisor) ++shift_;
    const uint64_t numerator = (uint64_t{1} << 32) * ((uint64_t{1} << shift_) - divisor);
    multiplier_ = static_cast<uint32_t>(numerator / divisor + 1);
  }

  // value < 2^31: the sum below cannot overflow.
  __host__ __device__ uint32_t quotient(uint32_t value) const {
    const uint32_t high = static_cast<uint32_t>((uint64_t{value} * multiplier_) >> 32);
    return (high + value) >> shift_;
  }
  __host__ __device__ uint32_t value() const { return divisor_; }

 private:
  uint32_t divisor_ = 1;
  uint32_t multiplier_ = 1;
  uint32_t shift_ = 0;
};
