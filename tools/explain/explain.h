// Explains what the transpiler makes of a program, without a cluster:
//
//   auto explanation = explain::explain(main, startup, {.trainers = 4, .servers = 2});
//   std::cout << explain::draw_text(explanation, {});
//
// The programs are made by the transpiler itself, pass by pass, so that what is shown is what runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fluid/core/place.h"
#include "fluid/kernels/kernel_table.h"
#include "fluid/program/program.h"
#include "tools/explain/explanation.h"
#include "transpiler/config.h"

namespace fleet::explain {

struct ExplainOptions {
  std::string title = "program";
  // Parameter servers, or ranks when config.mode is "collective" or "nccl2".
  transpiler::DistributeTranspilerConfig config = {};
  int trainers = 2;
  int servers = 2;
  // Equal parts that a step's rows are cut into; 0: one for each trainer.
  int shards = 0;
  // Which trainer's program is shown.
  int trainer = 0;
  // By server or rank; empty: 127.0.0.1 with ports from 6174.
  std::vector<std::string> endpoints = {};
  // Rows that a trainer feeds in a step, for estimates of sparse gradients.
  int64_t batch = 1;
  // LocalSGD by schedule: steps between two averages.
  int average_every = 1;
  // Where the trainer's executor is; on a device Explanation::places says what runs there. Servers
  // are on the CPU.
  fluid::Place place = {};
  // All-reduces sum where the gradients are (GradAllReduceStrategy::device_sums, but for "host").
  bool device_sums = true;
  // Of the ops; null: those of a build with CUDA.
  const fluid::KernelTable* kernels = nullptr;
  // Programs of servers that are kept; every server is planned and counted.
  size_t most_servers = 8;
};

// Names for configurations: "sync", "sync_split", "async", "half_async", "geo", "dc_asgd",
// "all_reduce", "local_sgd", "nccl2". Throws UsageError for another.
transpiler::DistributeTranspilerConfig config_of_mode(const std::string& mode);
const std::vector<std::string>& mode_names();

// `main` has been completed by an optimizer's minimize; `startup` may be empty. Throws what the
// transpiler throws.
Explanation explain(const fluid::Program& main, const fluid::Program& startup,
                    const ExplainOptions& options);

// Holds main programs that processes ran, by ExplainedProgram::process, against those that are
// shown: fills Explanation::confirmed, and warns of others.
void compare(Explanation& explanation, const std::map<std::string, fluid::Program>& ran);

}  // namespace fleet::explain
