// What is said of programs whose placement and bytes are known.
#include "tools/explain/explain.h"

#include <functional>
#include <gmock/gmock.h>
#include <map>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/transpiler/sample_nets.h"
#include "tools/explain/side_by_side.h"

namespace fleet::explain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using transpiler::SampleNet;

// fc_w [1000, 1000] and fc_b [1000].
constexpr int64_t kWeight = 4'000'000;
constexpr int64_t kBias = 4'000;

Explanation explain_net(const SampleNet& net, const ExplainOptions& options) {
  return explain(net.main, net.startup, options);
}

ExplainOptions options_of(const std::string& mode, int trainers = 2, int servers = 2) {
  return {.config = config_of_mode(mode), .trainers = trainers, .servers = servers};
}

std::vector<std::string> labels_of(const std::vector<ExplainedOp>& ops, Origin origin) {
  std::vector<std::string> labels;
  for (const ExplainedOp& op : ops) {
    if (op.origin == origin) labels.push_back(op.label);
  }
  return labels;
}

TEST(Explain, PlacesTheReferenceNetAsTheTranspilerDoes) {
  const Explanation all = explain_net(transpiler::reference_net(), options_of("sync"));
  ASSERT_EQ(all.placement.size(), 3u);
  const PlacedPart& bias = all.placement[0];
  EXPECT_EQ(bias.slice, "fc_b");
  EXPECT_EQ(bias.server, 0);
  EXPECT_EQ(bias.bytes, kBias);
  const PlacedPart& top = all.placement[1];
  EXPECT_EQ(top.slice, "fc_w.block0");
  EXPECT_EQ(top.server, 1);
  EXPECT_EQ(top.first_row, 0);
  EXPECT_EQ(top.rows, 500);
  EXPECT_EQ(top.bytes, kWeight / 2);
  const PlacedPart& rest = all.placement[2];
  EXPECT_EQ(rest.slice, "fc_w.block1");
  EXPECT_EQ(rest.server, 0);
  EXPECT_EQ(rest.first_row, 500);
  EXPECT_EQ(rest.variable, "fc_w");
  EXPECT_EQ(all.servers[0].parameter_bytes, kBias + kWeight / 2);
  EXPECT_EQ(all.servers[1].parameter_bytes, kWeight / 2);
  EXPECT_EQ(all.servers[0].slices, 2u);
  EXPECT_NEAR(all.servers[0].share, 2'004'000.0 / 4'004'000, 1e-12);
  EXPECT_NEAR(all.imbalance, 2 * 2'004'000.0 / 4'004'000, 1e-12);
  EXPECT_THAT(all.warnings, IsEmpty());
}

TEST(Explain, CountsWhatASynchronousStepSends) {
  const Explanation all = explain_net(transpiler::reference_net(), options_of("sync", 3));
  const double model = kWeight + kBias;
  EXPECT_EQ(all.traffic.trainer_out, model);
  EXPECT_EQ(all.traffic.trainer_in, model);
  EXPECT_EQ(all.servers[0].bytes_in, 3 * (kBias + kWeight / 2));
  EXPECT_EQ(all.servers[1].bytes_out, 3 * kWeight / 2);
  EXPECT_EQ(all.traffic.total, 6 * model);
  EXPECT_FALSE(all.traffic.at_most);
}

// Of five shards, trainer 0 has 0 to 2 and sends the sums of {0, 1} and of {2}.
TEST(Explain, CountsTheSumsThatATrainerSendsOfItsShards) {
  ExplainOptions options = options_of("sync");
  const double model = kWeight + kBias;
  options.shards = 4;
  EXPECT_EQ(explain_net(transpiler::reference_net(), options).traffic.trainer_out, model);
  options.shards = 5;
  const Explanation five = explain_net(transpiler::reference_net(), options);
  EXPECT_EQ(five.traffic.trainer_out, 2 * model);
  EXPECT_EQ(five.traffic.trainer_in, model);
  EXPECT_EQ(five.traffic.total, 4 * model + 2 * model);
}

TEST(Explain, CountsOptimizerStateOnItsServer) {
  const Explanation all = explain_net(transpiler::adam_net(), options_of("sync"));
  // Two moments of the parameter's shape, and two powers for each slice.
  EXPECT_EQ(all.servers[0].state_bytes, 2 * (kBias + kWeight / 2) + 2 * 2 * 4);
  EXPECT_EQ(all.servers[1].state_bytes, 2 * (kWeight / 2) + 2 * 4);
}

