// Models that PaddlePaddle 1.8.5 saved (models/README.md) load, and say what they said there.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fluid/io/inference_model.h"
#include "tests/testing/paths.h"

namespace fleet::fluid::golden {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-5;  // of the largest value

std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::source_path("tests/golden/models"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  return names;
}

template <class T>
Tensor tensor_as(const Json& json) {
  Tensor tensor = Tensor::from(json["values"].get<std::vector<T>>(),
                               Shape(json["shape"].get<std::vector<int64_t>>()));
  LoD lod;
  for (const auto& level : json["lod"]) {
    lod.emplace_back(1, 0);
    for (const auto& length : level)
      lod.back().push_back(lod.back().back() + length.get<int64_t>());
  }
  if (!lod.empty()) tensor.set_lod(lod);
  return tensor;
}

Tensor tensor_of(const Json& json) {
  if (json["dtype"] == "int64") return tensor_as<int64_t>(json);
  return tensor_as<float>(json);
}

void expect_near(const Tensor& got, const Json& json) {
  EXPECT_EQ(got.shape().to_vector(), json["shape"].get<std::vector<int64_t>>());
  const auto expected = json["values"].get<std::vector<double>>();
  ASSERT_EQ(static_cast<size_t>(got.numel()), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double value = got.dtype() == DType::kInt64 ? static_cast<double>(got.data<int64_t>()[at])
                                                      : static_cast<double>(got.data<float>()[at]);
    EXPECT_NEAR(value, expected[i], kTolerance * largest) << "element " << i;
  }
}

class ReleaseModels : public ::testing::TestWithParam<std::string> {};

TEST_P(ReleaseModels, SayWhatTheySaidThere) {
  const std::filesystem::path folder = testing::source_path("tests/golden/models/" + GetParam());
  std::ifstream file(folder / "case.json");
  const Json json = Json::parse(file);
  Executor executor;
  const InferenceModel model =
      io::load_inference_model(folder, executor, {.model = "__model__", .params = "params"});
  Feed feed;
  for (const auto& [name, value] : json["feed"].items()) feed.emplace_back(name, tensor_of(value));
  const std::vector<Fetch> fetches(model.fetches.begin(), model.fetches.end());
  const auto results = executor.run(model.program, feed, fetches);
  ASSERT_EQ(results.size(), json["out"].size());
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(model.fetches[i]);
    expect_near(results[i], json["out"][i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReleaseModels, ::testing::ValuesIn(models()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace fleet::fluid::golden
