// Selected rows on a device: their numbers are in host memory, where equal ones are found, and
// their values on the device.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fluid/core/value.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/cuda/row_loops.h"
#include "fluid/kernels/row_groups.h"

namespace fleet::fluid::cuda {

// Groups of equal numbers, found on the host and brought to the device. Used by one thread at a
// time.
class UploadedGroups {
 public:
  // Valid until the next call. Throws ProgramError for a row outside the height.
  void group(std::span<const int64_t> rows, int64_t height) { groups_.group(rows, height); }

  const RowGroups& groups() const { return groups_; }
  int64_t count() const { return static_cast<int64_t>(groups_.count()); }

  // Bytes of the device's memory that put() fills.
  size_t bytes() const {
    const size_t words = groups_.count() + groups_.begin().size() + groups_.order().size();
    return words * sizeof(int64_t);
  }
  RowGroupArrays put(const KernelContext& c, std::byte* memory) {
    words_.assign(groups_.rows().begin(), groups_.rows().end());
    words_.insert(words_.end(), groups_.begin().begin(), groups_.begin().end());
    words_.insert(words_.end(), groups_.order().begin(), groups_.order().end());
    stream_of(c).upload(words_.data(), memory, bytes());
    RowGroupArrays arrays{.rows = reinterpret_cast<int64_t*>(memory), .count = count()};
    if (groups_.as_given()) return arrays;
    arrays.begin = arrays.rows + groups_.count();
    arrays.order = arrays.begin + groups_.begin().size();
    return arrays;
  }
  // Into the stream's scratch.
  RowGroupArrays put(const KernelContext& c) {
    return put(c, stream_of(c).scratch<std::byte>(static_cast<int64_t>(bytes())));
  }

 private:
  RowGroups groups_;
  std::vector<int64_t> words_;
};

// With the values of selected rows behind them.
template <class T>
RowValues<T> values_of(const SelectedRows& rows, const RowGroupArrays& groups) {
  return {.groups = groups,
          .values = reinterpret_cast<const T*>(rows.value.raw()),
          .width = row_width(rows.value)};
}

// Selected rows for output `out`, which `fill(rows)` makes of the inputs: the output may be one of
// them. In the output's former memory where that is none of theirs.
template <class Fill>
void fill_rows(const KernelContext& c, int first, size_t count, int out, const Fill& fill) {
  Value& output = c.output_value(out);
  bool apart = true;
  for (size_t i = 0; i < count; ++i) {
    apart = apart && &c.input_value(first + static_cast<int>(i)) != &output;
  }
  SelectedRows made;
  auto* former = std::get_if<SelectedRows>(&output);
  if (former != nullptr && apart) made = std::move(*former);
  fill(made);
  output = std::move(made);
}

// Of an op whose output is the rows of X, equal ones summed, with values that
// change(c, values, n) makes of those sums.
template <class T, class Change>
std::unique_ptr<Prepared> prepare_merged(PrepareContext& context, const Change& change) {
  const int x = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=, groups = UploadedGroups()](const KernelContext& c) mutable {
    const SelectedRows& source = c.rows_input(x);
    groups.group(source.rows, source.height);
    fill_rows(c, x, 1, out, [&](SelectedRows& made) {
      Shape shape = source.value.shape();
      shape.set(0, groups.count());
      made.rows = groups.groups().rows();
      made.height = source.height;
      made.value.reset(dtype_of<T>(), shape, c.place());
      T* values = reinterpret_cast<T*>(made.value.raw());
      merge_rows<T>(stream_of(c).raw(), values_of<T>(source, groups.put(c)), values);
      change(c, values, made.value.numel());
    });
  });
}

}  // namespace fleet::fluid::cuda
