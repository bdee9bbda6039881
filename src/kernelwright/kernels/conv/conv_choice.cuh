#pragma once
// The choice among variants of a convolution, by the sizes and strides of the call.
//
// A variant has
//   admits(request)             whether it computes this call
//   workspace_bytes(request)    device memory that it needs besides, 256-byte aligned
//   launch(request, epilogue, stream, workspace)  -> cudaError_t

#include "conv_request.cuh"

// One call, and what becomes of its sums.
template <class Input, class Result, class Epilogue>
struct ConvProblem {
  ConvRequest<Input, Result> request;
  Epilogue epilogue;
  // Whether the user's own call rounds to the eleven bits of one fp16 product.
  bool may_round;
};

// Calls visit(variant) for the first one that admits the call; the last one should admit all.
template <class Request, class Visit, class... Variants>
bool visit_variant(const Request& request, const Visit& visit, const Variants&... variants) {
  return ((variants.admits(request) && (visit(variants), true)) || ...);
}

// Launches it. An empty result launches nothing.
template <class Problem, class... Variants>
cudaError_t launch_conv(const Problem& problem, cudaStream_t stream, void* workspace,
                        const Variants&... variants) {
  if (problem.request.result_elements() == 0) return cudaSuccess;
  cudaError_t status = cudaErrorInvalidValue;
  visit_variant(
      problem.request,
      [&](const auto& variant) {
        status = variant.launch(problem.request, problem.epilogue, stream, workspace);
      },
      variants...);
  return status;
}

// Bytes of the workspace that launch_conv expects with the same variants.
template <class Problem, class... Variants>
int64_t conv_workspace(const Problem& problem, const Variants&... variants) {
  if (problem.request.result_elements() == 0) return 0;
  int64_t bytes = 0;
  visit_variant(
      problem.request,
      [&](const auto& variant) { bytes = variant.workspace_bytes(problem.request); }, variants...);
  return bytes;
}

// The same where the first variant rounds: only where the user's own call does.
template <class Problem, class Rounding, class... Variants>
cudaError_t launch_rounding_conv(const Problem& problem, cudaStream_t stream, void* workspace,
                                 const Rounding& rounding, const Variants&... variants) {
  if (problem.may_round) return launch_conv(problem, stream, workspace, rounding, variants...);
  return launch_conv(problem, stream, workspace, variants...);
}

template <class Problem, class Rounding, class... Variants>
int64_t rounding_conv_workspace(const Problem& problem, const Rounding& rounding,
                                const Variants&... variants) {
  if (problem.may_round) return conv_workspace(problem, rounding, variants...);
  return conv_workspace(problem, variants...);
}
