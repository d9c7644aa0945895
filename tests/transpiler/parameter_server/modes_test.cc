// Programs of asynchronous and of rarely communicating modes: what the golden files do not show.
#include <gmock/gmock.h>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/server_ops.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::Program;
using testing::ElementsAre;
using Names = std::vector<std::string>;

// Two servers, two trainers.
ProgramPair first_server(const SampleNet& net, const DistributeTranspilerConfig& config) {
  DistributeTranspiler transpiler(config);
  transpiler.transpile(options_for(net, 2, 2));
  return transpiler.get_pserver_programs(server_endpoints(2).front());
}

DistributeTranspilerConfig compensated(const std::string& form) {
  return {.enable_dc_asgd = true, .dc_asgd_form = form, .sync_mode = false};
}

std::map<std::string, std::string> initialisers(const Program& startup) {
  std::map<std::string, std::string> found;
  for (const auto& op : startup.global_block().ops()) {
    for (const std::string& name : op->output_names()) found[name] = op->type;
  }
  return found;
}

TEST(DelayCompensation, EveryFormUpdatesFromTheCorrectedGradient) {
  const SampleNet net = adam_net();
  for (const char* form : {"paddle", "constant", "adaptive", "clipped"}) {
    SCOPED_TRACE(form);
    const ProgramPair server = first_server(net, compensated(form));
    fluid::verify(server.main);
    fluid::verify(server.startup);
    const Block& block = server.main.block(1);
    const Operator& update = block.op(block.op_count() - 1);
    EXPECT_EQ(update.type, "adam");
    EXPECT_THAT(update.input("Grad"), ElementsAre(testing::StartsWith("tmp_dc_output_")));
    EXPECT_EQ(block.op(block.op_count() - 2).output("Out"), update.input("Grad"));
    EXPECT_EQ(block.op(0).type, "ref_by_trainer_id");
    const auto made = initialisers(server.startup);
    EXPECT_EQ(made.at("fc_b.trainer_0_bak"), "assign");
    EXPECT_EQ(made.at("fc_w.block1.trainer_1_bak"), "assign");
  }
}

TEST(DelayCompensation, FormsThatAverageSquaresKeepThemPerSliceFromZero) {
  const SampleNet net = reference_net();
  const ProgramPair server = first_server(net, compensated("adaptive"));
  const fluid::VarDesc& mean = server.main.global_block().var("fc_w.block1.dc_mean_square");
  EXPECT_EQ(mean.shape, (fluid::Shape{500, 1000}));
  EXPECT_TRUE(mean.persistable);
  EXPECT_EQ(initialisers(server.startup).at("fc_w.block1.dc_mean_square"), "fill_constant");
  EXPECT_EQ(initialisers(first_server(net, compensated("constant")).startup)
                .count("fc_w.block1.dc_mean_square"),
            0u);
}

TEST(DelayCompensation, TakesTheNumbersOfItsFormUnlessOthersAreGiven) {
  const auto lambda_of = [](const DistributeTranspilerConfig& config) {
    const Program main = first_server(reference_net(), config).main;
    const Operator& op = main.block(1).op(1);
    return fluid::parse_attributes<fluid::DcCompensateAttrs>(op.type, op.attrs).lambda;
  };
  EXPECT_EQ(lambda_of(compensated("constant")), 0.04f);
  EXPECT_EQ(lambda_of(compensated("adaptive")), 2.0f);
  EXPECT_EQ(lambda_of(compensated("clipped")), 4.0f);
  DistributeTranspilerConfig config = compensated("adaptive");
  config.dc_asgd_lambda = 0.5;
  EXPECT_EQ(lambda_of(config), 0.5f);
}

