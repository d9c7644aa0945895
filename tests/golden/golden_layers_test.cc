// The runner knows every layer function of the library.
#include "tests/golden/golden_layers.h"

#include <filesystem>
#include <fstream>
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
  // Layers that are given functions, which no description can hold, and the one that the original
  // calls softmax_with_cross_entropy(return_softmax=True).
  const std::set<std::string> others = {"cond", "while_loop", "softmax_with_cross_entropy_full"};
  const auto functions = layer_functions();
  ASSERT_GT(functions.size(), 150U);
  const auto builders = all_builders();
  for (const std::string& name : functions) {
    EXPECT_NE(builders.contains(name), others.contains(name)) << name;
  }
}

struct LayerCase {
  const char* layers;  // what is appended to x [-1, 4], l [-1, 1], s [-1, 8] (sequences), i [1]
  const char* last;    // the type of the last op
};

class GoldenLayer : public ::testing::TestWithParam<LayerCase> {};

TEST_P(GoldenLayer, BuildsWhatTheOriginalBuilds) {
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
