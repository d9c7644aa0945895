// Ops that only transpilers place.
#include <cmath>
#include <gmock/gmock.h>

#include "base/error.h"
#include "fluid/executor/executor.h"
#include "fluid/ops/append.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;

// One op over variables of float64 values.
class OneServerOp {
 public:
  explicit OneServerOp(std::string type) { op_.type = std::move(type); }

  OneServerOp& input(const std::string& slot, const std::string& name, const Shape& shape,
                     const std::vector<double>& values) {
    Tensor tensor(DType::kFloat64, shape);
    std::copy(values.begin(), values.end(), tensor.data<double>());
    declare(name, DType::kFloat64, shape);
    executor_.scope().var(name) = std::move(tensor);
    op_.inputs[slot].push_back(name);
    return *this;
  }
  OneServerOp& trainer(int64_t id) {
    Tensor tensor(DType::kInt64, Shape{1});
    *tensor.data<int64_t>() = id;
    declare("@TRAINER_ID@", DType::kInt64, Shape{1});
    executor_.scope().var("@TRAINER_ID@") = std::move(tensor);
    op_.inputs["TrainerId"] = {"@TRAINER_ID@"};
    return *this;
  }
  OneServerOp& attrs(AttributeMap attrs) {
    op_.attrs = std::move(attrs);
    return *this;
  }
  OneServerOp& output(const std::string& slot, const std::string& name) {
    if (program_.global_block().find_var(name) == nullptr) declare(name, DType::kFloat64, Shape{1});
    op_.outputs[slot] = {name};
    return *this;
  }
  std::vector<double> run(const std::string& name) {
    append_op(program_.global_block(), op_);
    executor_.run(program_);
    const Tensor& tensor = executor_.scope().tensor(name);
    return {tensor.data<double>(), tensor.data<double>() + tensor.numel()};
  }
  std::vector<double> value(const std::string& name) {
    const Tensor& tensor = executor_.scope().tensor(name);
    return {tensor.data<double>(), tensor.data<double>() + tensor.numel()};
  }

 private:
  void declare(const std::string& name, DType dtype, const Shape& shape) {
    VarDesc var;
    var.name = name;
    var.dtype = dtype;
    var.shape = shape;
    var.persistable = true;
    program_.global_block().add_var(std::move(var));
  }

  Program program_;
  Executor executor_;
  Operator op_;
};

TEST(RefByTrainerId, TakesTheTrainersOwn) {
  for (const int64_t trainer : {0, 1}) {
    const auto got = OneServerOp("ref_by_trainer_id")
                         .input("X", "a", {2}, {1, 2})
                         .input("X", "b", {2}, {3, 4})
                         .trainer(trainer)
                         .output("Out", "own")
                         .run("own");
    EXPECT_EQ(got, trainer == 0 ? std::vector<double>({1, 2}) : std::vector<double>({3, 4}));
  }
  OneServerOp unknown("ref_by_trainer_id");
  unknown.input("X", "a", {1}, {1}).trainer(1).output("Out", "own");
  EXPECT_THROW(unknown.run("own"), Error);
}

OneServerOp compensate(const std::string& form, double lambda) {
  OneServerOp op("dc_compensate");
  op.input("Param", "p", {3}, {1.0, 2.0, -1.0})
      .input("Grad", "g", {3}, {0.5, -2.0, 3.0})
      .input("Backup", "b", {3}, {0.0, 2.5, -3.0})
      .attrs({{"form", form}, {"lambda", lambda}, {"m", 0.5}, {"epsilon", 0.0}})
      .output("Out", "out");
  if (form != "constant") {
    op.input("MeanSquare", "ms", {3}, {0.25, 4.0, 9.0}).output("MeanSquareOut", "ms");
  }
  return op;
}

TEST(DcCompensate, FollowsItsFormulas) {
  // Delay 1, -0.5, 2; the mean square stays at g g, so that its root is |g|.
  EXPECT_EQ(compensate("constant", 1.0).run("out"), (std::vector<double>{0.75, -4.0, 21.0}));
  EXPECT_EQ(compensate("constant", 0.5).run("out"), (std::vector<double>{0.625, -3.0, 12.0}));
  OneServerOp adaptive = compensate("adaptive", 1.0);
  EXPECT_EQ(adaptive.run("out"), (std::vector<double>{1.0, -3.0, 9.0}));
  EXPECT_EQ(adaptive.value("ms"), (std::vector<double>{0.25, 4.0, 9.0}));
  // Ratios 1, 0.5, 2: the last is cut to 1.
  EXPECT_EQ(compensate("clipped", 1.0).run("out"), (std::vector<double>{1.0, -3.0, 6.0}));
}

TEST(DcCompensate, RefusesAnUnknownForm) {
  EXPECT_THROW(compensate("squared", 1.0).run("out"), Error);
}