TEST(Explain, CountsWhatServersExchange) {
  const auto net = transpiler::clipped_net(fluid::clip::GradientClipByNorm(0.5));
  const Explanation all = explain_net(net, options_of("sync"));
  // Each server has half of fc_w's 1000 rows, a float64 a row; fc_b is not cut.
  EXPECT_EQ(all.servers[0].exchange_out, 500 * 8);
  EXPECT_EQ(all.servers[1].exchange_out, 500 * 8);
  EXPECT_TRUE(exchanges_numbers(all));
}

TEST(Explain, SharesWhatIsExchangedNowAndThenAmongTheSteps) {
  ExplainOptions options = options_of("geo");
  options.config.geo_sgd_need_push_nums = 50;
  const Explanation geo = explain_net(transpiler::reference_net(), options);
  EXPECT_DOUBLE_EQ(geo.traffic.trainer_out, (kWeight + kBias) / 50.0);
  EXPECT_THAT(geo.traffic.note, HasSubstr("every 50 steps"));

  options = options_of("local_sgd", 4);
  options.average_every = 8;
  const Explanation local = explain_net(transpiler::reference_net(), options);
  EXPECT_DOUBLE_EQ(local.traffic.trainer_out, 2.0 * (kWeight + kBias) * 3 / 4 / 8);
}

TEST(Explain, CountsARingOfRanks) {
  for (const char* mode : {"all_reduce", "nccl2"}) {
    const Explanation all = explain_net(transpiler::reference_net(), options_of(mode, 4));
    const double each = 2.0 * (kWeight + kBias) * 3 / 4;
    EXPECT_DOUBLE_EQ(all.traffic.trainer_out, each) << mode;
    EXPECT_DOUBLE_EQ(all.traffic.trainer_in, each) << mode;
    EXPECT_DOUBLE_EQ(all.traffic.total, 4 * each) << mode;
    EXPECT_THAT(all.servers, IsEmpty()) << mode;
  }
}

TEST(Explain, EstimatesRowsOfTables) {
  ExplainOptions options = options_of("sync");
  options.batch = 10;
  const Explanation all = explain_net(transpiler::table_net(1), options);
  EXPECT_TRUE(all.traffic.estimated);
  // Ten rows of 16 floats with their numbers, ten ids that ask for them; the last layer has 16
  // weights and a bias.
  EXPECT_DOUBLE_EQ(all.traffic.trainer_out, 10 * (64 + 8) + 10 * 8 + 17 * 4);
  EXPECT_DOUBLE_EQ(all.traffic.trainer_in, 10 * 64 + 17 * 4);
  EXPECT_THAT(all.traffic.note, HasSubstr("10 rows"));
}

TEST(Explain, SaysWhereEachOpComesFrom) {
  const Explanation all = explain_net(transpiler::reference_net(), options_of("sync"));
  EXPECT_THAT(labels_of(all.main.trainer.ops, Origin::kAdded),
              ElementsAre("send fc_b@GRAD → server 0", "split_byref fc_w@GRAD → 2 slices",
                          "send fc_w@GRAD → servers 0, 1", "send_barrier", "recv fc_b ← server 0",
                          "recv fc_w ← servers 0, 1", "fetch_barrier", "concat → fc_w"));
  EXPECT_THAT(labels_of(all.main.trainer.ops, Origin::kChanged),
              ElementsAre("elementwise_add_grad → fc_b@GRAD.trainer_0"));
  EXPECT_THAT(labels_of(all.main.servers[0].ops, Origin::kMoved),
              ElementsAre("sgd fc_b", "sgd fc_w.block1"));
  EXPECT_THAT(labels_of(all.startup.servers[1].ops, Origin::kMoved),
              ElementsAre(HasSubstr("learning_rate_0"), HasSubstr("fc_w.block0")));
  for (const ExplainedOp& op : all.main.trainer.ops) {
    if (op.type != "send") continue;
    EXPECT_EQ(op.pass, "insert_sends");
    EXPECT_THAT(op.why, HasSubstr("The gradient of fc_"));
  }
}

TEST(Explain, ShowsAnotherTrainerWithItsOwnShards) {
  ExplainOptions options = options_of("sync");
  options.shards = 6;
  options.trainer = 1;
  const Explanation all = explain_net(transpiler::reference_net(), options);
  EXPECT_EQ(all.main.trainer.process, "trainer 1");
  EXPECT_THAT(labels_of(all.main.trainer.ops, Origin::kChanged),
              ElementsAre(HasSubstr("fc_b@GRAD.trainer_3")));
}

