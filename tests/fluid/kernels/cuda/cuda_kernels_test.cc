// Each CUDA kernel against the CPU's, on the same inputs; the quick start's net on both. What needs
// a device is skipped where there is none.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

#include "base/strings.h"
#include "fluid/ops/append.h"
#include "tests/fluid/executor/mlp.h"
#include "tests/fluid/kernels/cuda/device.h"

namespace fleet::fluid {
namespace {

struct Input {
  std::string slot;
  Shape shape;
  double low = -1;
  double high = 1;
  bool label = false;
};

struct OpCase {
  std::string type;
  std::vector<Input> inputs;
  std::vector<std::string> outputs = {"Out"};
  AttributeMap attrs = {};
};

void PrintTo(const OpCase& op_case, std::ostream* out) {
  *out << op_case.type;
}

Input positive(std::string slot, Shape shape) {
  return {std::move(slot), shape, 0.1, 1};
}
Input classes(Shape shape, int count) {
  return {"Label", shape, 0, static_cast<double>(count), true};
}

void add_elementwise(std::vector<OpCase>& all) {
  for (const char* type : {"relu", "sigmoid", "tanh", "square"}) {
    const char* slot = std::strcmp(type, "square") == 0 ? "X" : "Out";
    all.push_back({type, {{"X", {37, 300}, -3, 3}}});
    all.push_back(
        {str_cat(type, "_grad"), {{slot, {37, 300}}, {"Out@GRAD", {37, 300}}}, {"X@GRAD"}});
  }
  struct Pair {
    Shape x, y, out;
    int64_t axis;
  };
  const std::vector<Pair> pairs = {{{4, 9}, {4, 9}, {4, 9}, -1},
                                   {{700, 9}, {9}, {700, 9}, -1},
                                   {{2, 3, 4, 5}, {3, 4}, {2, 3, 4, 5}, 1},
                                   {{2, 3, 4}, {1}, {2, 3, 4}, -1},
                                   {{3, 1, 4}, {3, 5, 1}, {3, 5, 4}, -1}};
  for (const char* type : {"elementwise_add", "elementwise_sub"}) {
    for (const Pair& pair : pairs) {
      const AttributeMap attrs = {{"axis", pair.axis}};
      all.push_back({type, {{"X", pair.x}, {"Y", pair.y}}, {"Out"}, attrs});
      all.push_back({str_cat(type, "_grad"),
                     {{"X", pair.x}, {"Y", pair.y}, {"Out@GRAD", pair.out}},
                     {"X@GRAD", "Y@GRAD"},
                     attrs});
    }
  }
}

void add_products_and_sums(std::vector<OpCase>& all) {
  all.push_back({"mul", {{"X", {5, 70}}, {"Y", {70, 3}}}});
  all.push_back(
      {"mul_grad", {{"X", {5, 70}}, {"Y", {70, 3}}, {"Out@GRAD", {5, 3}}}, {"X@GRAD", "Y@GRAD"}});
  const AttributeMap two = {{"x_num_col_dims", int64_t{2}}, {"y_num_col_dims", int64_t{2}}};
  all.push_back({"mul", {{"X", {2, 3, 4}}, {"Y", {2, 2, 5}}}, {"Out"}, two});
  all.push_back({"mean", {positive("X", {51, 11})}});
  all.push_back({"mean_grad", {{"X", {51, 11}}, {"Out@GRAD", {1}}}, {"X@GRAD"}});
  for (const int count : {1, 2, 3, 5, 6, 7, 13}) {
    all.push_back({"sum", std::vector<Input>(static_cast<size_t>(count), {"X", {3, 50}})});
  }
  all.push_back({"scale",
                 {{"X", {3, 5}}},
                 {"Out"},
                 {{"scale", -2.5}, {"bias", 0.5}, {"bias_after_scale", false}}});
  all.push_back({"scale", {{"X", {3, 5}}, {"ScaleTensor", {1}}}, {"Out"}, {{"bias", 0.5}}});
  all.push_back({"fill_zeros_like", {{"X", {3, 5}}}});
}

void add_losses(std::vector<OpCase>& all) {
  for (const int64_t axis : {-1, 1}) {
    const AttributeMap attrs = {{"axis", axis}};
    all.push_back({"softmax", {{"X", {6, 500, 3}, -3, 3}}, {"Out"}, attrs});
    all.push_back({"softmax_grad",
                   {positive("Out", {6, 50, 3}), {"Out@GRAD", {6, 50, 3}}},
                   {"X@GRAD"},
                   attrs});
  }
  const Input x = positive("X", {60, 4});
  const Input hard = classes({60, 1}, 4);
  const Input soft = {"Label", {60, 4}, 0, 1};
  const Input y_grad = {"Y@GRAD", {60, 1}};
  const AttributeMap ignore = {{"ignore_index", int64_t{2}}};
  all.push_back({"cross_entropy", {x, hard}, {"Y"}, ignore});
  all.push_back({"cross_entropy", {x, soft}, {"Y"}, {{"soft_label", true}}});
  all.push_back({"cross_entropy_grad", {x, hard, y_grad}, {"X@GRAD"}, ignore});
  all.push_back({"cross_entropy_grad", {x, soft, y_grad}, {"X@GRAD"}, {{"soft_label", true}}});
  all.push_back({"cross_entropy2", {x, hard}, {"Y", "MatchX", "XShape"}, ignore});
  all.push_back({"cross_entropy_grad2",
                 {hard, positive("MatchX", {60, 1}), {"XShape", {60, 4, 0}}, y_grad},
                 {"X@GRAD"},
                 ignore});
  const Input logits = {"Logits", {60, 4}, -80, 80};
  const Input probability = positive("Softmax", {60, 4});
  const Input loss_grad = {"Loss@GRAD", {60, 1}};
  for (const bool is_soft : {false, true}) {
    const AttributeMap attrs = {{"soft_label", is_soft}, {"ignore_index", int64_t{1}}};
    const Input label = is_soft ? soft : hard;
    all.push_back({"softmax_with_cross_entropy", {logits, label}, {"Softmax", "Loss"}, attrs});
    all.push_back({"softmax_with_cross_entropy_grad",
                   {label, probability, loss_grad},
                   {"Logits@GRAD"},
                   attrs});
  }
  all.push_back({"softmax_with_cross_entropy",
                 {{"Logits", {2, 4, 3}, -3, 3}, classes({2, 1, 3}, 4)},
                 {"Softmax", "Loss"},
                 {{"axis", int64_t{1}}}});
}

void add_updates(std::vector<OpCase>& all) {
  const Input param = {"Param", {9, 33}};
  const Input grad = {"Grad", {9, 33}};
  const Input rate = positive("LearningRate", {1});
  all.push_back({"sgd", {param, grad, rate}, {"ParamOut"}});
  for (const bool nesterov : {false, true}) {
    all.push_back({"momentum",
                   {param, grad, rate, {"Velocity", {9, 33}}},
                   {"ParamOut", "VelocityOut"},
                   {{"mu", 0.9}, {"use_nesterov", nesterov}}});
  }
  all.push_back({"adam",
                 {param,
                  grad,
                  rate,
                  {"Moment1", {9, 33}},
                  positive("Moment2", {9, 33}),
                  {"Beta1Pow", {1}, 0.5, 0.9},
                  {"Beta2Pow", {1}, 0.5, 0.9}},
                 {"ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut"}});
}

// Rows and lines that are longer than a warp's, or come more than once.
void add_rows_and_lines(std::vector<OpCase>& all) {
  const Input x = {"X", {20, 7}};
  const Input index = {"Index", {50}, 0, 20, true};
  const Input ids = {"Ids", {50}, 0, 20, true};
  const Input updates = {"Updates", {50, 7}};
  all.push_back({"gather", {x, index}});
  for (const bool overwrite : {false, true}) {
    const AttributeMap attrs = {{"overwrite", overwrite}};
    all.push_back({"gather_grad", {x, index, {"Out@GRAD", {50, 7}}}, {"X@GRAD"}, attrs});
    all.push_back({"scatter", {x, ids, updates}, {"Out"}, attrs});
    for (const bool paddle_form : {false, true}) {
      all.push_back({"scatter_grad",
                     {{"Out@GRAD", {20, 7}}, ids, updates},
                     {"X@GRAD", "Updates@GRAD"},
                     {{"overwrite", overwrite}, {"paddle_form", paddle_form}}});
    }
    // Lines of many elements, and of many equal ones.
    for (const Shape& shape : {Shape{3, 1000, 2}, Shape{4, 30, 5}}) {
      const AttributeMap sorted = {{"axis", int64_t{1}}, {"descending", overwrite}};
      all.push_back({"argsort", {{"X", shape}}, {"Out", "Indices"}, sorted});
      all.push_back({"argsort", {{"X", shape, 0, 20, true}}, {"Out", "Indices"}, sorted});
      all.push_back({"cumsum",
                     {{"X", shape}},
                     {"Out"},
                     {{"axis", int64_t{1}}, {"reverse", overwrite}, {"exclusive", overwrite}}});
    }
  }
  for (const char* type : {"arg_max", "arg_min"}) {
    for (const Shape& shape : {Shape{3, 1500, 2}, Shape{40, 9, 3}}) {
      all.push_back({type, {{"X", shape}}, {"Out"}, {{"axis", int64_t{1}}}});
      all.push_back({type, {{"X", shape, 0, 20, true}}, {"Out"}, {{"axis", int64_t{1}}}});
    }
  }
  all.push_back({"norm", {{"X", {3, 1500, 2}}}, {"Out", "Norm"}, {{"axis", int64_t{1}}}});
  const Input rows = {"X", {700, 33}};
  for (const int64_t y : {1, 700}) {
    const Input others = {"Y", {y, 33}};
    all.push_back({"cos_sim", {rows, others}, {"Out", "XNorm", "YNorm"}});
    all.push_back({"cos_sim_grad",
                   {rows,
                    others,
                    {"Out", {700, 1}},
                    positive("XNorm", {700, 1}),
                    positive("YNorm", {y, 1}),
                    {"Out@GRAD", {700, 1}}},
                   {"X@GRAD", "Y@GRAD"}});
  }
}

void add_long_losses(std::vector<OpCase>& all) {
  const Input x = {"X", {5, 1500}, -2, 2};
  const Input y = {"Y", {5, 1500}, -2, 2};
  all.push_back({"smooth_l1_loss", {x, y}, {"Diff", "Out"}});
  all.push_back({"bpr_loss", {x, classes({5, 1}, 1500)}, {"Y"}});
  all.push_back({"bpr_loss_grad", {x, classes({5, 1}, 1500), {"Y@GRAD", {5, 1}}}, {"X@GRAD"}});
  for (const char* reduction : {"none", "sum", "mean"}) {
    all.push_back({"kldiv_loss",
                   {{"X", {50, 1500}, -3, 0}, {"Target", {50, 1500}, -0.1, 0.9}},
                   {"Loss"},
                   {{"reduction", std::string(reduction)}}});
  }
}

// Rows with two labels, given noise, and paths that end early.
void add_many_classes(std::vector<OpCase>& all) {
  const AttributeMap nce = {{"num_total_classes", int64_t{9}},
                            {"num_neg_samples", int64_t{3}},
                            {"custom_neg_classes", std::vector<int64_t>{4, 0, 8}}};
  const Input labels = {"Label", {7, 2}, 0, 9, true};
  const Input weight = {"Weight", {9, 40}};
  const Input bias = {"Bias", {9, 1}};
  const std::vector<Input> nce_inputs = {{"Input", {7, 40}}, labels, weight, bias};
  all.push_back({"nce", nce_inputs, {"Cost", "SampleLogits", "SampleLabels"}, nce});
  std::vector<Input> nce_back = nce_inputs;
  nce_back.push_back(positive("SampleLogits", {7, 5}));
  nce_back.push_back({"SampleLabels", {7, 5}, 0, 9, true});
  nce_back.push_back({"Cost@GRAD", {7, 1}});
  all.push_back({"nce_grad", nce_back, {"Input@GRAD", "Weight@GRAD", "Bias@GRAD"}, nce});
  for (const bool own_tree : {false, true}) {
    const AttributeMap attrs = {{"num_classes", int64_t{9}}, {"paddle_form", own_tree}};
    std::vector<Input> inputs = {
        {"X", {70, 33}}, {"W", {8, 33}}, {"Bias", {8, 1}}, classes({70, 1}, 9)};
    if (own_tree) {
      inputs.push_back({"PathTable", {70, 4}, -1, 8, true});
      inputs.push_back({"PathCode", {70, 4}, 0, 2, true});
    }
    all.push_back({"hierarchical_sigmoid", inputs, {"Out", "PreOut"}, attrs});
    inputs.push_back(positive("PreOut", {70, 4}));
    inputs.push_back({"Out@GRAD", {70, 1}});
    all.push_back({"hierarchical_sigmoid_grad", inputs, {"X@GRAD", "W@GRAD", "Bias@GRAD"}, attrs});
  }
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  add_many_classes(all);
  add_rows_and_lines(all);
  add_long_losses(all);
  add_elementwise(all);
  add_products_and_sums(all);
  add_losses(all);
  add_updates(all);
  return all;
}

Tensor values(const Input& input, DType dtype, const std::string& name) {
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

void add_var(Block& block, const std::string& name, DType dtype, const Shape* shape) {
  VarDesc var;
  var.name = name;
  var.dtype = dtype;
  var.is_data = shape != nullptr;
  if (shape != nullptr) var.shape = *shape;
  block.add_var(var);
}

class Findings final : public FiniteWatch {
 public:
  void on_nonfinite(const Nonfinite& found) override { all.push_back(found); }
  std::vector<Nonfinite> all;
};

// The outputs of one op, all inputs fed, the input of one slot as it is given.
std::vector<Tensor> run(const OpCase& op_case, DType dtype, const Place& place,
                        FiniteWatch* watch = nullptr,
                        const std::pair<std::string, Tensor>& given = {}) {
  Program program;
  Block& block = program.global_block();
  Operator op;
  op.type = op_case.type;
  op.attrs = op_case.attrs;
  Feed feed;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Input& input = op_case.inputs[i];
    const DType type = input.label ? DType::kInt64 : dtype;
    const std::string name = str_cat("in", i);
    feed.emplace_back(name, input.slot == given.first ? given.second : values(input, type, name));
    add_var(block, name, type, &input.shape);
    op.inputs[input.slot].push_back(name);
  }
  std::vector<Fetch> fetch;
  for (const std::string& slot : op_case.outputs) {
    add_var(block, slot, dtype, nullptr);
    op.outputs[slot].push_back(slot);
    if (slot != "XShape") fetch.emplace_back(slot);
  }
  append_op(block, op);
  Executor executor(place, {.strict_place = !place.is_cpu()});
  executor.set_finite_watch(watch);
  return executor.run(program, feed, fetch);
}

double element(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == DType::kFloat32) return static_cast<double>(tensor.data<float>()[i]);
  if (tensor.dtype() == DType::kInt64) return static_cast<double>(tensor.data<int64_t>()[i]);
  return tensor.data<double>()[i];
}

void expect_near(const Tensor& got, const Tensor& wanted, double rtol) {
  ASSERT_EQ(got.shape(), wanted.shape());
  ASSERT_TRUE(got.place().is_cpu());
  double scale = 1e-30;
  for (int64_t i = 0; i < wanted.numel(); ++i) {
    ASSERT_TRUE(std::isfinite(element(wanted, i))) << "element " << i;
    scale = std::max(scale, std::abs(element(wanted, i)));
  }
  for (int64_t i = 0; i < got.numel(); ++i) {
    ASSERT_NEAR(element(got, i), element(wanted, i), rtol * scale) << "element " << i;
  }
}

class CudaKernels : public ::testing::TestWithParam<OpCase> {};

TEST_P(CudaKernels, AgreeWithTheCpu) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const double rtol = dtype == DType::kFloat32 ? 3e-6 : 1e-13;
    const auto wanted = run(GetParam(), dtype, CPUPlace());
    for (const Tensor& tensor : wanted) expect_near(tensor, tensor, 0);
    SKIP_WITHOUT_DEVICE();
    const auto got = run(GetParam(), dtype, CUDAPlace(0));
    const auto again = run(GetParam(), dtype, CUDAPlace(0));
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      expect_near(got[i], wanted[i], rtol);
      EXPECT_EQ(std::memcmp(got[i].raw(), again[i].raw(), got[i].bytes()), 0);
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<OpCase>& info) {
  return str_cat(info.param.type, "_", info.index);
}

