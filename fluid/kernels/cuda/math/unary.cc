// Activations, powers, clips, casts, selection.
#include "fluid/kernels/cpu/math/unary.h"

#include <map>
#include <string>
#include <string_view>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cuda/halves_impl.h"
#include "fluid/kernels/cuda/math/unary_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/half/convert.h"
#include "fluid/kernels/half/widened.h"
#include "fluid/ops/math/activation.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid::cuda {
namespace {

using cpu::for_types;
using cpu::params_of;

// Of the ops that have attributes.
const std::map<std::string_view, cpu::ParamsOf>& params_of_ops() {
  static const std::map<std::string_view, cpu::ParamsOf> kParams = {
      {"relu6", params_of<ThresholdAttrs, &ThresholdAttrs::threshold>},
      {"brelu", params_of<BreluAttrs, &BreluAttrs::t_min, &BreluAttrs::t_max>},
      {"leaky_relu", params_of<LeakyReluAttrs, &LeakyReluAttrs::alpha>},
      {"hard_sigmoid",
       params_of<HardSigmoidAttrs, &HardSigmoidAttrs::slope, &HardSigmoidAttrs::offset>},
      {"hard_swish", params_of<HardSwishAttrs, &HardSwishAttrs::threshold, &HardSwishAttrs::scale,
                               &HardSwishAttrs::offset, &HardSwishAttrs::paddle_form>},
      {"softshrink", params_of<SoftShrinkAttrs, &SoftShrinkAttrs::lambda>},
      {"hard_shrink", params_of<HardShrinkAttrs, &HardShrinkAttrs::threshold>},
      {"thresholded_relu", params_of<ThresholdedReluAttrs, &ThresholdedReluAttrs::threshold>},
      {"elu", params_of<EluAttrs, &EluAttrs::alpha, &EluAttrs::paddle_form>},
      {"swish", params_of<SwishAttrs, &SwishAttrs::beta>},
      {"gelu", params_of<GeluAttrs, &GeluAttrs::approximate>},
      {"soft_relu",
       params_of<SoftReluAttrs, &SoftReluAttrs::threshold, &SoftReluAttrs::paddle_form>},
      {"stanh", params_of<StanhAttrs, &StanhAttrs::scale_a, &StanhAttrs::scale_b>},
  };
  return kParams;
}

cpu::ParamsOf params_of_op(std::string_view op) {
  const auto found = params_of_ops().find(op);
  return found == params_of_ops().end() ? cpu::no_params : found->second;
}

template <class T>
std::unique_ptr<Prepared> prepare_value(PrepareContext& context, const UnaryFunction<T>& function,
                                        cpu::ParamsOf params_of_attributes) {
  const Shape shape = context.in("X").shape;
  const UnaryParams params = params_of_attributes(context);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, element_type<T>());
  return make_prepared([=, value = function.value, n = shape.numel()](const KernelContext& c) {
    value(stream_of(c).raw(), params, c.in<T>(x), c.out<T>(out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_back(PrepareContext& context, const UnaryFunction<T>& function,
                                       cpu::ParamsOf params_of_attributes) {
  const char* slot = context.has_input("Out") ? "Out" : context.has_input("X") ? "X" : "Out@GRAD";
  const Shape shape = context.in("Out@GRAD").shape;
  context.require(context.in(slot).shape == shape, slot, shape.to_string(),
                  context.in(slot).shape.to_string());
  const UnaryParams params = params_of_attributes(context);
  const int in = context.input(slot);
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, element_type<T>());
  return make_prepared([=, back = function.back, n = shape.numel()](const KernelContext& c) {
    back(stream_of(c).raw(), params, c.in<T>(in), c.in<T>(grad), c.out<T>(out), n);
  });
}

template <class T>
Scalar<T> scalar_of(const KernelContext& c, int tensor, float attribute) {
  return {.value = static_cast<T>(attribute), .tensor = tensor >= 0 ? c.in<T>(tensor) : nullptr};
}

template <class T, bool Gradient>
std::unique_ptr<Prepared> prepare_pow(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const float factor = context.attrs<PowAttrs>().factor;
  const int tensor = optional_scalar_input<T>(context, "FactorTensor");
  const int x = context.input("X");
  const int grad = Gradient ? context.input("Out@GRAD") : -1;
  if (Gradient) {
    context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                    context.in("Out@GRAD").shape.to_string());
  }
  const int out = context.set_output(Gradient ? "X@GRAD" : "Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const Scalar<T> exponent = scalar_of<T>(c, tensor, factor);
    if constexpr (Gradient) {
      pow_back(stream_of(c).raw(), exponent, c.in<T>(x), c.in<T>(grad), c.out<T>(out), n);
    } else {
      pow(stream_of(c).raw(), exponent, c.in<T>(x), c.out<T>(out), n);
    }
  });
}

template <class T, bool Gradient>
std::unique_ptr<Prepared> prepare_clip(PrepareContext& context) {
  const auto attrs = context.attrs<ClipAttrs>();
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int grad = Gradient ? context.input("Out@GRAD") : -1;
  const int min = optional_scalar_input<T>(context, "Min");
  const int max = optional_scalar_input<T>(context, "Max");
  const int out = context.set_output(Gradient ? "X@GRAD" : "Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const Scalar<T> low = scalar_of<T>(c, min, attrs.min);
    const Scalar<T> high = scalar_of<T>(c, max, attrs.max);
    if constexpr (Gradient) {
      clip_back(stream_of(c).raw(), low, high, c.in<T>(x), c.in<T>(grad), c.out<T>(out), n);
    } else {
      clip(stream_of(c).raw(), low, high, c.in<T>(x), c.out<T>(out), n);
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_prelu(PrepareContext& context) {
  const PreluView dims = prelu_view(context);
  const int x = context.input("X");
  const int alpha = context.input("Alpha");
  const int out = context.set_output("Out", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    prelu<T>(stream_of(c).raw(), dims, c.in<T>(x), c.in<T>(alpha), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_prelu_grad(PrepareContext& context) {
  const PreluView dims = prelu_view(context);
  const Shape& shape = context.in("X").shape;
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const int x = context.input("X");
  const int alpha = context.input("Alpha");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int alpha_grad = context.set_output("Alpha@GRAD", context.in("Alpha").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    prelu_back<T>(stream_of(c).raw(), dims, c.in<T>(x), c.in<T>(alpha), c.in<T>(grad),
                  out_or_null<T>(c, x_grad), out_or_null<T>(c, alpha_grad));
  });
}

// Of float32: that of other types runs on the host.
std::unique_ptr<Prepared> prepare_round(PrepareContext& context, DType half) {
  const int x = context.input("X");
  const int out = context.set_output("Out", context.in("X").shape, half);
  return make_prepared(
      [=](const KernelContext& c) { convert_half(c.input(x), c.output(out), c.stream()); });
}

template <class From>
std::unique_ptr<Prepared> prepare_cast(PrepareContext& context) {
  const DType wanted = context.attrs<CastAttrs>().out_dtype;
  if (std::is_same_v<From, float> && is_half(wanted)) return prepare_round(context, wanted);
  const Shape shape = context.in("X").shape;
  std::unique_ptr<Prepared> prepared;
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class To>(std::type_identity<To>) {
        if (wanted != dtype_of<To>()) return;
        const int x = context.input("X");
        const int out = context.set_output("Out", shape, dtype_of<To>());
        prepared = make_prepared([=, n = shape.numel()](const KernelContext& c) {
          cast(stream_of(c).raw(), c.in<From>(x), c.out<To>(out), n);
        });
      });
  return prepared;
}

std::unique_ptr<Prepared> prepare_not(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, DType::kBool);
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    logical_not(stream_of(c).raw(), c.in<bool>(x), c.out<bool>(out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_where(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  require_condition(context, shape);
  context.require(context.in("Y").shape == shape && context.in("Y").dtype == dtype_of<T>(), "Y",
                  str_cat(dtype_name(dtype_of<T>()), shape), context.in("Y").shape.to_string());
  const int condition = context.input("Condition");
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    select<T>(stream_of(c).raw(), c.in<bool>(condition), c.in<T>(x), c.in<T>(y), c.out<T>(out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_where_grad(PrepareContext& context) {
  const Shape shape = context.in("Out@GRAD").shape;
  require_condition(context, shape);
  const int condition = context.input("Condition");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const auto pass = [&](const T* x, const T* y, int out) {
      if (out >= 0) select<T>(stream_of(c).raw(), c.in<bool>(condition), x, y, c.out<T>(out), n);
    };
    pass(c.in<T>(grad), nullptr, x_grad);
    pass(nullptr, c.in<T>(grad), y_grad);
  });
}

}  // namespace

void register_unary(KernelTable& table) {
  const auto list = [&table](DType dtype, const std::string& op, auto prepare) {
    table.add_last(op, DeviceKind::kCuda, dtype, {.name = "loop", .prepare = prepare});
  };
  for_types<float, double, __half, __nv_bfloat16>([&]<class T>(std::type_identity<T>) {
    const DType dtype = element_type<T>();
    for (const UnaryFunction<T>& function : unary_functions<T>()) {
      const cpu::ParamsOf params = params_of_op(function.op);
      list(dtype, function.op,
           [=](PrepareContext& context) { return prepare_value<T>(context, function, params); });
      if (function.back == nullptr) continue;
      list(dtype, str_cat(function.op, "_grad"),
           [=](PrepareContext& context) { return prepare_back<T>(context, function, params); });
    }
  });
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    list(dtype, "pow", prepare_pow<T, false>);
    list(dtype, "pow_grad", prepare_pow<T, true>);
    list(dtype, "clip", prepare_clip<T, false>);
    list(dtype, "clip_grad", prepare_clip<T, true>);
    list(dtype, "prelu", prepare_prelu<T>);
    list(dtype, "prelu_grad", prepare_prelu_grad<T>);
    list(dtype, "where_grad", prepare_where_grad<T>);
  });
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) { list(dtype_of<T>(), "cast", prepare_cast<T>); });
  add_casts_of_halves(table, DeviceKind::kCuda, {.name = "loop", .prepare = prepare_cast<float>});
  for_types<bool, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) { list(dtype_of<T>(), "where", prepare_where<T>); });
  list(DType::kBool, "logical_not", prepare_not);
}

}  // namespace fleet::fluid::cuda
