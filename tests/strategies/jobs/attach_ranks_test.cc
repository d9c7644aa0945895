// Programs of ranks without the facade: an Executor with what attach() gives it, over sockets.
#include <functional>
#include <gmock/gmock.h>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/executor/parallel_executor.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/comm.h"
#include "strategies/jobs/attach.h"
#include "tests/strategies/collective/small_net.h"
#include "tests/testing/ports.h"

namespace fleet::strategies {
namespace {

using small_net::Net;
using small_net::Parameters;
using small_net::parameters_of;
using ::testing::HasSubstr;
using transpiler::DistributeTranspilerConfig;

constexpr int kSteps = 5;
constexpr int kRows = 8;  // of a rank

RuntimeConfig over_sockets() {
  RuntimeConfig config;
  config.job_secret = "0123456789abcdef0123456789abcdef";
  config.collectives = "sockets";
  config.rpc_deadline_ms = 20000;
  return config;
}

std::vector<std::string> new_endpoints(int ranks) {
  std::vector<std::string> endpoints;
  endpoints.reserve(static_cast<size_t>(ranks));
  for (int i = 0; i < ranks; ++i) {
    endpoints.push_back(str_cat("127.0.0.1:", fleet::testing::free_port()));
  }
  return endpoints;
}

void run_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
}

// Rows of the ranks [first, end) in a step of a job with `ranks` ranks.
fluid::Feed batch(int step, int ranks, int first, int end) {
  std::vector<uint64_t> numbers;
  numbers.reserve(static_cast<size_t>(end - first) * kRows);
  for (int row = first * kRows; row < end * kRows; ++row) {
    numbers.push_back(static_cast<uint64_t>(step * ranks * kRows + row));
  }
  return small_net::rows(numbers);
}

void build(Net& net) {
  small_net::build(net, fluid::optimizer::Momentum({.learning_rate = 0.1, .momentum = 0.9}));
}

Parameters train_locally(int shards) {
  Net net;
  build(net);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards});
  exe.run(net.startup);
  for (int step = 0; step < kSteps; ++step) exe.run(net.main, batch(step, shards, 0, shards));
  return parameters_of(exe.scope(), net);
}

struct Programs {
  fluid::Program main;
  fluid::Program startup;
};

struct JobForm {
  DistributeTranspilerConfig config;
  int ranks = 2;
  // What a rank attaches with; by default its startup program.
  std::function<fluid::Program&(Programs&)> attached = [](Programs& made) -> fluid::Program& {
    return made.startup;
  };
};

Programs transpile(const Net& net, const JobForm& form, const std::vector<std::string>& endpoints,
                   int rank) {
  transpiler::DistributeTranspiler transpiler(form.config);
  transpiler.transpile({.trainer_id = rank,
                        .program = &net.main,
                        .trainers = join(endpoints, ","),
                        .startup_program = &net.startup,
                        .current_endpoint = endpoints[static_cast<size_t>(rank)]});
  return {.main = transpiler.get_trainer_program(),
          .startup = transpiler.get_trainer_startup_program()};
}

std::vector<Parameters> train(const JobForm& form) {
  const auto endpoints = new_endpoints(form.ranks);
  std::vector<Parameters> trained(static_cast<size_t>(form.ranks));
  run_ranks(form.ranks, [&](int rank) {
    Net net;
    build(net);
    Programs programs = transpile(net, form, endpoints, rank);
    fluid::Executor exe;
    const auto job = attach(exe, form.attached(programs), over_sockets());
    exe.run(programs.startup);
    for (int step = 0; step < kSteps; ++step) {
      exe.run(programs.main, batch(step, form.ranks, rank, rank + 1));
    }
    job->stop_worker();
    trained[static_cast<size_t>(rank)] = parameters_of(exe.scope(), net);
  });
  return trained;
}