INSTANTIATE_TEST_SUITE_P(Table, CudaKernels, ::testing::ValuesIn(cases()), name_of);

Tensor numbers(DType dtype, const std::vector<double>& given) {
  Tensor tensor(dtype, Shape{static_cast<int64_t>(given.size())});
  for (size_t i = 0; i < given.size(); ++i) {
    if (dtype == DType::kFloat32) tensor.data<float>()[i] = static_cast<float>(given[i]);
    if (dtype == DType::kFloat64) tensor.data<double>()[i] = given[i];
    if (dtype == DType::kInt64) tensor.data<int64_t>()[i] = static_cast<int64_t>(given[i]);
  }
  return tensor;
}

// The CPU refuses them; an exception here would cost a wait for the device.
TEST(CudaIndices, OutsideAreRowsThatAreNotNumbers) {
  SKIP_WITHOUT_DEVICE();
  const OpCase gather = {"gather", {{"X", {4, 3}}, {"Index", {4}, 0, 4, true}}};
  const Tensor indices = numbers(DType::kInt64, {3, -1, 4, 0});
  const Tensor rows =
      run(gather, DType::kFloat32, CUDAPlace(0), nullptr, {"Index", indices}).front();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(std::isnan(element(rows, i)), i / 3 == 1 || i / 3 == 2) << i;
  }
  const OpCase classes = {"one_hot_v2", {{"X", {3}, 0, 4, true}}, {"Out"}, {{"depth", int64_t{4}}}};
  const Tensor one_hot = run(classes, DType::kFloat32, CUDAPlace(0), nullptr,
                             {"X", numbers(DType::kInt64, {2, 4, -1})})
                             .front();
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(std::isnan(element(one_hot, i)), i >= 4) << i;
  }
}

