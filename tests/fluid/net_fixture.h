// Programs of a test's own, with fresh names.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/error.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {

class NetFixture : public ::testing::Test {
 protected:
  Block& block() { return main_.global_block(); }

  // Types of the main program's ops from `first` on.
  std::vector<std::string> op_types(size_t first = 0) {
    std::vector<std::string> types;
    for (size_t i = first; i < block().op_count(); ++i) types.push_back(block().op(i).type);
    return types;
  }
  // The first op of that type; the test fails when there is none.
  const Operator& op_of(const std::string& type) {
    for (const auto& op : block().ops()) {
      if (op->type == type) return *op;
    }
    ADD_FAILURE() << "no op " << type << " in\n" << main_.to_string();
    return empty_;
  }

  Program main_;
  Program startup_;

 private:
  ProgramGuard programs_{main_, startup_};
  unique_name::Guard names_;
  Operator empty_;
};

// Runs `action`, which must throw a fleet::Error that says all of `texts`, and fills in every
// field.
template <class Action>
void expect_error(Action action, ErrorCode code, const std::vector<std::string>& texts) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error_info(error.code()).name, error_info(code).name) << error.what();
    EXPECT_FALSE(error.text().where.empty()) << error.what();
    EXPECT_FALSE(error.text().expected.empty()) << error.what();
    EXPECT_FALSE(error.text().got.empty()) << error.what();
    EXPECT_FALSE(error.text().fix.empty()) << error.what();
    for (const std::string& text : texts) {
      EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(text));
    }
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace fleet::fluid
