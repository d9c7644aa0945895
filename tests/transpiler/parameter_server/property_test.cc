// What must hold for every program and every cluster, over random ones.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "base/strings.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/server_program.h"
#include "fluid/program/interleaved.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {
namespace {

using fluid::Operator;
using fluid::Program;

constexpr uint64_t kSeeds = 170;

// Of a parameter: received by trainers, or looked up on the server.
bool is_value(const fluid::DistributedVar& row) {
  return row.vtype == "Param" || row.vtype == "RemotePrefetch";
}

// (variable, endpoint) pairs that travel by one op.
std::set<std::pair<std::string, std::string>> travels(const Operator& op,
                                                      const std::vector<std::string>& names) {
  std::set<std::pair<std::string, std::string>> pairs;
  const auto& endpoints = std::get<std::vector<std::string>>(*op.attr("epmap"));
  EXPECT_EQ(endpoints.size(), names.size()) << op.to_string();
  for (size_t i = 0; i < std::min(names.size(), endpoints.size()); ++i) {
    pairs.emplace(names[i], endpoints[i]);
  }
  return pairs;
}

std::vector<std::string> names_on_servers(const Operator& op, const char* attribute,
                                          const std::vector<std::string>& variables) {
  const fluid::Attribute* given = op.attr(attribute);
  const auto* names = given ? std::get_if<std::vector<std::string>>(given) : nullptr;
  return names != nullptr && !names->empty() ? *names : variables;
}

// A job, transpiled.
struct EveryJob {
  explicit EveryJob(uint64_t seed) : job(random_job(seed)), transpiler(job.config) {
    transpiler.transpile(options_for(job.net, job.servers, job.shards));
  }

  RandomJob job;
  DistributeTranspiler transpiler;
};

// Runs the check on every seed; a failure names its seed.
void for_every_job(void (*check)(const EveryJob&)) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    check(EveryJob(seed));
    if (testing::Test::HasFailure()) return;
  }
}

void check_coverage(const EveryJob& every) {
  std::map<std::string, std::map<int64_t, int64_t>> parts;  // origin -> offset -> elements
  std::map<std::string, int64_t> tables;  // rows of tables that servers have in turns
  for (const std::string& endpoint : server_endpoints(every.job.servers)) {
    const Program server = every.transpiler.get_pserver_program(endpoint);
    for (const fluid::DistributedVar& row : server.distribution().vars) {
      if (row.endpoint != endpoint) continue;
      if (row.vtype == fluid::kDistributedTable) {
        const int64_t behind = row.origin_shape[0] - row.block_id;
        tables[row.origin] += (behind + every.job.servers - 1) / every.job.servers;
      }
      if (!is_value(row)) continue;
      const fluid::VarDesc& var = server.global_block().var(row.slice);
      EXPECT_TRUE(parts[row.origin].emplace(row.offset, var.shape.numel()).second) << row.slice;
    }
  }
  for (const fluid::VarDesc* param : every.job.net.main.global_block().parameters()) {
    if (tables.contains(param->name)) {
      EXPECT_EQ(tables[param->name], param->shape[0]) << param->name;
      continue;
    }
    int64_t next = 0;
    for (const auto& [offset, elements] : parts[param->name]) {
      EXPECT_EQ(offset, next) << param->name;
      next = offset + elements;
    }
    EXPECT_EQ(next, param->trainable ? param->shape.numel() : 0) << param->name;
  }
}

const Operator& listen_of(const Program& server) {
  return *server.global_block().ops().back();
}

// GEO: servers take the difference of each slice, and trainers begin with what servers have, but
// for tables that they look up.
void check_differences(const EveryJob& every) {
  const Program trainer = every.transpiler.get_trainer_program();
  const auto tables = std::get<std::vector<std::string>>(
      *trainer.global_block().ops().back()->attr("send_varnames"));
  const Program startup = every.transpiler.get_trainer_startup_program();
  std::set<std::pair<std::string, std::string>> received;
  for (const auto& op : startup.global_block().ops()) {
    if (op->type != "recv") continue;
    received.merge(travels(*op, names_on_servers(*op, "recv_varnames", op->output("Out"))));
  }
  std::set<std::pair<std::string, std::string>> held;
  for (const std::string& endpoint : server_endpoints(every.job.servers)) {
    const Program server = every.transpiler.get_pserver_program(endpoint);
    std::set<std::string> differences;
    for (const fluid::DistributedVar& row : server.distribution().vars) {
      if (row.endpoint != endpoint) continue;
      if (std::ranges::count(tables, row.origin) == 0) held.emplace(row.slice, endpoint);
      differences.insert(row.slice + ".delta");
    }
    std::set<std::string> taken;
    for (const auto& bound :
         std::get<std::vector<std::string>>(*listen_of(server).attr("grad_to_block_id"))) {
      taken.insert(bound.substr(0, bound.rfind(':')));
    }
    EXPECT_EQ(taken, differences);
  }
  EXPECT_EQ(received, held);
}