// Nothing comes to another line, or beyond the array.
TEST(CudaIndices, OutsideOfTheirLineLeaveItsGradientZero) {
  SKIP_WITHOUT_DEVICE();
  const OpCase op_case = {"argsort_grad",
                          {{"X", {2, 3}}, {"Indices", {2, 3}, 0, 3, true}, {"Out@GRAD", {2, 3}}},
                          {"X@GRAD"},
                          {{"axis", int64_t{1}}}};
  const Tensor indices =
      Tensor::from(std::vector<int64_t>{2, 5, 0, -1, 1, int64_t{1} << 40}, {2, 3});
  const Tensor got =
      run(op_case, DType::kFloat32, CUDAPlace(0), nullptr, {"Indices", indices}).front();
  const Tensor grad = values(op_case.inputs[2], DType::kFloat32, "in2");
  const std::vector<int64_t> from = {2, -1, 0, -1, 4, -1};  // of each element; -1: none
  for (size_t i = 0; i < from.size(); ++i) {
    const double wanted = from[i] < 0 ? 0 : element(grad, from[i]);
    EXPECT_EQ(element(got, static_cast<int64_t>(i)), wanted) << i;
  }
}

TEST(CudaCosines, OneRowHasANormWithoutRowsToCompare) {
  SKIP_WITHOUT_DEVICE();
  const OpCase op_case = {"cos_sim", {{"X", {0, 33}}, {"Y", {1, 33}}}, {"YNorm", "Out", "XNorm"}};
  const Tensor wanted = run(op_case, DType::kFloat64, CPUPlace()).front();
  EXPECT_GT(element(wanted, 0), 0);
  expect_near(run(op_case, DType::kFloat64, CUDAPlace(0)).front(), wanted, 1e-13);
}