const std::map<std::string, std::function<SampleNet()>>& nets() {
  static const std::map<std::string, std::function<SampleNet()>> kNets = {
      {"reference", transpiler::reference_net},
      {"scheduled", transpiler::scheduled_net},
      {"lamb", transpiler::lamb_net},
      {"clipped",
       [] { return transpiler::clipped_net(fluid::clip::GradientClipByGlobalNorm(1.0)); }},
      {"tables", [] { return transpiler::table_net(2); }},
      {"distributed tables", [] { return transpiler::table_net(3, true); }},
      {"distributed tables, clipped",
       [] { return transpiler::clipped_table_net(fluid::clip::GradientClipByGlobalNorm(1.0)); }},
      {"batch norm", transpiler::normalised_net},
      {"averages", transpiler::averaged_net}};
  return kNets;
}

void expect_explained(const ExplainedProgram& program) {
  for (const ExplainedOp& op : program.ops) {
    if (op.origin == Origin::kKept) {
      EXPECT_TRUE(op.pass.empty() && op.why.empty()) << op.text;
      EXPECT_TRUE(op.local >= 0 || op.block > 0) << program.process << ": " << op.text;
      continue;
    }
    EXPECT_FALSE(op.pass.empty()) << program.process << ": " << op.text;
    EXPECT_FALSE(op.why.empty()) << program.process << ": " << op.text;
    EXPECT_THAT(op.why, Not(HasSubstr("{"))) << op.text;
    EXPECT_THAT(op.why, Not(HasSubstr("  "))) << op.text;
    EXPECT_TRUE(op.why.ends_with('.')) << op.why;
  }
}

// Every op of every program has its reason, and no op of the local program is lost from sight.
TEST(Explain, LeavesNoOpUnexplainedInAnyMode) {
  for (const auto& [name, make] : nets()) {
    const SampleNet net = make();
    for (const std::string& mode : mode_names()) {
      SCOPED_TRACE(name + ", " + mode);
      const Explanation all = explain_net(net, options_of(mode, 4, 3));
      expect_explained(all.main.trainer);
      expect_explained(all.startup.trainer);
      std::set<int> seen;
      for (const ExplainedOp& op : all.main.trainer.ops) seen.insert(op.local);
      for (size_t i = 0; i < all.main.servers.size(); ++i) {
        expect_explained(all.main.servers[i]);
        expect_explained(all.startup.servers[i]);
        for (const ExplainedOp& op : all.main.servers[i].ops) seen.insert(op.local);
      }
      EXPECT_FALSE(all.traffic.total <= 0);
      size_t shown = 0;
      for (const Row& row : side_by_side(all.main)) {
        shown += row.trainer != nullptr ? 1 : 0;
        for (const ServerCell& cell : row.servers) shown += cell.ops.size();
      }
      size_t ops = all.main.trainer.ops.size();
      for (const ExplainedProgram& server : all.main.servers) ops += server.ops.size();
      EXPECT_EQ(shown, ops);
      if (name != "reference" && name != "scheduled" && name != "batch norm") continue;
      for (const ExplainedOp& op : all.main.local.ops) {
        // With one counter a trainer, their sum stands for the schedule's own counter.
        const bool per_trainer = all.traffic.at_most || mode == "sync_split";
        const bool replaced = op.type == "increment" && per_trainer;
        EXPECT_TRUE(op.block > 0 || replaced || seen.contains(op.local)) << op.text;
      }
    }
  }
}

TEST(Explain, RowsPairTheTrainersOpsWithTheLocalOnes) {
  const Explanation all = explain_net(transpiler::reference_net(), options_of("sync"));
  std::vector<std::string> rows;
  for (const Row& row : side_by_side(all.main)) {
    std::string line = row.local == nullptr ? "" : row.local->type;
    line += str_cat(" | ", row.trainer == nullptr ? "" : row.trainer->type, " |");
    for (const ServerCell& cell : row.servers) {
      line += str_cat(" ", cell.server->server, ":", cell.block);
    }
    rows.push_back(line);
  }
  const auto where = [&rows](const std::string& row) {
    const auto found = std::find(rows.begin(), rows.end(), row);
    EXPECT_NE(found, rows.end()) << row << " is not in\n" << join(rows, "\n");
    return found - rows.begin();
  };
  const auto gradient = where("mul_grad | mul_grad |");
  EXPECT_EQ(where(" | split_byref |"), gradient + 1);
  // Updates stand between what is sent and what comes back.
  EXPECT_LT(where(" | send_barrier |"), where("sgd |  | 0:1"));
  EXPECT_LT(where("sgd |  | 0:2 1:1"), where(" | fetch_barrier |"));
  EXPECT_EQ(rows.back(), " |  | 0:0 1:0");
}