// The call as Paddle Fluid's documents show it.
TEST(DelayCompensation, SyncModeMayBeSaidToTranspileAlone) {
  const SampleNet net = reference_net();
  DistributeTranspilerConfig config;
  config.enable_dc_asgd = true;
  DistributeTranspiler t(config);
  TranspileOptions options = options_for(net, 2, 2);
  options.sync_mode = false;
  t.transpile(options);
  const ProgramPair server = t.get_pserver_programs(server_endpoints(2).front());
  EXPECT_EQ(server.main.to_string(), first_server(net, compensated("clipped")).main.to_string());
  const fluid::DelayCompensationInfo clipped{"clipped", 4, 0.95, 1e-7};
  for (const Program& program :
       {t.get_trainer_program(), t.get_trainer_startup_program(), server.main, server.startup}) {
    EXPECT_EQ(program.distribution().delay_compensation, clipped);
    EXPECT_EQ(program.distribution().server_mode, fluid::ServerMode::kAsync);
  }
  options.sync_mode = std::nullopt;
  try {
    t.transpile(options);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("enable_dc_asgd and sync_mode"),
                                             testing::HasSubstr("here or in transpile")));
  }
}

TEST(DelayCompensation, PaddlesFormRefusesSparseGradients) {
  for (const bool distributed : {false, true}) {
    const SampleNet net = table_net(2, distributed);
    DistributeTranspiler transpiler(compensated("paddle"));
    try {
      transpiler.transpile(options_for(net, 2, 2));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotSupported);
      EXPECT_THAT(error.what(), testing::HasSubstr("enable_dc_asgd"));
      EXPECT_THAT(error.what(), testing::HasSubstr("dc_asgd_form"));
    }
  }
}

void expect_compensated_rows(const char* form, bool distributed) {
  const SampleNet net = table_net(3, distributed);  // tables 0, 0, 1
  DistributeTranspiler transpiler(compensated(form));
  transpiler.transpile(options_for(net, 2, 2));
  for (const std::string& endpoint : server_endpoints(2)) {
    const ProgramPair server = transpiler.get_pserver_programs(endpoint);
    fluid::verify(server.main);
    fluid::verify(server.startup);
    int rows = 0;
    for (int32_t i = 1; i < server.main.block_count(); ++i) {
      for (const auto& op : server.main.block(i).ops()) {
        if (op->type != "dc_compensate") continue;
        const auto kind = [&](const std::string& name) {
          return server.main.block(i).find_var_recursive(name)->kind;
        };
        EXPECT_EQ(kind(op->output("Out").front()), kind(op->input("Grad").front()));
        rows += kind(op->input("Grad").front()) == fluid::VarKind::kSelectedRows ? 1 : 0;
      }
    }
    EXPECT_EQ(rows, distributed ? 2 : 1);
  }
}

TEST(DelayCompensation, SparseGradientsStaySparse) {
  for (const char* form : {"constant", "adaptive", "clipped"}) {
    for (const bool distributed : {false, true}) {
      SCOPED_TRACE(str_cat(form, distributed ? " distributed" : ""));
      expect_compensated_rows(form, distributed);
    }
  }
}

TEST(Geo, DistributedTablesAreSparseTables) {
  for (const bool distributed : {false, true}) {
    SCOPED_TRACE(distributed);
    const SampleNet net = table_net(2, distributed);
    DistributeTranspiler transpiler({.sync_mode = false, .geo_sgd_mode = true});
    transpiler.transpile(options_for(net, 1, 2));
    const Program trainer = transpiler.get_trainer_program();
    Names expected = op_types(net.main.global_block());
    expected.push_back("send");
    EXPECT_EQ(op_types(trainer.global_block()), expected);
    const auto& notice = *trainer.global_block().ops().back();
    EXPECT_EQ(notice.input("X").size(), 2u);
    EXPECT_EQ(std::get<Names>(*notice.attr("send_varnames")), (Names{"table_0", "table_0"}));
    const Program server = transpiler.get_pserver_programs(server_endpoints(1).front()).main;
    EXPECT_EQ(server.global_block().var("table_0.delta").kind, fluid::VarKind::kSelectedRows);
    const auto& listen = *server.global_block().ops().back();
    EXPECT_EQ(std::get<Names>(*listen.attr("sparse_grad_to_param")),
              (Names{"table_0.delta:table_0"}));
  }
}

