// Programs with ops from outside the library: every mode rewrites them, and what it makes has the
// library too.
#include "tests/testing/own_ops.h"

#include <algorithm>
#include <gmock/gmock.h>

#include "base/error.h"
#include "fluid/layers/layers.h"
#include "fluid/ops/append.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/transpiler/sample_nets.h"

namespace fleet::transpiler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

enum class Rule { kMomentum, kSign, kUnit };

SampleNet own_net(Rule rule = Rule::kMomentum) {
  SampleNet net;
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  net.main.set_op_library(testing::own_ops());
  net.startup.set_op_library(net.main.op_library());
  const auto x = fluid::layers::data("x", {200});
  const auto hidden = testing::cubed(fluid::layers::fc(x, 200), 0.5F);
  const auto loss = fluid::layers::mean(fluid::layers::fc(hidden, 1));
  if (rule == Rule::kSign) testing::SignSgd(0.1).minimize(loss);
  if (rule == Rule::kUnit) testing::UnitSgd(0.1).minimize(loss);
  if (rule == Rule::kMomentum) {
    fluid::optimizer::Momentum({.learning_rate = 0.1, .momentum = 0.9}).minimize(loss);
  }
  return net;
}

std::vector<std::string> all_op_types(const fluid::Program& program) {
  std::vector<std::string> types;
  for (int32_t i = 0; i < program.block_count(); ++i) {
    for (const std::string& type : op_types(program.block(i))) types.push_back(type);
  }
  return types;
}

void expect_whole(const fluid::Program& program, const SampleNet& net) {
  EXPECT_EQ(program.op_library(), net.main.op_library());
  fluid::verify(program);
}

TEST(OwnOps, StayWithTheTrainerInEveryMode) {
  const SampleNet net = own_net();
  std::vector<NamedConfig> modes = synchronous_modes();
  for (auto& mode : asynchronous_modes()) modes.push_back(std::move(mode));
  modes.push_back(
      {"geo", {.sync_mode = false, .runtime_split_send_recv = true, .geo_sgd_mode = true}});
  for (const auto& [name, config] : modes) {
    SCOPED_TRACE(name);
    DistributeTranspiler transpiler(config);
    transpiler.transpile(options_for(net, 2, 2));
    const fluid::Program trainer = transpiler.get_trainer_program();
    EXPECT_THAT(all_op_types(trainer), IsSupersetOf({"cubed", "cubed_grad", "send"}));
    expect_whole(trainer, net);
    expect_whole(transpiler.get_trainer_startup_program(), net);
    for (const std::string& endpoint : server_endpoints(2)) {
      const ProgramPair server = transpiler.get_pserver_programs(endpoint);
      EXPECT_THAT(all_op_types(server.main),
                  AllOf(Contains("listen_and_serv"), Not(Contains("cubed"))));
      expect_whole(server.main, net);
      expect_whole(server.startup, net);
    }
  }
}

TEST(OwnOps, ThatUpdateRunOnServers) {
  const SampleNet net = own_net(Rule::kSign);
  DistributeTranspiler transpiler;
  transpiler.transpile(options_for(net, 2, 2));
  EXPECT_THAT(all_op_types(transpiler.get_trainer_program()), Not(Contains("sign_sgd")));
  for (const std::string& endpoint : server_endpoints(2)) {
    const fluid::Program server = transpiler.get_pserver_program(endpoint);
    EXPECT_THAT(all_op_types(server), Contains("sign_sgd"));
    expect_whole(server, net);
  }
}

// The slices of the parameter of 200 x 200 elements.
int slices_of_weight(const SampleNet& net, const DistributeTranspilerConfig& config) {
  DistributeTranspiler transpiler(config);
  transpiler.transpile(options_for(net, 2, 2));
  const auto trainer = transpiler.get_trainer_program();
  const auto& vars = trainer.distribution().vars;
  return static_cast<int>(std::count_if(vars.begin(), vars.end(), [](const auto& slice) {
    return slice.origin == "fc_0.w_0" && slice.origin_shape == std::vector<int64_t>{200, 200};
  }));
}

TEST(OwnOps, ThatUpdateHaveTheWholeParameterUnlessTheyClaimToTakeParts) {
  std::vector<NamedConfig> modes = synchronous_modes();
  for (auto& mode : asynchronous_modes()) modes.push_back(std::move(mode));
  const SampleNet parts = own_net(Rule::kSign);
  const SampleNet whole = own_net(Rule::kUnit);
  for (const auto& [name, config] : modes) {
    SCOPED_TRACE(name);
    const bool cuts = config.slice_var_up;
    EXPECT_EQ(slices_of_weight(parts, config), cuts ? 2 : 1);
    EXPECT_EQ(slices_of_weight(whole, config), 1);
    DistributeTranspilerConfig of_slices = config;
    of_slices.whole_norms = false;
    EXPECT_EQ(slices_of_weight(whole, of_slices), 1) << "no release cuts it";
  }
}

TEST(OwnOps, ThatLookRowsUpAskTheServers) {
  SampleNet net;
  {
    const fluid::ProgramGuard programs(net.main, net.startup);
    const fluid::unique_name::Guard names;
    net.main.set_op_library(testing::own_ops());
    net.startup.set_op_library(net.main.op_library());
    const auto ids = fluid::layers::data("ids", {4}, fluid::DType::kInt64);
    const auto rows = testing::own_lookup(ids, {1000, 16});
    const auto loss = fluid::layers::mean(fluid::layers::fc(rows, 1));
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  }
  EXPECT_THAT(all_op_types(net.main), IsSupersetOf({"own_table_v2", "own_table_v2_grad"}));
  for (const auto& [name, config] : synchronous_modes()) {
    SCOPED_TRACE(name);
    DistributeTranspiler transpiler(config);
    transpiler.transpile(options_for(net, 2, 2));
    const fluid::Program trainer = transpiler.get_trainer_program();
    EXPECT_THAT(all_op_types(trainer),
                AllOf(Contains("distributed_lookup_table"), Contains("own_table_v2_grad"),
                      Not(Contains("own_table_v2"))));
    EXPECT_THAT(all_op_types(transpiler.get_trainer_startup_program()), Contains("fake_init"));
    expect_whole(trainer, net);
  }
}

TEST(OwnOps, StayInEveryRanksProgram) {
  const SampleNet net = own_net();
  for (const std::string mode : {"grad_allreduce", "local_sgd"}) {
    SCOPED_TRACE(mode);
    DistributeTranspiler transpiler({.mode = "collective", .collective_mode = mode});
    transpiler.transpile({.trainer_id = 1,
                          .program = &net.main,
                          .trainers = "127.0.0.1:6174,127.0.0.1:6175",
                          .startup_program = &net.startup,
                          .current_endpoint = "127.0.0.1:6175"});
    const fluid::Program rank = transpiler.get_trainer_program();
    EXPECT_THAT(all_op_types(rank), IsSupersetOf({"cubed", "cubed_grad", "momentum"}));
    expect_whole(rank, net);
    expect_whole(transpiler.get_trainer_startup_program(), net);
  }
}

TEST(OwnOps, WithoutTheirLibraryAreNamed) {
  SampleNet net = own_net();
  net.main.set_op_library(nullptr);
  DistributeTranspiler transpiler;
  try {
    transpiler.transpile(options_for(net, 2, 2));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("no op 'cubed'"), HasSubstr("Program::set_op_library")));
  }
}

}  // namespace
}  // namespace fleet::transpiler
