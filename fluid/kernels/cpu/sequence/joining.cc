// sequence_expand, sequence_concat and sequence_reverse.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/sequence/sequences.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_expand(PrepareContext& context) {
  const SequenceRepeats repeats(context);
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    const SequenceInput& x = repeats.x();
    int64_t count = 0;
    repeats.each(c, [&](int64_t, int64_t rows) { count += rows; });
    Tensor& expanded = make_rows_like(c, out, x.tensor(c), count);
    const T* from = c.in<T>(x.position);
    T* to = expanded.data<T>();
    repeats.each(c, [&](int64_t first, int64_t rows) {
      to = std::copy_n(from + first * x.width, rows * x.width, to);
    });
    expanded.set_lod(repeats.lod(c));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_expand_grad(PrepareContext& context) {
  const SequenceRepeats repeats(context);
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    c.output(x_grad).share_lod(repeats.x().tensor(c));
    const int64_t width = repeats.x().width;
    T* outs = c.out<T>(x_grad);
    std::fill_n(outs, c.output(x_grad).numel(), T{});
    const T* from = c.in<T>(grad);
    int64_t left = c.input(grad).numel();
    repeats.each(c, [&](int64_t first, int64_t rows) {
      left -= rows * width;
      if (left < 0) return;
      T* to = outs + first * width;
      for (int64_t k = 0; k < rows * width; ++k) to[k] += from[k];
      from += rows * width;
    });
    if (left != 0) throw_sequence_count(repeats.x().where, 0, left);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_concat(PrepareContext& context) {
  const SequenceParts parts(context);
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    Offsets offsets = parts.joined(c);
    const int64_t width = parts.width();
    Tensor& joined = make_rows_like(c, out, parts.inputs().front().tensor(c), offsets.back());
    T* to = joined.data<T>();
    parts.each(c, [&](size_t k, int64_t first, int64_t rows) {
      to = std::copy_n(c.in<T>(parts.inputs()[k].position) + first * width, rows * width, to);
    });
    joined.set_lod({std::move(offsets)});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_concat_grad(PrepareContext& context) {
  const SequenceParts parts(context);
  const int grad = context.input("Out@GRAD");
  const std::vector<int> outs = concat_gradients(context, dtype_of<T>());
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    for (size_t k = 0; k < outs.size(); ++k) {
      if (outs[k] >= 0) c.output(outs[k]).share_lod(parts.inputs()[k].tensor(c));
    }
    const int64_t width = parts.width();
    const T* from = c.in<T>(grad);
    parts.each(c, [&](size_t k, int64_t first, int64_t rows) {
      if (outs[k] >= 0) std::copy_n(from, rows * width, c.out<T>(outs[k]) + first * width);
      from += rows * width;
    });
  });
}

std::unique_ptr<Prepared> prepare_reverse(PrepareContext& context) {
  const SequenceInput x(context, "X");
  const ValueSpec& spec = context.in("X");
  const size_t bytes = static_cast<size_t>(x.width) * dtype_size(spec.dtype);
  const int out = context.set_output("Y", spec.shape, spec.dtype);
  return make_prepared([=](const KernelContext& c) {
    const Offsets& offsets = x.offsets(c);
    const std::byte* from = x.tensor(c).raw();
    std::byte* to = c.output(out).raw();
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const int64_t first = offsets[i];
      const int64_t last = offsets[i + 1] - 1;
      for (int64_t row = first; row <= last; ++row) {
        std::memcpy(to + static_cast<size_t>(first + last - row) * bytes,
                    from + static_cast<size_t>(row) * bytes, bytes);
      }
    }
    c.output(out).share_lod(x.tensor(c));
  });
}

}  // namespace

void register_sequence_joining(KernelTable& table) {
  for_types<float, double, int32_t, int64_t>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "rows", .prepare = prepare});
    };
    add("sequence_expand", prepare_expand<T>);
    add("sequence_concat", prepare_concat<T>);
    add("sequence_reverse", prepare_reverse);
    if constexpr (std::is_floating_point_v<T>) {
      add("sequence_expand_grad", prepare_expand_grad<T>);
      add("sequence_concat_grad", prepare_concat_grad<T>);
    }
  });
}

}  // namespace fleet::fluid::cpu