TEST(CudaClasses, OfLabelsThatAreNoneAreNotNumbers) {
  SKIP_WITHOUT_DEVICE();
  const std::pair<std::string, Tensor> labels = {"Label", numbers(DType::kInt64, {1, -1, 4, 3})};
  const Input label = {"Label", {4}, 0, 4, true};
  const OpCase tree = {"hierarchical_sigmoid",
                       {{"X", {4, 5}}, {"W", {3, 5}}, label},
                       {"Out", "PreOut"},
                       {{"num_classes", int64_t{4}}}};
  const OpCase nce = {"nce",
                      {{"Input", {4, 5}}, {"Weight", {4, 5}}, label},
                      {"Cost", "SampleLogits", "SampleLabels"},
                      {{"num_total_classes", int64_t{4}}}};
  for (const OpCase& op_case : {tree, nce}) {
    const Tensor loss = run(op_case, DType::kFloat32, CUDAPlace(0), nullptr, labels).front();
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(std::isnan(element(loss, i)), i == 1 || i == 2) << op_case.type << " " << i;
    }
  }
}

// What is not a number is sorted last, and is an extreme only where it is the first.
TEST(CudaLines, WithElementsThatAreNotNumbersAreThoseOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  const double nan = std::nan("");
  for (const std::vector<double>& given :
       {std::vector<double>{1, nan, 3, nan, 2}, {nan, 1, 3}, {HUGE_VAL, nan, -HUGE_VAL}}) {
    const auto n = static_cast<int64_t>(given.size());
    for (const char* type : {"arg_max", "arg_min", "argsort"}) {
      SCOPED_TRACE(str_cat(type, " of ", n));
      OpCase op_case = {type, {{"X", {n}}}};
      if (op_case.type == "argsort") op_case.outputs = {"Indices", "Out"};
      const std::pair<std::string, Tensor> x = {"X", numbers(DType::kFloat64, given)};
      const Tensor wanted = run(op_case, DType::kFloat64, CPUPlace(), nullptr, x).front();
      const Tensor got = run(op_case, DType::kFloat64, CUDAPlace(0), nullptr, x).front();
      EXPECT_EQ(got.to_string(100), wanted.to_string(100));
    }
  }
}

