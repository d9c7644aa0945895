#include "fluid/program/var_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/program/program.h"

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

TEST(VarTable, FindsEveryNameAndNoOther) {
  VarTable table;
  EXPECT_EQ(table.find(""), VarTable::kNone);
  EXPECT_EQ(table.find("v0"), VarTable::kNone);
  for (int i = 0; i < 1000; ++i) table.add(named(str_cat("v", i)));
  EXPECT_EQ(table.count(), 1000U);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = str_cat("v", i);
    ASSERT_EQ(table.find(name), static_cast<size_t>(i));
    EXPECT_EQ(table.at(table.find(name)).name, name);
    EXPECT_EQ(table.find(name + "@GRAD"), VarTable::kNone);
  }
}

// Removals leave traces in the hash table: it must neither fill up nor lose a name by them.
TEST(VarTable, FindsTheRestAfterManyRemovals) {
  VarTable table;
  for (int i = 0; i < 10; ++i) table.add(named(str_cat("kept", i)));
  for (int i = 0; i < 1000; ++i) {
    const std::string name = str_cat("v", i);
    table.add(named(name));
    table.remove(name);
    EXPECT_EQ(table.find(name), VarTable::kNone);
  }
  for (int i = 0; i < 10; ++i) EXPECT_NE(table.find(str_cat("kept", i)), VarTable::kNone);
  EXPECT_EQ(table.count(), 10U);
}

TEST(VarTable, RenamesInPlace) {
  VarTable table;
  for (const char* name : {"a", "b", "c"}) table.add(named(name));
  table.rename("b", "z");
  EXPECT_EQ(table.find("b"), VarTable::kNone);
  EXPECT_EQ(table.find("z"), 1U);
  EXPECT_EQ(table.at(1).name, "z");
  table.rename("none", "y");
  EXPECT_EQ(table.find("y"), VarTable::kNone);
  table.rename("z", "c");
  EXPECT_EQ(table.count(), 2U);
  EXPECT_EQ(table.find("c"), 1U);
}

TEST(VarTable, CopiesChangeApart) {
  VarTable table;
  for (const char* name : {"a", "b"}) table.add(named(name));
  VarTable copy = table;
  EXPECT_EQ(&copy.at(0), &table.at(0));
  copy.handle(0).edit().shape = {7};
  copy.rename("b", "c");
  copy.remove("a");
  EXPECT_EQ(table.at(table.find("a")).shape[0], 1);
  EXPECT_EQ(table.at(table.find("b")).name, "b");
  EXPECT_EQ(table.find("c"), VarTable::kNone);
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
  copy.global_block().add_var(named("b"));
  const Program moved = std::move(copy);
  EXPECT_THAT(names_in_order(moved.global_block()), ElementsAre("d", "a", "c", "e", "b"));
  EXPECT_EQ(moved.global_block().var("a").shape[0], 7);
}

TEST_F(VarOrder, StaysWhenAVariableIsWrittenOver) {
  block().var("c") = named("c", 9);
  EXPECT_THAT(names_in_order(block()), ElementsAre("d", "a", "c", "e"));
  EXPECT_EQ(block().var("c").shape[0], 9);
}

}  // namespace
}  // namespace fleet::fluid
