// Random nets, run: what their transpiled programs compute is what one machine computes.
#include <cstdint>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "base/strings.h"
#include "fluid/core/interleaved_rows.h"
#include "fluid/program/interleaved.h"
#include "strategies/parameter_server/async_options.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/sample_task.h"
#include "tests/testing/thread_cluster.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {
namespace {

using transpiler::DistributeTranspiler;
using transpiler::DistributeTranspilerConfig;
using transpiler::SampleNet;

bool has_row_gradient(const fluid::Program& main, const std::string& parameter) {
  const fluid::VarDesc* gradient = main.global_block().find_var(parameter + "@GRAD");
  return gradient != nullptr && gradient->kind == fluid::VarKind::kSelectedRows;
}

// What servers have is what one machine has.
void expect_parameters(const SampleNet& net, const Values& local, const Values& servers,
                       const std::vector<Values>& workers) {
  for (const auto& [name, bytes] : local) {
    if (!has_row_gradient(net.main, name)) continue;  // workers look its rows up
    ASSERT_TRUE(servers.contains(name)) << name;
    EXPECT_TRUE(servers.at(name) == bytes) << name << " on the servers differs";
  }
  for (const Values& parameters : workers) {
    for (const auto& [name, bytes] : local) {
      if (has_row_gradient(net.main, name)) continue;
      ASSERT_TRUE(parameters.contains(name)) << name;
      EXPECT_TRUE(parameters.at(name) == bytes) << name << " differs";
    }
  }
}

void expect_local_steps(uint64_t seed, const DistributeTranspilerConfig& config) {
  SCOPED_TRACE(str_cat("seed ", seed));
  const SampleNet net = transpiler::random_net(seed);
  const TrainingTask task = sample_task(net);
  ThreadJob job;
  job.workers = 1 << seed % 3;
  job.servers = 1 + static_cast<int>(seed / 3 % 3);
  job.shards = seed % 4 == 0 || job.workers == 4 ? 4 : 2;
  job.config = config;
  // Servers exchange numbers: with Unix sockets each knows the others' names from the first.
  job.transport = transport::TransportChoice::kUnix;
  job.keep_steps = true;
  const LocalOutcome local = train_locally(task, job.shards, true);
  const ThreadOutcome threads = train_in_threads(task, job);
  for (const std::string& error : threads.errors) ADD_FAILURE() << error;
  ASSERT_TRUE(threads.errors.empty());
  expect_parameters(net, local.parameters, threads.persistables, threads.parameters);
  EXPECT_THAT(differing_steps(threads.kept_steps, local.kept_steps), ::testing::IsEmpty());
  EXPECT_EQ(mean_over_workers(threads.losses), local.losses);
}

TEST(KeptSteps, TellWhatDiffersAndWhen) {
  const auto bytes = [](char value) { return std::vector<std::byte>{std::byte(value)}; };
  const std::vector<Values> job = {{{"p", bytes(1)}}, {{"p", bytes(2)}, {"q", bytes(5)}}};
  std::vector<Values> local = {{{"p", bytes(1)}, {"x", bytes(9)}},
                               {{"p", bytes(2)}, {"q", bytes(5)}}};
  EXPECT_THAT(differing_steps(job, local), ::testing::IsEmpty());
  local[0]["p"] = bytes(3);
  local[1].erase("q");
  EXPECT_THAT(differing_steps(job, local),
              ::testing::ElementsAre("p after step 0", "q after step 1"));
  EXPECT_THAT(differing_steps({job[0]}, {}), ::testing::ElementsAre("1 steps were kept"));
}

constexpr uint64_t kRuns = 20;

TEST(RandomNets, TrainToTheBitsOfOneMachineInEverySynchronousMode) {
  uint64_t seed = 0;
  for (auto& [name, config] : transpiler::synchronous_modes()) {
    SCOPED_TRACE(name);
    for (uint64_t run = 0; run < kRuns && !HasFailure(); ++run) {
      ++seed;
      config.split_method = transpiler::split_method_of(seed);
      config.slice_var_up = seed % 5 != 0;
      config.slices_per_server = seed % 5 == 1 ? 3 : 1;
      expect_local_steps(seed, config);
    }
  }
}

void expect_local_steps_of_one_worker(uint64_t seed, const DistributeTranspilerConfig& config) {
  SCOPED_TRACE(str_cat("seed ", seed));
  const SampleNet net = transpiler::random_net(seed);
  if (transpiler::refuses_compensation(net, config)) return;
  const TrainingTask task = sample_task(net);
  AsyncThreadJob job;
  job.workers = 1;
  job.servers = 1 + static_cast<int>(seed % 3);
  job.runtime_split = config.runtime_split_send_recv;
  job.options.independent_recv = false;
  if (config.half_async) job.options = {.mode = fluid::ServerMode::kHalfAsync};
  if (config.enable_dc_asgd) {
    const auto form = strategies::parse_delay_compensation(config.dc_asgd_form);
    job.options.delay_compensation = strategies::DelayCompensationOptions::preset(form.value());
  }
  job.keep_steps = true;
  const LocalOutcome local = train_locally(task, 1, true);
  const AsyncThreadOutcome threads = train_async_in_threads(task, job);
  for (const std::string& error : threads.errors) ADD_FAILURE() << error;
  ASSERT_TRUE(threads.errors.empty());
  expect_parameters(net, local.parameters, threads.persistables, threads.parameters);
  EXPECT_THAT(differing_steps(threads.kept_steps, local.kept_steps), ::testing::IsEmpty());
  EXPECT_EQ(threads.losses.front(), local.losses);
}

TEST(RandomNets, OfOneWorkerTrainToTheBitsOfOneMachineInEveryAsynchronousMode) {
  uint64_t seed = 100;
  for (const auto& [name, config] : transpiler::asynchronous_modes()) {
    SCOPED_TRACE(name);
    for (uint64_t run = 0; run < kRuns / 2 && !HasFailure(); ++run) {
      expect_local_steps_of_one_worker(++seed, config);
    }
  }
}

fluid::Tensor part_of(const fluid::Tensor& whole, const fluid::DistributedVar& row, int servers) {
  const auto& shape = row.slice_shape;
  if (row.vtype == fluid::kDistributedTable) {
    return fluid::take_rows(whole, row.block_id, servers, shape[0]);
  }
  if (!row.is_slice) return whole;
  const int64_t first = row.offset / whole.shape().numel(1, whole.shape().rank());
  return whole.rows(first, first + shape[0]);
}

TEST(RandomNets, HaveSequencesAmongThem) {
  int sequences = 0;
  for (uint64_t seed = 1; seed <= 3 * kRuns; ++seed) {
    const auto net = transpiler::random_net(seed);
    sequences += net.main.global_block().find_var("steps") != nullptr ? 1 : 0;
  }
  EXPECT_GE(sequences, 5);
}

TEST(RandomNets, ServersStartFromTheBitsOfOneMachine) {
  for (uint64_t seed = 1; seed <= 85; ++seed) {  // every mode five times
    SCOPED_TRACE(str_cat("seed ", seed));
    const transpiler::RandomJob job = transpiler::random_job(seed);
    fluid::Executor local;
    local.run(job.net.startup);
    size_t compared = 0;
    DistributeTranspiler made(job.config);
    made.transpile(transpiler::options_for(job.net, job.servers, job.shards));
    for (const std::string& endpoint : transpiler::server_endpoints(job.servers)) {
      const auto pair = made.get_pserver_programs(endpoint);
      fluid::Executor server;
      server.run(pair.startup);
      for (const fluid::DistributedVar& row : pair.main.distribution().vars) {
        if (row.endpoint != endpoint) continue;
        const fluid::Tensor& here = server.scope().tensor(row.slice);
        const fluid::Tensor& whole = local.scope().tensor(row.origin);
        ASSERT_EQ(here.shape().to_vector(), row.slice_shape) << row.slice;
        const fluid::Tensor part = part_of(whole, row, job.servers);
        ASSERT_EQ(here.bytes(), part.bytes()) << row.slice;
        EXPECT_EQ(std::memcmp(here.raw(), part.raw(), here.bytes()), 0) << row.slice;
        ++compared;
      }
    }
    EXPECT_EQ(compared, made.get_trainer_program().distribution().vars.size());
  }
}

}  // namespace
}  // namespace fleet::testing