TEST(SplitSelectedRows, GivesEachSectionItsRowsCountedFromItsFirst) {
  Program program;
  Executor executor;
  const auto declare = [&](const std::string& name, int64_t height) {
    VarDesc var;
    var.name = name;
    var.kind = VarKind::kSelectedRows;
    var.shape = Shape{height, 2};
    var.persistable = true;
    program.global_block().add_var(std::move(var));
  };
  declare("g", 10);
  declare("low", 4);
  declare("high", 6);
  SelectedRows rows;
  rows.height = 10;
  rows.rows = {7, 1, 4, 1};
  rows.value = Tensor(DType::kFloat32, Shape{4, 2});
  for (int i = 0; i < 8; ++i) rows.value.data<float>()[i] = static_cast<float>(i);
  executor.scope().var("g") = std::move(rows);
  Operator op;
  op.type = "split_selected_rows";
  op.inputs["X"] = {"g"};
  op.outputs["Out"] = {"low", "high"};
  op.attrs = {{"height_sections", std::vector<int64_t>{4, 6}}};
  append_op(program.global_block(), op);
  executor.run(program);
  const auto& low = std::get<SelectedRows>(executor.scope().var("low"));
  EXPECT_EQ(low.rows, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(low.height, 4);
  EXPECT_EQ(low.value.data<float>()[0], 2.0f);
  EXPECT_EQ(low.value.data<float>()[3], 7.0f);
  const auto& high = std::get<SelectedRows>(executor.scope().var("high"));
  EXPECT_EQ(high.rows, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(high.value.data<float>()[0], 0.0f);
  EXPECT_EQ(high.value.data<float>()[2], 4.0f);
}

TEST(SquaredRowSums, OfASliceAreThoseOfTheWhole) {
  std::vector<double> whole;
  whole.reserve(12);
  for (int i = 0; i < 12; ++i) whole.push_back(std::sqrt(i + 0.1));
  const auto all =
      OneServerOp("squared_row_sums").input("X", "x", {4, 3}, whole).output("Out", "s").run("s");
  ASSERT_EQ(all.size(), 4U);
  for (size_t row = 0; row < 4; ++row) {
    double sum = 0;
    for (size_t i = row * 3; i < row * 3 + 3; ++i) sum += whole[i] * whole[i];
    EXPECT_EQ(all[row], sum);
  }
  const auto part = OneServerOp("squared_row_sums")
                        .input("X", "x", {2, 3}, {whole.begin() + 6, whole.end()})
                        .output("Out", "s")
                        .run("s");
  EXPECT_EQ(part, (std::vector<double>{all[2], all[3]}));
}

// What the op makes of the selected rows {3, 1, 3} of 4, with values 1 to 6.
Tensor of_rows(const std::string& type) {
  Program program;
  Executor executor;
  VarDesc var;
  var.name = "g";
  var.kind = VarKind::kSelectedRows;
  var.shape = Shape{4, 2};
  var.persistable = true;
  program.global_block().add_var(var);
  var = {};
  var.name = "s";
  var.persistable = true;
  program.global_block().add_var(var);
  executor.scope().var("g") =
      SelectedRows{.rows = {3, 1, 3},
                   .height = 4,
                   .value = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2})};
  Operator op;
  op.type = type;
  op.inputs["X"] = {"g"};
  op.outputs["Out"] = {"s"};
  append_op(program.global_block(), op);
  executor.run(program);
  return executor.scope().tensor("s");
}

// Row 3 comes twice: its square is that of the sum.
TEST(SquaredRowSums, OfRowsAreThoseOfTheDenseGradient) {
  const Tensor sums = of_rows("squared_row_sums");
  EXPECT_THAT(sums.values<double>(), ElementsAre(0.0, 25.0, 0.0, 100.0));
}

TEST(MarkedRowSums, TellRowsThatCameFromOthers) {
  const Tensor sums = of_rows("marked_row_sums");
  EXPECT_TRUE(sums.shape() == (Shape{4, 2}));
  EXPECT_THAT(sums.values<float>(), ElementsAre(0, 0, 25, 1, 0, 0, 100, 1));
}

// A row that came counts, also when its sum is zero; what is not marked does not.
TEST(MarkedRowSums, AddUpInOrder) {
  const auto got = OneServerOp("sum_marked_rows")
                       .input("X", "x", {4, 2}, {0.5, 1, 7, 0, 0, 1, 2, 1})
                       .output("Out", "sum")
                       .run("sum");
  EXPECT_EQ(got, (std::vector<double>{2.5}));
}

// Three servers have rows 0 and 3, 1 and 4, 2 of five; what is behind the last one is dropped.
TEST(InterleaveRows, TakeTheirPlacesInTheTable) {
  const auto got = OneServerOp("interleave_rows")
                       .input("X", "x", {6, 2}, {0, 0.5, 3, 3.5, 1, 1.5, 4, 4.5, 2, 2.5, 99, 99})
                       .attrs({{"parts", int64_t{3}}, {"rows", int64_t{5}}})
                       .output("Out", "table")
                       .run("table");
  EXPECT_EQ(got, (std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5}));
}

}  // namespace
}  // namespace fleet::fluid
