// Which optimizers of Paddle take gradients of selected rows: here all of them do.
#include <gtest/gtest.h>
#include <regex>

#include "fluid/layers/tensor.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_net.h"
#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {
namespace {

// What the file's table names: an optimizer and its arguments, as "Adam{'lazy_mode': True}".
struct Row {
  std::string optimizer;
  std::string result;
};

std::vector<Row> rows() {
  const auto path = directory() / "optimizers" / "sparse_support.json";
  std::vector<Row> found;
  if (!std::filesystem::exists(path)) return found;
  const Json file = load(path);
  for (const auto& [name, result] : file.at("result").items()) {
    found.push_back({name, result.is_string() ? result.get<std::string>() : result.dump()});
  }
  return found;
}

Json configuration(const std::string& text) {
  const size_t brace = text.find('{');
  std::string arguments = std::regex_replace(text.substr(brace), std::regex("'"), "\"");
  arguments = std::regex_replace(arguments, std::regex("True"), "true");
  arguments = std::regex_replace(arguments, std::regex("False"), "false");
  Json args = Json::parse(arguments);
  Json optimizer = {{"type", text.substr(0, brace)}, {"learning_rate", args["learning_rate"]}};
  args.erase("learning_rate");
  optimizer["args"] = args;
  return {{"config", {{"optimizer", optimizer}}}};
}

class SparseSupport : public ::testing::TestWithParam<Row> {};

TEST_P(SparseSupport, OptimizersTakeSelectedRows) {
  Program main;
  Program startup;
  {
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable param = layers::create_parameter(
        Shape{4, 2}, DType::kFloat32,
        {.name = "w", .attr = {.name = "w", .initializer = initializer::Constant{.value = 0.5}}});
    VarDesc grad;
    grad.name = "w@GRAD";
    grad.dtype = DType::kFloat32;
    grad.shape = Shape{4, 2};
    grad.kind = VarKind::kSelectedRows;
    grad.persistable = true;
    const Variable rows(main.global_block(), main.global_block().add_var(grad));
    const auto optimizer = fleet::golden::make_optimizer(configuration(GetParam().optimizer),
                                                         fleet::golden::Form::kOwn);
    optimizer->apply_gradients({{param, rows}}, &startup);
  }
  Executor executor;
  executor.run(startup);
  SelectedRows gradient;
  gradient.rows = {2, 2};
  gradient.height = 4;
  gradient.value = Tensor::from(std::vector<float>{0.5F, -0.25F, 1.0F, 2.0F}, Shape{2, 2});
  executor.scope().var("w@GRAD") = std::move(gradient);
  executor.run(main);
  const auto w = executor.scope().tensor("w").values<float>();
  EXPECT_NE(w[4], 0.5F) << "Paddle: " << GetParam().result;
  EXPECT_NE(w[5], 0.5F);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparseSupport);
INSTANTIATE_TEST_SUITE_P(Golden, SparseSupport, ::testing::ValuesIn(rows()), [](const auto& row) {
  return std::regex_replace(row.param.optimizer, std::regex("[^A-Za-z0-9]+"), "_");
});

}  // namespace
}  // namespace fleet::fluid::golden
