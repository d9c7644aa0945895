#include "base/buffer.h"

#include <cstdint>
#include <cstring>
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

TEST(Buffer, IsAlignedAndUsableToItsLastByteWhateverItsSize) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{65}, size_t{70'000}, (size_t{5} << 20) + 3}) {
    const Buffer buffer(bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U) << bytes << " bytes";
    std::memset(buffer.data(), 1, bytes);
  }
}

}  // namespace
}  // namespace fleet