class CudaUpdates : public ::testing::TestWithParam<OpCase> {};

std::vector<OpCase> updates() {
  std::vector<OpCase> all;
  add_updates(all);
  return all;
}

// Filled with `value`, but for the last element, which another block of threads has than the first.
Tensor filled(DType dtype, double value, double last) {
  Tensor tensor(dtype, Shape{9, 33});
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double x = i + 1 < tensor.numel() ? value : last;
    if (dtype == DType::kFloat32) tensor.data<float>()[i] = static_cast<float>(x);
    if (dtype == DType::kFloat64) tensor.data<double>()[i] = x;
  }
  return tensor;
}

void expect_tells(const OpCase& op_case, DType dtype, const Place& place) {
  SCOPED_TRACE(str_cat(place.to_string(), " ", dtype_name(dtype)));
  for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Findings findings;
    run(op_case, dtype, place, &findings, {"Grad", filled(dtype, 0.5, wrong)});
    ASSERT_EQ(findings.all.size(), 1U) << wrong;
    EXPECT_EQ(findings.all.front().what, Nonfinite::What::kParameter);
    EXPECT_EQ(findings.all.front().variable, "ParamOut");
    EXPECT_FALSE(std::isfinite(findings.all.front().value));
  }
  Findings none;
  run(op_case, dtype, place, &none, {"Grad", filled(dtype, 0.5, -0.5)});
  // Their sum, and the sum of their squares, are infinite.
  const double large = dtype == DType::kFloat32 ? 1e38 : 1e308;
  run(op_case, dtype, place, &none, {"Param", filled(dtype, large, large)});
  EXPECT_TRUE(none.all.empty());
}

