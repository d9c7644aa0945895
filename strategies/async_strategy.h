// Training through parameter servers without a common step: AsyncStrategy, HalfAsyncStrategy,
// GeoStrategy and EasgdStrategy.
//
// What they have in common with SyncStrategy is documented there. Trainer threads of a process are
// CPU_NUM. docs/strategies.md compares the strategies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "strategies/config/fleet_runtime_config.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/strategy.h"
#include "transpiler/split_method.h"

namespace fleet::strategies {

// Every gradient is applied when it comes.
struct AsyncStrategy {
  bool slice_var_up = true;
  int min_block_size = 8192;
  int slices_per_server = 1;
  transpiler::SplitMethod split_method = "RoundRobin";
  // SSP: no worker is more than so many steps ahead of the slowest. Without: no bound; 0 is
  // synchronous training, bit for bit.
  std::optional<uint32_t> staleness_bound = std::nullopt;
  // DC-ASGD. `enable_dc_asgd` alone is the form "clipped" with its usual numbers, as in
  // DistributeTranspilerConfig; a form of `delay_compensation` implies it.
  bool enable_dc_asgd = false;
  DelayCompensationOptions delay_compensation = {};
  // Schedules count the first gradient of N workers as step N, as Paddle does, not as step 0.
  bool paddle_schedules = false;
  TrainerRuntimeConfig trainer_runtime_config = {};
  ServerRuntimeConfig server_runtime_config = {};

  std::shared_ptr<const Strategy> make() const;
};

// The trainer threads of a worker meet, and send one merged gradient.
struct HalfAsyncStrategy {
  bool slice_var_up = true;
  int min_block_size = 8192;
  int slices_per_server = 1;
  transpiler::SplitMethod split_method = "RoundRobin";
  bool enable_dc_asgd = false;  // as in AsyncStrategy
  DelayCompensationOptions delay_compensation = {};
  // Schedules of N workers stay at step N, as in Paddle, instead of counting gradients.
  bool paddle_schedules = false;
  TrainerRuntimeConfig trainer_runtime_config = {};
  ServerRuntimeConfig server_runtime_config = {};

  std::shared_ptr<const Strategy> make() const;
};

// Workers train alone, and exchange the differences of their parameters every update_frequency
// steps.
struct GeoStrategy {
  bool slice_var_up = true;  // parameters are cut in any case, as in Paddle
  int min_block_size = 8192;
  int slices_per_server = 1;
  transpiler::SplitMethod split_method = "RoundRobin";
  int update_frequency = 100;
  TrainerRuntimeConfig trainer_runtime_config = {};
  ServerRuntimeConfig server_runtime_config = {};

  std::shared_ptr<const Strategy> make() const;
};

// Workers train alone, and every `tau` steps are drawn to the servers' values, and those to them.
struct EasgdStrategy {
  bool slice_var_up = true;  // parameters are cut in any case, as under GEO
  int min_block_size = 8192;
  int slices_per_server = 1;
  transpiler::SplitMethod split_method = "RoundRobin";
  int tau = 10;
  double alpha = 0;  // 0: 0.9 / N
  TrainerRuntimeConfig trainer_runtime_config = {};
  ServerRuntimeConfig server_runtime_config = {};

  std::shared_ptr<const Strategy> make() const;
};

}  // namespace fleet::strategies
