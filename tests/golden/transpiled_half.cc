#include "tests/golden/transpiled_half.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/strategy_factory.h"
#include "tests/golden/departures.h"
#include "tests/golden/golden_compare.h"
#include "tests/golden/golden_config.h"
#include "tests/golden/golden_fleet.h"
#include "tests/golden/golden_program.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::golden {
namespace {

using fluid::Program;
using nlohmann::json;
using strategies::Strategy;
using transpiler::DistributeTranspiler;
using transpiler::DistributeTranspilerConfig;
using transpiler::ProgramPair;
using transpiler::TranspileOptions;
using Differences = std::vector<std::string>;

void append(Differences& to, const Differences& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Compares one program with what the file, at `path`, says of it.
class Expectation {
 public:
  explicit Expectation(const json& expected)
      : expected_(expected), options_(compare_options(expected)) {}

  void program(const std::string& path, const Program& got) {
    const json::json_pointer at("/" + path);
    if (!expected_.contains(at)) return;
    append(out_, compare_program(expected_.at(at), got, path, options_));
  }
  void distribution(const std::string& path, const Program& got) {
    value(path, dump_distribution(got.distribution()));
  }
  void geo(const std::string& path, const Program& got) { value(path, dump_geo(got)); }
  void value(const std::string& path, const json& got) {
    const json::json_pointer at("/" + path);
    if (!expected_.contains(at)) return;
    append(out_, compare_json(expected_.at(at), got, path));
  }
  Differences take() { return std::move(out_); }

 private:
  const json& expected_;
  CompareOptions options_;
  Differences out_;
};

// The calls that come first when a case asks for an order of its own.
void follow_call_order(const json& config, const DistributeTranspiler& transpiler) {
  if (!config.contains("call_order")) return;
  const auto endpoint = config.at("pservers").at(0).get<std::string>();
  for (const json& step : config.at("call_order")) {
    const auto call = step.get<std::string>();
    if (call == "get_trainer_program") {
      transpiler.get_trainer_program();
    } else if (call == "get_pserver_program") {
      transpiler.get_pserver_program(endpoint);
    } else if (call == "get_pserver_programs") {
      transpiler.get_pserver_programs(endpoint);
    } else if (call == "get_startup_program") {
      transpiler.get_startup_program(endpoint);
    } else {
      throw_error(ErrorCode::kUnknownName, {.what = "unknown call in call_order",
                                            .where = "config.call_order",
                                            .expected = "a method of DistributeTranspiler",
                                            .got = call,
                                            .fix = "teach the runner this call"});
    }
  }
}

Differences check_servers(const json& expected, const DistributeTranspilerConfig& config,
                          const TranspileOptions& options) {
  Expectation expect(expected);
  DistributeTranspiler transpiler(config);
  transpiler.transpile(options);
  follow_call_order(expected.at("config"), transpiler);
  const Program trainer = transpiler.get_trainer_program();
  expect.program("trainer", trainer);
  expect.program("trainer_startup", transpiler.get_trainer_startup_program());
  expect.distribution("trainer_dist", trainer);
  expect.geo("geo_vars_info", trainer);
  for (const json& server : expected.at("config").at("pservers")) {
    const auto endpoint = server.get<std::string>();
    const ProgramPair pair = transpiler.get_pserver_programs(endpoint);
    expect.program("pservers/" + endpoint + "/main", pair.main);
    expect.program("pservers/" + endpoint + "/startup", pair.startup);
  }
  return expect.take();
}

Differences check_collective(const json& expected, const DistributeTranspilerConfig& config,
                             const TranspileOptions& options) {
  Expectation expect(expected);
  DistributeTranspiler transpiler(config);
  transpiler.transpile(options);
  const Program main = transpiler.get_trainer_program();
  expect.program("main", main);
  expect.program("startup", transpiler.get_trainer_startup_program());
  expect.distribution("main_dist", main);
  return expect.take();
}

// The strategy that has the form which departures ask for: of synchronous ones, the release's.
std::shared_ptr<const Strategy> in_the_form_of(std::shared_ptr<const Strategy> strategy,
                                               const DistributeTranspilerConfig& wanted) {
  if (!wanted.completely_not_async) return strategy;
  auto sync = strategies::StrategyFactory::create_sync_strategy();
  sync.runtime_split_send_recv = true;
  sync.slice_var_up = wanted.slice_var_up;
  sync.split_method = wanted.split_method;
  sync.min_block_size = wanted.min_block_size;
  sync.slices_per_server = wanted.slices_per_server;
  return sync.make();
}

// Each process once, as a worker or a server.
template <class F>
void each_process(role_maker::ClusterSpec cluster, const F& f) {
  for (cluster.index = 0; cluster.index < cluster.worker_num; ++cluster.index) f(cluster);
  cluster.role = role_maker::Role::kServer;
  for (cluster.index = 0; cluster.index < cluster.server_num; ++cluster.index) f(cluster);
}

// What a case expects, and how this library is told to make it.
struct Departed {
  json expected;
  DistributeTranspilerConfig config;
  TranspileOptions options;
};

void depart(const json& golden, Departed& to) {
  for (const Departure& departure : departures()) {
    if (!departure.applies(golden)) continue;
    if (departure.expect != nullptr) departure.expect(to.expected);
    if (departure.configure != nullptr) departure.configure(golden, to.config, to.options);
  }
}

// What the release fails at, departures left out.
Differences check_errors(const json& expected) {
  if (!expected.contains("errors") || expected.at("errors").empty()) return {};
  return {str_cat("the release fails, and no departure says what to do instead: ",
                  expected.at("errors").dump().substr(0, 200))};
}

// What each process of a collective Fleet job runs.
Differences check_fleet_ranks(const json& expected, const Strategy& strategy,
                              const DistributeTranspilerConfig& wanted, const Program& main,
                              const Program& startup) {
  if (Differences out = check_errors(expected); !out.empty()) return out;
  Expectation expect(expected);
  each_process(fleet_cluster(expected.at("config")), [&](const role_maker::ClusterSpec& process) {
    const ProgramPair pair = fleet_programs(strategy, wanted, main, startup, process);
    const std::string path = str_cat("workers/", process.index);
    expect.value(path + "/effective_strategy", effective_strategy(strategy));
    expect.value(path + "/effective_config", dump_effective_config(strategy));
    expect.program(path + "/main", pair.main);
    expect.program(path + "/startup", pair.startup);
  });
  return expect.take();
}

// What a process of a Fleet job with servers runs.
Differences check_process(const json& golden, const Strategy& strategy, const Program& main,
                          const Program& startup, const role_maker::ClusterSpec& process) {
  const json job = server_job_of(golden, strategy, process.is_server() ? 0 : process.index);
  Departed departed = {.expected = job,
                       .config = *strategy.transpiler_config(),
                       .options = load_options(job.at("config"), main, startup)};
  depart(job, departed);
  if (Differences out = check_errors(departed.expected); !out.empty()) return out;
  const ProgramPair pair = fleet_programs(strategy, departed.config, main, startup, process,
                                          departed.options.dispatch_order);
  Expectation expect(departed.expected);
  if (process.is_server()) {
    const std::string path = "pservers/" + process.current_endpoint();
    expect.program(path + "/main", pair.main);
    expect.program(path + "/startup", pair.startup);
  } else {
    expect.program("trainer", pair.main);
    expect.program("trainer_startup", pair.startup);
    expect.distribution("trainer_dist", pair.main);
    expect.geo("geo_vars_info", pair.main);
  }
  return expect.take();
}

Differences check_fleet(const json& golden, const json& expected, const Strategy& strategy,
                        const Program& main, const Program& startup) {
  Expectation expect(expected);
  Differences out;
  each_process(fleet_cluster(golden.at("config")), [&](const role_maker::ClusterSpec& process) {
    for (const auto& line : check_process(golden, strategy, main, startup, process)) {
      out.push_back(process.process_name() + ", " + line);
    }
    if (process.is_server()) return;
    const std::string path = str_cat("workers/", process.index);
    expect.value(path + "/effective_strategy", effective_strategy(strategy));
    expect.value(path + "/effective_config", dump_effective_config(strategy));
  });
  append(out, expect.take());
  return out;
}

// Fleet::minimize must leave what its strategy makes of the programs, which is compared above.
Differences check_minimize(const json& golden, const std::shared_ptr<const Strategy>& strategy,
                           const Program& main, const Program& startup) {
  Differences out;
  const bool picks = golden.at("config").at("fleet").value("strategy", json()).is_null() &&
                     !golden.at("config").at("fleet").contains("collective");
  const auto compare = [&](const std::shared_ptr<const Strategy>& given, const Strategy& expected) {
    each_process(fleet_cluster(golden.at("config")), [&](const role_maker::ClusterSpec& process) {
      const ProgramPair left = minimized_by_fleet(golden, given, process);
      const ProgramPair made =
          fleet_programs(expected, *expected.transpiler_config(), main, startup, process);
      if (left.main.to_string() != made.main.to_string() ||
          left.startup.to_string() != made.startup.to_string()) {
        out.push_back(str_cat("Fleet::minimize leaves other programs in ", process.process_name()));
      }
    });
  };
  compare(strategy, *strategy);
  if (picks) compare(nullptr, *fleet_strategy(golden.at("config")));
  return out;
}

// Nothing when the case is refused as it should be.
Differences check_refusal(const Refusal& refusal, const json& golden, const Program& main,
                          const Program& startup) {
  try {
    DistributeTranspiler transpiler(load_config(golden.at("config").at("transpiler_config")));
    transpiler.transpile(load_options(golden.at("config"), main, startup));
  } catch (const Error& error) {
    Differences out;
    if (error.code() != refusal.code) {
      out.push_back(str_cat("refused for another reason: ", error.what()));
    }
    for (const std::string_view field : refusal.fields) {
      if (std::string_view(error.what()).find(field) == std::string_view::npos) {
        out.push_back(str_cat("the refusal does not name ", field, ": ", error.what()));
      }
    }
    return out;
  }
  return {str_cat("should be refused: ", refusal.reason)};
}

// Programs of one machine: nothing is transpiled.
Differences check_local(json golden) {
  for (const Departure& departure : departures()) {
    if (departure.applies(golden) && departure.expect != nullptr) departure.expect(golden);
  }
  return check_errors(golden);
}

// Whose programs are transpiled: those of the net that was built, or the file's own.
enum class Source { kNet, kFile };

// A Fleet job.
Differences check_job(const json& golden, const Program& main, const Program& startup,
                      Source source) {
  const auto strategy = fleet_strategy(golden.at("config"));
  Departed departed = {.expected = golden, .config = *strategy->transpiler_config(), .options = {}};
  depart(golden, departed);
  const auto form = in_the_form_of(strategy, departed.config);
  Differences out =
      golden.at("config").contains("pservers")
          ? check_fleet(golden, departed.expected, *form, main, startup)
          : check_fleet_ranks(departed.expected, *form, departed.config, main, startup);
  if (source == Source::kNet) append(out, check_minimize(golden, form, main, startup));
  return out;
}

Differences check(const json& golden, const Program& main, const Program& startup, Source source) {
  for (const Refusal& refusal : refusals()) {
    if (refusal.applies(golden)) return check_refusal(refusal, golden, main, startup);
  }
  if (golden.at("kind") == "fleet") return check_job(golden, main, startup, source);
  Departed departed = {.expected = golden,
                       .config = load_config(golden["config"]["transpiler_config"]),
                       .options = load_options(golden.at("config"), main, startup)};
  depart(golden, departed);
  const auto& [expected, config, options] = departed;
  if (Differences out = check_errors(expected); !out.empty()) return out;
  if (golden.at("kind") == "ps") return check_servers(expected, config, options);
  return check_collective(expected, config, options);
}

}  // namespace

Differences check_transpiled(const json& golden, const Program& main, const Program& startup) {
  if (golden.at("kind") == "layers") return check_local(golden);
  const std::string main_text = main.to_string();
  const std::string startup_text = startup.to_string();
  Differences out = check(golden, main, startup, Source::kNet);
  if (main.to_string() != main_text) out.push_back("the user's main program was changed");
  if (startup.to_string() != startup_text) out.push_back("the user's startup program was changed");
  if (!golden.contains("main_before")) return out;
  const Program loaded = load_program(golden.at("main_before"));
  const json& startup_before = golden.at("startup_before");
  const Program loaded_startup = load_program(startup_before, creation_order(startup_before));
  for (const std::string& line : check(golden, loaded, loaded_startup, Source::kFile)) {
    out.push_back("from the file's own programs, " + line);
  }
  return out;
}

}  // namespace fleet::golden
