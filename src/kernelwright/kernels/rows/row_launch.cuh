#pragma once
// Host side of row programs: which variant of a kernel takes a launch.

#include "row_program.cuh"

template <class Program>
struct RowCall {
  Program program;
  typename RowTypes<Program>::Space space;
  // States of parts of the rows that a kernel before has made: part after part, as row_column_parts
  // has them; no variant has to take them.
  [[maybe_unused]] char* given = nullptr;
  [[maybe_unused]] int64_t given_parts = 0, given_pitch = 0;  // states from one to the next
};

// Bytes that the first variant that takes the call needs for itself; the last one takes any.
template <class Call, class Variant, class... Others>
int64_t rows_workspace(const Call& call, const Variant& variant, const Others&... others) {
  if constexpr (sizeof...(Others) > 0) {
    if (!variant.takes(call.space)) return rows_workspace(call, others...);
  }
  return variant.workspace(call);
}

template <class Call, class Variant, class... Others>
cudaError_t launch_rows(const Call& call, const Arguments& arguments, const Variant& variant,
                        const Others&... others) {
  if constexpr (sizeof...(Others) > 0) {
    if (!variant.takes(call.space)) return launch_rows(call, arguments, others...);
  }
  return variant.launch(call, static_cast<char*>(arguments.workspace()), arguments.stream());
}
