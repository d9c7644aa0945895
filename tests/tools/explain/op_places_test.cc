// Which ops run on a device and what crosses; bytes are held against what an executor copies to and
// from a device, which is emulated (tests/testing/device/emulated_device.h).
#include "tools/explain/op_places.h"

#include <functional>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/executor/executor.h"
#include "tests/fluid/executor/mlp.h"
#include "tests/testing/device/emulated_device.h"
#include "tests/transpiler/sample_nets.h"
#include "tools/explain/render.h"

namespace fleet::explain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using transpiler::SampleNet;

// Sixteen rows with CUDA's kernels.
ExplainOptions on_device(const std::string& mode) {
  return {.config = config_of_mode(mode), .batch = 16, .place = fluid::CUDAPlace(0)};
}

Explanation place_net(const SampleNet& net, const ExplainOptions& options) {
  return explain(net.main, net.startup, options);
}

const HostOps& host_ops(const ProgramPlaces& places, const std::string& reason) {
  for (const HostOps& host : places.on_host) {
    if (host.reason == reason) return host;
  }
  throw std::out_of_range("no op is on the host for: " + reason);
}

TEST(OpPlaces, AreNotThereUnlessAskedFor) {
  const Explanation all = place_net(transpiler::reference_net(), {});
  EXPECT_THAT(all.places, IsEmpty());
  EXPECT_THAT(draw_text(all, {}), Not(HasSubstr("Where ops run")));
  EXPECT_FALSE(nlohmann::json::parse(to_json(all)).contains("places"));
}

TEST(OpPlaces, ALocalNetOfDenseOpsIsWhollyOnTheDevice) {
  const Explanation all = place_net(transpiler::reference_net(), on_device("sync"));
  const ProgramPlaces& local = all.places.at(0);
  EXPECT_EQ(local.process, "local");
  EXPECT_EQ(local.place, "cuda:0");
  EXPECT_EQ(local.on_device, all.main.local.ops.size());
  EXPECT_THAT(local.on_host, IsEmpty());
  EXPECT_EQ(local.to_device + local.to_host, 0);
  EXPECT_EQ(local.fed, 16 * (1000 + 1) * 4);
}

TEST(OpPlaces, ATrainerMovesItsGradientsAndParameters) {
  const Explanation all = place_net(transpiler::reference_net(), on_device("sync"));
  const ProgramPlaces& trainer = all.places.at(1);
  EXPECT_EQ(trainer.process, "trainer 0");
  constexpr double kModel = 4'004'000;
  EXPECT_EQ(trainer.to_host, kModel);
  EXPECT_EQ(trainer.to_device, kModel);
  EXPECT_THAT(host_ops(trainer, "the job's runtime carries it out").types,
              ElementsAre("fetch_barrier", "recv", "send", "send_barrier"));
  EXPECT_THAT(host_ops(trainer, "no kernel on the device").types, ElementsAre("split_byref"));
}

