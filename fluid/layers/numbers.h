// Numbers that layers take: known when the program is built, or given in each step by variables.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "fluid/program/variable.h"

namespace fleet::fluid {

class LayerHelper;

namespace layers {

// A number, or a variable of one element.
template <class T>
class Given {
 public:
  Given(T value) : known_(true), value_(value) {}
  Given(const Variable& variable) : variable_(variable) {}

  bool known() const { return known_; }
  T value() const { return value_; }
  T value_or(T otherwise) const { return known_ ? value_ : otherwise; }
  const Variable& variable() const { return variable_; }

  // What the attribute says: the number, or `otherwise` for a variable, which `slot` of `inputs`
  // gets then. Throws UsageError for an empty variable, or one of another program.
  T attribute(const LayerHelper& helper, const std::string& slot, SlotMap& inputs,
              T otherwise) const;

 private:
  bool known_ = false;
  T value_{};
  Variable variable_;
};

using Number = Given<int64_t>;  // its variable is of int32 or int64
using Real = Given<double>;

// Several whole numbers, `{3, n, -1}`, or one variable that has them all.
class Numbers {
 public:
  Numbers(std::initializer_list<Number> numbers) : numbers_(numbers) {}
  Numbers(const std::vector<int32_t>& numbers) : numbers_(numbers.begin(), numbers.end()) {}
  Numbers(const Shape& shape) : numbers_(shape.begin(), shape.end()) {}
  Numbers(const Variable& whole) : whole_(whole) {}

  // Of each number, as far as there are numbers: whether the program knows it.
  std::vector<bool> known() const;
  // What the attribute says, with -1 for variables. `whole` of `inputs` gets the one variable, and
  // the attribute is empty then; otherwise `list` gets a variable for each number as soon as one of
  // them is a variable. T is int32_t or int64_t. Throws as Number does.
  template <class T = int32_t>
  std::vector<T> attribute(const LayerHelper& helper, const std::string& whole,
                           const std::string& list, SlotMap& inputs) const;

 private:
  std::vector<Number> numbers_;
  std::optional<Variable> whole_;
};

}  // namespace layers
}  // namespace fleet::fluid
