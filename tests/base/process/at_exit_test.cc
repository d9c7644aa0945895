#include "base/process/at_exit.h"

#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>

namespace fleet {
namespace {

// Says on stderr that it ends.
struct Loud {
  ~Loud() { std::fprintf(stderr, "static ends "); }
};

void exit_with_static_and_work() {
  static const Loud loud;
  const AtExit outer([] { std::fprintf(stderr, "earlier work "); });
  const AtExit inner([] { std::fprintf(stderr, "later work "); });
  std::exit(0);
}

TEST(AtExitDeathTest, RunsBeforeWhatWasThereBeforeEnds) {
  EXPECT_EXIT(exit_with_static_and_work(), ::testing::ExitedWithCode(0),
              "later work earlier work static ends");
}

TEST(AtExitDeathTest, DoesNotRunWhenItIsGone) {
  EXPECT_EXIT(
      {
        std::optional<AtExit> gone;
        gone.emplace([] { std::fprintf(stderr, "work"); });
        gone.reset();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(AtExitDeathTest, DoesNotRunInAForkedChild) {
  const AtExit parents([] { std::fprintf(stderr, "work"); });
  EXPECT_EXIT(std::exit(0), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace fleet
