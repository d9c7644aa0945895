// Ops of sequences, whose offsets come from the host in every run.
#include "fluid/ops/sequence/sequence.h"

#include <vector>

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/device_rows_impl.h"
#include "fluid/kernels/cuda/sequence/sequence_loops.h"
#include "fluid/kernels/cuda/shape/move_loops.h"
#include "fluid/kernels/sequence/sequences.h"

namespace fleet::fluid::cuda {
namespace {

// In the stream's scratch.
const int64_t* put_numbers(const KernelContext& c, const std::vector<int64_t>& numbers) {
  auto* there = stream_of(c).scratch<int64_t>(static_cast<int64_t>(numbers.size()));
  stream_of(c).upload(numbers.data(), there, numbers.size() * sizeof(int64_t));
  return there;
}

SequenceRows put_sequences(const KernelContext& c, const SequenceInput& x) {
  const SequenceOffsets& offsets = x.offsets(c);
  return {.offsets = put_numbers(c, offsets), .count = sequence_count(offsets), .width = x.width};
}

template <class T>
T* data_of(Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.raw());
}

template <class T>
std::unique_ptr<Prepared> prepare_pool(PrepareContext& context) {
  const SequencePool pool = sequence_pool_of(context);
  const auto pad = static_cast<T>(context.attrs<SequencePoolAttrs>().pad_value);
  const SequenceInput x(context, "X");
  const int out = context.own_output("Out");
  const int index = pool == SequencePool::kMax ? context.own_output("MaxIndex") : -1;
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    const Tensor& rows = x.tensor(c);
    const SequenceRows sequences = put_sequences(c, x);
    Tensor& pooled = make_rows_like(c, out, rows, sequences.count);
    pooled.set_lod(outer_levels(rows.lod()));
    int32_t* indices = nullptr;
    if (index >= 0) {
      indices = data_of<int32_t>(c.make_dense(index, DType::kInt32, pooled.shape()));
    }
    pool_sequences<T>(stream_of(c).raw(), pool, sequences, c.in<T>(x.position), pad,
                      data_of<T>(pooled), indices);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_pool_grad(PrepareContext& context) {
  const SequencePool pool = sequence_pool_of(context);
  const SequenceInput x(context, "X");
  const int grad = context.input("Out@GRAD");
  const int index = context.input("MaxIndex");
  const int out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    c.output(out).share_lod(x.tensor(c));
    const SequenceRows sequences = put_sequences(c, x);
    require_pooled(x, c.input(grad), sequences.count);
    const RawStream stream = stream_of(c).raw();
    if (!is_sum(pool)) fill<T>(stream, T{}, c.out<T>(out), c.output(out).numel());
    const int32_t* indices = pool == SequencePool::kMax ? c.in<int32_t>(index) : nullptr;
    pool_sequences_back<T>(stream, pool, sequences, c.in<T>(grad), indices, c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_softmax(PrepareContext& context) {
  const SequenceInput x(context, "X");
  const Shape shape = context.in("X").shape;
  context.require(x.width == 1, "X", "[rows, 1]", shape.to_string());
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    sequence_softmax<T>(stream_of(c).raw(), put_sequences(c, x), c.in<T>(x.position),
                        c.out<T>(out));
    c.output(out).share_lod(x.tensor(c));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_softmax_grad(PrepareContext& context) {
  const SequenceInput x(context, "X");
  const Shape shape = context.in("X").shape;
  for (const char* slot : {"Out", "Out@GRAD"}) {
    context.require(context.in(slot).shape.numel() == shape.numel(), slot, shape.to_string(),
                    context.in(slot).shape.to_string());
  }
  const int out = context.input("Out");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    sequence_softmax_back<T>(stream_of(c).raw(), put_sequences(c, x), c.in<T>(out), c.in<T>(grad),
                             c.out<T>(x_grad));
  });
}

// The row of X that each row of Out is.
std::vector<int64_t> expanded_rows(const KernelContext& c, const SequenceRepeats& repeats) {
  std::vector<int64_t> rows;
  repeats.each(c, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) rows.push_back(row);
  });
  return rows;
}

// Of rows of a tensor.
RowIndices indices_at(const KernelContext& c, const std::vector<int64_t>& rows, const Tensor& of) {
  return {.values = put_numbers(c, rows),
          .count = static_cast<int64_t>(rows.size()),
          .rows = of.shape()[0]};
}

template <class T>
std::unique_ptr<Prepared> prepare_expand(PrepareContext& context) {
  const SequenceRepeats repeats(context);
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    const SequenceInput& x = repeats.x();
    const std::vector<int64_t> rows = expanded_rows(c, repeats);
    const auto count = static_cast<int64_t>(rows.size());
    Tensor& expanded = make_rows_like(c, out, x.tensor(c), count);
    expanded.set_lod(repeats.lod(c));
    take_rows<T>(stream_of(c).raw(), indices_at(c, rows, x.tensor(c)), x.width, c.in<T>(x.position),
                 data_of<T>(expanded));
  });
}