void check_traffic(const EveryJob& every) {
  if (every.job.config.geo_sgd_mode) {
    check_differences(every);
    return;
  }
  const Program trainer = every.transpiler.get_trainer_program();
  std::set<std::pair<std::string, std::string>> sent;
  std::set<std::pair<std::string, std::string>> received;
  for (const auto& op : trainer.global_block().ops()) {
    if (op->type == "send" && std::get<bool>(*op->attr("use_send_handler"))) {
      sent.merge(travels(*op, names_on_servers(*op, "send_varnames", op->input("X"))));
    } else if (op->type == "recv") {
      received.merge(travels(*op, names_on_servers(*op, "recv_varnames", op->output("Out"))));
    } else if (op->type == "prefetch") {
      received.merge(travels(*op, op->input("X")));
    } else if ((op->type == "nce" || op->type == "hierarchical_sigmoid") &&
               op->attr("epmap") != nullptr) {
      received.merge(travels(*op, std::get<std::vector<std::string>>(*op->attr("table_names"))));
    } else if (op->type == "distributed_lookup_table") {
      const auto names = std::get<std::vector<std::string>>(*op->attr("table_names"));
      const auto endpoints = std::get<std::vector<std::string>>(*op->attr("endpoints"));
      ASSERT_EQ(names.size(), endpoints.size());
      for (size_t i = 0; i < names.size(); ++i) received.emplace(names[i], endpoints[i]);
    }
  }
  std::set<std::pair<std::string, std::string>> taken;
  std::set<std::pair<std::string, std::string>> held;
  for (const std::string& endpoint : server_endpoints(every.job.servers)) {
    const Program server = every.transpiler.get_pserver_program(endpoint);
    const Operator& listen = listen_of(server);
    for (const auto& lookup :
         std::get<std::vector<std::string>>(*listen.attr("prefetch_var_name_to_block_id"))) {
      held.emplace(lookup.substr(0, lookup.rfind(':')), endpoint);
    }
    for (const std::string& name : listen.input("X")) {
      const auto shard = name.find(".trainer_");
      const bool first = name.ends_with(".trainer_0") || name.find(".trainer_0.") != name.npos;
      if (shard == std::string::npos || first) taken.emplace(name, endpoint);
      // What batch norm keeps comes back as well.
      const auto statistic = name.find("@STATISTIC");
      if (statistic != std::string::npos) held.emplace(name.substr(0, statistic), endpoint);
    }
    for (const fluid::DistributedVar& row : server.distribution().vars) {
      if (is_value(row)) held.emplace(row.slice, row.endpoint);
    }
  }
  EXPECT_EQ(sent, taken);
  EXPECT_EQ(received, held);
}

void check_programs(const EveryJob& every) {
  fluid::verify(every.transpiler.get_trainer_program());
  fluid::verify(every.transpiler.get_trainer_startup_program());
  for (const std::string& endpoint : server_endpoints(every.job.servers)) {
    const ProgramPair server = every.transpiler.get_pserver_programs(endpoint);
    fluid::verify(server.main);
    fluid::verify(server.startup);
    std::set<std::string> initialised;
    for (const auto& op : server.startup.global_block().ops()) {
      for (const std::string& name : op->output_names()) {
        // The length of a normalised weight is first a constant, as in the user's program.
        EXPECT_TRUE(initialised.insert(name).second || name.ends_with("_g"))
            << name << " is initialised twice";
      }
    }
    for (const fluid::DistributedVar& row : server.main.distribution().vars) {
      if (row.endpoint != endpoint) continue;
      EXPECT_TRUE(initialised.contains(row.slice)) << row.slice;
      EXPECT_EQ(server.main.global_block().var(row.slice).shape.to_vector(), row.slice_shape);
    }
  }
}

void check_repeatable(const EveryJob& every) {
  DistributeTranspiler again(every.job.config);
  again.transpile(options_for(every.job.net, every.job.servers, every.job.shards));
  EXPECT_EQ(again.get_trainer_program().to_string(),
            every.transpiler.get_trainer_program().to_string());
  EXPECT_EQ(again.get_trainer_startup_program().to_string(),
            every.transpiler.get_trainer_startup_program().to_string());
  for (const std::string& endpoint : server_endpoints(every.job.servers)) {
    const ProgramPair first = every.transpiler.get_pserver_programs(endpoint);
    const ProgramPair second = again.get_pserver_programs(endpoint);
    EXPECT_EQ(first.main.to_string(), second.main.to_string());
    EXPECT_EQ(first.startup.to_string(), second.startup.to_string());
  }
}

