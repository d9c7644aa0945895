// Reads the variables of one contract, remembers where each value came from, and collects what is
// missing so that one error names all of it. Internal to role_maker.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "role_maker/cluster_spec.h"

namespace fleet::role_maker {

[[noreturn]] void fail_environment(ErrorText text);

// The entries of a comma-separated list, without blanks around them; empty entries are kept, so
// that they are found wrong.
std::vector<std::string> read_list(std::string_view text);

class VariableReader {
 public:
  VariableReader(const Environment& environment, Contract contract)
      : environment_(environment), contract_(contract) {}
  const Environment& environment() const { return environment_; }

  // The value; `field` of the spec is noted as coming from this variable.
  std::optional<std::string> optional(const char* name, const char* field);
  // The same; noted as missing when it is not set.
  std::optional<std::string> required(const char* name, const char* field, std::string expected);
  // A whole number from 0 on; anything else is an error at once.
  std::optional<int> number(const char* name, const char* field);
  std::optional<int> required_number(const char* name, const char* field, std::string expected);

  void missing(const char* name, std::string expected);
  // Throws when something was missing; else writes contract and origins into the spec.
  void finish(ClusterSpec& spec) const;

 private:
  const Environment& environment_;
  Contract contract_;
  std::map<std::string, std::string> origins_;
  std::vector<std::string> missing_;
  std::vector<std::string> expected_;
};

}  // namespace fleet::role_maker