TEST_P(CudaUpdates, TellOfParametersThatAreNotFinite) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    expect_tells(GetParam(), dtype, CPUPlace());
  }
  SKIP_WITHOUT_DEVICE();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    expect_tells(GetParam(), dtype, CUDAPlace(0));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, CudaUpdates, ::testing::ValuesIn(updates()), name_of);

// Cases are here, in op_cases.h or in net_cases.h; the CPU's tests see to it that its kernels have
// some.
TEST(CudaKernelTable, EveryOpHasACpuKernel) {
  for (const std::string& op : KernelTable::standard().ops(DeviceKind::kCuda)) {
    EXPECT_TRUE(KernelTable::standard().knows(op, DeviceKind::kCpu)) << op;
  }
}

TEST(CudaKernelTable, KnowsEveryOpOfTheQuickStartsNet) {
  const testing::Mlp net;
  for (const Program* program : {&net.main, &net.startup}) {
    for (const auto& op : program->global_block().ops()) {
      EXPECT_TRUE(KernelTable::standard().knows(op->type, DeviceKind::kCuda)) << op->type;
    }
  }
}

TEST(CudaPlace, WithoutADeviceIsAnErrorThatSaysSo) {
  if (why_no_device().empty()) GTEST_SKIP() << "this machine has a CUDA device";
  EXPECT_EQ(why_no_device().rfind("no CUDA device: ", 0), 0u) << why_no_device();
  EXPECT_THROW(Executor{CUDAPlace(0)}, Error);
  EXPECT_THROW(Tensor(DType::kFloat32, Shape{2}, CUDAPlace(0)), Error);
}

