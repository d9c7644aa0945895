#include "strategies/runtime_config.h"

#include <variant>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

using Member =
    std::variant<int64_t RuntimeConfig::*, bool RuntimeConfig::*, std::string RuntimeConfig::*>;

struct Field {
  std::string_view name;
  std::string_view variable;
  Member member;
  bool secret = false;
};

const std::vector<Field>& fields() {
  using C = RuntimeConfig;
  static const std::vector<Field> kFields = {
      {"rpc_deadline_ms", "FLAGS_rpc_deadline", &C::rpc_deadline_ms},
      {"heartbeat_interval_ms", "FLEET_HEARTBEAT_INTERVAL_MS", &C::heartbeat_interval_ms},
      {"heartbeat_timeout_ms", "FLEET_HEARTBEAT_TIMEOUT_MS", &C::heartbeat_timeout_ms},
      {"stall_report_ms", "FLEET_STALL_REPORT_MS", &C::stall_report_ms},
      {"stall_deadline_ms", "FLEET_STALL_DEADLINE_MS", &C::stall_deadline_ms},
      {"transport", "FLEET_TRANSPORT", &C::transport},
      {"data_lanes", "FLEET_DATA_LANES", &C::data_lanes},
      {"insecure", "FLEET_INSECURE", &C::insecure},
      {"require_same_bits", "FLEET_REQUIRE_SAME_BITS", &C::require_same_bits},
      {"job_id", "FLEET_JOB_ID", &C::job_id},
      {"job_secret", "FLEET_JOB_SECRET", &C::job_secret, true},
      {"job_secret_file", "FLEET_JOB_SECRET_FILE", &C::job_secret_file},
      {"log_level", "FLEET_LOG_LEVEL", &C::log_level},
      {"dump_program", "FLEET_DUMP_PROGRAM", &C::dump_program},
  };
  return kFields;
}

[[noreturn]] void refuse(const Field& field, std::string expected, const std::string& got) {
  throw_error(ErrorCode::kEnvironment, {.what = "a variable has a value that cannot be used",
                                        .where = std::string(field.variable),
                                        .expected = std::move(expected),
                                        .got = field.secret ? "(hidden)" : "'" + got + "'",
                                        .fix = str_cat("correct or unset ", field.variable)});
}

void assign(RuntimeConfig& config, const Field& field, const std::string& text) {
  if (const auto* number = std::get_if<int64_t RuntimeConfig::*>(&field.member)) {
    const auto value = parse_int(text);
    if (!value || *value <= 0) refuse(field, "a whole number above 0", text);
    config.** number = *value;
  } else if (const auto* flag = std::get_if<bool RuntimeConfig::*>(&field.member)) {
    const bool yes = text == "1" || text == "true" || text == "True";
    if (!yes && text != "0" && text != "false" && text != "False") {
      refuse(field, "1, 0, true or false", text);
    }
    config.** flag = yes;
  } else {
    config.*std::get<std::string RuntimeConfig::*>(field.member) = text;
  }
}

std::string value_text(const RuntimeConfig& config, const Field& field) {
  if (const auto* number = std::get_if<int64_t RuntimeConfig::*>(&field.member)) {
    return std::to_string(config.**number);
  }
  if (const auto* flag = std::get_if<bool RuntimeConfig::*>(&field.member)) {
    return config.**flag ? "true" : "false";
  }
  const std::string& text = config.*std::get<std::string RuntimeConfig::*>(field.member);
  if (text.empty()) return "(unset)";
  return field.secret ? "(hidden)" : text;
}

void check(const RuntimeConfig& config, const Environment& environment) {
  if (config.transport != "auto" && config.transport != "tcp" && config.transport != "unix") {
    throw_error(ErrorCode::kEnvironment, {.what = "unknown transport",
                                          .where = "FLEET_TRANSPORT",
                                          .expected = "auto, tcp or unix",
                                          .got = config.transport,
                                          .fix = "correct or unset FLEET_TRANSPORT"});
  }
  if (config.heartbeat_interval_ms >= config.heartbeat_timeout_ms) {
    throw_error(ErrorCode::kEnvironment,
                {.what = "heartbeats must come more often than their timeout",
                 .where = "FLEET_HEARTBEAT_INTERVAL_MS and FLEET_HEARTBEAT_TIMEOUT_MS",
                 .expected = "interval < timeout",
                 .got = str_cat(config.heartbeat_interval_ms, " and ", config.heartbeat_timeout_ms),
                 .fix = "raise the timeout or lower the interval"});
  }
  // A flag that is nearly one of ours is most likely a slip that would go unnoticed.
  std::vector<std::string> known;
  for (const Field& field : fields()) known.emplace_back(field.variable);
  for (const auto& [name, value] : environment.all()) {
    if (!name.starts_with("FLAGS_rpc_dead") && !name.starts_with("FLEET_HEARTBEAT") &&
        !name.starts_with("FLEET_STALL")) {
      continue;
    }
    bool ours = false;
    for (const std::string& variable : known) ours = ours || variable == name;
    if (ours) continue;
    throw_error(ErrorCode::kEnvironment, {.what = "unknown variable" + did_you_mean(name, known),
                                          .where = name,
                                          .expected = join(known, ", "),
                                          .got = value,
                                          .fix = "correct or unset it"});
  }
}

}  // namespace

RuntimeConfig RuntimeConfig::from_environment(const Environment& environment) {
  RuntimeConfig config;
  for (const Field& field : fields()) {
    const auto text = environment.get(field.variable);
    if (!text) continue;
    assign(config, field, *text);
    config.origins.emplace(field.name, field.variable);
  }
  check(config, environment);
  return config;
}

std::string RuntimeConfig::to_string() const {
  std::string text;
  for (const Field& field : fields()) {
    const auto origin = origins.find(std::string(field.name));
    text += str_cat("  ", field.name, " = ", value_text(*this, field), "  (",
                    origin == origins.end() ? "default" : origin->second, ")\n");
  }
  return text;
}

}  // namespace fleet::strategies
