#include "fluid/program/shared.h"

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/program/program.h"

namespace fleet::fluid {
namespace {

TEST(Shared, CopiesShareUntilOneIsEdited) {
  Shared<std::string> a(std::string("one"));
  Shared<std::string> b = a;
  EXPECT_EQ(a.get(), b.get());
  b.edit() = "two";
  EXPECT_EQ(*a, "one");
  EXPECT_EQ(*b, "two");
  EXPECT_FALSE(a.is_shared());
}

TEST(Shared, IsEditedInPlaceWhenNobodySharesIt) {
  Shared<std::string> a(std::string("one"));
  const std::string* before = a.get();
  std::optional<Shared<std::string>> gone(a);
  EXPECT_TRUE(a.is_shared());
  gone.reset();
  a.edit() = "two";
  EXPECT_EQ(a.get(), before);
}

TEST(Shared, OneThatWasOpenedIsCopiedAtOnce) {
  Shared<std::string> a(std::string("one"));
  std::string& writable = a.open();
  const Shared<std::string> b = a;
  writable = "two";
  EXPECT_EQ(*a, "two");
  EXPECT_EQ(*b, "one");
}

TEST(Shared, IsEmptyWhenMovedFrom) {
  Shared<std::string> a(std::string("one"));
  const Shared<std::string> b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(*b, "one");
  const Shared<std::string> copy = a;  // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(copy);
}

TEST(Shared, KeepsItsIdentityThroughCopiesAndEdits) {
  Shared<std::string> a(std::string("one"));
  Shared<std::string> b = a;
  b.edit() = "two";
  EXPECT_EQ(a.identity(), b.identity());
  EXPECT_NE(Shared<std::string>(std::string("one")).identity(), a.identity());
}

TEST(Shared, HasAnotherVersionAfterEachEdit) {
  Shared<std::string> a(std::string("one"));
  const Shared<std::string> b = a;
  const uint64_t before = a.version();
  EXPECT_EQ(b.version(), before);
  a.edit() = "two";
  const uint64_t after = a.version();
  EXPECT_NE(after, before);
  EXPECT_EQ(b.version(), before);
  a.edit();
  EXPECT_NE(a.version(), after);
  a.open();
  const Shared<std::string> c = a;
  EXPECT_NE(c.version(), a.version()) << "who opened a may have changed it";
}

TEST(Shared, KeepsANoteUntilAnEdit) {
  Shared<std::string> a(std::string("one"));
  EXPECT_EQ(a.note(), 0U);
  a.set_note(7);
  Shared<std::string> b = a;
  EXPECT_EQ(b.note(), 7U);
  b.edit() = "two";
  EXPECT_EQ(b.note(), 0U);
  EXPECT_EQ(a.note(), 7U);
  a.edit();
  EXPECT_EQ(a.note(), 0U);
  a.open();
  a.set_note(7);
  EXPECT_EQ(a.note(), 0U) << "who opened it may change it at any time";
}

VarDesc named(std::string name) {
  VarDesc var;
  var.name = std::move(name);
  return var;
}

Operator typed(std::string type) {
  Operator op;
  op.type = std::move(type);
  return op;
}

// What an address gave before a copy was made still belongs to the program that gave it.
TEST(SharedPrograms, NeitherSeesAChangeOfTheOther) {
  Program program;
  Block& block = program.global_block();
  block.add_var(named("a"));
  block.append_op(typed("relu"));
  VarDesc& var = block.var("a");
  Operator& op = block.op(0);
  Program copy = program;
  var.persistable = true;
  op.type = "tanh";
  copy.global_block().var("a").is_data = true;
  copy.global_block().op(0).type = "exp";
  EXPECT_TRUE(block.var("a").persistable);
  EXPECT_FALSE(block.var("a").is_data);
  EXPECT_FALSE(copy.global_block().var("a").persistable);
  EXPECT_EQ(block.op(0).type, "tanh");
  EXPECT_EQ(copy.global_block().op(0).type, "exp");
}

// What a const program gave stays readable when the program gets its own behind a copy.
TEST(SharedPrograms, AddressesStayReadable) {
  Program program;
  program.global_block().add_var(named("a"));
  program.global_block().append_op(typed("relu"));
  const VarDesc& seen = *std::as_const(program).global_block().find_var("a");
  const Operator& op = std::as_const(program).global_block().op(0);
  {
    const Program copy = program;
    program.global_block().edit_var("a").persistable = true;
    program.global_block().edit_op(0).type = "tanh";
  }
  EXPECT_EQ(seen.name, "a");
  EXPECT_EQ(op.type, "relu");
}

TEST(SharedPrograms, CopiesAreChangedByThreads) {
  Program program;
  for (int i = 0; i < 100; ++i) {
    program.global_block().add_var(named(str_cat("v", i)));
    program.global_block().append_op(typed("relu"));
  }
  const Program& original = program;
  std::vector<Program> copies(4);
  std::vector<std::jthread> threads;
  threads.reserve(copies.size());
  for (size_t t = 0; t < copies.size(); ++t) {
    threads.emplace_back([&original, &copies, t] {
      Program own = original;
      for (int i = 0; i < 100; ++i) {
        own.global_block().edit_var(str_cat("v", i)).lod_level = static_cast<int32_t>(t);
        own.global_block().edit_op(static_cast<size_t>(i)).type = str_cat("op", t);
      }
      copies[t] = std::move(own);
    });
  }
  threads.clear();
  EXPECT_EQ(original.global_block().var("v7").lod_level, 0);
  for (size_t t = 0; t < copies.size(); ++t) {
    EXPECT_EQ(copies[t].global_block().var("v99").lod_level, static_cast<int32_t>(t));
    EXPECT_EQ(copies[t].global_block().op(99).type, str_cat("op", t));
  }
}

}  // namespace
}  // namespace fleet::fluid
