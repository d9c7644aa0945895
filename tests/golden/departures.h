// Where this library departs from the release that the golden files come from: rules, each with
// its condition, never names of cases. docs/transpiler.md shows the same table.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::golden {

struct Departure {
  std::string_view name;
  std::string_view paddle;  // what the release does
  std::string_view ours;
  std::string_view reason;
  // Cases that the rule concerns, of which tests/golden/our_form keeps what is made here.
  std::string_view cases;
  // Whether the rule concerns a case.
  bool (*applies)(const nlohmann::json& golden);
  // Turns what the file expects into what this library makes.
  void (*expect)(nlohmann::json& golden) = nullptr;
  // Switches this library to Paddle's form, so that the case is compared as it is.
  void (*configure)(const nlohmann::json& golden, transpiler::DistributeTranspilerConfig& config,
                    transpiler::TranspileOptions& options) = nullptr;
};

std::span<const Departure> departures();

// Leaves out what the file says of the user's own programs where a rule concerns them.
void expect_own_net(nlohmann::json& golden);

// What the release refuses, or fails at, and this library refuses too, naming the fields.
struct Refusal {
  std::string_view reason;
  bool (*applies)(const nlohmann::json& golden);
  std::vector<std::string_view> fields;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

std::span<const Refusal> refusals();

// The order in which numpy's legacy generator, seeded, shuffles `count` items.
std::vector<size_t> numpy_shuffle(uint32_t seed, size_t count);

}  // namespace fleet::golden
