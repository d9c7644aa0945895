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
    const int64_t needed = above + std::max<int64_t>(0, start + length - 1);
    context.require(context.in("PaddingData").shape.numel() == needed * width, "PaddingData",
                    str_cat("[", needed, ", ", width, "]"),
                    context.in("PaddingData").shape.to_string());
  }

  int64_t columns() const { return length * width; }

  // f(row, position within the window, row of X or -1, row of PaddingData) for every place.
  template <class F>
  void each(const KernelContext& c, F f) const {
    const Offsets& offsets = x.offsets(c);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      for (int64_t row = offsets[i]; row < offsets[i + 1]; ++row) {
        for (int64_t k = 0; k < length; ++k) {
          const int64_t at = row + start + k;
          if (at < offsets[i]) {
            f(row, k, int64_t{-1}, above + at - offsets[i]);
          } else if (at >= offsets[i + 1]) {
            f(row, k, int64_t{-1}, above + at - offsets[i + 1]);
          } else {
            f(row, k, at, int64_t{-1});
          }
        }
      }
    }
  }

  template <class T>
  void lay_out(const KernelContext& c, T* to) const {
    const T* pads = padding >= 0 ? c.in<T>(padding) : nullptr;
    const T* xs = c.in<T>(x.position);
    each(c, [&](int64_t row, int64_t k, int64_t from, int64_t pad) {
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

// Gradients of the places go back to the rows that they came from.
template <class T>
void give_back(const Context& s, const KernelContext& c, const T* columns, int x_grad,
               int padding_grad) {
  T* xs = x_grad >= 0 ? c.out<T>(x_grad) : nullptr;
  T* pads = padding_grad >= 0 ? c.out<T>(padding_grad) : nullptr;
  if (xs != nullptr) std::fill_n(xs, s.rows * s.width, T{});
  if (pads != nullptr) std::fill_n(pads, c.output(padding_grad).numel(), T{});
  s.each(c, [&](int64_t row, int64_t k, int64_t from, int64_t pad) {
    const T* place = columns + row * s.columns() + k * s.width;
    T* to = nullptr;
    if (from >= 0 && xs != nullptr) to = xs + from * s.width;
    if (from < 0 && pads != nullptr) to = pads + pad * s.width;
    for (int64_t j = 0; to != nullptr && j < s.width; ++j) to[j] += place[j];
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
    give_back(s, c, columns.data(), x_grad, padding_grad);
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
