#include "tests/testing/virtual_time/fiber.h"

#include <exception>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"

namespace fleet::testing {
namespace {

TEST(Fiber, GoesOnWhereItGaveTheThreadBack) {
  std::string said;
  Fiber fiber([&] {
    said += 'a';
    Fiber::suspend();
    said += 'b';
  });
  fiber.resume();
  EXPECT_EQ(said, "a");
  EXPECT_FALSE(fiber.over());
  fiber.resume();
  EXPECT_EQ(said, "ab");
  EXPECT_TRUE(fiber.over());
  fiber.resume();
  EXPECT_EQ(said, "ab");
}

TEST(Fiber, OneRunsInsideOfAnother) {
  std::vector<Fiber*> running;
  Fiber inner([&] {
    running.push_back(Fiber::current());
    Fiber::suspend();
  });
  Fiber outer([&] {
    inner.resume();
    running.push_back(Fiber::current());
    inner.resume();
  });
  outer.resume();
  EXPECT_EQ(running, (std::vector<Fiber*>{&inner, &outer}));
  EXPECT_TRUE(inner.over());
  EXPECT_EQ(Fiber::current(), nullptr);
}

// Each handles an exception while the other does, too.
TEST(Fiber, ExceptionsAreEachFibersOwn) {
  std::string said;
  const auto body = [&said](const std::string& name) {
    try {
      throw std::runtime_error(name);
    } catch (const std::exception& error) {
      Fiber::suspend();
      said += error.what();
      EXPECT_EQ(std::uncaught_exceptions(), 0);
    }
    EXPECT_EQ(std::current_exception(), nullptr);
  };
  Fiber one([&] { body("one "); });
  Fiber two([&] { body("two "); });
  one.resume();
  two.resume();
  EXPECT_EQ(std::current_exception(), nullptr);
  one.resume();
  two.resume();
  EXPECT_EQ(said, "one two ");
}

TEST(Fiber, NothingElseCanWait) {
  EXPECT_THROW(Fiber::suspend(), Error);
}

}  // namespace
}  // namespace fleet::testing
