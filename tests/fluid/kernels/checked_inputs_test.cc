// Inputs whose type or size only running shows: a kernel refuses them by the name of their slot
// before it reads or writes anything.
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/executor/executor.h"
#include "fluid/ops/append.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

struct Given {
  std::string slot;
  Shape shape;
  DType dtype = DType::kFloat32;
};

// An op that runs with `inputs`, and does not with `wrong` in the place of its slot.
struct Refusal {
  std::string type;
  AttributeMap attrs;
  std::vector<Given> inputs;
  std::vector<std::string> outputs;
  Given wrong;
  std::string expected;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.type << " " << refusal.wrong.slot;
}

using Expectations = std::vector<std::pair<Given, std::string>>;

void add(std::vector<Refusal>& all, const Refusal& op, const Expectations& wrong) {
  for (const auto& [given, expected] : wrong) {
    all.push_back(op);
    all.back().wrong = given;
    all.back().expected = expected;
  }
}

constexpr DType kDouble = DType::kFloat64;
constexpr DType kWhole = DType::kInt64;

void add_norms_and_losses(std::vector<Refusal>& all) {
  add(all,
      {"norm_grad",
       {{"axis", int64_t{1}}},
       {{"X", {2, 3}}, {"Norm", {2, 1}}, {"Out@GRAD", {2, 3}}},
       {"X@GRAD"}},
      {{{"Norm", {2, 1}, kDouble}, "float32, 2 elements, one a line of X"},
       {{"Norm", {3, 1}}, "float32, 2 elements, one a line of X"}});
  add(all,
      {"cos_sim_grad",
       {},
       {{"X", {2, 3}},
        {"Y", {1, 3}},
        {"Out", {2, 1}},
        {"XNorm", {2, 1}},
        {"YNorm", {1, 1}},
        {"Out@GRAD", {2, 1}}},
       {"X@GRAD", "Y@GRAD"}},
      {{{"Out", {2, 1}, kDouble}, "float32, 2 elements, one a row of X"},
       {{"XNorm", {2, 1}, kDouble}, "float32, 2 elements, one a row of X"},
       {{"YNorm", {2, 1}}, "float32, 1 elements, one a row of Y"},
       {{"Out@GRAD", {2, 1}, kDouble}, "float32, 2 elements, one a row of X"}});
  add(all,
      {"smooth_l1_loss_grad", {}, {{"Diff", {2, 3}}, {"Out@GRAD", {2, 1}}}, {"X@GRAD", "Y@GRAD"}},
      {{{"Diff", {2, 3}, kDouble}, "float32, 6 elements, one an element of X"},
       {{"Out@GRAD", {1, 1}}, "float32, 2 elements, one a row"}});
  add(all,
      {"bpr_loss_grad",
       {},
       {{"X", {2, 3}}, {"Label", {2, 1}, kWhole}, {"Y@GRAD", {2, 1}}},
       {"X@GRAD"}},
      {{{"Y@GRAD", {2, 1}, kDouble}, "float32, 2 elements, one a row"}});
  for (const bool summed : {false, true}) {
    const Shape grad = summed ? Shape{1} : Shape{2, 3};
    add(all,
        {"kldiv_loss_grad",
         {{"reduction", std::string(summed ? "sum" : "none")}},
         {{"X", {2, 3}}, {"Target", {2, 3}}, {"Loss@GRAD", grad}},
         {"X@GRAD"}},
        {{{"Loss@GRAD", grad, kDouble},
          summed ? "float32, 1 elements, that of the sum"
                 : "float32, 6 elements, one an element of X"}});
  }
}

void add_sampled_classes(std::vector<Refusal>& all) {
  add(all,
      {"nce_grad",
       {{"num_total_classes", int64_t{4}}, {"num_neg_samples", int64_t{2}}},
       {{"Input", {2, 5}},
        {"Label", {2, 1}, kWhole},
        {"Weight", {4, 5}},
        {"Bias", {4, 1}},
        {"SampleWeight", {2, 1}},
        {"SampleLogits", {2, 3}},
        {"SampleLabels", {2, 3}, kWhole},
        {"Cost@GRAD", {2, 1}}},
       {"Input@GRAD", "Weight@GRAD", "Bias@GRAD"}},
      {{{"Label", {2, 1, 1}, kWhole}, "int64[2] or int64[2, labels]"},
       {{"Bias", {4, 1}, kDouble}, "float32, 4 elements, one a class"},
       {{"Bias", {3, 1}}, "float32, 4 elements, one a class"},
       {{"SampleWeight", {2, 1}, kDouble}, "float32, 2 elements, one a row of Input"},
       {{"SampleWeight", {1, 1}}, "float32, 2 elements, one a row of Input"},
       {{"SampleLogits", {2, 3}, kDouble}, "float32, 6 elements, one a sample"},
       {{"SampleLabels", {2, 3}, DType::kInt32}, "int64, 6 elements, one a sample"},
       {{"Cost@GRAD", {2, 1}, kDouble}, "float32, 2 elements, one a row of Input"}});
  add(all,
      {"hierarchical_sigmoid_grad",
       {{"num_classes", int64_t{4}}},
       {{"X", {2, 5}},
        {"W", {3, 5}},
        {"Label", {2, 1}, kWhole},
        {"Bias", {3, 1}},
        {"PreOut", {2, 2}},
        {"Out@GRAD", {2, 1}}},
       {"X@GRAD", "W@GRAD", "Bias@GRAD"}},
      {{{"Bias", {3, 1}, kDouble}, "float32, 3 elements, one a node"},
       {{"Bias", {4, 1}}, "float32, 3 elements, one a node"},
       {{"PreOut", {2, 2}, kDouble}, "float32, 4 elements, one a place of each row's path"},
       {{"Out@GRAD", {2, 1}, kDouble}, "float32, 2 elements, one a row of X"}});
}