// Rows of the gradient that came from one row of X are added in their order.
template <class T>
std::unique_ptr<Prepared> prepare_expand_grad(PrepareContext& context) {
  const SequenceRepeats repeats(context);
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  context.own_lod();
  return make_prepared([=, groups = UploadedGroups()](const KernelContext& c) mutable {
    const SequenceInput& x = repeats.x();
    c.output(x_grad).share_lod(x.tensor(c));
    const std::vector<int64_t> rows = expanded_rows(c, repeats);
    const auto count = static_cast<int64_t>(rows.size());
    if (c.input(grad).numel() != count * x.width) {
      throw_sequence_count(x.where, count, c.input(grad).numel());
    }
    groups.group(rows, x.tensor(c).shape()[0]);
    const RawStream stream = stream_of(c).raw();
    fill<T>(stream, T{}, c.out<T>(x_grad), c.output(x_grad).numel());
    const RowValues<T> from{.groups = groups.put(c), .values = c.in<T>(grad), .width = x.width};
    add_groups<T>(stream, from, c.out<T>(x_grad));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_reverse(PrepareContext& context) {
  const SequenceInput x(context, "X");
  const int out = context.set_output("Y", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const SequenceOffsets& offsets = x.offsets(c);
    std::vector<int64_t> rows;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      for (int64_t row = offsets[i + 1]; row > offsets[i]; --row) rows.push_back(row - 1);
    }
    take_rows<T>(stream_of(c).raw(), indices_at(c, rows, x.tensor(c)), x.width, c.in<T>(x.position),
                 c.out<T>(out));
    c.output(out).share_lod(x.tensor(c));
  });
}

// For each input, where in Out its rows are.
std::vector<std::vector<int64_t>> joined_rows(const KernelContext& c, const SequenceParts& parts) {
  std::vector<std::vector<int64_t>> positions(parts.inputs().size());
  int64_t next = 0;
  parts.each(c, [&](size_t k, int64_t, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) positions[k].push_back(next++);
  });
  return positions;
}

template <class T>
std::unique_ptr<Prepared> prepare_concat(PrepareContext& context) {
  const SequenceParts parts(context);
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    SequenceOffsets offsets = parts.joined(c);
    Tensor& joined = make_rows_like(c, out, parts.inputs().front().tensor(c), offsets.back());
    const auto positions = joined_rows(c, parts);
    for (size_t k = 0; k < positions.size(); ++k) {
      put_rows<T>(stream_of(c).raw(), put_numbers(c, positions[k]),
                  static_cast<int64_t>(positions[k].size()), parts.width(),
                  c.in<T>(parts.inputs()[k].position), data_of<T>(joined));
    }
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
    const auto positions = joined_rows(c, parts);
    for (size_t k = 0; k < positions.size(); ++k) {
      if (outs[k] < 0) continue;
      c.output(outs[k]).share_lod(parts.inputs()[k].tensor(c));
      take_rows<T>(stream_of(c).raw(), indices_at(c, positions[k], c.input(grad)), parts.width(),
                   c.in<T>(grad), c.out<T>(outs[k]));
    }
  });
}

}  // namespace

void register_sequence(KernelTable& table) {
  const auto list = [&table](DType dtype, const char* op, auto prepare) {
    table.add_last(op, DeviceKind::kCuda, dtype, {.name = "loop", .prepare = prepare});
  };
  cpu::for_types<float, double, int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    list(dtype_of<T>(), "sequence_expand", prepare_expand<T>);
    list(dtype_of<T>(), "sequence_concat", prepare_concat<T>);
    list(dtype_of<T>(), "sequence_reverse", prepare_reverse<T>);
  });
  cpu::for_types<float, double>([&]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    list(dtype, "sequence_pool", prepare_pool<T>);
    list(dtype, "sequence_pool_grad", prepare_pool_grad<T>);
    list(dtype, "sequence_softmax", prepare_softmax<T>);
    list(dtype, "sequence_softmax_grad", prepare_softmax_grad<T>);
    list(dtype, "sequence_expand_grad", prepare_expand_grad<T>);
    list(dtype, "sequence_concat_grad", prepare_concat_grad<T>);
  });
}

}  // namespace fleet::fluid::cuda
