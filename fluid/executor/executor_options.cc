// Where the engine takes settings from the environment; places.cc asks for its GPU.
#include <algorithm>

#include "base/environment.h"
#include "base/error.h"
#include "base/process/usable_cores.h"
#include "base/strings.h"
#include "fluid/executor/executor.h"

namespace fleet::fluid {
namespace {

[[noreturn]] void refuse(const std::string& variable, std::string expected,
                         const std::string& got) {
  throw_error(ErrorCode::kEnvironment, {.what = "a variable has a value that cannot be used",
                                        .where = variable,
                                        .expected = std::move(expected),
                                        .got = "'" + got + "'",
                                        .fix = "correct or unset " + variable});
}

bool flag(const Environment& environment, const char* variable) {
  const auto text = environment.get(variable);
  if (!text) return false;
  const auto set = parse_flag(*text);
  if (!set) refuse(variable, std::string(kFlagSpellings), *text);
  return *set;
}

std::optional<int> threads(const Environment& environment, const char* variable) {
  const auto text = environment.get(variable);
  if (!text) return std::nullopt;
  const auto count = parse_int(*text);
  if (!count || *count < 1 || *count > ExecutorOptions::kMaxThreads) {
    refuse(variable, str_cat("a number from 1 to ", ExecutorOptions::kMaxThreads), *text);
  }
  return static_cast<int>(*count);
}

}  // namespace

ExecutorOptions with_environment(ExecutorOptions options) {
  const Environment environment = Environment::of_process();
  if (!options.check_nan_inf) options.check_nan_inf = flag(environment, "FLAGS_check_nan_inf");
  if (!options.threads) options.threads = threads(environment, "CPU_NUM").value_or(1);
  if (!options.op_threads) options.op_threads = threads(environment, "FLEET_NUM_THREADS");
  if (!options.op_threads) {
    options.op_threads =
        std::min(core_share(environment, Cores::of_process()).count, ExecutorOptions::kMaxThreads);
  }
  if (!options.pin_threads) options.pin_threads = flag(environment, "FLEET_PIN_THREADS");
  if (!options.profile) options.profile = environment.get("FLAGS_profile").value_or("");
  return options;
}

}  // namespace fleet::fluid
