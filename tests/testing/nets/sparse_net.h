// A net whose gradients are of rows, for tests of jobs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/testing/thread_cluster.h"

namespace fleet::testing {

// What gives sparse gradients.
enum class RowKind {
  kLookup,
  kLookupV2,
  kTwoLookups,
  kTwoVersions,  // of one table: lookup_table and lookup_table_v2
  kTwoPaddings,
  kTwoTables,
  kNce,
  kHsigmoid
};

struct SparseNetOptions {
  RowKind kind = RowKind::kLookup;
  std::function<void(const fluid::Variable&)> minimize = [](const fluid::Variable& loss) {
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  };
  std::optional<int64_t> padding = {};
  bool is_distributed = false;
  // The label is a function of the ids, so that losses fall.
  bool learnable = false;
};

// Some ids come often, so that rows meet in a batch and between shards.
class SparseNet {
 public:
  explicit SparseNet(const SparseNetOptions& options);

  TrainingTask task(int steps) const;
  const fluid::Program& main() const { return main_; }

 private:
  fluid::Program main_;
  fluid::Program startup_;
  std::string loss_;
  bool learnable_;
};

}  // namespace fleet::testing
