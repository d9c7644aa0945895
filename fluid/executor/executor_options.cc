// Where the engine takes settings from the environment; places.cc asks for its GPU.
#include "base/environment.h"
#include "base/error.h"
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

bool check_nan_inf(const Environment& environment) {
  const auto text = environment.get("FLAGS_check_nan_inf");
  if (!text) return false;
  const auto flag = parse_flag(*text);
  if (!flag) refuse("FLAGS_check_nan_inf", std::string(kFlagSpellings), *text);
  return *flag;
}

int threads(const Environment& environment, const char* variable) {
  const auto text = environment.get(variable);
  if (!text) return 1;
  const auto count = parse_int(*text);
  if (!count || *count < 1 || *count > ExecutorOptions::kMaxThreads) {
    refuse(variable, str_cat("a number from 1 to ", ExecutorOptions::kMaxThreads), *text);
  }
  return static_cast<int>(*count);
}

}  // namespace

ExecutorOptions with_environment(ExecutorOptions options) {
  const Environment environment = Environment::of_process();
  if (!options.check_nan_inf) options.check_nan_inf = check_nan_inf(environment);
  if (!options.threads) options.threads = threads(environment, "CPU_NUM");
  if (!options.op_threads) options.op_threads = threads(environment, "FLEET_NUM_THREADS");
  if (!options.profile) options.profile = environment.get("FLAGS_profile").value_or("");
  return options;
}

}  // namespace fleet::fluid
