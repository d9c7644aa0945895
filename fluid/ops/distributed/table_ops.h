// Ops that transpilers place for tables whose rows live on servers.
//
//   distributed_lookup_table  Ids+, W -> Outputs+: for each ids the rows, from the servers: part i
//   of
//             the table, `table_names[i]`, has `height_sections[i]` rows and is on `endpoints[i]`.
//             Shapes are those of lookup_table_version, "lookup_table" or "lookup_table_v2"
//             (fluid/ops/nn/embedding.h). W only says which table.
//   split_selected_rows       X -> Out+: the rows of each part, counted from the part's first
//
// Tables with is_distributed, row r of which is on server r modulo the number of servers:
//   split_ids            Ids+ -> Out+: the ids, or the selected rows, of each server, without
//                        duplicates
//   prefetch             X+ -> Out+: the rows of X[i] from server i
//   merge_ids            Ids+, Rows+, X+ -> Out+: for each of Ids its rows, X[i] holding those of
//                        the ids Rows[i], which are strictly ascending
//
// Growing tables, of which each server has the rows of some buckets (server_of_id):
//   lookup_remote_growing_tables  Ids+, Tables+, Shows*, Clicks* -> Outputs+: for each of Ids its
//                        rows, from all servers at once, each id of a table asked for once. Ids i
//                        are those of table `table_of[i]`, and were shown and clicked as often as
//                        Shows and Clicks `shown[i]` say (add_growing_table_shows); below 0:
//                        nothing says so
//   split_growing_rows   X -> Out+: the rows of each server, those of equal ids summed
//
//   lookup_sparse_table  W, Ids -> Out: on a server
//   save                 X ->: to the file that kLookupTablePath names; on a server
//   checkpoint_notify    ->: server epmap[i] saves the rows of table `lookup_table` that it has to
//                        its file `dir`/`lookup_table`_<i> (fluid/io/table_files.h)
#pragma once

#include <string_view>

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct DistributedLookupTableAttrs {
  std::vector<std::string> table_names;
  std::vector<int64_t> height_sections;
  std::vector<std::string> endpoints;
  int64_t padding_idx = -1;
  int32_t trainer_id = 0;
  std::string lookup_table_version = "lookup_table";
  DType dtype = DType::kFloat32;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(table_names), CEREAL_NVP(height_sections), CEREAL_NVP(endpoints),
       CEREAL_NVP(padding_idx), CEREAL_NVP(trainer_id), CEREAL_NVP(lookup_table_version),
       CEREAL_NVP(dtype));
  }
};

struct SplitSelectedRowsAttrs {
  std::vector<int64_t> height_sections;  // rows of each output
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(height_sections));
  }
};

struct PrefetchAttrs {
  std::vector<std::string> epmap;
  int32_t trainer_id = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epmap), CEREAL_NVP(trainer_id));
  }
};

// For each of Ids; truths are 0 and 1.
struct LookupRemoteGrowingTablesAttrs {
  std::vector<std::string> endpoints;
  std::vector<int64_t> table_of;
  std::vector<int64_t> ids_end_in_one;  // as in LookupGrowingTableAttrs
  std::vector<int64_t> has_padding;
  std::vector<int64_t> padding_idx;
  std::vector<int64_t> shown;
  bool is_test = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(endpoints), CEREAL_NVP(table_of), CEREAL_NVP(ids_end_in_one),
       CEREAL_NVP(has_padding), CEREAL_NVP(padding_idx), CEREAL_NVP(shown), CEREAL_NVP(is_test));
  }
};

// Which of so many servers has the row of an id, and the rows of a bucket: each server has buckets
// that follow each other.
size_t server_of_bucket(uint32_t bucket, size_t servers);
size_t server_of_id(uint64_t id, size_t servers);

struct MergeIdsAttrs {
  int64_t padding_idx = -1;  // the id whose row is zeros; negative: none
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(padding_idx));
  }
};

struct LookupSparseTableAttrs {
  int64_t padding_idx = -1;
  bool is_distributed = true;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(padding_idx), CEREAL_NVP(is_distributed));
  }
};

struct SaveAttrs {
  std::string file_path = "none";
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(file_path));
  }
};

struct CheckpointNotifyAttrs {
  std::vector<std::string> epmap;
  std::string dir;
  std::string lookup_table;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epmap), CEREAL_NVP(dir), CEREAL_NVP(lookup_table));
  }
};

// The id whose row is zeros for an op that gives_table_rows; -1: none.
int64_t padding_of(const Operator& lookup);

void add_table_ops(OpTable& table);

}  // namespace fleet::fluid
