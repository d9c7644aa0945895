#include "fluid/layers/embedding.h"

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/nn/embedding.h"

namespace fleet::fluid {
namespace {

// Counted from the begin of the table; -1: none.
int64_t checked_padding(const LayerHelper& helper, const Shape& size,
                        const std::optional<int64_t>& given) {
  if (size.rank() != 2) {
    helper.fail("size is not {height, width}", "two numbers", size.to_string(),
                "give rows and columns of the table");
  }
  if (!given) return -1;
  if (*given < -size[0] || *given >= size[0]) {
    helper.fail("padding_idx is no row of the table", str_cat("[", -size[0], ", ", size[0], ")"),
                str_cat(*given), "name a row of the table");
  }
  return *given < 0 ? size[0] + *given : *given;
}

template <class Attrs>
Variable look_up(const char* op, const Variable& input, const Shape& size,
                 const EmbeddingOptions& options) {
  const LayerHelper helper("embedding");
  helper.check_input(input, "input");
  const int64_t padding = checked_padding(helper, size, options.padding_idx);
  const Variable w = helper.parameter(options.param_attr, size, options.dtype, false);
  const Variable out = helper.temp(options.dtype);
  Attrs attrs;
  attrs.is_sparse = options.is_sparse;
  attrs.is_distributed = options.is_distributed;
  attrs.remote_prefetch = options.is_sparse && !options.is_distributed;
  attrs.padding_idx = padding;
  helper.append(op, {{"W", {w.name()}}, {"Ids", {input.name()}}}, {{"Out", {out.name()}}},
                to_attributes(attrs));
  return out;
}

}  // namespace

Variable layers::embedding(const Variable& input, const Shape& size,
                           const EmbeddingOptions& options) {
  return look_up<LookupTableAttrs>("lookup_table", input, size, options);
}

Variable embedding(const Variable& input, const Shape& size, const EmbeddingOptions& options) {
  return look_up<LookupTableV2Attrs>("lookup_table_v2", input, size, options);
}

Variable contrib::layers::fused_embedding_seq_pool(const Variable& input, const Shape& size,
                                                   const FusedEmbeddingSeqPoolOptions& options) {
  const LayerHelper helper("fused_embedding_seq_pool");
  helper.check_input(input, "input");
  FusedEmbeddingSeqPoolAttrs attrs;
  attrs.padding_idx = checked_padding(helper, size, options.padding_idx);
  attrs.is_sparse = options.is_sparse;
  attrs.combiner = options.combiner;
  const Variable w = helper.parameter(options.param_attr, size, options.dtype, false);
  const Variable out = helper.temp(options.dtype);
  helper.append("fused_embedding_seq_pool", {{"W", {w.name()}}, {"Ids", {input.name()}}},
                {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

}  // namespace fleet::fluid
