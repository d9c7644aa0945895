// What update kernels share: gradients that are dense or of selected rows, seen as runs of
// elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/process/prefetch.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/kernel.h"
#include "fluid/kernels/kernel_table.h"
#include "fluid/kernels/optimize/averages.h"
#include "fluid/kernels/row_groups.h"

namespace fleet::fluid::cpu {

// Selected rows with those of equal number summed, in order of their first numbers: ascending.
template <class T>
class MergedRows {
 public:
  // Valid until the next call, and as long as `source` is. Throws ProgramError for a row outside
  // the height, and for rows of a growing table where there is a height.
  void merge(const SelectedRows& source, int64_t height, int64_t width, const Tiles& tiles = {}) {
    if (height != SelectedRows::kNoHeight) require_height(source, "a merge of selected rows");
    groups_.group(source.rows, height, tiles);
    values_ = source.rows.empty() ? nullptr : source.value.data<T>();
    if (!groups_.as_given()) sum_equal(values_, width, tiles);
  }

  size_t count() const { return groups_.count(); }
  int64_t row(size_t i) const { return groups_.rows()[i]; }
  const std::vector<int64_t>& rows() const { return groups_.rows(); }
  // The values of all rows, one after the other.
  const T* values() const { return values_; }

 private:
  // Equal rows are added in the order in which they occur. A tile has the groups that begin in its
  // part of the rows.
  void sum_equal(const T* values, int64_t width, const Tiles& tiles) {
    sums_.resize(groups_.count() * static_cast<size_t>(width));
    const auto given = static_cast<int64_t>(groups_.order().size());
    tiles.split(given, width, [&](int64_t begin, int64_t end) {
      const std::vector<int64_t>& starts = groups_.begin();
      const auto first = std::lower_bound(starts.begin(), starts.end(), begin);
      const auto last = std::lower_bound(first, starts.end(), end);
      sum_groups(values, width, static_cast<size_t>(first - starts.begin()),
                 static_cast<size_t>(last - starts.begin()));
    });
    values_ = sums_.data();
  }

  void sum_groups(const T* values, int64_t row_width, size_t first, size_t last) {
    const auto width = static_cast<size_t>(row_width);
    T* sum = sums_.data() + first * width;
    for (size_t group = first; group < last; ++group, sum += width) {
      const auto at = [&](int64_t i) {
        return values + static_cast<size_t>(groups_.order()[static_cast<size_t>(i)]) * width;
      };
      int64_t i = groups_.begin()[group];
      std::copy_n(at(i), width, sum);
      while (++i < groups_.begin()[group + 1]) {
        const T* value = at(i);
        for (size_t k = 0; k < width; ++k) sum[k] += value[k];
      }
    }
  }

  RowGroups groups_;
  std::vector<T> sums_;
  const T* values_ = nullptr;
};

// A run of a gradient: its elements, or zeros.
template <class T>
struct Elements {
  const T* at;
  T operator()(size_t i) const { return at[i]; }
};
template <class T>
struct Zeros {
  T operator()(size_t) const { return T{}; }
};

// The input Grad of an update op.
template <class T>
class Gradient {
 public:
  explicit Gradient(const PrepareContext& context)
      : input_(gradient_input(context, dtype_of<T>())) {}

  bool sparse() const { return input_.sparse; }
  size_t numel() const { return static_cast<size_t>(input_.numel()); }
  int64_t height() const { return input_.height; }
  int64_t width() const { return input_.width; }

  // Calls step(first, count, g) for runs that cover the parameter, in tiles: element first + i has
  // the gradient g(i). With `touched_only`, rows that a sparse gradient does not name are left out;
  // those that are named are on their way to the caches where `states` says which arrays are used.
  template <class Step>
  void each_run(const KernelContext& c, const Step& step, bool touched_only = false,
                std::initializer_list<InAndOut> states = {}) {
    if (!sparse()) {
      const T* const gradient = dense(c);
      c.tiles().split(input_.numel(), 1, [&](int64_t begin, int64_t end) {
        const auto first = static_cast<size_t>(begin);
        step(first, static_cast<size_t>(end - begin), Elements<T>{gradient + first});
      });
      return;
    }
    const MergedRows<T>& rows = merged(c);
    if (touched_only) {
      const auto width = static_cast<size_t>(input_.width);
      c.tiles().split(
          static_cast<int64_t>(rows.count()), input_.width, [&](int64_t begin, int64_t end) {
            for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
              if (i + kRowsAhead < rows.count()) {
                fetch(c, states, rows.row(i + kRowsAhead));
              }
              step(static_cast<size_t>(rows.row(i)) * width, width,
                   Elements<T>{rows.values() + i * width});
            }
          });
      return;
    }
    c.tiles().split(input_.height, input_.width,
                    [&](int64_t begin, int64_t end) { cover(rows, begin, end, step); });
  }

  // The rows of a sparse gradient, merged.
  const MergedRows<T>& merged(const KernelContext& c) {
    merged_.merge(c.rows_input(input_.position), input_.height, input_.width, c.tiles());
    return merged_;
  }
  const T* dense(const KernelContext& c) const { return c.in<T>(input_.position); }

 private:
  static constexpr size_t kRowsAhead = 16;

  void fetch(const KernelContext& c, std::initializer_list<InAndOut> states, int64_t row) const {
    const auto width = static_cast<size_t>(input_.width);
    for (const InAndOut& state : states) {
      prefetch(c.in<T>(state.in) + static_cast<size_t>(row) * width, width * sizeof(T));
    }
  }

  // The runs of rows begin to end - 1 of the parameter.
  template <class Step>
  void cover(const MergedRows<T>& rows, int64_t begin, int64_t end, const Step& step) const {
    const auto width = static_cast<size_t>(input_.width);
    const size_t over = static_cast<size_t>(end) * width;
    size_t done = static_cast<size_t>(begin) * width;
    const auto found = std::lower_bound(rows.rows().begin(), rows.rows().end(), begin);
    for (auto i = static_cast<size_t>(found - rows.rows().begin());
         i < rows.count() && rows.row(i) < end; ++i) {
      const size_t first = static_cast<size_t>(rows.row(i)) * width;
      if (first > done) step(done, first - done, Zeros<T>{});
      step(first, width, Elements<T>{rows.values() + i * width});
      done = first + width;
    }
    if (done < over) step(done, over - done, Zeros<T>{});
  }

  GradientInput input_;
  MergedRows<T> merged_;
};

// A state and where its new value goes.
using StatePositions = InAndOut;

template <class T>
StatePositions state(PrepareContext& context, const char* in, const char* out) {
  return {state_input<T>(context, in),
          context.set_output(out, context.in("Param").shape, dtype_of<T>())};
}

// What every update begins with.
template <class T>
struct Update {
  Gradient<T> gradient;
  int rate;
  StatePositions param;
  explicit Update(PrepareContext& context)
      : gradient(context),
        rate(scalar_input<T>(context, "LearningRate")),
        param(state<T>(context, "Param", "ParamOut")) {}

  T learning_rate(const KernelContext& c) const { return *c.in<T>(rate); }
};

// The arrays of a state in one run.
template <class T>
struct StateArrays {
  const T* from;
  T* to;
  StateArrays(const KernelContext& c, StatePositions at, size_t first = 0)
      : from(c.in<T>(at.in) + first), to(c.out<T>(at.out) + first) {}
};

// The one kernel of an update op for elements of T.
template <class T>
void add_update(KernelTable& table, const char* op,
                std::unique_ptr<Prepared> (*prepare)(PrepareContext& context)) {
  table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
}

}  // namespace fleet::fluid::cpu
