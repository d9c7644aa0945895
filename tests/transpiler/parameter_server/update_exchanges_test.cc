// Updates that servers finish together, statistics, tables.
#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/layers/embedding.h"
#include "fluid/layers/layers.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::Program;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using Names = std::vector<std::string>;

std::vector<Program> servers_of(const SampleNet& net, int servers, int shards,
                                DistributeTranspilerConfig config = {}) {
  DistributeTranspiler transpiler(std::move(config));
  transpiler.transpile(options_for(net, servers, shards));
  std::vector<Program> programs;
  for (const std::string& endpoint : server_endpoints(servers)) {
    programs.push_back(transpiler.get_pserver_program(endpoint));
    fluid::verify(programs.back());
  }
  return programs;
}

fluid::ListenAndServAttrs listen_of(const Program& server) {
  const Operator& op = server.global_block().op(server.global_block().op_count() - 1);
  return fluid::parse_attributes<fluid::ListenAndServAttrs>(op.type, op.attrs);
}

// The blocks of a gradient, first to last.
std::vector<int32_t> chain_of(const Program& server, const std::string& gradient) {
  const auto listen = listen_of(server);
  std::map<std::string, std::string> links;
  for (const std::string& link : listen.next_blocks) {
    links[link.substr(0, link.find(':'))] = link.substr(link.find(':') + 1);
  }
  std::vector<int32_t> chain;
  for (const std::string& binding : listen.grad_to_block_id) {
    if (!binding.starts_with(gradient + ":")) continue;
    for (std::string at = binding.substr(binding.rfind(':') + 1); !at.empty(); at = links[at]) {
      chain.push_back(static_cast<int32_t>(std::stoi(at)));
    }
  }
  return chain;
}

TEST(Exchanges, AGlobalNormIsMadeOfTheSameOpsOnEveryServer) {
  const auto servers = servers_of(clipped_net(fluid::clip::GradientClipByGlobalNorm(1.0)), 2, 2);
  Names stage;
  for (const Program& server : servers) {
    const auto listen = listen_of(server);
    ASSERT_EQ(listen.exchange_blocks.size(), 1u);
    const Block& block = server.block(listen.exchange_blocks[0].index);
    EXPECT_THAT(op_types(block),
                ElementsAre("exchange_rows", "exchange_rows", "reduce_sum", "sum", "sqrt",
                            "fill_constant", "elementwise_max", "elementwise_div"));
    Names text;
    for (const auto& op : block.ops()) {
      Operator same = *op;
      if (same.type == "exchange_rows") same.inputs.clear();
      text.push_back(same.to_string());
    }
    if (stage.empty()) stage = text;
    EXPECT_EQ(text, stage);
  }
  const auto chain = chain_of(servers[1], "fc_w@GRAD.block0");
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_THAT(op_types(servers[1].block(chain[0])),
              ElementsAre("sum", "scale", "square", "reduce_sum"));
  EXPECT_THAT(op_types(servers[1].block(chain[1])), ElementsAre("elementwise_mul", "sgd"));
}

TEST(Exchanges, RowsOfASliceAreAPartOfTheWhole) {
  const auto servers = servers_of(clipped_net(fluid::clip::GradientClipByGlobalNorm(1.0)), 3, 2);
  for (const Program& server : servers) {
    for (const auto& op : server.block(listen_of(server).exchange_blocks[0].index).ops()) {
      if (op->type != "exchange_rows") continue;
      const auto attrs = fluid::parse_attributes<fluid::ExchangeRowsAttrs>(op->type, op->attrs);
      int64_t rows = 0;
      for (const int64_t section : attrs.sections) rows += section;
      const std::string& whole = op->output("Out").front();
      EXPECT_EQ(server.global_block().var(whole).shape[0], rows);
      for (const std::string& part : op->input("X")) EXPECT_THAT(attrs.varnames, Contains(part));
    }
  }
}

