// Rows of a table that grows: any 64-bit id, with rows made by training
// (fluid/tables/growing_table.h). See nn.h for what all layers have in common.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"
#include "fluid/tables/table_options.h"

namespace fleet::fluid {

// Which ids get a row; the others read what their row would start from, and learn nothing. By
// default every id that training looks up gets one.
// An id is in or out for good, by a number drawn from the table's seed and the id.
struct ProbabilityEntry {
  double probability = 1;
};
// The id's so-many-th lookup in training makes its row. Each logical shard of a step counts an id
// once.
struct CountFilterEntry {
  int64_t count_filter = 1;
};
// The first lookup after score = show_coefficient * show + click_coefficient * click has reached
// the threshold makes the row (SparseEmbeddingOptions::score). `show` and `click` are data of the
// program, int64 or float32, one number for each row of ids or for each sequence; training adds
// them to each id of that row, whole numbers exactly up to 2^24. Rows then keep both.
struct ShowClickEntry {
  Variable show;
  Variable click;
  double threshold = 0;
};
using SparseEntry =
    std::variant<std::monostate, ProbabilityEntry, CountFilterEntry, ShowClickEntry>;

struct SparseEmbeddingOptions {
  // This id reads zeros, learns nothing and gets no row. All 64 bits are ids: -1 is one, too.
  std::optional<int64_t> padding_idx = {};
  // Changes nothing; program.clone(true) sets it of a net that trains.
  bool is_test = false;
  SparseEntry entry = {};
  // Initialisers: Constant, Uniform, Normal, TruncatedNormal, Xavier and MSRA; Xavier when absent.
  // Of the last two, fans that are not given are `dim`.
  ParamAttr param_attr = {};
  DType dtype = DType::kFloat32;  // the only one that there is
  // What rows keep beside values and states: what rules of eviction need.
  tables::RowFields fields = {};
  tables::ScoreRule score = {};
  tables::MemoryLimit memory = {};
  // Changes since the last delta are known, so that deltas can be written
  // (fluid/io/growing_tables.h).
  bool deltas = false;
  // Ids without a row that are counted, of CountFilterEntry and ShowClickEntry.
  uint64_t counted_ids = uint64_t{1} << 40;
};

namespace layers {

// ids: int64 [..., 1]. Gives [..., dim]; sequences stay. Calls with one param_attr.name share a
// table; throws UsageError that names the option where they differ in one.
Variable sparse_embedding(const Variable& ids, int64_t dim,
                          const SparseEmbeddingOptions& options = {});
// The same for many slots of one table, which are looked up together: each id once.
std::vector<Variable> sparse_embedding(const std::vector<Variable>& slots, int64_t dim,
                                       const SparseEmbeddingOptions& options = {});

}  // namespace layers

// ids: int64 of any shape [...]. Gives [..., dim].
Variable sparse_embedding(const Variable& ids, int64_t dim,
                          const SparseEmbeddingOptions& options = {});
std::vector<Variable> sparse_embedding(const std::vector<Variable>& slots, int64_t dim,
                                       const SparseEmbeddingOptions& options = {});

}  // namespace fleet::fluid
