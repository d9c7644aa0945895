// Layers that make, move and relabel values. See nn.h for what all layers have in common.
#pragma once

#include <string>
#include <vector>

#include "fluid/layers/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

// The sum of variables of one shape.
Variable sums(const std::vector<Variable>& xs);
Variable concat(const std::vector<Variable>& xs, int axis = 0, const std::string& name = {});

// `num` equal parts along `dim` (negative counts from the end), or parts of the sizes given.
std::vector<Variable> split(const Variable& x, int num, int dim = -1, const std::string& name = {});
std::vector<Variable> split(const Variable& x, const std::vector<int>& sections, int dim = -1,
                            const std::string& name = {});

struct ReshapeOptions {
  std::string act = {};
  std::string name = {};
};
// One dimension may be -1 (what is left); 0 keeps x's dimension at that place.
Variable reshape(const Variable& x, const std::vector<int>& shape,
                 const ReshapeOptions& options = {});
// Dimension i of the result is dimension perm[i] of x.
Variable transpose(const Variable& x, const std::vector<int>& perm, const std::string& name = {});
Variable cast(const Variable& x, DType dtype);
Variable assign(const Variable& x);

// x + step, written to x itself; x has one element.
Variable increment(const Variable& x, double step = 1.0);

// A variable of that value; no gradient flows into it.
Variable fill_constant(const Shape& shape, DType dtype, double value, bool force_cpu = false);

struct ParameterOptions {
  std::string name = {};
  ParamAttr attr = {};
  bool is_bias = false;
};
Variable create_parameter(const Shape& shape, DType dtype = DType::kFloat32,
                          const ParameterOptions& options = {});

struct GlobalVarOptions {
  bool persistable = false;
  bool force_cpu = false;
  std::string name = {};
};
// A variable of block 0 that the startup program sets to `value`.
Variable create_global_var(const Shape& shape, double value, DType dtype,
                           const GlobalVarOptions& options = {});

}  // namespace fleet::fluid::layers
