// What the op harness runs: one row for each op and each way to use it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct Input {
  std::string slot;
  Shape shape;
  DType dtype = DType::kFloat64;  // floats take the type under test
  double low = -1;
  double high = 1;
  bool differentiable = true;
};

struct OpCase {
  std::string type;
  std::vector<Input> inputs;
  AttributeMap attrs = {};
  std::vector<std::string> outputs = {"Out"};
  std::string output = "Out";        // the one that is differentiated
  size_t output_copies = 1;          // variables in the slot of the differentiated output
  bool takes_empty = true;           // rows may be none
  bool takes_truths = true;          // the op's kernels for bool take this case
  bool floats_only = false;          // other types that the op has compute something else
  std::string typed_attribute = {};  // names the type under test
};

inline void PrintTo(const OpCase& op_case, std::ostream* out) {
  *out << op_case.type;
}

std::vector<OpCase> op_cases();

}  // namespace fleet::fluid
