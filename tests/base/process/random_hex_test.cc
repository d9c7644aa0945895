#include "base/process/random_hex.h"

#include <gtest/gtest.h>

namespace fleet {
namespace {

TEST(RandomHex, HasTwoDigitsAByteAndIsNeverTheSame) {
  EXPECT_EQ(random_hex(0), "");
  EXPECT_EQ(random_hex(7).size(), 14U);
  EXPECT_EQ(random_hex(300).find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(random_hex(16), random_hex(16));
}

TEST(JobSecret, HasThirtyTwoBytes) {
  EXPECT_EQ(make_job_secret().size(), 64U);
  EXPECT_NE(make_job_secret(), make_job_secret());
}

}  // namespace
}  // namespace fleet
