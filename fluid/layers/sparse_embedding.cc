#include "fluid/layers/sparse_embedding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/nn/growing_table.h"

namespace fleet::fluid {
namespace {

using tables::RowInitializer;

constexpr const char* kMake = "make_growing_table";

// The first values of rows, and the seed that the initialiser names (0: the program's).
struct FirstValues {
  RowInitializer how;
  int32_t seed = 0;
};

class FirstValuesOf {
 public:
  FirstValuesOf(const LayerHelper& helper, int64_t dim)
      : helper_(helper), dim_(static_cast<double>(dim)) {}

  FirstValues operator()(const initializer::Constant& how) const {
    return {RowInitializer::constant(how.value)};
  }
  FirstValues operator()(const initializer::Uniform& how) const {
    return {RowInitializer::uniform(how.low, how.high), how.seed};
  }
  FirstValues operator()(const initializer::Normal& how) const {
    return {RowInitializer::normal(how.loc, how.scale), how.seed};
  }
  FirstValues operator()(const initializer::TruncatedNormal& how) const {
    return {RowInitializer::truncated_normal(how.loc, how.scale), how.seed};
  }
  FirstValues operator()(const initializer::Xavier& how) const {
    const double in = how.fan_in.value_or(dim_);
    const double out = how.fan_out.value_or(dim_);
    return {how.uniform ? RowInitializer::xavier_uniform(in, out)
                        : RowInitializer::xavier_normal(in, out),
            how.seed};
  }
  FirstValues operator()(const initializer::MSRA& how) const {
    const double in = how.fan_in.value_or(dim_);
    const double bound = std::sqrt(6.0 / in);
    return {how.uniform ? RowInitializer::uniform(-bound, bound)
                        : RowInitializer::normal(0, std::sqrt(2.0 / in)),
            how.seed};
  }
  template <class Other>
  FirstValues operator()(const Other&) const {
    helper_.fail("this initializer needs to know all rows of a table",
                 "Constant, Uniform, Normal, TruncatedNormal, Xavier or MSRA", "Assign or Bilinear",
                 "choose another initializer for the growing table");
  }

