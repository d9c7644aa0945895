#include "fluid/ops/nn/growing_table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

using tables::Admission;
using tables::RowInitializer;
using tables::RowRank;
using tables::TableOptions;

constexpr const char* kUpdate = "update_growing_table";
constexpr const char* kLookup = "lookup_growing_table";

// In the order of the enumerations.
constexpr std::array<std::string_view, 4> kInitializers = {"constant", "uniform", "normal",
                                                           "truncated_normal"};
constexpr std::array<std::string_view, 4> kAdmissions = {"always", "probability", "count", "score"};
constexpr std::array<std::string_view, 4> kRanks = {"seen", "count", "score", "norm"};

[[noreturn]] void fail_table(const std::string& table, std::string what, std::string expected,
                             std::string got, std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = "growing table '" + table + "'",
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

template <class Kind>
Kind parse_word(const std::array<std::string_view, 4>& words, const std::string& word,
                const char* attribute, const std::string& table) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) {
    fail_table(table, str_cat("unknown ", attribute), join(words, ", "), word,
               "use one of the words above");
  }
  return static_cast<Kind>(found - words.begin());
}

template <class Kind>
std::string word_of(const std::array<std::string_view, 4>& words, Kind kind) {
  return std::string(words[static_cast<size_t>(kind)]);
}

uint64_t not_negative(int64_t number, const char* attribute, const std::string& table) {
  if (number >= 0) return static_cast<uint64_t>(number);
  fail_table(table, str_cat(attribute, " is negative, or above 2^63 - 1"), "0 to 2^63 - 1",
             str_cat(number), str_cat("set ", attribute, " to a number in that range"));
}

std::vector<tables::RowState> states_of(const MakeGrowingTableAttrs& attrs,
                                        const std::string& table) {
  const size_t count = attrs.state_names.size();
  if (attrs.state_widths.size() != count || attrs.state_values.size() != count) {
    fail_table(
        table, "states have names, widths and values", str_cat(count, " of each"),
        str_cat(attrs.state_widths.size(), " widths, ", attrs.state_values.size(), " values"),
        "give one of each for every state");
  }
  std::vector<tables::RowState> states;
  for (size_t i = 0; i < count; ++i) {
    states.push_back({.name = attrs.state_names[i],
                      .width = not_negative(attrs.state_widths[i], "state_widths", table),
                      .initial = static_cast<float>(attrs.state_values[i])});
  }
  return states;
}

void infer_make(InferContext& context) {
  const auto attrs = context.attrs<MakeGrowingTableAttrs>();
  tables::check_options(table_options(attrs, context.op().output("Out").front(), 0));
  context.set_output("Out", Shape{-1, attrs.width}, DType::kFloat32);
  context.set_kind("Out", VarKind::kGrowingTable);
}

int64_t width_of(const InferContext& context, std::string_view slot) {
  const VarDesc& table = context.input(slot);
  context.require(table.kind == VarKind::kGrowingTable && table.shape.rank() == 2, slot,
                  "a growing table", std::string(var_kind_name(table.kind)),
                  "make it with sparse_embedding");
  return table.shape[1];
}

void infer_growing_lookup(InferContext& context) {
  const int64_t width = width_of(context, "Table");
  const auto attrs = context.attrs<LookupGrowingTableAttrs>();
  context.require_dtype("Ids", DType::kInt64);
  context.require(context.output_count("Out") == context.input_count("Ids"), "Ids",
                  "one of Out for each", str_cat(context.output_count("Out")));
  for (size_t i = 0; i < context.input_count("Ids"); ++i) {
    const VarDesc& ids = context.input("Ids", i);
    const int rank = ids.shape.rank();
    if (attrs.ids_end_in_one) {
      context.require(rank >= 1 && (ids.shape[-1] == 1 || ids.shape[-1] < 0), "Ids",
                      "a last dimension of 1", str_cat(ids.shape, " ('", ids.name, "')"),
                      "reshape the ids to [..., 1], or use fluid::sparse_embedding");
    }
    const int kept = attrs.ids_end_in_one ? rank - 1 : rank;
    Shape out(ids.shape.dims().first(static_cast<size_t>(kept)));
    out.push_back(width);
    context.set_output("Out", out, DType::kFloat32, i, ids.lod_level);
  }
}

void infer_growing_lookup_grad(InferContext& context) {
  context.set_output("Table@GRAD", Shape{-1, width_of(context, "Table")}, DType::kFloat32);
  context.set_kind("Table@GRAD", VarKind::kSelectedRows);
}

