// Layers of one op: activations, elementwise arithmetic, comparisons, reductions, scale and clip.
// See nn.h for what all layers have in common, fluid/ops/math/activation.h for the formulas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fluid/layers/numbers.h"
#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

Variable abs(const Variable& x, const std::string& name = {});
Variable acos(const Variable& x, const std::string& name = {});
Variable asin(const Variable& x, const std::string& name = {});
Variable atan(const Variable& x, const std::string& name = {});
Variable ceil(const Variable& x, const std::string& name = {});
Variable cos(const Variable& x, const std::string& name = {});
Variable cosh(const Variable& x, const std::string& name = {});
Variable erf(const Variable& x, const std::string& name = {});
Variable exp(const Variable& x, const std::string& name = {});
Variable floor(const Variable& x, const std::string& name = {});
Variable log(const Variable& x, const std::string& name = {});
Variable log1p(const Variable& x, const std::string& name = {});
Variable logsigmoid(const Variable& x, const std::string& name = {});
Variable reciprocal(const Variable& x, const std::string& name = {});
Variable relu(const Variable& x, const std::string& name = {});
Variable round(const Variable& x, const std::string& name = {});
Variable rsqrt(const Variable& x, const std::string& name = {});
Variable sigmoid(const Variable& x, const std::string& name = {});
Variable sign(const Variable& x);
Variable sin(const Variable& x, const std::string& name = {});
Variable sinh(const Variable& x, const std::string& name = {});
Variable softplus(const Variable& x, const std::string& name = {});
Variable softsign(const Variable& x, const std::string& name = {});
Variable sqrt(const Variable& x, const std::string& name = {});
Variable square(const Variable& x, const std::string& name = {});
Variable tanh(const Variable& x, const std::string& name = {});
Variable tanh_shrink(const Variable& x, const std::string& name = {});

Variable relu6(const Variable& x, double threshold = 6.0, const std::string& name = {});
Variable leaky_relu(const Variable& x, double alpha = 0.02, const std::string& name = {});
Variable elu(const Variable& x, double alpha = 1.0, const std::string& name = {});
Variable gelu(const Variable& x, bool approximate = false);
Variable swish(const Variable& x, double beta = 1.0, const std::string& name = {});
Variable soft_relu(const Variable& x, double threshold = 40.0, const std::string& name = {});
Variable softshrink(const Variable& x, double alpha = 0.5, const std::string& name = {});
Variable hard_shrink(const Variable& x, double threshold = 0.5, const std::string& name = {});
Variable thresholded_relu(const Variable& x, double threshold = 1.0, const std::string& name = {});
Variable brelu(const Variable& x, double t_min = 0.0, double t_max = 24.0,
               const std::string& name = {});

struct HardSigmoidOptions {
  double slope = 0.2;
  double offset = 0.5;
  std::string name = {};
};
Variable hard_sigmoid(const Variable& x, const HardSigmoidOptions& options = {});

struct HardSwishOptions {
  double threshold = 6.0;
  double scale = 6.0;
  double offset = 3.0;
  std::string name = {};
};
Variable hard_swish(const Variable& x, const HardSwishOptions& options = {});

struct StanhOptions {
  double scale_a = 0.67;
  double scale_b = 1.7159;
  std::string name = {};
};
Variable stanh(const Variable& x, const StanhOptions& options = {});

struct PowOptions {
  Real factor = 1.0;
  std::string name = {};
};
// x to the power `factor`, as one op; pow(x, 2.0) of math_ops.h makes a constant and
// elementwise_pow.
Variable pow(const Variable& x, const PowOptions& options);

struct PreluOptions {
  ParamAttr param_attr = {};  // 0.25 everywhere unless it has an initializer
  std::string name = {};
};
// x where positive, else a learned factor times x: one factor (mode "all"), one for each channel,
// dimension 1 ("channel"), or one for each element of a row ("element").
Variable prelu(const Variable& x, const std::string& mode, const PreluOptions& options = {});

// The one of lower rank is laid along the other from dimension `axis` on (-1: the last ones).
struct ElementwiseOptions {
  int axis = -1;
  std::string act = {};
  std::string name = {};
};
Variable elementwise_add(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
Variable elementwise_sub(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
Variable elementwise_mul(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
Variable elementwise_div(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
Variable elementwise_max(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
Variable elementwise_min(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
Variable elementwise_pow(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
// The largest whole number at most x / y, and what is left.
Variable elementwise_floordiv(const Variable& x, const Variable& y, const ElementwiseOptions& = {});
Variable elementwise_mod(const Variable& x, const Variable& y, const ElementwiseOptions& = {});

// Truth values, element by element, y broadcast; no gradient. Written to `out` when it is given.
Variable less_than(const Variable& x, const Variable& y, const Variable& out = {});
Variable less_equal(const Variable& x, const Variable& y, const Variable& out = {});
Variable greater_than(const Variable& x, const Variable& y, const Variable& out = {});
Variable greater_equal(const Variable& x, const Variable& y, const Variable& out = {});
Variable equal(const Variable& x, const Variable& y, const Variable& out = {});
Variable not_equal(const Variable& x, const Variable& y, const Variable& out = {});
Variable logical_and(const Variable& x, const Variable& y, const Variable& out = {},
                     const std::string& name = {});
Variable logical_or(const Variable& x, const Variable& y, const Variable& out = {},
                    const std::string& name = {});
Variable logical_xor(const Variable& x, const Variable& y, const Variable& out = {},
                     const std::string& name = {});
Variable logical_not(const Variable& x, const Variable& out = {}, const std::string& name = {});

struct ReduceOptions {
  std::vector<int> dim = {};  // empty: all
  bool keep_dim = false;
  std::string name = {};
};
Variable reduce_sum(const Variable& x, const ReduceOptions& options = {});
Variable reduce_mean(const Variable& x, const ReduceOptions& options = {});
Variable reduce_max(const Variable& x, const ReduceOptions& options = {});
Variable reduce_min(const Variable& x, const ReduceOptions& options = {});
Variable reduce_prod(const Variable& x, const ReduceOptions& options = {});
// Of truth values.
Variable reduce_all(const Variable& x, const ReduceOptions& options = {});
Variable reduce_any(const Variable& x, const ReduceOptions& options = {});

struct ScaleOptions {
  Real scale = 1.0;
  double bias = 0.0;
  bool bias_after_scale = true;
  std::string act = {};
  std::string name = {};
};
Variable scale(const Variable& x, const ScaleOptions& options);
Variable clip(const Variable& x, double min, double max, const std::string& name = {});
Variable clip_by_norm(const Variable& x, double max_norm, const std::string& name = {});

}  // namespace fleet::fluid::layers