// The quick start's net: of whole layers and even slices one server has two thirds.
TEST(ExplainTest, ProposesBalancedWhereServersAreUneven) {
  fluid::Program main;
  fluid::Program startup;
  {
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    namespace layers = fluid::layers;
    auto hidden = layers::fc(layers::data("x", {64}), 128, {.act = "tanh"});
    hidden = layers::fc(hidden, 128, {.act = "tanh"});
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(layers::mean(layers::fc(hidden, 10)));
  }
  ExplainOptions options{.trainers = 2, .servers = 2};
  const Explanation uneven = explain(main, startup, options);
  ASSERT_EQ(uneven.warnings.size(), 1u);
  EXPECT_EQ(uneven.warnings[0].what, "servers are uneven: they have 37 and 63 % of all parameters");
  EXPECT_EQ(uneven.warnings[0].advice, "split_method = Balanced gives them 50 and 50 %");
  options.config.split_method = "Balanced";
  const Explanation even = explain(main, startup, options);
  EXPECT_THAT(even.warnings, IsEmpty());
  EXPECT_LT(even.imbalance, 1.01);
}

std::vector<std::string> warnings_of(const Explanation& explanation) {
  std::vector<std::string> texts;
  for (const Warning& warning : explanation.warnings) {
    texts.push_back(warning.what + " / " + warning.advice);
  }
  return texts;
}

TEST(ExplainWarnings, NameServersWithoutWork) {
  const Explanation all = explain_net(transpiler::deep_net(1, 4), options_of("sync", 2, 4));
  EXPECT_THAT(warnings_of(all),
              ElementsAre("server 2 (127.0.0.1:6176), server 3 (127.0.0.1:6177) have no work / "
                          "use fewer servers"));
}

TEST(ExplainWarnings, NameASliceThatDominatesAndWhatKeepsItWhole) {
  ExplainOptions options = options_of("sync");
  options.config.slice_var_up = false;
  EXPECT_THAT(warnings_of(explain_net(transpiler::reference_net(), options)),
              ElementsAre("one slice dominates: fc_w is 99 % of all parameters, on server 1 "
                          "(127.0.0.1:6175) / set slice_var_up, so that servers share it"));
}

TEST(ExplainWarnings, NameAMinBlockSizeThatIsTooLarge) {
  ExplainOptions options = options_of("sync");
  options.config.min_block_size = 800'000;
  const auto warnings = warnings_of(explain_net(transpiler::reference_net(), options));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], HasSubstr("allows it only 1 of 2 slices: lower it"));
  EXPECT_THAT(warnings[1], HasSubstr("min_block_size 800000 is too large for 2 servers"));
  options.config.min_block_size = 500'000;
  EXPECT_THAT(warnings_of(explain_net(transpiler::reference_net(), options)), IsEmpty());
}

TEST(Explain, HoldsProgramsThatRanAgainstThoseThatAreShown) {
  const SampleNet net = transpiler::reference_net();
  Explanation all = explain_net(net, options_of("sync"));
  std::map<std::string, fluid::Program> ran;
  ran.emplace("trainer 0", all.main.trainer.program);
  ran.emplace("server 1", all.main.servers[0].program);
  compare(all, ran);
  EXPECT_THAT(all.confirmed, ElementsAre("trainer 0"));
  EXPECT_THAT(warnings_of(all),
              ElementsAre(HasSubstr("ran other programs than are shown: server 1")));
}

TEST(Explain, RefusesWhatCannotBe) {
  const SampleNet net = transpiler::reference_net();
  ExplainOptions options;
  options.trainer = 2;
  EXPECT_THROW(explain_net(net, options), UsageError);
  options = {};
  options.shards = 1;
  EXPECT_THROW(explain_net(net, options), UsageError);
  options = {};
  options.endpoints = {"a:1"};
  EXPECT_THROW(explain_net(net, options), UsageError);
  try {
    config_of_mode("asynk");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'async'?"));
  }
}

}  // namespace
}  // namespace fleet::explain