void infer_shows(InferContext& context) {
  width_of(context, "Table");
  context.require_dtype("Ids", DType::kInt64);
  for (const char* slot : {"Show", "Click"}) {
    const DType dtype = context.input(slot).dtype;
    context.require(dtype == DType::kInt64 || dtype == DType::kFloat32, slot, "int64 or float32",
                    std::string(dtype_name(dtype)), "cast it");
  }
}

// The row of the op that rows are updated by; null for a type that cannot be.
const OpSchema* row_update(std::string_view type) {
  const OpSchema* schema = OpTable::standard().find(type);
  const auto has = [](const std::vector<SlotSpec>& slots, std::string_view name) {
    return std::any_of(slots.begin(), slots.end(),
                       [name](const SlotSpec& slot) { return slot.name == name; });
  };
  const bool fits = schema != nullptr && schema->updates_parts && has(schema->inputs, "Grad") &&
                    has(schema->outputs, "ParamOut");
  return fits ? schema : nullptr;
}

const OpSchema& row_update_or_throw(const std::string& type) {
  if (const OpSchema* schema = row_update(type)) return *schema;
  throw_error(ErrorCode::kNotSupported,
              {.what = "this update cannot be applied to the rows of a growing table",
               .where = str_cat("op '", kUpdate, "'"),
               .expected = "an update of each element by itself, such as sgd, adagrad or adam",
               .got = type,
               .fix = "choose another optimizer for this table"});
}

bool is_own(std::string_view attribute) {
  static const AttributeMap kOwn = to_attributes(UpdateGrowingTableAttrs());
  return kOwn.contains(attribute);
}

// The op's own attributes, and those of the update.
std::pair<AttributeMap, AttributeMap> divided(const AttributeMap& given) {
  std::pair<AttributeMap, AttributeMap> parts;
  for (const auto& [name, value] : given) {
    (is_own(name) ? parts.first : parts.second)[name] = value;
  }
  return parts;
}

AttributeMap normalize_update(const AttributeMap& given) {
  auto [own, of_update] = divided(given);
  const auto attrs = parse_attributes<UpdateGrowingTableAttrs>(kUpdate, own);
  AttributeMap all = to_attributes(attrs);
  if (attrs.update.empty()) return all;
  for (const auto& [name, value] : row_update_or_throw(attrs.update).normalize(of_update)) {
    all[name] = value;
  }
  return all;
}

void infer_update(InferContext& context) {
  width_of(context, "Param");
  const VarDesc& grad = context.input("Grad");
  context.require(grad.kind == VarKind::kSelectedRows, "Grad", "selected rows",
                  std::string(var_kind_name(grad.kind)),
                  "leave out what makes a dense gradient, such as a regularizer");
  context.require_dtype("Grad", DType::kFloat32);
  const Operator inner = row_update_of(context.op());
  for (const SlotSpec& slot : row_update_or_throw(inner.type).inputs) {
    context.require(slot.optional || !inner.input(slot.name).empty(), "Param",
                    str_cat("input '", slot.name, "' of op '", inner.type, "'"), "none",
                    "give it, or name the state of rows that stands for it");
  }
  context.share("Param", "ParamOut");
  context.set_kind("ParamOut", VarKind::kGrowingTable);
  for (const auto& [in, out] :
       {std::pair("Beta1Pow", "Beta1PowOut"), {"Beta2Pow", "Beta2PowOut"}}) {
    if (context.has_input(in)) context.share(in, out);
  }
}

OpSchema update_schema() {
  OpSchema schema = make_schema<UpdateGrowingTableAttrs>(
      kUpdate,
      {one("Param"), one("Grad"), maybe("LearningRate"), maybe("Beta1Pow"), maybe("Beta2Pow"),
       maybe_attribute("Beta1Tensor"), maybe_attribute("Beta2Tensor")},
      {one("ParamOut"), maybe("Beta1PowOut"), maybe("Beta2PowOut")}, infer_update);
  schema.normalize = normalize_update;
  schema.updates_parts = true;
  schema.applies = "update";
  schema.changes_named_rows_only = [](const AttributeMap&) { return true; };
  return schema;
}

}  // namespace

