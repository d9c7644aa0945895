#include "base/display.h"

#include <gtest/gtest.h>

namespace fleet {
namespace {

TEST(Display, WritesNumbersWithFixedDigits) {
  EXPECT_EQ(fixed(2.0 / 3, 2), "0.67");
  EXPECT_EQ(fixed(1234567, 0), "1234567");
}

TEST(Display, WritesBytesInDecimalUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.0 kB");
  EXPECT_EQ(bytes_text(4'004'000), "4.0 MB");
  EXPECT_EQ(bytes_text(5e15), "5000.0 TB");
}

TEST(Display, AlignsColumns) {
  EXPECT_EQ(table_text({{"op", "ms"}, {"mul", "7"}, {"c", "12345"}}),
            "  op      ms\n  mul      7\n  c    12345\n");
}

TEST(Display, EscapesMarkup) {
  EXPECT_EQ(escape_markup("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
}

}  // namespace
}  // namespace fleet
