#pragma once
// The rows that products have in common, in shared memory: as they are, or made by a row program, a
// row for a team of a warp, or of all warps of a block where rows are few. A source has
//   WARPS      of a team
//   Element    of the rows
//   ask_for()  brings what rows are made of towards the multiprocessor, before it may be read
//   Exchange   by which a team of a block combines what its threads have
//   fill()     hands 8 neighbours of a row at a time to `to`, from lane `lane` of a team on;
//              VECTORS: has_vectors()

#include "row_exchange.cuh"
#include "row_program.cuh"
#include "row_vectors.cuh"

constexpr int JOINT_WIDTH = 8;   // neighbours that a thread moves at once
constexpr int JOINT_LINE = 128;  // bytes of a line of the cache

// JOINT_WIDTH elements a step apart. VECTORS: they are neighbours, and aligned.
template <bool VECTORS, class T>
__device__ __forceinline__ Vector<T, JOINT_WIDTH> load_joint_run(const T* from, int64_t step) {
  if constexpr (VECTORS) {
    return load_vector<JOINT_WIDTH>(from);
  } else {
    Vector<T, JOINT_WIDTH> run;
#pragma unroll
    for (int i = 0; i < JOINT_WIDTH; ++i) run.element[i] = from[i * step];
    return run;
  }
}

// Whether all runs of all rows are neighbours, and aligned.
template <class T, int OPERANDS>
bool has_joint_runs(const void* data, const Axes<OPERANDS>& kept, int operand, int64_t step) {
  constexpr int64_t ALIGNMENT = alignof(Vector<T, JOINT_WIDTH>);
  bool found = step == 1 && reinterpret_cast<uintptr_t>(data) % ALIGNMENT == 0;
  for (int d = 0; d < kept.rank; ++d) {
    found = found && kept.strides[d][operand] * static_cast<int64_t>(sizeof(T)) % ALIGNMENT == 0;
  }
  return found;
}

// What a program makes of rows; the memory of its one result is never touched. HELD: vectors of a
// row that a lane keeps in registers, all there are; 0 where it reads them for each fold.
template <class Program, int HELD, int WARPS_>
struct MadeRows {
  static constexpr int WARPS = WARPS_;
  using Types = RowTypes<Program>;
  using Exchange = TeamExchange<WARPS, 1, LargestState<typename Program::Folds>::BYTES>;
  using Element = pack_item_t<0, typename Program::Results>;
  using Inputs = typename Program::Inputs;
  using Runs = typename PackOfVectors<Inputs, JOINT_WIDTH>::type;
  static constexpr int STEP = 32 * WARPS * JOINT_WIDTH;
  static constexpr int MOST = HELD > 0 ? HELD : 4;  // vectors of a lane under way
  static constexpr unsigned READS = all_reads<Program>() | Program::RESULT_READS[0];
  static_assert(Types::RESULTS == 1 && Program::IS_ELEMENT[0], "the rows are the one result");
  static_assert(!Program::LOCATED, "where an element stands is not known");

  Program program;
  Axes<Types::OPERANDS> kept;
  int64_t count;
  const void* data[Types::INPUTS];
  int64_t steps[Types::INPUTS];  // from an element of a row to the next one

  int64_t length() const { return count; }
  bool has_vectors() const {
    const bool are_held = HELD == 0 || length() <= HELD * STEP;
    return are_held && has_runs(typename Types::InputIndices());
  }

  // The lines of the first row, and so of what is the same for all rows.
  __device__ __forceinline__ void ask_for() const {
    repeat<Types::INPUTS>([&](auto input) {
      using In = pack_item_t<input, Inputs>;
      const int64_t step = steps[input];
      constexpr int64_t LINE = JOINT_LINE / sizeof(In);
      const int64_t at = threadIdx.x * LINE;
      if (step == 1 && at < count) {
        prefetch(static_cast<const In*>(data[input]) + at);
      }
    });
  }

  template <bool VECTORS, class To>
  __device__ __forceinline__ void fill(int64_t row, int lane, Exchange& exchange,
                                       const To& to) const {
    int64_t offsets[Types::OPERANDS] = {};
    kept.locate(row, INPUT_MASK, offsets);
    Runs held[MOST];
    if constexpr (VECTORS && HELD > 0) {
      load_ahead<VECTORS, READS>(offsets, lane * JOINT_WIDTH, held);
    }
    typename Program::Totals totals = {};
    repeat<Program::LEVELS>([&](auto level) {
      auto states = no_elements<Program>();
      each_run<VECTORS, Program::READS[level]>(
          offsets, lane, held, [&](int place, const Runs& runs) {
            Inputs elements[JOINT_WIDTH];
#pragma unroll
            for (int i = 0; i < JOINT_WIDTH; ++i) {
              pick_element<Program::READS[level]>(runs, i, elements[i]);
            }
            const VectorPlaces<JOINT_WIDTH> places = {place, 0};
            fold_elements<level>(program, totals, RowCoordinates(), row, places, elements, FULL,
                                 states);
          });
      each_fold<Program, level>([&](auto fold) {
        using Fold = typename Types::template FoldAt<fold>;
        set_totals<Program, fold>(exchange.template combine<Fold>(get<fold>(states)), totals);
      });
    });
    each_run<VECTORS, Program::RESULT_READS[0]>(
        offsets, lane, held,
        [&](int place, const Runs& runs) { to(place, results(totals, row, place, runs)); });
  }

 private:
  static constexpr unsigned FULL = (1u << JOINT_WIDTH) - 1;
  static constexpr unsigned INPUT_MASK = (1u << Types::INPUTS) - 1;

