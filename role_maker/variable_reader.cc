#include "role_maker/variable_reader.h"

#include <limits>

#include "base/strings.h"

namespace fleet::role_maker {
namespace {

std::string_view trigger_of(Contract contract) {
  switch (contract) {
    case Contract::kPaddle:
      return "TRAINING_ROLE, PADDLE_TRAINING_ROLE, PADDLE_PSERVERS* or PADDLE_TRAINER_ENDPOINTS";
    case Contract::kTorchrun:
      return "RANK with WORLD_SIZE";
    case Contract::kOpenMpi:
      return "OMPI_COMM_WORLD_RANK";
    case Contract::kSlurm:
      return "SLURM_PROCID with SLURM_STEP_ID";
    default:
      return "";
  }
}

}  // namespace

void fail_environment(ErrorText text) {
  throw_error(ErrorCode::kEnvironment, std::move(text));
}

std::vector<std::string> read_list(std::string_view text) {
  std::vector<std::string> entries;
  for (const auto& entry : split(text, ',')) entries.emplace_back(trim(entry));
  return entries;
}

std::optional<std::string> VariableReader::optional(const char* name, const char* field) {
  auto value = environment_.get(name);
  if (value) {
    auto& origin = origins_[field];
    origin = origin.empty() ? name : origin + ", " + name;
  }
  return value;
}

std::optional<std::string> VariableReader::required(const char* name, const char* field,
                                                    std::string expected) {
  auto value = optional(name, field);
  if (!value) missing(name, std::move(expected));
  return value;
}

std::optional<int> VariableReader::number(const char* name, const char* field) {
  const auto text = optional(name, field);
  if (!text) return std::nullopt;
  const auto value = parse_int(*text);
  if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) {
    fail_environment({.what = "a variable is not a number",
                      .where = name,
                      .expected = "a whole number from 0 on",
                      .got = str_cat('\'', *text, '\''),
                      .fix = str_cat("correct ", name)});
  }
  return static_cast<int>(*value);
}

std::optional<int> VariableReader::required_number(const char* name, const char* field,
                                                   std::string expected) {
  const auto value = number(name, field);
  if (!value) missing(name, std::move(expected));
  return value;
}

void VariableReader::missing(const char* name, std::string expected) {
  missing_.emplace_back(name);
  expected_.push_back(str_cat(name, " (", expected, ")"));
}

void VariableReader::finish(ClusterSpec& spec) const {
  if (!missing_.empty()) {
    fail_environment({.what = "role variables are missing",
                      .where = join(missing_, ", "),
                      .expected = join(expected_, "; "),
                      .got = str_cat("not set, though the ", to_string(contract_),
                                     " contract is in force because of ", trigger_of(contract_)),
                      .fix = contract_ == Contract::kPaddle
                                 ? "set them, or start the processes with launch_ps or launch"
                                 : "set them, or start the processes with their launcher"});
  }
  spec.contract = contract_;
  spec.origins.insert(origins_.begin(), origins_.end());
}

}  // namespace fleet::role_maker
