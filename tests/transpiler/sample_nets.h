// Training programs for the transpiler's tests, built through the layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fluid/program/program.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {

struct SampleNet {
  fluid::Program main;
  fluid::Program startup;
};

// x[1000] -> fc(1000), parameters fc_w and fc_b -> square error -> mean; SGD 0.1.
SampleNet reference_net();
// The same, with Adam.
SampleNet adam_net();
// The same, with an exponential schedule.
SampleNet scheduled_net();
// The same, with half of the schedule's rate; the op for it has this role.
SampleNet half_scheduled_net(fluid::OpRole role);
// The reference net, with grad_clip=.
SampleNet clipped_net(const fluid::Penalty& clip);
// The reference net, with moving averages of its parameters.
SampleNet averaged_net();
// The reference net with Lamb.
SampleNet lamb_net();
// Lookups of sparse tables [1000, 16], two of each table; Adam.
SampleNet table_net(int lookups, bool distributed = false);
// Two tables with is_distributed [1000, 16]; SGD with grad_clip=.
SampleNet clipped_table_net(const fluid::Penalty& clip);
// A convolution and batch norm; SGD.
SampleNet normalised_net();
// `layers` fully connected layers of one width, SGD.
SampleNet deep_net(int layers, int64_t width);
// Layers (tables, images and sequences among them), widths, optimizer, decay, schedule, rates per
// parameter, frozen and shared parameters drawn from the seed. Fed x, y, and where it is declared
// steps, a sequence for each row.
SampleNet random_net(uint64_t seed);

// Whether DC-ASGD is not for the net: sparse gradients in Paddle's form.
bool refuses_compensation(const SampleNet& net, const DistributeTranspilerConfig& config);

struct NamedConfig {
  std::string name;
  DistributeTranspilerConfig config;
};
// Synchronous forms: classic, and with the runtime split.
std::vector<NamedConfig> synchronous_modes();
// Asynchronous, half-asynchronous, and every compensation of delay, each with and without the
// runtime split.
std::vector<NamedConfig> asynchronous_modes();

// Each built-in one in turn.
SplitMethod split_method_of(uint64_t seed);

struct RandomJob {
  SampleNet net;
  int servers;
  int shards;
  DistributeTranspilerConfig config;
};
// Mode, slicing and placement by the seed. Over the seeds of a test, every mode of jobs with
// servers comes with every number of servers (up to 5) and of shards (up to 4).
RandomJob random_job(uint64_t seed);

// 127.0.0.1:6174 and the ports after it.
std::vector<std::string> server_endpoints(int servers);
// With every pass verified in full, as tests want it.
TranspileOptions options_for(const SampleNet& net, int servers, int trainers, int trainer_id = 0,
                             bool verify_each_pass = true);

std::vector<std::string> op_types(const fluid::Block& block);

}  // namespace fleet::transpiler