  template <size_t... INPUT>
  bool has_runs(std::index_sequence<INPUT...>) const {
    return (true && ... &&
            ((Program::SHARED >> INPUT & 1) != 0 ||
             has_joint_runs<pack_item_t<INPUT, Inputs>>(data[INPUT], kept, INPUT, steps[INPUT])));
  }

  // Calls body(place, runs) for a lane's part of a row: of what it holds, or of what it loads, some
  // of it under way at once.
  template <bool VECTORS, unsigned READS, class Body>
  __device__ __forceinline__ void each_run(const int64_t (&offsets)[Types::OPERANDS], int lane,
                                           const Runs (&held)[MOST], const Body& body) const {
    constexpr int AHEAD = VECTORS ? MOST : 1;
    const auto length = static_cast<int>(count);
#pragma unroll 1
    for (int first = lane * JOINT_WIDTH; first < length; first += AHEAD * STEP) {
      Runs runs[AHEAD];
      if constexpr (!(VECTORS && HELD > 0)) load_ahead<VECTORS, READS>(offsets, first, runs);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const int place = first + i * STEP;
        if (place < length) body(place, VECTORS && HELD > 0 ? held[i] : runs[i]);
      }
    }
  }

  template <bool VECTORS, unsigned READS, int AHEAD>
  __device__ __forceinline__ void load_ahead(const int64_t (&offsets)[Types::OPERANDS], int first,
                                             Runs (&runs)[AHEAD]) const {
    const auto length = static_cast<int>(count);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int place = first + i * STEP;
      load<VECTORS, READS>(offsets, place < length ? place : 0, runs[i]);
    }
  }

  template <bool VECTORS, unsigned READS>
  __device__ __forceinline__ void load(const int64_t (&offsets)[Types::OPERANDS], int place,
                                       Runs& runs) const {
    repeat<Types::INPUTS>([&](auto input) {
      if constexpr ((READS >> input & 1) != 0) {
        using In = pack_item_t<input, Inputs>;
        constexpr bool IS_SHARED = (Program::SHARED >> input & 1) != 0;
        const int64_t step = IS_SHARED ? 0 : VECTORS ? 1 : steps[input];
        const auto* const from =
            static_cast<const In*>(data[input]) + offsets[input] + place * step;
        get<input>(runs) = load_joint_run < VECTORS && !IS_SHARED > (from, step);
      }
    });
  }

  __device__ __forceinline__ Vector<Element, JOINT_WIDTH> results(
      const typename Program::Totals& totals, int64_t row, int place, const Runs& runs) const {
    const RowCoordinates none;
    return results_of_vector<0, Program::RESULT_READS[0], JOINT_WIDTH>(
        program, totals, Inputs(), runs, [&](int i) { return RowPlace{none, row, place + i, i}; });
  }
};

// The operands of a program, and its one result: of the size of all of them, and nowhere.
template <int HELD, int WARPS, class Program>
MadeRows<Program, HELD, WARPS> made_rows(const Program& program,
                                         const Tensor (&inputs)[RowTypes<Program>::INPUTS]) {
  Tensor operands[RowTypes<Program>::OPERANDS];
  Tensor& made = operands[RowTypes<Program>::INPUTS];
  for (int i = 0; i < RowTypes<Program>::INPUTS; ++i) {
    operands[i] = inputs[i];
    const int rank = made.rank > inputs[i].rank ? made.rank : inputs[i].rank;
    Tensor joined;
    joined.rank = rank;
    for (int d = 1; d <= rank; ++d) {
      const int64_t own = d <= inputs[i].rank ? inputs[i].sizes[inputs[i].rank - d] : 1;
      const int64_t other = d <= made.rank ? made.sizes[made.rank - d] : 1;
      joined.sizes[rank - d] = other == 1 ? own : other;
    }
    made = joined;
  }
  for (int64_t d = made.rank - 1, step = 1; d >= 0; step *= made.sizes[d--]) made.strides[d] = step;
  const auto space = describe_rows<Program>(operands);
  MadeRows<Program, HELD, WARPS> rows = {program, space.kept, space.reduced.count, {}, {}};
  for (int i = 0; i < RowTypes<Program>::INPUTS; ++i) {
    rows.data[i] = space.data[i];
    rows.steps[i] = space.reduced.inner_stride(i);
  }
  return rows;
}

// Rows as they are.
template <class T, int WARPS_>
struct GivenRows {
  static constexpr int WARPS = WARPS_;
  using Exchange = TeamExchange<1, 1, 4>;  // of which nothing is asked
  using Element = T;

  const T* data;
  Axes<1> kept;
  int64_t count, step;

  int64_t length() const { return count; }
  bool has_vectors() const { return has_joint_runs<T>(data, kept, 0, step); }
  __device__ __forceinline__ void ask_for() const {}

  template <bool VECTORS, class To>
  __device__ __forceinline__ void fill(int64_t row, int lane, Exchange&, const To& to) const {
    int64_t offsets[1] = {};
    kept.locate(row, 1, offsets);
#pragma unroll 4
    for (int place = lane * JOINT_WIDTH; place < count; place += 32 * WARPS * JOINT_WIDTH) {
      to(place, load_joint_run<VECTORS>(data + offsets[0] + place * step, step));
    }
  }
};

template <class T, int WARPS>
GivenRows<T, WARPS> given_rows(const Tensor& rows) {
  GivenRows<T, WARPS> given = {static_cast<const T*>(rows.data), {}, 0, 0};
  const int last = rows.rank - 1;
  for (int d = 0; d < last; ++d) given.kept.append(rows.sizes[d], {rows.strides[d]});
  given.kept.prepare();
  given.count = rows.sizes[last];
  given.step = rows.strides[last];
  return given;
}
