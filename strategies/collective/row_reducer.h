// Sums gradients of selected rows over all logical shards of a step. Each rank adds up its own
// nodes of the shard tree; then all ranks gather the rows of all nodes, in rank order, and add them
// up by the tree (base/shard_tree.h), a node without a row counting as zeros: the bits of a local
// run, at every rank, whatever their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fluid/core/value.h"
#include "strategies/collective/gradient_reducer.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

// Used by one thread. Errors are thrown: PeerError when a rank does not come, ProgramError when
// the gradients of two shards differ.
class RowReducer {
 public:
  // Communicator and layout must outlive it. Of the options only those about waiting count.
  RowReducer(transport::CollectiveCommunicator& communicator, const transport::ShardLayout& layout,
             GradientReducerOptions options);

  void begin_step(uint64_t step);
  // The next gradient of a local shard, counted from 0; shards come one after the other. `gradient`
  // is free again on return; with the last shard `out` is where the sum goes, until finish().
  void add(int local_shard, const fluid::SelectedRows& gradient, fluid::Value& out);
  // Gradients whose sums have not come.
  bool pending() const { return !finished_ && !gradients_.empty(); }
  // Gathers and adds up, and multiplies with `factor`. A collective operation of all ranks.
  void finish(double factor);

  // Of the last step.
  size_t gradients() const { return gradients_.size(); }
  // What finish() is for a rank that has nothing to give to so many gradients.
  void give_nothing(size_t gradients, uint64_t step);

 private:
  struct Gradient {
    std::vector<fluid::SelectedRows> shards;  // of the node that is coming
    std::vector<fluid::SelectedRows> nodes;   // sums
    fluid::Value* out = nullptr;
  };
  // Of all ranks, for each of their nodes.
  struct Gathered {
    std::vector<int64_t> counts;  // rows, by rank, gradient and node
    std::vector<std::byte> bytes;
    size_t of_a_rank = 0;
  };

  void check(int local_shard, size_t number) const;
  size_t count_at(int rank, size_t gradient, size_t node, size_t gradients) const {
    return (static_cast<size_t>(rank) * gradients + gradient) * most_nodes_ + node;
  }
  Gathered gather(std::span<const int64_t> counts, std::span<const std::byte> bytes);
  template <class T>
  fluid::SelectedRows sum(const Gathered& gathered, size_t index, std::vector<size_t>& begin,
                          double factor) const;
  void wait(transport::CollectiveToken token) { wait_for(token, options_); }

  transport::CollectiveCommunicator& communicator_;
  const transport::ShardLayout& layout_;
  GradientReducerOptions options_;
  int first_shard_;
  size_t most_nodes_ = 0;  // of a rank
  uint64_t step_ = 0;
  int current_shard_ = 0;
  size_t next_ = 0;
  bool finished_ = false;
  std::vector<Gradient> gradients_;
};

}  // namespace fleet::strategies
