// Shows and clicks of what ids belong to: of rows of ids, or of sequences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fluid/core/tensor.h"

namespace fleet::fluid::tables {

class InstanceShows {
 public:
  // int64 or float32. Throws UsageError for other numbers of both, and numbers that are not finite;
  // `where` is for messages.
  InstanceShows(const Tensor& show, const Tensor& click, std::string where);

  // Calls each(i, show, click) for the ids in their order. There is one show for each sequence of
  // ids, or for each row of ids; where there happen to be as many of both, Show has sequences in
  // the second case. Throws UsageError where it is neither.
  template <class Each>
  void for_each(const Tensor& ids, const Each& each) const {
    const std::vector<int64_t> instances = instances_of(ids);
    for (size_t i = 0; i < instances.size(); ++i) {
      const auto at = static_cast<size_t>(instances[i]);
      each(i, shows_[at], clicks_[at]);
    }
  }

 private:
  // What each id belongs to.
  std::vector<int64_t> instances_of(const Tensor& ids) const;

  const bool has_sequences_;  // Show has
  const std::string where_;
  std::vector<float> shows_;
  std::vector<float> clicks_;
};

}  // namespace fleet::fluid::tables
