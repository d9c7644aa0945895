// The runner knows every layer function of the library.
#include "tests/golden/golden_layers.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>

#include "fluid/program/default_programs.h"
#include "tests/testing/paths.h"

namespace fleet::golden {
namespace {

// Functions of fluid/layers that return what they made.
std::set<std::string> layer_functions() {
  std::set<std::string> functions;
  const std::regex declaration(R"(^(?:std::vector<Variable>|[A-Z]\w+) ([a-z]\w*)\()");
  const std::filesystem::path folder = fleet::testing::source_path("fluid/layers");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_search(line, match, declaration)) functions.insert(match[1]);
    }
  }
  return functions;
}

TEST(GoldenLayers, EveryLayerFunctionHasABuilder) {
  const auto functions = layer_functions();
  ASSERT_GT(functions.size(), 150U);
  const auto builders = all_builders();
  for (const std::string& name : functions) {
    // Not in Paddle 1.8.
    if (name == "sparse_embedding") continue;
    EXPECT_TRUE(builders.contains(name)) << name;
  }
}

struct LayerCase {
  const char* layers;  // what is appended to x [-1, 4], l [-1, 1], s [-1, 8] (sequences), i [1]
  const char* last;    // the type of the last op
};

class GoldenLayer : public ::testing::TestWithParam<LayerCase> {};

TEST_P(GoldenLayer, BuildsWhatPaddleBuilds) {
  Json golden = Json::parse(R"({"net": {"layers": [
    {"layer": "data", "args": {"name": "x", "shape": [4]}, "out": "x"},
    {"layer": "data", "args": {"name": "l", "shape": [1], "dtype": "int64"}, "out": "l"},
    {"layer": "data", "args": {"name": "s", "shape": [8], "lod_level": 1}, "out": "s"},
    {"layer": "fill_constant", "args": {"shape": [1], "dtype": "int64", "value": 0}, "out": "i"},
    {"layer": "less_than", "in": {"x": "x", "y": "x"}, "out": "c"}]}})");
  for (const Json& layer : Json::parse(GetParam().layers)) golden["net"]["layers"].push_back(layer);
  golden["net"]["loss"] = "out";
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const fluid::unique_name::Guard names;
  build_layers(golden);
  EXPECT_EQ(main.global_block().ops().back()->type, GetParam().last);
}

