// What the distributed trainers take from Fleet for their flags and reports.
#pragma once

#include <memory>

#include "examples/quick_start/options.h"
#include "examples/quick_start/report.h"
#include "fleet/fleet.h"

namespace quick_start {

// --role_maker.
std::unique_ptr<role_maker::RoleMakerBase> make_role_maker(const Options& options);

// --strategy and --shards, after fleet::init.
strategies::DistributedStrategy make_strategy(const Options& options);

// --checkpoint_dir and --checkpoint_every.
inline fleet::CheckpointPolicy checkpoints(const Options& options) {
  return {.folder = options.checkpoint_dir, .every_steps = options.checkpoint_every};
}

// The job that this process belongs to, after fleet::init.
Job fleet_job();

}  // namespace quick_start
