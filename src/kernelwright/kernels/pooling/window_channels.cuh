#pragma once
// A thread at work on neighbouring channels (window_channel_parameters.cuh). It keeps the sums of
// those rows of the result that a row of the source is in: an element is read and converted once.

#include "window_channel_reads.cuh"

template <class Config, class Problem>
struct WindowChannels : ChannelReads<Config, Problem> {
  using Base = ChannelReads<Config, Problem>;
  using Parameters = ChannelParameters<Config, Problem>;
  using Out = typename Problem::Out;
  using Place = typename Problem::Place;
  using Base::at, Base::begin, Base::column, Base::end, Base::parameters;
  using Base::OLDER, Base::OUTPUTS, Base::VECTOR;
  using typename Base::Columns, typename Base::Inputs, typename Base::Rows, typename Base::Value;
  using typename Base::Values;

  template <class T>
  struct ResultRow {
    ChannelAccess<T, VECTOR> at[OUTPUTS];
  };
  using AfterInputs = typename Problem::template AfterPack<ResultRow>;
  using Totals = Value[OUTPUTS][VECTOR];

  Totals totals[OLDER + 1];  // [m] is that of the row m before the newest

  __device__ __forceinline__ explicit WindowChannels(const Parameters& parameters)
      : Base(parameters) {
#pragma unroll
    for (int m = 0; m <= OLDER; ++m) clear(totals[m]);
  }

  __device__ __forceinline__ static void clear(Totals& own) {
#pragma unroll
    for (int x = 0; x < OUTPUTS; ++x) {
#pragma unroll
      for (int c = 0; c < VECTOR; ++c) own[x][c] = Value(0);
    }
  }
  // A row of the result is one step older.
  __device__ __forceinline__ void age(int m) {
    if (m == 0) {
      clear(totals[0]);
      return;
    }
#pragma unroll
    for (int x = 0; x < OUTPUTS; ++x) {
#pragma unroll
      for (int c = 0; c < VECTOR; ++c) totals[m][x][c] = totals[m - 1][x][c];
    }
  }
  __device__ __forceinline__ void multiply(Totals& own, int tap, const Values& values) const {
#pragma unroll
    for (int k = 0; k < Columns::SIZE; ++k) {
#pragma unroll
      for (int x = 0; x < OUTPUTS; ++x) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
          own[x][c] +=
              this->weights[tap][k][c] * values[x * Columns::STRIDE + k * Columns::DILATION][c];
        }
      }
    }
  }
  // Takes row `s` of a step. With the first one all sums are a step older: what their products give
  // goes to other registers, so that this costs nothing.
  __device__ __forceinline__ void add(int s, int newest, const Values& values) {
#pragma unroll
    for (int m = OLDER; m >= 0; --m) {
      const int tap = Base::tap_at(m * Rows::STRIDE + s);
      if (s > 0 && tap < 0) continue;
      const bool is_own =
          static_cast<unsigned>(newest - m - begin) < static_cast<unsigned>(end - begin);
      if (!Base::SKIPS || is_own) {
        if (s == 0) age(m);
        if (tap >= 0) multiply(totals[m], tap, values);
      }
    }
  }

  // What the epilogue reads for the whole plane, or else for the next row.
  template <bool IS_FIRST, int OPERAND, class T>
  __device__ __forceinline__ void load_after(ResultRow<T>& to) const {
    if constexpr (IS_FIRST && Parameters::is_of_plane(OPERAND)) {
      this->template load_access<OPERAND>(to.at[0], at[OPERAND], 0);
    } else if constexpr (!IS_FIRST && !Parameters::is_of_plane(OPERAND)) {
#pragma unroll
      for (int x = 0; x < OUTPUTS; ++x) {
        if (x < this->columns) this->template load_access<OPERAND>(to.at[x], at[OPERAND], x);
      }
    }
  }
  template <bool IS_FIRST, class... Ts, size_t... AT>
  __device__ __forceinline__ void load_all_after(Pack<ResultRow<Ts>...>& to,
                                                 std::index_sequence<AT...>) const {
    (load_after<IS_FIRST, Problem::FIRST_AFTER + static_cast<int>(AT)>(get<AT>(to)), ...);
  }
  template <size_t... AT>
  __device__ __forceinline__ Out result(const AfterInputs& after, int row, int x, int c,
                                        std::index_sequence<AT...>) const {
    const Place place{parameters.problem.plane_shape, this->plane, row, column + x,
                      this->channel + c};
    return narrow<Out>(parameters.problem.operation.epilogue(
        place, totals[OLDER][x][c],
        get<AT>(after)
            .at[Parameters::is_of_plane(Problem::FIRST_AFTER + static_cast<int>(AT)) ? 0 : x]
            .template value<false>(c)...));
  }
  // Writes what is the oldest after a step, if it is of the segment; `seen`: who sees the results.
  template <class Seen>
  __device__ __forceinline__ void write(AfterInputs& after, int newest, Seen& seen) {
    const int row = newest - OLDER;
    if (row < begin) return;
    load_all_after<false>(after, typename Problem::AfterIndices());
    char* to = at[0];
#pragma unroll
    for (int x = 0; x < OUTPUTS; ++x) {
      Vector<Out, VECTOR> own;
#pragma unroll
      for (int c = 0; c < VECTOR; ++c) {
        own.element[c] = result(after, row, x, c, typename Problem::AfterIndices());
      }
      if (x < this->columns) store_vector(reinterpret_cast<Out*>(to), own);
      seen.take(x, own);
      to += parameters.across[0];
    }
    seen.end_row(this->columns);
#pragma unroll
    for (int o = 0; o < Problem::WEIGHTS; ++o) {
      if (o == 0 || o >= Problem::FIRST_AFTER) at[o] += parameters.down[o];
    }
  }

  // Goes down the segment. `inputs`: the first row, on its way.
  template <class Seen>
  __device__ __forceinline__ void run(Inputs& inputs, Seen& seen) {
    AfterInputs after;
    if (begin < end) load_all_after<true>(after, typename Problem::AfterIndices());
    int newest = this->first_step();
    const int last = min(end + OLDER, (this->limit - 1 + Rows::PADDING) / Rows::STRIDE + 1);
#pragma unroll 1
    for (; newest < last; ++newest) {
#pragma unroll
      for (int s = 0; s < Rows::STRIDE; ++s) {
        if (!Base::takes(s)) continue;
        const int row = newest * Rows::STRIDE + s - Rows::PADDING, next = s + Base::next_taken(s);
        Values values;
        this->convert(values, inputs, row);
        this->fetch(inputs, row + Base::next_taken(s), Base::next_taken(next % Rows::STRIDE));
        add(s, newest, values);
      }
      write(after, newest, seen);
    }
#pragma unroll 1
    for (; newest < end + OLDER; ++newest) {
#pragma unroll
      for (int m = OLDER; m >= 0; --m) age(m);
      write(after, newest, seen);
    }
  }
};