TEST(Exchanges, OfSlicesOnOneServerPutThemTogetherThere) {
  const auto servers = servers_of(lamb_net(), 1, 2, {.slices_per_server = 3});
  const Block& block = servers[0].block(listen_of(servers[0]).exchange_blocks[0].index);
  EXPECT_THAT(op_types(block), ElementsAre("exchange_rows", "exchange_rows"));
  for (const auto& op : block.ops()) EXPECT_EQ(op->input("X").size(), 3u) << op->to_string();
}

TEST(Exchanges, WithOneServerNothingTravels) {
  const auto servers = servers_of(clipped_net(fluid::clip::GradientClipByGlobalNorm(1.0)), 1, 2);
  for (int32_t i = 0; i < servers[0].block_count(); ++i) {
    EXPECT_THAT(op_types(servers[0].block(i)), Not(Contains("exchange_rows")));
  }
}

TEST(Exchanges, TheNormOfOneParameterNeedsThemOnlyWhereItIsCut) {
  const auto servers = servers_of(clipped_net(fluid::clip::GradientClipByNorm(1.0)), 2, 2);
  const auto whole = chain_of(servers[0], "fc_b@GRAD");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_THAT(op_types(servers[0].block(whole[0])),
              ElementsAre("sum", "scale", "clip_by_norm", "sgd"));
  const auto cut = chain_of(servers[0], "fc_w@GRAD.block1");
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_THAT(op_types(servers[0].block(cut[0])), ElementsAre("sum", "scale", "squared_row_sums"));
  EXPECT_THAT(op_types(servers[0].block(cut[1])), ElementsAre("clip_by_norm", "sgd"));
  EXPECT_EQ(servers[0].block(cut[1]).op(0).input("SquaredRowSums").size(), 1u);
}

TEST(Exchanges, ClippingByValueNeedsNone) {
  const auto servers = servers_of(clipped_net(fluid::clip::GradientClipByValue(0.1)), 2, 2);
  EXPECT_THAT(listen_of(servers[0]).exchange_blocks, IsEmpty());
  const auto chain = chain_of(servers[0], "fc_w@GRAD.block1");
  EXPECT_THAT(op_types(servers[0].block(chain[0])), ElementsAre("sum", "scale", "clip", "sgd"));
}

TEST(Exchanges, LambMovesInTwoHalves) {
  const auto servers = servers_of(lamb_net(), 2, 2);
  const auto chain = chain_of(servers[0], "fc_w@GRAD.block1");
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_THAT(
      op_types(servers[0].block(chain[0])),
      ElementsAre("sum", "scale", "lamb_direction", "squared_row_sums", "squared_row_sums"));
  EXPECT_THAT(op_types(servers[0].block(chain[1])), ElementsAre("lamb_apply"));
}

TEST(Clipping, StaysOnTrainersThatServersHearOneByOne) {
  for (const auto& clip :
       {fluid::clip::GradientClipByGlobalNorm(1.0), fluid::clip::GradientClipByNorm(1.0),
        fluid::clip::GradientClipByValue(0.1)}) {
    const SampleNet net = clipped_net(clip);
    DistributeTranspiler transpiler({.sync_mode = false});
    transpiler.transpile(options_for(net, 2, 2));
    const Program trainer = transpiler.get_trainer_program();
    fluid::verify(trainer);
    const Names ops = op_types(trainer.global_block());
    const char* clipping = clip.kind == "ClipByValue"  ? "clip"
                           : clip.kind == "ClipByNorm" ? "clip_by_norm"
                                                       : "elementwise_div";
    EXPECT_THAT(ops, Contains(clipping));
    const Program server = transpiler.get_pserver_program(server_endpoints(2).front());
    for (int32_t i = 1; i < server.block_count(); ++i) {
      EXPECT_THAT(op_types(server.block(i)), ElementsAre("sgd"));
    }
  }
}

TEST(Norms, OfWholeParametersLeaveThemWholeInAsynchronousJobs) {
  const SampleNet net = lamb_net();
  DistributeTranspiler transpiler({.sync_mode = false});
  transpiler.transpile(options_for(net, 2, 2));
  for (const PlacedParam& param : transpiler.plan().params) EXPECT_FALSE(param.sliced);
}