 private:
  const LayerHelper& helper_;
  double dim_;
};

void set_entry(const SparseEmbeddingOptions& options, MakeGrowingTableAttrs& attrs) {
  if (const auto* entry = std::get_if<ProbabilityEntry>(&options.entry)) {
    attrs.admission = "probability";
    attrs.admission_probability = entry->probability;
  } else if (const auto* count = std::get_if<CountFilterEntry>(&options.entry)) {
    attrs.admission = "count";
    attrs.admission_count = count->count_filter;
  } else if (const auto* score = std::get_if<ShowClickEntry>(&options.entry)) {
    attrs.admission = "score";
    attrs.admission_threshold = score->threshold;
    attrs.keeps_score = true;
  }
}

AttributeMap make_attributes(const LayerHelper& helper, const std::string& name, int64_t dim,
                             const SparseEmbeddingOptions& options) {
  const Initializer how = options.param_attr.initializer.value_or(initializer::Xavier{});
  const FirstValues first = std::visit(FirstValuesOf(helper, dim), how);
  MakeGrowingTableAttrs attrs = table_attributes({.name = name,
                                                  .seed = static_cast<uint64_t>(first.seed),
                                                  .width = static_cast<size_t>(dim),
                                                  .initializer = first.how,
                                                  .admission = {.counted_ids = options.counted_ids},
                                                  .score = options.score,
                                                  .fields = options.fields,
                                                  .deltas = options.deltas,
                                                  .memory = options.memory});
  set_entry(options, attrs);
  return to_attributes(attrs);
}

const Operator* find_maker(const Block& startup, const std::string& table) {
  for (const auto& op : startup.ops()) {
    if (op->type == kMake && op->output("Out").front() == table) return op.get();
  }
  return nullptr;
}

// States come from optimizers.
bool is_state(std::string_view attribute) {
  return attribute.starts_with("state_");
}

void check_shared(const LayerHelper& helper, const std::string& name, const AttributeMap& there,
                  const AttributeMap& wanted) {
  const auto check = [&](const std::string& attribute) {
    if (there.at(attribute) == wanted.at(attribute)) return;
    helper.fail(str_cat("a shared growing table must have one ", attribute),
                str_cat("table '", name, "' with ", to_string(there.at(attribute))),
                to_string(wanted.at(attribute)),
                "give this call another param_attr.name, or the same options");
  };
  check("width");  // which others follow
  for (const auto& [attribute, value] : wanted) {
    if (!is_state(attribute)) check(attribute);
  }
}

void check_options(const LayerHelper& helper, int64_t dim, const SparseEmbeddingOptions& options) {
  if (dim < 1) helper.fail("dim is no width of rows", "1 or more", str_cat(dim), "give a width");
  if (options.dtype != DType::kFloat32) {
    helper.fail("rows of growing tables are float32", "float32",
                std::string(dtype_name(options.dtype)), "leave dtype at its default");
  }
  const ParamAttr& attr = options.param_attr;
  if (attr.regularizer) {
    helper.fail("a regularizer would change every row of the table in every step", "none",
                attr.regularizer->kind, "use ShrinkRule and evictions, or leave it out");
  }
  if (attr.weight_norm || attr.omit || attr.do_model_average.value_or(false)) {
    helper.fail("a growing table can neither be averaged, normalised nor left out",
                "param_attr without weight_norm, omit and do_model_average", "one of them",
                "leave it out");
  }
}

// The table in both programs.
Variable table_parameter(const LayerHelper& helper, int64_t dim,
                         const SparseEmbeddingOptions& options) {
  check_options(helper, dim, options);
  const ParamAttr& attr = options.param_attr;
  const std::string name =
      attr.name.empty() ? unique_name::generate(helper.name() + ".w") : attr.name;
  const AttributeMap attributes = make_attributes(helper, name, dim, options);
  Block& block = helper.main().global_block();
  const VarDesc* there = block.find_var(name);
  if (there != nullptr && there->kind != VarKind::kGrowingTable) {
    helper.fail(str_cat("parameter '", name, "' is there and is no growing table"),
                "a growing table", std::string(var_kind_name(there->kind)),
                "give this layer's parameter another name");
  }
  VarDesc desc = describe_parameter(attr, name, Shape{-1, dim}, DType::kFloat32);
  desc.kind = VarKind::kGrowingTable;
  desc.do_model_average = false;
  Block& startup = helper.startup().global_block();
  if (const Operator* maker = find_maker(startup, name)) {
    check_shared(helper, name, maker->attrs, attributes);
  } else {
    startup.add_var(desc);
    Operator op;
    op.type = kMake;
    op.outputs["Out"] = {name};
    op.attrs = attributes;
    insert_op(startup, 0, std::move(op));
  }
  return Variable(block, block.add_var(std::move(desc)));
}

AttributeMap lookup_attributes(const SparseEmbeddingOptions& options, bool ids_end_in_one) {
  return to_attributes(LookupGrowingTableAttrs{.is_test = options.is_test,
                                               .ids_end_in_one = ids_end_in_one,
                                               .has_padding = options.padding_idx.has_value(),
                                               .padding_idx = options.padding_idx.value_or(0)});
}

std::vector<Variable> look_up_slots(const std::vector<Variable>& slots, int64_t dim,
                                    const SparseEmbeddingOptions& options, bool ids_end_in_one) {
  const LayerHelper helper("sparse_embedding");
  helper.check_inputs(slots, "slots");
  const auto* shown = std::get_if<ShowClickEntry>(&options.entry);
  if (shown != nullptr) {
    helper.check_input(shown->show, "ShowClickEntry::show");
    helper.check_input(shown->click, "ShowClickEntry::click");
  }
  const Variable table = table_parameter(helper, dim, options);
  const AttributeMap attributes = lookup_attributes(options, ids_end_in_one);
  // Before the lookup, so that the step's own shows count.
  if (shown != nullptr) {
    helper.append("add_growing_table_shows",
                  {{"Table", {table.name()}},
                   {"Ids", names_of(slots)},
                   {"Show", {shown->show.name()}},
                   {"Click", {shown->click.name()}}},
                  {}, attributes);
  }
  std::vector<Variable> outs;
  for (size_t i = 0; i < slots.size(); ++i) outs.push_back(helper.temp(DType::kFloat32));
  helper.append("lookup_growing_table", {{"Table", {table.name()}}, {"Ids", names_of(slots)}},
                {{"Out", names_of(outs)}}, attributes);
  return outs;
}

}  // namespace

Variable layers::sparse_embedding(const Variable& ids, int64_t dim,
                                  const SparseEmbeddingOptions& options) {
  return look_up_slots({ids}, dim, options, true).front();
}

std::vector<Variable> layers::sparse_embedding(const std::vector<Variable>& slots, int64_t dim,
                                               const SparseEmbeddingOptions& options) {
  return look_up_slots(slots, dim, options, true);
}

Variable sparse_embedding(const Variable& ids, int64_t dim, const SparseEmbeddingOptions& options) {
  return look_up_slots({ids}, dim, options, false).front();
}

std::vector<Variable> sparse_embedding(const std::vector<Variable>& slots, int64_t dim,
                                       const SparseEmbeddingOptions& options) {
  return look_up_slots(slots, dim, options, false);
}

}  // namespace fleet::fluid
