// What a user may set, where values come from, and how mistakes are told.
#include <algorithm>
#include <gmock/gmock.h>
#include <regex>

#include "base/environment_table.h"
#include "base/error.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "strategies/strategies.h"
#include "transpiler/config.h"

namespace fleet::strategies {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Environment environment_of(std::map<std::string, std::string, std::less<>> variables) {
  return Environment(std::move(variables));
}

TEST(TrainerRuntimeConfigTest, HasEveryKeyOfPaddleWithItsDefault) {
  const std::string text = TrainerRuntimeConfig().over({}, 4).to_string();
  for (const char* line : {"communicator_max_merge_var_num = 4  (CPU_NUM)",
                           "communicator_send_queue_size = 4  (CPU_NUM)",
                           "communicator_independent_recv_thread = true  (default)",
                           "communicator_min_send_grad_num_before_recv = 4  (CPU_NUM)",
                           "communicator_thread_pool_size = 5  (default)",
                           "communicator_send_wait_times = 5  (default)",
                           "communicator_is_sgd_optimizer = true  (default)",
                           "rpc_deadline = 180000  (default)", "rpc_retry_times = 3  (default)"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(TrainerRuntimeConfigTest, CodeWinsOverTheEnvironmentAndThatOverTheDefault) {
  const auto environment = TrainerRuntimeConfig::from_environment(
      environment_of({{"FLAGS_communicator_send_queue_size", "7"},
                      {"FLAGS_communicator_thread_pool_size", "2"},
                      {"FLAGS_communicator_independent_recv_thread", "0"}}));
  const TrainerRuntimeConfig code{.communicator_thread_pool_size = 9};
  const TrainerRuntimeConfig merged = code.over(environment, 3);
  EXPECT_EQ(merged.communicator_send_queue_size, 7);
  EXPECT_EQ(merged.communicator_thread_pool_size, 9);
  EXPECT_FALSE(merged.communicator_independent_recv_thread);
  EXPECT_EQ(merged.communicator_max_merge_var_num, 3);
  EXPECT_THAT(
      merged.to_string(),
      AllOf(HasSubstr("communicator_send_queue_size = 7  (FLAGS_communicator_send_queue_size)"),
            HasSubstr("communicator_thread_pool_size = 9  (code)"),
            HasSubstr("communicator_max_merge_var_num = 3  (CPU_NUM)")));
}

TEST(TrainerRuntimeConfigTest, AKeySetToItsDefaultByNameStillCountsAsSet) {
  const auto code = TrainerRuntimeConfig::from({{"communicator_thread_pool_size", "5"}});
  const auto environment = TrainerRuntimeConfig::from_environment(
      environment_of({{"FLAGS_communicator_thread_pool_size", "2"}}));
  EXPECT_EQ(code.over(environment, 1).communicator_thread_pool_size, 5);
}

TEST(TrainerRuntimeConfigTest, AnUnknownKeyNamesTheNearest) {
  EXPECT_THAT(error_of([] {
                TrainerRuntimeConfig::from({{"comunicator_send_queue_size", "1"}});
              }),
              AllOf(HasSubstr("did you mean 'communicator_send_queue_size'?"),
                    HasSubstr("TrainerRuntimeConfig")));
  EXPECT_THAT(error_of([] {
                ServerRuntimeConfig::from({{"rpc_send_threads_num", "1"}});
              }),
              HasSubstr("did you mean 'rpc_send_thread_num'?"));
}

TEST(TrainerRuntimeConfigTest, AWrongValueIsRefusedWithItsKey) {
  EXPECT_THAT(error_of([] {
                TrainerRuntimeConfig::from({{"rpc_deadline", "soon"}});
              }),
              AllOf(HasSubstr("TrainerRuntimeConfig.rpc_deadline"), HasSubstr("'soon'")));
  EXPECT_THAT(error_of([] {
                TrainerRuntimeConfig::from({{"communicator_is_sgd_optimizer", "maybe"}});
              }),
              HasSubstr("true, false, on or off"));
}

TEST(ServerRuntimeConfigTest, ThreadNumbersAreAcceptedAndSayThatTheyHaveNoEffect) {
  const ServerRuntimeConfig config = ServerRuntimeConfig{.rpc_get_thread_num = 3}.over(
      ServerRuntimeConfig::from_environment(environment_of({{"FLAGS_rpc_send_thread_num", "5"}})));
  EXPECT_EQ(config.rpc_send_thread_num, 5);
  EXPECT_THAT(
      config.to_string(),
      AllOf(HasSubstr("rpc_send_thread_num = 5  (FLAGS_rpc_send_thread_num)  no effect: "),
            HasSubstr("rpc_get_thread_num = 3  (code)  no effect: "),
            HasSubstr("rpc_prefetch_thread_num = 12  (default)  no effect: a request holds no "
                      "thread; FLEET_DATA_LANES sets the connections")));
  EXPECT_THAT(error_of([] {
                ServerRuntimeConfig::from_environment(
                    environment_of({{"FLAGS_rpc_prefetch_thread_num", "many"}}));
              }),
              AllOf(HasSubstr("FLAGS_rpc_prefetch_thread_num"), HasSubstr("'many'")));
}

TEST(RuntimeConfigTest, ASendBufferIsTheSystemsOrOfASensibleSize) {
  const auto read = [](const char* value) {
    return RuntimeConfig::from_environment(environment_of({{"FLEET_SEND_BUFFER", value}}))
        .send_buffer;
  };
  EXPECT_EQ(RuntimeConfig::from_environment(environment_of({})).send_buffer, 0);
  EXPECT_EQ(read("0"), 0);
  EXPECT_EQ(read("131072"), 131072);
  for (const char* wrong : {"-1", "1000", "2000000000", "128k"}) {
    EXPECT_THAT(error_of([&] { read(wrong); }),
                AllOf(HasSubstr("FLEET_SEND_BUFFER"), HasSubstr(wrong)));
  }
}

TEST(RuntimeConfigTest, AMisspeltVariableNamesTheNearest) {
  for (const auto& row : std::map<std::string, std::string>{
           {"FLAGS_rpc_dedline", "FLAGS_rpc_deadline"},
           {"FLAGS_communicator_max_merge_vars_num", "FLAGS_communicator_max_merge_var_num"},
           {"FLAGS_check_nan", "FLAGS_check_nan_inf"},
           {"FLEET_SEND_BUFFERS", "FLEET_SEND_BUFFER"},
           {"FLEET_STALL_DEADLINE", "FLEET_STALL_DEADLINE_MS"}}) {
    EXPECT_THAT(error_of([&] {
                  RuntimeConfig::from_environment(environment_of({{row.first, "1"}}));
                }),
                AllOf(HasSubstr(row.first), HasSubstr("did you mean '" + row.second + "'?")));
  }
}

// The configuration that the variables make, without where each value came from.
std::string values_of(const RuntimeConfig& config) {
  static const std::regex origin(R"(  \((default|[A-Z][A-Za-z_]+)\))");
  return std::regex_replace(
      config.to_string() + config.trainer.to_string() + config.server.to_string(), origin, "");
}

TEST(RuntimeConfigTest, FramesAreProtectedAsTheVariablesSay) {
  const auto of = [](const char* integrity, const char* encryption) {
    return RuntimeConfig::from_environment(environment_of(
        {{"FLEET_FRAME_INTEGRITY", integrity}, {"FLEET_FRAME_ENCRYPTION", encryption}}));
  };
  const RuntimeConfig usual = RuntimeConfig::from_environment(environment_of({}));
  EXPECT_TRUE(usual.frame_integrity);
  EXPECT_FALSE(usual.frame_encryption);
  EXPECT_FALSE(of("off", "off").frame_integrity);
  EXPECT_TRUE(of("on", "on").frame_encryption);
  EXPECT_THAT(error_of([&] { of("off", "on"); }), HasSubstr("FLEET_FRAME_ENCRYPTION=on"));
  EXPECT_THAT(error_of([&] { of("of", "off"); }),
              AllOf(HasSubstr("FLEET_FRAME_INTEGRITY"), HasSubstr("on or off"), HasSubstr("'of'")));
  EXPECT_THAT(error_of([] {
                RuntimeConfig::from_environment(environment_of({{"FLEET_FRAME_INTEGRTY", "off"}}));
              }),
              HasSubstr("did you mean 'FLEET_FRAME_INTEGRITY'?"));
}

TEST(RuntimeConfigTest, AVariableSetToItsDefaultInTheTableChangesNothing) {
  const std::string expected = values_of(RuntimeConfig());
  for (const EnvironmentGroup& group : environment_table()) {
    for (const EnvironmentVariable& variable : group.variables) {
      if (variable.standard.empty()) continue;
      SCOPED_TRACE(variable.name);
      const RuntimeConfig config = RuntimeConfig::from_environment(
          environment_of({{std::string(variable.name), std::string(variable.standard)}}));
      EXPECT_EQ(values_of(config), expected);
      const bool read = !config.origins.empty() || !config.trainer.origins.empty() ||
                        !config.server.origins.empty();
      // Of launchers, and of executors.
      EXPECT_TRUE(read || variable.name == "TMPDIR" || variable.name == "FLEET_NUM_THREADS" ||
                  variable.name == "FLEET_PIN_THREADS");
    }
  }
}

TEST(RuntimeConfigTest, FlagsOfOthersAreLeftAlone) {
  EXPECT_EQ(error_of([] {
              RuntimeConfig::from_environment(environment_of(
                  {{"FLAGS_selected_gpus", "0"}, {"FLAGS_fraction_of_gpu_memory_to_use", "0.9"}}));
            }),
            "no error");
}

TEST(RuntimeConfigTest, EveryValueIsPrintedWithItsOriginAndSecretsAreHidden) {
  const auto config = RuntimeConfig::from_environment(environment_of(
      {{"CPU_NUM", "3"}, {"FLAGS_check_nan_inf", "1"}, {"FLEET_JOB_SECRET", "abc"}}));
  EXPECT_THAT(config.to_string(), AllOf(HasSubstr("cpu_num = 3  (CPU_NUM)"),
                                        HasSubstr("check_nan_inf = true  (FLAGS_check_nan_inf)"),
                                        HasSubstr("transport = auto  (default)"),
                                        HasSubstr("job_secret = (hidden)  (FLEET_JOB_SECRET)")));
  EXPECT_THAT(config.to_string(), ::testing::Not(HasSubstr("abc")));
}

std::string text_of(const DistributedStrategy& strategy) {
  return std::string(strategy.get()->name()) + "\n" + strategy.get()->to_string();
}

TEST(CollectiveStrategyTest, ModesAreThoseOfPaddle) {
  using collective::DistributedStrategy;
  EXPECT_THAT(text_of(DistributedStrategy{}), HasSubstr("all_reduce"));
  EXPECT_THAT(text_of(DistributedStrategy{.nccl_comm_num = 2}),
              HasSubstr("nccl_comm_num = 2  (code)"));
  EXPECT_THAT(text_of(DistributedStrategy{.mode = "collective", .collective_mode = "local_sgd"}),
              HasSubstr("local_sgd"));
  EXPECT_THAT(text_of(DistributedStrategy{.use_local_sgd = true, .local_sgd = {.interval = 8}}),
              AllOf(HasSubstr("local_sgd"), HasSubstr("interval = 8  (code)")));
  EXPECT_THAT(text_of(DistributedStrategy{.fuse_all_reduce_ops = false}),
              HasSubstr("bucket_bytes = 1  (code)"));
  EXPECT_THAT(text_of(DistributedStrategy{.wire_dtype = "bfloat16"}),
              HasSubstr("wire_dtype = bfloat16  (code)"));
  EXPECT_THAT(text_of(DistributedStrategy{.device_sums = "fast"}),
              HasSubstr("device_sums = fast  (code)"));
}

TEST(CollectiveStrategyTest, MixedPrecisionIsShown) {
  using collective::DistributedStrategy;
  using fluid::mixed_precision::Options;
  EXPECT_THAT(text_of(DistributedStrategy{}), HasSubstr("amp = off  (default)"));
  for (const bool averages : {false, true}) {
    EXPECT_THAT(
        text_of(DistributedStrategy{
            .use_local_sgd = averages, .use_amp = true, .amp_loss_scaling = 128}),
        HasSubstr("amp = float16, scaled by 128 at first (times 2 after 1000 steps, times 0.8 "
                  "after 2)  (code)"));
  }
  EXPECT_THAT(text_of(DistributedStrategy{.amp = Options{.dtype = fluid::DType::kBFloat16}}),
              HasSubstr("amp = bfloat16  (code)"));
  const GradAllReduceStrategy fixed{.amp = Options{.lists = {.custom_black_list = {"relu", "tanh"}},
                                                   .scaling = {.use_dynamic_loss_scaling = false}}};
  EXPECT_THAT(text_of(fixed),
              HasSubstr("amp = float16, scaled by 32768, custom_black_list relu tanh  (code)"));
}

TEST(CollectiveStrategyTest, ContradictionsAndWhatIsMissingAreNamed) {
  using collective::DistributedStrategy;
  const auto message = [](const DistributedStrategy& strategy) {
    return error_of([&] { strategy.make(); });
  };
  EXPECT_THAT(message({.mode = "nccl3"}), HasSubstr("did you mean 'nccl2'?"));
  EXPECT_THAT(message({.collective_mode = "local_sgd"}), HasSubstr("mode = 'nccl2'"));
  EXPECT_THAT(message({.mode = "collective"}), HasSubstr("collective_mode = ''"));
  EXPECT_THAT(message({.amp_loss_scaling = 8}), HasSubstr("set use_amp"));
  EXPECT_THAT(message({.use_amp = true, .amp = fluid::mixed_precision::Options{}}),
              HasSubstr("amp says all of it"));
  EXPECT_THAT(message({.hierarchical_allreduce_inter_nranks = 2}),
              HasSubstr("ranks of a group without hierarchical all-reduce"));
  EXPECT_THAT(message({.use_local_sgd = true, .use_hierarchical_allreduce = true}),
              HasSubstr("use_hierarchical_allreduce = true"));
  EXPECT_THAT(message({.use_local_sgd = true, .gradient_merge = 2}),
              HasSubstr("gradient_merge = 2"));
  EXPECT_THAT(message({.nccl_comm_num = 0}), HasSubstr("nccl_comm_num"));
  EXPECT_THAT(message({.wire_dtype = "float8"}),
              AllOf(HasSubstr("wire_dtype"), HasSubstr("float16 or bfloat16")));
  EXPECT_THAT(message({.device_sums = "ordred"}),
              AllOf(HasSubstr("device_sums"), HasSubstr("did you mean 'ordered'?")));
  EXPECT_THAT(message({.use_local_sgd = true, .device_sums = "fast"}),
              HasSubstr("averages parameters"));
  EXPECT_THAT(message({.use_local_sgd = true, .wire_dtype = "float16"}),
              HasSubstr("averages parameters"));
  EXPECT_THAT(message({.use_local_sgd = true, .sync_batch_norm = true}),
              HasSubstr("sync_batch_norm = true"));
  EXPECT_THAT(message({.forward_recompute = true}), HasSubstr("names of variables to keep"));
  EXPECT_THAT(message({.recompute_checkpoints = {"hidden"}}), HasSubstr("set forward_recompute"));
}

TEST(CollectiveStrategyTest, CheckpointsForRecomputationAreTheStrategys) {
  using collective::DistributedStrategy;
  const std::vector<std::string> kept = {"a", "b"};
  for (const bool averages : {false, true}) {
    const DistributedStrategy strategy{
        .use_local_sgd = averages, .forward_recompute = true, .recompute_checkpoints = kept};
    EXPECT_EQ(strategy.make()->recompute_checkpoints(), kept);
    EXPECT_THAT(text_of(strategy), HasSubstr("recompute_checkpoints = a,b  (code)"));
  }
  EXPECT_THAT(GradAllReduceStrategy{}.make()->recompute_checkpoints(), IsEmpty());
}

TEST(DistributedStrategyTest, AConfigurationKeepsItsDelayCompensation) {
  transpiler::DistributeTranspilerConfig config;
  config.sync_mode = false;
  config.runtime_split_send_recv = true;
  config.enable_dc_asgd = true;
  config.dc_asgd_form = "constant";
  config.dc_asgd_lambda = 0.5;
  EXPECT_THAT(text_of(config),
              AllOf(HasSubstr("delay_compensation = constant"), HasSubstr("lambda = 0.5")));
  config.dc_asgd_form = "paddle";
  config.dc_asgd_lambda = 0;
  EXPECT_EQ(*DistributedStrategy(config).get()->transpiler_config(), config);
}

TEST(DistributedStrategyTest, EnableDcAsgdMeansTheSameInTheCodeAndInAConfiguration) {
  const transpiler::DistributeTranspilerConfig config{
      .enable_dc_asgd = true, .sync_mode = false, .runtime_split_send_recv = true};
  const AsyncStrategy async{.enable_dc_asgd = true};
  EXPECT_THAT(text_of(async),
              AllOf(HasSubstr("delay_compensation = clipped"), HasSubstr("lambda = 4  (default)")));
  EXPECT_EQ(text_of(async), text_of(config));
  auto half = config;
  half.half_async = true;
  EXPECT_EQ(text_of(HalfAsyncStrategy{.enable_dc_asgd = true}), text_of(half));
  const auto form = transpiler::dc_asgd_form(*async.make()->transpiler_config());
  EXPECT_EQ(form, transpiler::dc_asgd_form(config));
}

TEST(DistributedStrategyTest, FieldsThatNoStrategyHasAreNamed) {
  const auto message = [](const transpiler::DistributeTranspilerConfig& config) {
    return error_of([&] { const DistributedStrategy strategy(config); });
  };
  EXPECT_THAT(message({.whole_norms = false}), HasSubstr("has no whole_norms"));
  EXPECT_THAT(message({.server_statistics = false}), HasSubstr("has no server_statistics"));
  EXPECT_THAT(message({.prefetch_trees = false}), HasSubstr("has no prefetch_trees"));
  EXPECT_THAT(message({.initialise_frozen_tables = false}),
              HasSubstr("has no initialise_frozen_tables"));
  EXPECT_THAT(message({.wait_port = false}), HasSubstr("has no wait_port"));
  EXPECT_THAT(message({.paddle_schedules = true,
                       .sync_mode = false,
                       .runtime_split_send_recv = true,
                       .completely_not_async = true}),
              HasSubstr("has no paddle_schedules"));
}

TEST(DistributedStrategyTest, GeoTakesHowParametersAreCut) {
  const transpiler::DistributeTranspilerConfig config = {.slice_var_up = false,
                                                         .split_method = "HashName",
                                                         .min_block_size = 20000,
                                                         .sync_mode = false,
                                                         .runtime_split_send_recv = true,
                                                         .geo_sgd_mode = true,
                                                         .geo_sgd_need_push_nums = 7};
  EXPECT_EQ(*DistributedStrategy(config).get()->transpiler_config(), config);
}

TEST(DistributedStrategyTest, EasgdTakesHowParametersAreCut) {
  const auto strategy =
      EasgdStrategy{
          .min_block_size = 20000, .slices_per_server = 2, .split_method = "HashName", .tau = 7}
          .make();
  const auto config = strategy->transpiler_config();
  EXPECT_EQ(config->min_block_size, 20000);
  EXPECT_EQ(config->slices_per_server, 2);
  EXPECT_EQ(config->split_method, "HashName");
  EXPECT_EQ(config->geo_sgd_need_push_nums, 7);
  EXPECT_THAT(strategy->to_string(), HasSubstr("HashName"));
}

// What a process of a job with two servers, or of `workers` ranks, logs while it is rewritten.
std::vector<std::string> logged(const DistributedStrategy& strategy, role_maker::Role role,
                                int index, int workers = 2) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const fluid::unique_name::Guard names;
  const auto x = fluid::layers::data("x", {100});
  fluid::optimizer::SGD({.learning_rate = 0.1})
      .minimize(fluid::layers::mean(fluid::layers::fc(x, 200)));
  role_maker::ClusterSpec cluster{.role = role, .index = index, .worker_num = workers};
  const bool servers = strategy.get()->transpiler_config()->mode == "pserver";
  cluster.mode = servers ? role_maker::Mode::kParameterServer : role_maker::Mode::kCollective;
  cluster.server_num = servers ? 2 : 0;
  if (servers) cluster.server_endpoints = {"127.0.0.1:6174", "127.0.0.1:6175"};
  for (int i = 0; i < workers; ++i) {
    cluster.worker_endpoints.push_back("127.0.0.1:" + std::to_string(6184 + i));
  }
  cluster.job_id = "test";
  std::vector<std::string> lines;
  const Logger logger(LogLevel::kInfo,
                      [&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto runtime =
      RuntimeConfig::from_environment(environment_of({{"FLEET_JOB_SECRET", "a secret of tests"}}));
  const StrategyResult result =
      strategy.get()->rewrite({main, startup, cluster, runtime, logger, nullptr});
  EXPECT_FALSE(result.main.global_block().ops().empty());
  return lines;
}

std::vector<std::string> printed(const transpiler::DistributeTranspilerConfig& config,
                                 role_maker::Role role, int index) {
  std::vector<std::string> lines = logged(DistributedStrategy(config), role, index);
  std::erase_if(
      lines, [](const std::string& line) { return line.find("transpiler") == std::string::npos; });
  return lines;
}

TEST(CollectiveStrategyTest, GroupsOfRanksMustDivideThem) {
  const auto of_groups = [](int ranks, int workers) {
    const GradAllReduceStrategy strategy{.use_hierarchical_allreduce = true,
                                         .hierarchical_allreduce_inter_nranks = ranks};
    return logged(strategy, role_maker::Role::kWorker, 0, workers);
  };
  for (const auto& [ranks, workers] : {std::pair(0, 3), {2, 4}, {2, 2}, {8, 2}}) {
    EXPECT_THAT(of_groups(ranks, workers),
                Contains(HasSubstr("use_hierarchical_allreduce has no effect")));
  }
  EXPECT_THAT(error_of([&] { of_groups(2, 3); }), HasSubstr("do not divide into groups"));
}

TEST(CollectiveStrategyTest, NeedsACommunicator) {
  EXPECT_THAT(error_of([] { (void)GradAllReduceStrategy{.nccl_comm_num = 0}.make(); }),
              HasSubstr("nccl_comm_num"));
}

TEST(DistributedStrategyTest, PrintLogIsPrintedByTheFirstWorkerAlone) {
  using role_maker::Role;
  std::vector<transpiler::DistributeTranspilerConfig> with_servers(4, {.print_log = true});
  for (size_t i = 1; i < with_servers.size(); ++i) {
    with_servers[i].sync_mode = false;
    with_servers[i].runtime_split_send_recv = true;
  }
  with_servers[1].half_async = true;
  with_servers[2].geo_sgd_mode = true;
  for (auto config : with_servers) {
    SCOPED_TRACE(text_of(DistributedStrategy(config)));
    const auto lines = printed(config, Role::kWorker, 0);
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [](const auto& line) {
                              return line.find("placed slice=fc_0.w_0.block") != std::string::npos;
                            }),
              2);
    EXPECT_THAT(lines, Contains(HasSubstr("transpiler pass name=")));
    EXPECT_THAT(printed(config, Role::kWorker, 1), IsEmpty());
    EXPECT_THAT(printed(config, Role::kServer, 0), IsEmpty());
    config.print_log = false;
    EXPECT_THAT(printed(config, Role::kWorker, 0), IsEmpty());
  }
}

TEST(DistributedStrategyTest, PrintLogOfRanksIsPrintedByTheFirst) {
  for (const char* mode : {"grad_allreduce", "local_sgd"}) {
    const transpiler::DistributeTranspilerConfig config{
        .mode = "collective", .print_log = true, .collective_mode = mode};
    EXPECT_THAT(printed(config, role_maker::Role::kWorker, 0),
                Contains(HasSubstr("transpiler pass name=")));
    EXPECT_THAT(printed(config, role_maker::Role::kWorker, 1), IsEmpty());
  }
}

TEST(DistributedStrategyTest, PrintLogIsToldAndKept) {
  const transpiler::DistributeTranspilerConfig config{.print_log = true};
  const DistributedStrategy strategy(config);
  EXPECT_EQ(*strategy.get()->transpiler_config(), config);
  EXPECT_THAT(strategy.get()->describe({}), HasSubstr("print_log = 1  (code)"));
  EXPECT_EQ(text_of(strategy), text_of(DistributedStrategy(SyncStrategy())));
}

TEST(AsyncStrategyTest, SchedulesOfPaddleArePrintedAndNeedGradientsThatAreCounted) {
  EXPECT_THAT(text_of(AsyncStrategy{.paddle_schedules = true}),
              HasSubstr("paddle_schedules = 1  (code)"));
  const transpiler::DistributeTranspilerConfig config{
      .paddle_schedules = true, .sync_mode = false, .runtime_split_send_recv = true};
  EXPECT_THAT(text_of(DistributedStrategy(config)),
              AllOf(HasSubstr("async"), HasSubstr("paddle_schedules = 1  (code)")));
  EXPECT_THAT(
      error_of([] { AsyncStrategy{.staleness_bound = 0, .paddle_schedules = true}.make(); }),
      AllOf(HasSubstr("staleness_bound = 0"), HasSubstr("paddle_schedules")));
}

TEST(GradientMerge, IsPartsOfEachWorkersBatch) {
  role_maker::ClusterSpec cluster;
  cluster.worker_num = 2;
  EXPECT_EQ(resolve_logical_shards(0, cluster, 3), 6);
  EXPECT_EQ(resolve_logical_shards(4, cluster, 1), 4);
  EXPECT_THAT(text_of(SyncStrategy{.gradient_merge = 3}), HasSubstr("gradient_merge = 3  (code)"));
  EXPECT_THAT(text_of(ReduceGradStrategy{.gradient_merge = 3}),
              HasSubstr("gradient_merge = 3  (code)"));
}

TEST(GradientMerge, ExcludesLogicalShards) {
  const auto excluded = AllOf(HasSubstr("gradient_merge = 2"), HasSubstr("logical_shards = 4"));
  EXPECT_THAT(
      error_of([] { GradAllReduceStrategy{.logical_shards = 4, .gradient_merge = 2}.make(); }),
      excluded);
  EXPECT_THAT(error_of([] { SyncStrategy{.logical_shards = 4, .gradient_merge = 2}.make(); }),
              excluded);
  EXPECT_THAT(error_of([] { SyncStrategy{.gradient_merge = 0}.make(); }),
              HasSubstr("SyncStrategy.gradient_merge"));
}

}  // namespace
}  // namespace fleet::strategies