TableOptions table_options(const MakeGrowingTableAttrs& attrs, const std::string& name,
                           uint64_t seed) {
  const std::string& table = attrs.table_name.empty() ? name : attrs.table_name;
  const uint64_t count = not_negative(attrs.admission_count, "admission_count", table);
  return {
      .name = table,
      .seed = attrs.seed != 0 ? static_cast<uint64_t>(attrs.seed) : seed,
      .width = not_negative(attrs.width, "width", table),
      .states = states_of(attrs, table),
      .initializer = {.kind = parse_word<RowInitializer::Kind>(kInitializers, attrs.initializer,
                                                               "initializer", table),
                      .a = attrs.initializer_a,
                      .b = attrs.initializer_b},
      .admission = {.kind = parse_word<Admission::Kind>(kAdmissions, attrs.admission, "admission",
                                                        table),
                    .probability = attrs.admission_probability,
                    .count = static_cast<uint32_t>(
                        std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max())),
                    .threshold = attrs.admission_threshold,
                    .counted_ids = not_negative(attrs.counted_ids, "counted_ids", table)},
      .score = {.show_coefficient = attrs.show_coefficient,
                .click_coefficient = attrs.click_coefficient},
      .fields = {.seen = attrs.keeps_seen, .count = attrs.keeps_count, .score = attrs.keeps_score},
      .deltas = attrs.deltas,
      .memory = {.bytes = not_negative(attrs.memory_bytes, "memory_bytes", table),
                 .rank = parse_word<RowRank>(kRanks, attrs.memory_rank, "memory_rank", table)}};
}

MakeGrowingTableAttrs table_attributes(const TableOptions& options) {
  MakeGrowingTableAttrs attrs{.table_name = options.name,
                              .seed = static_cast<int64_t>(options.seed),
                              .width = static_cast<int64_t>(options.width),
                              .initializer = word_of(kInitializers, options.initializer.kind),
                              .initializer_a = options.initializer.a,
                              .initializer_b = options.initializer.b,
                              .state_names = {},
                              .state_widths = {},
                              .state_values = {},
                              .admission = word_of(kAdmissions, options.admission.kind),
                              .admission_probability = options.admission.probability,
                              .admission_count = options.admission.count,
                              .admission_threshold = options.admission.threshold,
                              .counted_ids = static_cast<int64_t>(options.admission.counted_ids),
                              .show_coefficient = options.score.show_coefficient,
                              .click_coefficient = options.score.click_coefficient,
                              .keeps_seen = options.fields.seen,
                              .keeps_count = options.fields.count,
                              .keeps_score = options.fields.score,
                              .deltas = options.deltas,
                              .memory_bytes = static_cast<int64_t>(options.memory.bytes),
                              .memory_rank = word_of(kRanks, options.memory.rank)};
  for (const tables::RowState& state : options.states) {
    attrs.state_names.push_back(state.name);
    attrs.state_widths.push_back(static_cast<int64_t>(state.width));
    attrs.state_values.push_back(static_cast<double>(state.initial));
  }
  return attrs;
}

bool updates_rows(std::string_view type) {
  return row_update(type) != nullptr;
}

UpdateGrowingTableAttrs row_update_attributes(const Operator& update) {
  return parse_attributes<UpdateGrowingTableAttrs>(kUpdate, divided(update.attrs).first);
}

Operator row_update_of(const Operator& update) {
  const auto attrs = row_update_attributes(update);
  Operator inner;
  inner.type = attrs.update;
  inner.inputs = update.inputs;
  inner.outputs = update.outputs;
  inner.attrs = divided(update.attrs).second;
  if (attrs.state_inputs.size() != attrs.states.size() ||
      attrs.state_outputs.size() != attrs.states.size()) {
    fail_table(update.input("Param").front(), "states have slots of the update",
               str_cat(attrs.states.size(), " inputs and outputs"),
               str_cat(attrs.state_inputs.size(), " and ", attrs.state_outputs.size()),
               "give one of each for every state");
  }
  for (size_t i = 0; i < attrs.states.size(); ++i) {
    inner.inputs[attrs.state_inputs[i]] = {attrs.states[i]};
    inner.outputs[attrs.state_outputs[i]] = {attrs.states[i]};
  }
  return inner;
}

void add_growing_table_ops(OpTable& table) {
  table.add(make_schema<MakeGrowingTableAttrs>("make_growing_table", {}, {typed(one("Out"))},
                                               infer_make));
  const GradSpec spec{.inputs = {"Table", "Ids"}, .wanted = {"Table"}};
  // Counts lookups, and so would do something else the second time.
  table.add(draws_numbers(make_schema<LookupGrowingTableAttrs>(
      kLookup, {one("Table"), many("Ids")}, {typed(many("Out"))}, infer_growing_lookup,
      usual_gradient(spec))));
  table.add(make_schema<LookupGrowingTableAttrs>(
      str_cat(kLookup, "_grad"), {one("Table"), many("Ids"), typed(many("Out@GRAD"))},
      {one("Table@GRAD")}, infer_growing_lookup_grad));
  table.add(draws_numbers(make_schema<LookupGrowingTableAttrs>(
      "add_growing_table_shows", {one("Table"), many("Ids"), typed(one("Show")), one("Click")}, {},
      infer_shows)));
  table.add(update_schema());
}

}  // namespace fleet::fluid
