// Where this library computes something else than the original: rules on family, op and
// attributes, which the runner reads and docs/departures.md lists.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

struct NumericDeparture {
  std::string family;   // folders of the golden files, by commas
  std::string subject;  // op, optimizer or schedule
  std::string original;
  std::string here;
  std::string option;  // what gives the original's form, which must match the files
  // Whether a case is one of those that differ.
  std::function<bool(const Json& json)> applies;
};

const std::vector<NumericDeparture>& numeric_departures();

// The departure that a case of a family falls under; null when none does.
const NumericDeparture* find_departure(const std::string& family, const Json& json);

}  // namespace fleet::fluid::golden
