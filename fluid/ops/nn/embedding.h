// Rows of a table by index.
//
//   lookup_table          W [height, width], Ids [..., 1] (int64) -> Out [..., width]
//   lookup_table_v2       W, Ids [...] -> Out [..., width]
//   lookup_table_grad     W, Ids, Out@GRAD -> W@GRAD; lookup_table_v2_grad the same
// An id of padding_idx (-1: none) gives zeros, and passes nothing back to a dense W@GRAD. With
// is_sparse W@GRAD is selected rows: one row per id, duplicates as they come, zeros for padding.
//
//   fused_embedding_seq_pool       W [height, width], Ids [rows, 1] (int64), sequences ->
//                                  Out [sequences, width]: sums of the rows of each sequence's ids;
//                                  zeros for an empty one
//   fused_embedding_seq_pool_grad  W, Ids, Out@GRAD -> W@GRAD
// The bits of sequence_pool (SUM) of lookup_table, without the rows in between; padding is treated
// alike. (Paddle's gradient has full rows for padding.)
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct LookupTableV2Attrs {
  bool is_sparse = false;
  int64_t padding_idx = -1;
  // What a transpiler makes of a table that lives on servers; the local kernels do not look at it.
  bool is_distributed = false;
  bool remote_prefetch = false;
  int32_t trainer_id = 0;
  std::vector<int64_t> height_sections;
  std::vector<std::string> epmap;
  std::vector<std::string> table_names;
  // The gradient of selected rows keeps padding rows at their full value.
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(is_sparse), CEREAL_NVP(padding_idx), CEREAL_NVP(is_distributed),
       CEREAL_NVP(remote_prefetch), CEREAL_NVP(trainer_id), CEREAL_NVP(height_sections),
       CEREAL_NVP(epmap), CEREAL_NVP(table_names), CEREAL_NVP(paddle_form));
  }
};

struct LookupTableAttrs : LookupTableV2Attrs {
  bool grad_inplace = false;  // without meaning here
  template <class Archive>
  void serialize(Archive& ar) {
    LookupTableV2Attrs::serialize(ar);
    ar(CEREAL_NVP(grad_inplace));
  }
};

struct FusedEmbeddingSeqPoolAttrs {
  std::string combiner = "sum";  // there is no other
  bool is_sparse = false;
  bool grad_inplace = false;  // without meaning here
  int64_t padding_idx = -1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(combiner), CEREAL_NVP(is_sparse), CEREAL_NVP(grad_inplace),
       CEREAL_NVP(padding_idx));
  }
};

void add_embedding_ops(OpTable& table);

}  // namespace fleet::fluid