// A gradient of each shard is sent.
TEST(OpPlaces, AShardMovesItsOwnGradients) {
  ExplainOptions options = on_device("sync");
  options.shards = 6;  // of 2 trainers
  const Explanation all = place_net(transpiler::reference_net(), options);
  EXPECT_EQ(all.places.at(1).to_host, 3 * 4'004'000);
  // fc_b is read as it was received; fc_w is joined from slices, once.
  EXPECT_EQ(all.places.at(1).to_device, 4'000'000 + 3 * 4'000);
  EXPECT_EQ(all.places.at(1).fed, 16 * (1000 + 1) * 4);
}

TEST(OpPlaces, RanksSumWhereTheirGradientsAre) {
  ExplainOptions options = on_device("all_reduce");
  const Explanation there = place_net(transpiler::reference_net(), options);
  EXPECT_THAT(there.places.at(1).on_host, IsEmpty());
  EXPECT_EQ(there.places.at(1).to_host, 0);
  options.device_sums = false;
  const Explanation here = place_net(transpiler::reference_net(), options);
  EXPECT_THAT(here.places.at(1).on_host.at(0).types, ElementsAre("c_allreduce_sum"));
  EXPECT_EQ(here.places.at(1).to_host, 4'004'000);
  EXPECT_EQ(here.places.at(1).to_device, 4'004'000);
}

TEST(OpPlaces, SayWhyAnOpIsOnTheHost) {
  const Explanation schedule = place_net(transpiler::scheduled_net(), on_device("sync"));
  EXPECT_GT(host_ops(schedule.places.at(0), "the learning rate").ops, 2u);
  EXPECT_EQ(schedule.places.at(0).to_device, 4);
  const Explanation table = place_net(transpiler::table_net(2), on_device("sync"));
  EXPECT_THAT(table.places.at(0).on_host, IsEmpty());
  EXPECT_THAT(host_ops(place_net(transpiler::table_net(2), on_device("geo")).places.at(1),
                       "its table may be on servers")
                  .types,
              Contains(HasSubstr("lookup_table")));
}

TEST(OpPlaces, OpsOfOnesOwnAreOnTheHost) {
  SampleNet net = transpiler::reference_net();
  fluid::Block& block = net.main.global_block();
  for (size_t i = 0; i < block.op_count(); ++i) {
    if (block.op(i).type == "square") block.edit_op(i).type = "my_square";
  }
  const Explanation all = place_net(net, on_device("sync"));
  EXPECT_THAT(host_ops(all.places.at(0), "no kernel on the device").types,
              ElementsAre("my_square"));
}

TEST(OpPlaces, AreInEveryForm) {
  const Explanation all = place_net(transpiler::scheduled_net(), on_device("sync"));
  const std::string text = draw_text(all, {});
  EXPECT_THAT(text, HasSubstr("Where ops run: local on cuda:0"));
  EXPECT_THAT(text, HasSubstr("ops run on the device."));
  EXPECT_THAT(text, HasSubstr("the learning rate ("));
  EXPECT_THAT(text, HasSubstr("→ device  copy"));
  const auto json = nlohmann::json::parse(to_json(all))["places"];
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["bytes_to_device_per_step"], 4);
  EXPECT_EQ(json[1]["process"], "trainer 0");
  EXPECT_EQ(json[0]["ops"].size(), all.places[0].ops.size());
  const std::string page = draw_page(all);
  EXPECT_THAT(page, HasSubstr("<h2>Where ops run: trainer 0 on cuda:0</h2>"));
  EXPECT_THAT(page, HasSubstr("<td>→ device</td>"));
}

// What an executor copies in a step, once every value is where it stays.
double measured(const fluid::testing::Mlp& mlp, const fluid::KernelTable& kernels, int64_t rows) {
  testing::emulate_two_devices();
  fluid::Executor executor(fluid::CUDAPlace(0), {.kernels = &kernels});
  executor.run(mlp.startup);
  executor.run(mlp.main, fluid::testing::batch(rows, 0));
  const uint64_t before = testing::device_bytes_copied();
  executor.run(mlp.main, fluid::testing::batch(rows, 1));
  return static_cast<double>(testing::device_bytes_copied() - before);
}

TEST(OpPlaces, CountWhatAnExecutorCopies) {
  const fluid::testing::Mlp mlp;
  constexpr int64_t kRows = 12;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto kernels = testing::kernels_with_device_ops(
        [seed](const std::string& op) { return fnv1a(str_cat(op, seed)) % 3 != 0; });
    const Explanation all = explain(
        mlp.main, mlp.startup, {.batch = kRows, .place = fluid::CUDAPlace(0), .kernels = &kernels});
    const ProgramPlaces& local = all.places.at(0);
    EXPECT_EQ(local.unknown, 0u);
    EXPECT_GT(local.to_device + local.to_host, 0);
    EXPECT_EQ(local.fed + local.to_device + local.to_host, measured(mlp, kernels, kRows)) << seed;
  }
}

}  // namespace
}  // namespace fleet::explain
