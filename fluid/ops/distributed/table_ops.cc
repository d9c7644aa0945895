#include "fluid/ops/distributed/table_ops.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"
#include "fluid/tables/store/buckets.h"

namespace fleet::fluid {
namespace {

void infer_distributed_lookup_table(InferContext& context) {
  const auto attrs = context.attrs<DistributedLookupTableAttrs>();
  const VarDesc& table = context.input("W");
  context.require(table.shape.rank() == 2, "W", "[height, width]", table.shape.to_string());
  context.require(context.input_count("Ids") == context.output_count("Outputs"), "Outputs",
                  str_cat("one variable for each of Ids, ", context.input_count("Ids")),
                  str_cat(context.output_count("Outputs")));
  const size_t parts = attrs.table_names.size();
  context.require(
      attrs.height_sections.size() == parts && attrs.endpoints.size() == parts, "W",
      "a name, a number of rows and an endpoint for each part of the table",
      str_cat(parts, ", ", attrs.height_sections.size(), " and ", attrs.endpoints.size()));
  for (size_t i = 0; i < context.input_count("Ids"); ++i) {
    const VarDesc& ids = context.input("Ids", i);
    Shape shape = ids.shape;
    if (attrs.lookup_table_version == "lookup_table") {
      context.require(shape.rank() > 0 && shape[shape.rank() - 1] == 1, "Ids",
                      "a last dimension of 1", shape.to_string());
      shape.set(shape.rank() - 1, table.shape[1]);
    } else {
      shape.push_back(table.shape[1]);
    }
    context.set_output("Outputs", shape, table.dtype, i, ids.lod_level);
  }
}

void infer_remote_growing_tables(InferContext& context) {
  const auto attrs = context.attrs<LookupRemoteGrowingTablesAttrs>();
  const size_t count = context.input_count("Ids");
  const bool fits = context.output_count("Outputs") == count && attrs.table_of.size() == count &&
                    attrs.ids_end_in_one.size() == count && attrs.has_padding.size() == count &&
                    attrs.padding_idx.size() == count && attrs.shown.size() == count;
  context.require(fits, "Ids", "an output and attributes for each", str_cat(count, " of Ids"));
  context.require_dtype("Ids", DType::kInt64);
  for (size_t i = 0; i < count; ++i) {
    const int64_t at = attrs.table_of[i];
    context.require(at >= 0 && at < static_cast<int64_t>(context.input_count("Tables")), "Tables",
                    "the table of each of Ids", str_cat(at));
    const VarDesc& table = context.input("Tables", static_cast<size_t>(at));
    context.require(table.kind == VarKind::kGrowingTable && table.shape.rank() == 2, "Tables",
                    "growing tables", std::string(var_kind_name(table.kind)));
    const auto shows = static_cast<int64_t>(context.input_count("Shows"));
    context.require(
        attrs.shown[i] < shows && context.input_count("Clicks") == context.input_count("Shows"),
        "Shows", "those that `shown` names, and as many of Clicks", str_cat(attrs.shown[i]));
    const VarDesc& ids = context.input("Ids", i);
    const int64_t ends = attrs.ids_end_in_one[i];
    context.require(ends == 0 || ends == 1, "Ids", "ids_end_in_one: 0 or 1 for each",
                    str_cat(ends));
    const int rank = ids.shape.rank() - static_cast<int>(ends);
    const bool one = rank >= 0 && (ends == 0 || ids.shape[rank] == 1 || ids.shape[rank] < 0);
    context.require(one, "Ids", "a last dimension of 1", ids.shape.to_string());
    Shape shape(ids.shape.dims().first(static_cast<size_t>(rank)));
    shape.push_back(table.shape[1]);
    context.set_output("Outputs", shape, table.dtype, i, ids.lod_level);
  }
}

void infer_split_growing_rows(InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.kind == VarKind::kSelectedRows, "X", "selected rows",
                  std::string(var_kind_name(x.kind)));
  for (size_t i = 0; i < context.output_count("Out"); ++i) {
    context.set_output("Out", x.shape, x.dtype, i);
    context.set_kind("Out", VarKind::kSelectedRows, i);
  }
}

void infer_split_selected_rows(InferContext& context) {
  const auto attrs = context.attrs<SplitSelectedRowsAttrs>();
  const VarDesc& x = context.input("X");
  context.require(x.kind == VarKind::kSelectedRows, "X", "selected rows",
                  std::string(var_kind_name(x.kind)));
  context.require(attrs.height_sections.size() == context.output_count("Out"), "Out",
                  str_cat("one variable for each section, ", attrs.height_sections.size()),
                  str_cat(context.output_count("Out")));
  for (size_t i = 0; i < attrs.height_sections.size(); ++i) {
    Shape shape = x.shape;
    shape.set(0, attrs.height_sections[i]);
    context.set_output("Out", shape, x.dtype, i);
  }
}

}  // namespace

size_t server_of_bucket(uint32_t bucket, size_t servers) {
  return size_t{bucket} * servers / tables::kBuckets;
}

size_t server_of_id(uint64_t id, size_t servers) {
  return server_of_bucket(tables::bucket_of(id), servers);
}

int64_t padding_of(const Operator& lookup) {
  const Attribute* attr = lookup.attr("padding_idx");
  const int64_t* padding = attr == nullptr ? nullptr : std::get_if<int64_t>(attr);
  return padding == nullptr ? -1 : *padding;
}

void add_table_ops(OpTable& table) {
  table.add(run_by_runtime(
      make_schema<DistributedLookupTableAttrs>("distributed_lookup_table", {many("Ids"), one("W")},
                                               {many("Outputs")}, infer_distributed_lookup_table)));
  table.add(make_schema<SplitSelectedRowsAttrs>("split_selected_rows", {one("X")}, {many("Out")},
                                                infer_split_selected_rows));
  table.add(run_by_runtime(draws_numbers(make_schema<LookupRemoteGrowingTablesAttrs>(
      "lookup_remote_growing_tables",
      {many("Ids"), many("Tables"), maybe_many("Shows"), maybe_many("Clicks")}, {many("Outputs")},
      infer_remote_growing_tables))));
  table.add(make_schema<NoAttrs>("split_growing_rows", {one("X")}, {many("Out")},
                                 infer_split_growing_rows));
  table.add(make_schema<NoAttrs>("split_ids", {many("Ids")}, {typed(many("Out"))}));
  table.add(run_by_runtime(make_schema<PrefetchAttrs>("prefetch", {many("X")}, {many("Out")})));
  table.add(make_schema<MergeIdsAttrs>("merge_ids", {many("Ids"), many("Rows"), typed(many("X"))},
                                       {many("Out")}));
  table.add(make_schema<LookupSparseTableAttrs>("lookup_sparse_table", {one("W"), one("Ids")},
                                                {typed(one("Out"))}));
  table.add(make_schema<SaveAttrs>("save", {one("X")}, {}));
  table.add(run_by_runtime(make_schema<CheckpointNotifyAttrs>("checkpoint_notify", {}, {})));
}

}  // namespace fleet::fluid
