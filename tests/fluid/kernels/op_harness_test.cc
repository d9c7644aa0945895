// Walks the op table: every kernel against the plain reference at the end of its list, gradients
// against finite differences, odd shapes, empty batches, values that are not finite.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <set>

#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/executor/executor.h"
#include "fluid/ops/append.h"

namespace fleet::fluid {
namespace {

struct Input {
  std::string slot;
  Shape shape;
  DType dtype = DType::kFloat64;  // floats take the type under test
  double low = -1;
  double high = 1;
  bool differentiable = true;
};

struct OpCase {
  std::string type;
  std::vector<Input> inputs;
  AttributeMap attrs = {};
  std::vector<std::string> outputs = {"Out"};
  std::string output = "Out";  // the one that is differentiated
  size_t output_copies = 1;    // variables in the slot "Out"
};

void PrintTo(const OpCase& op_case, std::ostream* out) {
  *out << op_case.type;
}

Input floats(std::string slot, Shape shape, double low = -1, double high = 1) {
  return {std::move(slot), shape, DType::kFloat64, low, high, true};
}
Input labels(Shape shape, int classes) {
  return {"Label", shape, DType::kInt64, 0, static_cast<double>(classes), false};
}

void add_elementwise(std::vector<OpCase>& all) {
  for (const char* type : {"relu", "sigmoid", "tanh", "exp", "square", "abs", "sin", "cos", "floor",
                           "ceil", "round", "sign"}) {
    all.push_back({.type = type, .inputs = {floats("X", {3, 37}, -2, 2)}});
  }
  for (const char* type : {"sqrt", "log", "reciprocal"}) {
    all.push_back({.type = type, .inputs = {floats("X", {5, 19}, 0.5, 3)}});
  }
  for (const char* op : {"add", "sub", "mul", "div", "max", "min", "pow"}) {
    const std::string type = str_cat("elementwise_", op);
    const double low = op == std::string("div") || op == std::string("pow") ? 0.5 : -1;
    const auto add = [&](Shape x, Shape y, int64_t axis) {
      all.push_back({.type = type,
                     .inputs = {floats("X", x, low, 2), floats("Y", y, low, 2)},
                     .attrs = {{"axis", axis}}});
    };
    add({4, 9}, {4, 9}, -1);
    add({4, 9}, {9}, -1);
    add({2, 3, 4, 5}, {3, 4}, 1);
    add({2, 3, 4}, {1}, -1);
    add({2, 3, 4}, {2}, 0);
    add({3, 1, 4}, {3, 5, 1}, -1);
  }
}

void add_products_and_losses(std::vector<OpCase>& all) {
  all.push_back({.type = "mul", .inputs = {floats("X", {5, 7}), floats("Y", {7, 3})}});
  all.push_back({.type = "mul",
                 .inputs = {floats("X", {2, 3, 4}), floats("Y", {2, 2, 5})},
                 .attrs = {{"x_num_col_dims", int64_t{2}}, {"y_num_col_dims", int64_t{2}}}});
  all.push_back({.type = "softmax", .inputs = {floats("X", {4, 6}, -3, 3)}});
  all.push_back({.type = "softmax",
                 .inputs = {floats("X", {2, 5, 3}, -3, 3)},
                 .attrs = {{"axis", int64_t{1}}}});
  all.push_back({.type = "cross_entropy",
                 .inputs = {floats("X", {6, 4}, 0.1, 1), labels({6, 1}, 4)},
                 .outputs = {"Y"},
                 .output = "Y"});
  all.push_back(
      {.type = "cross_entropy",
       .inputs = {floats("X", {6, 4}, 0.1, 1), {"Label", {6, 4}, DType::kFloat64, 0, 1, false}},
       .attrs = {{"soft_label", true}},
       .outputs = {"Y"},
       .output = "Y"});
  all.push_back({.type = "cross_entropy2",
                 .inputs = {floats("X", {6, 4}, 0.1, 1), labels({6, 1}, 4)},
                 .attrs = {{"ignore_index", int64_t{2}}},
                 .outputs = {"Y", "MatchX", "XShape"},
                 .output = "Y"});
  all.push_back({.type = "softmax_with_cross_entropy",
                 .inputs = {floats("Logits", {5, 4}, -3, 3), labels({5, 1}, 4)},
                 .attrs = {{"ignore_index", int64_t{1}}},
                 .outputs = {"Softmax", "Loss"},
                 .output = "Loss"});
  all.push_back({.type = "softmax_with_cross_entropy",
                 .inputs = {floats("Logits", {2, 4, 3}, -3, 3), labels({2, 1, 3}, 4)},
                 .attrs = {{"axis", int64_t{1}}},
                 .outputs = {"Softmax", "Loss"},
                 .output = "Loss"});
}

void add_reductions_and_moves(std::vector<OpCase>& all) {
  all.push_back({.type = "mean", .inputs = {floats("X", {5, 11})}});
  all.push_back(
      {.type = "sum", .inputs = {floats("X", {3, 5}), floats("X", {3, 5}), floats("X", {3, 5})}});
  for (const char* type : {"reduce_sum", "reduce_mean"}) {
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0}, {1}, {-1}, {0, 2}}) {
      all.push_back({.type = type, .inputs = {floats("X", {3, 4, 5})}, .attrs = {{"dim", dims}}});
    }
    all.push_back(
        {.type = type, .inputs = {floats("X", {3, 20})}, .attrs = {{"reduce_all", true}}});
    all.push_back({.type = type,
                   .inputs = {floats("X", {3, 4})},
                   .attrs = {{"dim", std::vector<int64_t>{1}}, {"keep_dim", true}}});
  }
  all.push_back({.type = "scale",
                 .inputs = {floats("X", {3, 5})},
                 .attrs = {{"scale", -2.5}, {"bias", 0.5}, {"bias_after_scale", false}}});
  all.push_back(
      {.type = "clip", .inputs = {floats("X", {3, 15})}, .attrs = {{"min", -0.4}, {"max", 0.6}}});
  all.push_back({.type = "clip_by_norm",
                 .inputs = {{"X", {3, 15}, DType::kFloat64, -1, 1, false}},
                 .attrs = {{"max_norm", 1.5}}});
  all.push_back({.type = "concat",
                 .inputs = {floats("X", {2, 3, 2}), floats("X", {2, 1, 2}), floats("X", {2, 2, 2})},
                 .attrs = {{"axis", int64_t{1}}}});
  all.push_back({.type = "split",
                 .inputs = {floats("X", {4, 6})},
                 .attrs = {{"axis", int64_t{-1}}, {"sections", std::vector<int64_t>{1, -1, 2}}},
                 .output_copies = 3});
  all.push_back({.type = "reshape2",
                 .inputs = {floats("X", {4, 6})},
                 .attrs = {{"shape", std::vector<int64_t>{2, -1, 3}}},
                 .outputs = {"Out", "XShape"}});
  all.push_back({.type = "transpose2",
                 .inputs = {floats("X", {2, 3, 4})},
                 .attrs = {{"axis", std::vector<int64_t>{2, 0, 1}}},
                 .outputs = {"Out", "XShape"}});
  all.push_back({.type = "assign", .inputs = {floats("X", {7})}});
  all.push_back({.type = "top_k",
                 .inputs = {floats("X", {5, 9})},
                 .attrs = {{"k", int64_t{3}}},
                 .outputs = {"Out", "Indices"}});
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  add_elementwise(all);
  add_products_and_losses(all);
  add_reductions_and_moves(all);
  return all;
}

