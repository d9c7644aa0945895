#include "base/buffer.h"

#include <gtest/gtest.h>
#include <thread>
#include <utility>

namespace fleet {
namespace {

TEST(Buffer, IsUniqueWhileItHasOneHandle) {
  Buffer buffer(8);
  EXPECT_TRUE(buffer.unique());
  Buffer other = buffer;
  EXPECT_FALSE(buffer.unique());
  other = {};
  EXPECT_TRUE(buffer.unique());
  EXPECT_FALSE(Buffer().unique());
}

// ThreadSanitizer reports a race where unique() does not order the reads of the other thread.
TEST(Buffer, IsUniqueOnceOtherThreadsAreDoneWithIt) {
  Buffer buffer(1);
  *buffer.data() = std::byte{1};
  for (int i = 0; i < 100; ++i) {
    std::byte seen{};
    std::thread reader([handle = buffer, &seen]() mutable {
      seen = *handle.data();
      handle = {};
    });
    while (!buffer.unique()) std::this_thread::yield();
    *buffer.data() = std::byte{2};
    reader.join();
    EXPECT_EQ(seen, i == 0 ? std::byte{1} : std::byte{2});
  }
}

}  // namespace
}  // namespace fleet
