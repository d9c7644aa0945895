#include "fluid/layers/embedding.h"

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/nn/embedding.h"

namespace fleet::fluid {
namespace {

template <class Attrs>
Variable look_up(const char* op, const Variable& input, const Shape& size,
                 const EmbeddingOptions& options) {
  const LayerHelper helper("embedding");
  helper.check_input(input, "input");
  if (size.rank() != 2) {
    helper.fail("size is not {height, width}", "two numbers", size.to_string(),
                "give rows and columns of the table");
  }
  const int64_t padding = options.padding_idx.value_or(-1);
  if (options.padding_idx && (padding < -size[0] || padding >= size[0])) {
    helper.fail("padding_idx is no row of the table", str_cat("[", -size[0], ", ", size[0], ")"),
                str_cat(padding), "name a row of the table");
  }
  const Variable w = helper.parameter(options.param_attr, size, options.dtype, false);
  const Variable out = helper.temp(options.dtype);
  Attrs attrs;
  attrs.is_sparse = options.is_sparse;
  attrs.is_distributed = options.is_distributed;
  attrs.remote_prefetch = options.is_sparse && !options.is_distributed;
  attrs.padding_idx = options.padding_idx && padding < 0 ? size[0] + padding : padding;
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

}  // namespace fleet::fluid