TEST(CudaPlace, ADeviceThatIsNotThereIsNamed) {
  SKIP_WITHOUT_DEVICE();
  EXPECT_THROW(check_place(CUDAPlace(4096)), Error);
  EXPECT_THROW(check_place(CUDAPlace(-1)), Error);
}

TEST(CudaTensor, CopiesThereAndBack) {
  SKIP_WITHOUT_DEVICE();
  const Tensor host = Tensor::from<float>({1, 2, 3, 4, 5, 6}, Shape{3, 2});
  const Tensor there = host.copy_to(CUDAPlace(0));
  EXPECT_EQ(there.place(), CUDAPlace(0));
  const Tensor back = there.rows(1, 3).clone().copy_to(CPUPlace());
  EXPECT_EQ(back.shape(), (Shape{2, 2}));
  EXPECT_EQ(std::memcmp(back.raw(), host.raw() + 2 * sizeof(float), back.bytes()), 0);
  EXPECT_EQ(there.to_string(), host.to_string());
  Tensor target(DType::kFloat32, Shape{3, 2});
  target.copy_from(there);
  EXPECT_EQ(std::memcmp(target.raw(), host.raw(), host.bytes()), 0);
}

// Parameters after the startup program, on the host.
std::vector<Tensor> initial(const testing::Mlp& net, const Place& place) {
  Executor executor(place);
  executor.run(net.startup);
  std::vector<Tensor> all;
  for (const VarDesc* var : net.main.global_block().parameters()) {
    all.push_back(executor.scope().tensor(var->name).copy_to(CPUPlace()));
  }
  return all;
}