std::string name_of(const testing::TestParamInfo<OpCase>& info) {
  return str_cat(info.param.type, "_", info.index);
}

// The program of one op, its inputs' values and its output.
class OneOp {
 public:
  OneOp(const OpCase& op_case, DType dtype) : case_(op_case) {
    Operator op;
    op.type = op_case.type;
    op.attrs = op_case.attrs;
    for (size_t i = 0; i < op_case.inputs.size(); ++i) {
      const Input& input = op_case.inputs[i];
      const std::string name = str_cat("in", i);
      op.inputs[input.slot].push_back(name);
      const DType type = input.dtype == DType::kInt64 ? input.dtype : dtype;
      feed_.emplace_back(name, values(input, type, name));
      VarDesc var;
      var.name = name;
      var.dtype = type;
      var.shape = input.shape;
      var.is_data = true;
      var.stop_gradient = !input.differentiable;
      block().add_var(var);
    }
    for (const std::string& slot : op_case.outputs) {
      for (size_t i = 0; i < op_case.output_copies; ++i) {
        op.outputs[slot].push_back(str_cat(slot, i));
        add_var(op.outputs[slot].back(), dtype);
      }
    }
    append_op(block(), op);
  }

  Block& block() { return program_.global_block(); }
  Feed& feed() { return feed_; }

