#include "benchmarks/handwritten/sums_by_arrival.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace fleet::benchmarks {
namespace {

// A float that says whether it is there.
struct Sum {
  float value = 0;
  bool there = false;
  explicit operator bool() const { return there; }
};

// What the server's sum is when contributors come in this order.
float summed(const std::vector<uint32_t>& order, const std::vector<float>& values) {
  const auto count = static_cast<uint32_t>(order.size());
  const SumsByArrival rules;
  const strategies::SumTree tree = rules.tree(strategies::ContributorTable(count, count));
  strategies::SiblingSums<Sum> sums(tree);
  const auto join = [](Sum left, Sum right, bool) { return Sum{left.value + right.value, true}; };
  for (uint32_t arrived = 0; arrived < count; ++arrived) {
    sums.add(rules.place(order[arrived], arrived), {values[order[arrived]], true}, join);
    EXPECT_EQ(sums.held(), 1U) << "nothing waits for what is still to come";
  }
  return sums.finish(join).value;
}

TEST(SumsByArrival, IsOneRunningSum) {
  // Sums of these show their order.
  const std::vector<float> values = {1e8F, 1, -1e8F, 1, 3};
  std::vector<uint32_t> order = {0, 1, 2, 3, 4};
  do {
    float running = 0;
    for (const uint32_t contributor : order) running += values[contributor];
    ASSERT_EQ(summed(order, values), running);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SumsByArrival, OfOneContributorIsWhatItSends) {
  EXPECT_EQ(summed({0}, {7}), 7);
}

}  // namespace
}  // namespace fleet::benchmarks
