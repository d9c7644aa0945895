// Walks the op table: every kernel against the plain reference at the end of its list, gradients
// against finite differences, odd shapes, empty batches, values that are not finite.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <set>

#include "base/strings.h"
#include "tests/fluid/kernels/one_op.h"

namespace fleet::fluid {
namespace {

std::string name_of(const testing::TestParamInfo<OpCase>& info) {
  return str_cat(info.param.type, "_", info.index);
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

bool is_float(const Input& input) {
  return is_floating(input.dtype);
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

class OpGradients : public testing::TestWithParam<OpCase> {};

TEST_P(OpGradients, AreThoseOfFiniteDifferences) {
  const OpCase& op_case = GetParam();
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

class OpsOfFloats : public testing::TestWithParam<OpCase> {};

TEST_P(OpsOfFloats, KeepValuesThatAreNotFinite) {
  const auto& inputs = GetParam().inputs;
  const auto first = std::find_if(inputs.begin(), inputs.end(), is_float);
  const auto at = static_cast<size_t>(first - inputs.begin());
  for (const double special : {std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(), std::nan("")}) {
    const auto with_special = [&](DType dtype, int position) {
      OneOp op(GetParam(), dtype);
      Tensor& x = op.feed()[at].second;
      if (dtype == DType::kFloat32) x.data<float>()[x.numel() / 2] = static_cast<float>(special);
      if (dtype == DType::kFloat64) x.data<double>()[x.numel() / 2] = special;
      return op.run(position);
    };
    expect_near(with_special(DType::kFloat32, 0), with_special(DType::kFloat32, -1), 3e-6);
  }
}

class OpsOfBatches : public testing::TestWithParam<OpCase> {};

TEST_P(OpsOfBatches, TakeEmptyOnes) {
  OpCase empty = GetParam();
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

bool has_gradient(const OpCase& op_case) {
  return static_cast<bool>(OpTable::standard().at(op_case.type).gradient);
}

bool takes_floats(const OpCase& op_case) {
  return std::any_of(op_case.inputs.begin(), op_case.inputs.end(), is_float);
}

// Attributes or indices fix the number of rows of the others; the mean of nothing is no number.
bool takes_empty_batches(const OpCase& op_case) {
  return op_case.takes_empty && op_case.type != "mean" && op_case.type != "reduce_mean";
}

std::vector<OpCase> cases_that(bool (*fits)(const OpCase&)) {
  std::vector<OpCase> cases = op_cases();
  std::erase_if(cases, [fits](const OpCase& op_case) { return !fits(op_case); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Table, OpHarness, testing::ValuesIn(op_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Table, OpGradients, testing::ValuesIn(cases_that(has_gradient)), name_of);
INSTANTIATE_TEST_SUITE_P(Table, OpsOfFloats, testing::ValuesIn(cases_that(takes_floats)), name_of);
INSTANTIATE_TEST_SUITE_P(Table, OpsOfBatches, testing::ValuesIn(cases_that(takes_empty_batches)),
                         name_of);

// Ops that have tests of their own; "<op>_grad" goes with its op.
std::set<std::string> tested_elsewhere() {
  return {// dense_ops_test.cc: their shapes depend on values, or they keep counts.
          "auc", "precision_recall", "range", "where_index",
          // Values, types and slices: executor, slices and server tests.
          "accuracy", "fake_init", "gaussian_random", "print", "uniform_random", "dc_compensate",
          "lamb_apply", "lamb_direction", "ref_by_trainer_id", "split_selected_rows", "split_ids",
          "merge_ids", "marked_row_sums", "squared_row_sums", "sum_marked_rows", "interleave_rows",
          // Updates and initial values: optimizer tests and numeric_golden_test.
          "adam", "momentum", "sgd", "adadelta", "adagrad", "adamax", "assign_value",
          "average_accumulates", "decayed_adagrad", "dpsgd", "ftrl", "lamb", "lars_momentum",
          "lookahead", "rmsprop", "truncated_gaussian_random",
          // Growing tables: tests/fluid/layers, optimizer and strategies/parameter_server.
          "add_growing_table_shows", "lookup_growing_table", "make_growing_table",
          "split_growing_rows", "update_growing_table",
          // tests/strategies/collective/dgc_training_test.cc.
          "dgc", "dgc_momentum",
          // Networks and sequences: tests/fluid/layers and numeric_golden_test; sync_batch_norm:
          // tests/strategies/collective/norms_over_shards_test.cc.
          "batch_norm", "conv2d", "conv2d_transpose", "depthwise_conv2d",
          "depthwise_conv2d_transpose", "dropout", "fused_embedding_seq_pool", "sync_batch_norm",
          "sync_batch_norm_sums", "sync_batch_norm_grad_sums", "get_tensor_from_selected_rows",
          "group_norm", "gru", "hierarchical_sigmoid", "layer_norm", "lod_array_length",
          "lookup_table", "lookup_table_v2", "lstm", "merge_selected_rows", "nce", "pool2d",
          "read_from_array", "select_input", "select_output", "sequence_concat", "sequence_conv",
          "sequence_expand", "sequence_mask", "sequence_pad", "sequence_pool", "sequence_reverse",
          "sequence_softmax", "sequence_unpad", "tensor_array_to_tensor", "write_to_array"};
}

TEST(KernelTable, EveryOpHasACaseOrIsTestedElsewhere) {
  std::set<std::string> covered = tested_elsewhere();
  for (const OpCase& op_case : op_cases()) covered.insert(op_case.type);
  covered.insert("cross_entropy_grad2");
  for (std::string op : KernelTable::standard().ops(DeviceKind::kCpu)) {
    if (op.ends_with("_grad") && !covered.contains(op)) op.resize(op.size() - 5);
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
  const OpCase op_case = {.type = "tanh", .inputs = {{"X", {1}}}};
  OneOp op(op_case, DType::kFloat32);
  Program program;
  Executor executor(CPUPlace(), {.kernels = &table});
  EXPECT_EQ(op.fetch(executor, "Out0").item<float>(), 42);
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace fleet::fluid
