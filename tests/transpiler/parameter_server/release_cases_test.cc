// The cases of the release's own conformance file (test_dist_transpiler.py, two trainers and two
// servers), as its releases run them: op lists, blocks and their parents, shapes. Where this
// library departs from it (docs/transpiler.md) the case says so.
#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "fluid/layers/embedding.h"
#include "fluid/layers/layers.h"
#include "fluid/layers/sampled.h"
#include "fluid/layers/sequence.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/transpiler/sample_nets.h"

namespace fleet::transpiler {
namespace {

namespace layers = fluid::layers;
namespace optimizer = fluid::optimizer;
using fluid::DType;
using fluid::Program;
using fluid::Variable;
using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;
using Names = std::vector<std::string>;

using Net = std::function<void()>;

void linreg(const std::function<void(const Variable&)>& minimize,
            const fluid::ParamAttr& weight = {.name = "fc_w"},
            const fluid::ParamAttr& bias = {.name = "fc_b"}) {
  const Variable x = layers::data("x", {1000});
  const Variable y = layers::data("y", {1});
  const Variable prediction = layers::fc(x, 1000, {.param_attr = weight, .bias_attr = bias});
  minimize(layers::mean(layers::square_error_cost(prediction, y)));
}

// The net with an optimizer of these options.
template <class Optimizer, class Options>
Net with(Options options) {
  return [options] {
    linreg([&options](const Variable& loss) { Optimizer(options).minimize(loss); });
  };
}

Net with_schedule(const std::function<Variable()>& rate) {
  return [rate] {
    linreg([&rate](const Variable& loss) {
      optimizer::SGD({.learning_rate = rate()}).minimize(loss);
    });
  };
}

Variable decayed() {
  return layers::exponential_decay(1.0, 2100, 0.1, true);
}

void clipped_and_decayed() {
  linreg(
      [](const Variable& loss) {
        optimizer::SGD({.learning_rate = 0.1,
                        .grad_clip = fluid::clip::GradientClipByValue(0.1),
                        .need_clip = [](const Variable& param) { return param.name() == "fc_w"; }})
            .minimize(loss);
      },
      {.name = "fc_w", .regularizer = fluid::regularizer::L2Decay(0.1)});
}

void decayed_in_steps() {
  linreg([](const Variable& loss) {
    optimizer::Momentum(
        {.learning_rate = layers::piecewise_decay({1, 10, 20, 30}, {1, 0.5, 0.25, 0.1, 0.01}),
         .momentum = 0.9,
         .regularization = fluid::regularizer::L2Decay(1e-4)})
        .minimize(loss);
  });
}

void one_parameter() {
  linreg([](const Variable& loss) { optimizer::SGD({.learning_rate = 0.1}).minimize(loss); },
         {.name = "fc_w"}, fluid::no_bias());
}

// Two lookups of one table, one of another.
void tables(bool distributed) {
  const auto pooled = [](const std::string& ids, const std::string& table, bool on_servers) {
    const Variable words = layers::data(ids, {1}, DType::kInt64, {.lod_level = 1});
    return layers::sequence_pool(
        layers::embedding(
            words, {1000, 64},
            {.is_sparse = true, .is_distributed = on_servers, .param_attr = {.name = table}}),
        "average");
  };
  const Variable title = pooled("title_ids", "shared_w", distributed);
  const Variable brand = pooled("brand_ids", "shared_w", distributed);
  const Variable profile = pooled("profile_ids", "profile_emb", false);
  const Variable prediction =
      layers::fc(layers::concat({title, brand, profile}, 1), 2,
                 {.param_attr = {.name = "fc_w"}, .bias_attr = {.name = "fc_b"}});
  const Variable label = layers::data("label", {1}, DType::kInt64);
  optimizer::Adam({.learning_rate = 0.003})
      .minimize(layers::mean(layers::cross_entropy(prediction, label)));
}

void skip_gram() {
  constexpr int64_t kWords = 10000;
  const auto table = [](const Variable& ids, const std::string& name, int64_t width) {
    return layers::embedding(ids, {kWords, width},
                             {.is_sparse = true, .param_attr = {.name = name}});
  };
  const Variable input = layers::data("input_word", {1}, DType::kInt64);
  const Variable truth = layers::data("true_word", {1}, DType::kInt64);
  const Variable noise = layers::data("neg_word", {1}, DType::kInt64);
  const Variable in = table(input, "emb", 8);
  const auto logits = [&](const Variable& ids) {
    const Variable dot = layers::reduce_sum(layers::elementwise_mul(in, table(ids, "emb_w", 8)),
                                            {.dim = {1}, .keep_dim = true});
    return layers::elementwise_add(dot, table(ids, "emb_b", 1));
  };
  const Variable loss = layers::mean(layers::elementwise_sub(logits(noise), logits(truth)));
  optimizer::SGD({.learning_rate = decayed()}).minimize(loss);
}

void sampled_softmax() {
  const Variable hidden = layers::fc(layers::data("input", {10}), 10, {.act = "tanh"});
  const Variable label = layers::data("label", {1}, DType::kInt64);
  const Variable cost = layers::nce(hidden, label, 20,
                                    {.param_attr = {.name = "nce_w"},
                                     .bias_attr = {.name = "nce_b"},
                                     .num_neg_samples = 5,
                                     .sampler = "custom_dist",
                                     .custom_dist = std::vector<double>(20, 0.05),
                                     .seed = 1,
                                     .is_sparse = true});
  optimizer::Adam({.learning_rate = 0.003}).minimize(layers::mean(cost));
}

using Shapes = std::map<std::string, fluid::Shape>;

// What a case expects; lists are texts of op types, and what is left out is not looked at.
struct Case {
  std::string name;
  Net net;
  DistributeTranspilerConfig config = {};
  std::string trainer = {};
  std::string trainer_tail = {};
  std::string trainer_startup = {};
  int server = 0;  // which one the rest is about
  std::vector<std::string> blocks = {};
  std::vector<int> parents = {};
  std::string startup = {};
  Shapes shapes = {};  // of variables of the server
};

const std::string kForward =
    "mul elementwise_add elementwise_sub square mean fill_constant mean_grad square_grad "
    "elementwise_sub_grad elementwise_add_grad ";
const std::string kTableBackward =
    "concat mul elementwise_add cross_entropy2 mean fill_constant mean_grad cross_entropy_grad2 "
    "elementwise_add_grad send mul_grad send concat_grad sequence_pool_grad lookup_table_grad ";
const std::string kSharedGradient =
    "sequence_pool_grad lookup_table_grad sequence_pool_grad lookup_table_grad sum ";
const std::string kLookups =
    "distributed_lookup_table distributed_lookup_table sequence_pool "
    "sequence_pool sequence_pool ";
// Lookups of the table that is not distributed stand where their ids are there, as in release 1.8.
const std::string kDistributedLookups =
    "distributed_lookup_table split_ids prefetch merge_ids sequence_pool sequence_pool "
    "sequence_pool ";
// One condition of a schedule by steps: the first, one between two, the last.
const std::string kFirstStep =
    "fill_constant fill_constant less_than logical_not "
    "conditional_block ";
const std::string kNextStep =
    "fill_constant fill_constant less_than logical_not logical_and "
    "logical_and conditional_block ";
const std::string kLastStep = "fill_constant conditional_block";

std::vector<Case> schedules() {
  return {
      {.name = "LRDecay",
       .net = with_schedule(decayed),
       .blocks = {"listen_and_serv",
                  "increment cast scale floor fill_constant elementwise_pow scale", "sum scale sgd",
                  "sum scale sgd"},
       .parents = {-1, 0, 1, 1}},
      {.name = "AsyncLRDecay",
       .net = with_schedule(decayed),
       .config = {.sync_mode = false},
       .trainer_tail = "split_byref send send recv recv concat",
       .trainer_startup =
           "fill_constant fill_constant fill_constant fill_constant uniform_random recv recv "
           "fetch_barrier concat",
       .blocks = {"listen_and_serv", "sum cast scale floor fill_constant elementwise_pow scale",
                  "sgd", "sgd"},
       .parents = {-1, 0, 1, 1},
       .startup = "fill_constant fill_constant fill_constant fill_constant uniform_random"},
      {.name = "LRDecayConditional",
       .net = with_schedule([] {
         return layers::piecewise_decay({10000, 20000}, {1, 0.5, 1});
       }),
       .blocks = {"listen_and_serv", "increment cast " + kFirstStep + kNextStep + kLastStep,
                  "assign", "assign", "assign", "sum scale sgd", "sum scale sgd"}},
      {.name = "L2DecayWithPiecewise",
       .net = decayed_in_steps,
       .blocks = {"listen_and_serv",
                  "increment cast " + kFirstStep + kNextStep + kNextStep + kNextStep + kLastStep,
                  "assign", "assign", "assign", "assign", "assign", "sum scale scale sum momentum",
                  "sum scale scale sum momentum"}},
  };
}

std::vector<Case> dense_nets() {
  const Net sgd = with<optimizer::SGD>(optimizer::SGDOptions{.learning_rate = 0.1});
  return {
      {.name = "BasicModel",
       .net = sgd,
       .trainer = kForward + "send mul_grad split_byref send send_barrier recv recv fetch_barrier "
                             "concat",
       .trainer_startup = "fill_constant uniform_random recv recv fetch_barrier concat",
       .blocks = {"listen_and_serv", "sum scale sgd", "sum scale sgd"},
       .parents = {-1, 0, 0},
       .startup = "fill_constant fill_constant uniform_random",
       .shapes = {{"fc_w.block1", {500, 1000}}, {"fc_b", {1000}}}},
      {.name = "BasicModelWithLargeBlockSize",
       .net = sgd,
       .config = {.min_block_size = 1048576},
       .trainer = kForward + "send mul_grad send send_barrier recv recv fetch_barrier",
       .trainer_startup = "fill_constant uniform_random recv recv fetch_barrier",
       .blocks = {"listen_and_serv", "sum scale sgd"},
       .startup = "fill_constant fill_constant",
       .shapes = {{"fc_b", {1000}}}},
      {.name = "LargeBlockOnTheSecondServer",
       .net = sgd,
       .config = {.min_block_size = 1048576},
       .server = 1,
       .blocks = {"listen_and_serv", "sum scale sgd"},
       .startup = "fill_constant uniform_random",
       .shapes = {{"fc_w", {1000, 1000}}}},
      // Parameters are dispatched in their own order.
      {.name = "NoSliceVar",
       .net = sgd,
       .config = {.slice_var_up = false},
       .server = 1,
       .shapes = {{"fc_w", {1000, 1000}}}},
      {.name = "EmptyPserverOptimizeBlocks",
       .net = one_parameter,
       .config = {.slice_var_up = false},
       .server = 1,
       .blocks = {"listen_and_serv", ""},
       .parents = {-1, 0},
       .startup = " "},
      // A clip of fc_b stood here by a mistake of the release.
      {.name = "L2Decay",
       .net = clipped_and_decayed,
       .blocks = {"listen_and_serv", "sum scale sgd", "sum scale clip scale sum sgd"}},
      {.name = "DecayedAdagrad",
       .net =
           with<optimizer::DecayedAdagrad>(optimizer::DecayedAdagradOptions{.learning_rate = 0.1}),
       .blocks = {"listen_and_serv", "sum scale decayed_adagrad", "sum scale decayed_adagrad"},
       .shapes = {{"fc_w_moment_0", {500, 1000}}}},
      {.name = "Ftrl",
       .net = with<optimizer::Ftrl>(optimizer::FtrlOptions{.learning_rate = 0.1}),
       .blocks = {"listen_and_serv", "sum scale ftrl", "sum scale ftrl"},
       .shapes = {{"fc_w_squared_0", {500, 1000}}, {"fc_w_linear_0", {500, 1000}}}},
      // The release leaves mean_grad whole.
      {.name = "RMSProp",
       .net = with<optimizer::RMSProp>(optimizer::RMSPropOptions{.learning_rate = 0.1}),
       .blocks = {"listen_and_serv", "sum scale rmsprop", "sum scale rmsprop"},
       .shapes = {{"fc_w.block1", {500, 1000}},
                  {"fc_w_momentum_0", {500, 1000}},
                  {"fc_w_mean_square_0", {500, 1000}},
                  {"fc_w_mean_grad_0", {500, 1000}}}},
  };
}

std::vector<Case> nets_with_tables() {
  const Net local = [] { tables(false); };
  const Net distributed = [] { tables(true); };
  const std::string rows_sent = "split_selected_rows send ";
  const std::string ends = "send_barrier recv recv fetch_barrier";
  return {
      {.name = "LocalLookupTable",
       .net = local,
       .trainer = kLookups + kTableBackward + rows_sent + kSharedGradient + rows_sent + ends,
       .blocks = {"listen_and_serv", "sum scale adam", "sum scale adam", "sum scale adam"},
       .parents = {-1, 0, 0, 0}},
      {.name = "AsyncLocalLookupTable",
       .net = local,
       .config = {.sync_mode = false},
       .trainer = kLookups + kTableBackward + rows_sent + kSharedGradient + rows_sent + "recv recv",
       .blocks = {"listen_and_serv", "adam", "adam", "adam"}},
      // The release sums a distributed table's gradient, and makes its rule sgd.
      {.name = "DistLookupTable",
       .net = distributed,
       .trainer = kDistributedLookups + kTableBackward + rows_sent + kSharedGradient +
                  "split_ids send " + ends,
       .blocks = {"listen_and_serv", "sum scale adam", "sum scale adam", "sum scale adam",
                  "lookup_sparse_table", "save"},
       .parents = {-1, 0, 0, 0, 3, 3},
       .shapes = {{"shared_w", {500, 64}}}},
      {.name = "AsyncDistLookupTable",
       .net = distributed,
       .config = {.sync_mode = false},
       .trainer = kDistributedLookups + kTableBackward + rows_sent + kSharedGradient +
                  "split_ids send recv recv",
       .blocks = {"listen_and_serv", "adam", "adam", "adam", "lookup_sparse_table", "save"},
       .parents = {-1, 0, 0, 0, 3, 3},
       .shapes = {{"shared_w", {500, 64}}}},
  };
}

std::string types(const fluid::Block& block) {
  return join(op_types(block), " ");
}

// A job of two trainers and two servers.
struct Job {
  Job(const Net& build, const DistributeTranspilerConfig& config) : transpiler(config) {
    const fluid::ProgramGuard programs(net.main, net.startup);
    const fluid::unique_name::Guard names;
    build();
    transpiler.transpile(options_for(net, 2, 2));
  }
  ProgramPair server(int index) const {
    return transpiler.get_pserver_programs(server_endpoints(2)[static_cast<size_t>(index)]);
  }

