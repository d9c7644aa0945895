// Nets whose kernels the op harness cannot reach one by one: their ops need weights, sequences,
// selected rows, or state.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "fluid/program/variable.h"

namespace fleet::fluid {

struct NetCase {
  std::string name;
  // Builds the net in the default programs, in one floating type, and returns what is compared.
  // Data variables of floats are fed random numbers, others 0, 1, 2, 0, …
  std::function<std::vector<Variable>(DType dtype)> build;
};

inline void PrintTo(const NetCase& net, std::ostream* out) {
  *out << net.name;
}

std::vector<NetCase> net_cases();

}  // namespace fleet::fluid
