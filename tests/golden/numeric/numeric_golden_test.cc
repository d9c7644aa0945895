// What Paddle computes, file by file: ops with gradients. The other families have
// files of their own.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/ops/append.h"
#include "tests/golden/numeric/numeric_case.h"
#include "tests/golden/numeric/numeric_departures.h"

namespace fleet::fluid::golden {
namespace {

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
template <class T>
Tensor dense_of_type(const SelectedRows& rows) {
  const int64_t width = rows.value.numel() / std::max<int64_t>(rows.value.shape()[0], 1);
  Tensor dense = Tensor::zeros(rows.value.dtype(), Shape{rows.height, width});
  const auto values = rows.value.values<T>();
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    for (int64_t k = 0; k < width; ++k) {
      dense.data<T>()[rows.rows[i] * width + k] +=
          values[i * static_cast<size_t>(width) + static_cast<size_t>(k)];
    }
  }
  return dense;
}

Tensor dense_of(const SelectedRows& rows) {
  return rows.value.dtype() == DType::kFloat64 ? dense_of_type<double>(rows)
                                               : dense_of_type<float>(rows);
}

// The files whose op has two forms.
std::vector<std::filesystem::path> files_of_two_forms() {
  auto files = cases("ops");
  std::erase_if(files, [](const std::filesystem::path& path) {
    const OpSchema* schema = OpTable::standard().find(load(path).value("op", ""));
    return schema == nullptr || !schema->normalize ||
           !schema->normalize({}).contains("paddle_form");
  });
  return files;
}

// The files of the family that have tensors (or, with moments, those of random ops, which have
// none).
std::vector<std::filesystem::path> op_files(bool moments) {
  auto files = cases("ops");
  std::erase_if(files, [moments](const std::filesystem::path& path) {
    return load(path).contains("moments") != moments;
  });
  return files;
}

class Ops : public FileCase {
 protected:
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
  void append_single(bool paddle) {
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
    if (paddle && asks(find_departures("ops", json_), "paddle_form")) {
      op.attrs["paddle_form"] = true;
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
    composite_ops_ = block.op_count();
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
    const Operator& last = program_.global_block().op(composite_ops_ - 1);
    const auto& out = last.output("Out");
    return out.empty() ? last.output_names().front() : out.front();
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

  // What the file has of outputs and gradients.
  void want_outputs();
  void want_gradients();

  // What a random op did: its mask and the outputs and gradients that follow from it.
  template <class T>
  void check_random(const std::vector<Tensor>& results);

  // What differs from the file when the op runs in Paddle's form, where its departures ask
  // for that, or in this library's own.
  std::vector<std::string> differences(bool paddle);

  Program program_;
  size_t composite_ops_ = 0;
  Feed feed_;
  std::vector<Fetch> fetch_;
  std::vector<std::string> expected_;                 // of each fetch
  std::vector<std::pair<std::string, Json>> sparse_;  // gradients of selected rows
  bool random_ = false;
};

// dropout: whatever the mask, an element that stays is multiplied by the same number as in the
// file, and about as many stay as should.
template <class T>
void Ops::check_random(const std::vector<Tensor>& results) {
  std::map<std::string, Tensor> got;
  std::map<std::string, Tensor> stored;
  for (size_t i = 0; i < results.size(); ++i) {
    got[fetch_[i].name] = results[i];
    stored[fetch_[i].name] = tensor(expected_[i]);
  }
  const std::string x_name = json_["inputs"]["X"][0]["name"];
  const Tensor x = tensor(json_["inputs"]["X"][0]["tensor"].get<std::string>());
  const Tensor cotangent = tensor(json_["cotangents"]["Out"][0].get<std::string>());
  const auto mask = got.at("Mask_0").values<uint8_t>();
  const auto stored_mask = stored.at("Mask_0").values<uint8_t>();
  const auto kept = std::find(stored_mask.begin(), stored_mask.end(), 1) - stored_mask.begin();
  ASSERT_LT(kept, x.numel());
  const auto at = static_cast<size_t>(kept);
  const T factor = stored.at("Out_0").values<T>()[at] / x.values<T>()[at];
  Tensor out(x.dtype(), x.shape());
  Tensor gradient(x.dtype(), x.shape());
  double stays = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto k = static_cast<size_t>(i);
    const T m = mask[k] != 0 ? factor : T{};
    stays += mask[k];
    out.data<T>()[i] = x.values<T>()[k] * m;
    gradient.data<T>()[i] = cotangent.values<T>()[k] * m;
  }
  EXPECT_EQ(difference(got.at("Out_0"), out, 1e-6), "");
  EXPECT_EQ(difference(got.at(x_name + "@GRAD"), gradient, 1e-6), "");
  const double p = json_["attrs_effective"]["dropout_prob"];
  const auto n = static_cast<double>(x.numel());
  EXPECT_NEAR(stays / n, 1 - p, 5 * std::sqrt(p * (1 - p) / n));
}

void Ops::want_outputs() {
  for (const auto& [slot, list] : json_["outputs"].items()) {
    for (size_t i = 0; i < list.size(); ++i) {
      random_ = random_ || list[i].value("random", false);
      if (!list[i].value("compare", true)) continue;
      fetch_.emplace_back(output_name(slot, i));
      expected_.push_back(list[i]["tensor"].get<std::string>());
    }
  }
}

void Ops::want_gradients() {
  for (const auto& [slot, list] : json_["gradients"].items()) {
    for (const Json& grad : list) {
      if (grad.is_null()) continue;
      const auto name = grad["input"].get<std::string>() + "@GRAD";
      if (grad.value("kind", "dense") == "selected_rows") {
        program_.global_block().var(name).persistable = true;
        sparse_.emplace_back(name, grad);
        continue;
      }
      const auto stored = grad["tensor"].get<std::string>();
      if (program_.global_block().find_var(name) != nullptr) {
        fetch_.emplace_back(name);
        expected_.push_back(stored);
        continue;
      }
      // An op that has no gradient here: Paddle must pass back zeros.
      const Tensor value = tensor(stored);
      EXPECT_EQ(difference(Tensor::zeros(value.dtype(), value.shape()), value, 0), "") << name;
    }
  }
}

std::vector<std::string> Ops::differences(bool paddle) {
  if (json_["op"] == "composite") {
    append_composite();
  } else {
    append_single(paddle);
  }
  want_outputs();
  if (json_.contains("cotangents")) {
    append_loss();
    want_gradients();
  }
  Executor executor;
  const auto results = executor.run(program_, feed_, fetch_);
  if (random_) {
    const bool wide = json_["inputs"]["X"][0]["dtype"] == "float64";
    wide ? check_random<double>(results) : check_random<float>(results);
    return {};
  }
  std::vector<std::string> found;
  const auto compare = [&](const Tensor& got, const std::string& stored, const Tensor& expected) {
    const std::string differs = difference(got, expected, rtol(json_["tolerance"]));
    if (!differs.empty()) found.push_back(stored + " " + differs);
  };
  const bool overflows = paddle && json_["op"] == "elu" && json_.contains("cotangents");
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor expected = tensor(expected_[i]);
    const Tensor got =
        overflows && fetch_[i].name.ends_with("@GRAD")
            ? either_overflow(results[i], expected, tensor(json_["cotangents"]["Out"][0]))
            : results[i];
    compare(got, expected_[i], expected);
  }
  for (const auto& [name, grad] : sparse_) {
    const Value* value = executor.scope().find(name);
    if (value == nullptr || !std::holds_alternative<SelectedRows>(*value)) {
      found.push_back(name + " is not of selected rows");
      continue;
    }
    const SelectedRows stored{.rows = rows_of(tensor(grad["rows"].get<std::string>())),
                              .height = grad["height"].get<int64_t>(),
                              .value = tensor(grad["value"].get<std::string>())};
    compare(dense_of(std::get<SelectedRows>(*value)), name, dense_of(stored));
  }
  return found;
}

TEST_P(Ops, ComputesWhatPaddleDoes) {
  EXPECT_EQ(join(differences(true), "\n"), "");
}

// Ops of two forms, in this library's own.
class OwnForms : public Ops {};

TEST_P(OwnForms, DifferOnlyWhereADepartureIsListed) {
  const auto departures = find_departures("ops", json_);
  const std::string differs = join(differences(false), "\n");
  if (departures.empty()) {
    EXPECT_EQ(differs, "");
  }
  const Tensors tensors = [this](const std::string& name) { return tensor(name); };
  for (const NumericDeparture* departure : departures) {
    if (!departure->differs) continue;
    EXPECT_EQ(!differs.empty(), departure->differs(json_, tensors))
        << "listed as a departure: " << departure->here << "\n"
        << differs;
  }
}

// Ops that make random numbers: moments, range and quantiles, within what samples differ by.
class RandomOps : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(RandomOps, HaveTheMomentsOfPaddle) {
  const Json json = load(GetParam());
  ASSERT_THAT(unknown_in(json), ::testing::IsEmpty());
  Program program;
  Block& block = program.global_block();
  VarDesc var;
  var.name = "out";
  block.add_var(var);
  const OpSchema& schema = OpTable::standard().at(json["op"].get<std::string>());
  append_op(block, {.type = schema.type,
                    .inputs = {},
                    .outputs = {{"Out", {"out"}}},
                    .attrs = attributes(schema, json["attrs_effective"])});
  Executor executor;
  const Tensor out = executor.run(program, {}, {"out"})[0];
  const auto values = out.values<float>();
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const Json& moments = json["moments"];
  const auto n = static_cast<double>(sorted.size());
  ASSERT_EQ(n, moments["count"].get<double>());
  const auto moment = [&](double center, double scale, int power) {
    double sum = 0;
    for (const double x : sorted) sum += std::pow((x - center) / scale, power);
    return sum / n;
  };
  const double mean = moment(0, 1, 1);
  const double deviation = std::sqrt(moment(mean, 1, 2));
  const double scale = moments["std"].get<double>();
  EXPECT_NEAR(mean, moments["mean"].get<double>(), json["tolerance"]["mean"].get<double>());
  EXPECT_NEAR(deviation, scale, 4 * scale / std::sqrt(2 * n));
  EXPECT_NEAR(moment(mean, deviation, 3), moments["skew"].get<double>(), 6 * std::sqrt(6 / n));
  EXPECT_NEAR(moment(mean, deviation, 4), moments["kurtosis"].get<double>(), 6 * std::sqrt(24 / n));
  for (const auto& [share, quantile] : moments["quantiles"].items()) {
    const auto at = static_cast<size_t>(std::stod(share) * (n - 1));
    EXPECT_NEAR(sorted[at], quantile.get<double>(), 0.07 * scale) << share;
  }
  // Nothing lies far outside of what Paddle drew.
  const double range = moments["max"].get<double>() - moments["min"].get<double>();
  EXPECT_GT(sorted.front(), moments["min"].get<double>() - 0.2 * range);
  EXPECT_LT(sorted.back(), moments["max"].get<double>() + 0.2 * range);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ops);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OwnForms);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RandomOps);