TEST(Statistics, AreAveragedOnAServerAndComeBack) {
  const SampleNet net = normalised_net();
  DistributeTranspiler transpiler;
  transpiler.transpile(options_for(net, 2, 3, 1));
  ASSERT_EQ(transpiler.plan().statistics.size(), 2u);
  const std::string mean = transpiler.plan().statistics.front().name;
  const Program trainer = transpiler.get_trainer_program();
  fluid::verify(trainer);
  Names sent;
  Names received;
  for (const auto& op : trainer.global_block().ops()) {
    if (op->type == "send") sent.push_back(op->input("X").front());
    if (op->type == "recv") received.push_back(op->output("Out").front());
  }
  EXPECT_THAT(sent, Contains(mean + "@STATISTIC.trainer_1"));
  EXPECT_THAT(received, Contains(mean));
  bool found = false;
  for (const std::string& endpoint : server_endpoints(2)) {
    const ProgramPair server = transpiler.get_pserver_programs(endpoint);
    fluid::verify(server.startup);
    for (const int32_t block : chain_of(server.main, mean + "@STATISTIC")) {
      EXPECT_THAT(op_types(server.main.block(block)), ElementsAre("sum", "scale", "assign"));
      found = true;
    }
  }
  EXPECT_TRUE(found);
}

TEST(Statistics, StayLocalWhereServersDoNotAverage) {
  const SampleNet net = normalised_net();
  for (const DistributeTranspilerConfig& config :
       {DistributeTranspilerConfig{.sync_mode = false},
        DistributeTranspilerConfig{.server_statistics = false}}) {
    DistributeTranspiler transpiler(config);
    transpiler.transpile(options_for(net, 2, 2));
    EXPECT_THAT(transpiler.plan().statistics, IsEmpty());
  }
}

TEST(Tables, AreLookedUpOnTheServersAndNeverReceived) {
  const SampleNet net = table_net(5);  // tables 0, 0, 1, 1, 2
  DistributeTranspiler transpiler;
  transpiler.transpile(options_for(net, 2, 2));
  const Program trainer = transpiler.get_trainer_program();
  fluid::verify(trainer);
  std::map<std::string, size_t> lookups;
  for (const auto& op : trainer.global_block().ops()) {
    EXPECT_NE(op->type, "lookup_table");
    if (op->type == "distributed_lookup_table") {
      lookups[op->input("W").front()] += op->input("Ids").size();
    }
    if (op->type == "recv") {
      EXPECT_FALSE(op->output("Out").front().starts_with("table_"));
    }
  }
  EXPECT_EQ(lookups,
            (std::map<std::string, size_t>{{"table_0", 2}, {"table_1", 2}, {"table_2", 1}}));
  Names faked;
  const Program startup = transpiler.get_trainer_startup_program();
  for (const auto& op : startup.global_block().ops()) {
    if (op->type == "fake_init") faked.push_back(op->output("Out").front());
    if (op->type != "fake_init" && !op->output_names().empty()) {
      EXPECT_FALSE(op->output_names().front().starts_with("table_"));
    }
  }
  EXPECT_THAT(faked, ElementsAre("table_0", "table_1", "table_2"));
}

TEST(Tables, GoThroughEveryMode) {
  const SampleNet net = table_net(4);
  for (const DistributeTranspilerConfig& config :
       {DistributeTranspilerConfig{.sync_mode = false},
        DistributeTranspilerConfig{.sync_mode = false, .runtime_split_send_recv = true},
        DistributeTranspilerConfig{.sync_mode = false, .geo_sgd_mode = true},
        DistributeTranspilerConfig{.split_method = "HashName"}}) {
    DistributeTranspiler transpiler(config);
    transpiler.transpile(options_for(net, 3, 2));
    fluid::verify(transpiler.get_trainer_program());
    fluid::verify(transpiler.get_trainer_startup_program());
    for (const std::string& endpoint : server_endpoints(3)) {
      const ProgramPair server = transpiler.get_pserver_programs(endpoint);
      fluid::verify(server.main);
      fluid::verify(server.startup);
    }
  }
}

