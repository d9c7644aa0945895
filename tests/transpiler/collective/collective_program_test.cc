// Jobs without servers: what the golden files do not show.
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/math/scale.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {
namespace {

using fluid::Program;

role_maker::ClusterSpec ranks(int count, int index) {
  role_maker::ClusterSpec cluster;
  cluster.mode = role_maker::Mode::kCollective;
  cluster.worker_num = count;
  cluster.index = index;
  return cluster;
}

float loss_scale(const Program& program) {
  for (const auto& op : program.global_block().ops()) {
    if (op->type != "scale") continue;
    return fluid::parse_attributes<fluid::ScaleAttrs>("scale", op->attrs).scale;
  }
  return 0.0f;
}

TEST(Collective, ScalesByLogicalShardsNotByRanks) {
  const SampleNet net = reference_net();
  EXPECT_EQ(loss_scale(transpile_for(net.main, net.startup, ranks(2, 1), {}).main), 0.5f);
  EXPECT_EQ(loss_scale(transpile_for(net.main, net.startup, ranks(2, 1), {}, 4).main), 0.25f);
}

TEST(Collective, OneRankWithOneShardRunsTheProgramAsItIs) {
  const SampleNet net = reference_net();
  const ProgramPair pair = transpile_for(net.main, net.startup, ranks(1, 0), {});
  EXPECT_EQ(pair.main.to_string(), net.main.to_string());
  EXPECT_EQ(pair.startup.to_string(), net.startup.to_string());
  EXPECT_EQ(loss_scale(transpile_for(net.main, net.startup, ranks(1, 0), {}, 4).main), 0.25f);
}

TEST(Collective, EveryGradientIsReducedOnceOnARingOfItsTurn) {
  const SampleNet net = deep_net(5, 8);
  const ProgramPair pair = transpile_for(
      net.main, net.startup, ranks(2, 0),
      {.mode = "collective", .nccl_comm_num = 3, .collective_mode = "grad_allreduce"});
  std::vector<int64_t> rings;
  std::vector<std::string> reduced;
  for (const auto& op : pair.main.global_block().ops()) {
    if (op->type != "c_allreduce_sum") continue;
    reduced.push_back(op->input("X").front());
    rings.push_back(std::get<int64_t>(*op->attr("ring_id")));
  }
  EXPECT_EQ(reduced.size(), 10u);
  EXPECT_EQ(std::set<std::string>(reduced.begin(), reduced.end()).size(), 10u);
  for (size_t i = 0; i < rings.size(); ++i) {
    EXPECT_EQ(rings[i], static_cast<int64_t>((rings.size() - 1 - i) % 3)) << "gradient " << i;
  }
}

TEST(Collective, TheDirectCallWantsSeveralRanksAndItsOwnEndpoint) {
  const SampleNet net = reference_net();
  const DistributeTranspilerConfig config{.mode = "collective",
                                          .collective_mode = "grad_allreduce"};
  TranspileOptions options{.program = &net.main,
                           .trainers = "127.0.0.1:6170,127.0.0.1:6171",
                           .startup_program = &net.startup,
                           .current_endpoint = "127.0.0.1:6170"};
  DistributeTranspiler transpiler(config);
  EXPECT_NO_THROW(transpiler.transpile(options));
  EXPECT_THROW(transpiler.plan(), UsageError);
  options.current_endpoint = "127.0.0.1:9";
  EXPECT_THROW(transpiler.transpile(options), UsageError);
  options.trainers = 2;
  EXPECT_THROW(transpiler.transpile(options), UsageError);
}

}  // namespace
}  // namespace fleet::transpiler
