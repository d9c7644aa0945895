// What fleet-inspect finds out about checkpoints (fluid/io/checkpoint_files.h). Functions that read
// one throw ResourceError for what is not there or damaged, unless they say otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fluid/io/checkpoint_files.h"
#include "tools/inspect/table_rows.h"
#include "tools/inspect/tensor_values.h"

namespace fleet::inspect {

// The checkpoint that a path means: that folder itself, or the newest of the folder's checkpoints.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

struct TensorInfo {
  std::string name;
  fluid::io::CheckpointTensor tensor;
  uint64_t bytes = 0;
  std::optional<ValueSummary> values;
};

struct Checkpoint {
  std::filesystem::path folder;
  Status status;  // not ok: it is damaged, and of the rest only step and age are known
  double age_s = 0;
  fluid::io::CheckpointInfo info;
  std::vector<TensorInfo> tensors;  // by name
  // Growing tables, by name; listings have none.
  std::vector<TableInfo> tables = {};
  uint64_t bytes = 0;  // of all its files
  // Tensors are, and rows, where they were read.
  bool finite = true;
};

// With `values`, every tensor and every row is read.
Checkpoint read_checkpoint(const std::filesystem::path& path, bool values);

struct Listing {
  std::filesystem::path folder;
  std::vector<Checkpoint> checkpoints;  // the newest first; damaged ones, too
  std::vector<std::string> unfinished;  // names of folders
};
Listing list_checkpoints(const std::filesystem::path& folder);

struct Verified {
  Checkpoint checkpoint;
  std::vector<Status> damage;
};
// Reads everything of a checkpoint, or of all checkpoints of a folder.
std::vector<Verified> verify(const std::filesystem::path& path);
bool all_whole(const std::vector<Verified>& checkpoints);

// All of a manifest but its tensors, as texts: "step", "readers/train", "values/best" …
using InfoFields = std::vector<std::pair<std::string, std::string>>;
InfoFields fields_of(const fluid::io::CheckpointInfo& info);

struct InfoDifference {
  std::string field;
  std::optional<std::string> a;
  std::optional<std::string> b;
};

// A tensor that one of two checkpoints lacks, or that is not the same in them; `values` where type
// and shape are.
struct TensorDifference {
  std::string name;
  std::optional<TensorInfo> a;
  std::optional<TensorInfo> b;
  std::optional<ValueDifference> values;
};

// A growing table that one of two checkpoints lacks, or that is not the same in them; `rows` where
// width and states are.
struct TableDifference {
  std::string name;
  std::optional<TableInfo> a;
  std::optional<TableInfo> b;
  std::optional<RowDifference> rows;
};

struct Comparison {
  std::filesystem::path a;
  std::filesystem::path b;
  std::vector<InfoDifference> info;
  std::vector<TensorDifference> tensors;
  size_t equal = 0;  // tensors
  std::vector<TableDifference> tables;
  size_t equal_tables = 0;

  bool none() const { return tensors.empty() && tables.empty(); }
};
// Of the tensors, two are in memory at a time.
Comparison compare(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace fleet::inspect