using Minimize = std::function<void(const fluid::Variable&)>;

Minimize clipped_sgd(const fluid::Penalty& clip) {
  return [clip](const fluid::Variable& loss) {
    fluid::optimizer::SGD({.learning_rate = 0.1, .grad_clip = clip}).minimize(loss);
  };
}

// A distributed table [1000, 16] beside a parameter that is not cut.
SampleNet net_of_table(const Minimize& minimize) {
  SampleNet net;
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  const auto ids = fluid::layers::data("ids", {1}, fluid::DType::kInt64);
  const auto rows = fluid::layers::embedding(
      ids, {1000, 16},
      {.is_sparse = true, .is_distributed = true, .param_attr = {.name = "table"}});
  minimize(fluid::layers::mean(fluid::layers::fc(rows, 1, {.bias_attr = fluid::no_bias()})));
  return net;
}

Minimize lamb() {
  return [](const fluid::Variable& loss) {
    fluid::optimizer::Lamb({.learning_rate = 0.1}).minimize(loss);
  };
}

TEST(DistributedTables, AreUpdatedByNormsOfTheWhole) {
  const auto lars = [](const fluid::Variable& loss) {
    fluid::optimizer::LarsMomentum({.learning_rate = 0.1}).minimize(loss);
  };
  const std::vector<std::tuple<Minimize, Names, Names>> all = {
      {clipped_sgd(fluid::clip::GradientClipByNorm(0.1)),
       {"squared_row_sums"},
       {"clip_by_norm", "sgd"}},
      {clipped_sgd(fluid::clip::GradientClipByGlobalNorm(0.1)),
       {"marked_row_sums"},
       {"elementwise_mul", "sgd"}},
      {lars, {"squared_row_sums", "squared_row_sums"}, {"lars_momentum"}},
      {lamb(), {"lamb_direction", "squared_row_sums", "squared_row_sums"}, {"lamb_apply"}},
  };
  for (const auto& [minimize, first, second] : all) {
    const auto servers = servers_of(net_of_table(minimize), 3, 2);
    for (const Program& server : servers) {
      const auto chain = chain_of(server, "table@GRAD");
      ASSERT_EQ(chain.size(), 2u);
      Names begin = {"sum", "scale"};
      begin.insert(begin.end(), first.begin(), first.end());
      EXPECT_EQ(op_types(server.block(chain[0])), begin);
      EXPECT_EQ(op_types(server.block(chain[1])), second);
    }
    // The rows of all servers, 334 each, and in the order of the table.
    const Block& exchange = servers[1].block(listen_of(servers[1]).exchange_blocks.at(0).index);
    size_t ordered = 0;
    for (const auto& op : exchange.ops()) {
      if (op->type != "interleave_rows") continue;
      ++ordered;
      const Block& global = servers[1].global_block();
      EXPECT_EQ(global.var(op->input("X").front()).shape[0], 3 * 334);
      EXPECT_EQ(global.var(op->output("Out").front()).shape[0], 1000);
    }
    EXPECT_EQ(ordered, std::count_if(first.begin(), first.end(), [](const std::string& op) {
                return op.ends_with("_row_sums");
              }));
  }
}

TEST(DistributedTables, ExchangeNothingWithOneServer) {
  for (const Minimize& minimize :
       {lamb(), clipped_sgd(fluid::clip::GradientClipByGlobalNorm(0.1))}) {
    const auto servers = servers_of(net_of_table(minimize), 1, 2);
    for (int32_t i = 0; i < servers[0].block_count(); ++i) {
      EXPECT_THAT(op_types(servers[0].block(i)),
                  Not(testing::Contains(testing::AnyOf("exchange_rows", "interleave_rows"))));
    }
  }
}