// As Paddle writes it: nothing but its ops says what it is.
fluid::Program& forgotten_startup(Programs& made) {
  made.main.distribution() = {};
  made.startup.distribution() = {};
  return made.startup;
}

TEST(AttachRanks, GradientsAreSummedByTheTreeOnAnyNumberOfRings) {
  const Parameters local = train_locally(2);
  for (const int rings : {1, 3}) {
    JobForm form{.config = {.mode = "collective",
                            .nccl_comm_num = rings,
                            .collective_mode = "grad_allreduce"}};
    for (const Parameters& rank : train(form)) EXPECT_EQ(rank, local) << rings << " rings";
  }
}

TEST(AttachRanks, AStartupProgramWithoutARecordIsEnough) {
  const Parameters local = train_locally(4);
  const JobForm form{.config = {.mode = "collective", .collective_mode = "grad_allreduce"},
                     .ranks = 4,
                     .attached = forgotten_startup};
  for (const Parameters& rank : train(form)) EXPECT_EQ(rank, local);
}

TEST(AttachRanks, LocalSgdInPaddlesFormAveragesEveryStep) {
  const JobForm form{.config = {.mode = "collective", .collective_mode = "local_sgd"}};
  const auto ranks = train(form);
  EXPECT_EQ(ranks[0], ranks[1]);
  EXPECT_NE(ranks[0], train_locally(1));
}

TEST(AttachRanks, DevicesOfOneProcessAreItsShards) {
  const auto endpoints = new_endpoints(2);
  const JobForm form{
      .config = {.mode = "collective", .collective_mode = "single_process_multi_thread"}};
  Net net;
  build(net);
  Programs programs = transpile(net, form, endpoints, 0);
  fluid::Executor exe;
  const auto job = attach(exe, programs.startup, over_sockets());
  exe.run(programs.startup);
  for (int step = 0; step < kSteps; ++step) exe.run(programs.main, batch(step, 2, 0, 2));
  job->stop_worker();
  EXPECT_EQ(parameters_of(exe.scope(), net), train_locally(2));
}

// As in Paddle: the main program of mode nccl2 has no op that reduces.
TEST(AttachRanks, APlainExecutorReducesNothingInModeNccl2) {
  const JobForm form{.config = {.mode = "nccl2",
                                .nccl_comm_num = 2,
                                .use_hierarchical_allreduce = true,
                                .hierarchical_allreduce_inter_nranks = 2},
                     .ranks = 4,
                     .attached = forgotten_startup};
  const auto ranks = train(form);
  Net net;
  build(net);
  for (int rank = 0; rank < form.ranks; ++rank) {
    fluid::Executor exe;
    exe.run(net.startup);
    for (int step = 0; step < kSteps; ++step) {
      exe.run(net.main, batch(step, form.ranks, rank, rank + 1));
    }
    EXPECT_EQ(ranks[static_cast<size_t>(rank)], parameters_of(exe.scope(), net));
  }
}

// Ranks that start from other parameters train with rank 0's, as one process does with all shards.
std::vector<Parameters> train_in_parallel(const JobForm& form, const fluid::BuildStrategy& strategy,
                                          int replicas) {
  const auto endpoints = new_endpoints(form.ranks);
  std::vector<Parameters> trained(static_cast<size_t>(form.ranks));
  run_ranks(form.ranks, [&](int rank) {
    Net net;
    build(net);
    Programs programs = transpile(net, form, endpoints, rank);
    RuntimeConfig config = over_sockets();
    config.cpu_num = replicas;
    fluid::Executor exe;
    const auto job = attach(exe, form.attached(programs), config);
    exe.run(programs.startup);
    for (const auto* parameter : net.main.global_block().parameters()) {
      fluid::Tensor& values = exe.scope().tensor(parameter->name);
      for (int64_t i = 0; i < values.numel(); ++i) {
        values.data<float>()[i] += static_cast<float>(rank);
      }
    }
    fluid::ParallelExecutor parallel({.loss_name = net.cost,
                                      .main_program = &programs.main,
                                      .build_strategy = strategy,
                                      .num_trainers = form.ranks,
                                      .trainer_id = rank,
                                      .scope = &exe.scope()});
    for (int step = 0; step < kSteps; ++step) {
      const auto losses = parallel.run({net.cost}, batch(step, form.ranks, rank, rank + 1));
      EXPECT_EQ(losses[0].numel(), replicas);
    }
    job->stop_worker();
    trained[static_cast<size_t>(rank)] = parameters_of(exe.scope(), net);
  });
  return trained;
}