  SampleNet net;
  DistributeTranspiler transpiler;
};

void check_trainer(const Case& expected, const Job& job) {
  const std::string main = types(job.transpiler.get_trainer_program().global_block());
  const std::string startup = types(job.transpiler.get_trainer_startup_program().global_block());
  if (!expected.trainer.empty()) {
    EXPECT_EQ(main, expected.trainer);
  }
  EXPECT_TRUE(main.ends_with(expected.trainer_tail)) << main;
  if (!expected.trainer_startup.empty()) {
    EXPECT_EQ(startup, expected.trainer_startup);
  }
}

void check_server(const Case& expected, const ProgramPair& server) {
  std::vector<std::string> blocks;
  std::vector<int> parents;
  for (int32_t i = 0; i < server.main.block_count(); ++i) {
    blocks.push_back(types(server.main.block(i)));
    parents.push_back(server.main.block(i).parent());
  }
  if (!expected.blocks.empty()) {
    EXPECT_EQ(blocks, expected.blocks);
  }
  if (!expected.parents.empty()) {
    EXPECT_EQ(parents, expected.parents);
  }
  if (!expected.startup.empty()) {
    EXPECT_EQ(types(server.startup.global_block()), trim(expected.startup));
  }
  for (const auto& [name, shape] : expected.shapes) {
    for (const Program* program : {&server.main, &server.startup}) {
      const fluid::VarDesc* var = program->global_block().find_var(name);
      ASSERT_NE(var, nullptr) << name;
      EXPECT_EQ(var->shape, shape) << name;
    }
  }
}

void check(const std::vector<Case>& cases) {
  for (const Case& expected : cases) {
    SCOPED_TRACE(expected.name);
    const Job job(expected.net, expected.config);
    check_trainer(expected, job);
    check_server(expected, job.server(expected.server));
  }
}

TEST(ReleaseCases, Schedules) {
  check(schedules());
}

TEST(ReleaseCases, DenseNets) {
  check(dense_nets());
}

TEST(ReleaseCases, NetsWithTables) {
  check(nets_with_tables());
}

const Net kSgd = with<optimizer::SGD>(optimizer::SGDOptions{.learning_rate = 0.1});

Names outputs_of(const Program& program, std::string_view type) {
  Names names;
  for (const auto& op : program.global_block().ops()) {
    if (op->type != type) continue;
    for (std::string& name : op->output_names()) names.push_back(std::move(name));
  }
  return names;
}

// BasicModel.
TEST(ReleaseCases, ATrainersStartupHasParametersAndNoGradients) {
  const Job job(kSgd, {});
  const Program startup = job.transpiler.get_trainer_startup_program();
  Names names;
  for (const auto* var : startup.global_block().vars_in_order()) {
    names.push_back(var->name);
    EXPECT_EQ(var->name.find("@GRAD"), std::string::npos) << var->name;
  }
  EXPECT_THAT(names, IsSupersetOf({"fc_w.block0", "fc_w.block1", "fc_w", "fc_b"}));
}

// BasicModel, LoadSliceVar, DistLookupTableSliceSize.
TEST(ReleaseCases, ServersHaveAllElementsOfEveryDistributedVariable) {
  for (const Net& net :
       {kSgd, with<optimizer::RMSProp>(optimizer::RMSPropOptions{}), Net([] { tables(true); })}) {
    const Job job(net, {});
    std::map<std::string, int64_t> elements;
    std::map<std::string, int64_t> origins;
    std::set<std::string> updated;
    for (const int index : {0, 1}) {
      const Program server = job.server(index).main;
      for (const auto& row : server.distribution().vars) {
        if (row.endpoint != server.distribution().ps_endpoint) continue;
        const int64_t whole = fluid::Shape(row.origin_shape).numel();
        if (whole == 1) continue;  // every slice has one
        origins[row.origin] = whole;
        elements[row.origin] += server.global_block().var(row.slice).shape.numel();
        if (row.vtype != "Optimizer") updated.insert(row.origin);
      }
    }
    EXPECT_EQ(elements, origins);
    std::set<std::string> parameters;
    for (const auto* param : job.net.main.global_block().parameters()) {
      parameters.insert(param->name);
    }
    EXPECT_EQ(updated, parameters);
  }
}

// FakeInit.
TEST(ReleaseCases, TrainersDoNotInitialiseTables) {
  const Job job(skip_gram, {});
  EXPECT_THAT(outputs_of(job.transpiler.get_trainer_startup_program(), "fake_init"),
              testing::UnorderedElementsAre("emb", "emb_w", "emb_b"));
}

TEST(ReleaseCases, TrainersInitialiseTablesThatAreNotTrainedUnlessToldNotTo) {
  const Net frozen = [] {
    const Variable ids = layers::data("ids", {1}, DType::kInt64);
    const auto table = [&ids](const std::string& name, bool trainable) {
      return layers::embedding(
          ids, {30, 8}, {.is_sparse = true, .param_attr = {.name = name, .trainable = trainable}});
    };
    const Variable both = layers::elementwise_add(table("trained", true), table("frozen", false));
    optimizer::SGD({.learning_rate = 0.1}).minimize(layers::mean(both));
  };
  const auto startup = [&frozen](const DistributeTranspilerConfig& config) {
    return Job(frozen, config).transpiler.get_trainer_startup_program();
  };
  EXPECT_THAT(outputs_of(startup({}), "fake_init"), ElementsAre("trained"));
  EXPECT_THAT(outputs_of(startup({}), "uniform_random"), ElementsAre("frozen"));
  const Program empty = startup({.initialise_frozen_tables = false});
  EXPECT_THAT(outputs_of(empty, "fake_init"), ElementsAre("frozen", "trained"));
  EXPECT_THAT(outputs_of(empty, "uniform_random"), ElementsAre());
}

// RemoteNce: the weight is fetched, the bias is received.
TEST(ReleaseCases, SampledWeightsAreNotReceived) {
  const Job job(sampled_softmax, {});
  const Names received = outputs_of(job.transpiler.get_trainer_program(), "recv");
  EXPECT_THAT(received, Contains("nce_b"));
  EXPECT_THAT(received, Not(Contains("nce_w")));
}

// DistArgsInProgram.
TEST(ReleaseCases, ProgramsSayWhatTheyAreAPartOf) {
  const Job job([] { tables(true); }, {});
  const auto info = job.transpiler.get_trainer_program().distribution();
  EXPECT_TRUE(info.is_distributed);
  EXPECT_TRUE(info.is_chief);
  EXPECT_EQ(info.endpoints, server_endpoints(2));
  const bool tables = std::any_of(info.vars.begin(), info.vars.end(), [](const auto& row) {
    return row.origin == "shared_w" && row.vtype == "DistributedTable";
  });
  EXPECT_TRUE(tables);
}

// NCCL2Transpile.
TEST(ReleaseCases, TheIdOfCommunicatorsIsMadeLast) {
  SampleNet net = reference_net();
  DistributeTranspiler transpiler({.mode = "nccl2", .wait_port = false});
  TranspileOptions options = options_for(net, 2, 2);
  options.trainers = "127.0.0.1:6174,127.0.0.1:6175";
  transpiler.transpile(options);
  const Program startup = transpiler.get_trainer_startup_program();
  EXPECT_EQ(op_types(startup.global_block()).back(), "gen_nccl_id");
  EXPECT_NE(startup.global_block().find_var("NCCLID"), nullptr);
  EXPECT_EQ(transpiler.get_trainer_program().to_string(), net.main.to_string());
}

// test_dist_transpiler_config.
TEST(ReleaseCases, ServersKnowTheirMode) {
  const auto mode = [](const DistributeTranspilerConfig& config) {
    const Program server = Job(kSgd, config).server(0).main;
    return fluid::parse_attributes<fluid::ListenAndServAttrs>("listen_and_serv",
                                                              server.global_block().op(0).attrs)
        .distributed_mode;
  };
  EXPECT_EQ(mode({}), 0);
  EXPECT_EQ(mode({.sync_mode = false, .runtime_split_send_recv = true}), 1);
  EXPECT_EQ(mode({.sync_mode = false}), 2);
  EXPECT_EQ(mode({.sync_mode = false, .geo_sgd_mode = true}), 3);
}

}  // namespace
}  // namespace fleet::transpiler
