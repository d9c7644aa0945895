// One case of the numeric golden files: its description and its tensors.
#pragma once

#include <gmock/gmock.h>
#include <span>
#include <string>
#include <vector>

#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

inline std::string case_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

class FileCase : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    json_ = load(GetParam());
    ASSERT_TRUE(json_.contains("file")) << "not a case";
    ASSERT_THAT(unknown_in(json_), ::testing::IsEmpty());
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

  // The names of the file's tensors that begin with `prefix`, without it.
  std::vector<std::string> stored_below(const std::string& prefix) const;
  // Rows of the pool "<prefix><input>", in order; of a sequence, the elements of those rows.
  Feed feed_of(const std::string& prefix, std::span<const int64_t> rows) const;

  Json json_;
  SafetensorsReader reader_;

 private:
  Tensor sequences(const std::string& name, std::span<const int64_t> rows) const;
};

}  // namespace fleet::fluid::golden
