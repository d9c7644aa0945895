// Rows of a table by index. See nn.h for what all layers have in common.
#pragma once

#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid {

struct EmbeddingOptions {
  // The gradient holds the rows that were looked up instead of the whole table.
  bool is_sparse = false;
  // The table lives on parameter servers only.
  bool is_distributed = false;
  // This id gives zeros; negative counts from the end of the table.
  std::optional<int64_t> padding_idx = {};
  ParamAttr param_attr = {};
  DType dtype = DType::kFloat32;
};

namespace layers {

// input: int64 [..., 1]; size: {height, width}. Gives [..., width].
Variable embedding(const Variable& input, const Shape& size, const EmbeddingOptions& options = {});

}  // namespace layers

// input: int64 of any shape [...]. Gives [..., width]. (op lookup_table_v2)
Variable embedding(const Variable& input, const Shape& size, const EmbeddingOptions& options = {});

namespace contrib::layers {

struct FusedEmbeddingSeqPoolOptions {
  bool is_sparse = false;
  std::optional<int64_t> padding_idx = {};  // as of EmbeddingOptions
  std::string combiner = "sum";             // there is no other
  ParamAttr param_attr = {};
  DType dtype = DType::kFloat32;
};
// sequence_pool(embedding(input), "sum") without the rows in between. input: int64 [rows, 1] of
// sequences; gives [sequences, width]. Parameter servers do not answer its lookups: workers of a
// job receive the table whole.
Variable fused_embedding_seq_pool(const Variable& input, const Shape& size,
                                  const FusedEmbeddingSeqPoolOptions& options = {});

}  // namespace contrib::layers

}  // namespace fleet::fluid
