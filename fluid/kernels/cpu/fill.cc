// Constants, scaling, copies and casts.
#include "fluid/ops/fill.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/scale.h"
#include "fluid/ops/shape_ops.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
T constant_of(const PrepareContext& context, const FillConstantAttrs& attrs) {
  if (attrs.str_value.empty()) return static_cast<T>(attrs.value);
  if (const auto whole = parse_int(attrs.str_value); whole && std::is_integral_v<T>) {
    return static_cast<T>(*whole);
  }
  const auto value = parse_double(attrs.str_value);
  context.require(value.has_value(), "Out", "str_value: a number", attrs.str_value);
  return static_cast<T>(*value);
}

template <class T>
std::unique_ptr<Prepared> prepare_fill_constant(PrepareContext& context) {
  const auto attrs = context.attrs<FillConstantAttrs>();
  for (const char* slot : {"ShapeTensor", "ShapeTensorList", "ValueTensor"}) {
    if (context.input_count(slot) != 0) return nullptr;
  }
  const Shape shape(attrs.shape);
  const int64_t n = shape.numel();
  const T value = constant_of<T>(context, attrs);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* outs = c.out<T>(out);
    std::fill(outs, outs + n, value);
  });
}

std::unique_ptr<Prepared> prepare_zeros_like(PrepareContext& context) {
  const ValueSpec& x = context.in("X");
  const int out = context.set_output("Out", x.shape, x.dtype);
  return make_prepared([=](const KernelContext& c) {
    Tensor& tensor = c.output(out);
    if (tensor.bytes() != 0) std::memset(tensor.raw(), 0, tensor.bytes());
  });
}

// The shape only; zeros, so that nothing is ever read that nobody wrote.
std::unique_ptr<Prepared> prepare_fake_init(PrepareContext& context) {
  const Shape shape(context.attrs<FakeInitAttrs>().shape);
  const int out = context.set_output("Out", shape, DType::kFloat32);
  return make_prepared([=](const KernelContext& c) {
    Tensor& tensor = c.output(out);
    if (tensor.bytes() != 0) std::memset(tensor.raw(), 0, tensor.bytes());
  });
}

// Integers are scaled by factors cut to integers.
template <class T>
std::unique_ptr<Prepared> prepare_scale(PrepareContext& context) {
  const auto attrs = context.attrs<ScaleAttrs>();
  const Shape shape = context.in("X").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int x = context.input("X");
  const int factor = context.input("ScaleTensor");
  if (factor >= 0) {
    const ValueSpec& spec = context.in("ScaleTensor");
    context.require(spec.dtype == dtype_of<T>() && spec.shape.numel() == 1, "ScaleTensor",
                    "one element of X's type", str_cat(dtype_name(spec.dtype), spec.shape));
  }
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const T bias = static_cast<T>(attrs.bias);
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    const T scale = factor >= 0 ? *c.in<T>(factor) : static_cast<T>(attrs.scale);
    if (attrs.bias_after_scale) {
      for (size_t i = 0; i < n; ++i) outs[i] = xs[i] * scale + bias;
    } else {
      for (size_t i = 0; i < n; ++i) outs[i] = (xs[i] + bias) * scale;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_increment(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  context.require(shape.numel() == 1, "X", "one element", shape.to_string());
  const T step = static_cast<T>(context.attrs<IncrementAttrs>().step);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) { *c.out<T>(out) = *c.in<T>(x) + step; });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip(PrepareContext& context) {
  if (context.has_input("Min") || context.has_input("Max")) return nullptr;
  const auto attrs = context.attrs<ClipAttrs>();
  const Shape shape = context.in("X").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, low = static_cast<T>(attrs.min),
                        high = static_cast<T>(attrs.max)](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    for (size_t i = 0; i < n; ++i) outs[i] = xs[i] < low ? low : xs[i] > high ? high : xs[i];
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip_grad(PrepareContext& context) {
  if (context.has_input("Min") || context.has_input("Max")) return nullptr;
  const auto attrs = context.attrs<ClipAttrs>();
  const Shape shape = context.in("X").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int x = context.input("X");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, low = static_cast<T>(attrs.min),
                        high = static_cast<T>(attrs.max)](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    for (size_t i = 0; i < n; ++i) outs[i] = xs[i] > low && xs[i] < high ? grads[i] : T{};
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip_by_norm(PrepareContext& context) {
  const T max_norm = static_cast<T>(context.attrs<ClipByNormAttrs>().max_norm);
  const Shape shape = context.in("X").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    double square = 0;
    for (size_t i = 0; i < n; ++i) square += static_cast<double>(xs[i]) * xs[i];
    const T norm = static_cast<T>(std::sqrt(square));
    const T factor = norm > max_norm ? max_norm / norm : T{1};
    for (size_t i = 0; i < n; ++i) outs[i] = xs[i] * factor;
  });
}

std::unique_ptr<Prepared> prepare_assign(PrepareContext& context) {
  const ValueSpec& spec = context.in("X");
  const int x = context.input("X");
  const int out = context.set_output("Out", spec.shape, spec.dtype);
  return make_prepared([=](const KernelContext& c) { c.output(out).copy_from(c.input(x)); });
}

template <class From, class To>
std::unique_ptr<Prepared> prepare_cast_to(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<To>());
  return make_prepared([=](const KernelContext& c) {
    const From* xs = c.in<From>(x);
    To* outs = c.out<To>(out);
    for (size_t i = 0; i < n; ++i) outs[i] = static_cast<To>(xs[i]);
  });
}

template <class From>
std::unique_ptr<Prepared> prepare_cast(PrepareContext& context) {
  const DType wanted = context.attrs<CastAttrs>().out_dtype;
  std::unique_ptr<Prepared> prepared;
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class To>(std::type_identity<To>) {
        if (wanted == dtype_of<To>()) prepared = prepare_cast_to<From, To>(context);
      });
  return prepared;
}

}  // namespace

void register_fill(KernelTable& table) {
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&table]<class T>(std::type_identity<T>) {
        const auto add = [&table](const char* op, auto prepare) {
          table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
        };
        add("fill_constant", prepare_fill_constant<T>);
        add("fill_zeros_like", prepare_zeros_like);
        add("assign", prepare_assign);
        add("cast", prepare_cast<T>);
        if constexpr (std::is_same_v<T, float>) add("fake_init", prepare_fake_init);
        if constexpr (sizeof(T) >= 4) {
          add("scale", prepare_scale<T>);
          add("increment", prepare_increment<T>);
        }
        if constexpr (std::is_floating_point_v<T>) {
          add("clip", prepare_clip<T>);
          add("clip_grad", prepare_clip_grad<T>);
          add("clip_by_norm", prepare_clip_by_norm<T>);
        }
      });
}

}  // namespace fleet::fluid::cpu
