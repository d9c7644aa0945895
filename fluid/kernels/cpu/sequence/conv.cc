// sequence_conv: the rows around each row laid side by side, then one product.
#include <algorithm>

#include "base/strings.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/sequence/sequences.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid::cpu {
namespace {

struct Context {
  SequenceInput x;
  int64_t rows = 0;
  int64_t width = 0;    // of X
  int64_t outputs = 0;  // of Filter
  int64_t length = 0;   // rows laid side by side
  int64_t start = 0;
  int64_t above = 0;  // rows of PaddingData for what lies before a sequence
  int64_t padding_rows = 0;
  int padding = -1;

  explicit Context(const PrepareContext& context) : x(context, "X") {
    const auto attrs = context.attrs<SequenceConvAttrs>();
    const Shape& shape = context.in("X").shape;
    const Shape& filter = context.in("Filter").shape;
    context.require(shape.rank() == 2, "X", "[rows, width]", shape.to_string());
    rows = shape[0];
    width = shape[1];
    length = attrs.context_length;
    start = attrs.context_start;
    above = std::max<int64_t>(0, -start);
    context.require(filter.rank() == 2 && filter[0] == length * width, "Filter",
                    str_cat("[", length * width, ", outputs]"), filter.to_string());
    outputs = filter[1];
    padding = context.input("PaddingData");
    if (padding < 0) return;
    padding_rows = above + std::max<int64_t>(0, start + length - 1);
    context.require(context.in("PaddingData").shape.numel() == padding_rows * width, "PaddingData",
                    str_cat("[", padding_rows, ", ", width, "]"),
                    context.in("PaddingData").shape.to_string());
  }

  int64_t columns() const { return length * width; }

  // f(position within the window, row of X or -1, row of PaddingData) for every place of a row of
  // a sequence [first, end).
  template <class F>
  void each(int64_t row, int64_t first, int64_t end, F f) const {
    for (int64_t k = 0; k < length; ++k) {
      const int64_t at = row + start + k;
      if (at < first) {
        f(k, int64_t{-1}, above + at - first);
      } else if (at >= end) {
        f(k, int64_t{-1}, above + at - end);
      } else {
        f(k, at, int64_t{-1});
      }
    }
  }

  template <class T>
  void lay_out(const KernelContext& c, T* to) const {
    const T* pads = padding >= 0 ? c.in<T>(padding) : nullptr;
    const T* xs = c.in<T>(x.position);
    const Offsets& offsets = x.offsets(c);
    split_rows(c.tiles(), offsets, columns(), [&](int64_t i, int64_t begin, int64_t end) {
      const auto at = static_cast<size_t>(i);
      for (int64_t row = begin; row < end; ++row) {
        each(row, offsets[at], offsets[at + 1], [&](int64_t k, int64_t from, int64_t pad) {
          T* place = to + row * columns() + k * width;
          if (from >= 0) {
            std::copy_n(xs + from * width, width, place);
          } else if (pads != nullptr) {
            std::copy_n(pads + pad * width, width, place);
          } else {
            std::fill_n(place, width, T{});
          }
        });
      }
    });
  }
};

template <class T>
std::unique_ptr<Prepared> prepare_conv(PrepareContext& context) {
  const Context s(context);
  const std::shared_ptr<Gemm<T>> gemm =
      fastest_gemm<T>({.m = s.rows, .n = s.outputs, .k = s.columns()});
  const int filter = context.input("Filter");
  const int out = context.set_output("Out", Shape{s.rows, s.outputs}, dtype_of<T>());
  std::vector<T> columns(static_cast<size_t>(s.rows * s.columns()));
  return make_prepared([=](const KernelContext& c) mutable {
    s.lay_out(c, columns.data());
    gemm->run(columns.data(), c.in<T>(filter), c.out<T>(out), c.scratch(), c.tiles());
    c.output(out).share_lod(s.x.tensor(c));
  });
}

// Gradients of the places go back to the rows that they came from: a row sums those of the windows
// that it is in, in their order.
template <class T>
void give_back_to_rows(const Context& s, const KernelContext& c, const T* columns, T* xs) {
  const Offsets& offsets = s.x.offsets(c);
  const int64_t width = s.width;
  split_rows(c.tiles(), offsets, s.columns(), [&](int64_t i, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      T* to = xs + at * width;
      std::fill_n(to, width, T{});
      for (int64_t k = s.length - 1; k >= 0; --k) {
        const int64_t row = at - s.start - k;
        if (row < offsets[static_cast<size_t>(i)] || row >= offsets[static_cast<size_t>(i) + 1]) {
          continue;
        }
        const T* place = columns + row * s.columns() + k * width;
        for (int64_t j = 0; j < width; ++j) to[j] += place[j];
      }
    }
  });
}

