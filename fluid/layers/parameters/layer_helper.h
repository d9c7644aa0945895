// What all layers need: names, variables, parameters, ops in the default programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fluid/layers/parameters/param_attr.h"
#include "fluid/ops/append.h"
#include "fluid/program/default_programs.h"
#include "fluid/program/variable.h"

namespace fleet::fluid {

// One call of a layer. Its name is the one given, or "<type>_<n>"; the variables that it makes are
// called "<name>.tmp_<i>", its parameters "<name>.w_<i>" and "<name>.b_<i>". Everything goes to
// this thread's default programs.
class LayerHelper {
 public:
  explicit LayerHelper(std::string type, std::string name = {});

  const std::string& type() const { return type_; }
  const std::string& name() const { return name_; }
  Program& main() const { return main_; }
  Program& startup() const { return startup_; }
  Block& block() const { return main_.current_block(); }

  // A new variable of the current block; shape inference gives its shape.
  Variable temp(DType dtype, bool stop_gradient = false) const;
  // A variable of block 0 of the main program; an existing one of that name is replaced.
  Variable global(VarDesc desc) const;
  // Declares `var` in the startup program and has it filled there.
  void initialize(const Variable& var, const Initializer& how) const;

  // A parameter in both programs, filled in the startup program unless an op there already does.
  // Throws ProgramError when the name belongs to a parameter of another shape or element type.
  Variable parameter(const ParamAttr& attr, const Shape& shape, DType dtype, bool is_bias) const;

  // Appends an op to the current block.
  void append(std::string type, SlotMap inputs, SlotMap outputs, AttributeMap attrs = {}) const;
  // The same with one new variable as output "Out".
  Variable append_unary(const std::string& op, const Variable& x, AttributeMap attrs = {}) const;

  // x + a parameter of x's dimensions [dim_start, dim_end) (0: to the last); x itself when the bias
  // is omitted.
  Variable add_bias(const Variable& x, const ParamAttr& attr, int dim_start, int dim_end = 0) const;
  // "", "relu", "tanh", …; throws UsageError with the nearest name for an unknown one.
  Variable activate(const Variable& x, const std::string& act, AttributeMap attrs = {}) const;

  // Throws UsageError unless `x` is a variable of the default main program.
  void check_input(const Variable& x, std::string_view argument) const;
  void check_inputs(const std::vector<Variable>& xs, std::string_view argument) const;
  // Throws a UsageError about an argument of this layer.
  [[noreturn]] void fail(std::string what, std::string expected, std::string got,
                         std::string fix) const;

 private:
  std::string type_;
  std::string name_;
  Program& main_;
  Program& startup_;
};

// What a program says of a parameter with these attributes.
VarDesc describe_parameter(const ParamAttr& attr, std::string name, const Shape& shape,
                           DType dtype);

inline std::vector<std::string> names_of(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  names.reserve(variables.size());
  for (const Variable& variable : variables) names.push_back(variable.name());
  return names;
}

}  // namespace fleet::fluid