INSTANTIATE_TEST_SUITE_P(
    Values, GoldenLayer,
    ::testing::Values(
        LayerCase{R"([{"layer": "brelu", "in": {"x": "x"}, "out": "out"}])", "brelu"},
        LayerCase{R"([{"layer": "hard_sigmoid", "in": {"x": "x"}, "out": "out"}])", "hard_sigmoid"},
        LayerCase{R"([{"layer": "hard_swish", "in": {"x": "x"}, "out": "out"}])", "hard_swish"},
        LayerCase{R"([{"layer": "stanh", "in": {"x": "x"}, "out": "out"}])", "stanh"},
        LayerCase{R"([{"layer": "pow", "in": {"x": "x"}, "args": {"factor": 2.0}, "out": "out"}])",
                  "pow"},
        LayerCase{R"([{"layer": "uniform_random", "args": {"shape": [3, 2]}, "out": "out"}])",
                  "uniform_random"},
        LayerCase{R"([{"layer": "gaussian_random", "args": {"shape": [3, 2]}, "out": "out"}])",
                  "gaussian_random"},
        LayerCase{
            R"([{"layer": "prelu", "in": {"x": "x"}, "args": {"mode": "all"}, "out": "out"}])",
            "prelu"},
        LayerCase{R"([{"layer": "label_smooth", "in": {"label": "x"}, "out": "out"}])",
                  "label_smooth"},
        LayerCase{R"([{"layer": "zeros_like", "in": {"x": "x"}, "out": "out"}])",
                  "fill_zeros_like"},
        LayerCase{
            R"([{"layer": "range", "args": {"start": 0, "end": 9, "step": 3}, "out": "out"}])",
            "range"},
        LayerCase{R"([{"layer": "assign", "in": {"input": "x"}, "out": "out"}])", "assign"},
        LayerCase{
            R"([{"layer": "increment", "in": {"x": "i"}, "args": {"value": 2}, "out": "out"}])",
            "increment"},
        LayerCase{R"([{"layer": "unstack", "in": {"x": "x"}, "args": {"axis": 1, "num": 4},
                       "out": ["out", "b", "c2", "d"]}])",
                  "unstack"},
        LayerCase{R"([{"layer": "slice", "in": {"input": "x"}, "out": "out",
                       "args": {"axes": [1], "starts": [0], "ends": [2]}}])",
                  "slice"},
        LayerCase{R"([{"layer": "expand", "in": {"x": "x"}, "args": {"expand_times": [1, 2]},
                       "out": "out"}])",
                  "expand"},
        LayerCase{R"([{"layer": "pad", "in": {"x": "x"}, "args": {"paddings": [0, 0, 1, 1]},
                       "out": "out"}])",
                  "pad"},
        LayerCase{R"([{"layer": "reverse", "in": {"x": "x"}, "args": {"axis": 1}, "out": "out"}])",
                  "reverse"},
        LayerCase{R"([{"layer": "cumsum", "in": {"x": "x"}, "args": {"axis": 1}, "out": "out"}])",
                  "cumsum"},
        LayerCase{R"([{"layer": "one_hot", "in": {"input": "l"}, "args": {"depth": 3},
                       "out": "out"}])",
                  "one_hot"},
        LayerCase{R"([{"layer": "hash", "in": {"input": "l"}, "args": {"hash_size": 100,
                       "num_hash": 2}, "out": "out"}])",
                  "hash"},
        LayerCase{R"([{"layer": "data", "args": {"name": "w", "shape": [1], "dtype": "int64",
                       "lod_level": 1}, "out": "w"},
                      {"layer": "fused_embedding_seq_pool", "in": {"input": "w"},
                       "args": {"size": [10, 4], "padding_idx": -2}, "out": "out"}])",
                  "fused_embedding_seq_pool"},
        LayerCase{R"([{"layer": "argmin", "in": {"x": "x"}, "args": {"axis": 1}, "out": "out"}])",
                  "arg_min"},
        LayerCase{R"([{"layer": "argsort", "in": {"input": "x"}, "out": ["out", "order"]}])",
                  "argsort"},
        LayerCase{R"([{"layer": "where", "in": {"condition": "c"}, "out": "out"}])", "where_index"},
        LayerCase{R"([{"layer": "shape", "in": {"input": "x"}, "out": "out"}])", "shape"},
        LayerCase{R"([{"layer": "logical_not", "in": {"x": "c"}, "out": "out"}])", "logical_not"},
        LayerCase{R"([{"layer": "isfinite", "in": {"x": "x"}, "out": "out"}])", "isfinite"},
        LayerCase{R"([{"layer": "array_write", "in": {"x": "x", "i": "i"}, "out": "a"},
                      {"layer": "array_read", "in": {"array": "a", "i": "i"}, "out": "out"}])",
                  "read_from_array"},
        LayerCase{R"([{"layer": "dynamic_lstm", "in": {"input": "s"}, "args": {"size": 8},
                       "out": ["out", "cell"]}])",
                  "lstm"},
        LayerCase{R"([{"layer": "fill_constant", "args": {"shape": [1], "value": 0.0}, "out": "p"},
                      {"layer": "sequence_pad", "in": {"x": "s", "pad_value": "p"},
                       "out": ["out", "length"]}])",
                  "sequence_pad"},
        LayerCase{R"([{"layer": "noam_decay", "args": {"d_model": 8, "warmup_steps": 10},
                       "out": "out"}])",
                  "scale"}));

// The types of the ops of every block of the net.
std::vector<std::vector<std::string>> op_types(const char* net) {
  const Json golden = {{"net", Json::parse(net)}};
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const fluid::unique_name::Guard names;
  build_layers(golden);
  std::vector<std::vector<std::string>> types;
  for (int32_t i = 0; i < main.block_count(); ++i) {
    types.emplace_back();
    for (const auto& op : main.block(i).ops()) types.back().push_back(op->type);
  }
  return types;
}

using ::testing::ElementsAre;

TEST(GoldenLayers, BranchesAreFunctionsThatSeeWhatIsAroundThem) {
  const auto types = op_types(R"({"loss": "out", "layers": [
    {"layer": "data", "args": {"name": "x", "shape": [4]}, "out": "x"},
    {"layer": "fill_constant", "args": {"shape": [1], "value": 1.0}, "out": "a"},
    {"layer": "less_than", "in": {"x": "a", "y": "a"}, "out": "c"},
    {"layer": "cond", "in": {"pred": "c"}, "out": "out", "args": {
      "true_fn": {"layers": [{"layer": "relu", "in": {"x": "x"}, "out": "a"}], "out": "a"},
      "false_fn": {"layers": [{"layer": "scale", "in": {"x": "a"}, "out": "b"}], "out": ["b"]}}},
    {"layer": "exp", "in": {"x": "a"}}]})");
  ASSERT_EQ(types.size(), 3U);
  EXPECT_THAT(types[0],
              ElementsAre("fill_constant", "less_than", "conditional_block", "logical_not",
                          "conditional_block", "cast", "select_input", "exp"));
  EXPECT_THAT(types[1], ElementsAre("relu", "assign"));
  EXPECT_THAT(types[2], ElementsAre("scale", "assign"));
}

