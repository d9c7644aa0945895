// Layers that make, move and relabel values. See nn.h for what all layers have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fluid/layers/numbers.h"
#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

// The sum of variables of one shape.
Variable sums(const std::vector<Variable>& xs);
Variable concat(const std::vector<Variable>& xs, const Number& axis = 0,
                const std::string& name = {});

// `num` equal parts along `dim` (negative counts from the end), or parts of the sizes given.
std::vector<Variable> split(const Variable& x, int num, const Number& dim = -1,
                            const std::string& name = {});
std::vector<Variable> split(const Variable& x, const Numbers& sections, const Number& dim = -1,
                            const std::string& name = {});

struct ReshapeOptions {
  std::string act = {};
  std::string name = {};
};
// One dimension may be -1 (what is left); 0 keeps x's dimension at that place.
Variable reshape(const Variable& x, const Numbers& shape, const ReshapeOptions& options = {});
// Dimension i of the result is dimension perm[i] of x.
Variable transpose(const Variable& x, const std::vector<int>& perm, const std::string& name = {});
Variable cast(const Variable& x, DType dtype);
Variable assign(const Variable& x);

// x + step, written to x itself; x has one element.
Variable increment(const Variable& x, double step = 1.0);

// A variable of that value; no gradient flows into it.
Variable fill_constant(const Numbers& shape, DType dtype, const Real& value,
                       bool force_cpu = false);

struct UniformRandomOptions {
  DType dtype = DType::kFloat32;
  double min = -1.0;
  double max = 1.0;
  int32_t seed = 0;  // 0: the program's
};
// Drawn anew in each step, evenly in [min, max); no gradient flows into it.
Variable uniform_random(const Numbers& shape, const UniformRandomOptions& options = {});

struct GaussianRandomOptions {
  double mean = 0.0;
  double std = 1.0;
  int32_t seed = 0;
  DType dtype = DType::kFloat32;
};
Variable gaussian_random(const Numbers& shape, const GaussianRandomOptions& options = {});

struct BatchSizeLikeOptions {
  int input_dim_idx = 0;
  int output_dim_idx = 0;
  bool force_cpu = false;
};
// As fill_constant, but dimension output_dim_idx is input's dimension input_dim_idx (its number of
// sequences, when it has them and the index is 0); what `shape` says there does not matter.
Variable fill_constant_batch_size_like(const Variable& input, const Shape& shape, DType dtype,
                                       double value, const BatchSizeLikeOptions& options = {});
Variable ones(const Shape& shape, DType dtype, bool force_cpu = false);
Variable zeros(const Shape& shape, DType dtype, bool force_cpu = false);
Variable zeros_like(const Variable& x);
// start, start + step, … before end: [ceil((end - start) / step)].
Variable range(double start, double end, double step, DType dtype);
Variable range(const Variable& start, const Variable& end, const Variable& step);

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

// alpha * op(x) op(y): the last two dimensions are matrices, the others a batch of them, equal or
// absent on one side. A vector is a row on the left, a column on the right.
struct MatmulOptions {
  bool transpose_x = false;
  bool transpose_y = false;
  double alpha = 1.0;
  std::string name = {};
};
Variable matmul(const Variable& x, const Variable& y, const MatmulOptions& options = {});

struct MulOptions {
  int x_num_col_dims = 1;
  int y_num_col_dims = 1;
  std::string name = {};
};
// The product of matrices whose rows are the first dimensions, whose columns are the others.
Variable mul(const Variable& x, const Variable& y, const MulOptions& options = {});

// Without the dimensions `axes` of size 1; no axes: all of them.
Variable squeeze(const Variable& x, const std::vector<int>& axes, const std::string& name = {});
Variable unsqueeze(const Variable& x, const Numbers& axes, const std::string& name = {});
// A matrix: dimensions before `axis` are its rows.
Variable flatten(const Variable& x, int axis = 1, const std::string& name = {});
Variable stack(const std::vector<Variable>& xs, int axis = 0);
// `num` is needed where the dimension is not known.
std::vector<Variable> unstack(const Variable& x, int axis = 0, int num = 0);

// [starts, ends) along `axes`; negative positions count from the end.
Variable slice(const Variable& x, const std::vector<int>& axes, const Numbers& starts,
               const Numbers& ends);
// Rows of x. `overwrite`: a row taken several times gets the gradient of the last taking only, as
// in Paddle, instead of the sum.
Variable gather(const Variable& x, const Variable& index, bool overwrite = false);
// x with the rows `index` replaced by `updates`, or, not overwriting, by the sums of them.
Variable scatter(const Variable& x, const Variable& index, const Variable& updates,
                 bool overwrite = true, const std::string& name = {});
Variable expand(const Variable& x, const Numbers& expand_times, const std::string& name = {});
// Two numbers a dimension: how many to put before and behind.
Variable pad(const Variable& x, const std::vector<int>& paddings, double pad_value = 0.0,
             const std::string& name = {});
Variable reverse(const Variable& x, const std::vector<int>& axis);

struct CumsumOptions {
  std::optional<int> axis = {};  // none: over x taken as a vector
  bool exclusive = false;
  bool reverse = false;
};
Variable cumsum(const Variable& x, const CumsumOptions& options = {});

// [..., depth] of [..., 1].
Variable one_hot(const Variable& x, const Number& depth, bool allow_out_of_range = false);
// [n, num_hash, 1] of [n, w], the same type: numbers from 0 to hash_size - 1 for each row of ids
// (op hash in fluid/ops/shape/index_ops.h).
Variable hash(const Variable& input, int64_t hash_size, int num_hash = 1,
              const std::string& name = {});
Variable argmax(const Variable& x, int axis = 0);
Variable argmin(const Variable& x, int axis = 0);
struct Sorted {
  Variable values;   // stops gradients, as in Paddle
  Variable indices;  // int64
};
Sorted argsort(const Variable& x, int axis = -1, bool descending = false,
               const std::string& name = {});

// Positions of the true elements: [their number, rank], int64.
Variable where(const Variable& condition);
// x where `condition` is true, else y.
Variable where(const Variable& condition, const Variable& x, const Variable& y);
// Whether all elements are finite: [1], bool.
Variable isfinite(const Variable& x);
// Whether any is infinite, or not a number: [1], bool; declared with x's type, as Paddle's.
Variable has_inf(const Variable& x);
Variable has_nan(const Variable& x);
// [rank], int32.
Variable shape(const Variable& x);

// x / sqrt(sum x^2 + epsilon) along `axis`.
Variable l2_normalize(const Variable& x, int axis, double epsilon = 1e-12,
                      const std::string& name = {});
// Of rows: [n, 1].
Variable cos_sim(const Variable& x, const Variable& y);
Variable log_softmax(const Variable& x, int axis = -1);

}  // namespace fleet::fluid::layers