TEST(CudaRandom, UniformParametersHaveTheBitsOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  const testing::Mlp net;
  const auto wanted = initial(net, CPUPlace());
  const auto got = initial(net, CUDAPlace(0));
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].bytes(), wanted[i].bytes());
    EXPECT_EQ(std::memcmp(got[i].raw(), wanted[i].raw(), got[i].bytes()), 0) << i;
  }
}

TEST(CudaRandom, NormalValuesAreTheCpusButForRounding) {
  SKIP_WITHOUT_DEVICE();
  const OpCase op_case = {"gaussian_random",
                          {},
                          {"Out"},
                          {{"shape", std::vector<int64_t>{50, 30}}, {"mean", 1.0}, {"std", 2.0}}};
  expect_near(run(op_case, DType::kFloat32, CUDAPlace(0)).front(),
              run(op_case, DType::kFloat32, CPUPlace()).front(), 1e-6);
}

std::vector<float> losses(const testing::Mlp& net, const Place& place, int shards) {
  Executor executor(place, {.logical_shards = shards, .check_nan_inf = true});
  executor.run(net.startup);
  std::vector<float> all;
  for (uint64_t step = 0; step < 20; ++step) {
    all.push_back(executor.run(net.main, testing::batch(32, step), {net.cost})[0].item<float>());
  }
  return all;
}

// The unit behind this weight is saturated: the loss stays finite, and no gradient comes.
TEST(CudaTraining, AParameterIsToldThoughTheLossIsFinite) {
  SKIP_WITHOUT_DEVICE();
  const testing::Mlp net;
  const std::string& weight = net.main.global_block().parameters().front()->name;
  Findings findings;
  Executor executor(CUDAPlace(0));
  executor.set_finite_watch(&findings);
  executor.run(net.startup);
  for (uint64_t step = 0; step < 3; ++step) executor.run(net.main, testing::batch(8, step));
  EXPECT_TRUE(findings.all.empty());
  Tensor infinite = executor.scope().tensor(weight).copy_to(CPUPlace());
  infinite.data<float>()[0] = HUGE_VALF;
  executor.scope().tensor(weight) = infinite;
  Feed rows = testing::batch(8, 3);
  for (int64_t i = 0; i < 8; ++i) rows.front().second.data<float>()[i * 32] = 1.0F;
  executor.run(net.main, rows);
  EXPECT_TRUE(findings.all.empty()) << "nobody waited for the step";
  executor.look_at_steps();
  ASSERT_EQ(findings.all.size(), 1U);
  EXPECT_EQ(findings.all.front().what, Nonfinite::What::kParameter);
  EXPECT_EQ(findings.all.front().variable, weight);
  EXPECT_EQ(findings.all.front().step, 3U);
}

TEST(CudaTraining, ALossIsToldWithItsStepAtTheEndOfTheNext) {
  SKIP_WITHOUT_DEVICE();
  const testing::Mlp net;
  Findings findings;
  Executor executor(CUDAPlace(0));
  executor.set_finite_watch(&findings);
  executor.run(net.startup);
  Feed rows = testing::batch(8, 0);
  rows.front().second.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  executor.run(net.main, rows);
  EXPECT_TRUE(findings.all.empty()) << "nobody waited for the step";
  executor.run(net.main, testing::batch(8, 1));
  ASSERT_FALSE(findings.all.empty());
  EXPECT_EQ(findings.all.front().what, Nonfinite::What::kLoss);
  EXPECT_EQ(findings.all.front().variable, net.cost);
  EXPECT_TRUE(std::isnan(findings.all.front().value));
  EXPECT_EQ(findings.all.front().step, 0U);
}

TEST(CudaTraining, TheNetLearnsAsOnTheCpu) {
  SKIP_WITHOUT_DEVICE();
  const testing::Mlp net;
  for (const int shards : {1, 4}) {
    const auto wanted = losses(net, CPUPlace(), shards);
    const auto got = losses(net, CUDAPlace(0), shards);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << i;
    EXPECT_EQ(got, losses(net, CUDAPlace(0), shards)) << "another run, other bits";
  }
}

}  // namespace
}  // namespace fleet::fluid
