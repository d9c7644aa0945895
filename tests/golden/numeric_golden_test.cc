// What the original system computes, file by file: ops with gradients, optimizers, learning-rate
// schedules and training runs.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/ops/append.h"
#include "tests/golden/numeric_support.h"

namespace fleet::fluid::golden {
namespace {

// The original passes an ordinary gradient where the loss is 0 because the label is ignored; here
// such rows pass nothing back, so only the outputs of that file are compared.
const std::set<std::string> kGradientDeparts = {"softmax_with_cross_entropy_03"};

std::string case_name(const testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

class FileCase : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    json_ = load(GetParam());
    if (!json_.contains("file")) GTEST_SKIP() << "not a case";
    reader_ = SafetensorsReader::open(GetParam().parent_path() / json_["file"].get<std::string>())
                  .value();
    const auto unknown = unknown_ops(ops());
    if (!unknown.empty()) GTEST_SKIP() << "not yet known: " << join(unknown, ", ");
  }

  virtual Json ops() const { return json_.contains("ops") ? json_["ops"] : Json::array(); }
  Tensor tensor(const std::string& name) const { return reader_.read(name).value(); }
  double rtol(const Json& tolerance) const { return tolerance["rtol"].get<double>(); }
  void expect_equal(const Tensor& got, const std::string& name, double allowed) const {
    const std::string differs = difference(got, tensor(name), allowed);
    EXPECT_TRUE(differs.empty()) << name << " " << differs;
  }

  Json json_;
  SafetensorsReader reader_;
};

class Ops : public FileCase {
 protected:
  Json ops() const override {
    if (json_.contains("ops")) return json_["ops"];
    return Json::array({{{"type", json_["op"]}}});
  }

  std::string add_input(const Json& input) {
    VarDesc var;
    var.name = input["name"].get<std::string>();
    const Tensor value = tensor(input["tensor"].get<std::string>());
    var.dtype = value.dtype();
    var.shape = value.shape();
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
        op.outputs[slot.name].push_back(str_cat(slot.name, "_", i));
        add_output(op.outputs[slot.name].back());
      }
    }
    op.attrs = attributes(schema, json_["attrs_effective"]);
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
    if (json_["op"] != "composite") return str_cat(slot, "_", i);
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
        ASSERT_EQ(grad.value("kind", "dense"), "dense");
        const auto name = grad["input"].get<std::string>() + "@GRAD";
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
}

class Optimizers : public FileCase {
 protected:
  void add_state(Executor& executor, Block& block, const std::string& name, Tensor value) {
    VarDesc var;
    var.name = name;
    var.shape = value.shape();
    var.persistable = true;
    block.add_var(var);
    executor.scope().var(name) = std::move(value);
  }
};

TEST_P(Optimizers, MoveParametersAsTheOriginalDoes) {
  const std::string id = json_["case"].get<std::string>();
  for (const auto& [name, parameter] : json_["parameters"].items()) {
    if (parameter["gradient"] != "dense") GTEST_SKIP() << "not yet known: selected rows";
  }
  Program program;
  Block& block = program.global_block();
  Executor executor;
  std::map<std::string, std::map<std::string, std::string>> variables;  // parameter, slot -> name
  for (const Json& op : json_["ops"]) {
    if (!op["inputs"].contains("Param")) continue;
    const auto parameter = op["inputs"]["Param"][0].get<std::string>();
    for (const auto& slot : json_["state_slots"][parameter]) {
      const auto name = op["inputs"][slot.get<std::string>()][0].get<std::string>();
      variables[parameter][slot.get<std::string>()] = name;
      const std::string stored =
          slot == "Param" ? str_cat(id, "/init/", parameter)
                          : str_cat(id, "/init_state/", parameter, "/", slot.get<std::string>());
      add_state(executor, block, name, tensor(stored));
    }
    VarDesc grad;
    grad.name = op["inputs"]["Grad"][0].get<std::string>();
    grad.shape = tensor(str_cat(id, "/init/", parameter)).shape();
    grad.is_data = true;
    block.add_var(grad);
  }
  add_state(executor, block, "learning_rate_0",
            Tensor::scalar(json_["arguments"].value("learning_rate", 0.001f)));
  append_ops(block, json_["ops"]);
  for (int step = 1; step <= 10; ++step) {
    Feed feed;
    for (const auto& [parameter, slots] : variables) {
      feed.emplace_back(parameter + "@GRAD", tensor(str_cat(id, "/grad/", step, "/", parameter)));
    }
    executor.run(program, feed);
    for (const auto& [parameter, slots] : variables) {
      for (const auto& [slot, name] : slots) {
        const std::string stored = str_cat(id, "/after/", step, "/", parameter, "/", slot);
        if (!reader_.contains(stored)) continue;
        expect_equal(executor.scope().tensor(name), stored, rtol(json_["tolerance"]));
      }
    }
  }
}

class Schedules : public FileCase {};