Parameters train_shards(int ranks, int shards) {
  Net net;
  build(net);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards});
  exe.run(net.startup);
  for (int step = 0; step < kSteps; ++step) exe.run(net.main, batch(step, ranks, 0, ranks));
  return parameters_of(exe.scope(), net);
}

TEST(ParallelExecutorOfRanks, HasTheBitsOfOneProcessWithAllShards) {
  const JobForm form{.config = {.mode = "nccl2"}};
  for (const Parameters& rank : train_in_parallel(form, {}, 1)) {
    EXPECT_EQ(rank, train_shards(2, 2));
  }
  for (const Parameters& rank : train_in_parallel(form, {.nccl_comm_num = 3}, 2)) {
    EXPECT_EQ(rank, train_shards(2, 4));
  }
}

TEST(ParallelExecutorOfRanks, AHierarchyChangesNoBit) {
  const JobForm form{.config = {.mode = "nccl2",
                                .use_hierarchical_allreduce = true,
                                .hierarchical_allreduce_inter_nranks = 2},
                     .ranks = 4,
                     .attached = forgotten_startup};
  const auto ranks = train_in_parallel(
      form, {.use_hierarchical_allreduce = true, .hierarchical_allreduce_inter_nranks = 2}, 1);
  for (const Parameters& rank : ranks) EXPECT_EQ(rank, train_shards(4, 4));
}

TEST(ParallelExecutorOfRanks, AnotherNumberOfTrainersIsRefused) {
  const auto endpoints = new_endpoints(2);
  const JobForm form{.config = {.mode = "nccl2"}};
  run_ranks(2, [&](int rank) {
    Net net;
    build(net);
    Programs programs = transpile(net, form, endpoints, rank);
    fluid::Executor exe;
    const auto job = attach(exe, programs.startup, over_sockets());
    exe.run(programs.startup);
    for (const auto& [trainers, id, field] :
         {std::tuple{3, 0, "num_trainers"}, std::tuple{2, 1 - rank, "trainer_id"}}) {
      fluid::ParallelExecutor parallel({.loss_name = net.cost,
                                        .main_program = &programs.main,
                                        .num_trainers = trainers,
                                        .trainer_id = id,
                                        .scope = &exe.scope()});
      try {
        parallel.run({net.cost}, batch(0, 2, rank, rank + 1));
        ADD_FAILURE() << "no error";
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr(field));
      }
    }
    job->stop_worker();
  });
}

TEST(AttachRanks, ProgramsThatSayNoRanksAreRefused) {
  Net net;
  build(net);
  fluid::Executor exe;
  try {
    attach(exe, net.main, over_sockets());
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("c_gen_nccl_id"));
  }
  // In mode "collective" the endpoints stand in the startup program alone.
  const auto endpoints = new_endpoints(2);
  const JobForm form{.config = {.mode = "collective", .collective_mode = "grad_allreduce"}};
  const Programs made = transpile(net, form, endpoints, 1);
  try {
    attach(exe, made.main, over_sockets());
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("attach with the startup program"));
  }
  // What the facade makes under MPI has ranks without endpoints.
  const auto programs = small_net::transpiled(net, small_net::cluster_of(1, 2), 2);
  try {
    attach(exe, programs.startup, over_sockets());
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("other_endpoints of c_gen_nccl_id"));
  }
}