TEST(Geo, TheTrainerKeepsItsProgramAndServersAddDeltas) {
  const SampleNet net = adam_net();
  DistributeTranspiler transpiler({.sync_mode = false, .geo_sgd_mode = true});
  transpiler.transpile(options_for(net, 2, 2, 1));
  const Program trainer = transpiler.get_trainer_program();
  Names expected = op_types(net.main.global_block());
  expected.push_back("send");
  EXPECT_EQ(op_types(trainer.global_block()), expected);
  const Program startup = transpiler.get_trainer_startup_program();
  fluid::verify(startup);
  for (const std::string& endpoint : server_endpoints(2)) {
    const ProgramPair server = transpiler.get_pserver_programs(endpoint);
    fluid::verify(server.main);
    for (int32_t i = 1; i < server.main.block_count(); ++i) {
      EXPECT_THAT(op_types(server.main.block(i)), ElementsAre("sum"));
    }
    for (const auto& row : server.main.distribution().vars) EXPECT_EQ(row.vtype, "Param");
  }
}

ProgramPair two_ranks(const SampleNet& net, const DistributeTranspilerConfig& config) {
  DistributeTranspiler transpiler(config);
  transpiler.transpile({.program = &net.main,
                        .trainers = "127.0.0.1:6170,127.0.0.1:6171",
                        .startup_program = &net.startup,
                        .current_endpoint = "127.0.0.1:6170",
                        .verify_each_pass = true});
  return {transpiler.get_trainer_program(), transpiler.get_trainer_startup_program()};
}

TEST(LocalSgd, AScheduledAverageIsOneOpWithTheLossAndTheRate) {
  const SampleNet net = scheduled_net();
  const ProgramPair pair = two_ranks(
      net, {.mode = "collective", .collective_mode = "local_sgd", .local_sgd_scheduled = true});
  const Block& block = pair.main.global_block();
  ASSERT_EQ(block.op_count(), net.main.global_block().op_count() + 1);
  const Operator& op = block.op(block.op_count() - 1);
  EXPECT_EQ(op.type, "c_local_sgd");
  EXPECT_THAT(op.input("X"), testing::UnorderedElementsAre("fc_b", "fc_w"));
  EXPECT_EQ(op.input("X"), op.output("Out"));
  EXPECT_THAT(op.input("Loss"), ElementsAre("mean_0.tmp_0"));
  EXPECT_EQ(op.input("LearningRate").size(), 1u);
}

TEST(LocalSgd, WantsOneShardForEachRank) {
  const SampleNet net = reference_net();
  DistributeTranspiler transpiler({.mode = "collective", .collective_mode = "local_sgd"});
  EXPECT_THROW(transpiler.transpile({.program = &net.main,
                                     .trainers = "127.0.0.1:6170,127.0.0.1:6171",
                                     .startup_program = &net.startup,
                                     .current_endpoint = "127.0.0.1:6170",
                                     .logical_shards = 4}),
               UsageError);
}

TEST(FusedAllReduces, SumEveryGradientOnceInBucketsOfTheSizeGiven) {
  const SampleNet net = deep_net(6, 8);  // 256 and 32 bytes a layer
  for (const int64_t limit : {int64_t{1}, int64_t{300}, int64_t{1} << 20}) {
    SCOPED_TRACE(limit);
    const ProgramPair pair = two_ranks(net, {.mode = "collective",
                                             .nccl_comm_num = 2,
                                             .collective_mode = "grad_allreduce",
                                             .fuse_all_reduce_bytes = limit});
    fluid::verify(pair.main);
    std::set<std::string> summed;
    size_t ops = 0;
    for (const auto& op : pair.main.global_block().ops()) {
      if (fluid::has_role(op->role, fluid::OpRole::kOptimize)) {
        for (const std::string& grad : op->input("Grad")) EXPECT_TRUE(summed.contains(grad));
      }
      if (op->type != "c_allreduce_sum") continue;
      ++ops;
      EXPECT_EQ(op->input("X"), op->output("Out"));
      for (const std::string& name : op->input("X")) EXPECT_TRUE(summed.insert(name).second);
    }
    EXPECT_EQ(summed.size(), 12u);
    if (limit == 1) {
      EXPECT_EQ(ops, 12u);
    }
    if (limit > 1000) {
      EXPECT_EQ(ops, 2u);  // one a ring
    }
  }
}

}  // namespace
}  // namespace fleet::transpiler