// The same for rows of PaddingData, which all sequences share: in tiles of columns.
template <class T>
void give_back_to_padding(const Context& s, const KernelContext& c, const T* columns, T* pads) {
  constexpr int64_t kColumns = 16;  // a cache line
  const Offsets& offsets = s.x.offsets(c);
  const int64_t cost = s.rows * s.length * kColumns;
  c.tiles().split((s.width + kColumns - 1) / kColumns, cost, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kColumns;
    const int64_t end = std::min(last * kColumns, s.width);
    for (int64_t row = 0; row < s.padding_rows; ++row) {
      std::fill(pads + row * s.width + begin, pads + row * s.width + end, T{});
    }
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      for (int64_t row = offsets[i]; row < offsets[i + 1]; ++row) {
        s.each(row, offsets[i], offsets[i + 1], [&](int64_t k, int64_t from, int64_t pad) {
          if (from >= 0) return;
          const T* place = columns + row * s.columns() + k * s.width;
          for (int64_t j = begin; j < end; ++j) pads[pad * s.width + j] += place[j];
        });
      }
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_conv_grad(PrepareContext& context) {
  const Context s(context);
  context.require(context.in("Out@GRAD").shape.numel() == s.rows * s.outputs, "Out@GRAD",
                  str_cat("[", s.rows, ", ", s.outputs, "]"),
                  context.in("Out@GRAD").shape.to_string());
  const std::shared_ptr<Gemm<T>> to_columns =
      fastest_gemm<T>({.m = s.rows, .n = s.columns(), .k = s.outputs, .transpose_b = true});
  const std::shared_ptr<Gemm<T>> to_filter =
      fastest_gemm<T>({.m = s.columns(), .n = s.outputs, .k = s.rows, .transpose_a = true});
  const int filter = context.input("Filter");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  const int filter_grad =
      context.set_output("Filter@GRAD", context.in("Filter").shape, dtype_of<T>());
  int padding_grad = -1;
  if (s.padding >= 0) {
    padding_grad =
        context.set_output("PaddingData@GRAD", context.in("PaddingData").shape, dtype_of<T>());
  }
  std::vector<T> columns(static_cast<size_t>(s.rows * s.columns()));
  return make_prepared([=](const KernelContext& c) mutable {
    if (filter_grad >= 0) {
      s.lay_out(c, columns.data());
      to_filter->run(columns.data(), c.in<T>(grad), c.out<T>(filter_grad), c.scratch(), c.tiles());
    }
    if (x_grad < 0 && padding_grad < 0) return;
    to_columns->run(c.in<T>(grad), c.in<T>(filter), columns.data(), c.scratch(), c.tiles());
    if (x_grad >= 0) give_back_to_rows(s, c, columns.data(), c.out<T>(x_grad));
    if (padding_grad >= 0) give_back_to_padding(s, c, columns.data(), c.out<T>(padding_grad));
  });
}

}  // namespace

void register_sequence_conv(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("sequence_conv", DeviceKind::kCpu, dtype_of<T>(), {"gemm", prepare_conv<T>});
    table.add_last("sequence_conv_grad", DeviceKind::kCpu, dtype_of<T>(),
                   {"gemm", prepare_conv_grad<T>});
  });
}

}  // namespace fleet::fluid::cpu
