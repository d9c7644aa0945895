#include "fluid/layers/parameters/initializer.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/append.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/initialize.h"

namespace fleet::fluid {
namespace {

std::pair<double, double> fans(const Shape& shape) {
  if (shape.rank() == 0) return {1.0, 1.0};
  const auto first = static_cast<double>(shape[0]);
  if (shape.rank() == 1) return {first, first};
  const auto second = static_cast<double>(shape[1]);
  if (shape.rank() == 2) return {first, second};
  const auto field = static_cast<double>(shape.numel(2, shape.rank()));
  return {second * field, first * field};
}

Operator uniform_op(const VarDesc& var, double low, double high, int32_t seed) {
  Operator op;
  op.type = "uniform_random";
  op.attrs = to_attributes(UniformRandomAttrs{.shape = var.shape.to_vector(),
                                              .dtype = var.dtype,
                                              .min = static_cast<float>(low),
                                              .max = static_cast<float>(high),
                                              .seed = seed});
  return op;
}

Operator normal_op(const VarDesc& var, double loc, double scale, int32_t seed) {
  Operator op;
  op.type = "gaussian_random";
  op.attrs = to_attributes(GaussianRandomAttrs{.shape = var.shape.to_vector(),
                                               .dtype = var.dtype,
                                               .mean = static_cast<float>(loc),
                                               .std = static_cast<float>(scale),
                                               .seed = seed});
  return op;
}

[[noreturn]] void fail(const VarDesc& var, std::string what, std::string expected,
                       std::string got) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = std::move(what),
               .where = "parameter '" + var.name + "'",
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = "choose another initializer, or the parameter's shape and type"});
}

template <class T, class Out>
void copy_values(const Tensor& from, std::vector<Out>& to) {
  for (const T value : from.values<T>()) to.push_back(static_cast<Out>(value));
}

Operator assign_op(const VarDesc& var, const Tensor& values) {
  if (!(values.shape() == var.shape) || values.dtype() != var.dtype) {
    fail(var, "the values do not fit the parameter", str_cat(dtype_name(var.dtype), var.shape),
         str_cat(dtype_name(values.dtype()), values.shape()));
  }
  AssignValueAttrs attrs{.shape = var.shape.to_vector(), .dtype = var.dtype};
  switch (var.dtype) {
    case DType::kBool:
      copy_values<bool>(values, attrs.bool_values);
      break;
    case DType::kFloat32:
      copy_values<float>(values, attrs.fp32_values);
      break;
    case DType::kInt32:
      copy_values<int32_t>(values, attrs.int32_values);
      break;
    case DType::kInt64:
      copy_values<int64_t>(values, attrs.int64_values);
      break;
    default:
      fail(var, "values of this type cannot be assigned", "bool, int32, int64 or float32",
           std::string(dtype_name(var.dtype)));
  }
  Operator op;
  op.type = "assign_value";
  op.attrs = to_attributes(attrs);
  return op;
}

// (1 - |x / f - c|) (1 - |y / f - c|) at (x, y), f = ceil(k / 2), c = (2 f - 1 - f mod 2) / (2 f).
Operator bilinear_op(const VarDesc& var, bool paddle_form) {
  const Shape& shape = var.shape;
  if (shape.rank() != 4 || shape[2] != shape[3] || var.dtype != DType::kFloat32) {
    fail(var, "Bilinear fills square filters only", "float32 [out, in, k, k]",
         str_cat(dtype_name(var.dtype), shape));
  }
  const int64_t size = shape[3];
  const double factor = std::ceil(static_cast<double>(size) / 2.0);
  const double center = (2.0 * factor - 1.0 - std::fmod(factor, 2.0)) / (2.0 * factor);
  const auto weight = [&](double at) { return 1.0 - std::abs(at / factor - center); };
  Tensor values(DType::kFloat32, shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const auto column = static_cast<double>(i % size);
    const auto row = static_cast<double>(i / size % size);
    const double shift = paddle_form ? column / static_cast<double>(size) : 0.0;
    values.data<float>()[i] = static_cast<float>(weight(column) * weight(row + shift));
  }
  return assign_op(var, values);
}

struct MakeOp {
  const VarDesc& var;

  Operator operator()(const initializer::Constant& how) const {
    Operator op;
    op.type = "fill_constant";
    op.attrs = to_attributes(FillConstantAttrs{.shape = var.shape.to_vector(),
                                               .dtype = var.dtype,
                                               .value = static_cast<float>(how.value),
                                               .force_cpu = how.force_cpu,
                                               .op_device = how.op_device});
    return op;
  }
  Operator operator()(const initializer::Uniform& how) const {
    return uniform_op(var, how.low, how.high, how.seed);
  }
  Operator operator()(const initializer::Normal& how) const {
    return normal_op(var, how.loc, how.scale, how.seed);
  }
  Operator operator()(const initializer::Xavier& how) const {
    const auto [in, out] = fans(var.shape);
    const double sum = how.fan_in.value_or(in) + how.fan_out.value_or(out);
    if (!how.uniform) return normal_op(var, 0.0, std::sqrt(2.0 / sum), how.seed);
    const double limit = std::sqrt(6.0 / sum);
    return uniform_op(var, -limit, limit, how.seed);
  }
  Operator operator()(const initializer::TruncatedNormal& how) const {
    Operator op;
    op.type = "truncated_gaussian_random";
    op.attrs = to_attributes(TruncatedGaussianRandomAttrs{.shape = var.shape.to_vector(),
                                                          .dtype = var.dtype,
                                                          .mean = static_cast<float>(how.loc),
                                                          .std = static_cast<float>(how.scale),
                                                          .seed = how.seed});
    return op;
  }
  Operator operator()(const initializer::MSRA& how) const {
    const double in = how.fan_in.value_or(fans(var.shape).first);
    if (!how.uniform) return normal_op(var, 0.0, std::sqrt(2.0 / in), how.seed);
    const double limit = std::sqrt(6.0 / in);
    return uniform_op(var, -limit, limit, how.seed);
  }
  Operator operator()(const initializer::Bilinear& how) const {
    return bilinear_op(var, how.paddle_form);
  }
  Operator operator()(const initializer::Assign& how) const { return assign_op(var, how.values); }
};

}  // namespace

Initializer::Initializer(const Initializer& other) = default;
Initializer::Initializer(Initializer&& other) noexcept = default;
Initializer& Initializer::operator=(const Initializer& other) = default;
Initializer& Initializer::operator=(Initializer&& other) noexcept = default;
Initializer::~Initializer() = default;

void prepend_initializer(Program& startup, const VarDesc& var, const Initializer& how) {
  Operator op = std::visit(MakeOp{var}, how);
  const auto seed = op.attrs.find("seed");
  const bool fits = startup.random_seed() <= std::numeric_limits<int32_t>::max();
  if (fits && seed != op.attrs.end() && seed->second == Attribute(int64_t{0})) {
    op.attrs["seed"] = static_cast<int64_t>(startup.random_seed());
  }
  op.outputs["Out"] = {var.name};
  insert_op(startup.global_block(), 0, std::move(op));
}

}  // namespace fleet::fluid
