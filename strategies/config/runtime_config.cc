#include "strategies/config/runtime_config.h"

#include <algorithm>
#include <vector>

#include "base/environment_table.h"
#include "base/error.h"
#include "base/strings.h"
#include "strategies/config/config_fields.h"

namespace fleet::strategies {
namespace {

using Field = ConfigField<RuntimeConfig>;

const std::vector<Field>& fields() {
  using C = RuntimeConfig;
  static const std::vector<Field> kFields = {
      {"rpc_deadline_ms", "FLAGS_rpc_deadline", &C::rpc_deadline_ms},
      {"heartbeat_interval_ms", "FLEET_HEARTBEAT_INTERVAL_MS", &C::heartbeat_interval_ms},
      {"heartbeat_timeout_ms", "FLEET_HEARTBEAT_TIMEOUT_MS", &C::heartbeat_timeout_ms},
      {"reconnect_grace_ms", "FLEET_RECONNECT_GRACE_MS", &C::reconnect_grace_ms},
      {"stall_report_ms", "FLEET_STALL_REPORT_MS", &C::stall_report_ms},
      {"stall_deadline_ms", "FLEET_STALL_DEADLINE_MS", &C::stall_deadline_ms},
      {"transport", "FLEET_TRANSPORT", &C::transport},
      {"collectives", "FLEET_COLLECTIVES", &C::collectives},
      {"socket_ifname", "FLEET_SOCKET_IFNAME", &C::socket_ifname},
      {"data_lanes", "FLEET_DATA_LANES", &C::data_lanes},
      {"sparse_rows", "FLEET_SPARSE_ROWS", &C::sparse_rows},
      {.name = "hot_row_steps",
       .variable = "FLEET_HOT_ROW_STEPS",
       .member = &C::hot_row_steps,
       .least = 0},
      {.name = "send_buffer",
       .variable = "FLEET_SEND_BUFFER",
       .member = &C::send_buffer,
       .least = 0},
      {"insecure", "FLEET_INSECURE", &C::insecure},
      {"frame_integrity", "FLEET_FRAME_INTEGRITY", &C::frame_integrity},
      {"frame_encryption", "FLEET_FRAME_ENCRYPTION", &C::frame_encryption},
      {"nccl_encryption", "FLEET_NCCL_ENCRYPTION", &C::nccl_encryption},
      {"require_same_bits", "FLEET_REQUIRE_SAME_BITS", &C::require_same_bits},
      {"job_id", "FLEET_JOB_ID", &C::job_id},
      {"job_secret", "FLEET_JOB_SECRET", &C::job_secret, true},
      {"job_secret_file", "FLEET_JOB_SECRET_FILE", &C::job_secret_file},
      {"on_nonfinite", "FLEET_ON_NONFINITE", &C::on_nonfinite},
      {"resume", "FLEET_RESUME", &C::resume},
      {"log_level", "FLEET_LOG_LEVEL", &C::log_level},
      {"dump_program", "FLEET_DUMP_PROGRAM", &C::dump_program},
      {"server_folders", "FLEET_SERVER_FOLDERS", &C::server_folders},
      {"cpu_num", "CPU_NUM", &C::cpu_num},
      {"check_nan_inf", "FLAGS_check_nan_inf", &C::check_nan_inf},
  };
  return kFields;
}

// Families in which every name is Fleet's own.
bool in_checked_family(std::string_view name) {
  return name.starts_with("FLAGS_rpc_") || name.starts_with("FLAGS_communicator_") ||
         name.starts_with("FLAGS_check_nan") || name.starts_with("FLEET_FRAME") ||
         name.starts_with("FLEET_HEARTBEAT") || name.starts_with("FLEET_HOT_") ||
         name.starts_with("FLEET_NCCL") || name.starts_with("FLEET_ON_") ||
         name.starts_with("FLEET_RECONNECT") || name.starts_with("FLEET_SEND_") ||
         name.starts_with("FLEET_SPARSE") || name.starts_with("FLEET_STALL");
}

// A variable that is nearly one of ours is most likely a slip that would go unnoticed.
void check_names(const Environment& environment) {
  std::vector<std::string> known;
  for (const EnvironmentGroup& group : environment_table()) {
    for (const EnvironmentVariable& variable : group.variables) {
      if (in_checked_family(variable.name)) known.emplace_back(variable.name);
    }
  }
  for (const auto& [name, value] : environment.all()) {
    if (!in_checked_family(name)) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw_error(ErrorCode::kEnvironment, {.what = "unknown variable" + did_you_mean(name, known),
                                          .where = name,
                                          .expected = join(known, ", "),
                                          .got = value,
                                          .fix = "correct or unset it"});
  }
}

void check_word(const char* variable, const std::string& value,
                const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  const std::vector<std::string> but_last(known.begin(), known.end() - 1);
  throw_error(ErrorCode::kEnvironment,
              {.what = "a variable has a value that cannot be used" + did_you_mean(value, known),
               .where = variable,
               .expected = str_cat(join(but_last, ", "), " or ", known.back()),
               .got = "'" + value + "'",
               .fix = str_cat("correct or unset ", variable)});
}

void check(const RuntimeConfig& config, const Environment& environment) {
  check_word("FLEET_TRANSPORT", config.transport, {"auto", "tcp", "unix"});
  check_word("FLEET_COLLECTIVES", config.collectives, {"auto", "mpi", "sockets"});
  check_word("FLEET_ON_NONFINITE", config.on_nonfinite, {"stop", "warn"});
  check_word("FLEET_SPARSE_ROWS", config.sparse_rows, {"float32", "float16", "bfloat16"});
  if (config.hot_row_steps > 1'000'000) {
    throw_error(ErrorCode::kEnvironment, {.what = "a variable has a value that cannot be used",
                                          .where = "FLEET_HOT_ROW_STEPS",
                                          .expected = "0 to 1000000",
                                          .got = str_cat(config.hot_row_steps),
                                          .fix = "give a number of steps, or unset it"});
  }
  if (config.send_buffer != 0 && (config.send_buffer < 16384 || config.send_buffer > 1 << 30)) {
    throw_error(ErrorCode::kEnvironment,
                {.what = "a variable has a value that cannot be used",
                 .where = "FLEET_SEND_BUFFER",
                 .expected = "0, or bytes from 16384 to 1073741824",
                 .got = str_cat(config.send_buffer),
                 .fix = "131072 is a good value where workers share a slow link; unset it else"});
  }
  if (config.frame_encryption && !config.frame_integrity) {
    throw_error(ErrorCode::kEnvironment,
                {.what = "encrypted frames always carry integrity tags",
                 .where = "FLEET_FRAME_INTEGRITY and FLEET_FRAME_ENCRYPTION",
                 .expected = "FLEET_FRAME_INTEGRITY=on where FLEET_FRAME_ENCRYPTION=on",
                 .got = "FLEET_FRAME_INTEGRITY=off",
                 .fix = "unset one of them"});
  }
  if (config.heartbeat_interval_ms >= config.heartbeat_timeout_ms) {
    throw_error(ErrorCode::kEnvironment,
                {.what = "heartbeats must come more often than their timeout",
                 .where = "FLEET_HEARTBEAT_INTERVAL_MS and FLEET_HEARTBEAT_TIMEOUT_MS",
                 .expected = "interval < timeout",
                 .got = str_cat(config.heartbeat_interval_ms, " and ", config.heartbeat_timeout_ms),
                 .fix = "raise the timeout or lower the interval"});
  }
  check_names(environment);
}

}  // namespace

RuntimeConfig RuntimeConfig::from_environment(const Environment& environment) {
  RuntimeConfig config;
  read_environment(config, fields(), environment, config.origins);
  config.trainer = TrainerRuntimeConfig::from_environment(environment);
  config.server = ServerRuntimeConfig::from_environment(environment);
  check(config, environment);
  return config;
}

std::string RuntimeConfig::to_string() const {
  return config_text(*this, fields(), origins);
}

}  // namespace fleet::strategies
