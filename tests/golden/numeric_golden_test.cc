// What the original system computes, file by file: ops with gradients. The other families have
// files of their own.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/ops/append.h"
#include "tests/golden/numeric_case.h"
#include "tests/golden/numeric_departures.h"

namespace fleet::fluid::golden {
namespace {

// The original passes an ordinary gradient where the loss is 0 because the label is ignored; here
// such rows pass nothing back, so only the outputs of that file are compared.
const std::set<std::string> kGradientDeparts = {"softmax_with_cross_entropy_03"};

LoD lod_of(const Json& lengths) {
  LoD lod;
  for (const Json& level : lengths) {
    lod.push_back({0});
    for (const Json& length : level)
      lod.back().push_back(lod.back().back() + length.get<int64_t>());
  }
  return lod;
}

std::vector<int64_t> rows_of(const Tensor& tensor) {
  const auto rows = tensor.values<int64_t>();
  return {rows.begin(), rows.end()};
}

// The whole table, equal rows summed.
Tensor dense_of(const SelectedRows& rows) {
  const int64_t width = rows.value.numel() / std::max<int64_t>(rows.value.shape()[0], 1);
  Tensor dense = Tensor::zeros(DType::kFloat32, Shape{rows.height, width});
  const auto values = rows.value.values<float>();
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    for (int64_t k = 0; k < width; ++k) {
      dense.data<float>()[rows.rows[i] * width + k] +=
          values[i * static_cast<size_t>(width) + static_cast<size_t>(k)];
    }
  }
  return dense;
}

class Ops : public FileCase {
 protected:
  void SetUp() override {
    FileCase::SetUp();
    if (IsSkipped()) return;
    const auto unknown =
        unknown_ops(json_.contains("ops") ? json_["ops"] : Json::array({{{"type", json_["op"]}}}));
    if (!unknown.empty()) GTEST_SKIP() << "not yet known: " << join(unknown, ", ");
  }

  std::string add_input(const Json& input) {
    VarDesc var;
    var.name = input["name"].get<std::string>();
    Tensor value = tensor(input["tensor"].get<std::string>());
    if (input.contains("lod_lengths")) value.set_lod(lod_of(input["lod_lengths"]));
    var.dtype = value.dtype();
    var.shape = value.shape();
    var.lod_level = static_cast<int32_t>(value.lod().size());
    var.is_data = true;
    program_.global_block().add_var(var);
    feed_.emplace_back(var.name, value);
    return var.name;
  }

  void add_output(const std::string& name) {
    VarDesc var;
    var.name = name;
    program_.global_block().add_var(var);
  }

  // The op of the file, its outputs named <slot>_<i>.
  void append_single() {
    const OpSchema& schema = OpTable::standard().at(json_["op"].get<std::string>());
    Operator op;
    op.type = schema.type;
    for (const auto& [slot, list] : json_["inputs"].items()) {
      for (const Json& input : list) op.inputs[slot].push_back(add_input(input));
    }
    for (const SlotSpec& slot : schema.outputs) {
      const Json list = json_["outputs"].value(slot.name, Json::array());
      const size_t count = std::max<size_t>(list.size(), 1);
      for (size_t i = 0; i < count; ++i) {
        op.outputs[slot.name].push_back(output_name(slot.name, i));
        const VarDesc* there = program_.global_block().find_var(op.outputs[slot.name].back());
        if (there == nullptr) add_output(op.outputs[slot.name].back());
      }
    }
    op.attrs = attributes(schema, json_["attrs_effective"]);
    const NumericDeparture* departure = find_departure("ops", json_);
    if (departure != nullptr && departure->option == "original_form") {
      op.attrs["original_form"] = true;
    }
    append_op(program_.global_block(), std::move(op));
  }

  void append_composite() {
    for (const auto& [slot, list] : json_["inputs"].items()) {
      for (const Json& input : list) add_input(input);
    }
    Block& block = program_.global_block();
    Program scratch;
    append_ops(scratch.global_block(), json_["ops"]);
    for (const auto& op : scratch.global_block().ops()) {
      for (const std::string& name : op->output_names()) add_output(name);
      append_op(block, *op);
    }
  }

  // Name of an output's variable; the last op's output for a composite.
  std::string output_name(const std::string& slot, size_t i) {
    if (json_["op"] != "composite") {
      const Json list = json_["outputs"].value(slot, Json::array());
      const std::string same =
          i < list.size() ? list[i].value("same_variable_as", "") : std::string();
      if (same.empty()) return str_cat(slot, "_", i);
      return json_["inputs"][same][i]["name"].get<std::string>();
    }
    const auto& ops = program_.global_block().ops();
    return ops.back()->output_names().front();
  }

