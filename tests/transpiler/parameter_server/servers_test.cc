// Jobs with parameter servers: what the golden files do not show.
#include <gmock/gmock.h>
#include <set>

#include "base/error.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/math/scale.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Program;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

DistributeTranspiler transpiled(const TranspileOptions& options,
                                const DistributeTranspilerConfig& config = {}) {
  DistributeTranspiler transpiler(config);
  transpiler.transpile(options);
  return transpiler;
}

std::string refusal(const TranspileOptions& options) {
  try {
    transpiled(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

TEST(Servers, EqualCallsGiveEqualProgramsInAnyOrder) {
  const SampleNet net = adam_net();
  const auto one = transpiled(options_for(net, 2, 2));
  const auto other = transpiled(options_for(net, 2, 2));
  const std::string endpoint = server_endpoints(2)[1];
  const Program trainer = one.get_trainer_program();
  const ProgramPair first = one.get_pserver_programs(endpoint);
  const Program startup = other.get_startup_program(endpoint);
  const Program server = other.get_pserver_program(endpoint);
  EXPECT_EQ(trainer.to_string(), other.get_trainer_program().to_string());
  EXPECT_EQ(first.main.to_string(), server.to_string());
  EXPECT_EQ(first.startup.to_string(), startup.to_string());
  EXPECT_EQ(one.get_pserver_program(endpoint).to_string(), server.to_string());
}

TEST(Servers, TheUsersProgramsStayAsTheyAre) {
  const SampleNet net = scheduled_net();
  const auto main = net.main.to_bytes();
  const auto startup = net.startup.to_bytes();
  const auto transpiler = transpiled(options_for(net, 3, 2), {.sync_mode = false});
  transpiler.get_trainer_program();
  transpiler.get_pserver_programs(server_endpoints(3)[0]);
  EXPECT_EQ(net.main.to_bytes(), main);
  EXPECT_EQ(net.startup.to_bytes(), startup);
}

TEST(Servers, AServersProgramDoesNotDependOnWhoAsks) {
  const SampleNet net = reference_net();
  const auto first = transpiled(options_for(net, 2, 4, 0));
  const auto last = transpiled(options_for(net, 2, 4, 3));
  for (const std::string& endpoint : server_endpoints(2)) {
    EXPECT_EQ(first.get_pserver_program(endpoint).to_string(),
              last.get_pserver_program(endpoint).to_string());
  }
}

TEST(Servers, AverageOverLogicalShardsNotOverWorkers) {
  const SampleNet net = reference_net();
  role_maker::ClusterSpec cluster;
  cluster.mode = role_maker::Mode::kParameterServer;
  cluster.worker_num = 2;
  cluster.server_num = 1;
  cluster.server_endpoints = server_endpoints(1);
  cluster.role = role_maker::Role::kServer;
  const ProgramPair server = transpile_for(net.main, net.startup, cluster, {}, 4);
  const Block& block = server.main.block(1);
  EXPECT_EQ(block.op(0).input("X").size(), 4u);
  const auto scale = fluid::parse_attributes<fluid::ScaleAttrs>("scale", block.op(1).attrs);
  EXPECT_EQ(scale.scale, 0.25f);
  const auto listen = fluid::parse_attributes<fluid::ListenAndServAttrs>(
      "listen_and_serv", server.main.global_block().op(0).attrs);
  EXPECT_EQ(listen.fanin, 4);

  cluster.role = role_maker::Role::kWorker;
  cluster.index = 1;
  const ProgramPair worker = transpile_for(net.main, net.startup, cluster, {}, 4);
  EXPECT_EQ(worker.main.distribution().trainer_id, 2);
  EXPECT_EQ(worker.main.distribution().trainers, 4);
  EXPECT_NE(worker.main.global_block().find_var("fc_b@GRAD.trainer_2"), nullptr);
}

TEST(Servers, SlicesSayWhichPartOfWhatTheyAre) {
  const SampleNet net = adam_net();
  const auto transpiler = transpiled(options_for(net, 2, 2));
  const Program server = transpiler.get_pserver_program(server_endpoints(2)[0]);
  const fluid::VarDesc& slice = server.global_block().var("fc_w.block1");
  ASSERT_TRUE(slice.slice.has_value());
  EXPECT_EQ(slice.slice->origin, "fc_w");
  EXPECT_EQ(slice.slice->offset, 500000);
  EXPECT_EQ(slice.slice->origin_shape, (std::vector<int64_t>{1000, 1000}));
  const fluid::VarDesc& moment = server.global_block().var("fc_w_moment1_0");
  ASSERT_TRUE(moment.slice.has_value());
  EXPECT_EQ(moment.slice->origin, "fc_w_moment1_0");
  EXPECT_EQ(moment.slice->offset, 500000);
  EXPECT_FALSE(server.global_block().var("fc_w_beta1_pow_acc_0").slice.has_value());
  EXPECT_FALSE(server.global_block().var("fc_b").slice.has_value());
  EXPECT_EQ(transpiler.get_trainer_program().distribution().vars, server.distribution().vars);
}

// By hash, two slices of one parameter can share a server; their state must not.
TEST(Servers, SlicesThatShareAServerKeepTheirStateApart) {
  const SampleNet net = adam_net();
  const auto transpiler = transpiled(options_for(net, 4, 2), {.split_method = "HashName"});
  std::set<std::string> moments;
  bool shared = false;
  for (const std::string& endpoint : server_endpoints(4)) {
    const ProgramPair server = transpiler.get_pserver_programs(endpoint);
    fluid::verify(server.main);
    fluid::verify(server.startup);
    std::set<std::string> here;
    for (int32_t i = 1; i < server.main.block_count(); ++i) {
      for (const auto& op : server.main.block(i).ops()) {
        if (op->type != "adam") continue;
        shared = shared || !here.empty();
        EXPECT_TRUE(here.insert(op->input("Moment1").front()).second);
        EXPECT_TRUE(here.insert(op->input("Beta1Pow").front()).second);
      }
    }
    std::set<std::string> initialised;
    for (const auto& op : server.startup.global_block().ops()) {
      for (const std::string& name : op->output_names()) initialised.insert(name);
    }
    for (const std::string& name : here) EXPECT_TRUE(initialised.contains(name)) << name;
  }
  EXPECT_TRUE(shared) << "choose another net: no server has two slices";
}

TEST(Servers, WrongArgumentsAreNamed) {
  const SampleNet net = reference_net();
  EXPECT_THAT(refusal(options_for(net, 2, 2, 2)), HasSubstr("trainer_id"));
  EXPECT_THAT(refusal(options_for(net, 2, 0)), HasSubstr("trainers"));
  TranspileOptions twice = options_for(net, 2, 2);
  twice.pservers = "127.0.0.1:6174,127.0.0.1:6174";
  EXPECT_THAT(refusal(twice), HasSubstr("pservers"));
  TranspileOptions order = options_for(net, 2, 2);
  order.dispatch_order = {0, 0};
  EXPECT_THAT(refusal(order), HasSubstr("dispatch_order"));
  const SampleNet empty;
  EXPECT_THAT(refusal(options_for(empty, 2, 2)), HasSubstr("minimize"));
}

TEST(Servers, OptionsThatTheModeDoesNotReadAreErrors) {
  const SampleNet net = reference_net();
  TranspileOptions options = options_for(net, 2, 2);
  options.logical_shards = 4;
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("logical_shards"), HasSubstr("mode")));
  options = options_for(net, 2, 2);
  options.trainers = "127.0.0.1:6174,127.0.0.1:6175";
  options.dispatch_order = {1, 0};
  DistributeTranspiler nccl2({.mode = "nccl2"});
  EXPECT_THROW(nccl2.transpile(options), UsageError);
}

// The lines of print_log, without their times.
std::vector<std::string> printed(const DistributeTranspilerConfig& config) {
  const SampleNet net = reference_net();
  std::vector<std::string> lines;
  TranspileOptions options = options_for(net, 2, 2);
  if (config.mode != "pserver") options.trainers = "127.0.0.1:6174,127.0.0.1:6175";
  options.logger = Logger(LogLevel::kInfo, [&lines](LogLevel, std::string_view line) {
    lines.emplace_back(line.substr(line.find("transpiler")));
  });
  transpiled(options, config);
  return lines;
}

TEST(Servers, PrintLogTellsOfPassesAndPlacement) {
  EXPECT_THAT(printed({}), IsEmpty());
  const auto lines = printed({.print_log = true});
  EXPECT_THAT(lines, Contains("transpiler placed slice=fc_w.block1 of=fc_w shape=\"[500, 1000]\" "
                              "offset=500000 kind=Param endpoint=127.0.0.1:6174\n"));
  EXPECT_THAT(lines, Contains(HasSubstr("pass name=insert_sends purpose=")));
  EXPECT_THAT(printed({.mode = "nccl2", .print_log = true}),
              ElementsAre(HasSubstr("pass name=append_gen_nccl_id")));
}

TEST(Servers, UnknownEndpointsAndEarlyCallsAreErrors) {
  const SampleNet net = reference_net();
  const auto transpiler = transpiled(options_for(net, 2, 2));
  EXPECT_THROW(transpiler.get_pserver_program("127.0.0.1:9999"), UsageError);
  const DistributeTranspiler untouched;
  EXPECT_THROW(untouched.get_trainer_program(), UsageError);
}

TEST(Servers, WaitPortIsRecordedNotDone) {
  const SampleNet net = reference_net();
  const auto transpiler = transpiled(options_for(net, 2, 2));
  EXPECT_TRUE(transpiler.get_trainer_program().distribution().wait_port);
  EXPECT_FALSE(transpiler.get_trainer_program(false).distribution().wait_port);
}

TEST(Servers, AScheduleRunsInABlockOfItsOwn) {
  const SampleNet net = scheduled_net();
  const auto transpiler = transpiled(options_for(net, 2, 2));
  const Program server = transpiler.get_pserver_program(server_endpoints(2)[1]);
  EXPECT_EQ(op_types(server.block(1)).front(), "increment");
  EXPECT_EQ(server.block(2).parent(), 1);
  EXPECT_THAT(op_types(server.block(2)), ElementsAre("sum", "scale", "sgd"));
}

TEST(Servers, ArithmeticOnAScheduleBelongsToTheSchedule) {
  EXPECT_THAT(refusal(options_for(half_scheduled_net(fluid::OpRole::kForward), 2, 2)),
              AllOf(HasSubstr("outside of its schedule"), HasSubstr("op 'sgd' of parameter 'fc_b'"),
                    HasSubstr("scale_0.tmp_0"), HasSubstr("RoleGuard")));
  const SampleNet net = half_scheduled_net(fluid::OpRole::kLrSched);
  const auto transpiler = transpiled(options_for(net, 2, 2));
  const std::string server = transpiler.get_pserver_program(server_endpoints(2)[0]).to_string();
  EXPECT_THAT(server, HasSubstr("= scale("));
}

}  // namespace
}  // namespace fleet::transpiler
