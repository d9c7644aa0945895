#include "base/numbers/philox_words.h"

#include <gtest/gtest.h>
#include <vector>

namespace fleet {
namespace {

TEST(PhiloxWords, AreThoseOfTheBlocks) {
  const RandomKey key = RandomKey::of(3, "words");
  constexpr uint64_t kStream = 0x123456789abcdefULL;
  // Within a block and across; the last one's upper half is not 0.
  for (const uint64_t first :
       {uint64_t{0}, uint64_t{3}, uint64_t{1} << 34, (uint64_t{1} << 34) - 35}) {
    for (size_t count = 0; count <= 100; ++count) {
      std::vector<uint32_t> words(count);
      philox_words(key, first, kStream, words);
      for (size_t i = 0; i < count; ++i) {
        const uint64_t index = first + i;
        ASSERT_EQ(words[i], philox(key, index / 4, kStream)[index % 4]) << first << " + " << i;
      }
    }
  }
}

TEST(PhiloxWords, UniformFloatsAreThoseOneByOne) {
  const RandomKey key = RandomKey::of(3, "floats");
  std::vector<float> values(2500);
  uniform_floats(key, 6, 1, values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], uniform_float(key, 6 + i, 1));
}

}  // namespace
}  // namespace fleet
