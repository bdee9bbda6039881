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

// The same for 64 bits, without the call that their division is.
class LongDivisor {
 public:
  LongDivisor() = default;
  // 1 <= divisor < 2^62.
  explicit LongDivisor(int64_t divisor) : divisor_(static_cast<uint64_t>(divisor)) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    const unsigned __int128 numerator =
        ((unsigned __int128){1} << 64) * ((uint64_t{1} << shift_) - divisor_);
    multiplier_ = static_cast<uint64_t>(numerator / divisor_ + 1);
  }

  // 0 <= value < 2^63.
  __device__ __forceinline__ int64_t quotient(int64_t value) const {
    const auto number = static_cast<uint64_t>(value);
    return static_cast<int64_t>((__umul64hi(number, multiplier_) + number) >> shift_);
  }
  __host__ __device__ int64_t value() const { return static_cast<int64_t>(divisor_); }

 private:
  uint64_t divisor_ = 1;
  uint64_t multiplier_ = 1;
  uint32_t shift_ = 0;
};
