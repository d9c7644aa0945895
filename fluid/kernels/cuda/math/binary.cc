// Broadcasting ops of two tensors, and reductions over dimensions.
#include <array>
#include <set>
#include <string>

#include "base/strings.h"
#include "fluid/core/device_memory.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/math/binary_loops_impl.h"
#include "fluid/kernels/cuda/math/reduce_loops.h"
#include "fluid/kernels/cuda/math/rows_of_ops_loops.h"
#include "fluid/kernels/cuda/math/unary_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/ops/math/compare.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/math/reduce.h"

namespace fleet::fluid::cuda {
namespace {

using cpu::for_types;

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

Broadcast broadcast_of(const PrepareContext& context, int axis) {
  const Shape& x = context.in("X").shape;
  const Shape& y = context.in("Y").shape;
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

int axis_of(const PrepareContext& context) {
  const std::string& op = context.op().type;
  const bool floors = op == "elementwise_floordiv" || op == "elementwise_mod";
  return floors ? context.attrs<FloorDivisionAttrs>().axis : context.attrs<ElementwiseAttrs>().axis;
}

// Whether the op is one of a row, whose work is one kernel (rows_of_ops_loops.h).
bool in_a_row(const KernelContext& c) {
  return c.more_follow() || target_of(c).batch->is_open();
}

// Before an op that does not take part.
RawStream end_row(const KernelContext& c) {
  const UpdateTarget target = target_of(c);
  target.batch->put(target.stream);
  return target.stream;
}

// What a factor does to a tensor, where ops in a row do so to many; null for another function.
template <class T>
using NumberFunction = void (*)(const UpdateTarget&, const T* x, const T* y, T* out, int64_t n);
template <class T, class R>
NumberFunction<T> by_number(const PrepareContext& context, const BinaryFunction<T, R>& function) {
  if constexpr (std::is_same_v<T, R> && std::is_same_v<T, float>) {
    const bool number = context.in("Y").shape.numel() == 1;
    const std::string_view op = function.op;
    if (number && op == "elementwise_mul") return times_number<T>;
    if (number && op == "elementwise_div") return over_number<T>;
  }
  return nullptr;
}

template <class T, class R>
std::unique_ptr<Prepared> prepare_binary(PrepareContext& context, int axis,
                                         const BinaryFunction<T, R>& function) {
  const ValueSpec& y_spec = context.in("Y");
  context.require(y_spec.dtype == element_type<T>(), "Y",
                  std::string(dtype_name(element_type<T>())),
                  std::string(dtype_name(y_spec.dtype)));
  const Broadcast broadcast = broadcast_of(context, axis);
  const int64_t n = broadcast.out.numel();
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", broadcast.out, element_type<R>());
  const NumberFunction<T> by = by_number(context, function);
  return make_prepared([=, dims = broadcast.dims, value = function.value](const KernelContext& c) {
    if constexpr (std::is_same_v<T, R>) {
      if (by != nullptr && in_a_row(c)) {
        return by(target_of(c), c.in<T>(x), c.in<T>(y), c.out<T>(out), n);
      }
    }
    value(end_row(c), dims, c.in<T>(x), c.in<T>(y), c.out<R>(out), n);
  });
}

// Which elements of the result were made of each element of an operand with these steps.
SumDims sums_back(const BroadcastDims& dims, const int64_t* operand_step) {
  SumDims sums;
  std::array<int64_t, kMaxDims> steps{};
  int64_t step = 1;
  for (int d = dims.rank - 1; d >= 0; --d) {
    (operand_step[d] == 0 ? sums.terms : sums.results) *= dims.size[d];
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
T* partials(const KernelContext& c, const SumDims& dims) {
  return stream_of(c).scratch<T>(reduce_partials(dims));
}

template <class T>
std::unique_ptr<Prepared> prepare_binary_grad(PrepareContext& context,
                                              const BinaryGradient<T>& gradient) {
  const Broadcast broadcast = broadcast_of(context, context.attrs<ElementwiseAttrs>().axis);
  context.require(context.in("Out@GRAD").shape == broadcast.out, "Out@GRAD",
                  broadcast.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const SumDims x_sums = sums_back(broadcast.dims, broadcast.dims.x_step);
  const SumDims y_sums = sums_back(broadcast.dims, broadcast.dims.y_step);
  const int x = context.input("X");
  const int y = context.input("Y");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, element_type<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, element_type<T>());
  return make_prepared([=, dims = broadcast.dims](const KernelContext& c) {
    const auto pass = [&](BinaryBack<T> back, const SumDims& sums, int out) {
      if (out < 0) return;
      back(stream_of(c).raw(), dims, sums, c.in<T>(x), c.in<T>(y), c.in<T>(grad),
           partials<Computed<T>>(c, sums), c.out<T>(out));
    };
    pass(gradient.to_x, x_sums, x_grad);
    pass(gradient.to_y, y_sums, y_grad);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_mean(PrepareContext& context) {
  const SumDims all = sum_of_all(context.in("X").shape.numel());
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    sum_dims<T>(stream_of(c).raw(), all, c.in<T>(x), static_cast<T>(all.terms), partials<T>(c, all),
                c.out<T>(out));
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

// Which dimensions of x go, and what is left.
struct Reduction {
  Shape out;
  SumDims dims;
};

Reduction reduction_of(const PrepareContext& context) {
  const auto attrs = context.attrs<ReduceAttrs>();
  Shape x = context.in("X").shape;
  if (x.rank() == 0) x = Shape{1};
  const int rank = x.rank();
  std::set<int> gone_dims;
  for (int dim : attrs.dim) gone_dims.insert(dim < 0 ? dim + rank : dim);
  Reduction r;
  bool before = false;
  for (int i = 0; i < rank; ++i) {
    const bool gone = attrs.reduce_all || gone_dims.contains(i);
    if (!gone || attrs.keep_dim) r.out.push_back(gone ? 1 : x[i]);
    (gone ? r.dims.terms : r.dims.results) *= x[i];
    int& count = gone ? r.dims.gone_rank : r.dims.kept_rank;
    auto* sizes = gone ? r.dims.gone_size : r.dims.kept_size;
    // Neighbours that go or stay together are one.
    if (i == 0 || gone != before) sizes[++count - 1] = 1;
    sizes[count - 1] *= x[i];
    (gone ? r.dims.gone_step : r.dims.kept_step)[count - 1] = x.numel(i + 1, rank);
    before = gone;
  }
  if (r.out.rank() == 0) r.out.push_back(1);
  return r;
}

// The sum of all elements.
std::unique_ptr<Prepared> prepare_sum_of_all(PrepareContext& context, const Reduction& r) {
  const int x = context.input("X");
  const int out = context.set_output("Out", r.out, DType::kFloat32);
  return make_prepared([=, dims = r.dims, own = Buffer()](const KernelContext& c) mutable {
    const float* const xs = c.in<float>(x);
    const auto partials = static_cast<size_t>(reduce_partials(dims));
    if (!in_a_row(c)) {
      return reduce<float>(stream_of(c).raw(), Reduce::kSum, dims, xs, 1.0F,
                           stream_of(c).scratch<float>(static_cast<int64_t>(partials)),
                           c.out<float>(out));
    }
    if (!own && partials > 0) own = Buffer(partials * sizeof(float), device_allocator(c.place()));
    sum_all(target_of(c), xs, dims.terms, reinterpret_cast<float*>(own.data()), c.out<float>(out));
  });
}

template <class From, class T>
std::unique_ptr<Prepared> prepare_reduce_to(PrepareContext& context, Reduce how, bool mean) {
  const Reduction r = reduction_of(context);
  const T divisor = mean ? static_cast<T>(r.dims.terms) : T{1};
  const int x = context.input("X");
  const int out = context.set_output("Out", r.out, dtype_of<T>());
  constexpr bool kCasts = !std::is_same_v<From, T>;
  const int64_t n = kCasts ? context.in("X").shape.numel() : 0;
  return make_prepared([=, dims = r.dims](const KernelContext& c) {
    Stream& stream = stream_of(c);
    end_row(c);
    T* partial = stream.scratch<T>(reduce_partials(dims) + n);
    const T* xs = nullptr;
    if constexpr (kCasts) {
      T* cast_xs = partial + reduce_partials(dims);
      cast<From, T>(stream.raw(), c.in<From>(x), cast_xs, n);
      xs = cast_xs;
    } else {
      xs = c.in<T>(x);
    }
    reduce<T>(stream.raw(), how, dims, xs, divisor, partial, c.out<T>(out));
  });
}

template <class From>
void add_reduce(KernelTable& table, const char* type, Reduce how, bool mean = false) {
  table.add_last(
      type, DeviceKind::kCuda, dtype_of<From>(),
      {.name = "loop", .prepare = [=](PrepareContext& context) {
         const std::string name = context.attrs<ReduceAttrs>().out_dtype;
         const DType wanted = name.empty() ? dtype_of<From>() : parse_dtype(name);
         std::unique_ptr<Prepared> prepared;
         for_types<float, double, int32_t, int64_t>([&]<class To>(std::type_identity<To>) {
           if (wanted != dtype_of<To>()) return;
           if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float>) {
             const Reduction r = reduction_of(context);
             if (how == Reduce::kSum && !mean && r.dims.results == 1) {
               prepared = prepare_sum_of_all(context, r);
               return;
             }
           }
           prepared = prepare_reduce_to<From, To>(context, how, mean);
         });
         return prepared;
       }});
}

template <bool all>
std::unique_ptr<Prepared> prepare_truth(PrepareContext& context) {
  const Reduction r = reduction_of(context);
  const int x = context.input("X");
  const int out = context.set_output("Out", r.out, DType::kBool);
  return make_prepared([=, dims = r.dims](const KernelContext& c) {
    reduce_truth(stream_of(c).raw(), all, dims, c.in<bool>(x), partials<bool>(c, dims),
                 c.out<bool>(out));
  });
}

template <class T, bool Mean>
std::unique_ptr<Prepared> prepare_spread(PrepareContext& context) {
  const Reduction r = reduction_of(context);
  context.require(context.in("Out@GRAD").shape.numel() == r.out.numel(), "Out@GRAD",
                  r.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const T divisor = Mean ? static_cast<T>(r.dims.terms) : T{1};
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return make_prepared([=, dims = r.dims](const KernelContext& c) {
    spread<T>(stream_of(c).raw(), dims, c.in<T>(grad), divisor, c.out<T>(out));
  });
}

// Of max and min, or of products.
template <class T, bool Product>
std::unique_ptr<Prepared> prepare_grad_with_out(PrepareContext& context) {
  const Reduction r = reduction_of(context);
  for (const char* slot : {"Out", "Out@GRAD"}) {
    context.require(context.in(slot).shape.numel() == r.out.numel(), slot, r.out.to_string(),
                    context.in(slot).shape.to_string());
  }
  const int x = context.input("X");
  const int value = context.input("Out");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return make_prepared([=, dims = r.dims](const KernelContext& c) {
    const auto back = Product ? product_back<T> : spread_to_equal<T>;
    back(stream_of(c).raw(), dims, c.in<T>(x), c.in<T>(value), c.in<T>(grad), c.out<T>(out));
  });
}

template <class T, Finite question>
std::unique_ptr<Prepared> prepare_finite(PrepareContext& context) {
  const SumDims all = sum_of_all(context.in("X").shape.numel());
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, DType::kBool);
  return make_prepared([=](const KernelContext& c) {
    finite<T>(stream_of(c).raw(), question, all, c.in<T>(x), partials<bool>(c, all),
              c.out<bool>(out));
  });
}

// Gradients of sums pass what comes in.
std::vector<Kernel::View> views_of(std::string_view op) {
  const Kernel::View to_x{.input = "Out@GRAD", .output = "X@GRAD"};
  const Kernel::View to_y{.input = "Out@GRAD", .output = "Y@GRAD"};
  if (op == "elementwise_add_grad") return {to_x, to_y};
  if (op == "elementwise_sub_grad") return {to_x};
  return {};
}

template <class T>
void add_gradients(KernelTable& table) {
  for (const BinaryGradient<T>& gradient : binary_gradients<T>()) {
    const auto prepare = [gradient](PrepareContext& context) {
      return prepare_binary_grad<T>(context, gradient);
    };
    table.add_last(gradient.op, DeviceKind::kCuda, element_type<T>(),
                   {.name = "loop", .prepare = prepare, .views = views_of(gradient.op)});
  }
}

template <class T>
void add_floats(KernelTable& table) {
  const auto list = [&table](const std::string& op, auto prepare) {
    table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
  };
  list("mean", prepare_mean<T>);
  list("mean_grad", prepare_mean_grad<T>);
  list("reduce_sum_grad", prepare_spread<T, false>);
  list("reduce_mean_grad", prepare_spread<T, true>);
  list("reduce_max_grad", prepare_grad_with_out<T, false>);
  list("reduce_min_grad", prepare_grad_with_out<T, false>);
  list("reduce_prod_grad", prepare_grad_with_out<T, true>);
  list("isfinite", prepare_finite<T, Finite::kAll>);
  list("isinf", prepare_finite<T, Finite::kHasInf>);
  list("isnan", prepare_finite<T, Finite::kHasNan>);
}

}  // namespace

void register_binary(KernelTable& table) {
  const auto list = [&table](DType dtype, const char* op, auto prepare) {
    table.add_last(op, DeviceKind::kCuda, dtype, {.name = "loop", .prepare = prepare});
  };
  for_types<float, double>([&]<class T>(std::type_identity<T>) { add_floats<T>(table); });
  for_types<float, double, __half, __nv_bfloat16>(
      [&]<class T>(std::type_identity<T>) { add_gradients<T>(table); });
  for_types<float, double, __half, __nv_bfloat16, int32_t, int64_t>(
      [&]<class T>(std::type_identity<T>) {
        for (const auto& function : binary_functions<T>()) {
          const auto prepare = [function](PrepareContext& context) {
            return prepare_binary<T, T>(context, axis_of(context), function);
          };
          table.add_last(function.op, DeviceKind::kCuda, element_type<T>(),
                         {.name = "loop", .prepare = prepare, .in_place = true});
        }
      });
  for_types<bool, int32_t, int64_t, float, double>([&]<class T>(std::type_identity<T>) {
    for (const auto& function : comparisons<T>()) {
      list(dtype_of<T>(), function.op, [function](PrepareContext& context) {
        return prepare_binary<T, bool>(context, context.attrs<CompareAttrs>().axis, function);
      });
    }
    add_reduce<T>(table, "reduce_sum", Reduce::kSum);
    add_reduce<T>(table, "reduce_mean", Reduce::kSum, true);
    if constexpr (!std::is_same_v<T, bool>) {
      add_reduce<T>(table, "reduce_max", Reduce::kMax);
      add_reduce<T>(table, "reduce_min", Reduce::kMin);
      add_reduce<T>(table, "reduce_prod", Reduce::kProd);
    }
  });
  for (const auto& function : logical_functions()) {
    list(DType::kBool, function.op, [function](PrepareContext& context) {
      return prepare_binary<bool, bool>(context, -1, function);
    });
  }
  list(DType::kBool, "reduce_all", prepare_truth<true>);
  list(DType::kBool, "reduce_any", prepare_truth<false>);
}

}  // namespace fleet::fluid::cuda
