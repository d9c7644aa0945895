// What one worker of a job has for itself, in a checkpoint beside the values of all:
//
//   worker-2/fc_0.b_0         the worker's own value of a variable
//   worker-2/@counts          what its mode counts, float64
//   worker-2/@readers         positions of its readers, by name, int64; of workers not in step
//   shard-5/fc_0.w_0@DGC_U    what a logical shard keeps: an element of a persistable array
//
// With as many workers, or shards, each goes on with its own. Otherwise workers begin with the
// value of all, and each shard of an array with the mean over those that are there, which keeps the
// sum of what shards have yet to give.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/io/checkpoint_files.h"
#include "role_maker/cluster_spec.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet {

// Used by the thread that trains.
class OwnState {
 public:
  // All must outlive it.
  OwnState(const fluid::Program& origin, strategies::StrategyRuntime& runtime,
           const role_maker::ClusterSpec& cluster)
      : origin_(origin), runtime_(runtime), cluster_(cluster) {}

  // Variables of which each worker has a value of its own; that of all is one worker's, or the
  // servers'.
  std::set<std::string> variables() const;

  // Behind begin_saving(): adds copies of what this worker saves, with the positions of its
  // readers.
  void save(const fluid::Scope& scope, const std::vector<int64_t>& positions,
            fluid::NamedTensors& values) const;
  // Adds what this worker takes, by the names of the checkpoint; nothing is changed but `values`.
  Status read(const fluid::io::CheckpointReader& checkpoint, fluid::NamedTensors& values) const;
  // What read() has added, in place of the values of all: before start_from(), and behind it.
  void take_variables(const fluid::NamedTensors& values, fluid::Scope& scope) const;
  void take_counts(const fluid::NamedTensors& values) const;
  // Of the readers; empty where there are none.
  std::vector<int64_t> positions(const fluid::NamedTensors& values) const;

 private:
  std::string own_name(const std::string& name) const;
  std::vector<const fluid::VarDesc*> arrays() const;
  Status read_numbers(const fluid::io::CheckpointReader& checkpoint, const char* name,
                      fluid::DType dtype, fluid::NamedTensors& values) const;
  Status read_array(const fluid::io::CheckpointReader& checkpoint, const fluid::VarDesc& array,
                    fluid::NamedTensors& values) const;

  const fluid::Program& origin_;
  strategies::StrategyRuntime& runtime_;
  const role_maker::ClusterSpec& cluster_;
};

}  // namespace fleet