TEST_P(Schedules, GiveTheRatesOfTheOriginal) {
  if (!json_["sub_block_ops"].empty()) GTEST_SKIP() << "not yet known: sub-blocks";
  Program program;
  Block& block = program.global_block();
  Executor executor;
  const auto kind = json_["schedule"].value("kind", std::string());
  for (const Json& name : json_["counter_variables"]) {
    VarDesc counter;
    counter.name = name.get<std::string>();
    counter.dtype = DType::kInt64;
    counter.shape = Shape{1};
    counter.persistable = true;
    block.add_var(counter);
    const int64_t before_first = kind.find("noam") != std::string::npos ? 0 : -1;
    executor.scope().var(counter.name) = Tensor::scalar<int64_t>(before_first);
  }
  append_ops(block, json_["ops"]);
  const std::string rate = block.ops().back()->output_names().front();
  const Tensor expected = tensor(json_["tensor"].get<std::string>());
  Tensor got(DType::kFloat32, expected.shape());
  for (int64_t i = 0; i < expected.numel(); ++i) {
    got.data<float>()[i] = executor.run(program, {}, {rate})[0].item<float>();
  }
  EXPECT_EQ(difference(got, expected, rtol(json_["tolerance"])), "");
}

class Training : public FileCase {
 protected:
  void SetUp() override {
    FileCase::SetUp();
    if (IsSkipped()) return;
    Block& block = program_.global_block();
    for (const auto& [name, entry] : reader_.entries()) {
      if (name.starts_with("init/")) add_var(block, name.substr(5), entry, true);
      if (name.starts_with("data/")) add_var(block, name.substr(5), entry, false);
    }
    append_ops(block, json_["ops"]);
  }

  void add_var(Block& block, const std::string& name, const SafetensorsReader::Entry& entry,
               bool persistable) {
    VarDesc var;
    var.name = name;
    var.dtype = entry.dtype;
    var.shape = entry.shape;
    var.persistable = persistable;
    var.is_data = !persistable;
    if (!persistable) var.shape.set(0, Shape::kUnknown);
    block.add_var(var);
    if (persistable) {
      executor_.scope().var(name) = tensor("init/" + name);
    } else {
      pool_[name] = tensor("data/" + name);
    }
  }

  Tensor first_state(const std::string& name, const SafetensorsReader::Entry& entry) const {
    const auto has = [&name](const char* part) { return name.find(part) != std::string::npos; };
    if (has("COUNTER")) return Tensor::scalar<int64_t>(-1);
    if (has("learning_rate")) return Tensor::scalar(json_["settings"]["lr"].get<float>());
    if (has("beta1_pow")) return Tensor::scalar(0.9f);
    if (has("beta2_pow")) return Tensor::scalar(0.999f);
    return Tensor::zeros(entry.dtype, entry.shape);
  }

  // Rows of the pool.
  Feed feed(std::span<const int64_t> rows) const {
    Feed result;
    for (const auto& [name, all] : pool_) {
      Shape shape = all.shape();
      shape.set(0, static_cast<int64_t>(rows.size()));
      Tensor batch(all.dtype(), shape);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        batch.rows(at, at + 1).copy_from(all.rows(rows[i], rows[i] + 1));
      }
      result.emplace_back(name, batch);
    }
    return result;
  }

  Program program_;
  Executor executor_;
  NamedTensors pool_;
};

TEST_P(Training, FollowsTheOriginalStepByStep) {
  Block& block = program_.global_block();
  // States that have no initial value in the file start as the optimizer makes them.
  for (const auto& name : json_["state_at_end"]) {
    const auto text = name.get<std::string>();
    if (reader_.contains("init/" + text)) continue;
    const auto& entry = reader_.entries().at("final/" + text);
    VarDesc& var = block.var(text);
    var.persistable = true;
    var.dtype = entry.dtype;
    var.shape = entry.shape;
    executor_.scope().var(text) = first_state(text, entry);
  }
  std::string loss;
  for (const auto& op : block.ops()) {
    if (op->type == "mean") loss = op->output("Out").front();
  }
  const Tensor batches = tensor("batch_index");
  const Tensor losses = tensor("losses");
  Tensor got(losses.dtype(), losses.shape());
  const int64_t batch = batches.shape()[1];
  const double parameter_rtol = rtol(json_["tolerance"]["parameters"]);
  for (int64_t step = 0; step < batches.shape()[0]; ++step) {
    const auto rows = batches.values<int64_t>().subspan(static_cast<size_t>(step * batch),
                                                        static_cast<size_t>(batch));
    got.data<float>()[step] = executor_.run(program_, feed(rows), {loss})[0].item<float>();
    for (const auto& [name, shape] : json_["parameters"].items()) {
      if (step == 0) {
        expect_equal(executor_.scope().tensor(name), "after_step_1/" + name, parameter_rtol);
      }
    }
  }
  EXPECT_EQ(difference(got, losses, rtol(json_["tolerance"]["losses"])), "");
  for (const auto& name : json_["state_at_end"]) {
    const auto text = name.get<std::string>();
    expect_equal(executor_.scope().tensor(text), "final/" + text, parameter_rtol);
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ops);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Optimizers);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Schedules);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Training);
INSTANTIATE_TEST_SUITE_P(Golden, Ops, testing::ValuesIn(cases("ops")), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, Optimizers, testing::ValuesIn(cases("optimizers")), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, Schedules, testing::ValuesIn(cases("lr_schedules")), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, Training, testing::ValuesIn(cases("training")), case_name);

TEST(NumericGolden, HasFiles) {
  EXPECT_FALSE(cases("ops").empty()) << "no golden files in " << directory();
}

}  // namespace
}  // namespace fleet::fluid::golden
