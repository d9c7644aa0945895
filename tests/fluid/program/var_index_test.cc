#include "fluid/program/var_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/strings.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;

VarDesc named(std::string name, int64_t size = 1) {
  VarDesc var;
  var.name = std::move(name);
  var.shape = {size};
  return var;
}

std::vector<std::string> names_in_order(const Block& block) {
  std::vector<std::string> names;
  for (const VarDesc* var : block.vars_in_order()) names.push_back(var->name);
  return names;
}

TEST(VarIndex, FindsEveryNameAndNoOther) {
  Program program;
  for (int i = 0; i < 1000; ++i) program.global_block().add_var(named(str_cat("v", i)));
  VarIndex index(program);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = str_cat("v", i);
    EXPECT_EQ(index.find(program.global_block(), name), program.global_block().find_var(name));
    EXPECT_EQ(index.find(program.global_block(), name + "@GRAD"), nullptr);
  }
}

TEST(VarIndex, LooksIntoEnclosingBlocksLast) {
  Program program;
  program.global_block().add_var(named("both", 1));
  program.global_block().add_var(named("outer"));
  Block& inner = program.add_block(0);
  inner.add_var(named("both", 2));
  inner.add_var(named("inner"));
  VarIndex index(program);
  EXPECT_EQ(index.find(inner, "both"), inner.find_var("both"));
  EXPECT_EQ(index.find(inner, "outer"), program.global_block().find_var("outer"));
  EXPECT_EQ(index.find(program.global_block(), "both"), program.global_block().find_var("both"));
  EXPECT_EQ(index.find(program.global_block(), "inner"), nullptr);
}

TEST(VarIndex, HasNothingOfAnEmptyBlock) {
  const Program program;
  VarIndex index(program);
  EXPECT_EQ(index.find(program.global_block(), ""), nullptr);
  EXPECT_EQ(index.find(program.global_block(), "v"), nullptr);
}

class VarOrder : public testing::Test {
 protected:
  VarOrder() {
    for (const char* name : {"d", "b", "a", "c", "e"}) block().add_var(named(name));
    block().add_var(named("a", 7));
    block().remove_var("b");
  }
  Block& block() { return program_.global_block(); }

  Program program_;
};

TEST_F(VarOrder, IsThatOfCreation) {
  EXPECT_THAT(names_in_order(block()), ElementsAre("d", "a", "c", "e"));
  block().rename_var("a", "z");
  EXPECT_THAT(names_in_order(block()), ElementsAre("d", "z", "c", "e"));
}

TEST_F(VarOrder, GoesAlongToCopiesAndWhatComesLaterIsLast) {
  Program copy = program_;
  EXPECT_THAT(names_in_order(copy.global_block()), ElementsAre("d", "a", "c", "e"));
  EXPECT_EQ(copy.global_block().vars_in_order().back()->creation, 3U);
  copy.global_block().add_var(named("b"));
  const Program moved = std::move(copy);
  EXPECT_THAT(names_in_order(moved.global_block()), ElementsAre("d", "a", "c", "e", "b"));
  EXPECT_EQ(moved.global_block().var("a").shape[0], 7);
}

TEST_F(VarOrder, HasEveryVariableOneOfWhichWasWrittenOver) {
  block().var("c") = named("c");
  EXPECT_THAT(names_in_order(block()), testing::UnorderedElementsAre("d", "a", "c", "e"));
  const Program copy = program_;
  EXPECT_EQ(names_in_order(copy.global_block()).size(), 4U);
}

}  // namespace
}  // namespace fleet::fluid
