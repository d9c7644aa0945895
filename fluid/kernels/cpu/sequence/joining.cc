// sequence_expand, sequence_concat and sequence_reverse.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/sequence/sequences.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid::cpu {
namespace {

// Runs of rows of inputs (null: nobody wants them) that make an output, one after the other.
template <class T>
struct Runs {
  void add(T* of_input, int64_t rows) {
    starts.push_back(of_input);
    offsets.push_back(offsets.back() + rows);
  }
  // f(rows of an input, rows of the output, elements) for all, in tiles.
  template <class U, class F>
  void each(const Tiles& tiles, U* of_output, int64_t width, const F& f) const {
    split_rows(tiles, offsets, width, [&](int64_t i, int64_t begin, int64_t end) {
      T* const start = starts[static_cast<size_t>(i)];
      if (start == nullptr) return;
      const int64_t skipped = (begin - offsets[static_cast<size_t>(i)]) * width;
      f(start + skipped, of_output + begin * width, (end - begin) * width);
    });
  }

  std::vector<T*> starts;
  Offsets offsets = {0};  // of the output
};

template <class T>
std::unique_ptr<Prepared> prepare_expand(PrepareContext& context) {
  const SequenceRepeats repeats(context);
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    const SequenceInput& x = repeats.x();
    Runs<const T> runs;
    repeats.each(c, [&](int64_t first, int64_t rows) {
      runs.add(c.in<T>(x.position) + first * x.width, rows);
    });
    Tensor& expanded = make_rows_like(c, out, x.tensor(c), runs.offsets.back());
    runs.each(c.tiles(), expanded.data<T>(), x.width,
              [](const T* from, T* to, int64_t n) { std::copy_n(from, n, to); });
    expanded.set_lod(repeats.lod(c));
  });
}

// A row gets the gradients of its repetitions in their order.
template <class T>
std::unique_ptr<Prepared> prepare_expand_grad(PrepareContext& context) {
  const SequenceRepeats repeats(context);
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    c.output(x_grad).share_lod(repeats.x().tensor(c));
    const int64_t width = repeats.x().width;
    struct Repetition {
      int64_t first, rows, at;
    };
    std::vector<Repetition> all;
    int64_t total = 0;
    repeats.each(c, [&](int64_t first, int64_t rows) {
      all.push_back({first, rows, total});
      total += rows;
    });
    if (const int64_t left = c.input(grad).numel() - total * width; left != 0) {
      throw_sequence_count(repeats.x().where, 0, left);
    }
    const int64_t cost = width * (1 + total / std::max<int64_t>(1, c.output(x_grad).shape()[0]));
    c.tiles().split(c.output(x_grad).shape()[0], cost, [&](int64_t begin, int64_t end) {
      T* outs = c.out<T>(x_grad);
      std::fill(outs + begin * width, outs + end * width, T{});
      auto it = std::partition_point(all.begin(), all.end(), [&](const Repetition& one) {
        return one.first + one.rows <= begin;
      });
      for (; it != all.end() && it->first < end; ++it) {
        const int64_t first = std::max(begin, it->first);
        const int64_t last = std::min(end, it->first + it->rows);
        const T* from = c.in<T>(grad) + (it->at + first - it->first) * width;
        T* to = outs + first * width;
        for (int64_t k = 0; k < (last - first) * width; ++k) to[k] += from[k];
      }
    });
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
    Runs<const T> runs;
    parts.each(c, [&](size_t k, int64_t first, int64_t rows) {
      runs.add(c.in<T>(parts.inputs()[k].position) + first * width, rows);
    });
    runs.each(c.tiles(), joined.data<T>(), width,
              [](const T* from, T* to, int64_t n) { std::copy_n(from, n, to); });
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
    Runs<T> runs;
    parts.each(c, [&](size_t k, int64_t first, int64_t rows) {
      runs.add(outs[k] >= 0 ? c.out<T>(outs[k]) + first * width : nullptr, rows);
    });
    runs.each(c.tiles(), c.in<T>(grad), width,
              [](T* to, const T* from, int64_t n) { std::copy_n(from, n, to); });
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
    const auto cost = static_cast<int64_t>(bytes / sizeof(float));
    split_rows(c.tiles(), offsets, cost, [&](int64_t i, int64_t begin, int64_t end) {
      const int64_t first = offsets[static_cast<size_t>(i)];
      const int64_t last = offsets[static_cast<size_t>(i) + 1] - 1;
      for (int64_t row = begin; row < end; ++row) {
        std::memcpy(to + static_cast<size_t>(first + last - row) * bytes,
                    from + static_cast<size_t>(row) * bytes, bytes);
      }
    });
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