// Nobody sees the results of a thread.
struct UnseenChannels {
  template <class Results>
  __device__ __forceinline__ void take(int, const Results&) {}
  __device__ __forceinline__ void end_row(int) {}
};

// A thread's place in a block: a group of channels of a tile, of those that the block has.
template <class Parameters>
struct ChannelSlot {
  uint32_t part;  // of all tiles: the block's
  int groups, slot, group;
  int first, channel;  // the block's first channel, and the thread's
  uint32_t tile;
  bool is_active;

  __device__ __forceinline__ explicit ChannelSlot(const Parameters& parameters) {
    part = parameters.chunks.quotient(blockIdx.x);
    const auto chunk = static_cast<int>(blockIdx.x - part * parameters.chunks.value());
    groups = static_cast<int>(parameters.groups.value());
    slot = static_cast<int>(parameters.groups.quotient(threadIdx.x));
    group = static_cast<int>(threadIdx.x) - slot * groups;
    tile = part * static_cast<uint32_t>(parameters.own) + static_cast<uint32_t>(slot);
    first = chunk * groups * Parameters::VECTOR;
    channel = first + group * Parameters::VECTOR;
    is_active = slot < parameters.own && tile < parameters.count &&
                channel < static_cast<int>(parameters.problem.result.width);
  }
};

template <class Config, class Problem, class Seen>
__device__ __forceinline__ void run_channels(
    const ChannelParameters<Config, Problem>& parameters,
    const ChannelSlot<ChannelParameters<Config, Problem>>& own, Seen& seen) {
  using Walker = WindowChannels<Config, Problem>;
  __shared__ __align__(16) typename Walker::Value filters[Walker::LANES * Walker::PITCH];
  Walker walker(parameters);
  walker.start(own.is_active ? own.tile : 0, own.channel, own.is_active);
  typename Walker::Inputs inputs;
  walker.fetch_first(inputs);
  walker.share_weights(filters, own.first, own.groups);
  __syncthreads();
  walker.load_weights(filters, own.is_active ? own.group : 0);
  walker.run(inputs, seen);
}

template <class Config, class Problem>
__device__ __forceinline__ void window_channels(
    const ChannelParameters<Config, Problem>& parameters) {
  wait_for_previous_kernel();
  UnseenChannels unseen;
  run_channels(parameters, ChannelSlot<ChannelParameters<Config, Problem>>(parameters), unseen);
}
