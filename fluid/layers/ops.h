// Layers of one op: activations, elementwise arithmetic, reductions, scale and clip. See nn.h for
// what all layers have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

Variable abs(const Variable& x, const std::string& name = {});
Variable ceil(const Variable& x, const std::string& name = {});
Variable cos(const Variable& x, const std::string& name = {});
Variable exp(const Variable& x, const std::string& name = {});
Variable floor(const Variable& x, const std::string& name = {});
Variable log(const Variable& x, const std::string& name = {});
Variable reciprocal(const Variable& x, const std::string& name = {});
Variable relu(const Variable& x, const std::string& name = {});
Variable round(const Variable& x, const std::string& name = {});
Variable sigmoid(const Variable& x, const std::string& name = {});
Variable sign(const Variable& x);
Variable sin(const Variable& x, const std::string& name = {});
Variable sqrt(const Variable& x, const std::string& name = {});
Variable square(const Variable& x, const std::string& name = {});
Variable tanh(const Variable& x, const std::string& name = {});

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

struct ReduceOptions {
  std::vector<int> dim = {};  // empty: all
  bool keep_dim = false;
  std::string name = {};
};
Variable reduce_sum(const Variable& x, const ReduceOptions& options = {});
Variable reduce_mean(const Variable& x, const ReduceOptions& options = {});

struct ScaleOptions {
  double scale = 1.0;
  double bias = 0.0;
  bool bias_after_scale = true;
  std::string act = {};
  std::string name = {};
};
Variable scale(const Variable& x, const ScaleOptions& options);
Variable clip(const Variable& x, double min, double max, const std::string& name = {});
Variable clip_by_norm(const Variable& x, double max_norm, const std::string& name = {});

}  // namespace fleet::fluid::layers
