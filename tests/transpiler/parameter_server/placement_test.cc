#include "transpiler/parameter_server/placement.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::transpiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int64_t> rows_of(const std::vector<RowSlice>& slices) {
  std::vector<int64_t> rows;
  rows.reserve(slices.size());
  for (const RowSlice& slice : slices) rows.push_back(slice.shape[0]);
  return rows;
}

TEST(SliceRows, CutsThousandRowsForThreeServersIntoAlmostEqualParts) {
  const auto slices = slice_rows({1000, 1000}, 3, 8192);
  EXPECT_EQ(rows_of(slices), (std::vector<int64_t>{334, 334, 332}));
  EXPECT_EQ(slices[2].offset, 668000);
}

TEST(SliceRows, KeepsSmallVariablesWhole) {
  EXPECT_EQ(slice_rows({1000}, 4, 8192).size(), 1u);
  EXPECT_EQ(slice_rows({128, 64}, 4, 8192).size(), 1u);   // exactly one block
  EXPECT_EQ(slice_rows({128, 128}, 4, 8192).size(), 2u);  // exactly two
  EXPECT_EQ(slice_rows({1000, 1000}, 1, 8192).size(), 1u);
}

TEST(SliceRows, NeverCutsARow) {
  EXPECT_EQ(rows_of(slice_rows({3, 10000}, 2, 8192)), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(rows_of(slice_rows({1, 100000}, 4, 8192)), (std::vector<int64_t>{1}));
}

TEST(SliceRows, CoversEveryElementOnce) {
  for (int64_t rows = 1; rows < 60; rows += 7) {
    for (const int64_t columns : {int64_t{1}, int64_t{300}, int64_t{9000}}) {
      for (int parts = 1; parts < 9; ++parts) {
        int64_t next = 0;
        for (const RowSlice& slice : slice_rows({rows, columns}, parts, 8192)) {
          EXPECT_EQ(slice.offset, next);
          EXPECT_GT(slice.shape[0], 0);
          next += slice.shape.numel();
        }
        EXPECT_EQ(next, rows * columns);
      }
    }
  }
}

std::vector<std::string> some_servers(int count) {
  std::vector<std::string> servers;
  servers.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) servers.push_back(str_cat("127.0.0.1:", 6174 + i));
  return servers;
}

std::vector<ServerPart> parts_of(const std::vector<int64_t>& step_bytes) {
  std::vector<ServerPart> parts;
  parts.reserve(step_bytes.size());
  for (const int64_t bytes : step_bytes) {
    parts.push_back({.name = str_cat("p", parts.size()),
                     .bytes = bytes == 0 ? 100 : bytes,
                     .step_bytes = bytes});
  }
  return parts;
}

TEST(SplitMethods, RoundRobinDealsInTurn) {
  EXPECT_EQ(RoundRobin().dispatch(parts_of({5, 1, 1, 9}), some_servers(3)),
            (std::vector<int>{0, 1, 2, 0}));
}

TEST(SplitMethods, HashNameHashesNamesStably) {
  const auto alone =
      HashName().dispatch(std::vector<ServerPart>{{.name = "fc_0.w_0.block1"}}, some_servers(5));
  const auto second = HashName().dispatch(
      std::vector<ServerPart>{{.name = "something else"}, {.name = "fc_0.w_0.block1"}},
      some_servers(5));
  EXPECT_EQ(second[1], alone[0]);
  EXPECT_GE(alone[0], 0);
  EXPECT_LT(alone[0], 5);
}

TEST(SplitMethods, BalancedDealsTheLargestFirstToTheLeastLoaded) {
  EXPECT_EQ(Balanced().dispatch(parts_of({1, 8, 2, 8, 4}), some_servers(2)),
            (std::vector<int>{1, 0, 1, 1, 0}));
  // Tables go by bytes.
  EXPECT_EQ(Balanced().dispatch(parts_of({0, 300, 0, 0}), some_servers(2)),
            (std::vector<int>{1, 0, 1, 1}));
}

TEST(SplitMethods, BalancedServersDifferByOnePartAtMost) {
  uint64_t state = 1;
  for (int run = 0; run < 200; ++run) {
    std::vector<int64_t> sizes;
    for (int i = 0; i < 1 + run % 17; ++i) {
      state = mix64(state + 1);
      sizes.push_back(1 + static_cast<int64_t>(state % 1000));
    }
    const auto servers = some_servers(1 + run % 7);
    const auto dispatched = Balanced().dispatch(parts_of(sizes), servers);
    std::vector<int64_t> loads(servers.size());
    for (size_t i = 0; i < sizes.size(); ++i) loads[static_cast<size_t>(dispatched[i])] += sizes[i];
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_LE(*most - *least, *std::max_element(sizes.begin(), sizes.end()));
  }
}

