// What update kernels share: states, and gradients that are dense or of selected rows.
#pragma once

#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cuda/device_rows_impl.h"
#include "fluid/kernels/cuda/optimize/more_loops.h"
#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {

// The input Grad of an update op.
template <class T>
class Gradient {
 public:
  explicit Gradient(const PrepareContext& context)
      : input_(gradient_input(context, dtype_of<T>())) {}

  bool sparse() const { return input_.sparse; }
  int64_t numel() const { return input_.numel(); }

  // As it is in this run. `named_only`: rows that a sparse gradient does not name are left out,
  // instead of being zeros. It lies in the stream's scratch behind `more` bytes of the op's own,
  // which more() then has.
  GradientArrays<T> at(const KernelContext& c, bool named_only = false, size_t more = 0) {
    constexpr size_t kAligned = 256;
    const size_t first = (more + kAligned - 1) / kAligned * kAligned;
    if (!sparse()) {
      more_ = more == 0 ? nullptr : stream_of(c).template scratch<std::byte>(to_int(first));
      return {.values = c.in<T>(input_.position)};
    }
    const SelectedRows& source = c.rows_input(input_.position);
    groups_.group(source.rows, input_.height);
    const size_t places = named_only ? 0 : static_cast<size_t>(input_.height) * sizeof(int32_t);
    more_ = stream_of(c).template scratch<std::byte>(to_int(first + groups_.bytes() + places));
    GradientArrays<T> arrays{.sparse = true,
                             .rows = values_of<T>(source, groups_.put(c, more_ + first))};
    arrays.rows.width = input_.width;
    if (named_only) return arrays;
    auto* place = reinterpret_cast<int32_t*>(more_ + first + groups_.bytes());
    number_groups(stream_of(c).raw(), arrays.rows.groups, input_.height, place);
    arrays.place = place;
    return arrays;
  }
  std::byte* more() const { return more_; }

 private:
  static int64_t to_int(size_t bytes) { return static_cast<int64_t>(bytes); }

  GradientInput input_;
  UploadedGroups groups_;
  std::byte* more_ = nullptr;
};

// Positions of a state's input and output.
template <class T>
struct State {
  int in = -1;
  int out = -1;
  StateArrays<T> at(const KernelContext& c) const { return {c.in<T>(in), c.out<T>(out)}; }
};

template <class T>
State<T> state_of(PrepareContext& context, const char* in, const char* out) {
  const int from = state_input<T>(context, in);
  return {from, context.set_output(out, context.in(in).shape, dtype_of<T>())};
}

// Rows that an update leaves alone keep their values where input and output are apart.
template <class T>
void keep_rest(const KernelContext& c, const StateArrays<T>& state, int64_t n) {
  stream_of(c).copy(state.from, state.to, static_cast<size_t>(n) * sizeof(T));
}

template <class T>
struct Update {
  explicit Update(PrepareContext& context)
      : param(state_of<T>(context, "Param", "ParamOut")),
        gradient(context),
        rate(optional_scalar_input<T>(context, "LearningRate")) {}

  // `named_only` and `more` are those of Gradient::at.
  UpdateArgs<T> at(const KernelContext& c, bool named_only = false, size_t more = 0) {
    return {.param = param.at(c),
            .grad = gradient.at(c, named_only, more),
            .rate = rate >= 0 ? c.in<T>(rate) : nullptr,
            .n = gradient.numel()};
  }

  State<T> param;
  Gradient<T> gradient;
  int rate;
};

}  // namespace fleet::fluid::cuda