void add_rows(std::vector<Refusal>& all) {
  add(all,
      {"scatter_grad",
       {},
       {{"Out@GRAD", {3, 2}}, {"Ids", {2}, kWhole}, {"Updates", {2, 2}}},
       {"X@GRAD", "Updates@GRAD"}},
      {{{"Updates", {1, 2}}, "2 rows of 2"}, {{"Updates", {2, 3}}, "2 rows of 2"}});
  add(all,
      {"top_k_grad",
       {{"k", int64_t{2}}},
       {{"X", {2, 3}}, {"Indices", {2, 2}, kWhole}, {"Out@GRAD", {2, 2}}},
       {"X@GRAD"}},
      {{{"Indices", {3, 2}, kWhole}, "int64, 2 rows"},
       {{"Indices", {2, 2}, DType::kInt32}, "int64, 2 rows"},
       {{"Out@GRAD", {2, 1}}, "float32, 4 elements, one an element of Indices"}});
}

std::vector<Refusal> refusals() {
  std::vector<Refusal> all;
  add_norms_and_losses(all);
  add_sampled_classes(all);
  add_rows(all);
  return all;
}

class CheckedInputs : public testing::TestWithParam<Refusal> {};

// The op of a case, its inputs zeros; `given` is in the place of the input of its slot.
void run(const Refusal& op_case, const Given& given) {
  Program program;
  Block& block = program.global_block();
  Operator op;
  op.type = op_case.type;
  op.attrs = op_case.attrs;
  Feed feed;
  for (const Given& input : op_case.inputs) {
    const Given& taken = input.slot == given.slot ? given : input;
    VarDesc var;
    var.name = str_cat("the_", input.slot);
    var.dtype = taken.dtype;
    var.shape = taken.shape;
    var.is_data = true;
    feed.emplace_back(var.name, Tensor::zeros(taken.dtype, taken.shape));
    op.inputs[input.slot] = {var.name};
    block.add_var(std::move(var));
  }
  std::vector<Fetch> fetch;
  for (const std::string& slot : op_case.outputs) {
    VarDesc var;
    var.name = slot;
    block.add_var(std::move(var));
    op.outputs[slot] = {slot};
    fetch.emplace_back(slot);
  }
  append_op(block, std::move(op));
  Executor().run(program, feed, fetch);
}

TEST_P(CheckedInputs, AreRefusedByTheNameOfTheirSlot) {
  const Refusal& refusal = GetParam();
  run(refusal, {});
  const Given& wrong = refusal.wrong;
  expect_error([&] { run(refusal, wrong); }, ErrorCode::kShapeMismatch,
               {str_cat("op '", refusal.type, "', slot '", wrong.slot, "' (the_", wrong.slot, ")"),
                str_cat("expected: ", refusal.expected), "got: "});
}

INSTANTIATE_TEST_SUITE_P(Table, CheckedInputs, testing::ValuesIn(refusals()),
                         [](const auto& row) { return str_cat(row.param.type, "_", row.index); });

class LookaheadInputs : public NetFixture {};

TEST_F(LookaheadInputs, AreDenseTensors) {
  const Variable param = layers::create_parameter({3, 2}, DType::kFloat32, {.name = "param"});
  const Variable slow = layers::create_parameter({3, 2}, DType::kFloat32, {.name = "slow"});
  const Variable step = layers::create_global_var({1}, 0, DType::kInt64, {.persistable = true});
  append_op(
      block(),
      {.type = "lookahead",
       .inputs = {{"Param", {param.name()}}, {"SlowParam", {slow.name()}}, {"Step", {step.name()}}},
       .outputs = {{"ParamOut", {param.name()}},
                   {"SlowParamOut", {slow.name()}},
                   {"StepOut", {step.name()}}},
       .attrs = {}});
  Executor executor;
  executor.run(startup_);
  executor.run(main_, {});
  executor.scope().var("slow") =
      SelectedRows{.rows = {0, 1, 2}, .height = 3, .value = Tensor::zeros(DType::kFloat32, {3, 2})};
  expect_error([&] { executor.run(main_, {}); }, ErrorCode::kShapeMismatch,
               {"op 'lookahead', slot 'SlowParam' (slow)", "a dense tensor float32[3, 2]",
                "no dense tensor: float32[3, 2]"});
}

}  // namespace
}  // namespace fleet::fluid
