// Which ops compute in 16-bit floats.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "fluid/mixed_precision/options.h"
#include "fluid/program/program.h"

namespace fleet::fluid::mixed_precision {

enum class Precision : uint8_t { kHalf, kFloat32, kOfInputs };

// The lists of the release, changed as `lists` says.
class PrecisionTable {
 public:
  // Throws UsageError for an op type that is in both lists, or that the program's table does not
  // have, and for a variable that the program does not have.
  PrecisionTable(const PrecisionLists& lists, const Program& program);

  // By type, without a look at variables.
  Precision of(std::string_view op_type) const;
  bool is_black(std::string_view variable) const { return black_variables_.contains(variable); }

 private:
  std::map<std::string, Precision, std::less<>> types_;  // others: float32
  std::set<std::string, std::less<>> black_variables_;
};

}  // namespace fleet::fluid::mixed_precision