// Where servers exchange no norms one server has the table, as it has other parameters.
TEST(DistributedTables, WithUpdatesOfWholesLieOnOneServerWhereNormsAreNotExchanged) {
  const Minimize dpsgd = [](const fluid::Variable& loss) {
    fluid::optimizer::Dpsgd({.learning_rate = 0.1}).minimize(loss);
  };
  const DistributeTranspilerConfig async{.sync_mode = false};
  const std::vector<std::pair<Minimize, DistributeTranspilerConfig>> all = {
      {lamb(), async}, {dpsgd, async}, {dpsgd, {}}};
  for (const auto& [minimize, config] : all) {
    const SampleNet net = net_of_table(minimize);
    DistributeTranspiler transpiler(config);
    transpiler.transpile(options_for(net, 3, 2));
    EXPECT_THAT(transpiler.plan().tables, IsEmpty());
    const auto& params = transpiler.plan().params;
    const auto table = std::find_if(params.begin(), params.end(),
                                    [](const auto& param) { return param.param == "table"; });
    ASSERT_NE(table, params.end());
    EXPECT_TRUE(table->remote && !table->sliced);
    const Program trainer = transpiler.get_trainer_program();
    fluid::verify(trainer);
    EXPECT_THAT(op_types(trainer.global_block()), Contains("distributed_lookup_table"));
    // The user's program is as it was.
    EXPECT_TRUE(std::get<bool>(*net.main.global_block().op(0).attr("is_distributed")));
  }
  DistributeTranspiler cut({.whole_norms = false, .sync_mode = false});
  cut.transpile(options_for(net_of_table(lamb()), 3, 2));
  EXPECT_EQ(cut.plan().tables.size(), 1u);
}

TEST(DistributedTables, AreOnNoTrainerAndAveragedLikeOthers) {
  const SampleNet net = table_net(3, true);  // tables 0, 0, 1
  for (const bool sync : {true, false}) {
    SCOPED_TRACE(sync);
    DistributeTranspiler transpiler({.sync_mode = sync});
    transpiler.transpile(options_for(net, 3, 2, 1));
    const Program trainer = transpiler.get_trainer_program();
    fluid::verify(trainer);
    const Names ops = op_types(trainer.global_block());
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "prefetch"), 2);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "merge_ids"), 2);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "split_ids"), 4);
    EXPECT_THAT(ops, Not(Contains("lookup_table")));
    for (const auto& op : trainer.global_block().ops()) {
      if (op->type == "recv") {
        EXPECT_FALSE(op->output("Out").front().starts_with("table_"));
      }
    }
    fluid::verify(transpiler.get_trainer_startup_program());
    for (const std::string& endpoint : server_endpoints(3)) {
      const ProgramPair server = transpiler.get_pserver_programs(endpoint);
      fluid::verify(server.main);
      fluid::verify(server.startup);
      const auto listen = listen_of(server.main);
      EXPECT_EQ(listen.prefetch_var_name_to_block_id.size(), 2u);
      EXPECT_THAT(op_types(server.main.block(listen.checkpint_block_id)),
                  ElementsAre("save", "save"));
      EXPECT_EQ(server.main.global_block().var("table_0").shape, (fluid::Shape{334, 16}));
      EXPECT_EQ(server.main.global_block().var("table_0").kind, fluid::VarKind::kSelectedRows);
      size_t updates = 0;
      for (int32_t i = 1; i < server.main.block_count(); ++i) {
        const Names types = op_types(server.main.block(i));
        const Block& block = server.main.block(i);
        const bool table =
            !types.empty() && types.back() == "adam" &&
            block.op(block.op_count() - 1).input("Param").front().starts_with("table");
        if (!table) continue;
        ++updates;
        if (sync) {
          EXPECT_THAT(types, ElementsAre("sum", "scale", "adam"));
        } else {
          EXPECT_THAT(types, ElementsAre("adam"));
        }
      }
      EXPECT_EQ(updates, 2u);
    }
  }
}

}  // namespace
}  // namespace fleet::transpiler
