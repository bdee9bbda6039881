#pragma once
// Operations that depend on where in the result their element stands: their call operator takes its
// row and its column before the values, and they have a member `LOCATED`.

#include <cstdint>
#include <type_traits>

template <class Operation, class = void>
struct IsLocated : std::false_type {};

template <class Operation>
struct IsLocated<Operation, std::enable_if_t<Operation::LOCATED>> : std::true_type {};

// The operation on the values of the element in this row and column.
template <class Operation, class... Values>
__device__ __forceinline__ auto apply_at(const Operation& operation, int64_t row, int64_t column,
                                         const Values&... values) {
  if constexpr (IsLocated<Operation>::value) {
    return operation(row, column, values...);
  } else {
    return operation(values...);
  }
}