  // A loss whose gradient with respect to each output is the file's cotangent.
  void append_loss() {
    Block& block = program_.global_block();
    std::vector<std::string> parts;
    for (const auto& [slot, list] : json_["cotangents"].items()) {
      for (size_t i = 0; i < list.size(); ++i) {
        if (!list[i].is_string()) continue;
        const std::string cotangent =
            add_input({{"name", str_cat("cot_", slot, "_", i)}, {"tensor", list[i]}});
        block.var(cotangent).stop_gradient = true;
        const std::string product = str_cat("product_", slot, "_", i);
        parts.push_back(str_cat("part_", slot, "_", i));
        add_output(product);
        add_output(parts.back());
        append_op(block, {.type = "elementwise_mul",
                          .inputs = {{"X", {output_name(slot, i)}}, {"Y", {cotangent}}},
                          .outputs = {{"Out", {product}}},
                          .attrs = {}});
        append_op(block, {.type = "reduce_sum",
                          .inputs = {{"X", {product}}},
                          .outputs = {{"Out", {parts.back()}}},
                          .attrs = {{"reduce_all", true}}});
      }
    }
    add_output("loss");
    append_op(
        block,
        {.type = "sum", .inputs = {{"X", parts}}, .outputs = {{"Out", {"loss"}}}, .attrs = {}});
    append_backward(Variable(block, block.var("loss")));
  }

  Program program_;
  Feed feed_;
};

TEST_P(Ops, ComputesWhatTheOriginalDoes) {
  if (json_["op"] == "composite") {
    append_composite();
  } else {
    append_single();
  }
  std::vector<Fetch> fetch;
  std::vector<std::string> expected;
  std::vector<std::pair<std::string, Json>> sparse;  // gradients of selected rows
  for (const auto& [slot, list] : json_["outputs"].items()) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].value("random", false)) GTEST_SKIP() << "random: only moments are stored";
      if (!list[i].value("compare", true)) continue;
      fetch.emplace_back(output_name(slot, i));
      expected.push_back(list[i]["tensor"].get<std::string>());
    }
  }
  const bool gradients =
      json_.contains("cotangents") && !kGradientDeparts.contains(json_["case"].get<std::string>());
  if (gradients) {
    append_loss();
    for (const auto& [slot, list] : json_["gradients"].items()) {
      for (const Json& grad : list) {
        if (grad.is_null()) continue;
        const auto name = grad["input"].get<std::string>() + "@GRAD";
        if (grad.value("kind", "dense") == "selected_rows") {
          program_.global_block().var(name).persistable = true;
          sparse.emplace_back(name, grad);
          continue;
        }
        expected.push_back(grad["tensor"].get<std::string>());
        if (program_.global_block().find_var(name) != nullptr) {
          fetch.emplace_back(name);
          continue;
        }
        // An op that has no gradient here: the original must pass back zeros.
        const Tensor stored = tensor(expected.back());
        EXPECT_EQ(difference(Tensor::zeros(stored.dtype(), stored.shape()), stored, 0), "") << name;
        expected.pop_back();
      }
    }
  }
  Executor executor;
  const auto results = executor.run(program_, feed_, fetch);
  for (size_t i = 0; i < results.size(); ++i) {
    expect_equal(results[i], expected[i], rtol(json_["tolerance"]));
  }
  for (const auto& [name, grad] : sparse) {
    const Value* value = executor.scope().find(name);
    ASSERT_TRUE(value != nullptr && std::holds_alternative<SelectedRows>(*value)) << name;
    const SelectedRows stored{.rows = rows_of(tensor(grad["rows"].get<std::string>())),
                              .height = grad["height"].get<int64_t>(),
                              .value = tensor(grad["value"].get<std::string>())};
    EXPECT_EQ(difference(dense_of(std::get<SelectedRows>(*value)), dense_of(stored),
                         rtol(json_["tolerance"])),
              "")
        << name;
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ops);
INSTANTIATE_TEST_SUITE_P(Golden, Ops, ::testing::ValuesIn(cases("ops")), case_name);

TEST(NumericGolden, HasFiles) {
  EXPECT_FALSE(cases("ops").empty()) << "no golden files in " << directory();
}

}  // namespace
}  // namespace fleet::fluid::golden
