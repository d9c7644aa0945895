// Activations, broadcast addition and subtraction, sums and means.
#include "fluid/ops/math/elementwise.h"

#include <array>
#include <string>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T, Unary function>
std::unique_ptr<Prepared> prepare_unary(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    unary<T>(stream_of(c).raw(), function, c.in<T>(x), c.out<T>(out), n);
  });
}

template <class T, Unary function>
std::unique_ptr<Prepared> prepare_unary_grad(PrepareContext& context) {
  const char* slot = context.has_input("Out") ? "Out" : "X";
  const Shape shape = context.in("Out@GRAD").shape;
  context.require(context.in(slot).shape == shape, slot, shape.to_string(),
                  context.in(slot).shape.to_string());
  const int64_t n = shape.numel();
  const int in = context.input(slot);
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    unary_back<T>(stream_of(c).raw(), function, c.in<T>(in), c.in<T>(grad), c.out<T>(out), n);
  });
}

using Steps = std::array<int64_t, Shape::kMaxRank>;
static_assert(Shape::kMaxRank == kMaxDims);

// Row-major steps of `part` laid along `out` from dimension `start` on; 0 where it is repeated.
Steps steps_along(const Shape& out, const Shape& part, int start) {
  Steps steps{};
  int64_t step = 1;
  for (int i = part.rank() - 1; i >= 0; --i) {
    if (start + i < out.rank()) steps[static_cast<size_t>(start + i)] = part[i] == 1 ? 0 : step;
    step *= part[i];
  }
  return steps;
}

struct Broadcast {
  Shape out;
  BroadcastDims dims;
};

Broadcast broadcast_of(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const Shape& y = context.in("Y").shape;
  const int axis = context.attrs<ElementwiseAttrs>().axis;
  Broadcast b = {.out = broadcast_shape(x, y, axis, str_cat("op '", context.op().type, "'")),
                 .dims = {}};
  const int difference = x.rank() < y.rank() ? y.rank() - x.rank() : x.rank() - y.rank();
  const int start = axis < 0 ? difference : axis;
  const Steps xs = steps_along(b.out, x, x.rank() < y.rank() ? start : 0);
  const Steps ys = steps_along(b.out, y, x.rank() < y.rank() ? 0 : start);
  BroadcastDims& dims = b.dims;
  for (int i = 0; i < b.out.rank(); ++i) {
    if (b.out[i] == 1) continue;
    const int64_t size = b.out[i];
    const int64_t x_step = xs[static_cast<size_t>(i)];
    const int64_t y_step = ys[static_cast<size_t>(i)];
    const int last = dims.rank - 1;
    // Neighbouring dimensions that both operands walk alike become one.
    if (last >= 0 && dims.x_step[last] == x_step * size && dims.y_step[last] == y_step * size) {
      dims.size[last] *= size;
    } else {
      dims.size[++dims.rank - 1] = size;
    }
    dims.x_step[dims.rank - 1] = x_step;
    dims.y_step[dims.rank - 1] = y_step;
  }
  return b;
}

template <class T, int y_sign>
std::unique_ptr<Prepared> prepare_add(PrepareContext& context) {
  const ValueSpec& y_spec = context.in("Y");
  context.require(y_spec.dtype == dtype_of<T>(), "Y", std::string(dtype_name(dtype_of<T>())),
                  std::string(dtype_name(y_spec.dtype)));
  const Broadcast broadcast = broadcast_of(context);
  const int64_t n = broadcast.out.numel();
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", broadcast.out, dtype_of<T>());
  return make_prepared([=, dims = broadcast.dims](const KernelContext& c) {
    add<T>(stream_of(c).raw(), dims, c.in<T>(x), c.in<T>(y), T(y_sign), c.out<T>(out), n);
  });
}

// The sums that take a gradient of the result's shape back to an operand with these steps.
SumDims sums_back(const BroadcastDims& dims, const int64_t* operand_step) {
  SumDims sums;
  int64_t step = 1;
  for (int d = dims.rank - 1; d >= 0; --d) {
    (operand_step[d] == 0 ? sums.terms : sums.results) *= dims.size[d];
  }
  std::array<int64_t, kMaxDims> steps{};
  for (int d = dims.rank - 1; d >= 0; --d) {
    steps[static_cast<size_t>(d)] = step;
    step *= dims.size[d];
  }
  for (int d = 0; d < dims.rank; ++d) {
    const bool gone = operand_step[d] == 0;
    int& rank = gone ? sums.gone_rank : sums.kept_rank;
    (gone ? sums.gone_size : sums.kept_size)[rank] = dims.size[d];
    (gone ? sums.gone_step : sums.kept_step)[rank] = steps[static_cast<size_t>(d)];
    ++rank;
  }
  return sums;
}