  // The outputs, by the kernel at a position of the op's list (-1: the last).
  std::vector<Tensor> run(int position = 0) {
    KernelTable table;
    for (const auto& row : KernelTable::standard().rows()) {
      for (size_t i = 0; i < row.kernels.size(); ++i) {
        const size_t last = row.kernels.size() - 1;
        const size_t first = position < 0 ? last : std::min(static_cast<size_t>(position), last);
        if (i >= first) table.add_last(row.op, row.device, row.dtype, row.kernels[i]);
      }
    }
    Executor executor(CPUPlace(), {.kernels = &table});
    std::vector<Fetch> fetch;
    for (const std::string& slot : case_.outputs) {
      if (slot == "XShape") continue;
      for (size_t i = 0; i < case_.output_copies; ++i) fetch.emplace_back(str_cat(slot, i));
    }
    return executor.run(program_, feed_, fetch);
  }

  // Appends the sum of the outputs, each element with a weight of its own, and its gradient.
  void append_loss() {
    std::vector<std::string> parts;
    for (size_t i = 0; i < case_.output_copies; ++i) {
      const std::string out = str_cat(case_.output, i);
      const VarDesc& desc = block().var(out);
      Input weights = {"", desc.shape, DType::kFloat64, 0.5, 1.5, false};
      const std::string weight = str_cat("weight", i);
      feed_.emplace_back(weight, values(weights, DType::kFloat64, weight));
      VarDesc var;
      var.name = weight;
      var.dtype = DType::kFloat64;
      var.shape = desc.shape;
      var.is_data = true;
      var.stop_gradient = true;
      block().add_var(var);
      parts.push_back(str_cat("part", i));
      add_var(str_cat("weighted", i), DType::kFloat64);
      add_var(parts.back(), DType::kFloat64);
      append_op(block(), {.type = "elementwise_mul",
                          .inputs = {{"X", {out}}, {"Y", {weight}}},
                          .outputs = {{"Out", {str_cat("weighted", i)}}},
                          .attrs = {}});
      append_op(block(), {.type = "reduce_sum",
                          .inputs = {{"X", {str_cat("weighted", i)}}},
                          .outputs = {{"Out", {parts.back()}}},
                          .attrs = {{"reduce_all", true}}});
    }
    add_var("loss", DType::kFloat64);
    append_op(
        block(),
        {.type = "sum", .inputs = {{"X", parts}}, .outputs = {{"Out", {"loss"}}}, .attrs = {}});
    append_backward(Variable(block(), block().var("loss")));
  }

  Tensor fetch(Executor& executor, const std::string& name) {
    return executor.run(program_, feed_, {name})[0];
  }

 private:
  static Tensor values(const Input& input, DType dtype, const std::string& name) {
    Tensor tensor(dtype, input.shape);
    const RandomKey key = RandomKey::of(11, name);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const double x =
          input.low + (input.high - input.low) * uniform_double(key, static_cast<uint64_t>(i));
      if (dtype == DType::kFloat32) tensor.data<float>()[i] = static_cast<float>(x);
      if (dtype == DType::kFloat64) tensor.data<double>()[i] = x;
      if (dtype == DType::kInt64) tensor.data<int64_t>()[i] = static_cast<int64_t>(std::floor(x));
    }
    return tensor;
  }

  void add_var(const std::string& name, DType dtype) {
    VarDesc var;
    var.name = name;
    var.dtype = dtype;
    block().add_var(var);
  }

  const OpCase& case_;
  Program program_;
  Feed feed_;
};

double element(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == DType::kFloat32) return static_cast<double>(tensor.data<float>()[i]);
  if (tensor.dtype() == DType::kFloat64) return tensor.data<double>()[i];
  return static_cast<double>(tensor.data<int64_t>()[i]);
}

void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, double rtol) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape(), wanted[k].shape());
    double scale = 1e-30;
    for (int64_t i = 0; i < got[k].numel(); ++i) {
      const double x = element(wanted[k], i);
      if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
    }
    for (int64_t i = 0; i < got[k].numel(); ++i) {
      const double g = element(got[k], i);
      const double w = element(wanted[k], i);
      if (std::isnan(w) || std::isnan(g)) {
        EXPECT_EQ(std::isnan(g), std::isnan(w)) << "element " << i;
      } else if (std::isinf(w) || std::isinf(g)) {
        EXPECT_EQ(g, w) << "element " << i;
      } else {
        ASSERT_NEAR(g, w, rtol * scale) << "element " << i;
      }
    }
  }
}

class OpHarness : public testing::TestWithParam<OpCase> {};

TEST_P(OpHarness, EveryKernelAgreesWithTheReference) {
  OneOp exact(GetParam(), DType::kFloat64);
  const auto wanted = exact.run(-1);
  for (int position = 0; position < 3; ++position) {
    expect_near(OneOp(GetParam(), DType::kFloat64).run(position), wanted, 1e-13);
    expect_near(OneOp(GetParam(), DType::kFloat32).run(position), wanted, 3e-6);
  }
}