void check_saved(const EveryJob& every) {
  const auto expect_same = [](const Program& program) {
    const Program read = Program::from_bytes(program.to_bytes()).value();
    EXPECT_EQ(read.distribution(), program.distribution());
    EXPECT_EQ(read.to_string(), program.to_string());
  };
  expect_same(every.transpiler.get_trainer_program());
  expect_same(every.transpiler.get_trainer_startup_program());
  for (const std::string& endpoint : server_endpoints(every.job.servers)) {
    const ProgramPair server = every.transpiler.get_pserver_programs(endpoint);
    EXPECT_FALSE(server.main.distribution().vars.empty());
    expect_same(server.main);
    expect_same(server.startup);
  }
}

// The structure that servers work from says what the plan says.
void check_structure(const EveryJob& every) {
  const ServerPlan& plan = every.transpiler.plan();
  const auto endpoints = server_endpoints(every.job.servers);
  const auto shards = static_cast<size_t>(every.job.shards);
  for (int server = 0; server < every.job.servers; ++server) {
    const std::string& endpoint = endpoints[static_cast<size_t>(server)];
    const Program program = every.transpiler.get_pserver_program(endpoint);
    const fluid::ServerProgram read = read_server_program(
        program, listen_of(program), *program.distribution().server_mode, every.job.shards);
    EXPECT_EQ(read.mode, plan.form.mode);
    EXPECT_EQ(read.endpoint, endpoint);
    std::map<std::string, std::string> planned;
    for (const auto& [param, slice] : slices_on(plan, server)) {
      planned[slice->param] = plan.form.geo() ? slice->param + ".delta" : slice->grad;
    }
    for (const PlacedStatistic& statistic : plan.statistics) {
      if (statistic.server == server) planned[statistic.name] = statistic_name(statistic.name);
    }
    for (const PlacedParam& table : plan.tables) {
      planned[table.param] = table.slices[static_cast<size_t>(server)].grad;
    }
    EXPECT_EQ(read.saved_tables.size(), plan.tables.size());
    EXPECT_EQ(read.slices.size(), planned.size());
    size_t lookups = 0;
    for (const fluid::ServerSlice& slice : read.slices) {
      EXPECT_EQ(slice.gradient, planned[slice.value]);
      EXPECT_EQ(slice.averages, plan.averages());
      EXPECT_EQ(slice.contributions.size(), plan.averages() ? shards : 0U);
      EXPECT_EQ(slice.backups.size(), every.job.config.enable_dc_asgd ? shards : 0U);
      lookups += slice.lookup.empty() ? 0 : 1;
    }
    EXPECT_EQ(lookups, plan.tables.size());
  }
}

// What is rare must be among them.
TEST(RandomJobs, DrawEveryRuleAndWhatIsRare) {
  int tables = 0;
  int several = 0;  // distributed tables in one net
  int wholes = 0;   // nets with one, and with norms of wholes
  int rules = 0;
  std::map<std::string, int> drawn;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SampleNet net = random_net(seed);
    std::set<std::string> updates;
    int distributed_here = 0;
    bool norms = false;
    for (const auto& op : net.main.global_block().ops()) {
      ++drawn[op->type];
      if (!op->output("ParamOut").empty()) updates.insert(op->type);
      const fluid::Attribute* distributed = op->attr("is_distributed");
      if (op->type == "lookup_table" && distributed != nullptr && std::get<bool>(*distributed)) {
        ++distributed_here;
      }
      const std::set<std::string> of_wholes = {"lamb", "lars_momentum", "clip_by_norm", "sqrt"};
      norms = norms || (op->role == fluid::OpRole::kOptimize && of_wholes.contains(op->type));
    }
    tables += distributed_here;
    several += distributed_here > 1 ? 1 : 0;
    wholes += distributed_here > 0 && norms ? 1 : 0;
    rules += updates.size() > 1 ? 1 : 0;
  }
  EXPECT_GE(tables, 10);
  EXPECT_GE(several, 3);
  EXPECT_GE(wholes, 3);
  EXPECT_GE(rules, 5);
  for (const char* op :
       {"sgd", "momentum", "lars_momentum", "adagrad", "decayed_adagrad", "adadelta", "adam",
        "adamax", "rmsprop", "ftrl", "lamb", "dpsgd", "nce", "hierarchical_sigmoid"}) {
    EXPECT_GE(drawn[op], 2) << op;
  }
}

TEST(RandomJobs, TheOverviewOfSlicesIsSavedWithEveryProgram) {
  for_every_job(check_saved);
}

TEST(RandomJobs, ServersReadWhatWasPlanned) {
  for_every_job(check_structure);
}

TEST(RandomJobs, EveryElementOfEveryTrainableParameterIsOnExactlyOneServer) {
  for_every_job(check_coverage);
}

TEST(RandomJobs, WhatTrainersSendServersTakeAndWhatTheyReceiveServersHave) {
  for_every_job(check_traffic);
}

TEST(RandomJobs, EveryProgramVerifiesAndEverythingThatLastsIsInitialised) {
  for_every_job(check_programs);
}

TEST(RandomJobs, TranspilingTwiceGivesTheSameText) {
  for_every_job(check_repeatable);
}

}  // namespace
}  // namespace fleet::transpiler
