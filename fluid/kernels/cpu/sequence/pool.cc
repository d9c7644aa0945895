// sequence_pool and sequence_softmax.
#include "fluid/kernels/sequence/pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fluid/kernels/cpu/sequence/sequences.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
void pool_sum(const T* rows, int64_t length, int64_t width, T factor, T* out) {
  std::copy_n(rows, width, out);
  for (int64_t row = 1; row < length; ++row) {
    const T* from = rows + row * width;
    for (int64_t k = 0; k < width; ++k) out[k] += from[k];
  }
  if (factor == T{1}) return;
  for (int64_t k = 0; k < width; ++k) out[k] *= factor;
}

template <class T>
void pool_max(const T* rows, int64_t first, int64_t length, int64_t width, T* out, int32_t* index) {
  std::copy_n(rows, width, out);
  if (index != nullptr) std::fill_n(index, width, static_cast<int32_t>(first));
  for (int64_t row = 1; row < length; ++row) {
    const T* from = rows + row * width;
    for (int64_t k = 0; k < width; ++k) {
      if (!(from[k] > out[k])) continue;
      out[k] = from[k];
      if (index != nullptr) index[k] = static_cast<int32_t>(first + row);
    }
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_pool(PrepareContext& context) {
  const auto attrs = context.attrs<SequencePoolAttrs>();
  const SequencePool pool = sequence_pool_of(context);
  const SequenceInput x(context, "X");
  const int out = context.own_output("Out");
  const int index = pool == SequencePool::kMax ? context.own_output("MaxIndex") : -1;
  context.own_lod();
  return make_prepared([=, pad = static_cast<T>(attrs.pad_value)](const KernelContext& c) {
    const Tensor& rows = x.tensor(c);
    const Offsets& offsets = x.offsets(c);
    const int64_t count = sequence_count(offsets);
    Tensor& pooled = make_rows_like(c, out, rows, count);
    pooled.set_lod(outer_levels(rows.lod()));
    T* outs = pooled.data<T>();
    int32_t* indices = nullptr;
    if (index >= 0) {
      indices = c.make_dense(index, DType::kInt32, pooled.shape()).template data<int32_t>();
    }
    const T* xs = rows.data<T>();
    const int64_t width = x.width;
    split_sequences(c.tiles(), offsets, width, [&](int64_t i) {
      const int64_t first = offsets[static_cast<size_t>(i)];
      const int64_t length = offsets[static_cast<size_t>(i) + 1] - first;
      const T* from = xs + first * width;
      T* to = outs + i * width;
      if (length == 0) {
        std::fill_n(to, width, pad);
        if (indices != nullptr) std::fill_n(indices + i * width, width, -1);
      } else if (pool == SequencePool::kMax) {
        pool_max(from, first, length, width, to,
                 indices == nullptr ? nullptr : indices + i * width);
      } else if (is_sum(pool)) {
        pool_sum(from, length, width, pool_factor<T>(pool, length), to);
      } else {
        std::copy_n(pool == SequencePool::kFirst ? from : from + (length - 1) * width, width, to);
      }
    });
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
    const Offsets& offsets = x.offsets(c);
    const int64_t count = sequence_count(offsets);
    const int64_t width = x.width;
    require_pooled(x, c.input(grad), count);
    T* outs = c.out<T>(out);
    split_rows(c.tiles(), offsets, width, [&](int64_t i, int64_t begin, int64_t end) {
      const int64_t first = offsets[static_cast<size_t>(i)];
      const int64_t last = offsets[static_cast<size_t>(i) + 1] - 1;
      const T* from = c.in<T>(grad) + i * width;
      if (is_sum(pool)) {
        const T factor = pool_factor<T>(pool, last + 1 - first);
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t k = 0; k < width; ++k) outs[row * width + k] = from[k] * factor;
        }
        return;
      }
      std::fill(outs + begin * width, outs + end * width, T{});
      const auto* rows = pool == SequencePool::kMax ? c.in<int32_t>(index) + i * width : nullptr;
      const int64_t picked = pool == SequencePool::kFirst ? first : last;
      if (rows != nullptr) {
        for (int64_t k = 0; k < width; ++k) {
          if (rows[k] >= begin && rows[k] < end) outs[rows[k] * width + k] = from[k];
        }
      } else if (picked >= begin && picked < end) {
        std::copy_n(from, width, outs + picked * width);
      }
    });
  });
}

constexpr int64_t kExponential = 16;  // in elements of a simple loop

template <class T>
std::unique_ptr<Prepared> prepare_softmax(PrepareContext& context) {
  const SequenceInput x(context, "X");
  const Shape shape = context.in("X").shape;
  context.require(x.width == 1, "X", "[rows, 1]", shape.to_string());
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const Offsets& offsets = x.offsets(c);
    const T* xs = c.in<T>(x.position);
    T* outs = c.out<T>(out);
    split_sequences(c.tiles(), offsets, kExponential, [&](int64_t i) {
      const int64_t first = offsets[static_cast<size_t>(i)];
      const int64_t end = offsets[static_cast<size_t>(i) + 1];
      if (first == end) return;
      const T largest = *std::max_element(xs + first, xs + end);
      T sum{};
      for (int64_t k = first; k < end; ++k) sum += outs[k] = std::exp(xs[k] - largest);
      for (int64_t k = first; k < end; ++k) outs[k] /= sum;
    });
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
    const Offsets& offsets = x.offsets(c);
    const T* outs = c.in<T>(out);
    const T* grads = c.in<T>(grad);
    T* x_grads = c.out<T>(x_grad);
    split_sequences(c.tiles(), offsets, 4, [&](int64_t i) {
      const int64_t first = offsets[static_cast<size_t>(i)];
      const int64_t end = offsets[static_cast<size_t>(i) + 1];
      T dot{};
      for (int64_t k = first; k < end; ++k) dot += outs[k] * grads[k];
      for (int64_t k = first; k < end; ++k) x_grads[k] = outs[k] * (grads[k] - dot);
    });
  });
}

}  // namespace

void register_sequence_pool(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add("sequence_pool", prepare_pool<T>);
    add("sequence_pool_grad", prepare_pool_grad<T>);
    add("sequence_softmax", prepare_softmax<T>);
    add("sequence_softmax_grad", prepare_softmax_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
