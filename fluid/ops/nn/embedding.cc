#include "fluid/ops/nn/embedding.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void check_padding(const InferContext& context, int64_t padding) {
  const int64_t height = context.input("W").shape[0];
  context.require(padding >= -1 && (height < 0 || padding < height), "W",
                  str_cat("padding_idx in [-1, ", height, ")"), str_cat(padding),
                  "give a row of the table, or -1 for none");
}

// Out has the ids' shape, without a last dimension of 1 for the first form, and the table's width.
template <class Attrs, bool LastIsOne>
void infer_lookup(InferContext& context) {
  const VarDesc& w = context.input("W");
  const VarDesc& ids = context.input("Ids");
  context.require(w.shape.rank() == 2, "W", "[height, width]", w.shape.to_string());
  context.require_dtype("Ids", DType::kInt64);
  const int rank = ids.shape.rank();
  if (LastIsOne) {
    context.require(rank >= 1 && (ids.shape[-1] == 1 || ids.shape[-1] < 0), "Ids",
                    "a last dimension of 1", ids.shape.to_string(),
                    "reshape the ids to [..., 1], or use lookup_table_v2");
  }
  check_padding(context, context.attrs<Attrs>().padding_idx);
  Shape out(ids.shape.dims().first(static_cast<size_t>(LastIsOne ? rank - 1 : rank)));
  out.push_back(w.shape[1]);
  context.set_output("Out", out, w.dtype, 0, ids.lod_level);
}

void infer_bags(InferContext& context) {
  const VarDesc& w = context.input("W");
  const VarDesc& ids = context.input("Ids");
  const auto attrs = context.attrs<FusedEmbeddingSeqPoolAttrs>();
  context.require(w.shape.rank() == 2, "W", "[height, width]", w.shape.to_string());
  context.require_dtype("Ids", DType::kInt64);
  context.require(ids.shape.rank() == 2 && (ids.shape[1] == 1 || ids.shape[1] < 0), "Ids",
                  "[rows, 1]", ids.shape.to_string(), "reshape the ids to [rows, 1]");
  context.require(attrs.combiner == "sum", "Ids", "combiner 'sum'",
                  str_cat("'", attrs.combiner, "'"),
                  "use embedding and sequence_pool for another one");
  check_padding(context, attrs.padding_idx);
  const Shape out{Shape::kUnknown, w.shape[1]};
  context.set_output("Out", out, w.dtype, 0, std::max(ids.lod_level - 1, 0));
}

template <class Attrs>
void infer_lookup_grad(InferContext& context) {
  const VarDesc& w = context.input("W");
  context.set_output("W@GRAD", w.shape, w.dtype);
  if (context.attrs<Attrs>().is_sparse) context.set_kind("W@GRAD", VarKind::kSelectedRows);
}

template <class Attrs, bool LastIsOne>
void add_lookup(OpTable& table, const std::string& type) {
  const std::vector<SlotSpec> inputs = {one("W"), one("Ids")};
  const std::vector<SlotSpec> grad_inputs = {one("W"), one("Ids"), typed(one("Out@GRAD"))};
  const GradSpec spec{.inputs = {"W", "Ids"}, .wanted = {"W"}};
  const std::vector<SlotSpec> outputs = {typed(one("Out"))};
  const std::vector<SlotSpec> grads = {one("W@GRAD")};
  auto lookup = make_schema<Attrs>(type, inputs, outputs, infer_lookup<Attrs, LastIsOne>,
                                   usual_gradient(spec));
  lookup.table_slot = "W";
  lookup.gives_table_rows = true;
  lookup.ids_end_in_one = LastIsOne;
  table.add(std::move(lookup));
  auto gradient = make_schema<Attrs>(type + "_grad", grad_inputs, grads, infer_lookup_grad<Attrs>);
  gradient.table_gradient_slot = "W";
  table.add(std::move(gradient));
}

// Not a lookup that servers answer: where W lives on servers, a worker receives it whole.
void add_bags(OpTable& table) {
  const std::string type = "fused_embedding_seq_pool";
  const GradSpec spec{.inputs = {"W", "Ids"}, .wanted = {"W"}};
  table.add(make_schema<FusedEmbeddingSeqPoolAttrs>(
      type, {one("W"), one("Ids")}, {typed(one("Out"))}, infer_bags, usual_gradient(spec)));
  table.add(make_schema<FusedEmbeddingSeqPoolAttrs>(
      type + "_grad", {one("W"), one("Ids"), typed(one("Out@GRAD"))}, {one("W@GRAD")},
      infer_lookup_grad<FusedEmbeddingSeqPoolAttrs>));
}

}  // namespace

void add_embedding_ops(OpTable& table) {
  add_lookup<LookupTableAttrs, true>(table, "lookup_table");
  add_lookup<LookupTableV2Attrs, false>(table, "lookup_table_v2");
  add_bags(table);
}

}  // namespace fleet::fluid
