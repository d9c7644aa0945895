// A Fleet strategy that makes another configuration, or other programs than its configuration says,
// does not pass for Paddle's.
#include "tests/golden/golden_fleet.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/golden/golden_net.h"
#include "tests/golden/transpiled_half.h"
#include "tests/testing/paths.h"

namespace fleet::golden {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Json load(const std::string& name) {
  std::ifstream file(
      fleet::testing::source_path(str_cat("tests/golden/transpiler/", name, ".json")));
  return Json::parse(file);
}

std::vector<std::string> differences(const Json& golden) {
  const BuiltNet net = build_net(golden);
  return check_transpiled(golden, net.main, net.startup);
}

TEST(GoldenFleet, AnotherStrategyHasAnotherConfiguration) {
  const std::vector<std::string> strategies = {"sync", "async", "half-async", "geo"};
  for (const std::string& name : strategies) {
    const Json golden = load("fleet-mlp-" + name);
    EXPECT_THAT(differences(golden), IsEmpty()) << name;
    for (const std::string& other : strategies) {
      if (other == name) continue;
      SCOPED_TRACE(str_cat(name, " as ", other));
      Json changed = golden;
      changed["config"]["fleet"] = load("fleet-mlp-" + other)["config"]["fleet"];
      const auto found = differences(changed);
      EXPECT_THAT(found, Contains(HasSubstr("workers/1/effective_config/")));
      EXPECT_THAT(found, Contains(HasSubstr("workers/1/effective_strategy")));
    }
  }
}

// The seed of a case reaches the programs of every kind, and where unsliced parameters go.
TEST(GoldenSeeds, AnotherSeedMakesOtherPrograms) {
  for (const char* name : {"seeded-sync", "noslice-seed-3", "fleet-seeded-sync",
                           "fleet-config-noslice-seed-77", "fleet-config-geo-v2-seeded"}) {
    SCOPED_TRACE(name);
    Json golden = load(name);
    EXPECT_THAT(differences(golden), IsEmpty());
    golden["config"]["random_seed"] = 4;
    EXPECT_THAT(differences(golden), Not(IsEmpty()));
  }
}

TEST(GoldenFleet, GeoExchangesAsOftenAsItIsTold) {
  Json golden = load("fleet-mlp-geo");
  golden["config"]["fleet"]["strategy_args"] = {51};
  EXPECT_THAT(differences(golden),
              Contains(HasSubstr("effective_config/geo_sgd_need_push_nums: expected 50, got 51")));
}

TEST(GoldenFleet, AnotherCollectiveModeMakesOtherPrograms) {
  Json golden = load("fleet-collective-allreduce");
  golden["config"]["fleet"] = {{"collective", {{"use_local_sgd", true}}}};
  EXPECT_THAT(differences(golden), Not(IsEmpty()));
}

TEST(GoldenFleet, WhatTheReleaseFailsAtNeedsADeparture) {
  for (const char* name : {"fleet-mlp-sync", "fleet-collective-allreduce"}) {
    Json golden = load(name);
    golden["errors"] = {{"worker0", {{"message", "no"}, {"stage", "transpile"}}}};
    EXPECT_THAT(differences(golden), Contains(HasSubstr("the release fails"))) << name;
  }
}

TEST(GoldenFleet, StrategiesRewriteAsTheirConfigurationSays) {
  for (const char* name :
       {"fleet-mlp-sync", "fleet-mlp-async", "fleet-mlp-half-async", "fleet-mlp-geo",
        "fleet-collective-allreduce", "fleet-collective-local-sgd"}) {
    SCOPED_TRACE(name);
    const Json golden = load(name);
    const BuiltNet net = build_net(golden);
    const auto strategy = fleet_strategy(golden.at("config"));
    const auto config = *strategy->transpiler_config();
    const auto cluster = fleet_cluster(golden.at("config"));
    const auto made = fleet_programs(*strategy, config, net.main, net.startup, cluster);
    const auto said = transpiler::transpile_for(net.main, net.startup, cluster, config);
    EXPECT_EQ(made.main.to_string(), said.main.to_string());
    EXPECT_EQ(made.startup.to_string(), said.startup.to_string());
  }
}

TEST(GoldenFleet, MinimizeLeavesWhatTheStrategyMakes) {
  const Json golden = load("fleet-mlp-async");
  const BuiltNet net = build_net(golden);
  const auto cluster = fleet_cluster(golden.at("config"));
  const auto strategy = fleet_strategy(golden.at("config"));
  const auto made =
      fleet_programs(*strategy, *strategy->transpiler_config(), net.main, net.startup, cluster);
  const auto left = minimized_by_fleet(golden, strategy, cluster);
  EXPECT_EQ(left.main.to_string(), made.main.to_string());
  EXPECT_EQ(left.startup.to_string(), made.startup.to_string());
  const auto other = fleet_strategy(load("fleet-mlp-sync").at("config"));
  EXPECT_NE(minimized_by_fleet(golden, other, cluster).main.to_string(), made.main.to_string());
}

TEST(GoldenFleet, AnUnknownStrategyIsNoSkip) {
  const auto strategy_of = [](const char* fleet) {
    return fleet_strategy(
        {{"pservers", {"127.0.0.1:6174"}}, {"trainers", 2}, {"fleet", Json::parse(fleet)}});
  };
  EXPECT_THROW(strategy_of(R"({"strategy": "no_such_strategy"})"), NotYetKnown);
  EXPECT_THROW(strategy_of(R"({"strategy": "sync", "strategy_args": [3]})"), NotYetKnown);
  EXPECT_THROW(strategy_of(R"({"collective": {"mode": "nccl2", "colour": 3}})"), NotYetKnown);
}

}  // namespace
}  // namespace fleet::golden
