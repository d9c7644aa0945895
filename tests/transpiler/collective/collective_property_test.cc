// What must hold for every program of a job without servers, over random ones.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/ops/append.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {
namespace {

using fluid::OpRole;
using fluid::Program;

constexpr uint64_t kSeeds = 60;

struct Ranks {
  explicit Ranks(uint64_t seed) : net(random_net(seed)), count(seed % 3 == 0 ? 4 : 2) {
    const int rings = 1 + static_cast<int>(seed % 3);
    switch (seed % 5) {
      case 0:
        config = {.mode = "nccl2", .nccl_comm_num = rings};
        config.use_hierarchical_allreduce = count == 4;
        config.hierarchical_allreduce_inter_nranks = count == 4 ? 2 : 0;
        break;
      case 1:
        config = {.collective_mode = "local_sgd", .local_sgd_scheduled = seed % 2 == 0};
        break;
      case 2:
        config = {.collective_mode = "single_process_multi_thread"};
        break;
      default:
        config = {.nccl_comm_num = rings, .collective_mode = "grad_allreduce"};
    }
    if (config.mode != "nccl2") config.mode = "collective";
    if (seed % 5 != 0 && seed % 5 != 1 && seed % 4 != 0) {
      config.fuse_all_reduce_bytes = seed % 4 == 1 ? 1000 : 1 << 20;
    }
  }

  ProgramPair rank(int index) const {
    std::vector<std::string> endpoints;
    endpoints.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) endpoints.push_back(str_cat("127.0.0.1:", 6170 + i));
    DistributeTranspiler transpiler(config);
    transpiler.transpile({.trainer_id = index,
                          .program = &net.main,
                          .trainers = join(endpoints, ","),
                          .startup_program = &net.startup,
                          .current_endpoint = endpoints[static_cast<size_t>(index)],
                          .verify_each_pass = true});
    return {transpiler.get_trainer_program(), transpiler.get_trainer_startup_program()};
  }
  bool reduces_gradients() const {
    return config.collective_mode == "grad_allreduce" ||
           config.collective_mode == "single_process_multi_thread";
  }

  SampleNet net;
  int count;
  DistributeTranspilerConfig config;
};

void for_every_job(void (*check)(const Ranks&)) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    check(Ranks(seed));
    if (testing::Test::HasFailure()) return;
  }
}

std::vector<std::string> gradients_of(const Program& main) {
  std::vector<std::string> gradients;
  for (const auto& op : main.global_block().ops()) {
    if (!fluid::has_role(op->role, OpRole::kBackward)) continue;
    // Pairs: a parameter, its gradient.
    for (size_t i = 1; i < op->role_var.size(); i += 2) gradients.push_back(op->role_var[i]);
  }
  return gradients;
}

// Ranks wait for each other in the order of these ops.
void check_ranks(const Ranks& job) {
  const ProgramPair first = job.rank(0);
  fluid::verify(first.main);
  fluid::verify(first.startup);
  const ProgramPair again = job.rank(0);
  EXPECT_EQ(again.main.to_string(), first.main.to_string());
  EXPECT_EQ(again.startup.to_string(), first.startup.to_string());
  for (int rank = 1; rank < job.count; ++rank) {
    const ProgramPair other = job.rank(rank);
    fluid::verify(other.startup);
    EXPECT_EQ(op_types(other.startup.global_block()), op_types(first.startup.global_block()));
    ASSERT_EQ(other.main.block_count(), first.main.block_count());
    for (int32_t i = 0; i < first.main.block_count(); ++i) {
      EXPECT_EQ(other.main.block(i).to_string(), first.main.block(i).to_string());
    }
  }
}

// Every gradient, once, after backward has made it and before anything else reads it.
void check_reductions(const Ranks& job) {
  if (!job.reduces_gradients()) return;
  const Program main = job.rank(0).main;
  const std::vector<std::string> gradients = gradients_of(job.net.main);
  std::set<std::string> reduced;
  for (const auto& op : main.global_block().ops()) {
    if (op->type == "c_allreduce_sum") {
      EXPECT_EQ(op->input("X"), op->output("Out"));
      for (const std::string& name : op->input("X")) EXPECT_TRUE(reduced.insert(name).second);
      continue;
    }
    if (!fluid::has_role(op->role, OpRole::kOptimize)) continue;
    for (const std::string& name : op->input_names()) {
      if (std::ranges::count(gradients, name) == 0) continue;
      EXPECT_TRUE(reduced.contains(name)) << name << " is read by " << op->to_string();
    }
  }
  EXPECT_EQ(reduced, std::set<std::string>(gradients.begin(), gradients.end()));
}

// All ranks begin with the parameters of the first, whoever else may have drawn them. Devices of
// one process, as in the release, draw the same ones.
void check_broadcasts(const Ranks& job) {
  const std::string& mode = job.config.collective_mode;
  if (mode != "grad_allreduce" && mode != "local_sgd") return;
  const Program startup = job.rank(job.count - 1).startup;
  std::map<std::string, std::string> last;
  for (const auto& op : startup.global_block().ops()) {
    if (op->type == "c_sync_comm_stream") continue;  // names what it waits for as its outputs
    for (const std::string& name : op->output_names()) last[name] = op->type;
  }
  for (const fluid::VarDesc* param : job.net.main.global_block().parameters()) {
    EXPECT_EQ(last[param->name], "c_broadcast") << param->name;
  }
}

void check_saved(const Ranks& job) {
  const ProgramPair pair = job.rank(1);
  for (const Program* program : {&pair.main, &pair.startup}) {
    const Program read = Program::from_bytes(program->to_bytes()).value();
    EXPECT_EQ(read.distribution(), program->distribution());
    EXPECT_EQ(read.to_string(), program->to_string());
  }
}

TEST(RandomRanks, RunTheSameOpsInOneOrder) {
  for_every_job(check_ranks);
}

TEST(RandomRanks, ReduceEveryGradientOnceBeforeItIsUsed) {
  for_every_job(check_reductions);
}

TEST(RandomRanks, BeginWithTheParametersOfOne) {
  for_every_job(check_broadcasts);
}

TEST(RandomRanks, ComeBackFromFiles) {
  for_every_job(check_saved);
}

}  // namespace
}  // namespace fleet::transpiler