TEST_P(OpHarness, GradientsAreThoseOfFiniteDifferences) {
  const OpCase& op_case = GetParam();
  if (!OpTable::standard().at(op_case.type).gradient) GTEST_SKIP() << "no gradient";
  OneOp op(op_case, DType::kFloat64);
  op.append_loss();
  Executor executor;
  for (size_t k = 0; k < op_case.inputs.size(); ++k) {
    if (!op_case.inputs[k].differentiable) continue;
    const std::string name = str_cat("in", k);
    const Tensor gradient = op.fetch(executor, name + "@GRAD");
    Tensor& x = op.feed()[k].second;
    ASSERT_EQ(gradient.shape(), x.shape());
    const double step = 1e-6;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double at = x.data<double>()[i];
      x.data<double>()[i] = at + step;
      const double above = op.fetch(executor, "loss").item<double>();
      x.data<double>()[i] = at - step;
      const double below = op.fetch(executor, "loss").item<double>();
      x.data<double>()[i] = at;
      ASSERT_NEAR(gradient.data<double>()[i], (above - below) / (2 * step), 2e-7)
          << name << " element " << i;
    }
  }
}

TEST_P(OpHarness, KeepsValuesThatAreNotFinite) {
  for (const double special : {std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(), std::nan("")}) {
    const auto with_special = [&](DType dtype, int position) {
      OneOp op(GetParam(), dtype);
      Tensor& x = op.feed()[0].second;
      if (dtype == DType::kFloat32) x.data<float>()[x.numel() / 2] = static_cast<float>(special);
      if (dtype == DType::kFloat64) x.data<double>()[x.numel() / 2] = special;
      return op.run(position);
    };
    expect_near(with_special(DType::kFloat32, 0), with_special(DType::kFloat32, -1), 3e-6);
  }
}

TEST_P(OpHarness, TakesEmptyBatches) {
  OpCase empty = GetParam();
  const std::set<std::string> averages = {"mean", "reduce_mean"};
  const std::set<std::string> fixed = {"reshape2", "split"};
  if (averages.contains(empty.type)) GTEST_SKIP() << "the mean of nothing is not a number";
  if (fixed.contains(empty.type)) GTEST_SKIP() << "its attributes fix the number of elements";
  for (Input& input : empty.inputs) {
    const bool batch = input.shape.rank() == empty.inputs[0].shape.rank();
    if (batch && (empty.type != "mul" || input.slot == "X")) input.shape.set(0, 0);
    if (!batch && empty.attrs.contains("axis") && empty.attrs.at("axis") == Attribute(int64_t{0})) {
      input.shape.set(0, 0);
    }
  }
  OneOp op(empty, DType::kFloat32);
  for (const Tensor& out : op.run()) EXPECT_TRUE(out.initialized());
}

INSTANTIATE_TEST_SUITE_P(Table, OpHarness, testing::ValuesIn(cases()), name_of);

TEST(KernelTable, EveryOpHasACaseOrIsTestedElsewhere) {
  std::set<std::string> covered = {
      "accuracy",        "adam",      "cast",     "fake_init", "fill_constant", "fill_zeros_like",
      "gaussian_random", "increment", "momentum", "sgd",       "split_byref",   "uniform_random"};
  for (const OpCase& op_case : cases()) {
    covered.insert(op_case.type);
    covered.insert(op_case.type + "_grad");
  }
  covered.insert("cross_entropy_grad2");
  covered.insert({"dc_compensate", "ref_by_trainer_id", "squared_row_sums"});
  for (const std::string& op : KernelTable::standard().ops(DeviceKind::kCpu)) {
    EXPECT_TRUE(covered.contains(op)) << op;
  }
}

TEST(KernelTable, AUserAddsKernelsToACopy) {
  KernelTable table = KernelTable::standard();
  int runs = 0;
  table.add_first("tanh", DeviceKind::kCpu, DType::kFloat32,
                  {.name = "mine", .prepare = [&runs](PrepareContext& context) {
                     const Shape shape = context.in("X").shape;
                     const int out = context.set_output("Out", shape, DType::kFloat32);
                     return make_prepared([&runs, out](const KernelContext& c) {
                       ++runs;
                       c.out<float>(out)[0] = 42;
                     });
                   }});
  const OpCase op_case = {.type = "tanh", .inputs = {floats("X", {1})}};
  OneOp op(op_case, DType::kFloat32);
  Program program;
  Executor executor(CPUPlace(), {.kernels = &table});
  EXPECT_EQ(op.fetch(executor, "Out0").item<float>(), 42);
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace fleet::fluid