TEST(LevelRows, FillsServersToOneLevel) {
  // The quick start's second layer: 128 rows beside what is not cut.
  const std::vector<int64_t> besides = {1546, 8192};
  const auto rows = level_rows(besides, 128, 128, 64);
  EXPECT_EQ(rows, (std::vector<int64_t>{90, 38}));
  EXPECT_EQ(level_rows(std::vector<int64_t>{0, 0, 0}, 1, 10, 1), (std::vector<int64_t>{4, 3, 3}));
}

TEST(LevelRows, KeepsEveryRowAndTheLeast) {
  uint64_t state = 7;
  const auto draw = [&state](int64_t below) {
    state = mix64(state + 1);
    return static_cast<int64_t>(state % static_cast<uint64_t>(below));
  };
  for (int run = 0; run < 300; ++run) {
    std::vector<int64_t> loads(static_cast<size_t>(2 + draw(5)));
    for (int64_t& load : loads) load = draw(1000);
    std::sort(loads.begin(), loads.end());
    const int64_t least = 1 + draw(5);
    const int64_t rows = least * static_cast<int64_t>(loads.size()) + draw(200);
    const auto levelled = level_rows(loads, 1 + draw(20), rows, least);
    EXPECT_EQ(std::accumulate(levelled.begin(), levelled.end(), int64_t{0}), rows);
    for (size_t i = 0; i + 1 < levelled.size(); ++i) EXPECT_GE(levelled[i], least);
    EXPECT_GE(levelled.back(), 1);
  }
}

// Everything on the last server.
class ToTheLast final : public PSDispatcher {
 public:
  explicit ToTheLast(int beyond = 0, size_t missing = 0) : beyond_(beyond), missing_(missing) {}
  std::string name() const override { return "ToTheLast"; }
  std::vector<int> dispatch(std::span<const ServerPart> parts,
                            std::span<const std::string> servers) const override {
    return std::vector<int>(parts.size() - missing_,
                            static_cast<int>(servers.size()) - 1 + beyond_);
  }

 private:
  int beyond_;
  size_t missing_;
};

class CalledAsAnother final : public PSDispatcher {
 public:
  std::string name() const override { return "RoundRobin"; }
  std::vector<int> dispatch(std::span<const ServerPart> parts,
                            std::span<const std::string>) const override {
    return std::vector<int>(parts.size());
  }
};

DistributeTranspiler transpiled(const SplitMethod& method, const SampleNet& net, int servers) {
  DistributeTranspiler transpiler({.split_method = method});
  transpiler.transpile(options_for(net, servers, 2));
  return transpiler;
}

TEST(SplitMethods, OfOnesOwnPlaceEverySlice) {
  DistributeTranspilerConfig config;
  config.split_method = ToTheLast();
  const SampleNet net = reference_net();
  const auto transpiler = transpiled(config.split_method, net, 3);
  for (const auto& row : transpiler.plan().overview) {
    EXPECT_EQ(row.endpoint, server_endpoints(3).back());
  }
  EXPECT_EQ(config, DistributeTranspilerConfig(config));
  EXPECT_FALSE(config.split_method == SplitMethod(ToTheLast()));
  EXPECT_TRUE(SplitMethod(Balanced()) == SplitMethod("Balanced"));
}

TEST(SplitMethods, MistakesOfOnesOwnAreNamed) {
  const SampleNet net = reference_net();
  const auto refusal = [&net](const SplitMethod& method) {
    try {
      transpiled(method, net, 2);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(ToTheLast(1)), AllOf(HasSubstr("split_method 'ToTheLast'"),
                                           HasSubstr("0 to 1"), HasSubstr("got: 2")));
  EXPECT_THAT(refusal(ToTheLast(0, 1)), HasSubstr("left parts out"));
  EXPECT_THAT(refusal(CalledAsAnother()), HasSubstr("needs a name of its own"));
  EXPECT_THAT(refusal("Ballanced"), HasSubstr("did you mean 'Balanced'?"));
}

int64_t most_elements(const DistributeTranspiler& transpiler) {
  std::map<std::string, int64_t> loads;
  for (const auto& row : transpiler.plan().overview) {
    if (row.vtype == "Param") loads[row.endpoint] += fluid::Shape(row.slice_shape).numel();
  }
  int64_t most = 0;
  for (const auto& [endpoint, load] : loads) most = std::max(most, load);
  return most;
}

TEST(SplitMethods, BalancedCutsSoThatServersComeOutEven) {
  for (const int servers : {2, 3, 4}) {
    for (const SampleNet& net : {reference_net(), adam_net()}) {
      EXPECT_LE(most_elements(transpiled("Balanced", net, servers)),
                most_elements(transpiled("RoundRobin", net, servers)));
    }
  }
}

}  // namespace
}  // namespace fleet::transpiler
