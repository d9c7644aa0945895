// sequence_expand, sequence_concat and sequence_reverse.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/sequence/sequences.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid::cpu {
namespace {

[[noreturn]] void throw_count(const std::string& where, int64_t expected, int64_t got) {
  throw_error(ErrorCode::kShapeMismatch, {.what = "inputs have different numbers of sequences",
                                          .where = where,
                                          .expected = str_cat(expected, " sequences"),
                                          .got = str_cat(got),
                                          .fix = "feed tensors whose LoD have as many sequences"});
}

// How x is repeated: the sequences of x (rows, without structure) and how often each comes.
struct Expansion {
  SequenceInput x;
  SequenceInput y;
  int ref_level = -1;

  Expansion(const PrepareContext& context)
      : x(context, "X"),
        y(context, "Y"),
        ref_level(context.attrs<SequenceExpandAttrs>().ref_level) {}

  Offsets x_offsets(const KernelContext& c) const {
    if (!x.tensor(c).lod().empty()) return x.offsets(c);
    Offsets each;
    for (int64_t row = 0; row <= x.tensor(c).shape()[0]; ++row) each.push_back(row);
    return each;
  }

  // f(first row of x, rows) for every repetition, in order.
  template <class F>
  void each(const KernelContext& c, F f) const {
    const Offsets sequences = x_offsets(c);
    const Offsets& repeats = y.offsets(c, ref_level);
    if (sequences.size() != repeats.size()) {
      throw_count(x.where, sequence_count(repeats), sequence_count(sequences));
    }
    for (size_t i = 0; i + 1 < sequences.size(); ++i) {
      for (int64_t k = repeats[i]; k < repeats[i + 1]; ++k) {
        f(sequences[i], sequences[i + 1] - sequences[i]);
      }
    }
  }
};

template <class T>
std::unique_ptr<Prepared> prepare_expand(PrepareContext& context) {
  const Expansion expansion(context);
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    const Tensor& x = expansion.x.tensor(c);
    Offsets offsets = {0};
    expansion.each(c, [&](int64_t, int64_t rows) { offsets.push_back(offsets.back() + rows); });
    Tensor& expanded = make_rows_like(c, out, x, offsets.back());
    const int64_t width = expansion.x.width;
    T* to = expanded.data<T>();
    expansion.each(c, [&](int64_t first, int64_t rows) {
      to = std::copy_n(x.data<T>() + first * width, rows * width, to);
    });
    expanded.set_lod(x.lod().empty() ? LoD() : LoD{std::move(offsets)});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_expand_grad(PrepareContext& context) {
  const Expansion expansion(context);
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    c.output(x_grad).share_lod(expansion.x.tensor(c));
    const int64_t width = expansion.x.width;
    T* outs = c.out<T>(x_grad);
    std::fill_n(outs, c.output(x_grad).numel(), T{});
    const T* from = c.in<T>(grad);
    int64_t left = c.input(grad).numel();
    expansion.each(c, [&](int64_t first, int64_t rows) {
      left -= rows * width;
      if (left < 0) return;
      T* to = outs + first * width;
      for (int64_t k = 0; k < rows * width; ++k) to[k] += from[k];
      from += rows * width;
    });
    if (left != 0) throw_count(expansion.x.where, 0, left);
  });
}

std::vector<SequenceInput> inputs_of(const PrepareContext& context) {
  std::vector<SequenceInput> inputs;
  for (size_t i = 0; i < context.input_count("X"); ++i) {
    inputs.emplace_back(context, "X", i);
    context.require(inputs[i].width == inputs[0].width, "X",
                    str_cat("rows of ", inputs[0].width, " elements"),
                    context.in("X", i).shape.to_string());
  }
  return inputs;
}

// f(input, first row, rows) for sequence 0 of every input, sequence 1 of every input, …
template <class F>
void each_part(const KernelContext& c, const std::vector<SequenceInput>& inputs, F f) {
  const int64_t count = sequence_count(inputs[0].offsets(c));
  for (const SequenceInput& input : inputs) {
    const int64_t own = sequence_count(input.offsets(c));
    if (own != count) throw_count(input.where, count, own);
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Offsets& offsets = inputs[k].offsets(c);
      f(k, offsets[i], offsets[i + 1] - offsets[i]);
    }
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_concat(PrepareContext& context) {
  const auto inputs = inputs_of(context);
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    Offsets offsets = {0};
    int64_t total = 0;
    each_part(c, inputs, [&](size_t k, int64_t, int64_t rows) {
      total += rows;
      if (k + 1 == inputs.size()) offsets.push_back(total);
    });
    const int64_t width = inputs[0].width;
    Tensor& joined = make_rows_like(c, out, inputs[0].tensor(c), total);
    T* to = joined.data<T>();
    each_part(c, inputs, [&](size_t k, int64_t first, int64_t rows) {
      to = std::copy_n(c.in<T>(inputs[k].position) + first * width, rows * width, to);
    });
    joined.set_lod({std::move(offsets)});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_concat_grad(PrepareContext& context) {
  const auto inputs = inputs_of(context);
  const int grad = context.input("Out@GRAD");
  int64_t total = 0;
  std::vector<int> outs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& x = context.in("X", i).shape;
    total += x.numel();
    outs.push_back(context.set_output("X@GRAD", x, dtype_of<T>(), i));
  }
  context.require(context.in("Out@GRAD").shape.numel() == total, "Out@GRAD",
                  str_cat(total, " elements"), context.in("Out@GRAD").shape.to_string());
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    for (size_t k = 0; k < outs.size(); ++k) {
      if (outs[k] >= 0) c.output(outs[k]).share_lod(inputs[k].tensor(c));
    }
    const int64_t width = inputs[0].width;
    const T* from = c.in<T>(grad);
    each_part(c, inputs, [&](size_t k, int64_t first, int64_t rows) {
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
