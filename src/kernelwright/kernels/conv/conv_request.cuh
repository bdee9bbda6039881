#pragma once
// A user's call of a convolution, with the tensors' addresses and strides.

#include "conv_shape.cuh"
#include "launch.cuh"

enum class ConvDirection { USUAL, TRANSPOSED };

// One call. Channels of the filter are those of a group; a bias belongs to the epilogue.
template <class Input, class Result>
struct ConvRequest {
  ConvDirection direction;
  int spatial, groups;
  int64_t images, in_channels, out_channels;  // channels of all groups
  int64_t result_channels;                    // 1 where results are over all channels
  ConvCall calls[MAX_SPATIAL];                // W, H, D
  int windows[MAX_SPATIAL];                   // outputs that are one result; 1: none are
  const Input* data;
  const Input* filter;
  Result* out;
  ImageStrides data_strides, out_strides;
  FilterStrides filter_strides;

  // Results along a dimension: outputs, or their windows.
  __host__ __device__ int64_t results_along(int d) const {
    return (calls[d].out + windows[d] - 1) / windows[d];
  }
  int64_t result_elements() const {
    return images * result_channels * results_along(0) * results_along(1) * results_along(2);
  }

  // Tensors as PyTorch has them: images, channels, and D, H, W as far as there are; the filter of a
  // transposed convolution has input channels first. Strides, paddings and dilations W first.
  static ConvRequest of(ConvDirection direction, int groups, const Tensor& out, const Tensor& data,
                        const Tensor& filter, const int (&strides)[MAX_SPATIAL],
                        const int (&paddings)[MAX_SPATIAL], const int (&dilations)[MAX_SPATIAL]) {
    const bool is_usual = direction == ConvDirection::USUAL;
    ConvRequest request = {};
    request.direction = direction;
    request.spatial = data.rank - 2;
    request.groups = groups;
    request.images = data.sizes[0];
    request.in_channels = data.sizes[1];
    request.out_channels = is_usual ? filter.sizes[0] : filter.sizes[1] * groups;
    request.result_channels = out.sizes[1];
    request.data = static_cast<const Input*>(data.data);
    request.filter = static_cast<const Input*>(filter.data);
    request.out = static_cast<Result*>(out.data);
    request.data_strides.image = data.strides[0];
    request.data_strides.channel = data.strides[1];
    request.out_strides.image = out.strides[0];
    request.out_strides.channel = out.strides[1];
    const int64_t of_group = (is_usual ? filter.sizes[0] : data.sizes[1]) / groups;
    request.filter_strides.group = of_group * filter.strides[0];
    request.filter_strides.out_channel = filter.strides[is_usual ? 0 : 1];
    request.filter_strides.in_channel = filter.strides[is_usual ? 1 : 0];
    for (int& window : request.windows) window = 1;
    for (int d = 0; d < request.spatial; ++d) {
      const int axis = data.rank - 1 - d;
      request.calls[d] = {data.sizes[axis], out.sizes[axis], static_cast<int>(filter.sizes[axis]),
                          strides[d],       paddings[d],     dilations[d]};
      request.data_strides.spatial[d] = data.strides[axis];
      request.out_strides.spatial[d] = out.strides[axis];
      request.filter_strides.taps[d] = filter.strides[axis];
    }
    request.turn();
    return request;
  }

  // The same call whose results are windows of outputs. `outputs` of the call, W first: those after
  // the last window are left out, and the last windows may be parts.
  ConvRequest in_windows(const int (&sizes)[MAX_SPATIAL],
                         const int64_t (&outputs)[MAX_SPATIAL]) const {
    ConvRequest request = *this;
    for (int d = 0; d < spatial; ++d) {
      request.windows[d] = sizes[d];
      const int64_t most = calls[d].out * sizes[d];
      request.calls[d].out = outputs[d] < most ? outputs[d] : most;
    }
    return request;
  }

 private:
  // A transposed convolution without strides is a usual one with the filter's taps in reverse.
  void turn() {
    for (const ConvCall& call : calls) {
      if (direction == ConvDirection::USUAL || call.stride != 1) return;
    }
    direction = ConvDirection::USUAL;
    for (int d = 0; d < spatial; ++d) {
      ConvCall& call = calls[d];
      call.padding = call.dilation * (call.kernel - 1) - call.padding;
      filter += (call.kernel - 1) * filter_strides.taps[d];
      filter_strides.taps[d] = -filter_strides.taps[d];
    }
  }
};