template <class T>
void pass_back(const KernelContext& c, const SumDims& sums, const T* grad, T divisor, T* out) {
  if (sums.gone_rank == 0) {
    scale<T>(stream_of(c).raw(), {.scale = divisor, .bias = T{}}, grad, out, sums.results);
  } else {
    sum_dims<T>(stream_of(c).raw(), sums, grad, divisor, out);
  }
}

template <class T, int y_sign>
std::unique_ptr<Prepared> prepare_add_grad(PrepareContext& context) {
  const Broadcast broadcast = broadcast_of(context);
  context.require(context.in("Out@GRAD").shape == broadcast.out, "Out@GRAD",
                  broadcast.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const SumDims x_sums = sums_back(broadcast.dims, broadcast.dims.x_step);
  const SumDims y_sums = sums_back(broadcast.dims, broadcast.dims.y_step);
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* grads = c.in<T>(grad);
    if (x_grad >= 0) pass_back<T>(c, x_sums, grads, T{1}, c.out<T>(x_grad));
    if (y_grad >= 0) pass_back<T>(c, y_sums, grads, T(y_sign), c.out<T>(y_grad));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_mean(PrepareContext& context) {
  SumDims all;
  all.gone_rank = 1;
  all.terms = context.in("X").shape.numel();
  all.gone_size[0] = all.terms;
  all.gone_step[0] = 1;
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    sum_dims<T>(stream_of(c).raw(), all, c.in<T>(x), static_cast<T>(all.terms), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_mean_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  context.require(context.in("Out@GRAD").shape.numel() == 1, "Out@GRAD", "one element",
                  context.in("Out@GRAD").shape.to_string());
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    fill_quotient<T>(stream_of(c).raw(), c.in<T>(grad), static_cast<T>(n), c.out<T>(out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_sum(PrepareContext& context) {
  const size_t count = context.input_count("X");
  if (count > static_cast<size_t>(kMaxSummands)) return nullptr;
  const Shape shape = context.in("X").shape;
  for (size_t i = 1; i < count; ++i) {
    const ValueSpec& x = context.in("X", i);
    context.require(x.kind == ValueKind::kTensor && x.dtype == dtype_of<T>() && x.shape == shape,
                    "X", str_cat("equal shapes and types, ", shape), x.shape.to_string());
  }
  const int64_t n = shape.numel();
  const int first = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Summands<T> summands;
    summands.count = static_cast<int>(count);
    for (int i = 0; i < summands.count; ++i) summands.arrays[i] = c.in<T>(first + i);
    tree_sum<T>(stream_of(c).raw(), summands, c.out<T>(out), n);
  });
}

}  // namespace

void register_elementwise(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const std::string& op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    list("relu", prepare_unary<T, Unary::kRelu>);
    list("relu_grad", prepare_unary_grad<T, Unary::kRelu>);
    list("sigmoid", prepare_unary<T, Unary::kSigmoid>);
    list("sigmoid_grad", prepare_unary_grad<T, Unary::kSigmoid>);
    list("tanh", prepare_unary<T, Unary::kTanh>);
    list("tanh_grad", prepare_unary_grad<T, Unary::kTanh>);
    list("square", prepare_unary<T, Unary::kSquare>);
    list("square_grad", prepare_unary_grad<T, Unary::kSquare>);
    list("elementwise_add", prepare_add<T, 1>);
    list("elementwise_add_grad", prepare_add_grad<T, 1>);
    list("elementwise_sub", prepare_add<T, -1>);
    list("elementwise_sub_grad", prepare_add_grad<T, -1>);
    list("mean", prepare_mean<T>);
    list("mean_grad", prepare_mean_grad<T>);
  });
  cpu::for_types<float, double, int64_t>([&table]<class T>(std::type_identity<T>) {
    table.add_last("sum", DeviceKind::kCuda, dtype_of<T>(), {"tree", prepare_sum<T>});
  });
}

}  // namespace fleet::fluid::cuda