// loss of a rank = mean(square(op(x) * y)), in a program that says where its ranks are.
struct OpNet {
  fluid::Program main;
  std::string loss;
  std::string gradient;
};

void build(OpNet& net, const std::string& type, fluid::AttributeMap attrs,
           const std::vector<std::string>& endpoints, int rank) {
  fluid::Program startup;
  const fluid::ProgramGuard programs(net.main, startup);
  const fluid::unique_name::Guard names;
  auto x = fluid::layers::data("x", {4, 2}, fluid::DType::kFloat64, {.append_batch_size = false});
  x.set_stop_gradient(false);
  auto& block = net.main.global_block();
  const auto out = block.add_var({.name = "out", .dtype = fluid::DType::kFloat64}).name;
  fluid::Operator op;
  op.type = type;
  op.inputs["X"] = {"x"};
  op.outputs["Out"] = {out};
  op.attrs = std::move(attrs);
  fluid::append_op(block, std::move(op));
  const auto loss = fluid::layers::mean(fluid::layers::square(fluid::Variable(block, out)));
  net.loss = loss.name();
  net.gradient = fluid::gradients({loss}, {x})[0].name();
  net.main.distribution().trainer_id = rank;
  net.main.distribution().trainers = static_cast<int32_t>(endpoints.size());
  net.main.distribution().trainers_endpoints = endpoints;
}

// The gradient of the sum of both ranks' losses, by the op's rule and by differences.
void check_gradient(const std::string& type, const fluid::AttributeMap& attrs) {
  constexpr double kStep = 1e-5;
  constexpr size_t kSize = 8;
  const auto endpoints = new_endpoints(2);
  std::array<std::array<double, 2>, 1 + 4 * kSize> losses{};  // of a run, by rank
  std::array<std::vector<double>, 2> gradients;
  run_ranks(2, [&](int rank) {
    OpNet net;
    build(net, type, attrs, endpoints, rank);
    fluid::Executor exe;
    const auto job = attach(exe, net.main, over_sockets());
    for (size_t run = 0; run < losses.size(); ++run) {
      std::vector<double> values(kSize);
      for (size_t i = 0; i < kSize; ++i)
        values[i] = 0.3 + 0.1 * static_cast<double>(i) - 0.5 * rank;
      const size_t at = (run - 1) / 2;
      const double change = run % 2 == 0 ? -kStep : kStep;
      if (run > 0 && static_cast<int>(at / kSize) == rank) values[at % kSize] += change;
      const auto made =
          exe.run(net.main, {{"x", fluid::Tensor::from(values, {4, 2})}}, {net.loss, net.gradient});
      losses[run][static_cast<size_t>(rank)] = made[0].item<double>();
      if (run == 0) {
        const auto found = made[1].values<double>();
        gradients[static_cast<size_t>(rank)] = {found.begin(), found.end()};
      }
    }
    job->stop_worker();
  });
  for (size_t at = 0; at < 2 * kSize; ++at) {
    const auto& more = losses[2 * at + 1];
    const auto& less = losses[2 * at + 2];
    const double slope = (more[0] + more[1] - less[0] - less[1]) / (2 * kStep);
    EXPECT_NEAR(gradients[at / kSize].at(at % kSize), slope, 1e-7) << type << " " << at;
  }
}

TEST(AttachRanks, GradientsOfOpsAreThoseOfTheSumOfAllLosses) {
  check_gradient("c_allreduce_sum",
                 fluid::to_attributes(fluid::CAllReduceAttrs{.use_calc_stream = true}));
  check_gradient("c_allgather", fluid::to_attributes(fluid::CRowsAttrs{.nranks = 2}));
  check_gradient("c_reducescatter", fluid::to_attributes(fluid::CRowsAttrs{.nranks = 2}));
}

}  // namespace
}  // namespace fleet::strategies
