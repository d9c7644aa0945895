// One case of the numeric golden files: its description and its tensors.
#pragma once

#include <gtest/gtest.h>
#include <string>

#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

inline std::string case_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

class FileCase : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    json_ = load(GetParam());
    if (!json_.contains("file")) GTEST_SKIP() << "not a case";
    reader_ = SafetensorsReader::open(GetParam().parent_path() / json_["file"].get<std::string>())
                  .value();
  }

  std::string id() const { return json_["case"].get<std::string>(); }
  Tensor tensor(const std::string& name) const { return reader_.read(name).value(); }
  double rtol(const Json& tolerance) const { return tolerance["rtol"].get<double>(); }
  void expect_equal(const Tensor& got, const std::string& name, double allowed) const {
    const std::string differs = difference(got, tensor(name), allowed);
    EXPECT_TRUE(differs.empty()) << name << " " << differs;
  }

  Json json_;
  SafetensorsReader reader_;
};

}  // namespace fleet::fluid::golden
