// What the logical shards of a step make, kept by shard and joined in a fixed order: gradients,
// statistics, fetched variables.
#pragma once

#include <vector>

#include "fluid/executor/workspace_impl.h"

namespace fleet::fluid {

class ShardThreads;

// Shards may keep their results at once, each its own part.
class ShardResults {
 public:
  // Of the plan of `home`, whose values the joined results become; it must outlive this.
  explicit ShardResults(Workspace& home);

  // Before the first shard of a step of `parts` shards.
  void begin(int parts);
  // Before a shard runs in `lane`: every shard starts from the statistics of the step's begin.
  void start(Workspace& lane) const;

  // After shard `part` ran in `lane`. With `copies` the gradients are copied, because the lane runs
  // another shard after this; otherwise their memory is shared.
  void keep_gradients(const Workspace& lane, int part, bool copies);
  void keep_statistics(const Workspace& lane, int part);
  void keep_fetches(const Workspace& lane, int part);

  // `threads`, if not null, are `lanes`, each of which adds up its elements of every gradient; the
  // bits are the same for any number.
  struct Join {
    ShardThreads* threads = nullptr;
    int lanes = 1;
    bool sums = false;  // not divided by the number of shards
  };
  // After the last shard: tree means over the shards.
  void join_gradients(const Join& join);
  void join_statistics();

  // The fetched variables of a step, in host memory.
  // `stay`: those of unsharded steps may stay on their device.
  std::vector<Tensor> fetches(std::span<const Tensor> feeds, bool stay) const;

 private:
  const Plan& plan() const { return home_.plan(); }
  const std::string& name_of(int var) const { return plan().vars()[static_cast<size_t>(var)].name; }
  void join_device_gradients(bool sums);

  Workspace& home_;
  // Per variable that shards contribute to (Plan::per_shard): the tensors of the shards.
  std::vector<std::vector<Tensor>> gradients_;
  std::vector<std::vector<SelectedRows>> sparse_gradients_;
  // Per statistic: its value at the step's begin, and those of the shards.
  std::vector<Tensor> statistics_begin_;
  std::vector<std::vector<Tensor>> statistics_;
  // Per fetch: the tensors of the shards; none for what is fetched at the end.
  std::vector<std::vector<Tensor>> fetched_;
};

}  // namespace fleet::fluid
