// How a parameter gets its first value: an op in the startup program.
#pragma once

#include <optional>
#include <variant>

#include "fluid/core/tensor.h"
#include "fluid/program/variable.h"

namespace fleet::fluid {

namespace initializer {

struct Constant {
  double value = 0.0;
  bool force_cpu = false;
  std::string op_device = {};  // "cpu" keeps it on the host
};

// Evenly distributed in [low, high).
struct Uniform {
  double low = -1.0;
  double high = 1.0;
  int32_t seed = 0;  // 0: the program's
};

struct Normal {
  double loc = 0.0;
  double scale = 1.0;
  int32_t seed = 0;
};

// Glorot and Bengio 2010: uniform in +-sqrt(6 / (fan_in + fan_out)), or normal with the deviation
// sqrt(2 / (fan_in + fan_out)). The fans come from the shape unless given: [in, out] for two
// dimensions, [out, in, receptive field…] for more.
struct Xavier {
  bool uniform = true;
  std::optional<double> fan_in = {};
  std::optional<double> fan_out = {};
  int32_t seed = 0;
};

// Normal, drawn within two deviations of the mean.
struct TruncatedNormal {
  double loc = 0.0;
  double scale = 1.0;
  int32_t seed = 0;
};

// He, Zhang, Ren and Sun 2015: uniform in +-sqrt(6 / fan_in), or normal with the deviation
// sqrt(2 / fan_in).
struct MSRA {
  bool uniform = true;
  std::optional<double> fan_in = {};
  int32_t seed = 0;
};

// For a transposed convolution that enlarges images: each filter [out, in, k, k] interpolates
// linearly in both directions. `paddle_form`: under Python 3 Paddle counts a row's number
// on along the row, in steps of 1 / k.
struct Bilinear {
  bool paddle_form = false;
};

// The values of a tensor of bool, int32, int64 or float32, which must have the parameter's shape.
struct Assign {
  Tensor values;
};

}  // namespace initializer

using Initializers = std::variant<initializer::Constant, initializer::Uniform, initializer::Normal,
                                  initializer::Xavier, initializer::TruncatedNormal,
                                  initializer::MSRA, initializer::Bilinear, initializer::Assign>;

// One of them; a type of its own for the reason of Value's (fluid/core/value.h).
struct Initializer : Initializers {
  using Initializers::Initializers;
  Initializer(const Initializer& other);
  Initializer(Initializer&& other) noexcept;
  Initializer& operator=(const Initializer& other);
  Initializer& operator=(Initializer&& other) noexcept;
  ~Initializer();
};

// Puts the op that fills `var` in front of all ops of `startup`. Throws UsageError for a shape or
// element type that the initialiser cannot fill.
void prepend_initializer(Program& startup, const VarDesc& var, const Initializer& how);

}  // namespace fleet::fluid