INSTANTIATE_TEST_SUITE_P(Golden, Ops, ::testing::ValuesIn(op_files(false)), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, OwnForms, ::testing::ValuesIn(files_of_two_forms()), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, RandomOps, ::testing::ValuesIn(op_files(true)), case_name);

// A case whose file says that Paddle surprises there is of a rule that says what is done.
TEST_P(Ops, AreMarkedOnlyWhereARuleIs) {
  if (json_.value("departs", "").empty()) return;
  const bool kept = std::any_of(kept_forms().begin(), kept_forms().end(), [&](const auto& rule) {
    return rule.applies && has_family(rule.family, "ops") && rule.applies(json_);
  });
  EXPECT_TRUE(kept || !find_departures("ops", json_).empty()) << json_["departs"];
}

TEST(NumericGolden, HasFilesOfFamiliesThatAreKnown) {
  const std::set<std::string> known = {
      "ops", "optimizers", "clip_regularizer", "lr_schedules", "training", "distributed", "saves"};
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory())) {
    if (!entry.is_directory()) continue;
    const std::string family = entry.path().filename().string();
    EXPECT_TRUE(known.contains(family)) << "not a family that is known: " << entry.path();
    files += cases(family).size();
  }
  EXPECT_GT(files, 0u) << "no golden files in " << directory();
}

}  // namespace
}  // namespace fleet::fluid::golden
