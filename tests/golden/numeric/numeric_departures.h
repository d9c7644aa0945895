// Where this library computes something else than Paddle, and where it keeps what may
// surprise: rules on family, op and attributes, which the runner reads and docs/departures.md
// lists.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/golden/numeric/departing_data.h"
#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

inline bool always(const Json& /*json*/, const Tensors& /*tensors*/) {
  return true;
}

struct NumericDeparture {
  std::string family;   // folders of the golden files, by commas
  std::string subject;  // op, optimizer or schedule
  std::string paddle;
  std::string here;
  std::string reason;
  // What gives Paddle's form, which must match the files; empty where Paddle's result
  // is no function of what it is given, or there is none.
  std::string option;
  // Whether a case is one of those that differ. Null: no file can show it, shown_by does.
  std::function<bool(const Json& json)> applies;
  // Whether the numbers of a case that applies make it differ. Null: nothing is known.
  std::function<bool(const Json& json, const Tensors& tensors)> differs = always;
  // The test that shows it where no file of the project does: "<source>: <test>".
  std::string shown_by = {};
};

// What Paddle does and this library does too.
struct KeptForm {
  std::string family;
  std::string subject;
  std::string paddle;
  std::string reason;
  std::function<bool(const Json& json)> applies;
  std::string shown_by = {};
};

const std::vector<NumericDeparture>& numeric_departures();
const std::vector<KeptForm>& kept_forms();

// Whether a rule's families, by commas, have this one.
bool has_family(const std::string& families, std::string_view family);

// The departures that a case of a family falls under.
std::vector<const NumericDeparture*> find_departures(std::string_view family, const Json& json);

// Whether one of them asks for this option.
bool asks(const std::vector<const NumericDeparture*>& departures, std::string_view option);

}  // namespace fleet::fluid::golden
