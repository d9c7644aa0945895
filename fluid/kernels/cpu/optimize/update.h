// What update kernels share: gradients that are dense or of selected rows, seen as runs of
// elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/kernel.h"
#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid::cpu {

// Selected rows with those of equal number summed, in order of their first numbers: ascending.
template <class T>
class MergedRows {
 public:
  // Valid until the next call, and as long as `source` is. Throws ProgramError for a row outside
  // the height.
  void merge(const SelectedRows& source, int64_t height, int64_t width) {
    const size_t count = source.rows.size();
    for (const int64_t row : source.rows) {
      if (row < 0 || row >= height) throw_outside(row, height);
    }
    const T* values = count == 0 ? nullptr : source.value.data<T>();
    bool ascending = true;
    for (size_t i = 1; i < count; ++i) ascending = ascending && source.rows[i - 1] < source.rows[i];
    rows_.assign(source.rows.begin(), source.rows.end());
    values_ = values;
    if (ascending) return;
    sum_equal(source.rows, values, static_cast<size_t>(width));
  }

  size_t count() const { return rows_.size(); }
  int64_t row(size_t i) const { return rows_[i]; }
  const std::vector<int64_t>& rows() const { return rows_; }
  // The values of all rows, one after the other.
  const T* values() const { return values_; }

 private:
  [[noreturn]] static void throw_outside(int64_t row, int64_t height) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "a gradient names a row outside the parameter",
                                            .where = "update op, input Grad",
                                            .expected = str_cat("0 to ", height - 1),
                                            .got = str_cat(row),
                                            .fix = "check the ids that were looked up"});
  }

  // Equal rows are added in the order in which they occur.
  void sum_equal(const std::vector<int64_t>& rows, const T* values, size_t width) {
    order_.resize(rows.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return rows[a] < rows[b]; });
    rows_.clear();
    sums_.clear();
    for (const size_t i : order_) {
      const T* value = values + i * width;
      if (rows_.empty() || rows_.back() != rows[i]) {
        rows_.push_back(rows[i]);
        sums_.insert(sums_.end(), value, value + width);
        continue;
      }
      T* sum = sums_.data() + sums_.size() - width;
      for (size_t k = 0; k < width; ++k) sum[k] += value[k];
    }
    values_ = sums_.data();
  }

  std::vector<int64_t> rows_;
  std::vector<T> sums_;
  std::vector<size_t> order_;
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
  explicit Gradient(const PrepareContext& context) : position_(context.input("Grad")) {
    const Shape& param = context.in("Param").shape;
    const ValueSpec& grad = context.in("Grad");
    numel_ = static_cast<size_t>(param.numel());
    height_ = param.rank() == 0 ? 1 : param[0];
    width_ = height_ == 0 ? 0 : param.numel() / height_;
    sparse_ = grad.kind == ValueKind::kSelectedRows;
    const bool fits = sparse_ ? grad.shape.numel() % std::max<int64_t>(width_, 1) == 0
                              : grad.shape.numel() == param.numel();
    const bool tensor = sparse_ || grad.kind == ValueKind::kTensor;
    context.require(tensor && fits && grad.dtype == dtype_of<T>(), "Grad",
                    str_cat(dtype_name(dtype_of<T>()), param, ", like Param, or rows of it"),
                    str_cat(dtype_name(grad.dtype), grad.shape));
  }

  bool sparse() const { return sparse_; }
  size_t numel() const { return numel_; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }

  // Calls step(first, count, g) for runs that cover the parameter: element first + i has the
  // gradient g(i). With `touched_only`, rows that a sparse gradient does not name are left out.
  template <class Step>
  void each_run(const KernelContext& c, const Step& step, bool touched_only = false) {
    if (!sparse_) {
      step(size_t{0}, numel_, Elements<T>{c.in<T>(position_)});
      return;
    }
    const MergedRows<T>& rows = merged(c);
    const auto width = static_cast<size_t>(width_);
    size_t done = 0;
    for (size_t i = 0; i < rows.count(); ++i) {
      const size_t first = static_cast<size_t>(rows.row(i)) * width;
      if (!touched_only && first > done) step(done, first - done, Zeros<T>{});
      step(first, width, Elements<T>{rows.values() + i * width});
      done = first + width;
    }
    if (!touched_only && done < numel_) step(done, numel_ - done, Zeros<T>{});
  }

  // The rows of a sparse gradient, merged.
  const MergedRows<T>& merged(const KernelContext& c) {
    merged_.merge(std::get<SelectedRows>(c.input_value(position_)), height_, width_);
    return merged_;
  }
  const T* dense(const KernelContext& c) const { return c.in<T>(position_); }

 private:
  int position_;
  bool sparse_ = false;
  size_t numel_ = 0;
  int64_t height_ = 0;
  int64_t width_ = 0;
  MergedRows<T> merged_;
};

// A state and where its new value goes: positions in the kernel context.
struct StatePositions {
  int in = -1;
  int out = -1;
};

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