TEST(GoldenLayers, LoopsAreFunctionsOfTheirVariables) {
  const auto types = op_types(R"({"loss": "sum", "layers": [
    {"layer": "fill_constant", "args": {"shape": [1], "dtype": "int64", "value": 0}, "out": "i"},
    {"layer": "fill_constant", "args": {"shape": [1], "dtype": "int64", "value": 9}, "out": "n"},
    {"layer": "fill_constant", "args": {"shape": [1], "value": 1.0}, "out": "x"},
    {"layer": "while_loop", "in": {"loop_vars": ["i", "x"]}, "out": ["last", "sum"], "args": {
      "cond": {"in": ["j", "y"], "out": "more",
               "layers": [{"layer": "less_than", "in": {"x": "j", "y": "n"}, "out": "more"}]},
      "body": {"in": ["j", "y"], "out": ["j", "z"],
               "layers": [{"layer": "increment", "in": {"x": "j"}, "out": "j"},
                          {"layer": "tanh", "in": {"x": "y"}, "out": "z"}]}}}]})");
  ASSERT_EQ(types.size(), 2U);
  EXPECT_THAT(types[0], ElementsAre("fill_constant", "fill_constant", "fill_constant", "assign",
                                    "assign", "less_than", "while"));
  EXPECT_THAT(types[1], ElementsAre("increment", "tanh", "assign", "assign", "assign", "assign",
                                    "less_than", "assign"));
}

TEST(GoldenLayers, FunctionsOfOtherVariablesAreNotKnown) {
  EXPECT_THROW(op_types(R"({"loss": "i", "layers": [
    {"layer": "fill_constant", "args": {"shape": [1], "dtype": "int64", "value": 0}, "out": "i"},
    {"layer": "while_loop", "in": {"loop_vars": ["i"]}, "out": "out", "args": {
      "cond": {"in": ["j", "k"], "out": "c",
               "layers": [{"layer": "less_than", "in": {"x": "j", "y": "k"}, "out": "c"}]},
      "body": {"in": ["j"], "out": ["j"], "layers": []}}}]})"),
               NotYetKnown);
  EXPECT_THROW(op_types(R"({"loss": "c", "layers": [
    {"layer": "data", "args": {"name": "c", "shape": [1], "dtype": "bool"}, "out": "c"},
    {"layer": "cond", "in": {"pred": "c"}, "out": "out", "args": {
      "true_fn": {"layers": [], "out": []}}}]})"),
               NotYetKnown);
}

TEST(GoldenLayers, SoftmaxWithCrossEntropyGivesTheSoftmaxToo) {
  for (const char* form : {R"("softmax_with_cross_entropy", "args": {"return_softmax": true})",
                           R"("softmax_with_cross_entropy_full")"}) {
    const auto types = op_types(str_cat(R"({"loss": "loss", "layers": [
      {"layer": "data", "args": {"name": "x", "shape": [4]}, "out": "x"},
      {"layer": "data", "args": {"name": "l", "shape": [1], "dtype": "int64"}, "out": "l"},
      {"in": {"logits": "x", "label": "l"}, "out": ["loss", "softmax"], "layer": )",
                                        form, R"(},
      {"layer": "argmax", "in": {"x": "softmax"}, "args": {"axis": 1}, "out": "best"}]})")
                                    .c_str());
    EXPECT_THAT(types[0], ElementsAre("softmax_with_cross_entropy", "arg_max")) << form;
  }
}

TEST(GoldenLayers, AnUnknownLayerOrArgumentIsNoSkip) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const auto build = [](const char* layer) {
    build_layers({{"net", {{"layers", Json::array({Json::parse(layer)})}, {"loss", "out"}}}});
  };
  EXPECT_THROW(build(R"({"layer": "no_such_layer", "out": "out"})"), NotYetKnown);
  EXPECT_THROW(build(R"({"layer": "ones", "args": {"shape": [1], "colour": 3}, "out": "out"})"),
               NotYetKnown);
}

}  // namespace
}  // namespace fleet::golden
